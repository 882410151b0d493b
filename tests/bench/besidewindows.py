"""Part r: the speed of a validation, and how much it slows windows that run beside it.

The windows apply inserts. The validation compares the rows that were there before, again and again, with its default
settings. It leaves out the end of the key, where all rows are on their way.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.bench.cpu import Spent, measure
from tests.bench.figures import Figure, ratio
from tests.bench.replay import cpu_of, unshard
from tests.bench.size import Size, enough
from tests.bench.stand import SOURCE, Backlog, Stand
from tests.bench.workloads import SCHEMA, Workload
from unshard.adapters.meta.taskrecords import window_of
from unshard.core.model import TableId
from unshard.core.sql.keyrange import KeyRange
from unshard.core.validate.checksum import PLACE_TARGET
from unshard.units.validate.ranges import Sessions, TableCheck, agree
from unshard.units.validate.validate import DEFAULTS, planned_check, pool_of, sized_ranges, validate
from unshard.units.window.sync import run_window
from unshard.units.work import Work

GOAL = "<= 1.1"
POLL_SECONDS = 0.02


def measure_validation(stand: Stand, size: Size) -> list[Figure]:
    """Return rows per second of a validation alone, and the time of windows without and with one."""
    backlog = stand.backlog(Workload("inserts", size.rows, size.fixed))
    speed = backlog.workload.changes / unshard(stand, backlog).wall  # the first job of a session includes its start
    if size.is_timed:
        speed = backlog.workload.changes / unshard(stand, backlog).wall
        backlog = stand.longer(backlog, enough((speed, speed), size.seconds))
    alone, beside, validated, rows = list[Spent](), list[Spent](), list[Spent](), list[int]()

    def run_beside() -> None:
        spent, counted = _beside(stand, backlog)
        beside.append(spent)
        rows.append(counted)

    for number in stand.rounds(size.rounds):
        turns: tuple[Callable[[], None], ...] = (lambda: alone.append(unshard(stand, backlog)), run_beside)
        for turn in turns if number % 2 == 0 else reversed(turns):
            turn()
        validated.append(_validated(stand, backlog))
    stand.describe(backlog)
    changes, total = backlog.workload.changes, size.rows + backlog.workload.changes
    speeds = tuple(total / each.wall for each in validated)
    slower = tuple(each.wall for each in beside)
    faster = tuple(each.wall for each in alone)
    without, with_one = Figure("r", "windows alone", "s", faster, cpu_of(alone)), _beside_figure(slower, beside)
    stand.conditions.append(f"windows with {changes:,} changes")
    rates = tuple(count / each.wall for count, each in zip(rows, beside, strict=True))
    burnt = (tuple(sum(each.cpu.values()) for each in runs) for runs in (beside, alone))
    more = tuple(both / one for both, one in zip(*burnt, strict=True))
    return [
        Figure("r", "validation alone: rows compared", "rows/s", speeds, cpu_of(validated)),
        *(_share(place, validated) for place in ("source", "target")),
        without,
        with_one,
        Figure("r", "validation beside windows: rows compared", "rows/s", rates),
        Figure("r", "CPU seconds of windows and a validation to those of windows alone", "x", more),
        ratio("r", "time of windows beside a validation to windows alone", with_one, without, GOAL),
    ]


def _beside_figure(walls: tuple[float, ...], spent: list[Spent]) -> Figure:
    return Figure("r", "windows beside a validation", "s", walls, cpu_of(spent))


def _share(place: str, runs: list[Spent]) -> Figure:
    shares = tuple(100 * each.cpu[place] / each.wall for each in runs)
    return Figure("r", f"validation alone: one core's share of the {place}", "%", shares)


def _validated(stand: Stand, backlog: Backlog) -> Spent:
    """Apply the backlog, then compare all rows."""
    with stand.server(backlog) as target, stand.work(backlog, target) as work:
        _windows(work)
        programs = {"source": stand.source.program, "target": target.program}

        def compare() -> None:
            if not all(each.equal for each in validate(work)):
                raise SystemExit("the target is not equal to its source")

        return measure(compare, programs)


def _beside(stand: Stand, backlog: Backlog) -> tuple[Spent, int]:
    """Apply the backlog while the rows that were there before are compared; count these."""
    is_over, workload = threading.Event(), backlog.workload
    with stand.server(backlog) as target, stand.work(backlog, target) as work, ThreadPoolExecutor(1) as pool:
        stand.warm()
        check = planned_check(work, TableId(SCHEMA, workload.name))
        first_rows = KeyRange(None, (str(workload.rows).encode(),))
        comparing = pool.submit(_compare, work, check, first_rows, is_over)
        try:
            programs = {**stand.programs, "server": target.program, "source": stand.source.program}
            spent = measure(lambda: _windows(work), programs)
        finally:
            is_over.set()
        stand.check(backlog, target)
        return spent, comparing.result()


def _compare(work: Work, check: TableCheck, rows: KeyRange, is_over: threading.Event) -> int:
    """Compare rows again and again from the beginning of the first window on; return how many were compared."""
    compared = 0
    while not (work.meta.active_workers.seen([window_of(SOURCE)]) or is_over.wait(POLL_SECONDS)):
        pass
    with Sessions() as sessions, pool_of(DEFAULTS.threads) as pool:
        while True:
            found = sized_ranges(work, check, DEFAULTS, sessions, pool, lambda _: None).compared([rows])
            for _, sums in found:
                if is_over.is_set():
                    return compared
                if not agree(sums):
                    raise SystemExit("rows that no window writes differ")
                compared += sums[PLACE_TARGET].rows


def _windows(work: Work) -> None:
    while run_window(work, SOURCE).moved:
        pass
