"""Pending skips: rows of `ddl_lock_member` in state `pending`.

A shard that had not reached the DDL when its group's lock was resolved gets a pending skip. A shard that joins its
group while a DDL is pending inherits the pending skips of its peer, and gets skips for the locks that were resolved
between the window's plan and its commit. The rows of the target's open locks are locked in the meantime, so no lock can
be resolved at the same moment.

`seq` of a pending skip is the DDL that the shard had at its head when the lock was resolved without it. An operator has
then decided that this DDL follows, so the pending skip does not bind the shard. It does not bind either once a later
lock has resolved a DDL of the shard, because only an operator lets that lock continue.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.rows import in_portions, matches, read, shard_columns, shard_of, target_columns
from unshard.core.ddl.lock import LockState, Outcome, PendingSkip
from unshard.core.ddl.queue import QueueEntry
from unshard.core.model import Shard
from unshard.core.window.plan import StructureChange

DDL_LOCK_MEMBER, DDL_LOCK, SHARD_DDL, SHARD = tables.ddl_lock_member, tables.ddl_lock, tables.shard_ddl, tables.shard
PENDING_SKIP, SETTLED, RESOLVED = "pending", "settled", "resolved"
WAIVED = "waived"
"""Pending skip of a shard that was dropped; a shard that joins with it as its peer still inherits the skip."""


def read_pending_skips(connection: Connection, task: str) -> dict[Shard, tuple[PendingSkip, ...]]:
    """Return the pending skips of each shard, oldest lock first."""
    both = (DDL_LOCK.c.task == DDL_LOCK_MEMBER.c.task) & (DDL_LOCK.c.lock_id == DDL_LOCK_MEMBER.c.lock_id)
    lock = DDL_LOCK.c.number, DDL_LOCK.c.entry, DDL_LOCK.c.outcome, DDL_LOCK.c.state.label("lock_state")
    query = (
        select(DDL_LOCK_MEMBER, *lock)
        .join(DDL_LOCK, both)
        .where(DDL_LOCK_MEMBER.c.task == task, DDL_LOCK_MEMBER.c.state == PENDING_SKIP)
    )
    found: dict[Shard, list[PendingSkip]] = defaultdict(list)
    rows = connection.execute(query.order_by(DDL_LOCK.c.number)).all()
    newest = _newest_resolved(connection, task) if rows else {}
    for row in rows:
        entry = read(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}")
        shard = shard_of(row)
        is_parted = row.seq is not None or newest.get(shard, 0) > row.number
        found[shard].append(
            PendingSkip(
                shard,
                row.lock_id,
                row.number,
                entry.fingerprint,
                row.lock_state != LockState.RESOLVED.value,
                row.outcome != Outcome.SKIPPED.value and not is_parted,
            )
        )
    return {shard: tuple(pending_skips) for shard, pending_skips in found.items()}


def _newest_resolved(connection: Connection, task: str) -> dict[Shard, int]:
    """Return the number of the newest lock that has resolved a DDL of each shard that has a pending skip."""
    both = (DDL_LOCK.c.task == DDL_LOCK_MEMBER.c.task) & (DDL_LOCK.c.lock_id == DDL_LOCK_MEMBER.c.lock_id)
    skips = DDL_LOCK_MEMBER.alias("pending_skip")
    key = "source", "shard_schema", "shard_table"
    own = [DDL_LOCK_MEMBER.c[name] for name in key]
    same = [skips.c[name] == DDL_LOCK_MEMBER.c[name] for name in key]
    query: Any = (
        select(*own, func.max(DDL_LOCK.c.number).label("number"))
        .join(DDL_LOCK, both)
        .where(
            DDL_LOCK_MEMBER.c.task == task,
            DDL_LOCK_MEMBER.c.state == RESOLVED,
            select(skips.c.lock_id).where(skips.c.task == task, skips.c.state == PENDING_SKIP, *same).exists(),
        )
        .group_by(*own)
    )
    return {shard_of(row): row.number for row in connection.execute(query)}


def read_exempted(connection: Connection, task: str) -> dict[str, frozenset[Shard]]:
    """Return the shards that are exempted from open locks: their skip is pending or done."""
    both = (DDL_LOCK.c.task == DDL_LOCK_MEMBER.c.task) & (DDL_LOCK.c.lock_id == DDL_LOCK_MEMBER.c.lock_id)
    query = (
        select(DDL_LOCK_MEMBER)
        .join(DDL_LOCK, both)
        .where(DDL_LOCK_MEMBER.c.task == task, DDL_LOCK.c.state != LockState.RESOLVED.value)
    )
    found: dict[str, set[Shard]] = defaultdict(set)
    for row in connection.execute(query):
        found[row.lock_id].add(shard_of(row))
    return {lock: frozenset(shards) for lock, shards in found.items()}


def add_pending_skip(
    connection: Connection,
    task: str,
    shards: Iterable[Shard],
    locks: Sequence[str],
    heads: Mapping[Shard, int] = MappingProxyType({}),
) -> None:
    """Add pending skips of these locks to shards; a shard that is already a member of a lock is not changed."""
    values = {"task": task, "state": PENDING_SKIP, "updated_at": tables.NOW}
    rows = [
        {**values, "lock_id": lock, **shard_columns(shard), "seq": heads.get(shard)}
        for shard in shards
        for lock in locks
    ]
    for some in in_portions(rows):
        connection.execute(insert(DDL_LOCK_MEMBER).prefix_with("IGNORE").values(list(some)))


def add_skips_of_new_shard(connection: Connection, task: str, change: StructureChange) -> None:
    """Add the pending skips of a shard that joins: those of its peer, and of locks resolved since the plan."""
    if not change.joins:
        return
    mine = {"task": task, **shard_columns(change.shard)}
    connection.execute(delete(DDL_LOCK_MEMBER).where(matches(DDL_LOCK_MEMBER, mine)))
    if change.peer is None:
        return
    unresolved = DDL_LOCK.c.state != LockState.RESOLVED.value
    group = matches(DDL_LOCK, {"task": task, **target_columns(change.target)})
    connection.execute(select(DDL_LOCK.c.lock_id).where(group, unresolved).with_for_update()).all()
    add_pending_skip(connection, task, (change.shard,), skips_of_new_shard(connection, task, change))


def skips_of_new_shard(connection: Connection, task: str, change: StructureChange) -> tuple[str, ...]:
    """Return the locks whose DDL a shard that joins must skip: pending skips and resolved DDL of its peer."""
    if change.peer is None:
        return ()
    peer = _present_name(connection, task, change.peer, change.peer_uid)
    mine = matches(SHARD_DDL, {"task": task, **shard_columns(peer)})
    resolved = select(SHARD_DDL.c.lock_id).where(
        mine, SHARD_DDL.c.seq.in_(change.expects), SHARD_DDL.c.lock_id.is_not(None)
    )
    return (*connection.scalars(resolved.order_by(SHARD_DDL.c.seq)), *_inherited(connection, task, peer))


def inherit(connection: Connection, task: str, shard: Shard, peer: Shard) -> None:
    """Copy the pending skips of a peer to a shard."""
    add_pending_skip(connection, task, (shard,), _inherited(connection, task, peer))


def _inherited(connection: Connection, task: str, shard: Shard) -> Sequence[str]:
    mine = matches(DDL_LOCK_MEMBER, {"task": task, **shard_columns(shard)})
    return connection.scalars(
        select(DDL_LOCK_MEMBER.c.lock_id).where(mine, DDL_LOCK_MEMBER.c.state.in_((PENDING_SKIP, WAIVED)))
    ).all()


def _present_name(connection: Connection, task: str, shard: Shard, shard_uid: str) -> Shard:
    """Return the present name of a shard: a peer in another source may have been renamed since the plan."""
    found = select(SHARD).where(SHARD.c.task == task, SHARD.c.source == shard.source, SHARD.c.shard_uid == shard_uid)
    row = connection.execute(found).first()
    return shard_of(row) if row else shard
