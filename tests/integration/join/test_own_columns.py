"""A column that only the target has, under a name that a shard adds later."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard.core.model import Shard, TableId
from unshard.errors.locks import TargetNameTaken
from unshard.operate.advice import advice_lines
from unshard.operate.command import DropShard, Skip
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockView
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows, pytest.mark.on_tidb]
ADD = "ALTER TABLE {} ADD COLUMN own INT DEFAULT 7"


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    """The first shard waits; a shard of its source and the second one go on."""
    with joined_task(unique, tmp_path, (source_1, source_2, target), "id INT PRIMARY KEY, a INT", shards=1) as task:
        for place in (FIRST, SECOND):
            run(task, place, f"INSERT INTO {{}} VALUES ({place[1]}, 1)")
        task.run()
        task.target.run(
            f"ALTER TABLE {task.table('t')} ADD COLUMN own VARCHAR(20) DEFAULT 'note'",
            f"UPDATE {task.table('t')} SET own = 'mine' WHERE id = {FIRST[1]}",
        )
        run(task, FIRST, ADD, "INSERT INTO {} VALUES (1, 1, 1)")
        run(task, SECOND, "INSERT INTO {} VALUES (2, 2)")
        with pytest.raises(TargetNameTaken):
            task.run()
        assert task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id") == [(2,), (FIRST[1],), (SECOND[1],)]
        yield task


def lock(task: JoinedTask) -> LockView:
    (view,) = coordinate.views(task.work().meta)
    return view


def shard(task: JoinedTask) -> Shard:
    return Shard("s1", TableId(task.name, "t_11"))


def ended(task: JoinedTask) -> None:
    assert coordinate.views(task.work().meta) == () and task.stopped() == {}
    task.assert_union("t")
    run(task, SECOND, ADD)
    task.run()
    task.assert_equal("t")


def test_the_message_names_the_column_and_the_way_out(task: JoinedTask) -> None:
    view = lock(task)
    assert "[US-5161]" in str(view.error) and "shards need: own" in str(view.error)
    told = "\n".join(advice_lines(view, "task.yaml"))
    assert "try it again" in told and "unshard drop-shard" in told


def test_the_targets_column_is_renamed(task: JoinedTask) -> None:
    """Its values stay under the new name."""
    task.target.run(f"ALTER TABLE {task.table('t')} RENAME COLUMN own TO note")
    task.run()
    ended(task)
    found = task.target.run(f"SELECT note FROM {task.table('t')} WHERE id = {FIRST[1]}")
    assert found == [("mine",)]


def test_the_targets_column_is_dropped(task: JoinedTask) -> None:
    task.target.run(f"ALTER TABLE {task.table('t')} DROP COLUMN own")
    task.run()
    ended(task)


def test_the_shard_drops_it_again(task: JoinedTask) -> None:
    run(task, FIRST, "ALTER TABLE {} DROP COLUMN own")
    with pytest.raises(TargetNameTaken):  # the run tries the first DDL before it sees the second one
        task.run()
    task.run()
    assert coordinate.views(task.work().meta) == ()
    assert task.assert_union("t") == 4


def test_the_shard_is_dropped(task: JoinedTask) -> None:
    give(task.work().meta, DropShard(lock(task).id, shard(task)), "operator", "test", "because")
    task.run()
    assert coordinate.views(task.work().meta) == ()
    assert task.target.run(f"SELECT own FROM {task.table('t')} WHERE id = {FIRST[1]}") == [("mine",)]


def test_its_ddl_is_skipped(task: JoinedTask) -> None:
    """Its rows continue without the column, and the target's own one keeps its values; later it is read again."""
    give(task.work().meta, Skip(lock(task).id, shard(task)), "operator", "test", "because")
    task.run()
    assert coordinate.views(task.work().meta) == () and task.stopped() == {}
    rows = task.target.run(f"SELECT id, own FROM {task.table('t')} ORDER BY id")
    assert rows == [(1, "note"), (2, "note"), (FIRST[1], "mine"), (SECOND[1], "note")]
    task.target.run(f"ALTER TABLE {task.table('t')} RENAME COLUMN own TO note")
    run(task, SECOND, ADD)
    task.run()
    task.assert_equal("t")
    joined, _ = task.joined("t")
    assert {*joined.group.members[shard(task)].ids} == {"id", "a", "own"}
