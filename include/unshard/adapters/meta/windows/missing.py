"""The oldest changes that the targets of a source do not have although the checkpoint is after them."""

from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart
from unshard.core.ddl.queue import EntryState
from unshard.core.rows.rowerrors import RowErrorState
from unshard.core.task.lag import Waiting

SHARD_DDL, HELD_ROWS, ROW_ERROR, DEFERRED_ROW = (
    tables.shard_ddl,
    tables.held_rows,
    tables.row_error,
    tables.deferred_row,
)


class MissingChanges(ReadingPart):
    """Changes that wait for a DDL, a target or an operator."""

    def of(self, source: str) -> Waiting:
        """Return the times of the oldest ones of a source."""

        def oldest(column: Any, *where: Any) -> Any:
            table = column.table
            return select(func.min(column)).where(table.c.task == self._task, table.c.source == source, *where)

        with self._database.snapshot() as connection:
            pending = connection.scalar(oldest(SHARD_DDL.c.executed_at, SHARD_DDL.c.state == EntryState.PENDING.value))
            held = connection.scalar(oldest(HELD_ROWS.c.first_time, HELD_ROWS.c.first_time > 0))
            rows = [
                connection.scalar(oldest(ROW_ERROR.c.first_at, ROW_ERROR.c.state == RowErrorState.OPEN.value)),
                connection.scalar(oldest(DEFERRED_ROW.c.since)),
            ]
        moments: list[datetime] = [moment for moment in rows if moment is not None]
        return Waiting(pending, held, min((moment.timestamp() for moment in moments), default=None))
