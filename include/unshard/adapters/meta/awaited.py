"""Rows of `awaited_row`: writers of a target fill it, in the transaction of the rows (adapters.target.awaiting)."""

from dataclasses import dataclass

from sqlalchemy import and_, exists, func, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.rows import shard_of, target_of
from unshard.core.model import Shard, TableId

A, H, S = tables.awaited_row, tables.held_rows, tables.shard
SHARD = "source", "shard_schema", "shard_table"


@dataclass(frozen=True, slots=True)
class Missing:
    """Rows of one source that no change has brought, by one of them."""

    shard: Shard
    target: TableId
    key: str
    count: int


class AwaitedRows:
    """Rows that are left to a later change, of one task."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def targets(self, source: str) -> frozenset[TableId]:
        """Return the targets that wait for rows of a source."""
        query = select(A.c.target_schema, A.c.target_table).distinct()
        with self._database.reading() as connection:
            found = connection.execute(query.where(A.c.task == self._task, A.c.source == source))
            return frozenset(TableId(*row) for row in found)

    def counts(self) -> dict[str, int]:
        """Return how many rows each target waits for, by its name."""
        query = select(A.c.target_schema, A.c.target_table, func.count()).where(A.c.task == self._task)
        with self._database.reading() as connection:
            found = connection.execute(query.group_by(A.c.target_schema, A.c.target_table))
            return {f"{schema}.{table}": count for schema, table, count in found}

    def missing(self, source: str) -> Missing | None:
        """Return what no change can bring that is held still; rows of shards that were dropped are nobody's."""
        is_held = exists().where(H.c.task == A.c.task, *(H.c[name] == A.c[name] for name in SHARD), H.c.safe != 0)
        is_dropped = exists().where(S.c.task == A.c.task, *(S.c[name] == A.c[name] for name in SHARD), S.c.dropped != 0)
        where = and_(A.c.task == self._task, A.c.source == source, ~is_held, ~is_dropped)
        with self._database.reading() as connection:
            row = connection.execute(select(A).where(where).order_by(A.c.since, A.c.digest).limit(1)).first()
            if row is None:
                return None
            count = connection.scalar(select(func.count()).select_from(A).where(where))
            return Missing(shard_of(row), target_of(row), row.key_shown, int(count or 0))
