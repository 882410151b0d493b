"""Deferred rows: checks after the end of safe mode that a later change has brought each of them.

The load defers rows that conflict with another row of their shard (units/full/deferredrows.py). Safe mode defers rows
that lack values and are not in the target (adapters.target.completing). The binlog up to P1 has a change of each of
them, because both are caused by the different moments at which chunks are dumped. If it has no such change (a key
that only the target compares as equal, a session that logs changed columns only, a change that was not logged), the
target lacks a row. The error is raised whenever windows reach the end of the pulled binlog, until a change has brought
the row: only windows can bring it."""

from unshard.core.model import Location
from unshard.core.task.state import SyncState
from unshard.errors.rows import DeferredRowMissing
from unshard.units.work import Work


def refuse_missing(work: Work, sync_state: SyncState, reached: Location) -> None:
    """Raise DeferredRowMissing if a row is missing although all changes up to the end of safe mode are applied."""
    if sync_state.dump_end is None or reached < sync_state.dump_end:
        return
    missing = work.meta.deferred.missing(sync_state.source)
    if missing is not None:
        raise DeferredRowMissing(str(missing.target), str(missing.shard), missing.key, missing.count)
