"""Part j: what exactly-once costs: whole windows, and the same reading and writing with nothing that guards it.

Without guard there is no persisted plan, no epoch, no fence and no checkpoint, and every statement commits by
itself. Both run in this process without Spark and write a segment at a time, so that nothing else is in the
difference; the bench sees to it that both wrote as often and as many changes.
"""

import contextlib
from collections.abc import Iterator
from itertools import groupby

import pyarrow as pa

from tests.bench.cpu import Spent, measure
from tests.bench.figures import TICK, Figure
from tests.bench.replay import cpu_of
from tests.bench.stand import SOURCE, Backlog, Stand
from tests.bench.workloads import Workload
from tests.localspark import LocalSpark
from unshard.adapters.target.apply import write
from unshard.adapters.target.fence import Fence
from unshard.adapters.target.session import open_session
from unshard.core.progress import BegunWindow
from unshard.units.applying import changes_of
from unshard.units.parcels import of_target, parcels, targets_in
from unshard.units.sync import next_plan, run_window, window_job
from unshard.units.windowtasks import PartReader
from unshard.units.work import Work

WINDOW = "1MiB"
"""Less than a segment has, so that each window is one."""
WHOLE = "100GiB"
PAIRS = 3
"""In each round: the difference is some percent, and as much lies between two runs of one kind."""


def measure_fence(stand: Stand, rounds: int, rows: int) -> list[Figure]:
    """Return the seconds of both ways, and by how much the guarded one is dearer."""
    backlog = stand.backlog(Workload("mixed", rows, rows))
    spent: dict[bool, list[Spent]] = {True: [], False: []}
    windows = set[Windows]()
    for number in range(rounds * PAIRS):
        for guarded in (True, False) if number % 2 == 0 else (False, True):
            used, written = _replay(stand, backlog, guarded)
            spent[guarded].append(used)
            windows.add(written)
    if len(windows) != 1:
        raise SystemExit(f"the changes of the windows differ: {windows}")
    ((*sizes,),) = windows
    pairs = list(zip(spent[True], spent[False], strict=True))
    dearer = tuple(100 * (one.wall / other.wall - 1) for one, other in pairs)
    total = tuple(100 * (sum(one.cpu.values()) / max(sum(other.cpu.values()), TICK) - 1) for one, other in pairs)
    walls = {guarded: tuple(run.wall for run in runs) for guarded, runs in spent.items()}
    name = f"{len(sizes)} windows of a segment each, exactly once"
    return [
        Figure("j", name, "s", walls[True], cpu_of(spent[True])),
        Figure("j", "the same windows, nothing guarded", "s", walls[False], cpu_of(spent[False])),
        Figure("j", "exactly-once is dearer by, wall time", "%", dearer, goal="<= 10"),
        Figure("j", "exactly-once is dearer by, CPU seconds", "%", total),
    ]  # fmt: skip


Windows = tuple[int, ...]
"""How many changes each window had."""


def _replay(stand: Stand, backlog: Backlog, guarded: bool) -> tuple[Spent, Windows]:
    windows = list[int]()
    with (
        stand.server(backlog) as target,
        stand.work(backlog, target, LocalSpark, **{"window-size": WINDOW if guarded else WHOLE}) as work,
    ):
        run = _guarded if guarded else _bare
        spent = measure(lambda: windows.extend(run(work)), {"server": target.program})
        stand.check(backlog, target)
    return spent, tuple(windows)


def _guarded(work: Work) -> Iterator[int]:
    while (report := run_window(work, SOURCE)).moved:
        yield report.rows_applied


def _bare(work: Work) -> Iterator[int]:
    """Read segment by segment and write each as a window would, all in one plan that nobody keeps."""
    plan = next_plan(work, SOURCE)
    job = window_job(work, BegunWindow(plan, 1), {}, work.present({*plan.targets}))
    for _, parts in groupby(job.parts, key=lambda part: part.segment):
        readers = [PartReader(job, part) for part in parts]
        found = pa.Table.from_batches([each for reader in readers for each in parcels(reader.runs(), 1)])
        with contextlib.closing(open_session(work.writer())) as connection:
            for target in targets_in(found):
                changes = changes_of(job, target, of_target(found, target))
                write(connection, Fence(job.meta_schema, job.task, SOURCE, changes.table, 1, 1), changes)
        yield sum(reader.report.applied for reader in readers)
