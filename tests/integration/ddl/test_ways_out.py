"""Ways out of conflicts and of undecided DDLs on real servers: each ends with the rows of all shards in the target."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dying import mortal
from tests.livetask import LiveTask, living
from tests.operator import lock, order, run
from unshard.core.ddl.lock import LockState
from unshard.core.ddl.lockcommands import Force
from unshard.units.ddl import coordinate
from unshard.units.window import sync
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

COLUMNS = "id INT PRIMARY KEY, a INT"


@pytest.fixture(autouse=True)
def deaths(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let the process die after each step of a window."""
    return mortal(monkeypatch, sync, "reconcile_structures", "_move", "_sweep")


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1,), ("s2", "t"): (2,)}
    with living(unique, tmp_path, (source_1, source_2, target), "t", columns={"t": COLUMNS}, numbers=numbers) as made:
        yield made


def upstream(task: LiveTask, source: str, *statements: str) -> None:
    task.sources[source].run(f"USE {task.name}", *statements)


def columns(task: LiveTask) -> list[str]:
    return [row[0] for row in task.target.run(f"SHOW COLUMNS FROM {task.table('t')}")]


def no_lock(task: LiveTask) -> bool:
    return not coordinate.observe(task.work().meta)


def test_unlock_of_a_conflict_resolves_both_and_later_ddl_agree(task: LiveTask) -> None:
    upstream(task, "s1", "ALTER TABLE t_1 ADD nc1 INT DEFAULT 0", "INSERT INTO t_1 (id, a) VALUES (1, 1)")
    upstream(task, "s2", "ALTER TABLE t_2 ADD nc1 INT DEFAULT -1", "INSERT INTO t_2 (id, a) VALUES (2, 2)")
    run(task)
    assert lock(task).state is LockState.CONFLICT
    order(task, Force(lock(task).id))
    run(task)
    assert no_lock(task) and task.work().meta.locks.pending_skips() == {}
    assert task.assert_union("t") == 2 and task.target.run(f"SELECT nc1 FROM {task.table('t')} ORDER BY id") == [
        (0,),
        (-1,),
    ]
    upstream(task, "s1", "ALTER TABLE t_1 ADD nc2 INT", "INSERT INTO t_1 VALUES (3, 3, 3, 3)")
    run(task)
    assert (lock(task).state, [shard.source for shard in lock(task).missing]) == (LockState.WAITING, ["s2"])
    upstream(task, "s2", "ALTER TABLE t_2 ADD nc2 INT", "INSERT INTO t_2 VALUES (4, 4, 4, 4)")
    run(task)
    task.assert_settled()
    assert len(task.executed("t")) == 2 and columns(task) == ["id", "a", "nc1", "nc2"]


def test_unlock_of_two_ddl_in_different_order_executes_both(task: LiveTask) -> None:
    first, second = "ADD nc1 INT DEFAULT 1", "ADD nc2 INT DEFAULT 2"
    for source, changes in (("s1", (first, second)), ("s2", (second, first))):
        number = source[1]
        for place, change in enumerate(changes):
            upstream(
                task,
                source,
                f"ALTER TABLE t_{number} {change}",
                f"INSERT INTO t_{number} (id) VALUES (1{number}{place})",
            )
    run(task)
    assert lock(task).state is LockState.CONFLICT
    order(task, Force(lock(task).id))
    run(task)
    task.assert_settled()
    assert no_lock(task) and task.work().meta.locks.pending_skips() == {}
    assert len(task.executed("t")) == 2 and columns(task) == ["id", "a", "nc1", "nc2"]
