"""Pull the relay of a task's source with the state from the meta store, and record the answering server.

Runs in the driver.
"""

from typing import Self, Unpack

from pymysql.connections import Connection

from unshard.adapters import upstream
from unshard.core.model import Location
from unshard.core.task.state import PendingWork, SyncState
from unshard.errors.meta import NotInSync
from unshard.units.relay.pull import LivePull, PullOptions, RelayReport, pull, stored_end
from unshard.units.work import Work


def pull_source(work: Work, source: str, **options: Unpack[PullOptions]) -> RelayReport | None:
    """Pull a source after its checkpoint; None if it has no checkpoint yet.

    The id of the replica is random, because a server ends the dump of a live pull with the same id.
    """
    sync_state = _running(work, source)
    if sync_state.checkpoint is None:
        return None
    known = _known(sync_state)
    report = pull(source, work.sources[source], work.store, sync_state.checkpoint, **(known | options))
    _follow(work, sync_state, report.identity)
    return report


class LiveSource:
    """Pulls a source that has a checkpoint again and again; the connection opens at the first pull after an error."""

    def __init__(self, work: Work, source: str, until: Location | None) -> None:
        self._work, self._source, self._until = work, source, until
        self._live: LivePull | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.close()
            self._live = None

    def pull(self, seconds: float) -> int:
        """Wait for new binlog for so long, and store it; return the number of bytes."""
        try:
            return (self._live or self._opened()).pull(seconds)
        except BaseException:
            self.__exit__()
            raise

    def has_reached(self, goal: Location) -> bool:
        return self._live is not None and self._live.location >= goal

    def _opened(self) -> LivePull:
        sync_state = _running(self._work, self._source)
        if sync_state.checkpoint is None:
            raise NotInSync(self._source, str(sync_state.phase))
        known = _known(sync_state) | PullOptions(
            until=self._until, server_id=self._work.task.instance(self._source).source.server_id
        )
        server = self._work.sources[self._source]
        self._live = LivePull(self._source, server, self._work.store, sync_state.checkpoint, **known)
        _follow(self._work, sync_state, self._live.identity)
        return self._live


def _running(work: Work, source: str) -> SyncState:
    sync_state = work.meta.windows.sync_state(source)
    if sync_state.checkpoint is None or PendingWork.PAUSE in sync_state.beside:
        work.meta.pauses.refuse()
    return sync_state


def _known(sync_state: SyncState) -> PullOptions:
    return PullOptions(identity=sync_state.identity, gtid=sync_state.gtid, dump_end=sync_state.dump_end)


def _follow(work: Work, sync_state: SyncState, identity: str) -> None:
    """Record the server that has answered. If the process dies before, the same server proves its history again."""
    if identity != sync_state.identity:
        work.meta.sources.follow(sync_state.source, identity)


def end_of_source(work: Work, source: str, connection: Connection) -> Location:
    """Return the present end of a source's binlog, in its current or next generation."""
    found = upstream.inspect(connection, source)
    sync_state = work.meta.windows.sync_state(source)
    if sync_state.checkpoint is None:
        return found.end
    generation = stored_end(work.store, source, sync_state.checkpoint).generation
    return found.end.in_generation(generation + (sync_state.identity != found.identity))
