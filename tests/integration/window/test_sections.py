"""A window with several sections: each is committed before the next. A failure ends the window before its section.

The next window meets the failure as any window does. So the target is always the union of the shards up to a section.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cutting import bound_transactions, cut_at_commit, open_transactions
from tests.integration.rows.test_target_apply import _until
from tests.livetask import LiveTask, living
from unshard.adapters.meta import windowrecords
from unshard.adapters.target.fencesteps import Bounds
from unshard.core.window.plan import SECTIONS
from unshard.errors.relay import DamagedEvent
from unshard.units.task.status import status
from unshard.units.window import sync
from unshard.units.window import tasks as windowslices
from unshard.units.window.sync import WindowReport, next_plan
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

BYTES = 20_000
"""Size of a section, about 17 of the rows that `fill` writes."""
KEYED, KEYLESS = "id INT PRIMARY KEY, v VARCHAR(2000)", "id INT, v VARCHAR(2000)"


@pytest.fixture(params=[1, 3], ids=["one session", "three sessions"])
def sessions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    bound_transactions(monkeypatch, Bounds(1_000_000, 1 << 30, 1, request.param, least_keys=3, spread=9))
    return int(request.param)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first window have all sections already, and let slices be small."""
    monkeypatch.setattr(sync, "next_bytes", lambda *_: BYTES)
    monkeypatch.setattr(sync, "next_sections", lambda *_: SECTIONS)
    monkeypatch.setattr(windowslices, "PIECE_BYTES", 5_000)


Opened = Callable[..., LiveTask]


