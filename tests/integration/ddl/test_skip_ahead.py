"""`unshard ddl skip` before a window reaches a DDL whose effect cannot be tried: later rows have the real structure.

Each test runs in a process that dies after each step of some windows and is started again.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dying import mortal
from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from tests.operator import lock, order, run
from unshard.adapters import mysql, upstream
from unshard.cli import main
from unshard.core.ddl.lock import LockState
from unshard.core.model import Shard, TableId
from unshard.operate.command import Replace, Skip
from unshard.units.window import sync
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

COLUMNS = "id INT PRIMARY KEY, v INT, w INT"
SHARDS = (("s1", "t_1"), ("s1", "t_2"), ("s2", "t_1"))


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let the process die after each step of a window."""
    return mortal(monkeypatch, sync, "reconcile_structures", "_move", "_sweep")


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): (1,)}
    with living(unique, tmp_path, (source_1, source_2, target), "t", columns={"t": COLUMNS}, numbers=numbers) as made:
        source_1.run(f"CREATE DATABASE {unique}_else", f"CREATE SEQUENCE {unique}_else.numbers")
        yield made
    source_1.run(f"DROP DATABASE {unique}_else")


def skip_ahead(task: LiveTask, ddl: str) -> None:
    """Skip the DDL of a shard by its position; rows are written before and after it."""
    task.sources["s1"].run(f"USE {task.name}", "INSERT INTO t_1 VALUES (1, 1, 2), (2, 3, 4)")
    with contextlib.closing(mysql.connect(task.work().sources["s1"])) as connection:
        at = str(upstream.inspect(connection, "s1").end)
    assert main(["ddl", "skip", str(task.path), "--source", "s1", "--at", at, "--yes", "--reason", "because"]) == 0
    task.sources["s1"].run(f"USE {task.name}", ddl.format("t_1", f"(NEXT VALUE FOR {task.name}_else.numbers)"))


def test_columns_that_the_target_has_in_another_order(task: LiveTask, deaths: Counter[str]) -> None:
    """The rows before and after the DDL have the same number of columns of the same types."""
    skip_ahead(task, "ALTER IGNORE TABLE {} MODIFY v INT AFTER w")
    task.sources["s1"].run(
        f"USE {task.name}", "INSERT INTO t_1 (id, v, w) VALUES (3, 5, 6)", "UPDATE t_1 SET v = v + 1"
    )
    run(task)
    assert open_locks(task.work().meta) == () and task.executed("t") == []
    rows = f"SELECT id, v, w FROM {task.table('t')} ORDER BY id"
    assert task.target.run(rows) == [(1, 2, 2), (2, 4, 4), (3, 6, 6)]
    task.assert_settled()


def test_a_change_of_no_column(task: LiveTask, deaths: Counter[str]) -> None:
    skip_ahead(task, "ALTER TABLE {} ALTER v SET DEFAULT {}")
    task.sources["s1"].run(f"USE {task.name}", "INSERT INTO t_1 VALUES (3, 5, 6)", "ALTER TABLE t_1 ADD c INT FIRST")
    for source, table in SHARDS[1:]:
        task.sources[source].run(f"ALTER TABLE {task.name}.{table} ADD c INT FIRST")
    run(task)
    task.assert_settled()
    assert len(task.executed("t")) == 1


@pytest.mark.parametrize("with_rows", [True, False])
def test_a_column_that_the_target_lacks(task: LiveTask, deaths: Counter[str], with_rows: bool) -> None:
    """Its name is not in the rows. The operator is asked, also after a second skip, and states the change."""
    shard = Shard("s1", TableId(task.name, "t_1"))
    skip_ahead(task, "ALTER TABLE {} CHANGE v x INT DEFAULT {}")
    if with_rows:
        task.sources["s1"].run(f"INSERT INTO {task.name}.t_1 VALUES (3, 5, 6)")
    for _ in range(2):
        run(task)
        found = lock(task)
        assert found.state is LockState.UNDECIDED and "[US-5020]" in found.reason
        assert "column 2 was v int and is x int" in found.reason
        assert task.target.run(f"SELECT COUNT(*) FROM {task.table('t')}") == [(2,)]
        order(task, Skip(found.id, shard))
    run(task)
    order(task, Replace(lock(task).id, (f"ALTER TABLE {task.table('t')} CHANGE v x INT",), shard))
    for source, table in SHARDS[1:]:
        task.sources[source].run(f"ALTER TABLE {task.name}.{table} CHANGE v x INT")
    run(task)
    task.assert_settled()
