"""Rows of `deferred_row`; a writer adds them in the transaction of its rows (adapters.target.deferring)."""

from dataclasses import dataclass

from sqlalchemy import and_, exists, func, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart
from unshard.adapters.meta.rows import shard_of, target_of
from unshard.core.model import Shard, TableId

DEFERRED_ROW, HELD_ROWS, SHARD = tables.deferred_row, tables.held_rows, tables.shard
SHARD_COLUMNS = "source", "shard_schema", "shard_table"


@dataclass(frozen=True, slots=True)
class Missing:
    """Rows of one source that no change has written, shown by one of them."""

    shard: Shard
    target: TableId
    key: str
    count: int


class DeferredRows(ReadingPart):
    """Deferred rows of one task."""

    def targets(self, source: str) -> frozenset[TableId]:
        """Return the targets that wait for rows of a source."""
        query = select(DEFERRED_ROW.c.target_schema, DEFERRED_ROW.c.target_table).distinct()
        with self._database.reading() as connection:
            found = connection.execute(query.where(DEFERRED_ROW.c.task == self._task, DEFERRED_ROW.c.source == source))
            return frozenset(TableId(*row) for row in found)

    def counts(self) -> dict[str, int]:
        """Return the number of deferred rows by the name of the target."""
        query = select(DEFERRED_ROW.c.target_schema, DEFERRED_ROW.c.target_table, func.count()).where(
            DEFERRED_ROW.c.task == self._task
        )
        with self._database.reading() as connection:
            found = connection.execute(query.group_by(DEFERRED_ROW.c.target_schema, DEFERRED_ROW.c.target_table))
            return {f"{schema}.{table}": count for schema, table, count in found}

    def missing(self, source: str) -> Missing | None:
        """Return the deferred rows that no held row can write; rows of dropped shards do not count."""
        is_held = exists().where(
            HELD_ROWS.c.task == DEFERRED_ROW.c.task,
            *(HELD_ROWS.c[name] == DEFERRED_ROW.c[name] for name in SHARD_COLUMNS),
            HELD_ROWS.c.safe != 0,
        )
        is_dropped = exists().where(
            SHARD.c.task == DEFERRED_ROW.c.task,
            *(SHARD.c[name] == DEFERRED_ROW.c[name] for name in SHARD_COLUMNS),
            SHARD.c.dropped != 0,
        )
        where = and_(DEFERRED_ROW.c.task == self._task, DEFERRED_ROW.c.source == source, ~is_held, ~is_dropped)
        with self._database.reading() as connection:
            row = connection.execute(
                select(DEFERRED_ROW).where(where).order_by(DEFERRED_ROW.c.since, DEFERRED_ROW.c.digest).limit(1)
            ).first()
            if row is None:
                return None
            count = connection.scalar(select(func.count()).select_from(DEFERRED_ROW).where(where))
            return Missing(shard_of(row), target_of(row), row.key_shown, int(count or 0))