@pytest.fixture
def opened(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[Opened]:
    tasks: list[Iterator[LiveTask]] = []

    def open_(columns: str = KEYED, **made: object) -> LiveTask:
        given = {"columns": {"g": columns}, "numbers": {("s1", "g"): (1, 2)}} | made
        manager = living(unique, tmp_path, (source_1, target), "g", **given)
        tasks.append(manager)
        return manager.__enter__()

    yield open_
    for manager in tasks:
        manager.__exit__(None, None, None)


def write(task: LiveTask, *statements: str) -> None:
    task.sources["s1"].run(f"USE {task.name}", *statements)


def fill(first: int, last: int, shard: int = 1) -> list[str]:
    """Return inserts of about a thousand bytes of binlog each."""
    return [f"INSERT INTO g_{shard} VALUES ({n}, CONCAT({n}, REPEAT('x', 900)))" for n in range(first, last)]


def changed(rows: int) -> list[str]:
    """Return changes of rows that sections before have written."""
    dice = random.Random(rows)
    made = []
    for n in range(rows):
        key = dice.randrange(rows)
        made.append(f"UPDATE g_1 SET v = CONCAT({n}, REPEAT('y', 900)) WHERE id = {key}")
        if n % 5 == 0:
            made.append(f"DELETE FROM g_1 WHERE id = {key}")
    return made


def numbers(task: LiveTask) -> tuple[int, int]:
    """Return the window of the checkpoint and of the target's fence."""
    (found,) = task.target.run(
        f"SELECT c.`window`, f.`window` FROM {task.meta_schema}.checkpoint c, {task.meta_schema}.fence f"
    )
    return int(str(found[0])), int(str(found[1]))


def steps(task: LiveTask) -> int:
    ((count,),) = task.target.run(f"SELECT COUNT(*) FROM {task.meta_schema}.fence_step")
    return int(str(count))


def backlog(task: LiveTask) -> int:
    """Write a backlog of several windows; return the number of its changes."""
    made = [*fill(0, 60), *fill(1000, 1040, shard=2), *changed(150)]
    write(task, *made)
    task.pull("s1")
    return len(made)


@pytest.mark.sample(reason="the size and the form of rows do not interact")
@pytest.mark.on_tidb
@pytest.mark.parametrize("columns", [KEYED, KEYLESS, f"{KEYED}, UNIQUE (v(20))"], ids=["keyed", "keyless", "unique"])
def test_a_backlog_becomes_the_union_in_few_windows(opened, sessions, columns):
    task = opened(columns)
    backlog(task)
    plan = next_plan(task.work(), "s1")
    assert len(plan.borders) == SECTIONS - 1
    report = task.window("s1")
    assert (report.window, report.ends, report.more) == (1, plan.ends, True)
    assert numbers(task) == (plan.last_number, plan.last_number) == (8, 8)
    assert task.window("s1").window == 9
    task.run()
    assert task.assert_union("g") > 40 and not steps(task)
    assert numbers(task)[0] == numbers(task)[1]


def test_every_change_is_counted_once(opened, sessions, monkeypatch):
    monkeypatch.setattr(windowrecords, "KEPT_WINDOWS", 0)
    monkeypatch.setattr(windowrecords, "FORGETTING", 1)
    task = opened()
    write(task, *fill(0, 150))
    task.pull("s1")
    reports = list[WindowReport]()
    while (report := task.window("s1")).moved:
        reports.append(report)
    assert [report.rows_applied > 17 for report in reports[:-1]] == [True] * (len(reports) - 1)
    assert sum(report.rows_applied for report in reports) == 150
    (shown,) = status(task.work().task)
    assert (shown.windows, shown.rows_applied) == (len(reports), 150)
    assert task.target.run(f"SELECT COUNT(*) FROM {task.meta_schema}.`window`") == [(1,)]


def unlogged(task: LiveTask, *statements: str) -> None:
    write(task, "SET SESSION sql_log_bin = 0", *statements, "SET SESSION sql_log_bin = 1")


FAILURES: Mapping[str, list[str]] = {
    "a row that does not fit": ["INSERT INTO g_1 VALUES (500, REPEAT('z', 1500))"],
    "a NULL": ["INSERT INTO g_1 VALUES (500, NULL)"],
    "a key of another shard": ["INSERT INTO g_2 VALUES (3, 'taken')"],
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_window_ends_before_the_section_that_fails(opened, sessions, failure):
    """The target has all sections before it; the next window tells the failure, and goes on once it is mended."""
    task = opened()
    task.target.run(f"ALTER TABLE {task.table('g')} MODIFY v VARCHAR(1000) NOT NULL")
    write(task, *fill(0, 60), *FAILURES[failure], *fill(60, 63))
    task.pull("s1")
    planned = next_plan(task.work(), "s1")
    report = task.window("s1")
    assert planned.begins < report.ends < planned.ends and report.more and not report.stopped
    assert report.rows_applied >= 40 and numbers(task)[0] == numbers(task)[1] < planned.last_number
    ((count,),) = task.target.run(f"SELECT COUNT(*) FROM {task.table('g')}")
    assert count == report.rows_applied, "no row of the section that failed"
    assert [stop.target.name for stop in task.window("s1").stopped] == ["g"]
    write(task, "DELETE FROM g_2")
    task.pull("s1")
    while task.window("s1").moved:
        pass
    task.target.run(f"ALTER TABLE {task.table('g')} MODIFY v VARCHAR(2000)")
    task.retry()
    task.assert_settled()


def test_rows_without_the_structure_of_their_shard_begin_the_next_window(opened, sessions):
    task = opened()
    write(task, *fill(0, 60))
    unlogged(task, "ALTER TABLE g_1 ADD COLUMN w INT")
    write(task, *(f"INSERT INTO g_1 VALUES ({n}, REPEAT('x', 1000), {n})" for n in range(100, 130)))
    task.pull("s1")
    report = task.window("s1")
    assert report.rows_applied >= 40 and not report.rows_held and report.more
    while task.window("s1").moved:
        pass
    (waiting,) = [state for state in task.work().meta.structures.shards() if state.queue]
    assert sum(file.rows for file in waiting.held) == 30
    ((count,),) = task.target.run(f"SELECT COUNT(*) FROM {task.table('g')}")
    assert count == 60


def test_a_damaged_segment_stops_the_window_after_it(opened, sessions):
    task = opened()
    write(task, *fill(0, 60))
    task.pull("s1")
    task.damage_segment("s1", -2)
    report = task.window("s1")
    assert report.rows_applied >= 40 and report.more
    with pytest.raises(DamagedEvent):
        task.window("s1")
    ((count,),) = task.target.run(f"SELECT COUNT(*) FROM {task.table('g')}")
    assert count == report.rows_applied


@pytest.mark.sample(reason="the moment and the form of rows do not interact")
@pytest.mark.parametrize("arrives", [False, True], ids=["before it arrives", "before its answer"])
@pytest.mark.parametrize("number", [1, 2, 4, 8])
def test_a_commit_that_is_lost_ends_in_the_union(opened, sessions, monkeypatch, number, arrives):
    """The connection of a session breaks; the section is then applied as a whole, unless the fence shows that it is."""
    task = opened()
    backlog(task)
    work = task.work()
    with cut_at_commit(task.target, arrives=arrives, number=number) as (way, proxy):
        writer = work.writer()
        behind = replace(writer, server=replace(writer.server, port=way.port))
        assert sync.run_window(replace(work, writer=lambda: behind), "s1").moved
        assert proxy.answered.is_set() == arrives
    _until(lambda: not open_transactions(task.target))
    task.run()
    task.assert_settled()
    assert not steps(task) and numbers(task)[0] == numbers(task)[1]


@pytest.mark.sample(reason="the moment and the form of rows do not interact")
@pytest.mark.parametrize("moment", range(1, 40, 5))
def test_a_process_killed_between_two_slices_ends_in_the_union(opened, sessions, monkeypatch, moment):
    task = opened()
    backlog(task)
    task.restart()
    if not (child := os.fork()):
        left, real = [moment], windowslices.changes_of

        def dying(*given: object) -> object:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given)

        windowslices.changes_of = dying
        while task.window("s1").moved:
            pass
        os._exit(0)
    os.waitpid(child, 0)
    _until(lambda: not open_transactions(task.target))
    task.run()
    task.assert_settled()
    assert not steps(task) and numbers(task)[0] == numbers(task)[1]
