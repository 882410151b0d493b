"""The size of the next window of a source, derived from the sizes and durations of its last windows.

A window should take about the wanted time, so that a failure costs little, other sources get their turn, and written
rows are visible soon. It must not bring more rows than memory holds, however well its binlog is compressed.

| known about the last windows                   | limit of the next window                                    |
|------------------------------------------------|-------------------------------------------------------------|
| nothing                                        | a quarter of the allowed bytes                              |
| their speed                                    | the bytes that fit into the wanted time at that speed       |
| they were small and fast                       | four times the largest of them                              |
| they were slow though small (costly start)     | still a sixteenth of the allowed bytes                      |
| how many rows a byte brings                    | the bytes of the allowed number of rows; this limit wins    |

A window of one target may have several sections of that size, as many as fit into the wanted time. It commits each of
them before the next, so only one is in memory.

Windows that are too small to measure a speed are not remembered, so a quiet night does not change the estimate.
"""

from collections.abc import Sequence
from dataclasses import dataclass

REMEMBERED = 5
FIRST, LEAST, GROWTH = 4, 16, 4
SECTIONS = 8
"""The largest number of sections. The pause between two windows costs less for each section if there are more."""
TELLING = 64
"""A window is large enough to measure a speed if it has at least 1/64 of the allowed bytes or rows."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The size and the duration of one window."""

    bytes: int
    """Of binlog and of released files."""
    rows: int
    millis: int


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """The limits that the task file sets for windows."""

    bytes: int
    rows: int
    millis: int
    """The wanted time."""


def next_bytes(last: Sequence[Pace], limits: WindowLimits) -> int:
    """Return the maximum bytes of the next window; a single larger transaction may exceed it."""
    size, rows, millis = sum(p.bytes for p in last), sum(p.rows for p in last), sum(p.millis for p in last)
    if not size:
        return max(1, limits.bytes // FIRST)
    by_time = size * limits.millis // max(millis, 1)
    grown = GROWTH * max(pace.bytes for pace in last)
    by_rows = size * limits.rows // max(rows, 1)
    return max(1, min(by_rows, limits.bytes, max(limits.bytes // LEAST, min(by_time, grown))))


def next_sections(last: Sequence[Pace], limits: WindowLimits) -> int:
    """Return how many sections of `next_bytes` the next window may have."""
    size, millis = sum(p.bytes for p in last), sum(p.millis for p in last)
    if not size:
        return 1
    wanted = min(size * limits.millis // max(millis, 1), GROWTH * max(pace.bytes for pace in last))
    return max(1, min(SECTIONS, wanted // next_bytes(last, limits)))


def remembered(last: Sequence[Pace], new: Pace, limits: WindowLimits) -> tuple[Pace, ...]:
    """Return the remembered windows after another one, the oldest first."""
    if new.bytes * TELLING < limits.bytes and new.rows * TELLING < limits.rows:
        return tuple(last)
    return (*last, new)[-REMEMBERED:]
