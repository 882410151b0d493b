"""The files of a task between private servers, and the task run as the command line runs it, but without a JVM.

All tests that need a task on real servers build on this module; tests/README.md says which class fits which test.
"""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.localspark import LocalSpark
from unshard.adapters.meta.tables import meta_version, metadata
from unshard.cli import main
from unshard.config import Task, load_task
from unshard.units.checks.precheck import precheck
from unshard.units.task.run import RunOutcome, run
from unshard.units.task.status import begun
from unshard.units.validate.validate import Settings as Comparison
from unshard.units.validate.validate import TableResult, validate
from unshard.units.work import LIMITS, Limits, Work, open_work
from unshard_demo.servers import MariaDb


def endpoint(server: MariaDb, user: str = "", password: str = "") -> dict[str, object]:
    """Return the keys that reach a server, as its administrator if no user is named."""
    account = {"user": user or server.server.user, "password": password or server.password}
    return {"host": "127.0.0.1", "port": server.port, **account}


def write_sources(folder: Path, sources: Mapping[str, MariaDb]) -> None:
    """Write the source files of a task whose file is in that folder."""
    for source, server in sources.items():
        write_source(folder, source, endpoint(server))


def write_source(folder: Path, source: str, reached: Mapping[str, object], **more: object) -> None:
    """Write one source file of such a task."""
    (folder / "sources").mkdir(exist_ok=True)
    body = {"source-id": source, "from": dict(reached), **more}
    (folder / "sources" / f"{source}.yaml").write_text(yaml.safe_dump(body))


@contextlib.contextmanager
def schemas(name: str, sources: Iterable[MariaDb], target: MariaDb) -> Iterator[None]:
    """Create the schema of the shards on each source; that, and those of the task on the target, go with the block."""
    for server in sources:
        server.run(f"CREATE DATABASE {name}")
    yield
    for server in (*sources, target):
        server.run(*(f"DROP DATABASE IF EXISTS {name}{end}" for end in ("", "_to", "_meta")))


@contextlib.contextmanager
def tidied(*servers: MariaDb) -> Iterator[None]:
    """Drop the schemas behind the block that were made in it."""
    before = [set(server.run("SHOW DATABASES")) for server in servers]
    yield
    for server, old in zip(servers, before, strict=True):
        server.run("SELECT 1", *(f"DROP DATABASE `{s}`" for (s,) in set(server.run("SHOW DATABASES")) - old))


META = "meta_of_tests"
"""A meta schema that the tests with this target use one after the other: to make one takes longer than many a test."""


_USERS: Counter[int] = Counter()
"""Tasks that use it at this moment, by the port of the target."""


@contextlib.contextmanager
def using_meta(target: MariaDb) -> Iterator[None]:
    """Let the task of the block use META, without what the test before has left there."""
    if not _USERS[target.port]:
        _empty_meta(target)
    _USERS[target.port] += 1
    try:
        yield
    finally:
        _USERS[target.port] -= 1


def _empty_meta(target: MariaDb) -> None:
    """Delete all rows; the schema itself if it is not as `create_tables` makes it."""
    of_meta = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{META}'"
    there = {str(name) for (name,) in target.run(of_meta)}
    if there == set(metadata.tables):
        target.run(f"USE {META}", *(f"DELETE FROM `{name}`" for name in there - {meta_version.name}))
    else:
        target.run(f"DROP DATABASE IF EXISTS {META}")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a test may want to be different."""

    mode: str = "all"
    chunk_rows: int = 1000
    threads: int = 2
    on_duplicate: str = "error"
    spark: str = "local[2]"
    consistency: str = "auto"


DEFAULT = Settings()


def route(schema: str, table: str, target_schema: str, target_table: str) -> dict[str, str]:
    """Return a route from patterns to a target table."""
    return {
        "schema-pattern": schema,
        "table-pattern": table,
        "target-schema": target_schema,
        "target-table": target_table,
    }


def task_body(
    schema: str,
    sources: Iterable[str],
    target: MariaDb,
    routes: Mapping[str, Mapping[str, Any]],
    instance: Mapping[str, object] | None = None,
    **keys: object,
) -> dict[str, Any]:
    """Return the task file that merges the shards of a schema with all routes; `keys` are added or replace others."""
    each = {"route-rules": list(routes), "block-allow-list": "ours", **(instance or {})}
    return {
        "name": "merge",
        "task-mode": "all",
        "meta-schema": f"{schema}_meta",
        "target-database": endpoint(target),
        "mysql-instances": [{"source-id": source, **each} for source in sources],
        "routes": {name: dict(one) for name, one in routes.items()},
        "block-allow-list": {"ours": {"do-dbs": [schema]}},
        **keys,
    }


class TaskFile:
    """A task file that is run as the command line runs it, with LocalSpark instead of a Spark session."""

    path: Path
    limits: Limits = LIMITS

    def write_body(self, body: Mapping[str, Any]) -> None:
        """Write the task file."""
        self.path.write_text(yaml.safe_dump(dict(body)))

    def load(self) -> Task:
        """Read the task file."""
        return load_task(self.path)

    @contextlib.contextmanager
    def work(self) -> Iterator[Work]:
        """Open the servers and the storage of the task."""
        with open_work(self.load()) as work:
            yield dataclasses.replace(work, spark=LocalSpark, bulk_spark=LocalSpark, limits=self.limits)

    def run(self) -> RunOutcome:
        """Load what is not loaded yet, then catch up."""
        with self.work() as work:
            return run(work)

    def go(self) -> RunOutcome:
        """Run, and see that nothing went wrong."""
        outcome = self.run()
        assert not outcome.errors, [str(trouble.error) for trouble in outcome.errors]
        return outcome

    def command(self, *words: str) -> int:
        """Give a command as a user would; return its exit code."""
        return main([words[0], str(self.path), *words[1:]])

    def checked(self) -> dict[str, str]:
        """Return the messages of the prechecks that found something, by code."""
        task = self.load()
        return {item.code: item.message for item in precheck(task, begun=begun(task)) if item.code}

    def verdicts(self, comparison: Comparison = Comparison()) -> dict[str, TableResult]:  # noqa: B008
        """Return what `unshard validate` finds, by target table."""
        with self.work() as work:
            return {verdict.target.name: verdict for verdict in validate(work, (), comparison)}


def write_task(
    folder: Path,
    schema: str,
    sources: Mapping[str, MariaDb],
    target: MariaDb,
    tables: Mapping[str, str],
    settings: Settings = DEFAULT,
) -> Path:
    """Write the files of a task that merges `<table pattern>` of a schema into target tables of that schema."""
    write_sources(folder, sources)
    body = task_body(
        schema,
        sources,
        target,
        {name: route(schema, pattern, f"{schema}_to", name) for name, pattern in tables.items()},
        {"mydumper-config-name": "d", "loader-config-name": "l"},
        **{
            "name": "full",
            "task-mode": settings.mode,
            "mydumpers": {
                "d": {"threads": settings.threads, "rows": settings.chunk_rows, "consistency": settings.consistency}
            },
            "loaders": {"l": {"pool-size": settings.threads, "on-duplicate": settings.on_duplicate}},
            "unshard": {"storage-path": str(folder / "storage"), "spark-connection": settings.spark},
        },
    )
    path = folder / "full.yaml"
    path.write_text(yaml.safe_dump(body))
    return path
