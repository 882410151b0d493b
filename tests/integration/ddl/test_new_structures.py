"""Tables that become shards although the binlog does not tell their columns, and shards created again otherwise."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dying import mortal
from tests.livetask import LiveTask, living
from tests.operator import lock, order, run
from unshard.core.ddl.lock import LockState
from unshard.core.model import Shard, TableId
from unshard.errors.locks import NewShardUndescribed, ReplacementRefused
from unshard.operate.command import DropShard, Replace, Skip
from unshard.units.ddl import coordinate
from unshard.units.window import sync
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

COLUMNS = "id INT PRIMARY KEY, a VARCHAR(9)"


@pytest.fixture(autouse=True)
def deaths(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let the process die after each step of a window."""
    return mortal(monkeypatch, sync, "reconcile_structures", "create_joined", "_move", "_sweep")


@pytest.fixture
def task(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1,), ("s1", "u"): (1,)}
    columns = {"t": COLUMNS, "u": COLUMNS}
    with living(unique, tmp_path, (source_1, target), "tu", columns=columns, numbers=numbers) as made:
        source_1.run(f"CREATE DATABASE {unique}_else")
        yield made
    source_1.run(f"DROP DATABASE {unique}_else")


def upstream(task: LiveTask, *statements: str) -> None:
    task.sources["s1"].run(f"USE {task.name}", *statements)


def swap(task: LiveTask) -> None:
    """Swap the only shard of its group with a copy."""
    other = f"{task.name}_else"
    upstream(
        task,
        "INSERT INTO t_1 VALUES (1, 'a')",
        f"CREATE TABLE {other}.new LIKE t_1",
        f"INSERT INTO {other}.new SELECT * FROM t_1",
        f"RENAME TABLE t_1 TO {other}.old, {other}.new TO t_1",
        "INSERT INTO t_1 VALUES (2, 'b')",
        "UPDATE t_1 SET a = 'c' WHERE id = 1",
        "INSERT INTO u_1 VALUES (7, 'g')",
    )
    run(task)
    assert lock(task).state is LockState.UNDECIDED and "[US-5001]" in lock(task).reason
    assert task.assert_union("u") == 1


def test_a_table_swapped_by_hand_goes_on_after_one_skip(task: LiveTask) -> None:
    swap(task)
    order(task, Skip(lock(task).id))
    run(task)
    task.assert_settled()
    upstream(task, "ALTER TABLE t_1 ADD b INT", "INSERT INTO t_1 VALUES (3, 'd', 4)")
    run(task)
    task.assert_settled()
    assert task.assert_union("t") == 3


def test_a_later_change_hides_the_structure_until_an_operator_describes_it(task: LiveTask) -> None:
    swap(task)
    upstream(task, "ALTER TABLE t_1 ADD b INT", "INSERT INTO t_1 VALUES (3, 'd', 4)")
    order(task, Skip(lock(task).id))
    run(task)
    assert "[US-4030]" in lock(task).reason and lock(task).is_undescribed
    name = f"{task.name}.t_1"
    for text, refused in (
        (f"ALTER TABLE {name} ADD x INT", NewShardUndescribed),
        (f"CREATE TABLE {task.name}.other ({COLUMNS})", ReplacementRefused),
        (f"CREATE TABLE {name} LIKE {task.name}.u_1", ReplacementRefused),
    ):
        with pytest.raises(refused):
            order(task, Replace(lock(task).id, (text,)))
    order(task, Replace(lock(task).id, (f"CREATE TABLE {name} ({COLUMNS})",)))
    run(task)
    task.assert_settled()
    assert task.assert_union("t") == 3
    assert not [text for text in task.executed("t") if " x " in text]


