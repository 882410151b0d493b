"""Reads `row_error`; adapters.target.diverting inserts into it in the transaction of the rows."""

from sqlalchemy import func, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart
from unshard.adapters.meta.rows import AnyRow, shard_of, target_of
from unshard.core.rows.rowerrors import RowError, RowErrorState

ROW_ERROR = tables.row_error
OPEN = RowErrorState.OPEN.value


class RowErrorRecords(ReadingPart):
    """Quarantined rows of one task."""

    def all(self, limit: int = 100, *, only_open: bool = False) -> tuple[RowError, ...]:
        """Return the newest ones, open ones first."""
        query = select(ROW_ERROR).where(ROW_ERROR.c.task == self._task)
        query = query.where(ROW_ERROR.c.state == OPEN) if only_open else query
        with self._database.reading() as connection:
            rows = connection.execute(
                query.order_by(ROW_ERROR.c.state != OPEN, ROW_ERROR.c.last_at.desc(), ROW_ERROR.c.digest).limit(limit)
            )
            return tuple(map(_row_error, rows))

    def of_window(self, source: str, first: int, last: int) -> int:
        """Return how many rows the sections of a window have quarantined that no later window has mended."""
        mine = (
            ROW_ERROR.c.task == self._task,
            ROW_ERROR.c.source == source,
            ROW_ERROR.c.window.between(first, last),
            ROW_ERROR.c.state == OPEN,
        )
        with self._database.reading() as connection:
            return int(connection.scalar(select(func.count()).where(*mine)) or 0)

    def counts(self) -> dict[str, int]:
        """Return the number of open rows by the name of the target."""
        query = select(ROW_ERROR.c.target_schema, ROW_ERROR.c.target_table, func.count()).where(
            ROW_ERROR.c.task == self._task, ROW_ERROR.c.state == OPEN
        )
        with self._database.reading() as connection:
            found = connection.execute(query.group_by(ROW_ERROR.c.target_schema, ROW_ERROR.c.target_table))
            return {f"{schema}.{table}": count for schema, table, count in found}


def _row_error(row: AnyRow) -> RowError:
    return RowError(
        target_of(row),
        shard_of(row),
        row.key_shown,
        row.column_name,
        row.server_message,
        row.row_json,
        row.window,
        RowErrorState(row.state),
        row.times,
        row.first_at,
        row.last_at,
    )
