"""A canary's rows reach the target after at most two windows, and no other shard waits: counted in windows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.joinedtask import JoinedTask, joined_task, run
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

CANARY, SAME_SOURCE, OTHER_SOURCE = ("s1", 11), ("s1", 12), ("s2", 21)
CHANGES = {
    "adds a column": ("ADD COLUMN c INT NOT NULL DEFAULT 7", "INSERT INTO {} (id, a, c) VALUES (9, 9, 9)"),
    "renames a column": ("RENAME COLUMN a TO x", "INSERT INTO {} (id, x) VALUES (9, 9)"),
    "widens a column": ("MODIFY a BIGINT", "INSERT INTO {} (id, a) VALUES (9, 1 << 40)"),
    "drops a column": ("DROP COLUMN b", "INSERT INTO {} (id, a) VALUES (9, 9)"),
    "allows NULL": ("MODIFY n INT", "INSERT INTO {} (id, a, n) VALUES (9, 9, NULL)"),
}


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    columns = "id INT PRIMARY KEY, a INT, b VARCHAR(20), n INT NOT NULL DEFAULT 0"
    with joined_task(unique, tmp_path, (source_1, source_2, target), columns) as task:
        task.run()
        yield task


def ids(task: JoinedTask) -> set[int]:
    return {row[0] for row in task.target.run(f"SELECT id FROM {task.table('t')}")}


@pytest.mark.parametrize("change", CHANGES)
def test_a_canary(task: JoinedTask, change: str) -> None:
    ddl, insert = CHANGES[change]
    run(task, SAME_SOURCE, "INSERT INTO {} (id, a) VALUES (1, 1)")
    run(task, CANARY, "INSERT INTO {} (id, a) VALUES (2, 2)", f"ALTER TABLE {{}} {ddl}", insert)
    run(task, SAME_SOURCE, "INSERT INTO {} (id, a) VALUES (3, 3)")
    run(task, OTHER_SOURCE, "INSERT INTO {} (id, a) VALUES (4, 4)")
    for source in task.sources:
        task.pull(source)

    task.window("s1")
    task.window("s2")
    assert ids(task) == {1, 2, 3, 4}, "the first window has all rows but those after the DDL of the canary"
    task.coordinate()
    task.window("s1")
    assert ids(task) == {1, 2, 3, 4, 9}, "the second window has these"
    assert not [state for state in task.states() if state.queue or state.held]
    task.assert_union("t")

    # While the shards differ, nobody waits: one window for each source.
    run(task, CANARY, insert.replace("9", "10", 1))
    run(task, SAME_SOURCE, "INSERT INTO {} (id, a) VALUES (5, 5)")
    run(task, OTHER_SOURCE, "INSERT INTO {} (id, a) VALUES (6, 6)")
    for source in task.sources:
        task.pull(source)
        task.window(source)
    assert ids(task) == {1, 2, 3, 4, 5, 6, 9, 10}
    task.assert_union("t")


def test_the_other_shards_follow_without_waiting_for_each_other(task: JoinedTask) -> None:
    for number, shard in enumerate((CANARY, SAME_SOURCE, OTHER_SOURCE, ("s2", 22)), 1):
        run(task, shard, "ALTER TABLE {} ADD COLUMN c INT", f"INSERT INTO {{}} (id, c) VALUES ({number}, {number})")
        task.pull(shard[0])
        task.window(shard[0])
        task.coordinate()
        task.window(shard[0])
        assert number in ids(task)
    task.assert_equal("t")


def test_a_shard_in_conflict_lets_the_others_go_on(task: JoinedTask) -> None:
    run(task, CANARY, "ALTER TABLE {} MODIFY a FLOAT", "INSERT INTO {} (id, a) VALUES (1, 1.5)")
    run(task, SAME_SOURCE, "INSERT INTO {} (id, a) VALUES (2, 2)")
    run(task, OTHER_SOURCE, "ALTER TABLE {} ADD COLUMN c INT", "INSERT INTO {} (id, c) VALUES (3, 3)")
    for source in task.sources:
        task.pull(source)
        task.window(source)
    assert ids(task) == {2}
    task.coordinate()
    task.window("s2")
    assert ids(task) == {2, 3}
    run(task, CANARY, "ALTER TABLE {} MODIFY a INT")
    task.run()
    assert ids(task) == {1, 2, 3}
    task.assert_union("t")
