"""Optimistic mode with task files as DM's users have them: `check` and `run` to the union of the shards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dmtask import COLUMNS, KEY, META, ONE, SHARDS, STRICT, THREE, TWO, UNCHECKED, DmTask, dm_task
from unshard.errors.checks import PrecheckFailed
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[DmTask]:
    with dm_task(unique, tmp_path, (source_1, source_2, target)) as made:
        yield made


@pytest.mark.test_all("scenarios in memory and a part of DM's cases take the same paths")
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


@pytest.mark.test_all("scenarios in memory and a part of DM's cases take the same paths")
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


def test_a_skipped_column_is_no_difference_for_validate(task: DmTask) -> None:
    """Old rows of the shard keep their values in it, later ones have none; both are left out until it is read again."""
    task.up(THREE, "UPDATE {} SET a = 5")
    task.go()
    task.up(THREE, "ALTER TABLE {} MODIFY a FLOAT", "UPDATE {} SET a = 1.5 WHERE id = 4")
    assert task.go().locks
    task.decide(THREE)
    task.go()
    verdict = task.verdicts()["tb"]
    assert not verdict.differs and [each.column for each in verdict.left_out] == ["a"], "which the result names"
    for at in (ONE, TWO):
        task.up(at, "ALTER TABLE {} MODIFY a FLOAT")
    task.go()
    task.assert_settled()
    assert task.target.run(f"SELECT a FROM {task.name}_to.tb WHERE id IN (3, 4) ORDER BY id") == [(5.0,), (1.5,)]


@pytest.mark.parametrize("is_late", [False, True], ids=["DDL after the start", "DDL before the first run"])
def test_incremental_from_positions_and_gtids(task: DmTask, is_late: bool, capsys: pytest.CaptureFixture[str]) -> None:
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
        capsys.readouterr()
        task.command("locks")
        told = capsys.readouterr().out
        assert "[US-3032]" in told and "unshard replace" in told and "unshard skip" not in told
        task.decide(ONE, "ALTER TABLE {} DROP COLUMN c")  # its rows before the DDL are like this
        task.go()
    else:
        task.up(ONE, add)
        task.go()
    task.assert_union()
    for at in (TWO, THREE):
        task.up(at, add)
    task.assert_settled()
