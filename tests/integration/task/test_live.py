"""Live runs: sources go on independently, two runs at once do no harm, and new binlog is seen without a run."""

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from tests.localspark import LocalSpark
from unshard.adapters.meta.tasks.activeworkers import live_run_of
from unshard.config import load_task
from unshard.errors.window import FencedOut
from unshard.units.relay import newbinlog
from unshard.units.relay.newbinlog import BinlogWatch
from unshard.units.task import lifecycle, live
from unshard.units.task.live import End, Ends, Tally, Trouble, follow
from unshard.units.work import Work, open_work
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

SECONDS = 300


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    made = {"columns": {"g": "id INT PRIMARY KEY, v VARCHAR(20)"}, "numbers": {("s1", "g"): (1,), ("s2", "g"): (2,)}}
    with living(unique, tmp_path, (source_1, source_2, target), "g", **made) as task:
        yield task


def write(task: LiveTask, source: str, first: int, count: int = 3) -> None:
    table = f"{task.name}.g_{source[-1]}"
    task.sources[source].run(*(f"INSERT INTO {table} (id, v) VALUES ({n}, 'v')" for n in range(first, first + count)))


def is_equal(task: LiveTask) -> bool:
    with contextlib.suppress(AssertionError):
        return task.assert_union("g") > 0
    return False


class Following:
    """A live run in a thread, until `stop`."""

    def __init__(self, work: Work) -> None:
        self._asked, self.told = threading.Event(), list[Trouble]()
        self.tally = Tally(0.05, inf)
        ends = Ends(is_asked=lambda _: self._asked.is_set(), retries=inf)
        self._pool = ThreadPoolExecutor(1)
        self._run = self._pool.submit(follow, work, work.task.sources, ends, self.tally, self._watch)

    def stop(self) -> End:
        self._asked.set()
        return self._run.result(SECONDS)

    def _watch(self, note: object) -> None:
        self.told += [note] if isinstance(note, Trouble) else []


def test_a_source_that_fails_delays_no_other_and_goes_on_by_itself(task: LiveTask, monkeypatch) -> None:
    run_window, is_broken = live.run_window, threading.Event()

    def broken(work: Work, source: str) -> object:
        return run_window(work, source if source == "s2" or not is_broken.is_set() else str(1 // 0))

    monkeypatch.setattr(live, "run_window", broken)
    is_broken.set()
    run = Following(task.work())
    write(task, "s1", 1)
    write(task, "s2", 11)
    of_s2 = f"SELECT COUNT(*) FROM {task.table('g')} WHERE id > 10"
    await_true(lambda: task.target.run(of_s2) == [(3,)], SECONDS, [], "rows of the other source")
    await_true(lambda: len(run.told) >= 2, SECONDS, [], "another try")
    is_broken.clear()
    await_true(lambda: is_equal(task), SECONDS, [], "rows of both")
    assert (run.stop(), run.tally.errors) == (End.ASKED, {})
    assert {(each.place, each.again) for each in run.told} == {("s1", True)}


def test_two_live_runs_at_once_end_in_the_union(task: LiveTask) -> None:
    """One of them may leave a source to the other, so one of each pair stays."""
    with open_work(load_task(task.path)) as second:
        runs = [Following(task.work()), Following(dataclasses.replace(second, spark=LocalSpark, bulk_spark=LocalSpark))]
        for number in range(10):
            write(task, "s1", 1 + 3 * number)
            write(task, "s2", 101 + 3 * number)
            task.sources["s1"].run(f"UPDATE {task.name}.g_1 SET v = '{number}' WHERE id < {number}")
        await_true(lambda: is_equal(task), SECONDS, [], "the union")
        assert {run.stop() for run in runs} <= {End.ASKED, End.FAILED}
    assert task.assert_union("g") == 60


def test_a_run_that_came_second_leaves_a_source_to_the_first(task: LiveTask, monkeypatch) -> None:
    run_window, fenced = live.run_window, list[str]()

    def overtaken(work: Work, source: str) -> object:
        if fenced:
            return run_window(work, source)
        fenced.append(source)
        raise FencedOut(source, 1, 1, 2)

    monkeypatch.setattr(live, "run_window", overtaken)
    write(task, "s1", 1)
    tally, ends = Tally(0.05), Ends(idle_seconds=0.3)
    with open_work(load_task(task.path)) as first, first.meta.active_workers.at(live_run_of("s1")):
        assert follow(task.work(), ["s1"], ends, tally, lambda _: None) is End.FAILED
    assert isinstance(tally.errors["s1"].error, FencedOut)
    fenced.clear()
    assert follow(task.work(), ["s1"], ends, Tally(0.05), lambda _: None) is End.IDLE
    assert task.assert_union("g") == 3


def test_a_run_ends_when_nothing_came_and_when_its_time_is_over(task: LiveTask) -> None:
    write(task, "s1", 1)
    tally, told = Tally(1.0), list[object]()
    ends = Ends(idle_seconds=0.3)
    assert follow(task.work(), task.work().task.sources, ends, tally, told.append) is End.IDLE
    assert (task.assert_union("g"), len(told)) == (3, sum(counts["windows"] for counts in tally.counts.values()))
    assert follow(task.work(), ["s1"], Ends(seconds=0.3), Tally(1.0), told.append) is End.TIME_OVER
    lifecycle.pause(task.work(), "me", "test", "")
    assert follow(task.work(), ["s1"], Ends(), Tally(1.0), told.append) is End.PAUSED


def test_new_binlog_is_told_once_and_only_if_no_live_run_works_on_it(task: LiveTask) -> None:
    with contextlib.closing(BinlogWatch(task.work())) as watch:
        task.run()
        assert not watch.has_news(), "both are caught up"
        write(task, "s2", 11)
        assert watch.has_news()
        assert not watch.has_news(), "it was told"
        task.run()
        assert not watch.has_news()
        write(task, "s1", 1)
        with task.work().meta.active_workers.at(live_run_of("s1")) as is_first:
            assert is_first and not watch.has_news()
        lifecycle.pause(task.work(), "me", "test", "")
        assert not watch.has_news(), "the task is paused"
        lifecycle.resume(task.work(), "me", "test", "")
        assert watch.has_news()
        task.run()
        lifecycle.pause(task.work(), "me", "test", "")
        lifecycle.resume(task.work(), "me", "test", "")
        assert watch.has_news(), "a command of an operator may let something go on"
        assert not watch.has_news()


def test_a_watch_connects_again_after_a_source_has_ended_its_connection(task: LiveTask, monkeypatch) -> None:
    monkeypatch.setattr(newbinlog, "AFTER_ERROR_SECONDS", 0.0)
    with contextlib.closing(BinlogWatch(task.work())) as watch:
        assert not watch.has_news()
        task.sources["s1"].run(f"KILL {watch._connections['s1'].thread_id()}")
        write(task, "s1", 1)
        write(task, "s2", 11)
        assert watch.has_news(), "the other source has news"
        assert watch.has_news(), "and now this one"
