"""The shards that a window is planned from: those that it names, and those of its source that can go on.

A task may have thousands of shards, and while a lock waits each of them may have a queue and held files. A window
reads what it is about: the shards whose rows it passes, those with held rows that can be released, and those that an
operator has dropped while something of them waits. Held files that cannot be released are never read: their shard has
a DDL pending, which holds its rows by itself.
"""

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, and_, func, select, union

from unshard.adapters.meta import tables
from unshard.adapters.meta.rows import AT_ONCE, entry_of, held_of, is_one_of, shard_of, state_of
from unshard.core.beside import Beside
from unshard.core.model import Shard, TableId
from unshard.core.progress import HeldTotals
from unshard.core.window import EntryState, HeldFile, QueueEntry, ShardState

S, Q, F = tables.shard, tables.shard_ddl, tables.held_rows
PENDING = EntryState.PENDING.value
WAITS = Beside.QUEUES | Beside.HELD | Beside.DROPPED
"""Without any of these nothing waits near a source."""


def read_nearby(connection: Connection, task: str, source: str, named: Collection[TableId] | None,
                beside: Beside) -> tuple[ShardState, ...]:  # fmt: skip
    """Return the shards as planning needs them; `named` None: all of the task, because a DDL may concern any."""
    waiting = read_waiting(connection, task, source) if beside else frozenset()
    shards = None if named is None else waiting | {Shard(source, table) for table in named}
    queues: dict[Shard, list[QueueEntry]] = defaultdict(list)
    pending = select(Q).where(Q.c.task == task, Q.c.state == PENDING, _is_near(Q, source, shards)).order_by(Q.c.seq)
    for row in connection.execute(pending) if Beside.QUEUES in beside else ():
        queues[shard_of(row)].append(entry_of(row))
    held = _held(connection, task, source, waiting)
    query = select(S).where(S.c.task == task, _is_near(S, source, shards))
    states = (state_of(row, queues[shard_of(row)], held[shard_of(row)])
              for row in connection.execute(query.order_by(*_key(S))))  # fmt: skip
    left = _left(connection, task) if named is None else ()
    return tuple(s for s in states if not s.has_left or s.queue or s.held or s.shard in left)


def read_waiting(connection: Connection, task: str, source: str) -> frozenset[Shard]:
    """Return the shards with held rows that can be released, and the dropped ones of which something waits."""
    free = connection.execute(_releasable(task, source))
    found = {Shard(source, TableId(row.shard_schema, row.shard_table)) for row in free}
    query = select(S).where(S.c.task == task, S.c.source == source, S.c.dropped != 0)
    dropped = frozenset(map(shard_of, connection.execute(query)))
    for table, where in ((F, ()), (Q, (Q.c.state == PENDING,))) if dropped else ():
        left = select(*_key(table)).where(table.c.task == task, is_one_of(table, dropped), *where).distinct()
        found |= set(map(shard_of, connection.execute(left)))
    return frozenset(found)


def _releasable(task: str, source: str) -> Any:
    """Select the shards whose first held rows stand before every pending DDL.

    The primary key gives the first number of each shard without its other rows; `by_state` says what is pending.
    """
    name = F.c.shard_schema, F.c.shard_table
    lowest = select(*name, func.min(F.c.seq).label("seq")).where(F.c.task == task, F.c.source == source)
    first = lowest.group_by(*name).subquery()
    same = and_(Q.c.task == task, Q.c.state == PENDING, Q.c.source == source, Q.c.shard_schema == first.c.shard_schema,
                Q.c.shard_table == first.c.shard_table, Q.c.seq <= first.c.seq)  # fmt: skip
    return select(first.c.shard_schema, first.c.shard_table).outerjoin(Q, same).where(Q.c.task.is_(None))


def read_totals(connection: Connection, task: str, source: str) -> HeldTotals:
    """Sum up the shards of a source and what waits of them, without reading them one by one."""
    mine = F.c.task == task, F.c.source == source
    query = select(func.sum(F.c.row_count), func.sum(F.c.bytes), func.min(F.c.held_at)).where(*mine)
    rows, size, since = connection.execute(query).one()
    present = select(func.count()).where(S.c.task == task, S.c.source == source, S.c.has_left == 0)
    pending = select(*_key(Q)).where(Q.c.task == task, Q.c.state == PENDING, Q.c.source == source)
    waits = union(pending, select(*_key(F)).where(*mine)).subquery()
    waiting = connection.scalar(select(func.count()).select_from(waits))
    return HeldTotals(connection.scalar(present) or 0, waiting or 0, int(rows or 0), int(size or 0), since)


def read_dropped(connection: Connection, task: str, shards: Collection[Shard]) -> frozenset[Shard]:
    """Return those of the shards that an operator has dropped."""
    query = select(S).where(S.c.task == task, S.c.dropped != 0, is_one_of(S, shards))
    return frozenset(map(shard_of, connection.execute(query)))


def _is_near(table: Any, source: str, shards: Collection[Shard] | None) -> Any:
    if shards is None:
        return table.c.source.is_not(None)
    return is_one_of(table, shards) if len(shards) <= AT_ONCE else table.c.source == source


def _held(connection: Connection, task: str, source: str, shards: Collection[Shard]) -> dict[Shard, list[HeldFile]]:
    held: dict[Shard, list[HeldFile]] = defaultdict(list)
    query = select(F).where(F.c.task == task, _is_near(F, source, shards)).order_by(F.c.seq, F.c.window, F.c.part)
    for row in connection.execute(query) if shards else ():
        if (shard := shard_of(row)) in shards:
            held[shard].append(held_of(row))
    return held


def _left(connection: Connection, task: str) -> frozenset[Shard]:
    """Return the shards that were dropped upstream and still hold rows: a newcomer may be like one of them."""
    left = frozenset(map(shard_of, connection.execute(select(S).where(S.c.task == task, S.c.has_left != 0))))
    holding = select(*_key(F)).where(F.c.task == task, is_one_of(F, left)).distinct()
    return frozenset(map(shard_of, connection.execute(holding))) if left else left


def _key(table: Any) -> tuple[Any, ...]:
    return table.c.source, table.c.shard_schema, table.c.shard_table
