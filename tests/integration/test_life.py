"""The life of a task on real servers: paused, resumed, stopped, removed and begun anew."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifetask import LifeTask, living
from unshard.adapters.meta.presence import window_of
from unshard.errors.life import TaskHalted
from unshard.errors.meta import FencedOut
from unshard.units import life
from unshard.units.pulling import pull_source
from unshard.units.sync import next_plan
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target) as made:
        made.make_shard("s1", 1, 1, 2)
        made.make_shard("s2", 2, 3)
        yield made


def test_paused_task_moves_nothing_until_it_is_resumed(task: LifeTask, capsys: pytest.CaptureFixture[str]) -> None:
    task.go()
    assert task.command("pause", "--reason", "the target moves") == 0
    task.insert("s1", task.shards["s1"][0], 11)
    with pytest.raises(TaskHalted, match=r"paused by \w+ \(command line\) since .* UTC: the target moves"):
        task.run()
    capsys.readouterr()
    assert task.command("pause") == 0 and "already paused" in capsys.readouterr().out
    assert task.command("status") == 0 and "is paused by" in capsys.readouterr().out.splitlines()[0]
    assert task.command("resume") == 0 and "is resumed" in capsys.readouterr().out
    assert task.command("resume") == 0 and "was not halted" in capsys.readouterr().out
    task.go()
    assert task.assert_union() == 4
    with task.work() as work:
        assert [(one.action, one.reason) for one in work.meta.locks.actions()] == [
            ("pause", "the target moves"), ("resume", ""),
        ]  # fmt: skip


def test_window_that_has_begun_ends_and_none_begins_behind_the_pause(task: LifeTask) -> None:
    task.go()
    task.insert("s1", task.shards["s1"][0], 11)
    with task.work() as work:
        pull_source(work, "s1")
        begun = work.meta.windows.begin("s1", next_plan(work, "s1"))
        life.pause(work, "me", "test", "")
        work.meta.windows.commit(begun, (), 0)
        task.insert("s1", task.shards["s1"][0], 12)
        with pytest.raises(TaskHalted):
            pull_source(work, "s1")


def test_stopped_task_says_what_remains_and_is_removed(task: LifeTask, capsys: pytest.CaptureFixture[str]) -> None:
    task.go()
    capsys.readouterr()
    assert task.command("stop", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["halted"]["kind"] == "stopped" and f"the target tables: {task.name}_to.t" in told["remains"]
    assert task.command("stop", "--remove-meta", "--dry-run") == 0 and task.rows_of_meta() > 5
    assert task.command("stop", "--remove-meta", "--json") == 1, "nobody has confirmed it"
    assert task.rows_of_meta() > 5
    assert task.command("stop", "--remove-meta", "--yes") == 0
    assert task.rows_of_meta() == 0 and not [*(task.folder / "storage").rglob("*.*")]
    assert task.command("stop", "--remove-meta", "--yes") == 0, "again is nothing more"
    task.target.run(f"TRUNCATE TABLE {task.name}_to.t")
    assert task.command("resume") == 0
    task.go()
    assert task.assert_union() == 3


def test_task_at_work_is_not_removed_and_a_late_writer_of_it_writes_nothing(task: LifeTask) -> None:
    task.go()
    task.insert("s1", task.shards["s1"][0], 11)
    with task.work() as work:
        pull_source(work, "s1")
        with work.meta.presence.at(window_of("s1")):
            late = work.meta.windows.begin("s1", next_plan(work, "s1"))
            assert task.command("stop", "--remove-meta", "--yes") == 1
            assert task.rows_of_meta() > 5, "nothing is removed while a window is going on"
        life.remove(work, "me", "test", "")
    task.target.run(f"TRUNCATE TABLE {task.name}_to.t")
    task.go()
    with task.work() as work, pytest.raises(FencedOut):
        work.meta.windows.commit(late, (), 0)
    assert task.assert_union() == 4
