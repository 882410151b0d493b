"""A task of two sources with full load and windows: a task file that a test may change; it runs without a JVM."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.oracle import assert_union
from tests.taskfile import META, TaskFile, endpoint, route, task_body, using_meta, write_source
from unshard_demo.servers import MariaDb

COLUMNS = "id int PRIMARY KEY, v varchar(20)"


@dataclasses.dataclass
class LifeTask(TaskFile):
    """Shards `<name>.t_<number>` of sources, merged into `<name>_to.t`."""

    name: str
    folder: Path
    sources: Mapping[str, MariaDb]
    target: MariaDb
    body: dict[str, Any]
    shards: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @property
    def path(self) -> Path:  # type: ignore[override]
        return self.folder / "task.yaml"

    @property
    def meta_schema(self) -> str:
        return str(self.body["meta-schema"])

    def write(self) -> None:
        """Write the file as `body` says."""
        self.write_body(self.body)

    def write_source(self, source: str, **more: object) -> None:
        write_source(self.folder, source, endpoint(self.sources[source]), **more)

    def make_shard(self, source: str, number: int, *rows: int) -> str:
        """Create a shard with rows, which the route takes."""
        name = f"{self.name}.t_{number}"
        self.sources[source].run(f"CREATE TABLE {name} ({COLUMNS})")
        self.shards.setdefault(source, []).append(name)
        self.insert(source, name, *rows)
        return name

    def insert(self, source: str, shard: str, *rows: int) -> None:
        self.sources[source].run("DO 1", *(f"INSERT INTO {shard} VALUES ({row}, 'row {row}')" for row in rows))

    def rows_of_meta(self) -> int:
        with self.work() as work:
            return work.meta.removal.count()

    def assert_union(self) -> int:
        return assert_union(self.sources, self.shards, self.target, f"{self.name}_to.t")


@contextlib.contextmanager
def living(
    name: str, folder: Path, sources: Mapping[str, MariaDb], target: MariaDb, *used: str, **keys: object
) -> Iterator[LifeTask]:
    """Make the files of a task over those sources that are `used` (all of them if none is named)."""
    body = task_body(name, used or sources, target, {"all": route(f"{name}*", "t_*", f"{name}_to", "t")}) | {
        "name": "life",
        "meta-schema": META,
        "block-allow-list": {"ours": {"do-dbs": [f"{name}*"], "ignore-dbs": []}},
        "unshard": {"storage-path": str(folder / "storage")},
        **keys,
    }
    task = LifeTask(name, folder, sources, target, body)
    task.write()
    for source, server in sources.items():
        task.write_source(source)
        server.run(f"CREATE DATABASE {name}")
    try:
        with using_meta(target):
            yield task
    finally:
        for server in (*sources.values(), target):  # a table that no route accepts has its schema on the target, too
            schemas = server.run(f"SHOW DATABASES LIKE '{name.replace('_', chr(92) + '_')}%'")
            server.run("DO 1", *(f"DROP DATABASE `{schema}`" for (schema,) in schemas))


@pytest.fixture
def task(
    request: pytest.FixtureRequest,
    source_1: MariaDb,
    source_2: MariaDb,
    target: MariaDb,
    unique: str,
    tmp_path: Path,
) -> Iterator[LifeTask]:
    """A task of two sources with a shard each, for those that import it; a parameter has further keys of its file."""
    keys = getattr(request, "param", {})
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target, **keys) as made:
        made.make_shard("s1", 1, 1, 2)
        made.make_shard("s2", 2, 3)
        yield made
