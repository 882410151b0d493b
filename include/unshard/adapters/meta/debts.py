"""Owed skips: rows of `ddl_lock_member` in state `owed`.

A shard that was not ready when its group's lock was resolved owes a skip; one that joins its group while
a DDL is pending inherits what its peer owes, and owes what was resolved between the window's plan and its commit.
The open locks of the target are locked by row meanwhile, so a lock cannot be resolved at the same moment unseen.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, insert, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.rows import in_portions, matches, read, shard_columns, shard_of, target_columns
from unshard.core.ddllock import LockState, Outcome, Owed
from unshard.core.model import Shard
from unshard.core.window import QueueEntry, StructureChange

M, K, Q, S = tables.ddl_lock_member, tables.ddl_lock, tables.shard_ddl, tables.shard
OWED, SETTLED, RESOLVED = "owed", "settled", "resolved"
FORGIVEN = "forgiven"
"""Owed by a shard that was dropped since: a newcomer that was planned as its like inherits it all the same."""


def read_debts(connection: Connection, task: str) -> dict[Shard, tuple[Owed, ...]]:
    """Return what each shard owes, the oldest lock first."""
    both = (K.c.task == M.c.task) & (K.c.lock_id == M.c.lock_id)
    lock = K.c.number, K.c.entry, K.c.outcome, K.c.state.label("lock_state")
    query = select(M, *lock).join(K, both).where(M.c.task == task, M.c.state == OWED)
    found: dict[Shard, list[Owed]] = defaultdict(list)
    for row in connection.execute(query.order_by(K.c.number)):
        entry = read(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}")
        shard = shard_of(row)
        found[shard].append(Owed(shard, row.lock_id, row.number, entry.agreement,
                                 row.lock_state != LockState.RESOLVED.value,
                                 row.outcome != Outcome.SKIPPED.value))  # fmt: skip
    return {shard: tuple(owed) for shard, owed in found.items()}


def read_excused(connection: Connection, task: str) -> dict[str, frozenset[Shard]]:
    """Return the shards that are excused from open locks: who owes an open lock a skip, or has had it."""
    both = (K.c.task == M.c.task) & (K.c.lock_id == M.c.lock_id)
    query = select(M).join(K, both).where(M.c.task == task, K.c.state != LockState.RESOLVED.value)
    found: dict[str, set[Shard]] = defaultdict(set)
    for row in connection.execute(query):
        found[row.lock_id].add(shard_of(row))
    return {lock: frozenset(shards) for lock, shards in found.items()}


def owe(connection: Connection, task: str, shards: Iterable[Shard], locks: Sequence[str]) -> None:
    """Let shards owe these locks a skip; one that has met a lock already is left as it is."""
    values = {"task": task, "state": OWED, "updated_at": tables.NOW}
    rows = [{**values, "lock_id": lock, **shard_columns(shard)} for shard in shards for lock in locks]
    for some in in_portions(rows):
        connection.execute(insert(M).prefix_with("IGNORE").values(list(some)))


def owe_as_newcomer(connection: Connection, task: str, change: StructureChange) -> None:
    """Give a shard that joins the debts of its peer and of what was resolved since the window was planned."""
    if not change.joins:
        return
    mine = {"task": task, **shard_columns(change.shard)}
    connection.execute(delete(M).where(matches(M, mine)))
    if change.peer is None:
        return
    unresolved = K.c.state != LockState.RESOLVED.value
    group = matches(K, {"task": task, **target_columns(change.target)})
    connection.execute(select(K.c.lock_id).where(group, unresolved).with_for_update()).all()
    owe(connection, task, (change.shard,), debts_of_newcomer(connection, task, change))


def debts_of_newcomer(connection: Connection, task: str, change: StructureChange) -> tuple[str, ...]:
    """Return the locks to which a shard that joins owes a skip, by what its peer owes and has had resolved by now."""
    if change.peer is None:
        return ()
    peer = _present_name(connection, task, change.peer, change.peer_born)
    mine = matches(Q, {"task": task, **shard_columns(peer)})
    resolved = select(Q.c.lock_id).where(mine, Q.c.seq.in_(change.expects), Q.c.lock_id.is_not(None))
    return (*connection.scalars(resolved.order_by(Q.c.seq)), *_debts(connection, task, peer))


def inherit(connection: Connection, task: str, shard: Shard, peer: Shard) -> None:
    """Let a shard owe what another one owes."""
    owe(connection, task, (shard,), _debts(connection, task, peer))


def _debts(connection: Connection, task: str, shard: Shard) -> Sequence[str]:
    mine = matches(M, {"task": task, **shard_columns(shard)})
    return connection.scalars(select(M.c.lock_id).where(mine, M.c.state.in_((OWED, FORGIVEN)))).all()


def _present_name(connection: Connection, task: str, shard: Shard, born: str) -> Shard:
    """Return what a shard is called now: that of another source may have been renamed since it was planned with."""
    found = select(S).where(S.c.task == task, S.c.source == shard.source, S.c.born == born)
    row = connection.execute(found).first()
    return shard_of(row) if row else shard
