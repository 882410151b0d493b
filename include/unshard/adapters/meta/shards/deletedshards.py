"""Rows of `deleted_shard`: statements after which the rows of a shard were deleted from a merged target."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart
from unshard.adapters.meta.rows import location_columns, matches, shard_columns, shard_of, target_columns, target_of
from unshard.core.model import Location, Shard, TableId
from unshard.core.rows.rowerrors import RowErrorState
from unshard.core.window.plan import Plan

DELETED_SHARD, HELD_ROWS, ROW_ERROR = tables.deleted_shard, tables.held_rows, tables.row_error
SHOWN = 20
MENDED = {"state": RowErrorState.MENDED.value, "last_at": tables.NOW}


@dataclass(frozen=True, slots=True)
class DeletedShard:
    """A statement after which the rows of a shard were deleted."""

    shard: Shard
    target: TableId
    location: Location
    """End of the statement."""
    statement: str
    rows: int
    """The number of rows that the last attempt deleted."""
    at: datetime
    """When its window was committed."""


class DeletedShards(ReadingPart):
    """Rows of `deleted_shard` of one task."""

    def newest(self, number: int = SHOWN) -> tuple[DeletedShard, ...]:
        """Return the newest statements, newest first."""
        order = (DELETED_SHARD.c.deleted_at.desc(), *DELETED_SHARD.primary_key.columns)
        query = select(DELETED_SHARD).where(DELETED_SHARD.c.task == self._task).order_by(*order).limit(number)
        with self._database.reading() as connection:
            return tuple(
                DeletedShard(
                    shard_of(row),
                    target_of(row),
                    Location(row.file, row.position),
                    row.statement,
                    row.row_count,
                    row.deleted_at,
                )
                for row in connection.execute(query)
            )


def forget_rows(connection: Connection, task: str, plan: Plan, deleted: Sequence[int]) -> None:
    """Forget the held, deferred and diverted rows of shards whose rows are deleted, in the transaction of the window.

    `deleted` are the numbers of rows that were deleted from the targets.
    """
    for each, rows in zip(plan.deletions, deleted, strict=True):
        mine = {"task": task, **shard_columns(each.shard)}
        connection.execute(delete(HELD_ROWS).where(matches(HELD_ROWS, mine)))
        connection.execute(delete(tables.deferred_row).where(matches(tables.deferred_row, mine)))
        is_open = matches(ROW_ERROR, {**mine, "state": RowErrorState.OPEN.value})
        connection.execute(update(ROW_ERROR).where(is_open).values(MENDED))
        row = {
            **mine,
            **location_columns(each.location),
            **target_columns(each.target),
            "statement": each.text,
            "row_count": rows,
            "window": plan.number,
            "deleted_at": tables.NOW,
        }
        connection.execute(insert(DELETED_SHARD).values(row).on_duplicate_key_update(row_count=rows))
