"""Lag and throughput of a task over time, from samples, and its events as a timeline.

A sample has the counters of a source after the first window of a minute; a minute without windows has no sample. So the
rows between two samples belong to the interval of the first one. The checkpoint is the last sample.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import pairwise

from unshard.core.model import Shard, TableId


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters of a source in one minute."""

    source: str
    minute: int
    """Minutes since 1970."""
    windows: int
    rows_applied: int
    millis: int
    """Milliseconds that its windows have taken."""
    lag_seconds: int | None
    """None: not measured."""
    rows_held: int | None


@dataclass(frozen=True, slots=True)
class Charts:
    """Values of a task, one for each interval; None if it is unknown."""

    at: list[int]
    """The beginning of each interval, in seconds since 1970."""
    lag_seconds: list[int | None]
    """The longest lag of all sources."""
    rows_per_second: list[float | None]
    rows_held: list[int | None]
    window_millis: list[float | None]
    """Mean duration of a window."""


@dataclass(slots=True)
class _Interval:
    lag: int | None = None
    rows: int | None = None
    windows: int = 0
    millis: int = 0
    held: int | None = None


def charts_of(samples: Iterable[Sample], now: int, minutes: int, step: int) -> Charts:
    """Return the last `minutes` before minute `now`, in intervals of `step` minutes."""
    first, last = (now - minutes) // step, now // step
    found = {number: _Interval() for number in range(first, last + 1)}
    of_source: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        of_source[sample.source].append(sample)
    for each in of_source.values():
        _add(found, each, step)
    whole = [found[number] for number in range(first, last + 1)]
    return Charts(
        [number * step * 60 for number in range(first, last + 1)],
        [each.lag for each in whole],
        [None if each.rows is None else round(each.rows / (step * 60), 2) for each in whole],
        [each.held for each in whole],
        [round(each.millis / each.windows, 1) if each.windows else None for each in whole],
    )


def _add(found: dict[int, _Interval], samples: Sequence[Sample], step: int) -> None:
    """Add the values of a source to the intervals."""
    for sample in samples:
        interval = found.get(sample.minute // step)
        if interval is not None and sample.lag_seconds is not None:
            interval.lag = max(interval.lag or 0, sample.lag_seconds)
    for before, after in pairwise(samples):
        _add_between(found, before, after, step)


def _add_between(found: dict[int, _Interval], before: Sample, after: Sample, step: int) -> None:
    if after.windows < before.windows:
        return  # the task was removed and has begun again
    begin, end = before.minute // step, after.minute // step
    for number in range(begin, max(end, begin + 1)):
        interval = found.get(number)
        if interval is None:
            continue
        interval.rows, interval.held = interval.rows or 0, (interval.held or 0) + (before.rows_held or 0)
        if number == begin:
            interval.rows += after.rows_applied - before.rows_applied
            interval.windows += after.windows - before.windows
            interval.millis += after.millis - before.millis


# --- the timeline


class EventKind(StrEnum):
    """The kind of an event."""

    DDL_SEEN = "DDL seen"
    LOCK_OPENED = "lock opened"
    LOCK_RESOLVED = "lock resolved"
    EXECUTED = "executed"
    COMMAND = "command"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """Something that has happened to a task."""

    at: datetime
    kind: EventKind
    text: str
    """The statement, the command or the error."""
    target: TableId | None = None
    lock: str = ""
    by: str = ""
    """The user who gave the command, or the source."""
    shards: tuple[Shard, ...] = ()
    """Shards that ran a DDL, the newest first."""


def timeline(events: Iterable[TaskEvent], most: int) -> tuple[TaskEvent, ...]:
    """Return the newest events, newest first; a DDL that several shards ran is one event, at the time of the last."""
    found: dict[tuple[object, ...], TaskEvent] = {}
    for number, event in enumerate(sorted(events, key=lambda event: event.at, reverse=True)):
        is_same = event.target, event.text, event.lock
        key = is_same if event.kind is EventKind.DDL_SEEN else (number,)
        known = found.get(key)
        found[key] = event if known is None else replace(known, shards=known.shards + event.shards)
    return tuple(found.values())[:most]
