"""The relay of a task's source: what the meta store knows goes into the pull, and who answered comes back."""

from typing import Unpack

from pymysql.connections import Connection

from unshard.adapters import upstream
from unshard.core.model import Location
from unshard.units.relay import PullOptions, RelayReport, pull, stored_end
from unshard.units.work import Work


def pull_source(work: Work, source: str, **options: Unpack[PullOptions]) -> RelayReport | None:
    """Pull a source behind its checkpoint; None if it has none yet."""
    work.meta.halts.refuse()
    state, checkpoint = work.meta.sources.get(source), work.meta.checkpoints.get(source)
    if state is None or checkpoint is None:
        return None
    known = PullOptions(server_id=work.task.instance(source).source.server_id, identity=state.identity,
                        gtid=checkpoint.gtid, dump_end=state.dump_end)  # fmt: skip
    report = pull(source, work.sources[source], work.store, checkpoint.location, **(known | options))
    if report.identity != state.identity:
        # Dying before it only means that the same server proves itself once more.
        work.meta.sources.follow(source, report.identity)
    return report


def end_of_source(work: Work, source: str, connection: Connection) -> Location:
    """Return where the binlog of a source ends now, in the generation that it has or is going to have."""
    found = upstream.inspect(connection, source)
    state, checkpoint = work.meta.sources.get(source), work.meta.checkpoints.get(source)
    if state is None or checkpoint is None:
        return found.end
    generation = stored_end(work.store, source, checkpoint.location).generation
    return found.end.in_generation(generation + (state.identity != found.identity))
