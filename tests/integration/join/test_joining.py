"""Optimistic mode on real servers: the target follows the structures of its shards, in both directions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from unshard.config import ShardMode
from unshard.core.model import TableId
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


def test_a_canary_goes_forth_and_back(task: LiveTask) -> None:
    alter(task, 1, "ADD COLUMN c INT DEFAULT 7")
    task.run()
    assert columns(task) == "id a b c"
    alter(task, 1, "DROP COLUMN c")
    task.run()
    assert columns(task) == "id a b"


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
