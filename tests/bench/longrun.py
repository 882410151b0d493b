"""Part m: speed and memory over a long backlog, in tenths of it.

A window belongs to the tenth that has its middle row. The first tenth contains small windows at the start, because
windows grow. The second one is the first with windows of full size, so memory is compared with that one, and the rate
with both. Native replication applies the same backlog in turn: its rates show how much slower the server itself
becomes.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tests.bench.figures import Figure, ratio, shown
from tests.bench.memory import HEAP, Peaks, Watch
from tests.bench.replay import apply_to, chosen_backlog, fetched_replica, native_name
from tests.bench.size import Size
from tests.bench.stand import SOURCE, Backlog, Stand, binlog_parts, import_all
from tests.localspark import LocalSpark
from unshard.adapters.spark import map_items, open_session
from unshard.core.model import Location
from unshard.units.window.sync import run_window
from unshard_demo import spark
from unshard_demo.processes import Program

TENTHS = 10
EVERY_SECONDS = 0.5
"""Reading the memory of all processes takes CPU time from the measured work."""
PLACES = ("Spark's JVM", "Spark's Python workers", "the task's process")


@dataclass
class Passes:
    """The passes over the backlog so far, each as a list of values by tenth."""

    ours: list[list[float]] = field(default_factory=list)
    """Changes per second."""
    theirs: list[list[float]] = field(default_factory=list)
    memory: dict[str, list[list[float]]] = field(default_factory=lambda: {place: [] for place in PLACES})
    """Peak MiB by process."""


def measure(stand: Stand, size: Size) -> list[Figure]:
    """Return rates and peaks of the first and the last tenth, and their ratios."""
    backlog, passes = chosen_backlog(stand, "mixed", size), Passes()
    threads = max(size.threads)
    with _session(stand) as (session, program):
        _ours(stand, backlog, session, program, Passes())  # the first jobs of a session include its start
        for number in range(size.rounds):
            turns = (True, False) if number % 2 == 0 else (False, True)
            for is_ours in turns:
                if is_ours:
                    _ours(stand, backlog, session, program, passes)
                else:
                    passes.theirs.append(_theirs(stand, backlog, threads))
    stand.describe(backlog)
    stand.release(backlog)
    _note(stand, passes, native_name(threads))
    return [*_rates("unshard", passes.ours, ">= 0.95"), *_rates(native_name(threads), passes.theirs), *_peaks(passes)]


@contextlib.contextmanager
def _session(stand: Stand) -> Iterator[tuple[Any, Program | None]]:
    """Start a Spark of its own, with the heap that docs/operations.md recommends for windows."""
    if not stand.with_spark:
        yield LocalSpark(), None
        return
    with spark.running_spark(stand.folder / "spark-of-m", memory=HEAP) as connect:
        yield open_session(connect.url), connect.program


def _ours(stand: Stand, backlog: Backlog, session: Any, program: Program | None, passes: Passes) -> None:
    windows = list[tuple[int, float, Peaks]]()
    with stand.server(backlog) as target, stand.work(backlog, target, lambda: session) as work:
        if program:
            list(map_items(session, import_all, ["1", "2"], 2))
        with Watch(program, EVERY_SECONDS) as watch:
            began = time.monotonic()
            while (report := run_window(work, SOURCE)).moved:
                now = time.monotonic()
                windows.append((report.rows_applied, now - began, watch.take()))
                began = now
        stand.check(backlog, target)
    rates, peaks = by_tenth(windows)
    passes.ours.append(rates)
    for place, values in zip(PLACES, zip(*peaks, strict=True), strict=False):
        passes.memory[place].append(list(values))


def by_tenth(windows: Sequence[tuple[int, float, Peaks]]) -> tuple[list[float], list[Peaks]]:
    """Return rows per second and peaks of each tenth that has the middle of a window."""
    total, done = sum(rows for rows, _, _ in windows), 0
    tenths: dict[int, list[tuple[int, float, Peaks]]] = {}
    for window in windows:
        tenths.setdefault(min(TENTHS - 1, (2 * done + window[0]) * TENTHS // max(1, 2 * total)), []).append(window)
        done += window[0]
    rates = [sum(rows for rows, _, _ in some) / sum(spent for _, spent, _ in some) for some in tenths.values()]
    return rates, [_highest([peaks for _, _, peaks in some]) for some in tenths.values()]


def _highest(found: Sequence[Peaks]) -> Peaks:
    one, two, three, four = (max(values) for values in zip(*found, strict=True))
    return one, two, three, four


def _theirs(stand: Stand, backlog: Backlog, threads: int) -> list[float]:
    rates = []
    with fetched_replica(stand, backlog, threads) as replica:
        for end in _ends(stand, backlog):
            began = time.monotonic()
            apply_to(replica, end)
            rates.append(backlog.workload.changes / TENTHS / (time.monotonic() - began))
        stand.check(backlog, replica)
    return rates


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


def _rates(name: str, passes: Sequence[Sequence[float]], goal: str = "") -> list[Figure]:
    first = Figure("m", f"{name}: first tenth", "changes/s", tuple(rates[0] for rates in passes))
    second = Figure("m", f"{name}: second tenth", "changes/s", tuple(rates[:2][-1] for rates in passes))
    last = Figure("m", f"{name}: last tenth", "changes/s", tuple(rates[-1] for rates in passes))
    ratios = (
        ratio("m", f"{name}: rate of the last tenth to the first", last, first, goal),
        ratio("m", f"{name}: rate of the last tenth to the second", last, second),
    )
    return [first, second, last, *ratios]


def _peaks(passes: Passes) -> Iterator[Figure]:
    for place, found in passes.memory.items():
        if any(map(any, found)):
            second = Figure("m", f"peak of {place}: second tenth", "MiB", tuple(values[:2][-1] for values in found))
            last = Figure("m", f"peak of {place}: last tenth", "MiB", tuple(values[-1] for values in found))
            yield from (second, last)
            yield ratio("m", f"peak of {place}: last tenth to the second", last, second, "<= 1.1")


def _note(stand: Stand, passes: Passes, native: str) -> None:
    stand.notes.append(f"Changes per second by tenth, unshard: {_medians(passes.ours)}.")
    stand.notes.append(f"Changes per second by tenth, {native}: {_medians(passes.theirs)}.")
    seen = {place: found for place, found in passes.memory.items() if any(map(any, found))}
    stand.notes.extend(f"Peak MiB by tenth, {place}: {_medians(found)}." for place, found in seen.items())


def _medians(passes: Sequence[Sequence[float]]) -> str:
    """Return the median of the passes for each tenth."""
    return ", ".join(shown(median(values)) for values in zip(*passes, strict=False)).replace(", ", "; ")
