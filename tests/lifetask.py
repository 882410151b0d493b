"""A task of two sources over a full load and windows, as a file that a test may change, without a JVM."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fulltask import endpoint
from tests.localspark import TaskFile
from tests.oracle import assert_union
from unshard.cli import main
from unshard.config import load_task
from unshard.units.work import Work, open_work
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
        return f"{self.name}_meta"

    def write(self) -> None:
        """Write the file as `body` says."""
        self.path.write_text(yaml.safe_dump(self.body))

    def write_source(self, source: str, **more: object) -> None:
        body = {"source-id": source, "from": endpoint(self.sources[source]), **more}
        (self.folder / "sources" / f"{source}.yaml").write_text(yaml.safe_dump(body))

    def make_shard(self, source: str, number: int, *rows: int) -> str:
        """Create a shard with rows, which the route takes."""
        name = f"{self.name}.t_{number}"
        self.sources[source].run(f"CREATE TABLE {name} ({COLUMNS})")
        self.shards.setdefault(source, []).append(name)
        self.insert(source, name, *rows)
        return name

    def insert(self, source: str, shard: str, *rows: int) -> None:
        self.sources[source].run("DO 1", *(f"INSERT INTO {shard} VALUES ({row}, 'row {row}')" for row in rows))

    def command(self, *words: str) -> int:
        """Give a command as a user would."""
        return main([words[0], str(self.path), *words[1:]])

    @contextlib.contextmanager
    def work(self) -> Iterator[Work]:
        with open_work(load_task(self.path)) as work:
            yield work

    def rows_of_meta(self) -> int:
        with self.work() as work:
            return work.meta.removal.count()

    def assert_union(self) -> int:
        return assert_union(self.sources, self.shards, self.target, f"{self.name}_to.t")


@contextlib.contextmanager
def living(name: str, folder: Path, sources: Mapping[str, MariaDb], target: MariaDb, *used: str,
           **keys: object) -> Iterator[LifeTask]:  # fmt: skip
    """Make the files of a task over those sources that are `used` (all of them if none is named)."""
    (folder / "sources").mkdir()
    route = {"schema-pattern": f"{name}*", "table-pattern": "t_*", "target-schema": f"{name}_to", "target-table": "t"}
    instance = {"route-rules": ["all"], "block-allow-list": "ours"}
    body = {
        "name": "life", "task-mode": "all", "meta-schema": f"{name}_meta", "target-database": endpoint(target),
        "mysql-instances": [{"source-id": source, **instance} for source in used or sources],
        "routes": {"all": route}, "block-allow-list": {"ours": {"do-dbs": [f"{name}*"], "ignore-dbs": []}},
        "unshard": {"storage-path": str(folder / "storage")}, **keys,
    }  # fmt: skip
    task = LifeTask(name, folder, sources, target, body)
    task.write()
    for source, server in sources.items():
        task.write_source(source)
        server.run(f"CREATE DATABASE {name}")
    try:
        yield task
    finally:
        for server in sources.values():
            schemas = server.run(f"SHOW DATABASES LIKE '{name.replace('_', chr(92) + '_')}%'")
            server.run("DO 1", *(f"DROP DATABASE `{schema}`" for (schema,) in schemas))
        target.run(*(f"DROP DATABASE IF EXISTS {name}_{end}" for end in ("to", "meta")))


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    """A task of two sources with a shard each, for those that import it."""
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target) as made:
        made.make_shard("s1", 1, 1, 2)
        made.make_shard("s2", 2, 3)
        yield made