def test_a_shard_created_like_a_table_that_the_task_does_not_follow(task: LiveTask) -> None:
    other = f"{task.name}_else"
    upstream(
        task,
        "DROP TABLE t_1",
        f"CREATE TABLE {other}.model ({COLUMNS})",
        f"CREATE TABLE t_1 LIKE {other}.model",
        "INSERT INTO t_1 VALUES (1, 'a')",
    )
    run(task)
    assert "[US-4004]" in lock(task).reason and not lock(task).is_refused
    order(task, Skip(lock(task).id))
    run(task)
    task.assert_settled()
    assert task.assert_union("t") == 1


def test_a_shard_created_like_another_has_the_columns_of_that_moment(task: LiveTask) -> None:
    """The table after LIKE changes before and after the statement, and so does the new one."""
    upstream(
        task,
        "ALTER TABLE t_1 ADD b INT",
        "INSERT INTO t_1 VALUES (1, 'a', 1)",
        "CREATE TABLE t_2 LIKE t_1",
        "INSERT INTO t_2 VALUES (2, 'b', 2)",
        "ALTER TABLE t_1 MODIFY b BIGINT, ADD c INT FIRST",
        f"INSERT INTO t_1 VALUES (3, 3, 'c', {1 << 40})",
        "CREATE TABLE t_3 LIKE t_1",
        f"INSERT INTO t_3 VALUES (4, 4, 'd', {1 << 41})",
        "INSERT INTO t_2 VALUES (5, 'e', 5)",
        "ALTER TABLE t_3 DROP c",
        "INSERT INTO t_3 VALUES (6, 'f', 6)",
        "ALTER TABLE t_2 MODIFY b BIGINT, ADD c INT FIRST",
        "ALTER TABLE t_2 DROP c",
        "ALTER TABLE t_1 DROP c",
    )
    task.shards["t"] += [("s1", f"{task.name}.t_{number}") for number in (2, 3)]
    run(task)
    task.assert_settled()
    assert len(task.executed("t")) == 3


def test_a_shard_created_like_one_that_an_operator_has_dropped(task: LiveTask) -> None:
    """DDL of a dropped shard is ignored, so its structure is not known any more."""
    upstream(task, "CREATE TABLE t_2 LIKE t_1", "ALTER TABLE t_1 ADD b INT", "ALTER TABLE t_2 ADD b INT")
    run(task)
    (resolved,) = task.work().meta.locks.all()
    order(task, DropShard(resolved.id, Shard("s1", TableId(task.name, "t_1"))))
    upstream(
        task,
        "ALTER TABLE t_1 MODIFY b INT UNSIGNED",
        "CREATE TABLE t_3 LIKE t_1",
        "INSERT INTO t_3 VALUES (1, 'a', 7)",
    )
    run(task)
    assert lock(task).state is LockState.UNDECIDED and "[US-4004]" in lock(task).reason
    order(task, Replace(lock(task).id, (f"CREATE TABLE {task.name}.t_3 ({COLUMNS}, b INT UNSIGNED)",)))
    run(task)
    task.shards["t"] = [("s1", f"{task.name}.t_{number}") for number in (2, 3)]
    task.assert_settled()


def test_a_shard_created_again_with_another_structure_stops_only_itself(task: LiveTask) -> None:
    upstream(
        task,
        "INSERT INTO t_1 VALUES (1, 'a')",
        "DELETE FROM t_1",
        "DROP TABLE t_1",
        f"CREATE TABLE t_1 ({COLUMNS}, b INT)",
        "INSERT INTO t_1 VALUES (2, 'b', 3)",
        "INSERT INTO u_1 VALUES (7, 'g')",
    )
    run(task)
    assert {place: error.code for place, error in task.stopped().items()} == {("s1", "t"): "US-4008"}
    assert task.assert_union("u") == 1 and coordinate.views(task.work().meta) == ()
    upstream(task, "INSERT INTO u_1 VALUES (8, 'h')")
    run(task)
    assert task.assert_union("u") == 2
    task.target.run(f"ALTER TABLE {task.table('t')} ADD b INT")
    run(task)
    task.assert_settled()
    assert task.assert_union("t") == 1
