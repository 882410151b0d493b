"""A shard is altered without a binlog event: only that shard is held, and an operator releases it.

Each test runs in a process that dies after each step of some windows and is started again.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dying import mortal
from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from tests.operator import lock, order, run
from unshard.core.ddl.lock import LockState
from unshard.core.ddl.queue import ShardState
from unshard.core.model import Shard, TableId
from unshard.operate.command import DropShard, Replace, Skip
from unshard.units.window import sync
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]

PLAIN = "id INT PRIMARY KEY, v INT"
STEPS = ("reconcile_structures", "create_joined", "_move", "_plan_again", "_sweep")


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let the process die after each step of a window."""
    return mortal(monkeypatch, sync, *STEPS)


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): (1,), ("s1", "u"): (1,)}
    columns = {"t": PLAIN, "u": "v INT, w INT"}
    with living(unique, tmp_path, (source_1, source_2, target), "tu", columns=columns, numbers=numbers) as made:
        yield made


def upstream(task: LiveTask, source: str, *statements: str) -> None:
    task.sources[source].run(f"USE {task.name}", *statements)


def unlogged(change: str, table: str = "t_1") -> tuple[str, ...]:
    return "SET SESSION sql_log_bin = 0", f"ALTER TABLE {table} {change}", "SET SESSION sql_log_bin = 1"


def rows(task: LiveTask, group: str = "t") -> list[tuple[Any, ...]]:
    return [*map(tuple, task.target.run(f"SELECT * FROM {task.table(group)} ORDER BY 1, 2"))]


def shard(task: LiveTask, table: str = "t_1", source: str = "s1") -> Shard:
    return Shard(source, TableId(task.name, table))


def state(task: LiveTask, table: str = "t_1", source: str = "s1") -> ShardState:
    wanted = shard(task, table, source)
    (found,) = [state for state in task.work().meta.structures.shards() if state.shard == wanted]
    return found


def replace_one(task: LiveTask, change: str) -> None:
    text = f"ALTER TABLE {task.name}.t_1 {change}"
    order(task, Replace(lock(task).id, (text,), shard(task)))


def assert_held_alone(task: LiveTask) -> None:
    """Assert that only s1 t_1 waits, with a reason that names place and next step, and that both sources caught up."""
    found = lock(task)
    assert found.state is LockState.UNDECIDED and found.ready == (shard(task),)
    assert "[US-3032]" in found.reason and "missing in the binlog" in found.reason and "replace it" in found.reason
    held = {state.shard for state in task.work().meta.structures.shards() if state.held}
    assert held == {shard(task)} and all(file.is_raw for file in state(task).held)
    for source in task.sources:
        assert task.checkpoint(source) == task.upstream_end(source)
    assert task.stopped() == {}


def test_only_the_shard_is_held_and_its_group_may_still_agree(task: LiveTask, deaths: Counter[str]) -> None:
    upstream(
        task,
        "s1",
        "INSERT INTO t_1 VALUES (1, 1)",
        "INSERT INTO t_2 VALUES (2, 2)",
        *unlogged("ADD c INT"),
        "BEGIN",
        "INSERT INTO t_2 VALUES (4, 4)",
        "INSERT INTO t_1 VALUES (3, 3, 3)",
        "COMMIT",
        "UPDATE t_1 SET v = 9, c = 9 WHERE id = 1",
        "INSERT INTO t_2 VALUES (5, 5)",
        "INSERT INTO u_1 VALUES (1, 1), (1, 1)",
    )
    upstream(task, "s2", "INSERT INTO t_1 VALUES (6, 6)")
    run(task)
    assert rows(task) == [(1, 1), (2, 2), (4, 4), (5, 5), (6, 6)]
    assert task.assert_union("u") == 2
    assert_held_alone(task)
    upstream(task, "s1", "INSERT INTO t_2 VALUES (7, 7)", "DELETE FROM t_1 WHERE id = 3", "DELETE FROM u_1 LIMIT 1")
    run(task)
    assert rows(task)[-1] == (7, 7) and task.assert_union("u") == 1
    replace_one(task, "ADD c INT")
    run(task)
    assert (lock(task).state, lock(task).missing) == (LockState.WAITING, (shard(task, "t_2"), shard(task, source="s2")))
    upstream(task, "s1", "ALTER TABLE t_2 ADD c INT", "UPDATE t_2 SET c = 1")
    upstream(task, "s2", "ALTER TABLE t_1 ADD c INT")
    run(task)
    task.assert_settled()
    assert rows(task)[0] == (1, 9, 9)
    history = task.work().meta.structures.history(shard(task))
    assert all(change.structure for change in history)


