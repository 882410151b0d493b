"""A backlog of any size becomes windows, whose size follows the measured speed; one that has begun stays as it is."""

import dataclasses
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.livetask import SEGMENT_BYTES, LiveTask, living
from unshard.adapters.meta.tables import checkpoint
from unshard.adapters.relayfiles import index_of, read_index
from unshard.core import codec
from unshard.core.window.plan import Pace, Plan, WindowLimits
from unshard.errors.relay import SegmentDamaged
from unshard.units.window.sync import next_plan, run_window
from unshard.units.work import Limits, Work
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

BYTES = 64_000
HOUR = 3_600_000


@pytest.fixture
def task(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    columns, numbers = {"g": "id INT PRIMARY KEY, v VARCHAR(2000)"}, {("s1", "g"): (1,)}
    made = {"columns": columns, "numbers": numbers, "window_bytes": BYTES}
    with living(unique, tmp_path, (source_1, target), "g", **made) as opened:
        yield opened


def sized(task: LiveTask, limits: WindowLimits, *paces: Pace) -> Work:
    """Return the task with other limits and another past."""
    work = task.work()
    stored = codec.dumps(paces) if paces else ""
    with work.meta.windows._db.transaction() as db:
        db.execute(update(checkpoint).values(paces=stored))
    options = dataclasses.replace(work.task.options, window=limits)
    return dataclasses.replace(work, task=dataclasses.replace(work.task, options=options))


def backlog(task: LiveTask, rows: int) -> None:
    inserts = (f"INSERT INTO {task.name}.g_1 VALUES ({n}, REPEAT('x', 1000))" for n in range(rows))
    task.sources["s1"].run(*inserts)
    task.pull("s1")


def section_bytes(plan: Plan) -> list[int]:
    """Return the number of bytes of each section."""
    borders = [0, *(border.reads for border in plan.borders), len(plan.reads)]
    return [sum(end - at for read in plan.reads[a:b] for at, end in read.ranges) for a, b in pairwise(borders)]


def test_a_backlog_is_many_windows_and_the_speed_is_remembered(task: LiveTask) -> None:
    backlog(task, 400)
    sizes, sections = [], list[int]()
    while (plan := next_plan(task.work(), "s1")).bytes:
        assert task.window("s1").moved
        sizes.append(plan.bytes)
        sections += section_bytes(plan)
    assert sizes[0] == sections[0] <= BYTES // 4, "nothing is known of the speed"
    assert max(sections) <= BYTES
    assert len(sections) >= sum(sizes) / BYTES > 6
    assert len(sizes) < len(sections)
    assert [pace.bytes for pace in task.work().meta.windows.sync_state("s1").paces] == sizes[-5:]
    assert task.assert_union("g") == 400


def test_the_size_follows_time_and_rows(task: LiveTask) -> None:
    backlog(task, 200)
    for limits, pace in (
        (WindowLimits(BYTES, 1_000_000, HOUR // 2), Pace(BYTES, 50, HOUR)),
        (WindowLimits(BYTES, 25, HOUR), Pace(BYTES, 50, 1)),
    ):
        first, *_ = section_bytes(next_plan(sized(task, limits, pace), "s1"))
        assert BYTES // 2 - 2 * SEGMENT_BYTES <= first <= BYTES // 2
    slow = WindowLimits(BYTES, 1_000_000, 1)
    assert 0 < next_plan(sized(task, slow, Pace(BYTES, 50, HOUR)), "s1").bytes <= max(BYTES // 16, 2 * SEGMENT_BYTES)


@pytest.mark.parametrize("workers", [1, 3], ids=["alone", "side by side"])
def test_one_task_or_several_read_the_same(task: LiveTask, workers: int) -> None:
    backlog(task, 150)
    task.sources["s1"].run(f"UPDATE {task.name}.g_1 SET id = -id", f"DELETE FROM {task.name}.g_1 WHERE id % 3 = 0")
    task.pull("s1")
    work = sized(task, WindowLimits(1 << 30, 1_000_000, HOUR))
    if workers > 1:
        limits = Limits(small_bytes=0, alone_bytes=0, worker_bytes=10_000, most_workers=workers)
        work = dataclasses.replace(work, limits=limits)
    assert run_window(work, "s1").rows_applied == 150 + 149 + 50
    assert task.assert_union("g") == 100


def test_a_larger_transaction_goes_whole(task: LiveTask) -> None:
    values = ", ".join(f"({n}, REPEAT('x', 1000))" for n in range(100))
    task.sources["s1"].run(f"INSERT INTO {task.name}.g_1 VALUES {values}")
    task.pull("s1")
    assert next_plan(task.work(), "s1").bytes > 100_000
    assert task.window("s1").rows_applied == 100


def test_a_window_that_has_begun_keeps_its_size(task: LiveTask) -> None:
    backlog(task, 100)
    plan = next_plan(task.work(), "s1")
    task.work().meta.windows.begin("s1", plan)
    small = sized(task, WindowLimits(1, 1, 1), Pace(BYTES, 100, HOUR))
    report = run_window(small, "s1")
    assert (report.begins, report.ends) == (plan.begins, plan.ends)
    assert small.meta.windows.sync_state("s1").paces == (Pace(BYTES, 100, HOUR),), "how long it took, nobody knows"


def test_a_window_reads_no_index_of_a_segment_behind_it(task: LiveTask) -> None:
    """Damaged segments far after it affect neither its plan nor its removals: they are not opened."""
    backlog(task, 1000)
    store = task.work().store
    assert task.window("s1").more
    ends = next_plan(task.work(), "s1").ends
    behind = [link for link in store.links("s1").all if link.begins > ends]
    assert len(behind) > 200
    for link in behind[1:]:  # whether the first one has room is in its index
        (store.folder / "s1" / index_of(link.name)).write_text("damaged")
    read_index.cache_clear()
    report = task.window("s1")
    assert report.moved and report.more and report.ends == ends
    assert [link for link in store.links("s1").all if link.ends <= report.begins] == []
    with pytest.raises(SegmentDamaged):
        store.segments("s1")
