"""Part j: what exactly-once costs: whole windows, and the same reading and writing with nothing that guards it.

Without guard there is no persisted plan, no epoch, no fence and no checkpoint, and every statement commits by
itself. Both run in this process without Spark, so that nothing else is in the difference.
"""

import contextlib

import pyarrow as pa

from tests.bench.cpu import Spent, measure
from tests.bench.figures import TICK, Figure
from tests.bench.replay import cpu_of
from tests.bench.stand import SOURCE, Backlog, Stand
from tests.bench.workloads import Workload
from tests.localspark import LocalSpark
from unshard.adapters.target.apply import _write
from unshard.adapters.target.fence import Fence
from unshard.adapters.target.session import open_session
from unshard.core.progress import BegunWindow
from unshard.units.applying import changes_of
from unshard.units.parcels import of_target, parcels, targets_in
from unshard.units.sync import next_plan, run_window, window_job
from unshard.units.windowtasks import PartReader
from unshard.units.work import Work

WINDOW = "4MiB"
"""Small windows, as large as the ranges that are read: what is paid for each must show."""
WHOLE = "100GiB"


def measure_fence(stand: Stand, rounds: int, rows: int) -> list[Figure]:
    """Return the seconds of both ways, and by how much the guarded one is dearer."""
    backlog = stand.backlog(Workload("mixed", rows, rows))
    spent: dict[bool, list[Spent]] = {True: [], False: []}
    for number in range(rounds):
        for guarded in (True, False) if number % 2 == 0 else (False, True):
            spent[guarded].append(_replay(stand, backlog, guarded))
    pairs = list(zip(spent[True], spent[False], strict=True))
    dearer = tuple(100 * (one.wall / other.wall - 1) for one, other in pairs)
    total = tuple(100 * (sum(one.cpu.values()) / max(sum(other.cpu.values()), TICK) - 1) for one, other in pairs)
    return [
        Figure("j", "windows of 4 MiB, exactly once", "s", tuple(run.wall for run in spent[True]), cpu_of(spent[True])),
        Figure("j", "the same changes, nothing guarded", "s", tuple(run.wall for run in spent[False]),
               cpu_of(spent[False])),
        Figure("j", "exactly-once is dearer by, wall time", "%", dearer, goal="<= 10"),
        Figure("j", "exactly-once is dearer by, CPU seconds", "%", total),
    ]  # fmt: skip


def _replay(stand: Stand, backlog: Backlog, guarded: bool) -> Spent:
    with (
        stand.server(backlog) as target,
        stand.work(backlog, target, LocalSpark, **{"window-size": WINDOW if guarded else WHOLE}) as work,
    ):
        spent = measure(lambda: _guarded(work) if guarded else _bare(work), {"server": target.program})
        stand.check(backlog, target)
    return spent


def _guarded(work: Work) -> None:
    while run_window(work, SOURCE).moved:
        pass


def _bare(work: Work) -> None:
    """Read range by range and write each as a window would, all in one plan that nobody keeps."""
    job = window_job(work, BegunWindow(next_plan(work, SOURCE), 1))
    for part in job.parts:
        runs = pa.Table.from_batches(list(parcels(PartReader(job, part).runs(), 1)))
        with contextlib.closing(open_session(work.target)) as connection:
            for target in targets_in(runs):
                changes = changes_of(job, target, of_target(runs, target))
                _write(connection, Fence(job.meta_schema, job.task, SOURCE, changes.table, 1, 1), changes)
