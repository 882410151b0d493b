"""Live runs: sources go on independently, two runs at once do no harm, and new binlog is seen without a run."""

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Self

import pytest
import yaml

from tests.livetask import LiveTask, living
from tests.localspark import LocalSpark
from unshard.adapters.meta.taskrecords import live_run_of
from unshard.cli import main
from unshard.config import ShardMode, load_task
from unshard.core.task.state import PauseKind
from unshard.errors.meta import FencedOut, TaskPaused
from unshard.operate.command import Force
from unshard.operate.issuing import give
from unshard.units.relay import newbinlog
from unshard.units.relay.newbinlog import BinlogWatch
from unshard.units.task import lifecycle, live
from unshard.units.task.live import End, Ends, RunTally, Trouble, follow
from unshard.units.task.run import PauseBegan, PauseEnded, RunOutcome, run
from unshard.units.work import Limits, Work, open_work
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb, free_port

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
    """A live run in a thread, until `stop` or the end of the block."""

    def __init__(self, work: Work, *sources: str) -> None:
        self._asked, self.told = threading.Event(), list[Trouble]()
        self.tally = RunTally(0.05, inf)
        ends = Ends(is_asked=lambda _: self._asked.is_set(), retries=inf)
        self._pool = ThreadPoolExecutor(1)
        self._run = self._pool.submit(follow, work, sources or work.task.sources, ends, self.tally, self._watch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> End:
        self._asked.set()
        return self._run.result(SECONDS)

    def _watch(self, note: object) -> None:
        self.told += [note] if isinstance(note, Trouble) else []


class RunThatFollows:
    """`units.task.run.run` in a thread, as `unshard run --follow` calls it, until `stop` or the end of the block."""

    def __init__(self, work: Work) -> None:
        self._asked, self.told = threading.Event(), list[object]()
        ends = Ends(is_asked=lambda _: self._asked.is_set(), retries=inf)
        self._pool = ThreadPoolExecutor(1)
        self._run = self._pool.submit(run, work, watch=self.told.append, following=ends)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._asked.set()
        self._pool.shutdown()

    @property
    def pauses(self) -> list[type]:
        return [type(note) for note in self.told if isinstance(note, PauseBegan | PauseEnded)]

    def stop(self) -> RunOutcome:
        self._asked.set()
        return self.end()

    def end(self) -> RunOutcome:
        return self._run.result(SECONDS)


def test_a_source_that_fails_delays_no_other_and_goes_on_by_itself(task: LiveTask, monkeypatch) -> None:
    run_window, is_broken = live.run_window, threading.Event()

    def broken(work: Work, source: str) -> object:
        return run_window(work, source if source == "s2" or not is_broken.is_set() else str(1 // 0))

    monkeypatch.setattr(live, "run_window", broken)
    is_broken.set()
    with Following(task.work()) as run:
        write(task, "s1", 1)
        write(task, "s2", 11)
        of_s2 = f"SELECT COUNT(*) FROM {task.table('g')} WHERE id > 10"
        await_true(lambda: task.target.run(of_s2) == [(3,)], SECONDS, [], "rows of the other source")
        await_true(lambda: len(run.told) >= 2, SECONDS, [], "another try")
        is_broken.clear()
        await_true(lambda: is_equal(task), SECONDS, [], "rows of both")
        assert (run.stop(), run.tally.errors) == (End.ASKED, {})
    assert {(each.place, each.again) for each in run.told} == {("s1", True)}


def test_the_error_of_each_target_that_does_not_follow_its_shards_is_told_when_it_occurs(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    """Once, although the run tries again every second, and for each target although the other one fails, too."""
    columns = dict.fromkeys("gh", "id INT PRIMARY KEY, v VARCHAR(20)")
    numbers = {("s1", group): (1,) for group in "gh"} | {("s2", group): (2,) for group in "gh"}
    servers = source_1, source_2, target
    with living(unique, tmp_path, servers, "gh", ShardMode.OPTIMISTIC, columns=columns, numbers=numbers) as task:
        task.run()
        places = {f"locks of {task.table(group)}" for group in "gh"}
        with Following(task.work()) as run:
            task.target.run(*(f"ALTER TABLE {task.table(group)} DROP COLUMN v" for group in "gh"))
            task.sources["s1"].run(*(f"ALTER TABLE {task.name}.{group}_1 ADD c INT" for group in "gh"))
            await_true(lambda: places <= run.tally.errors.keys(), SECONDS, [], "the errors")
            tries = dict(run.tally.tries)
            await_true(lambda: all(run.tally.tries[place] > tries[place] for place in places), SECONDS, [], "new tries")
            assert sorted(each.place for each in run.told) == sorted(places)
            task.target.run(*(f"ALTER TABLE {task.table(group)} ADD v VARCHAR(20)" for group in "gh"))
            await_true(lambda: not run.tally.errors, SECONDS, [], "targets that follow")


def test_two_live_runs_at_once_end_in_the_union(task: LiveTask) -> None:
    """One of them may leave a source to the other, so one of each pair stays."""
    with open_work(load_task(task.path)) as second, contextlib.ExitStack() as stack:
        works = task.work(), dataclasses.replace(second, spark=LocalSpark, bulk_spark=LocalSpark)
        runs = [stack.enter_context(Following(work)) for work in works]
        for number in range(10):
            write(task, "s1", 1 + 3 * number)
            write(task, "s2", 101 + 3 * number)
            task.sources["s1"].run(f"UPDATE {task.name}.g_1 SET v = '{number}' WHERE id < {number}")
        await_true(lambda: is_equal(task), SECONDS, [], "the union")
        assert {run.stop() for run in runs} <= {End.ASKED, End.FAILED}
    assert task.assert_union("g") == 60


def test_the_process_of_an_idle_source_stays_while_another_process_has_work(task: LiveTask) -> None:
    with open_work(load_task(task.path)) as second, ThreadPoolExecutor(1) as pool:
        ends = Ends(idle_seconds=1.0)
        with Following(dataclasses.replace(second, spark=LocalSpark, bulk_spark=LocalSpark), "s1"):
            idle = pool.submit(follow, task.work(), ["s2"], ends, RunTally(1.0), lambda _: None)
            began = time.monotonic()
            for number in range(1, 1000, 3):
                write(task, "s1", number)
                await_true(lambda: is_equal(task), SECONDS, [], "rows of the busy source")
                if time.monotonic() - began > 5 * ends.idle_seconds:
                    break
            write(task, "s2", 10_001)
            await_true(lambda: is_equal(task), SECONDS, [], "rows of the other source")
        assert idle.result(SECONDS) is End.IDLE


def test_a_run_that_came_second_leaves_a_source_to_the_first(task: LiveTask, monkeypatch) -> None:
    run_window, fenced = live.run_window, list[str]()

    def overtaken(work: Work, source: str) -> object:
        if fenced:
            return run_window(work, source)
        fenced.append(source)
        raise FencedOut(source, 1, 1, 2)

    monkeypatch.setattr(live, "run_window", overtaken)
    write(task, "s1", 1)
    tally, ends = RunTally(0.05), Ends(idle_seconds=0.3)
    with open_work(load_task(task.path)) as first, first.meta.active_workers.at(live_run_of("s1")):
        assert follow(task.work(), ["s1"], ends, tally, lambda _: None) is End.FAILED
    assert isinstance(tally.errors["s1"].error, FencedOut)
    fenced.clear()
    assert follow(task.work(), ["s1"], ends, RunTally(0.05), lambda _: None) is End.IDLE
    assert task.assert_union("g") == 3


def test_a_run_looks_again_when_another_one_has_applied_a_window(task: LiveTask, monkeypatch) -> None:
    run_window, calls = live.run_window, list[str]()

    def elsewhere(work: Work, source: str) -> object:
        calls.append(source)
        return None if calls.count(source) == 1 else run_window(work, source)

    monkeypatch.setattr(live, "run_window", elsewhere)
    write(task, "s1", 1)
    assert not run(task.work()).errors
    assert task.assert_union("g") == 3


def test_a_run_ends_when_nothing_came_and_when_its_time_is_over(task: LiveTask) -> None:
    write(task, "s1", 1)
    tally, told = RunTally(1.0), list[object]()
    ends = Ends(idle_seconds=0.3)
    assert follow(task.work(), task.work().task.sources, ends, tally, told.append) is End.IDLE
    assert (task.assert_union("g"), len(told)) == (3, sum(counts["windows"] for counts in tally.counts.values()))
    assert (
        follow(task.work(), ["s1"], Ends(deadline=time.monotonic() + 0.3), RunTally(1.0), told.append) is End.TIME_OVER
    )
    lifecycle.pause(task.work(), "me", "test", "")
    assert follow(task.work(), ["s1"], Ends(), RunTally(1.0), told.append) is End.PAUSED


@pytest.mark.parametrize("slow", ["run_window", "observe"])
def test_a_slow_machine_is_not_taken_for_one_without_work(task: LiveTask, monkeypatch, slow: str) -> None:
    """A DDL that an unlocked lock makes a shard skip leaves no rows that wait for binlog that never comes."""
    work, ends = task.work(), Ends(idle_seconds=0.3, look_seconds=30.0)

    def add(number: int) -> None:
        task.sources[f"s{number}"].run(f"ALTER TABLE {task.name}.g_{number} ADD n INT NOT NULL DEFAULT 5")
        write(task, f"s{number}", 10 * number)

    add(1)
    task.run()
    (lock,) = live.coordinate.facts(work.meta)
    give(work.meta, Force(lock.id), "operator", "test", "")
    task.run()
    add(2)
    place = live if slow == "run_window" else live.coordinate
    called = getattr(place, slow)

    def slowly(*given: object) -> object:
        time.sleep(2 * live.LOOK_SECONDS)
        return called(*given)

    monkeypatch.setattr(place, slow, slowly)
    assert follow(work, work.task.sources, ends, RunTally(1.0), lambda _: None) is End.IDLE
    assert task.assert_union("g") == 6


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


def test_a_run_that_follows_waits_while_the_task_is_paused(task: LiveTask) -> None:
    """Also if it begins then; a stopped task ends it."""
    work = task.work()
    lifecycle.pause(work, "me", "test", "")
    with RunThatFollows(work) as run:
        await_true(lambda: run.pauses == [PauseBegan], SECONDS, [], "the pause")
        write(task, "s1", 1)
        lifecycle.resume(work, "me", "test", "")
        await_true(lambda: is_equal(task), SECONDS, [], "rows")
        lifecycle.pause(work, "me", "test", "")
        await_true(lambda: run.pauses == [PauseBegan, PauseEnded, PauseBegan], SECONDS, [], "the next pause")
        write(task, "s2", 11)
        outcome = run.stop()
        assert (outcome.end, outcome.failures, outcome.sources[0].rows_applied) == (End.PAUSED, (), 3)
    with RunThatFollows(work) as run:
        lifecycle.resume(work, "me", "test", "")
        await_true(lambda: is_equal(task), SECONDS, [], "rows that came meanwhile")
        lifecycle.pause(work, "me", "test", "", PauseKind.STOPPED)
        with pytest.raises(TaskPaused, match="stopped"):
            run.end()


@pytest.fixture
def followed(task: LiveTask, tmp_path: Path) -> Iterator[Path]:
    """Run `unshard run --follow` for the test, until SIGTERM; return the file of its output."""
    output = tmp_path / "output"
    with output.open("w") as file:
        command = [sys.executable, "-m", "unshard.cli", "run", str(task.path), "--follow"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
        try:
            yield output
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(SECONDS)
    assert (code, output.read_text().count("followed in")) == (0, 1), output.read_text()


def test_a_run_that_follows_goes_on_with_a_changed_task_file(task: LiveTask, followed: Path) -> None:
    write(task, "s1", 1)
    await_true(lambda: is_equal(task), SECONDS, [], "rows")
    valid = task.path.read_text()
    task.path.write_text(valid + "no-such-key: 1\n")
    await_true(lambda: "[US-1001]" in followed.read_text(), SECONDS, [], "the error of the file")
    write(task, "s2", 11)
    await_true(lambda: is_equal(task), SECONDS, [], "rows, by the file from before")
    body = yaml.safe_load(valid)
    body["filters"] = {"keep": {"schema-pattern": "*", "table-pattern": "*", "events": ["delete"], "action": "Ignore"}}
    for instance in body["mysql-instances"]:
        instance["filter-rules"] = ["keep"]
    task.path.write_text(yaml.safe_dump(body))
    await_true(lambda: "has changed" in followed.read_text(), SECONDS, [], "the new file")
    task.sources["s1"].run(f"DELETE FROM {task.name}.g_1 WHERE id = 1", f"INSERT INTO {task.name}.g_1 VALUES (4, 'v')")
    ids = f"SELECT id FROM {task.table('g')} WHERE id < 11 ORDER BY id"
    await_true(lambda: task.target.run(ids) == [(1,), (2,), (3,), (4,)], SECONDS, [], "the rows of the new rules")
    assert followed.read_text().count("[US-1001]") == 1


def test_a_run_that_follows_says_once_that_it_waits(task: LiveTask, followed: Path) -> None:
    write(task, "s1", 1)
    await_true(lambda: is_equal(task), SECONDS, [], "rows")
    assert main(["pause", str(task.path), "--reason", "a break"]) == 0
    await_true(lambda: "waits until" in followed.read_text(), SECONDS, [], "the pause")
    assert main(["resume", str(task.path)]) == 0
    write(task, "s2", 11)
    await_true(lambda: is_equal(task), SECONDS, [], "rows after it")
    said = followed.read_text().splitlines()
    assert len([line for line in said if "a break" in line]) == 1 and "US-7301" not in "".join(said)


def test_a_source_that_is_down_when_a_run_begins_to_follow_is_waited_for(task: LiveTask) -> None:
    """The other one goes on meanwhile."""
    file = task.folder / "sources/s1.yaml"
    file.write_text(re.sub(r"port: \d+", f"port: {free_port()}", right := file.read_text()))
    with open_work(load_task(task.path)) as opened:
        work = dataclasses.replace(opened, spark=LocalSpark, bulk_spark=LocalSpark, limits=Limits(pause_seconds=0.05))
        with RunThatFollows(work) as run:
            write(task, "s2", 11)
            await_true(lambda: is_equal(task), SECONDS, [], "rows of the other")
            assert [each.place for each in run.stop().failures] == ["s1"]
    file.write_text(right)


def test_a_watch_connects_again_after_a_source_has_ended_its_connection(task: LiveTask, monkeypatch) -> None:
    monkeypatch.setattr(newbinlog, "AFTER_ERROR_SECONDS", 0.0)
    with contextlib.closing(BinlogWatch(task.work())) as watch:
        assert not watch.has_news()
        task.sources["s1"].run(f"KILL {watch._connections['s1'].thread_id()}")
        write(task, "s1", 1)
        write(task, "s2", 11)
        assert watch.has_news(), "the other source has news"
        assert not watch.has_news(), "the live run that begins serves both"
        task.run()
        write(task, "s1", 5)
        assert watch.has_news(), "and now this one"


def test_a_watch_tells_once_for_a_live_run_that_begins(task: LiveTask) -> None:
    """A run of both sources takes seconds to begin: the second source must not order another run meanwhile."""
    task.run()
    with contextlib.closing(BinlogWatch(task.work())) as watch:
        assert not watch.has_news()
        write(task, "s1", 1)
        assert watch.has_news()
        write(task, "s2", 11)
        assert not watch.has_news(), "the same run serves it"
        workers = task.work().meta.active_workers
        with workers.at(live_run_of("s1")), workers.at(live_run_of("s2")):
            assert not watch.has_news()
        assert watch.has_news(), "the run has ended without them"
