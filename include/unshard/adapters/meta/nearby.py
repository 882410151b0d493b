"""The shards that a window is planned from: those that it names, and those of its source that can go on.

A task may have thousands of shards, and while a lock waits each of them may have a queue and held files. A window
reads what it is about: the shards whose rows it passes, those with held rows that can be released, and those that an
operator has dropped while something of them waits. Held files that cannot be released are never read: their shard has
a DDL pending, which holds its rows by itself.
"""

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, and_, exists, func, or_, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.rows import AT_ONCE, entry_of, held_of, is_one_of, shard_of, state_of
from unshard.core.model import Shard, TableId
from unshard.core.window import EntryState, HeldFile, QueueEntry, ShardState

S, Q, F = tables.shard, tables.shard_ddl, tables.held_rows
KEY = ("source", "shard_schema", "shard_table")
PENDING = EntryState.PENDING.value


def read_nearby(connection: Connection, task: str, source: str,
                named: Collection[TableId] | None) -> tuple[ShardState, ...]:  # fmt: skip
    """Return the shards as planning needs them; `named` None: all of the task, because a DDL may concern any."""
    waiting = read_waiting(connection, task, source)
    shards = None if named is None else waiting | {Shard(source, table) for table in named}
    queues: dict[Shard, list[QueueEntry]] = defaultdict(list)
    pending = select(Q).where(Q.c.task == task, Q.c.state == PENDING, _is_near(Q, source, shards)).order_by(Q.c.seq)
    for row in connection.execute(pending):
        queues[shard_of(row)].append(entry_of(row))
    held = _held(connection, task, source, waiting)
    query = select(S).where(S.c.task == task, _is_near(S, source, shards))
    states = (state_of(row, queues[shard_of(row)], held[shard_of(row)])
              for row in connection.execute(query.order_by(*(S.c[name] for name in KEY))))  # fmt: skip
    left = _left(connection, task) if named is None else ()
    return tuple(s for s in states if not s.has_left or s.queue or s.held or s.shard in left)


def read_waiting(connection: Connection, task: str, source: str) -> frozenset[Shard]:
    """Return the shards with held rows that can be released, and the dropped ones of which something waits."""
    first = _first(F, task, source)
    head = _first(Q, task, source, Q.c.state == PENDING)
    same = and_(*(first.c[name] == head.c[name] for name in KEY))
    free = select(*(first.c[name] for name in KEY)).outerjoin(head, same)
    free = free.where(or_(head.c.seq.is_(None), first.c.seq < head.c.seq))
    left = or_(_has(F), _has(Q, Q.c.state == PENDING))
    dropped = select(*(S.c[name] for name in KEY)).where(S.c.task == task, S.c.source == source, S.c.dropped != 0, left)
    return frozenset(shard_of(row) for query in (free, dropped) for row in connection.execute(query))


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
    query = select(S).where(S.c.task == task, S.c.has_left != 0, _has(F))
    return frozenset(map(shard_of, connection.execute(query)))


def _first(table: Any, task: str, source: str, *where: Any) -> Any:
    """Return the lowest number of each shard, which the primary key gives without reading its other rows."""
    key = [table.c[name] for name in KEY]
    query = select(*key, func.min(table.c.seq).label("seq")).where(table.c.task == task, table.c.source == source)
    return query.where(*where).group_by(*key).subquery()


def _has(table: Any, *where: Any) -> Any:
    same = and_(table.c.task == S.c.task, *(table.c[name] == S.c[name] for name in KEY))
    return exists().where(same, *where)
