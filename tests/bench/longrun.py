"""Part m: speed and memory over a long backlog, in tenths of it.

A window belongs to the tenth that has its middle row. The first tenth contains small windows at the start, because
windows grow. The second one is the first with windows of full size, so memory is compared with that one, and the rate
with both. Native replication applies the same backlog in turn: its rates show how much slower the server itself
becomes. So do the CPU seconds of the server for each change.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from tests.bench import cpu
from tests.bench.cpu import Spent
from tests.bench.figures import Figure, ratio, shown
from tests.bench.memory import HEAP, Peaks, Watch
from tests.bench.replay import apply_to, fetched_replica, longer_backlog, native_name, short_backlog
from tests.bench.size import Size
from tests.bench.stand import SOURCE, Backlog, Stand, binlog_parts, import_all
from tests.localspark import LocalSpark
from tests.running import while_up
from unshard.adapters.spark import map_items, open_spark_session
from unshard.core.model import Location
from unshard.units.window.sync import WindowReport, run_window
from unshard.units.work import Work
from unshard_demo import sparkserver
from unshard_demo.processes import Program

TENTHS = 10
EVERY_SECONDS = 0.5
"""Reading the memory of all processes takes CPU time from the measured work."""
UP_TO = {"first": slice(1), "second": slice(2), "last": slice(TENTHS)}
"""The tenths whose last one has this name."""
SERVER, OWN = ("server",), ("client", "spark")
PLACES = ("Spark's JVM", "Spark's Python workers", "the task's process")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the backlog: a window, or a tenth of all."""

    changes: int
    spent: Spent
    peaks: Peaks = (0.0, 0.0, 0.0, 0.0)

    @property
    def rate(self) -> float:
        """Changes per second."""
        return self.changes / self.spent.wall

    def cost(self, places: Sequence[str]) -> float:
        """Return the CPU microseconds of these programs for each change."""
        return 1e6 * sum(self.spent.cpu.get(place, 0.0) for place in places) / self.changes


Tenths = Sequence[Sequence[Stretch]]
"""The tenths of each pass over the backlog."""


@dataclass
class Passes:
    """The passes over the backlog so far, each in tenths."""

    ours: list[list[Stretch]] = field(default_factory=list)
    theirs: list[list[Stretch]] = field(default_factory=list)


def measure(stand: Stand, size: Size) -> list[Figure]:
    """Return rates, costs and peaks of the first and the last tenth, and their ratios."""
    short, passes = short_backlog(stand, "mixed", size), Passes()
    threads = max(size.threads)
    with _session(stand) as (session, program):
        _ours(stand, short, session, program)  # the first jobs of a session include its start
        backlog = longer_backlog(stand, short, size)
        for number in stand.rounds(size.rounds):
            turns = (True, False) if number % 2 == 0 else (False, True)
            for is_ours in turns:
                if is_ours:
                    passes.ours.append(_ours(stand, backlog, session, program))
                else:
                    passes.theirs.append(_theirs(stand, backlog, threads))
    stand.describe(backlog)
    stand.release(backlog)
    native = native_name(threads)
    figures = [*_rates("unshard", passes.ours, ">= 0.95"), *_rates(native, passes.theirs)]
    figures += _costs("unshard", passes.ours, OWN)
    figures += [figure for name, some in _both(native, passes) for figure in _costs(f"server beside {name}", some)]
    _note(stand, passes, native)
    return [*figures, *_peaks(passes.ours)]


@contextlib.contextmanager
def _session(stand: Stand) -> Iterator[tuple[Any, Program | None]]:
    """Start a Spark of its own, with the heap that docs/operations.md recommends for windows."""
    if not stand.with_spark:
        yield LocalSpark(), None
        return
    with while_up(sparkserver.start_spark(stand.folder / "spark-of-m", memory=HEAP)) as connect:
        yield open_spark_session(connect.url), connect.program


def _ours(stand: Stand, backlog: Backlog, session: Any, program: Program | None) -> list[Stretch]:
    with stand.server(backlog) as target, stand.work(backlog, target, lambda: session) as work:
        if program:
            list(map_items(session, import_all, ["1", "2"], 2))
        programs = {"server": target.program} | ({"spark": program} if program else {})
        with Watch(program, EVERY_SECONDS) as watch:
            windows = list(_windows(work, programs, watch))
        stand.check(backlog, target)
    return by_tenth(windows)


def _windows(work: Work, programs: Mapping[str, Program], watch: Watch) -> Iterator[Stretch]:
    reports = list[WindowReport]()
    while True:
        spent = cpu.measure(lambda: reports.append(run_window(work, SOURCE)), programs)
        if not reports[-1].moved:
            return
        yield Stretch(reports[-1].rows_applied, spent, watch.take())


