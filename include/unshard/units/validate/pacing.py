"""Rest between the ranges of a comparison, as core/validate/pace.py decides. Runs in the driver."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pymysql.connections import Connection

from unshard.adapters import serverstate, upstream
from unshard.adapters.meta.taskrecords import window_of
from unshard.core.validate.pace import Rest, SeenSource, SeenWindows, rest
from unshard.units.work import Work

LOOK_SECONDS = 1.0


@dataclass(slots=True)
class Resting:
    """Looks at the windows of a table's sources, at most once per LOOK_SECONDS."""

    work: Work
    connections: Mapping[str, Callable[[], Connection]]
    """Gives a connection to each source."""
    rests: float
    has_rate: bool
    tell: Callable[[tuple[str, ...]], None]
    """Is told the sources whose windows are waited for."""
    worked: float = 0.0
    """Seconds that the servers have worked since the last rest."""
    is_beside: bool = False
    """Whether windows ran at the last look, and are left time."""
    _seen: SeenWindows = field(default_factory=lambda: SeenWindows({}, {}))
    _looked: float = 0.0

    def rest(self) -> None:
        """Rest until the windows have had their share of the time."""
        began, worked, self.worked = time.monotonic(), self.worked, 0.0
        while True:
            found = self._decided(worked)
            self.is_beside = found.is_beside
            if found.lagging:
                self.tell(found.lagging)
            left = began + found.seconds - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, LOOK_SECONDS))

    def _decided(self, worked: float) -> Rest:
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            found = self._found()  # TiDB takes a second to say that a lock is held
            self._looked = time.monotonic()
            self._seen = self._seen.after(found, self._looked)
        return rest(self._seen, time.monotonic(), worked, self.rests, self.has_rate)

    def _found(self) -> dict[str, SeenSource]:
        meta, found = self.work.meta, dict[str, SeenSource]()
        at_work = meta.active_workers.seen([*map(window_of, self.connections)])
        for source in self.connections:
            if (checkpoint := meta.checkpoints.get(source)) is not None:
                connection = self.connections[source]()
                location = checkpoint.location
                end = upstream.reached(connection, source)[0].in_generation(location.generation)
                age = serverstate.clock(connection) - checkpoint.last_time if checkpoint.last_time else 0
                lag = max(0.0, age) if end > location else 0.0
                found[source] = SeenSource(location, lag, window_of(source) in at_work)
        return found
