"""Optimistic mode with task files as DM's users have them: `check` and `run` to the union of the shards.

The keys, their order and their forms are those of DM's examples for this mode; names and values are our own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.joinedtask import assert_joined_union
from tests.taskfile import TaskFile, schemas
from unshard.core.ddl.lockcommands import Replace, Skip
from unshard.core.model import Shard, TableId
from unshard.errors.checks import PrecheckFailed
from unshard.units.ddl import coordinate
from unshard.units.ddl.lockcommands import give
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

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


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[DmTask]:
    servers = {"mysql-replica-01": source_1, "mysql-replica-02": source_2}
    with schemas(unique, servers.values(), target):
        made = DmTask(unique, tmp_path, servers, target)
        made.write()
        for at in SHARDS:
            made.up(at, f"CREATE TABLE {{}} ({COLUMNS})")
        yield made


@pytest.mark.on_tidb
@pytest.mark.parametrize("more", ["", UNCHECKED, STRICT], ids=["as it is", "unchecked", "strict"])
def test_a_canary_and_a_rollout(task: DmTask, more: str) -> None:
    task.write(more)
    assert task.command("check") == 0
    task.go()
    assert task.assert_union() == 3
    add = "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7"
    task.up(ONE, add)
    task.go()
    assert (task.assert_union(), task.columns()) == (4, ["id", "a", "v", "c"])
    assert task.command("check") == 0
    for at in (THREE, TWO):
        task.up(at, add)
        task.go()
    for at in SHARDS:
        task.up(at, "ALTER TABLE {} DROP COLUMN a")
    task.assert_settled()
    assert task.columns() == ["id", "v", "c"]


@pytest.mark.on_tidb
@pytest.mark.parametrize("more", ["", UNCHECKED, STRICT], ids=["as it is", "unchecked", "strict"])
def test_shards_that_differ_at_the_start(task: DmTask, more: str) -> None:
    """One shard is ahead, one has a wider type and an index, one lacks a column."""
    task.write(more)
    task.up(ONE, "ALTER TABLE {} ADD COLUMN c INT NOT NULL DEFAULT 7")
    task.up(TWO, "ALTER TABLE {} MODIFY v VARCHAR(40), ADD KEY k (a)")
    task.up(THREE, "ALTER TABLE {} DROP COLUMN v")
    assert task.command("check") == 0
    outcome = task.go()
    assert outcome.differences and not outcome.locks
    assert (task.assert_union(), task.columns()) == (6, ["id", "a", "v", "c"])
    task.up(ONE, "ALTER TABLE {} MODIFY v VARCHAR(40), ADD KEY k (a)")
    task.up(TWO, "ALTER TABLE {} ADD COLUMN c INT NOT NULL DEFAULT 7")
    task.go()
    task.assert_union()
    task.write()  # in strict mode the last one would wait: the target has a part of its text
    task.up(THREE, "ALTER TABLE {} ADD v VARCHAR(40), ADD COLUMN c INT NOT NULL DEFAULT 7, ADD KEY k (a)")
    task.assert_settled()


def test_shards_without_a_join_at_the_start(task: DmTask, capsys: pytest.CaptureFixture[str]) -> None:
    """Both `check` and `run` name the column and the shards; when one side is changed, the task runs."""
    task.up(THREE, "ALTER TABLE {} MODIFY a DATE")
    assert task.command("check") == 1
    told = capsys.readouterr().out
    sides = f"type of column a: a int(11) DEFAULT NULL (mysql-replica-01 {task.name}.tb1, "
    assert "[US-5100]" in told and sides in told, told
    task.write(UNCHECKED)
    with pytest.raises(PrecheckFailed, match="US-5100"):
        task.run()
    task.up(THREE, "ALTER TABLE {} DROP COLUMN a", "ALTER TABLE {} ADD COLUMN a INT")
    assert task.command("check") == 0
    task.assert_settled()


def test_strict_mode_waits_for_an_operator(task: DmTask) -> None:
    """DM's `strict-optimistic-shard-mode`: a statement that the target cannot take as it is."""
    task.write(STRICT)
    task.go()
    task.up(ONE, "ALTER TABLE {} ADD COLUMN c INT")
    task.go()
    task.up(THREE, "ALTER TABLE {} ADD COLUMN c INT, ADD COLUMN d INT")
    outcome = task.go()
    assert (len(outcome.locks), outcome.exit_code, task.columns()) == (1, 3, ["id", "a", "v", "c"])
    assert any("strict-optimistic-shard-mode" in each.reason for each in outcome.differences)
    task.decide(THREE)
    assert not task.go().locks
    task.assert_union()
    task.up(ONE, "ALTER TABLE {} ADD COLUMN d INT")
    task.write()
    task.up(TWO, "ALTER TABLE {} ADD COLUMN d INT, ADD COLUMN c INT")
    task.assert_settled()


@pytest.mark.parametrize("is_late", [False, True], ids=["DDL after the start", "DDL before the first run"])
def test_incremental_from_positions_and_gtids(task: DmTask, is_late: bool) -> None:
    """DM's other file: a task that begins at a position of one source and at GTIDs of the other.

    Structures are those of the first run. Rows from before a DDL between the position and that run have another one,
    which an operator describes.
    """
    add = "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7"
    task.target.run(f"CREATE DATABASE {task.name}_to", f"CREATE TABLE {task.name}_to.tb ({COLUMNS})")
    task.target.run(f"INSERT INTO {task.name}_to.tb (id) VALUES (1), (2), (3)")
    ((file, position, *_),) = task.sources[ONE[0]].run("SHOW MASTER STATUS")
    ((gtid,),) = task.sources[THREE[0]].run("SELECT @@gtid_binlog_pos")
    starts = (f"{META}binlog-pos: {position}{KEY}binlog-name: {file}\n", f"{META}binlog-gtid: {gtid}\n")
    task.write(mode="incremental", starts=starts)
    task.up(ONE)
    task.up(ONE, *([add] if is_late else []))
    assert task.command("check") == 0
    outcome = task.go()
    assert len(outcome.locks) == is_late
    if is_late:
        task.decide(ONE, "ALTER TABLE {} DROP COLUMN c")  # its rows before the DDL are like this
        task.go()
    else:
        task.up(ONE, add)
        task.go()
    task.assert_union()
    for at in (TWO, THREE):
        task.up(at, add)
    task.assert_settled()
