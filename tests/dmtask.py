"""A task of optimistic mode with the files that DM's users have: their keys, order and forms; values are our own."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.joinedtask import assert_joined_union
from tests.taskfile import TaskFile, schemas
from unshard.core.model import Shard, TableId
from unshard.operate.command import Replace, Skip
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard_demo.servers import MariaDb

TASK = """---
name: "test"
task-mode: {mode}
is-sharding: true
shard-mode: "optimistic"
{more}meta-schema: "{name}_meta"
timezone: "Asia/Shanghai"
case-sensitive: false
online-ddl: true
clean-dump-file: true

target-database:
  host: "127.0.0.1"
  port: {target.port}
  user: "{target.server.user}"
  password: "{target.password}"
  max-allowed-packet: 67108864
  session:
    sql_mode: "ANSI_QUOTES,NO_ZERO_IN_DATE,NO_ZERO_DATE"

mysql-instances:
  - source-id: "mysql-replica-01"
    block-allow-list: "instance"
    route-rules: ["sharding-table-rules", "sharding-schema-rules"]
    filter-rules: ["user-filter-1"]
    mydumper-config-name: "global"
    loader-config-name: "global"
    syncer-config-name: "global"
{starts[0]}  - source-id: "mysql-replica-02"
    block-allow-list: "instance"
    route-rules: ["sharding-table-rules", "sharding-schema-rules"]
    filter-rules: ["user-filter-1"]
    mydumper-config-name: "global"
    loader-config-name: "global"
    syncer-config-name: "global"
{starts[1]}
filters:
  user-filter-1:
    schema-pattern: "{name}*"
    table-pattern: "tb*"
    events: ["truncate table", "drop table"]
    action: Ignore

block-allow-list:
  instance:
    do-dbs: ["{name}"]

routes:
  sharding-table-rules:
    schema-pattern: "{name}*"
    target-schema: "{name}_to"
    table-pattern: "tb*"
    target-table: "tb"
  sharding-schema-rules:
    schema-pattern: "{name}*"
    target-schema: "{name}_to"

mydumpers:
  global:
    threads: 4
    chunk-filesize: 64
    skip-tz-utc: true
    extra-args: ""

loaders:
  global:
    pool-size: 16
    dir: "{folder}/dumped_data"

syncers:
  global:
    worker-count: 16
    batch: 100
"""
SOURCE = """source-id: "{id}"
enable-gtid: true
enable-relay: false
from:
  host: "127.0.0.1"
  port: {server.port}
  user: "{server.server.user}"
  password: "{server.password}"
"""
META, KEY = "    meta:\n      ", "\n      "
UNCHECKED = 'ignore-checking-items: ["all"]\n'
STRICT = "strict-optimistic-shard-mode: true\n"
COLUMNS = "id INT PRIMARY KEY, a INT, v VARCHAR(20)"
ONE, TWO, THREE = ("mysql-replica-01", "tb1"), ("mysql-replica-01", "tb2"), ("mysql-replica-02", "tb1")
SHARDS = (ONE, TWO, THREE)
At = tuple[str, str]


@dataclass
class DmTask(TaskFile):
    """A task of three shards on two sources, with DM's files."""

    name: str
    folder: Path
    sources: dict[str, MariaDb]
    target: MariaDb
    keys: int = 0

    @property
    def path(self) -> Path:  # type: ignore[override]
        return self.folder / "task.yaml"

    def write(self, more: str = "", mode: str = "all", starts: tuple[str, str] = ("", "")) -> None:
        given = {"name": self.name, "target": self.target, "folder": self.folder}
        self.path.write_text(TASK.format(more=more, mode=mode, starts=starts, **given))
        (self.folder / "sources").mkdir(exist_ok=True)
        for id, server in self.sources.items():
            (self.folder / "sources" / f"{id}.yaml").write_text(SOURCE.format(id=id, server=server))

    def up(self, at: At, *texts: str) -> None:
        """Run statements on a shard, for which `{}` stands; then insert a row with its key and give it back."""
        source, table = at
        self.keys += 1
        row = f"INSERT INTO {{}} (id) VALUES ({self.keys})"
        self.sources[source].run(f"USE {self.name}", *(text.format(table) for text in (*texts, row)))

    def decide(self, at: At, statement: str = "") -> None:
        """Skip the DDL of a shard at the only lock, or replace it by a statement for the target `{}`."""
        shard = Shard(at[0], TableId(self.name, at[1]))
        with self.work() as work:
            (lock,) = coordinate.views(work.meta)
            texts = (statement.format(f"`{self.name}_to`.`tb`"),)
            command = Replace(lock.id, texts, shard) if statement else Skip(lock.id, shard)
            give(work.meta, command, "operator", "test", "because")

    def columns(self) -> list[str]:
        return [str(row[0]) for row in self.target.run(f"SHOW COLUMNS FROM {self.name}_to.tb")]

    def assert_union(self) -> int:
        shards = [(source, f"{self.name}.{table}") for source, table in SHARDS]
        with self.work() as work:
            joined = work.meta.joins.get(TableId(f"{self.name}_to", "tb"))
        return assert_joined_union(joined, self.sources, shards, self.target, f"{self.name}_to.tb")

    def assert_settled(self) -> None:
        """Assert that the shards and the target are equal, and that nothing waits."""
        outcome = self.go()
        assert (outcome.locks, outcome.differences, outcome.exit_code) == ((), (), 0)
        self.assert_union()
        assert not self.verdicts()["tb"].differs


@contextlib.contextmanager
def dm_task(
    name: str, folder: Path, servers: tuple[MariaDb, MariaDb, MariaDb], columns: str = COLUMNS
) -> Iterator[DmTask]:
    """Make a task of two sources and a target, with a row in each of its three shards."""
    *sources, target = servers
    named = dict(zip((ONE[0], THREE[0]), sources, strict=True))
    with schemas(name, sources, target):
        made = DmTask(name, folder, named, target)
        made.write()
        for at in SHARDS:
            made.up(at, f"CREATE TABLE {{}} ({columns})")
        yield made
