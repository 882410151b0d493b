"""How large the ranges of a comparison are, and how long it rests, so that it hardly slows the windows.

A range is as large as the servers sum in about AIM_SECONDS. While windows of the table's sources run, a comparison
works for a part of the time only. If the lag of a source has grown since the comparison began, it waits for the windows
of this source. Windows run if one was at work, or was committed, in the last MOVES_SECONDS.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from unshard.core.model import Location

AIM_SECONDS = 0.5
MOVES_SECONDS = 10.0
GROWN_SECONDS = 5.0
"""A lag that has grown by less is the rhythm of windows."""
RESTS = 9
"""Seconds of rest for a second of the servers' work, while windows run."""
MOST_WAITING = 5.0
"""Most seconds that one range waits for a lag to fall."""


def rows_of_next_range(rows: int, compared: int, seconds: float, bounds: tuple[int, int]) -> int:
    """Return the rows of the next range: at most twice or half as many as `rows`, which is the present size.

    The servers have summed the last range, of `compared` rows, in so many seconds.
    """
    wanted = int(compared * AIM_SECONDS / max(seconds, 0.001))
    least, most = bounds
    return min(most, max(least, rows // 2, min(2 * rows, wanted)))


@dataclass(frozen=True, slots=True)
class SeenSource:
    """The windows of a source at one look."""

    checkpoint: Location
    lag: float
    """Seconds since the newest applied change; 0 if the binlog has no later one."""
    is_at_work: bool


@dataclass(frozen=True, slots=True)
class SeenWindows:
    """The windows of a table's sources since a comparison began."""

    first: Mapping[str, SeenSource]
    last: Mapping[str, SeenSource]
    moved_at: Mapping[str, float] = field(default_factory=dict)
    """When the windows of a source were last seen to move, by the clock of the comparison."""

    def after(self, found: Mapping[str, SeenSource], now: float) -> "SeenWindows":
        """Return what is known after another look."""
        moved = {
            source: now
            for source, each in found.items()
            if each.is_at_work or (source in self.last and each.checkpoint != self.last[source].checkpoint)
        }
        return replace(self, first={**found, **self.first}, last=found, moved_at={**self.moved_at, **moved})


@dataclass(frozen=True, slots=True)
class Rest:
    """How long a comparison rests before its next range, and the sources whose lag has grown."""

    seconds: float
    lagging: tuple[str, ...] = ()
    is_beside: bool = False
    """Whether it leaves time to windows, so that it compares one range after the other."""


def rest(seen: SeenWindows, now: float, worked: float, rests: float, has_rate: bool = False) -> Rest:
    """Decide on a rest; `worked` are the seconds that all servers have worked since the last one.

    `rests` are the seconds of rest for a second of work; twice as many while a lag has grown. A comparison that keeps a
    rate rests only for a lag.
    """
    moving = [source for source, at in seen.moved_at.items() if now - at <= MOVES_SECONDS and source in seen.last]
    lagging = [each for each in moving if seen.last[each].lag > seen.first[each].lag + GROWN_SECONDS]
    is_beside = bool(moving and rests) and not has_rate
    seconds = worked * rests if is_beside else 0.0
    waiting = min(MOST_WAITING, worked * rests * 2) if lagging else 0.0
    return Rest(max(seconds, waiting), tuple(sorted(lagging)), is_beside)
