"""A task over private servers, for tests that load rows: files on disk, opened as a user would."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from unshard_demo.servers import MariaDb


def endpoint(server: MariaDb) -> dict[str, object]:
    return {"host": "127.0.0.1", "port": server.port, "user": server.server.user, "password": server.password}


def write_sources(folder: Path, sources: Mapping[str, MariaDb]) -> None:
    """Write the source files of a task whose file is in that folder."""
    (folder / "sources").mkdir(exist_ok=True)
    for source, server in sources.items():
        body = {"source-id": source, "from": endpoint(server)}
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


def write_task(folder: Path, schema: str, sources: Mapping[str, MariaDb], target: MariaDb,
               tables: Mapping[str, str], settings: Settings = DEFAULT) -> Path:  # fmt: skip
    """Write the files of a task that merges `<table pattern>` of a schema into target tables of that schema."""
    write_sources(folder, sources)
    body: dict[str, Any] = {
        "name": "full",
        "task-mode": settings.mode,
        "meta-schema": f"{schema}_meta",
        "target-database": endpoint(target),
        "mysql-instances": [
            {"source-id": source, "route-rules": list(tables), "block-allow-list": "ours",
             "mydumper-config-name": "d", "loader-config-name": "l"}
            for source in sources
        ],
        "mydumpers": {"d": {"threads": settings.threads, "rows": settings.chunk_rows,
                            "consistency": settings.consistency}},
        "loaders": {"l": {"pool-size": settings.threads, "on-duplicate": settings.on_duplicate}},
        "routes": {
            name: {"schema-pattern": schema, "table-pattern": pattern, "target-schema": f"{schema}_to",
                   "target-table": name}
            for name, pattern in tables.items()
        },
        "block-allow-list": {"ours": {"do-dbs": [schema]}},
        "unshard": {"storage-path": str(folder / "storage"), "spark-connection": settings.spark},
    }  # fmt: skip
    path = folder / "full.yaml"
    path.write_text(yaml.safe_dump(body))
    return path
