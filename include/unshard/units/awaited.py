"""Rows that were left to a later change: behind the end of safe mode each must have come.

The load leaves rows that another row of their shard is in the way of (units/leaving.py), safe mode rows that lack
values and that the target has not (adapters.target.patches). The binlog up to P1 has a change of each, because nothing
but the dump's different moments can have led to either. If it has none after all (a key that only the target takes for
equal, a session that logs changed columns only, a change that was not logged), the target lacks a row, and that is said
whenever windows have come to the end of what was pulled, until a change has brought it: only windows can bring it.
"""

from unshard.core.model import Location
from unshard.core.progress import Standing
from unshard.errors.leftout import AwaitedRowMissing
from unshard.units.work import Work


def refuse_missing(work: Work, standing: Standing, reached: Location) -> None:
    """Raise if rows are missing that all changes up to the end of safe mode should have brought."""
    if standing.dump_end is None or reached < standing.dump_end:
        return
    missing = work.meta.awaited.missing(standing.source)
    if missing is not None:
        raise AwaitedRowMissing(str(missing.target), str(missing.shard), missing.key, missing.count)
