"""Rows of `row_error`: the writer of a target fills it, in the transaction of the rows (adapters.target.diverting)."""

from sqlalchemy import func, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.rows import AnyRow, shard_of, target_of
from unshard.core.rowerrors import RowError, RowErrorState

R = tables.row_error
OPEN = RowErrorState.OPEN.value


class RowErrorRecords:
    """Rows that were put aside, of one task."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def all(self, limit: int = 100, *, only_open: bool = False) -> tuple[RowError, ...]:
        """Return the newest ones, those that the target lacks before all others."""
        query = select(R).where(R.c.task == self._task)
        query = query.where(R.c.state == OPEN) if only_open else query
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(R.c.state != OPEN, R.c.last_at.desc(), R.c.digest).limit(limit))
            return tuple(map(_row_error, rows))

    def of_window(self, source: str, window: int) -> int:
        """Return how many rows a window of a source has put aside that no later one has mended."""
        mine = R.c.task == self._task, R.c.source == source, R.c.window == window, R.c.state == OPEN
        with self._database.reading() as connection:
            return int(connection.scalar(select(func.count()).where(*mine)) or 0)

    def counts(self) -> dict[str, int]:
        """Return how many rows each target lacks, by its name."""
        query = select(R.c.target_schema, R.c.target_table, func.count()).where(
            R.c.task == self._task, R.c.state == OPEN
        )
        with self._database.reading() as connection:
            found = connection.execute(query.group_by(R.c.target_schema, R.c.target_table))
            return {f"{schema}.{table}": count for schema, table, count in found}


def _row_error(row: AnyRow) -> RowError:
    return RowError(target_of(row), shard_of(row), row.key_shown, row.column_name, row.words, row.row_json, row.window,
                    RowErrorState(row.state), row.times, row.first_at, row.last_at)  # fmt: skip
