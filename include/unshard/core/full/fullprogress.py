"""The progress, speed and remaining time of a dump or load, computed only from the stored chunks.

The percentage is the weight of the finished chunks divided by the weight of all. A weight is fixed when its chunk is
planned, so the percentage never decreases, neither if a table grows nor if a process dies. Of a chunk that is being
loaded the written rows count, although they are not committed yet; if it is loaded again, they are not counted again.

The speed is the size of the last chunks divided by the time in which at least one of them was being processed. Idle
time does not count: a run that continues after a night has the same speed and the same remaining time as before. While
the speed is constant, the remaining time only decreases.

Several readers share a limit of bytes per second: a token bucket, stored as the time when it is balanced (`take`).
After any idle time, readers may use at most `BURST_SECONDS` of the rate at once.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unshard.core.shown import amount, lasting, size

RECENT = 50
"""The number of chunks for the speed: few enough to follow a change, enough to average out one slow chunk."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The size of a finished chunk, when it ended (in seconds of any clock), and how long it took in seconds."""

    rows: int
    bytes: int
    ended: float = 0
    seconds: float = 0


@dataclass(frozen=True, slots=True)
class FinishedChunk:
    """A finished chunk of the dump or the load."""

    weight: int
    """Its share of the work, at least 1, as estimated when the chunk was planned."""
    finished: Finished


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A chunk that is being loaded."""

    weight: int
    rows: int
    written: int


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over all chunks."""

    chunks: int = 0
    weight: int = 0
    done: int = 0
    reached: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress and the speed of the dump or the load; None while a value is unknown."""

    chunks: int = 0
    done: int = 0
    rows: int = 0
    bytes: int = 0
    """Size of the values as the source sent them."""
    percent: float = 0
    rows_per_second: int | None = None
    bytes_per_second: int | None = None
    seconds_left: int | None = None
    rows_under_way: int = 0
    """Rows of unfinished chunks that are written but not committed."""

    def __str__(self) -> str:
        """`45.3 %, 120,000 rows, 3.1 MiB, 30,000 rows/s, 1.2 MiB/s, 2 min 10 s left`, without unknown values."""
        more = f" and {amount(self.rows_under_way)} under way" if self.rows_under_way else ""
        parts = [f"{self.percent:g} %", f"{amount(self.rows)} rows{more}", size(self.bytes)]
        if self.rows_per_second is not None and self.bytes_per_second is not None:
            parts += [f"{amount(self.rows_per_second)} rows/s", f"{size(self.bytes_per_second)}/s"]
        if self.seconds_left:
            parts.append(f"{lasting(self.seconds_left)} left")
        return ", ".join(parts)


NOTHING_YET = Progress()


def progress_of(tally: Tally, recent: Sequence[FinishedChunk], under_way: Sequence[UnderWay] = ()) -> Progress:
    """Return the progress, with the speed of the last RECENT finished chunks.

    The percentage is rounded down, so 100 means that all chunks are finished.
    """
    total, is_done = tally.weight, tally.done == tally.chunks
    written = [min(chunk.written, chunk.rows) for chunk in under_way]
    parts = sum(chunk.weight * rows / chunk.rows for chunk, rows in zip(under_way, written, strict=True) if chunk.rows)
    reached = tally.reached + (0 if is_done else parts)
    rows, bytes_moved, weight = _speeds(recent)
    percent = math.floor(1000 * reached / total) / 10 if total else 0
    return Progress(
        tally.chunks,
        tally.done,
        tally.rows,
        tally.bytes,
        percent if is_done else min(percent, 99.9),
        None if rows is None else round(rows),
        None if bytes_moved is None else round(bytes_moved),
        0 if total and is_done else math.ceil((total - reached) / weight) if weight else None,
        0 if is_done else sum(written),
    )


def weights(bytes: int, chunks: int) -> list[int]:
    """Distribute a table's bytes over its chunks: equally, but half for the last of several, which is not full."""
    if chunks < 2:
        return [max(1, bytes)] * chunks
    full = max(2, round(bytes / (chunks - 0.5)))
    return [full] * (chunks - 1) + [full // 2]


def _speeds(parts: Sequence[FinishedChunk]) -> tuple[float | None, float | None, float | None]:
    timed = [(part.weight, part.finished) for part in parts if part.finished.seconds > 0]
    busy = _covered((each.ended - each.seconds, each.ended) for _, each in timed)
    if not busy:
        return None, None, None
    return (
        sum(each.rows for _, each in timed) / busy,
        sum(each.bytes for _, each in timed) / busy,
        sum(weight for weight, _ in timed) / busy,
    )


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    total, until = 0.0, -math.inf
    for begins, ends in sorted(spans):
        total += max(0.0, ends - max(begins, until))
        until = max(until, ends)
    return total


# --- a limit of bytes per second: a token bucket


BURST_SECONDS = 1.0


def take(allowed_at: float, now: float, size: int, rate: int) -> tuple[float, float]:
    """Take `size` bytes; return the time when the rate allows all bytes taken so far, and the seconds until then."""
    allowed_at = max(allowed_at, now - BURST_SECONDS) + size / rate
    return allowed_at, max(0.0, allowed_at - now)


def progress_line(source: str, dump: Progress, load: Progress) -> str:
    """Return `s1: loaded 3/8 chunks, 37.5 %, …`: the dump of a source until it is done, then the load."""
    step, now = ("dumped", dump) if dump.done < dump.chunks else ("loaded", load)
    return f"{source}: {step} {now.done}/{now.chunks} chunks, {now}"
