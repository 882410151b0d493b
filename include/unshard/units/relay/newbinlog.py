"""Whether a source has binlog that no live run works on: one connection per source, and a status statement per look."""

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pymysql
from pymysql.connections import Connection

from unshard.adapters import mysql, upstream
from unshard.adapters.meta.taskrecords import live_run_of
from unshard.core.model import Location
from unshard.errors import UnshardError
from unshard.units.work import Work

log = logging.getLogger(__name__)

AFTER_ERROR_SECONDS = 15.0
REPEAT_SECONDS = 60.0
"""News that had no effect is told again after so long."""


@dataclass(slots=True)
class BinlogWatch:
    """Looks again and again at the sources of a task that are handed over to the windows."""

    work: Work
    _connections: dict[str, Connection] = field(default_factory=dict)
    _told: dict[str, tuple[Location, float]] = field(default_factory=dict)
    """The checkpoint of a source when news of any source were told, and the time: one live run serves them all."""
    _resting: dict[str, float] = field(default_factory=dict)
    """Sources that do not answer, and the time of the next try: one of them delays no other."""
    _commands: Sequence[object] | None = None

    def close(self) -> None:
        for source in [*self._connections]:
            self._disconnect(source)

    def has_news(self) -> bool:
        """Whether a live run is to start: a source has new binlog, or an operator has given a command."""
        meta = self.work.meta
        if meta.pauses.get() is not None:
            return False
        found = {source: meta.checkpoints.get(source) for source in self.work.task.sources}
        checkpoints = {source: each.location for source, each in found.items() if each is not None}
        behind = [source for source, at in checkpoints.items() if self._is_behind(source, at)]
        is_commanded = self._is_commanded() and bool(checkpoints)
        if not behind and not is_commanded:
            return False
        followed = meta.active_workers.seen([live_run_of(source) for source in checkpoints])
        alone = {source: at for source, at in checkpoints.items() if live_run_of(source) not in followed}
        self._told = {source: told for source, told in self._told.items() if source in alone}
        if not any(is_commanded or (each in behind and not self._is_told(each, at)) for each, at in alone.items()):
            return False  # live runs see it themselves, or one is about to begin
        self._told = {source: (at, time.monotonic()) for source, at in alone.items()}
        return True

    def _is_told(self, source: str, checkpoint: Location) -> bool:
        at, when = self._told.get(source, (None, 0.0))
        return at == checkpoint and time.monotonic() - when < REPEAT_SECONDS

    def _is_commanded(self) -> bool:
        """Whether a command came since the last look; the first look only remembers."""
        before, self._commands = self._commands, self.work.meta.locks.actions(newest=1)
        return before is not None and before != self._commands

    def _is_behind(self, source: str, checkpoint: Location) -> bool:
        if time.monotonic() < self._resting.get(source, 0.0):
            return False
        try:
            if source not in self._connections:
                self._connections[source] = mysql.connect(self.work.sources[source], f"source {source}")
            end = upstream.reached(self._connections[source], source)[0]
        except UnshardError as error:
            log.info("cannot look at the binlog source=%s error=%s", source, error)
            self._disconnect(source)
            self._resting[source] = time.monotonic() + AFTER_ERROR_SECONDS
            return False
        return end.in_generation(checkpoint.generation) > checkpoint

    def _disconnect(self, source: str) -> None:
        if connection := self._connections.pop(source, None):
            with contextlib.suppress(pymysql.err.Error):
                connection.close()
