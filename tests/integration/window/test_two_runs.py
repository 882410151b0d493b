"""Two runs of one task at once: the slower one says that the other has finished, and goes on from there."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from tests.localspark import LocalSpark
from unshard.config import load_task
from unshard.errors import UnshardError
from unshard.units.relay.tasksource import pull_source
from unshard.units.window.sync import run_window
from unshard.units.work import Work, open_work
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def task(upstream_server: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    columns, numbers = {"g": "id INT PRIMARY KEY, v VARCHAR(2000)"}, {("s1", "g"): (1, 2)}
    made = {"columns": columns, "numbers": numbers, "window_bytes": 4000}
    with living(unique, tmp_path, (upstream_server, target), "g", **made) as task:
        yield task


@contextlib.contextmanager
def other_run(task: LiveTask) -> Iterator[Work]:
    """Open the task a second time, as another process does."""
    with open_work(load_task(task.path)) as work:
        yield dataclasses.replace(work, spark=LocalSpark, bulk_spark=LocalSpark)


def write(task: LiveTask, first: int, count: int = 12) -> None:
    for number in range(first, first + count):
        task.sources["s1"].run(
            f"INSERT INTO {task.name}.g_{1 + number % 2} (id, v) VALUES ({number}, REPEAT('x', 1900))"
        )


def overtaken(task: LiveTask, step: str) -> UnshardError:
    """Run a window; when it reaches a step, another run finishes this window and all others. Return the error."""
    with other_run(task) as other:

        def overtake(name: str) -> None:
            while name == step and run_window(other, "s1").moved:
                pass

        with pytest.raises(UnshardError) as caught:
            run_window(task.work(), "s1", overtake)
    return caught.value


@pytest.mark.parametrize(("step", "code"), [("plan", "US-7009"), ("begin", "US-7104")])
def test_segments_that_the_other_run_has_finished_with(task: LiveTask, step: str, code: str) -> None:
    write(task, 0)
    task.pull("s1")
    error = overtaken(task, step)
    assert (error.code, error.transient) == (code, True), error
    write(task, 100)
    task.run()
    assert task.assert_union("g") == 24


def test_held_rows_that_the_other_run_has_released(task: LiveTask) -> None:
    task.sources["s1"].run(f"ALTER TABLE {task.name}.g_1 ADD COLUMN c INT")
    write(task, 0)
    task.run()
    task.sources["s1"].run(f"ALTER TABLE {task.name}.g_2 ADD COLUMN c INT")
    task.pull("s1")
    while task.window("s1").moved:
        pass
    assert task.coordinate()
    assert task.work().storage.list("held")
    error = overtaken(task, "begin")
    assert (error.code, error.transient) == ("US-7104", True), error
    task.run()
    assert task.assert_union("g") == 12
    task.assert_settled()


def test_a_segment_that_the_other_run_has_removed_is_not_called_damaged(task: LiveTask) -> None:
    write(task, 0)
    task.pull("s1")
    store = task.work().store
    (first, *_) = store.segments("s1")
    with other_run(task) as other:
        while run_window(other, "s1").moved:
            pass
    with pytest.raises(UnshardError) as caught:
        store.whole(first)
    assert (caught.value.code, caught.value.transient) == ("US-3036", True), caught.value
    pull_source(task.work(), "s1")
    task.run()
    assert task.assert_union("g") == 12
