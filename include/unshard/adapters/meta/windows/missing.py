"""The oldest changes that the targets of a source do not have although the checkpoint is after them."""

from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, func, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart
from unshard.core.ddl.queue import EntryState
from unshard.core.rows.columnreload import ReloadState
from unshard.core.rows.rowerrors import RowErrorState
from unshard.core.task.lag import Waiting

RELOAD = tables.column_reload
DDL, HELD, DIVERTED, DEFERRED = tables.shard_ddl, tables.held_rows, tables.row_error, tables.deferred_row
PENDING, OPEN = DDL.c.state == EntryState.PENDING.value, DIVERTED.c.state == RowErrorState.OPEN.value


class MissingChanges(ReadingPart):
    """Changes that wait for a DDL, a target or an operator."""

    def of(self, source: str) -> Waiting:
        """Return the times of the oldest ones of a source. A time that is not known is at most that of its entry."""
        with self._database.snapshot() as connection:
            oldest = partial(self._oldest, connection, source)
            return Waiting(
                _least(oldest(DDL.c.executed_at, PENDING, DDL.c.executed_at > 0), oldest(DDL.c.seen_at, PENDING)),
                _least(oldest(HELD.c.first_time, HELD.c.first_time > 0), oldest(HELD.c.held_at)),
                _least(
                    oldest(DIVERTED.c.first_at, OPEN),
                    oldest(DEFERRED.c.since),
                    oldest(RELOAD.c.began_at, RELOAD.c.state == ReloadState.READING.value),
                ),
            )

    def _oldest(self, connection: Connection, source: str, column: Any, *where: Any) -> float | None:
        mine = column.table.c.task == self._task, column.table.c.source == source
        found = connection.scalar(select(func.min(column)).where(*mine, *where))
        return found.timestamp() if isinstance(found, datetime) else found


def _least(*times: float | None) -> float | None:
    return min((each for each in times if each is not None), default=None)
