"""How much the next window of a source takes, from what its last ones took.

A window is to take about the wanted time, so that a failure costs little, other sources get their turn and what is
written is soon visible; and it is to bring no more rows than memory holds, however well its binlog is compressed.

| known of the last windows                      | the next one takes at most                                  |
|------------------------------------------------|-------------------------------------------------------------|
| nothing                                        | a quarter of the allowed bytes                              |
| their speed                                    | what fits into the wanted time at that speed                |
| they were small and fast                       | four times the largest of them                              |
| they were slow, however small (a dear start)   | still a sixteenth of the allowed bytes                      |
| how many rows a byte brings                    | bytes of as many rows as are allowed; this beats the others |

Windows too small to tell a speed are not remembered, so a quiet night does not change what is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass

REMEMBERED = 5
FIRST, LEAST, GROWTH = 4, 16, 4
TELLING = 64
"""A window tells a speed if it has at least this part of the allowed bytes or rows."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What one window was and took."""

    bytes: int
    """Of binlog and of released files."""
    rows: int
    millis: int


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """What the task file says of the size of windows."""

    bytes: int
    rows: int
    millis: int
    """The wanted time."""


def next_bytes(last: Sequence[Pace], limits: WindowLimits) -> int:
    """Return how many bytes the next window takes at most, but for a single larger transaction."""
    size, rows, millis = sum(p.bytes for p in last), sum(p.rows for p in last), sum(p.millis for p in last)
    if not size:
        return max(1, limits.bytes // FIRST)
    by_time = size * limits.millis // max(millis, 1)
    grown = GROWTH * max(pace.bytes for pace in last)
    by_rows = size * limits.rows // max(rows, 1)
    return max(1, min(by_rows, limits.bytes, max(limits.bytes // LEAST, min(by_time, grown))))


def remembered(last: Sequence[Pace], new: Pace, limits: WindowLimits) -> tuple[Pace, ...]:
    """Return what is known after another window, the oldest first."""
    if new.bytes * TELLING < limits.bytes and new.rows * TELLING < limits.rows:
        return tuple(last)
    return (*last, new)[-REMEMBERED:]
