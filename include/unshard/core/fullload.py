"""How far a dump or a load has come, how fast it is and when it will be done: from chunks that are persisted alone.

Percent is the weight of the chunks that are done against that of all. A weight is fixed when its chunk is planned, so
neither a table that grows nor a process that dies can move it back.

Speed is what the last chunks brought, by the time in which at least one of them was being worked at. Time in which
nobody worked does not count, so a run that goes on after a night is as fast as it was, and what is left takes as
long as it would have taken then. While the speed stays what it is, the time that is left only shrinks.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unshard.core.numbers import amount, lasting, size

RECENT = 50
"""Chunks that the speed comes from: few enough to follow a change, too many for one slow chunk to show."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What one chunk brought, and when: `ended` in seconds of any clock, `seconds` how long it took."""

    rows: int
    bytes: int
    ended: float = 0
    seconds: float = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A chunk that is done, as the dump or the load sees it."""

    weight: int
    """Its share of the work, at least 1, as it was estimated when it was planned."""
    finished: Finished


@dataclass(frozen=True, slots=True)
class Tally:
    """All chunks, added up."""

    chunks: int = 0
    weight: int = 0
    done: int = 0
    reached: int = 0
    """Weight of those that are done."""
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of the dump or of the load is done, and how fast; None where nothing can be said yet."""

    chunks: int = 0
    done: int = 0
    rows: int = 0
    bytes: int = 0
    """Of the values as the source sent them."""
    percent: float = 0
    rows_per_second: int | None = None
    bytes_per_second: int | None = None
    seconds_left: int | None = None

    def __str__(self) -> str:
        """`45.3 %, 120,000 rows, 3.1 MiB, 30,000 rows/s, 1.2 MiB/s, 2 min 10 s left`; what is unknown is left out."""
        parts = [f"{self.percent:g} %", f"{amount(self.rows)} rows", size(self.bytes)]
        if self.rows_per_second is not None and self.bytes_per_second is not None:
            parts += [f"{amount(self.rows_per_second)} rows/s", f"{size(self.bytes_per_second)}/s"]
        if self.seconds_left:
            parts.append(f"{lasting(self.seconds_left)} left")
        return ", ".join(parts)


NOTHING_YET = Progress()


def progress_of(tally: Tally, recent: Sequence[Part]) -> Progress:
    """Return how far the chunks are, given the RECENT last ones.

    The percentage is rounded down, so 100 means that all are done.
    """
    total, reached = tally.weight, tally.reached
    rows, brought, weight = _speeds(recent)
    return Progress(
        tally.chunks, tally.done, tally.rows, tally.bytes, math.floor(1000 * reached / total) / 10 if total else 0,
        None if rows is None else round(rows), None if brought is None else round(brought),
        0 if total and reached == total else math.ceil((total - reached) / weight) if weight else None,
    )  # fmt: skip


def weights(bytes: int, chunks: int) -> list[int]:
    """Share a table's bytes out: chunks have as many rows each, but the last of several, which ends anywhere."""
    if chunks < 2:
        return [max(1, bytes)] * chunks
    full = max(2, round(bytes / (chunks - 0.5)))
    return [full] * (chunks - 1) + [full // 2]


def _speeds(parts: Sequence[Part]) -> tuple[float | None, float | None, float | None]:
    """Return rows, bytes and weight per second of work."""
    timed = [(part.weight, part.finished) for part in parts if part.finished.seconds > 0]
    busy = _covered((each.ended - each.seconds, each.ended) for _, each in timed)
    if not busy:
        return None, None, None
    return (sum(each.rows for _, each in timed) / busy, sum(each.bytes for _, each in timed) / busy,
            sum(weight for weight, _ in timed) / busy)  # fmt: skip


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long at least one of the spans lasted."""
    total, until = 0.0, -math.inf
    for begins, ends in sorted(spans):
        total += max(0.0, ends - max(begins, until))
        until = max(until, ends)
    return total