def test_a_wrong_answer_is_asked_for_again(task: LiveTask, deaths: Counter[str]) -> None:
    upstream(task, "s1", "INSERT INTO t_1 VALUES (1, 1)", *unlogged("ADD c INT"), "INSERT INTO t_1 VALUES (3, 3, 3)")
    run(task)
    order(task, Skip(lock(task).id, shard(task)))
    run(task)
    assert lock(task).state is LockState.UNDECIDED and "[US-5020]" in lock(task).reason
    replace_one(task, "ADD c VARCHAR(20)")
    run(task)
    assert lock(task).state is LockState.UNDECIDED and "[US-5020]" in lock(task).reason
    replace_one(task, "ADD c INT")
    order(task, Skip(lock(task).id))
    task.target.run(f"ALTER TABLE {task.table('t')} ADD c INT")
    run(task)
    assert rows(task) == [(1, 1, None), (3, 3, 3)]
    assert task.executed("t") == [] and open_locks(task.work().meta) == ()


def test_a_shard_that_its_group_is_ahead_of_has_settled_its_skip(task: LiveTask, deaths: Counter[str]) -> None:
    upstream(task, "s1", "ALTER TABLE t_2 ADD c INT", "INSERT INTO t_2 VALUES (2, 2, 2)")
    upstream(task, "s2", "ALTER TABLE t_1 ADD c INT")
    upstream(task, "s1", "INSERT INTO t_1 VALUES (1, 1)", *unlogged("ADD c INT"), "INSERT INTO t_1 VALUES (3, 3, 3)")
    run(task)
    replace_one(task, "ADD c INT")
    run(task)
    task.assert_settled()
    assert rows(task) == [(1, 1, None), (2, 2, 2), (3, 3, 3)]


def test_several_shards_of_which_one_is_dropped(task: LiveTask, deaths: Counter[str]) -> None:
    """Both contradict within one range of the binlog; one of them after its own pending DDL."""
    upstream(
        task,
        "s1",
        "ALTER TABLE t_1 ADD d INT",
        *unlogged("ADD c INT"),
        *unlogged("MODIFY v BIGINT", "t_2"),
        "INSERT INTO t_2 VALUES (2, 2)",
        "INSERT INTO t_1 VALUES (1, 1, 1, 1)",
        "INSERT INTO t_2 VALUES (4, 4)",
        "DELETE FROM t_1",
    )
    upstream(task, "s2", "INSERT INTO t_1 VALUES (6, 6)")
    run(task)
    assert rows(task) == [(6, 6)]
    held = {state.shard for state in task.work().meta.structures.shards() if state.held}
    assert held == {shard(task), shard(task, "t_2")}
    order(task, DropShard(lock(task).id, shard(task, "t_2")))
    task.shards["t"].remove(("s1", f"{task.name}.t_2"))
    upstream(task, "s2", "ALTER TABLE t_1 ADD d INT", "ALTER TABLE t_1 ADD c INT")
    run(task)
    replace_one(task, "ADD c INT")
    run(task)
    task.assert_settled()
    assert rows(task) == [(6, 6, None, None)]


@pytest.mark.parametrize("apart", [False, True])
def test_rows_of_a_prepared_transaction(task: LiveTask, deaths: Counter[str], apart: bool) -> None:
    """They are read at their COMMIT: between the preparation and the COMMIT nothing can alter the table."""
    first, second = f"'{task.name}_1'", f"'{task.name}_2'"
    upstream(
        task,
        "s1",
        "INSERT INTO t_1 VALUES (1, 1)",
        f"XA START {first}",
        "INSERT INTO u_1 VALUES (1, 1)",
        f"XA END {first}",
        f"XA PREPARE {first}",
    )
    if apart:
        run(task)
    upstream(
        task,
        "s1",
        *unlogged("ADD c INT"),
        f"XA START {second}",
        "INSERT INTO t_1 VALUES (2, 2, 2)",
        "INSERT INTO t_2 VALUES (3, 3)",
        f"XA END {second}",
        f"XA PREPARE {second}",
    )
    run(task)
    upstream(task, "s1", f"XA COMMIT {first}", f"XA COMMIT {second}", "INSERT INTO t_1 VALUES (4, 4, 4)")
    run(task)
    assert rows(task) == [(1, 1), (3, 3)] and task.assert_union("u") == 1
    assert_held_alone(task)
    replace_one(task, "ADD c INT")
    upstream(task, "s1", "ALTER TABLE t_2 ADD c INT")
    upstream(task, "s2", "ALTER TABLE t_1 ADD c INT")
    run(task)
    task.assert_settled()
    assert len(rows(task)) == 4
