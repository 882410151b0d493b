"""The shards that a window is planned from.

A task may have thousands of shards, and while a lock waits each of them may have a queue and held files. A window reads
only the shards whose rows it has, those with held rows that can be released, and those that an operator has dropped
while their queue or held files wait. It never reads held files that cannot be released: their shard has a pending DDL,
which holds its rows.
"""

from collections import defaultdict
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, and_, func, select, union

from unshard.adapters.meta import tables
from unshard.adapters.meta.rows import AT_ONCE, entry_of, held_of, is_one_of, shard_of, state_of
from unshard.core.ddl.queue import EntryState, HeldFile, QueueEntry, ShardState
from unshard.core.model import Shard, TableId
from unshard.core.task.state import HeldTotals, PendingWork

SHARD, SHARD_DDL, HELD_ROWS = tables.shard, tables.shard_ddl, tables.held_rows
PENDING = EntryState.PENDING.value
WAITS = PendingWork.QUEUES | PendingWork.HELD | PendingWork.DROPPED
"""Without any of these flags, no shard of the task has a queue or held rows that matter to the source."""


def read_planned_shards(
    connection: Connection, task: str, source: str, named: Collection[TableId] | None, beside: PendingWork
) -> tuple[ShardState, ...]:
    """Return the shards for planning; if `named` is None all of the task, because a DDL may concern any of them."""
    waiting = read_waiting(connection, task, source) if beside else frozenset()
    shards = None if named is None else waiting | {Shard(source, table) for table in named}
    queues: dict[Shard, list[QueueEntry]] = defaultdict(list)
    if PendingWork.QUEUES in beside:
        where = SHARD_DDL.c.task == task, SHARD_DDL.c.state == PENDING, _is_near(SHARD_DDL, source, shards)
        for row in connection.execute(select(SHARD_DDL).where(*where).order_by(SHARD_DDL.c.seq)):
            queues[shard_of(row)].append(entry_of(row))
    held = _held(connection, task, source, waiting)
    states = (
        state_of(row, queues[shard_of(row)], held[shard_of(row)])
        for row in connection.execute(_rows_of_shards(task, source, shards))
    )
    left = _left(connection, task) if named is None else ()
    return tuple(s for s in states if not s.has_left or s.queue or s.held or s.shard in left)


@lru_cache(maxsize=64)
def _rows_of_shards(task: str, source: str, shards: frozenset[Shard] | None) -> Any:
    """Return the statement; it is kept, because the windows of a source have the same shards again and again."""
    return select(SHARD).where(SHARD.c.task == task, _is_near(SHARD, source, shards)).order_by(*_key(SHARD))


def read_waiting(connection: Connection, task: str, source: str) -> frozenset[Shard]:
    """Return the shards with held rows that can be released, and the dropped ones with a queue or held rows."""
    free = connection.execute(_releasable(task, source))
    found = {Shard(source, TableId(row.shard_schema, row.shard_table)) for row in free}
    query = select(SHARD).where(SHARD.c.task == task, SHARD.c.source == source, SHARD.c.dropped != 0)
    dropped = frozenset(map(shard_of, connection.execute(query)))
    for table, where in ((HELD_ROWS, ()), (SHARD_DDL, (SHARD_DDL.c.state == PENDING,))) if dropped else ():
        left = select(*_key(table)).where(table.c.task == task, is_one_of(table, dropped), *where).distinct()
        found |= set(map(shard_of, connection.execute(left)))
    return frozenset(found)


def _releasable(task: str, source: str) -> Any:
    """Select the shards whose first held rows come before every pending DDL.

    The primary key gives the first number of each shard without reading its other rows; `by_state` gives pending DDL.
    """
    name = HELD_ROWS.c.shard_schema, HELD_ROWS.c.shard_table
    lowest = select(*name, func.min(HELD_ROWS.c.seq).label("seq")).where(
        HELD_ROWS.c.task == task, HELD_ROWS.c.source == source
    )
    first = lowest.group_by(*name).subquery()
    same = and_(
        SHARD_DDL.c.task == task,
        SHARD_DDL.c.state == PENDING,
        SHARD_DDL.c.source == source,
        SHARD_DDL.c.shard_schema == first.c.shard_schema,
        SHARD_DDL.c.shard_table == first.c.shard_table,
        SHARD_DDL.c.seq <= first.c.seq,
    )
    return (
        select(first.c.shard_schema, first.c.shard_table).outerjoin(SHARD_DDL, same).where(SHARD_DDL.c.task.is_(None))
    )


def read_totals(connection: Connection, task: str, source: str) -> HeldTotals:
    """Return the number of shards of a source and the totals of their held rows; the server computes them."""
    mine = HELD_ROWS.c.task == task, HELD_ROWS.c.source == source
    query = select(func.sum(HELD_ROWS.c.row_count), func.sum(HELD_ROWS.c.bytes), func.min(HELD_ROWS.c.held_at)).where(
        *mine
    )
    rows, size, since = connection.execute(query).one()
    present = select(func.count()).where(SHARD.c.task == task, SHARD.c.source == source, SHARD.c.has_left == 0)
    pending = select(*_key(SHARD_DDL)).where(
        SHARD_DDL.c.task == task, SHARD_DDL.c.state == PENDING, SHARD_DDL.c.source == source
    )
    waits = union(pending, select(*_key(HELD_ROWS)).where(*mine)).subquery()
    waiting = connection.scalar(select(func.count()).select_from(waits))
    return HeldTotals(connection.scalar(present) or 0, waiting or 0, int(rows or 0), int(size or 0), since)


def read_dropped(connection: Connection, task: str, shards: Collection[Shard]) -> frozenset[Shard]:
    """Return those of the shards that an operator has dropped."""
    query = select(SHARD).where(SHARD.c.task == task, SHARD.c.dropped != 0, is_one_of(SHARD, shards))
    return frozenset(map(shard_of, connection.execute(query)))


def _is_near(table: Any, source: str, shards: Collection[Shard] | None) -> Any:
    if shards is None:
        return table.c.source.is_not(None)
    return is_one_of(table, shards) if len(shards) <= AT_ONCE else table.c.source == source


def _held(connection: Connection, task: str, source: str, shards: Collection[Shard]) -> dict[Shard, list[HeldFile]]:
    held: dict[Shard, list[HeldFile]] = defaultdict(list)
    if not shards:
        return held
    query = (
        select(HELD_ROWS)
        .where(HELD_ROWS.c.task == task, _is_near(HELD_ROWS, source, shards))
        .order_by(HELD_ROWS.c.seq, HELD_ROWS.c.window, HELD_ROWS.c.part)
    )
    for row in connection.execute(query):
        if (shard := shard_of(row)) in shards:
            held[shard].append(held_of(row))
    return held


def _left(connection: Connection, task: str) -> frozenset[Shard]:
    """Return the shards that were dropped upstream and still have held rows; a new shard may have one as its peer."""
    left = frozenset(
        map(shard_of, connection.execute(select(SHARD).where(SHARD.c.task == task, SHARD.c.has_left != 0)))
    )
    holding = select(*_key(HELD_ROWS)).where(HELD_ROWS.c.task == task, is_one_of(HELD_ROWS, left)).distinct()
    return frozenset(map(shard_of, connection.execute(holding))) if left else left


def _key(table: Any) -> tuple[Any, ...]:
    return table.c.source, table.c.shard_schema, table.c.shard_table
