"""Pull the relay of a task's source with the state from the meta store, and record the answering server.

Runs in the driver.
"""

from typing import Unpack

from pymysql.connections import Connection

from unshard.adapters import upstream
from unshard.core.model import Location
from unshard.core.task.pendingwork import PendingWork
from unshard.units.relay.pull import PullOptions, RelayReport, pull, stored_end
from unshard.units.work import Work


def pull_source(work: Work, source: str, **options: Unpack[PullOptions]) -> RelayReport | None:
    """Pull a source after its checkpoint; None if it has no checkpoint yet."""
    sync_state = work.meta.windows.sync_state(source)
    if sync_state.checkpoint is None or PendingWork.PAUSE in sync_state.beside:
        work.meta.pauses.refuse()
    if sync_state.checkpoint is None:
        return None
    known = PullOptions(
        server_id=work.task.instance(source).source.server_id,
        identity=sync_state.identity,
        gtid=sync_state.gtid,
        dump_end=sync_state.dump_end,
    )
    report = pull(source, work.sources[source], work.store, sync_state.checkpoint, **(known | options))
    if report.identity != sync_state.identity:
        # If the process dies before this, the same server proves its history again.
        work.meta.sources.follow(source, report.identity)
    return report


def end_of_source(work: Work, source: str, connection: Connection) -> Location:
    """Return the present end of a source's binlog, in its current or next generation."""
    found = upstream.inspect(connection, source)
    sync_state = work.meta.windows.sync_state(source)
    if sync_state.checkpoint is None:
        return found.end
    generation = stored_end(work.store, source, sync_state.checkpoint).generation
    return found.end.in_generation(generation + (sync_state.identity != found.identity))
