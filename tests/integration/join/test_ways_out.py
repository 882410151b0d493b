"""Ways out of a conflict in optimistic mode, each to its end on real servers; no other shard waits meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard.core.ddl.lock import LockState
from unshard.core.model import Shard, TableId
from unshard.errors.locks import UnlockOfJoined
from unshard.operate.command import DropShard, Force, LockCommand, Replace, Skip
from unshard.operate.issuing import give, preview
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockView
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

COLUMNS = "id INT PRIMARY KEY, a INT"


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    with joined_task(unique, tmp_path, (source_1, source_2, target), COLUMNS, shards=1) as task:
        run(task, FIRST, "INSERT INTO {} VALUES (1, 1)")
        run(task, SECOND, "INSERT INTO {} VALUES (2, 2)")
        task.run()
        yield task


def conflict(task: JoinedTask) -> LockView:
    """Let a shard run a DDL that has no join with the other one; the other one goes on."""
    run(task, FIRST, "ALTER TABLE {} MODIFY a FLOAT", "INSERT INTO {} VALUES (3, 3)")
    run(
        task,
        SECOND,
        "INSERT INTO {} VALUES (4, 4)",
        "ALTER TABLE {} ADD COLUMN b INT",
        "INSERT INTO {} VALUES (5, 5, 5)",
    )
    task.run()
    assert task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id") == [(1,), (2,), (4,), (5,)]
    (view,) = coordinate.views(task.work().meta)
    assert view.ready == (shard(task),)
    return view


def shard(task: JoinedTask) -> Shard:
    return Shard("s1", TableId(task.name, "t_11"))


def order(task: JoinedTask, command: LockCommand) -> None:
    assert preview(task.work().meta, command)
    give(task.work().meta, command, "operator", "test", "because")
    task.run()


def assert_over(task: JoinedTask) -> None:
    assert coordinate.views(task.work().meta) == ()
    assert not [state for state in task.states() if state.queue or state.held]


@pytest.mark.on_tidb
def test_the_shard_goes_back(task: JoinedTask) -> None:
    conflict(task)
    run(task, FIRST, "ALTER TABLE {} MODIFY a INT")
    task.run()
    assert_over(task)
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN b INT")
    task.run()
    task.assert_equal("t")


def test_the_other_shard_agrees(task: JoinedTask) -> None:
    run(task, FIRST, "ALTER TABLE {} MODIFY a VARCHAR(20)", "INSERT INTO {} VALUES (3, 'x')")
    task.run()
    (view,) = coordinate.views(task.work().meta)
    assert view.state is LockState.WAITING
    run(task, SECOND, "ALTER TABLE {} MODIFY a VARCHAR(20)", "INSERT INTO {} VALUES (4, 'y')")
    task.run()
    assert_over(task)
    task.assert_equal("t")


def test_drop_shard(task: JoinedTask) -> None:
    order(task, DropShard(conflict(task).id, shard(task)))
    assert_over(task)
    assert task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id") == [(1,), (2,), (4,), (5,)]


def test_replace_of_the_shard(task: JoinedTask) -> None:
    """The statements that count for the shard make its column another one, so both sides have a place."""
    view = conflict(task)
    table = f"`{task.name}_to`.`t`"
    order(task, Replace(view.id, (f"ALTER TABLE {table} DROP COLUMN a, ADD COLUMN a FLOAT",), shard(task)))
    (view,) = coordinate.views(task.work().meta)
    assert view.reason == "" and view.ready == (shard(task),)


def test_skip_of_the_shard(task: JoinedTask) -> None:
    """The rows continue without the column that has no join; an ADD of another one is followed again."""
    order(task, Skip(conflict(task).id, shard(task)))
    assert_over(task)
    assert task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id") == [(1,), (2,), (3,), (4,), (5,)]
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN b INT", "INSERT INTO {} VALUES (6, 6, 6)")
    task.run()
    assert_over(task)
    assert task.target.run(f"SELECT b FROM {task.table('t')} WHERE id = 6") == [(6,)]


def test_skip_of_the_shard_that_goes_back_later(task: JoinedTask) -> None:
    """The column has its place again, and its values are read again."""
    order(task, Skip(conflict(task).id, shard(task)))
    run(task, FIRST, "INSERT INTO {} VALUES (6, 6)", "ALTER TABLE {} MODIFY a INT", "ALTER TABLE {} ADD COLUMN b INT")
    task.run()
    assert_over(task)
    task.assert_equal("t")


def test_unlock_is_rejected(task: JoinedTask) -> None:
    with pytest.raises(UnlockOfJoined) as error:
        preview(task.work().meta, Force(conflict(task).id))
    assert "follows the join of its shards" in str(error.value)


def test_skip_of_the_shard_that_adds_the_column_again(task: JoinedTask) -> None:
    """Old rows of the target still have the values from before the skipped DDL."""
    order(task, Skip(conflict(task).id, shard(task)))
    run(task, FIRST, "ALTER TABLE {} DROP COLUMN a", "ALTER TABLE {} ADD COLUMN a INT, ADD COLUMN b INT")
    task.run()
    assert_over(task)
    task.assert_equal("t")
