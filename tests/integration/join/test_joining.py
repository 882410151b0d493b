"""Optimistic mode on real servers: the target follows the structures of its shards, in both directions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from unshard.config import ShardMode
from unshard.core.model import TableId
from unshard.errors.ddl import DdlRefused
from unshard.errors.locks import TargetNameTaken
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

COLUMNS = "id INT PRIMARY KEY, a INT, b VARCHAR(20)"


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    servers = source_1, source_2, target
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): (3,)}
    made = {"columns": {"t": COLUMNS}, "numbers": numbers}
    with living(unique, tmp_path, servers, ["t"], ShardMode.OPTIMISTIC, **made) as task:
        task.run()
        yield task


def alter(task: LiveTask, number: int, clause: str) -> None:
    source = "s2" if number == 3 else "s1"
    task.sources[source].run(f"ALTER TABLE {task.name}.t_{number} {clause}")


def columns(task: LiveTask) -> str:
    found = task.work().target_schema(TableId(f"{task.name}_to", "t"))
    return " ".join(found.names)


@pytest.mark.on_tidb
def test_a_canary_goes_forth_and_back(task: LiveTask) -> None:
    alter(task, 1, "ADD COLUMN c INT DEFAULT 7")
    task.run()
    assert columns(task) == "id a b c"
    alter(task, 1, "DROP COLUMN c")
    task.run()
    assert columns(task) == "id a b"


@pytest.mark.on_tidb
def test_a_rollout(task: LiveTask) -> None:
    for number in (1, 2, 3):
        alter(task, number, "ADD COLUMN c INT DEFAULT 7, MODIFY b VARCHAR(40)")
        task.run()
        assert columns(task) == "id a b c"
    for number in (3, 1):
        alter(task, number, "DROP COLUMN a")
        task.run()
        assert columns(task) == "id a b c"
    alter(task, 2, "DROP COLUMN a")
    task.run()
    assert columns(task) == "id b c"
    task.assert_settled()


def test_a_rename_and_a_swap(task: LiveTask) -> None:
    alter(task, 2, "RENAME COLUMN a TO x")
    task.run()
    assert columns(task) == "id x b"
    for number in (1, 3):
        alter(task, number, "RENAME COLUMN a TO x")
    task.run()
    alter(task, 3, "RENAME COLUMN b TO x, RENAME COLUMN x TO b")
    task.run()
    assert columns(task) == "id b x"
    for number in (1, 2):
        alter(task, number, "RENAME COLUMN b TO x, RENAME COLUMN x TO b")
    task.run()
    assert columns(task) == "id b x"


@pytest.mark.mariadb_only("TiDB changes no clustered primary key")
def test_a_barrier_waits_for_all(task: LiveTask) -> None:
    for number in (1, 2):
        alter(task, number, "DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)")
    alter(task, 1, "ADD COLUMN c INT")
    task.run()
    assert columns(task) == "id a b"
    alter(task, 3, "DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)")
    task.run()
    assert columns(task) == "id a b c"
    assert task.work().target_schema(TableId(f"{task.name}_to", "t")).key == ("id", "a")


def test_a_contraction_that_rows_of_a_dropped_shard_do_not_fit_is_not_repeated(task: LiveTask) -> None:
    for number in (1, 2, 3):
        alter(task, number, "MODIFY b VARCHAR(40)")
    task.sources["s2"].run(f"INSERT INTO {task.name}.t_3 VALUES (3, 3, repeat('x', 40))")
    task.run()
    task.sources["s2"].run(f"DROP TABLE {task.name}.t_3")
    for number in (1, 2):
        alter(task, number, "MODIFY b VARCHAR(20), ADD KEY k (a)")
    with pytest.raises(DdlRefused):
        task.run()
    task.run()
    joined = task.work().meta.joins.get(TableId(f"{task.name}_to", "t"))
    assert joined is not None and joined.change is None
    assert len(task.work().meta.joins.refused(joined.target)) == 1
    alter(task, 1, "ADD COLUMN c INT")
    with pytest.raises(DdlRefused):
        task.run()  # it is tried once more after the target was expanded
    task.run()
    assert columns(task) == "id a b c"


@pytest.mark.on_tidb
def test_a_ddl_that_the_target_rejects_is_shown_by_a_lock(task: LiveTask) -> None:
    """The target has a column of its own with the name. The other shards do not wait."""
    task.target.run(f"ALTER TABLE {task.table('t')} ADD COLUMN own INT")
    alter(task, 1, "ADD COLUMN own VARCHAR(10)")
    alter(task, 3, "ADD COLUMN c INT")
    with pytest.raises(TargetNameTaken):
        task.run()
    assert columns(task) == "id a b own c"
    (lock,) = task.work().meta.locks.open()
    assert "own" in lock.entry.routed
    task.target.run(f"ALTER TABLE {task.table('t')} DROP COLUMN own")
    task.run()
    assert task.work().meta.locks.open() == () and columns(task) == "id a b c own"
