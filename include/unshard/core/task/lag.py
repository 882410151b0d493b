"""The lag of a source: the age of the oldest change that its targets do not have; 0 only if they have all.

| the targets lack                            | age of                                                              |
|---------------------------------------------|---------------------------------------------------------------------|
| rows, because the full load is not complete | the source's entry in the meta tables; the rows are older           |
| the binlog after the checkpoint             | its first transaction, whatever its tables; idle time has no effect |
| a DDL in the queue of a shard               | the oldest such statement                                           |
| held rows                                   | the first event of their part of the binlog                         |
| diverted and deferred rows, reloaded values | their first entry in the meta tables                                |
| values that must be read again (optimistic) | the acceptance of the shard's last DDL                              |

If a source does not answer, the other changes give the least value. A lag of less than a second is 1 s.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.shown import lasting


@dataclass(frozen=True, slots=True)
class Lag:
    """A lag in seconds; None if it is unknown."""

    seconds: int | None
    is_least: bool = False
    """The lag may be longer, because a source does not answer or its full load is not complete."""

    def __str__(self) -> str:
        """`12 s`, `at least 2 h 5 min`, `unknown`."""
        if self.seconds is None:
            return "unknown"
        return f"at least {lasting(self.seconds)}" if self.is_least else lasting(self.seconds)


class Unread(StrEnum):
    """The binlog after the checkpoint, if its first transaction has no known age."""

    NOTHING = "nothing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Times, in seconds since 1970, of the oldest changes that wait although they are read; None: none waits."""

    ddl: float | None = None
    held: float | None = None
    rows: float | None = None
    """When the oldest diverted or deferred row, or a reload of columns that is due or unfinished, was recorded."""


NOTHING_WAITS = Waiting()


@dataclass(frozen=True, slots=True)
class OldestMissing:
    """The ages, in seconds, of the oldest changes that targets lack; None: they lack none of the kind."""

    unread: float | Unread = Unread.NOTHING
    """Age of the first transaction after the checkpoint."""
    load: float | None = None
    """Time since the source was added; None if its full load is complete."""
    ddl: float | None = None
    held: float | None = None
    rows: float | None = None
    """Diverted and deferred rows, and columns that are reloaded or must be."""


def lag_of(missing: OldestMissing) -> Lag:
    """Return the lag of a source."""
    ages = [age for age in (missing.load, missing.ddl, missing.held, missing.rows) if age is not None]
    ages += [] if isinstance(missing.unread, Unread) else [missing.unread]
    is_least = missing.load is not None or missing.unread is Unread.UNKNOWN
    if not ages:
        return Lag(None, is_least) if is_least else Lag(0)
    return Lag(max(1, int(max(ages))), is_least)


def may_lack(lag: Lag, moment: float, now: float) -> bool:
    """Whether the targets may lack a change from before a moment; both are in seconds since 1970."""
    if lag.seconds is None or lag.is_least:
        return True
    return lag.seconds > 0 and now - lag.seconds - 1 < moment


def longest(lags: Iterable[Lag]) -> Lag:
    """Return the lag of a task from those of its sources."""
    each = tuple(lags)
    known = [lag.seconds for lag in each if lag.seconds is not None]
    return Lag(max(known, default=None), any(lag.is_least or lag.seconds is None for lag in each))
