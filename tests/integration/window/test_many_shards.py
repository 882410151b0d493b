"""The number of statements of a window and of the coordinator: the same for thousands of shards as for two."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from unshard.adapters import structures
from unshard.adapters.meta.gateway import AT_ONCE
from unshard.core.model import Shard, TableId
from unshard.core.window.plan import StructureChange
from unshard.units.ddl import coordinate
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

MORE = 1500
SHARD = ("task", "source", "shard_schema", "shard_table")


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """Note the rows of each statement that the meta tables are asked inside the block."""
    found: list[int] = []

    def note(_connection: object, cursor: Any, *_: object) -> None:
        found.append(cursor.rowcount)

    with listening("after_cursor_execute", note):
        yield found


@contextlib.contextmanager
def listening(what: str, note: Callable[..., None]) -> Iterator[None]:
    event.listen(Engine, what, note)
    try:
        yield
    finally:
        event.remove(Engine, what, note)


@contextlib.contextmanager
def rows_fetched() -> Iterator[list[int]]:
    """Note how many rows each query brings inside the block that goes past the meta tables' own connections."""
    found: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        asked = structures.query

        def noted(*given: Any) -> Any:
            rows = asked(*given)
            found.append(len(rows))
            return rows

        patch.setattr(structures, "query", noted)
        yield found
    assert found


def cost(action: Callable[[], object]) -> tuple[int, int]:
    """Return how many statements it needs, and how many rows they bring and write."""
    with counted() as rows:
        action()
    assert rows
    return len(rows), sum(rows)


def add_shards(task: LiveTask, *tables: str) -> None:
    """Let these tables have thousands of shards that are as the first is."""
    numbers = " UNION ALL ".join(f"SELECT {number} AS n" for number in range(1, MORE + 1))
    for table in tables:
        columns = [str(row[0]) for row in task.target.run(f"SHOW COLUMNS FROM {task.meta_schema}.{table}")]
        rest = "".join(f", `{name}`" for name in columns if name not in SHARD)
        task.target.run(
            f"INSERT INTO {task.meta_schema}.{table} (task, source, shard_schema, shard_table{rest})"
            f" SELECT task, source, shard_schema, CONCAT('g_x', n){rest} FROM {task.meta_schema}.{table},"
            f" ({numbers}) numbers WHERE shard_table = 'g_1'"
        )


@pytest.fixture
def task(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    columns, numbers = {"g": "id INT PRIMARY KEY, v INT"}, {("s1", "g"): (1, 2)}
    with living(unique, tmp_path, (source_1, target), "g", columns=columns, numbers=numbers) as made:
        yield made


def measured(task: LiveTask, number: int) -> dict[str, tuple[int, int]]:
    """Return the cost of an idle window, of one with a row, and of a look at the locks."""

    def small() -> None:
        assert task.window("s1").moved

    task.sources["s1"].run(f"INSERT INTO {task.name}.g_1 (id, v) VALUES ({number}, 1)")
    task.pull("s1")
    found = {"small": cost(small), "idle": cost(lambda: task.window("s1"))}
    return found | {"locks": cost(lambda: open_locks(task.work().meta))}


def test_a_window_costs_the_same_with_any_number_of_shards(task: LiveTask) -> None:
    measured(task, 1)
    few = measured(task, 2)
    add_shards(task, "shard", "table_schema")
    assert len(task.work().meta.structures.shards()) == MORE + 2
    assert measured(task, 3) == few


def test_held_shards_cost_nothing_until_they_go_on(task: LiveTask) -> None:
    source, meta = task.sources["s1"], task.work().meta
    source.run(f"ALTER TABLE {task.name}.g_1 ADD c INT")
    measured(task, 1)
    measured(task, 2)
    few = measured(task, 3)
    add_shards(task, "shard", "table_schema", "shard_ddl", "held_rows")
    many = measured(task, 4)
    assert (many["small"], many["idle"]) == (few["small"], few["idle"])
    assert many["locks"][0] == few["locks"][0], "the lock names the missing shards, so only its rows grow"
    named = meta.structures.planned_shards("s1", {TableId(task.name, "g_1")})
    assert [(state.shard.table.name, len(state.queue), state.held) for state in named] == [("g_1", 1, ())]


def test_a_lock_of_thousands_of_shards_is_resolved_in_portions(task: LiveTask) -> None:
    task.sources["s1"].run(*(f"ALTER TABLE {task.name}.g_{number} ADD c INT" for number in (1, 2)))
    task.pull("s1")
    assert task.window("s1").ddls
    add_shards(task, "shard", "table_schema", "shard_ddl")
    (lock,) = open_locks(task.work().meta)
    assert (lock.is_executable, len(lock.ready)) == (True, MORE + 2)
    statements, _ = cost(lambda: coordinate.execute(task.work().meta, task.work().target, lock.id))
    assert statements < 100 + 2 * MORE / AT_ONCE
    assert not task.work().meta.structures.is_pending()


def test_a_window_reads_its_own_targets_of_thousands(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    """The rows that are read from the target's information_schema do not grow with tables outside the window."""
    columns, numbers = dict.fromkeys("ab", "id INT PRIMARY KEY, v INT"), {("s1", group): (1,) for group in "ab"}

    def rows_read(task: LiveTask, number: int) -> int:
        task.sources["s1"].run(*(f"INSERT INTO {task.name}.{group}_1 VALUES ({number}, 1)" for group in "ab"))
        task.pull("s1")
        with rows_fetched() as found:
            assert task.window("s1").rows_applied == 2
        return sum(found)

    with living(unique, tmp_path, (source_1, target), "ab", columns=columns, numbers=numbers) as task:
        rows_read(task, 1)
        few = rows_read(task, 2)
        task.target.run(*(f"CREATE TABLE {unique}_to.x{number} LIKE {unique}_to.a" for number in range(100)))
        assert rows_read(task, 3) == few


def test_shards_of_a_snapshot_are_recorded_in_one_transaction(task: LiveTask) -> None:
    structures_of, first = task.work().meta.structures, task.work().meta.structures.shards("s1")[0]
    more = [TableId(task.name, f"g_x{number}") for number in range(50)]
    place, structure = task.checkpoint("s1"), first.structure
    changes = [StructureChange(Shard("s1", table), first.target, place, structure) for table in more]
    begun: list[object] = []

    def note(connection: object) -> None:
        begun.append(connection)

    with listening("begin", note):
        structures_of.record_all(changes)
    assert len(begun) == 1
    assert {state.shard.table for state in structures_of.shards("s1")} > set(more)
    assert cost(lambda: structures_of.record_all(changes))[0] == 1 + len(more), "after BEGIN they are only looked up"
