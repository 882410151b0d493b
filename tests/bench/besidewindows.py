"""Part r: the speed of a validation, and how much it slows windows that run beside it.

The windows apply inserts. The validation compares the rows that were there before, again and again, with its default
settings: an open range at the end of the key would be compared with rows on their way, which no window can help.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tests.bench.cpu import Spent, measure
from tests.bench.figures import Figure, ratio
from tests.bench.replay import cpu_of, unshard
from tests.bench.size import Size, enough
from tests.bench.stand import SOURCE, Backlog, Stand
from tests.bench.workloads import Workload
from unshard.units.validate.validate import DEFAULTS, validate
from unshard.units.window.sync import run_window
from unshard.units.work import Work

GOAL = "<= 1.1"


def measure_validation(stand: Stand, size: Size) -> list[Figure]:
    """Return rows per second of a validation alone, and the time of windows without and with one."""
    backlog = stand.backlog(Workload("inserts", size.rows, size.fixed))
    speed = backlog.workload.changes / unshard(stand, backlog).wall  # the first job of a session includes its start
    if size.is_timed:
        speed = backlog.workload.changes / unshard(stand, backlog).wall
        backlog = stand.longer(backlog, enough((speed, speed), size.seconds))
    alone, beside, validated, rows = list[Spent](), list[Spent](), list[Spent](), list[int]()
    for _ in stand.rounds(size.rounds):
        alone.append(unshard(stand, backlog))
        spent, counted = _beside(stand, backlog)
        beside.append(spent)
        rows.append(counted)
        validated.append(_validated(stand, backlog))
    stand.describe(backlog)
    changes, total = backlog.workload.changes, size.rows + backlog.workload.changes
    speeds = tuple(total / each.wall for each in validated)
    slower = tuple(each.wall for each in beside)
    faster = tuple(each.wall for each in alone)
    without, with_one = Figure("r", "windows alone", "s", faster, cpu_of(alone)), _beside_figure(slower, beside)
    stand.conditions.append(f"windows with {changes:,} changes")
    rates = tuple(count / each.wall for count, each in zip(rows, beside, strict=True))
    return [
        Figure("r", "validation alone: rows compared", "rows/s", speeds, cpu_of(validated)),
        *(_share(place, validated) for place in ("source", "target")),
        without,
        with_one,
        Figure("r", "validation beside windows: rows compared", "rows/s", rates),
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
    compared: list[int] = []
    is_over = threading.Event()
    with stand.server(backlog) as target, stand.work(backlog, target) as work, ThreadPoolExecutor(1) as pool:
        stand.warm()
        programs = {**stand.programs, "server": target.program, "source": stand.source.program}
        beginning = threading.Event()
        comparing = pool.submit(_compare_until, work, is_over, beginning, compared)
        beginning.wait()
        spent = measure(lambda: _windows(work), programs)
        is_over.set()
        comparing.result()
        stand.check(backlog, target)
    return spent, sum(compared)


class _OverError(Exception):
    """The windows have ended."""


def _compare_until(work: Work, is_over: threading.Event, beginning: threading.Event, compared: list[int]) -> None:
    def watch(told: object) -> None:
        beginning.set()
        rows = getattr(told, "rows", 0)
        compared[-1] = max(compared[-1], rows)
        if is_over.is_set():
            raise _OverError

    while not is_over.is_set():
        compared.append(0)
        try:
            validate(work, settings=replace(DEFAULTS, wait=0.0), watch=watch)
        except _OverError:
            return


def _windows(work: Work) -> None:
    while run_window(work, SOURCE).moved:
        pass
