"""Fills that a target cannot take: what the rows of a shard get in a column that it lacks, and an ADD COLUMN itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard.core.model import Shard, TableId
from unshard.errors.locks import JoinRefused
from unshard.operate.command import Skip
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

COLUMNS = "id INT PRIMARY KEY, a INT"
BESIDE = ("s2", 22)
"""A shard next to the second one: it goes on while that one waits."""
CONVERTED = {
    "smaller number": ("c INT NOT NULL DEFAULT 1000", "1", "c TINYINT NOT NULL DEFAULT 3"),
    "smaller number, nullable": ("c INT DEFAULT 1000", "1", "c TINYINT"),
    "unsigned": ("c INT NOT NULL DEFAULT -1", "1", "c INT UNSIGNED NOT NULL"),
    "number of a text": ("c VARCHAR(9) NOT NULL DEFAULT 'abc'", "'12'", "c INT NOT NULL"),
    "shorter text": ("c VARCHAR(9) NOT NULL DEFAULT 'abcdef'", "'x'", "c VARCHAR(3) NOT NULL DEFAULT 'y'"),
    "label": ("c ENUM('x','y') NOT NULL DEFAULT 'x'", "'y'", "c ENUM('y') NOT NULL"),
    "whole number": ("c DECIMAL(5,2) NOT NULL DEFAULT 1.5", "3", "c INT NOT NULL DEFAULT 3"),
    "day": ("c VARCHAR(10) NOT NULL DEFAULT 'never'", "'2026-01-31'", "c DATE NOT NULL"),
}
"""A column that is added, the value that all its rows get, and its type after that."""


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    with joined_task(unique, tmp_path, (source_1, source_2, target), COLUMNS) as task:
        run(task, FIRST, "INSERT INTO {} VALUES (1, 1)")
        run(task, BESIDE, "INSERT INTO {} VALUES (2, 2)", "DELETE FROM {}")
        task.run()
        yield task


@pytest.mark.parametrize("name", CONVERTED)
def test_rows_of_shards_that_lack_a_column_whose_fill_it_does_not_hold(task: JoinedTask, name: str) -> None:
    """No row of such a shard was there when the target converted the column; the ones after that are never rejected."""
    added, value, converted = CONVERTED[name]
    change = (
        f"ALTER TABLE {{}} ADD COLUMN {added}",
        f"UPDATE {{}} SET c = {value}",
        f"ALTER TABLE {{}} MODIFY {converted}",
    )
    run(task, FIRST, *change)
    task.run()
    assert task.assert_union("t") == 1
    run(task, SECOND, "INSERT INTO {} VALUES (3, 3), (4, 4)", "UPDATE {} SET a = 5 WHERE id = 4")
    run(task, BESIDE, "INSERT INTO {} VALUES (5, 5)")
    task.run()
    assert task.stopped() == {} and task.assert_union("t") == 4
    run(task, SECOND, change[0])
    task.run()
    assert task.assert_union("t") == 4, "its rows have its own values, not those that stood for them"
    run(task, SECOND, *change[1:])
    for other in (("s1", 12), BESIDE):
        run(task, other, *change)
        task.run()
    task.assert_equal("t")


def shard(task: JoinedTask) -> Shard:
    return Shard("s1", TableId(task.name, "t_11"))


def refused(task: JoinedTask, own: str, added: str) -> str:
    """Let the target have a column that makes it refuse a DDL of the first shard; return the id of the lock.

    The rows of all other shards, also of one on the same source, go on.
    """
    task.target.run(f"ALTER TABLE {task.table('t')} ADD COLUMN {own}")
    run(task, FIRST, f"ALTER TABLE {{}} ADD COLUMN {added}", "INSERT INTO {} (id, a) VALUES (6, 6)")
    run(task, ("s1", 12), "INSERT INTO {} VALUES (7, 7)")
    run(task, SECOND, "INSERT INTO {} VALUES (8, 8)")
    with pytest.raises(JoinRefused):
        task.run()
    assert [row[0] for row in task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id")] == [1, 7, 8]
    assert task.stopped() == {}
    (view,) = coordinate.views(task.work().meta)
    assert view.ready == (shard(task),) and "[US-5160]" in str(view.error)
    return view.id


def rollout(task: JoinedTask, added: str) -> None:
    for other in (("s1", 12), SECOND, BESIDE):
        run(task, other, f"ALTER TABLE {{}} ADD COLUMN {added}")
        task.run()
    assert coordinate.views(task.work().meta) == ()


NO_ROOM = pytest.mark.mariadb_only("the types of its columns do not limit the size of a row in TiDB")
TOO_LARGE = "own VARCHAR(16000) CHARACTER SET utf8mb4", "c VARCHAR(16000) CHARACTER SET utf8mb4 DEFAULT 'x'"


@NO_ROOM
def test_an_added_column_for_which_the_target_has_no_room(task: JoinedTask) -> None:
    """The cause is removed on the target; the next run executes the DDL, without a command."""
    own, added = TOO_LARGE
    refused(task, own, added)
    task.target.run(f"ALTER TABLE {task.table('t')} MODIFY own TEXT")
    task.run()
    assert task.assert_union("t") == 4
    rollout(task, added)
    task.assert_union("t")


@NO_ROOM
def test_its_ddl_is_skipped_until_the_cause_is_removed(task: JoinedTask) -> None:
    """The rows continue without the column. When another shard brings it, it is read again."""
    own, added = TOO_LARGE
    lock = refused(task, own, added)
    give(task.work().meta, Skip(lock, shard(task)), "operator", "test", "because")
    task.run()
    assert coordinate.views(task.work().meta) == () and task.stopped() == {}
    assert [row[0] for row in task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id")] == [1, 6, 7, 8]
    task.target.run(f"ALTER TABLE {task.table('t')} MODIFY own TEXT")
    rollout(task, added)
    assert task.assert_union("t") == 4
    assert task.target.run(f"SELECT c FROM {task.table('t')} WHERE id = 6") == [("x",)]
