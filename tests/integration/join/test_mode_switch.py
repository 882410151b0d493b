"""Switching a running task between pessimistic and optimistic mode: refused while anything waits, with its name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard.config import ShardMode
from unshard.errors.locks import ShardModeWaits
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    columns = "id INT PRIMARY KEY, a INT"
    with joined_task(unique, tmp_path, (source_1, source_2, target), columns, shards=1) as task:
        yield task


def switch(task: JoinedTask, mode: ShardMode) -> None:
    task.mode = mode
    task.restart()


def test_optimistic_mode_is_left_when_all_shards_are_equal(task: JoinedTask) -> None:
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT", "INSERT INTO {} VALUES (1, 1, 1)")
    task.run()
    switch(task, ShardMode.PESSIMISTIC)
    with pytest.raises(ShardModeWaits) as error:
        task.run()
    assert f"{task.name}_to.t cannot change to shard-mode 'pessimistic' yet" in str(error.value)
    with pytest.raises(ShardModeWaits):
        task.window("s1")

    switch(task, ShardMode.OPTIMISTIC)
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN c INT", "INSERT INTO {} VALUES (2, 2, 2)")
    task.run()
    switch(task, ShardMode.PESSIMISTIC)
    task.run()
    assert not task.work().meta.joins.targets()
    run(task, FIRST, "ALTER TABLE {} DROP COLUMN c", "INSERT INTO {} VALUES (3, 3)")
    task.run()
    assert len(task.work().meta.locks.open()) == 1
    run(task, SECOND, "ALTER TABLE {} DROP COLUMN c", "INSERT INTO {} VALUES (4, 4)")
    task.run()
    assert task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id") == [(1,), (2,), (3,), (4,)]
    assert not task.work().meta.locks.open()


def test_optimistic_mode_begins_when_no_lock_is_open(task: JoinedTask) -> None:
    switch(task, ShardMode.PESSIMISTIC)
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT", "INSERT INTO {} VALUES (1, 1, 1)")
    task.run()
    (lock,) = task.work().meta.locks.open()
    switch(task, ShardMode.OPTIMISTIC)
    with pytest.raises(ShardModeWaits) as error:
        task.coordinate()
    assert f"lock {lock.id} is open" in str(error.value)

    switch(task, ShardMode.PESSIMISTIC)
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN c INT", "INSERT INTO {} VALUES (2, 2, 2)")
    task.run()
    switch(task, ShardMode.OPTIMISTIC)
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN d INT", "INSERT INTO {} VALUES (3, 3, 3, 3)")
    task.run()
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN d INT", "INSERT INTO {} VALUES (4, 4, 4, 4)")
    task.run()
    task.assert_equal("t")