def by_tenth(windows: Sequence[Stretch]) -> list[Stretch]:
    """Join the windows of each tenth that has the middle of a window."""
    total, done = sum(window.changes for window in windows), 0
    tenths: dict[int, list[Stretch]] = {}
    for window in windows:
        number = min(TENTHS - 1, (2 * done + window.changes) * TENTHS // max(1, 2 * total))
        tenths.setdefault(number, []).append(window)
        done += window.changes
    return [_joined(some) for some in tenths.values()]


def _joined(some: Sequence[Stretch]) -> Stretch:
    spent = {place: sum(each.spent.cpu[place] for each in some) for place in some[0].spent.cpu}
    one, two, three, four = (max(values) for values in zip(*(each.peaks for each in some), strict=True))
    wall = sum(each.spent.wall for each in some)
    return Stretch(sum(each.changes for each in some), Spent(wall, spent), (one, two, three, four))


def _theirs(stand: Stand, backlog: Backlog, threads: int) -> list[Stretch]:
    with fetched_replica(stand, backlog, threads) as replica:
        programs, changes = {"server": replica.program}, backlog.workload.changes // TENTHS
        found = [
            Stretch(changes, cpu.measure(partial(apply_to, replica, end), programs)) for end in _ends(stand, backlog)
        ]
        stand.check(backlog, replica)
    return found


def _ends(stand: Stand, backlog: Backlog) -> Iterator[Location]:
    """Yield the location after each tenth of the backlog's bytes."""
    parts = binlog_parts(stand.source, backlog)
    total = sum(last - first for _, first, last in parts)
    for number in range(1, TENTHS):
        left = total * number // TENTHS
        for name, first, last in parts:
            if left < last - first:
                yield Location(name, first + left)
                break
            left -= last - first
    yield backlog.ends


def _of_three(name: str, unit: str, passes: Tenths, value: Callable[[Stretch], float]) -> list[Figure]:
    """Return the figures of the first, the second and the last tenth."""
    return [
        Figure("m", f"{name}{which} tenth", unit, tuple(value(tenths[up_to][-1]) for tenths in passes))
        for which, up_to in UP_TO.items()
    ]


def _rates(name: str, passes: Tenths, goal: str = "") -> list[Figure]:
    first, second, last = found = _of_three(f"{name}: ", "changes/s", passes, lambda each: each.rate)
    ratios = (
        ratio("m", f"{name}: rate of the last tenth to the first", last, first, goal),
        ratio("m", f"{name}: rate of the last tenth to the second", last, second),
    )
    return [*found, *ratios]


def _costs(name: str, passes: Tenths, places: Sequence[str] = SERVER) -> list[Figure]:
    first, _, last = _of_three(f"{name}: CPU per change, ", "µs", passes, lambda each: each.cost(places))
    return [first, last, ratio("m", f"{name}: CPU per change, last tenth to the first", last, first)]


def _peaks(passes: Tenths) -> Iterator[Figure]:
    for place, peak in _seen(passes):
        _, second, last = _of_three(f"peak of {place}: ", "MiB", passes, peak)
        yield from (second, last)
        yield ratio("m", f"peak of {place}: last tenth to the second", last, second, "<= 1.1")


def _seen(passes: Tenths) -> Iterator[tuple[str, Callable[[Stretch], float]]]:
    """Yield the processes whose memory was read, and how to get it."""
    for number, place in enumerate(PLACES):
        if passes[0][0].peaks[number]:
            yield place, partial(_peak, number)


def _peak(number: int, stretch: Stretch) -> float:
    return stretch.peaks[number]


def _both(native: str, passes: Passes) -> Sequence[tuple[str, Tenths]]:
    return ("unshard", passes.ours), (native, passes.theirs)


def _note(stand: Stand, passes: Passes, native: str) -> None:
    for name, some in _both(native, passes):
        stand.notes.append(f"Changes per second by tenth, {name}: {_medians(some, lambda each: each.rate)}.")
        cost = _medians(some, lambda each: each.cost(SERVER))
        stand.notes.append(f"CPU µs of the server per change by tenth, {name}: {cost}.")
    own = _medians(passes.ours, lambda each: each.cost(OWN))
    stand.notes.append(f"CPU µs of Spark and the task per change by tenth: {own}.")
    for place, peak in _seen(passes.ours):
        stand.notes.append(f"Peak MiB by tenth, {place}: {_medians(passes.ours, peak)}.")


def _medians(passes: Tenths, value: Callable[[Stretch], float]) -> str:
    """Return the median of the passes for each tenth."""
    return ", ".join(shown(median(map(value, some))) for some in zip(*passes, strict=False)).replace(", ", "; ")
