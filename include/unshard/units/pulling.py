"""The relay of a task's source: what the meta store knows goes into the pull, and who answered comes back."""

from typing import Unpack

from pymysql.connections import Connection

from unshard.adapters import upstream
from unshard.core.beside import Beside
from unshard.core.model import Location
from unshard.units.relay import PullOptions, RelayReport, pull, stored_end
from unshard.units.work import Work


def pull_source(work: Work, source: str, **options: Unpack[PullOptions]) -> RelayReport | None:
    """Pull a source behind its checkpoint; None if it has none yet."""
    standing = work.meta.windows.standing(source)
    if standing.checkpoint is None or Beside.HALT in standing.beside:
        work.meta.halts.refuse()
    if standing.checkpoint is None:
        return None
    known = PullOptions(server_id=work.task.instance(source).source.server_id, identity=standing.identity,
                        gtid=standing.gtid, dump_end=standing.dump_end)  # fmt: skip
    report = pull(source, work.sources[source], work.store, standing.checkpoint, **(known | options))
    if report.identity != standing.identity:
        # Dying before it only means that the same server proves itself once more.
        work.meta.sources.follow(source, report.identity)
    return report


def end_of_source(work: Work, source: str, connection: Connection) -> Location:
    """Return where the binlog of a source ends now, in the generation that it has or is going to have."""
    found = upstream.inspect(connection, source)
    standing = work.meta.windows.standing(source)
    if standing.checkpoint is None:
        return found.end
    generation = stored_end(work.store, source, standing.checkpoint).generation
    return found.end.in_generation(generation + (standing.identity != found.identity))
