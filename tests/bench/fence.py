"""Part j: the cost of exactly-once: whole windows, compared with the same reading and writing without safeguards.

Without safeguards there is no persisted plan, no epoch, no fence and no checkpoint, and every statement commits
separately. Both run in this process without Spark and write one segment at a time in one session, so that nothing else
contributes to the difference. The bench checks that both wrote the same number of times and changes.
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
from unshard.core.task.state import BegunWindow
from unshard.units.rows.shuffle import of_target, payloads, targets_in
from unshard.units.rows.targetwork import changes_of
from unshard.units.window.sync import next_plan, run_window, window_job
from unshard.units.window.tasks import PartReader
from unshard.units.work import Work

WINDOW = "1MiB"
"""Smaller than a segment, so that each segment is a window."""
WHOLE = "100GiB"
ONE_SESSION = {"worker-count": 1}
PAIRS = 3
"""Pairs per round: the difference is a few percent, and two runs of the same kind differ by as much."""


def measure_fence(stand: Stand, rounds: int, rows: int) -> list[Figure]:
    """Return the seconds of both, and the extra cost of exactly-once."""
    backlog = stand.backlog(Workload("mixed", rows, rows))
    spent: dict[bool, list[Spent]] = {True: [], False: []}
    windows = set[Windows]()
    for number in stand.rounds(rounds):
        for pair in range(number * PAIRS, (number + 1) * PAIRS):
            for guarded in (True, False) if pair % 2 == 0 else (False, True):
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
        Figure("j", "exactly-once is dearer by, wall time", "%", dearer, goal="<= 8"),
        Figure("j", "exactly-once is dearer by, CPU seconds", "%", total),
    ]


Windows = tuple[int, ...]
"""How many changes each window had."""


def _replay(stand: Stand, backlog: Backlog, guarded: bool) -> tuple[Spent, Windows]:
    windows = list[int]()
    with (
        stand.server(backlog) as target,
        stand.work(backlog, target, LocalSpark, ONE_SESSION, **{"window-size": WINDOW if guarded else WHOLE}) as work,
    ):
        run = _guarded if guarded else _bare
        spent = measure(lambda: windows.extend(run(work)), {"server": target.program})
        stand.check(backlog, target)
    return spent, tuple(windows)


def _guarded(work: Work) -> Iterator[int]:
    while (report := run_window(work, SOURCE)).moved:
        yield report.rows_applied


def _bare(work: Work) -> Iterator[int]:
    """Read segment by segment and write each as a window would, with one plan that is not persisted."""
    plan = next_plan(work, SOURCE)
    job = window_job(work, BegunWindow(plan, 1), {}, work.present({*plan.targets}))
    for _, parts in groupby(job.parts, key=lambda part: part.segment):
        readers = [PartReader(job, part) for part in parts]
        found = pa.Table.from_batches([each for reader in readers for each in payloads(reader.runs(), 1)])
        with contextlib.closing(open_session(work.writer())) as connection:
            for target in targets_in(found):
                changes = changes_of(job, target, of_target(found, target))
                write(connection, Fence(job.meta_schema, job.task, SOURCE, changes.table, 1, 1), changes)
        yield sum(reader.report.applied for reader in readers)
