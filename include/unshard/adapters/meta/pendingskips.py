"""Pending skips, and the DDL that the target has and that rows of a shard lack.

A pending skip is a row of `ddl_lock_member` in state `pending`. A shard that had not reached the DDL when its group's
lock was resolved gets one. A shard that joins its group while a DDL is pending inherits the pending skips of its peer,
and gets skips for the locks that were resolved between the window's plan and its commit. The rows of the target's open
locks are locked in the meantime, so no lock can be resolved at the same moment.

`seq` of a pending skip is the DDL that the shard had at its head when the lock was resolved without it. An operator has
then decided that this DDL follows, so the pending skip does not bind the shard. It does not bind either once a later
lock has resolved a DDL of the shard, because only an operator lets that lock continue.

Rows lack the DDL of pending skips, and resolved DDL after held rows. The history says what was executed for a lock:
nothing if it was skipped, other statements if it was replaced.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from sqlalchemy import exists, func, null, select, union_all

from unshard.adapters.meta import tables
from unshard.adapters.meta.gateway import AT_ONCE, TaskReader, TaskWriter, matches
from unshard.adapters.meta.rowvalues import (
    SHARD_NAME,
    are_same,
    is_one_of,
    read_stored,
    shard_name,
    shard_of,
)
from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.ddl.lock import LockState, Outcome, PendingSkip
from unshard.core.ddl.queue import EntryState, QueueEntry, last_index
from unshard.core.model import Shard, TableId
from unshard.core.window.plan import StructureChange

DDL_LOCK_MEMBER, DDL_LOCK, DDL_HISTORY = tables.ddl_lock_member, tables.ddl_lock, tables.ddl_history
SHARD, SHARD_DDL, HELD_ROWS = tables.shard, tables.shard_ddl, tables.held_rows
PENDING_SKIP, SETTLED, RESOLVED = "pending", "settled", "resolved"
WAIVED = "waived"
"""Pending skip of a shard that was dropped; a shard that joins with it as its peer still inherits the skip."""
HAD = ("executed", "present")
OF_LOCK = are_same(DDL_LOCK, DDL_LOCK_MEMBER, "lock_id")
Behind = Mapping[tuple[Shard, int | None], tuple[ExecutedDdl, ...]]


def read_pending_skips(db: TaskReader) -> dict[Shard, tuple[PendingSkip, ...]]:
    """Return the pending skips of each shard, oldest lock first."""
    lock = DDL_LOCK.c.number, DDL_LOCK.c.entry, DDL_LOCK.c.outcome, DDL_LOCK.c.state.label("lock_state")
    query = select(DDL_LOCK_MEMBER, *lock).join(DDL_LOCK, OF_LOCK).order_by(DDL_LOCK.c.number)
    rows = db.fetch(query.where(db.mine(DDL_LOCK_MEMBER, state=PENDING_SKIP)))
    newest = _newest_resolved(db) if rows else {}
    found: dict[Shard, list[PendingSkip]] = defaultdict(list)
    for row in rows:
        entry = read_stored(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}")
        shard = shard_of(row)
        is_parted = row.seq is not None or newest.get(shard, 0) > row.number
        found[shard].append(
            PendingSkip(
                shard,
                row.lock_id,
                row.number,
                entry.fingerprint,
                row.lock_state != LockState.RESOLVED,
                row.outcome != Outcome.SKIPPED and not is_parted,
            )
        )
    return {shard: tuple(pending_skips) for shard, pending_skips in found.items()}


def _newest_resolved(db: TaskReader) -> dict[Shard, int]:
    own, skips = shard_name(DDL_LOCK_MEMBER), DDL_LOCK_MEMBER.alias("pending_skip")
    has_skip = exists().where(are_same(skips, DDL_LOCK_MEMBER, *SHARD_NAME), skips.c.state == PENDING_SKIP)
    query = select(*own, func.max(DDL_LOCK.c.number).label("number")).join(DDL_LOCK, OF_LOCK).group_by(*own)
    rows = db.fetch(query.where(db.mine(DDL_LOCK_MEMBER, has_skip, state=RESOLVED)))
    return {shard_of(row): row.number for row in rows}


def read_exempted(db: TaskReader) -> dict[str, frozenset[Shard]]:
    """Return the shards that are exempted from open locks: their skip is pending or done."""
    query = select(DDL_LOCK_MEMBER).join(DDL_LOCK, OF_LOCK)
    found: dict[str, set[Shard]] = defaultdict(set)
    for row in db.fetch(query.where(db.mine(DDL_LOCK_MEMBER, DDL_LOCK.c.state != LockState.RESOLVED))):
        found[row.lock_id].add(shard_of(row))
    return {lock: frozenset(shards) for lock, shards in found.items()}


def add_pending_skip(
    db: TaskWriter, shards: Iterable[Shard], locks: Sequence[str], heads: Mapping[Shard, int] = MappingProxyType({})
) -> None:
    """Add pending skips of these locks to shards; a shard that is already a member of a lock is not changed."""
    values = {"state": PENDING_SKIP, "updated_at": tables.NOW}
    rows = [{**values, "lock_id": lock, "shard": shard, "seq": heads.get(shard)} for shard in shards for lock in locks]
    db.insert_all(DDL_LOCK_MEMBER, rows, only_new=True)


def add_skips_of_new_shard(db: TaskWriter, change: StructureChange) -> None:
    """Add the pending skips of a shard that joins: those of its peer, and of locks resolved since the plan."""
    if not change.joins:
        return
    db.delete(DDL_LOCK_MEMBER, shard=change.shard)
    if change.peer is None:
        return
    unresolved = DDL_LOCK.c.state != LockState.RESOLVED
    db.select(DDL_LOCK, unresolved, target=change.target, only=(DDL_LOCK.c.lock_id,), lock=True)
    add_pending_skip(db, (change.shard,), skips_of_new_shard(db, change))


def skips_of_new_shard(db: TaskReader, change: StructureChange) -> tuple[str, ...]:
    """Return the locks whose DDL a shard that joins must skip: pending skips and resolved DDL of its peer."""
    if change.peer is None:
        return ()
    # A peer in another source may have been renamed since the plan.
    row = db.row(SHARD, source=change.peer.source, shard_uid=change.peer_uid)
    peer = shard_of(row) if row else change.peer
    expected = SHARD_DDL.c.seq.in_(change.expects), SHARD_DDL.c.lock_id.is_not(None)
    lock, order = (SHARD_DDL.c.lock_id,), SHARD_DDL.c.seq
    resolved = db.select(SHARD_DDL, *expected, shard=peer, only=lock, order=order)
    return (*(row.lock_id for row in resolved), *inherited_skips(db, peer))


def inherited_skips(db: TaskReader, shard: Shard) -> Sequence[str]:
    """Return the locks whose pending skips a shard inherits if this one is its peer."""
    is_skip = DDL_LOCK_MEMBER.c.state.in_((PENDING_SKIP, WAIVED))
    return [row.lock_id for row in db.select(DDL_LOCK_MEMBER, is_skip, shard=shard)]


def read_missing_ddl(db: TaskReader, shards: Collection[Shard], changes: Iterable[StructureChange] = ()) -> Behind:
    """Return the statements, oldest first, by shard and number of held rows; None: rows from the binlog.

    For a shard that joins by one of `changes`, the pending skips that the window's commit will add are included.
    """
    pending_skips, passed = _owed_and_passed(db, shards)
    for change in changes:
        # A shard with pending skips has the name of one of which the window also has rows.
        if change.joins and change.shard not in pending_skips:
            inherited = pending_skips.get(change.peer, frozenset()) if change.peer else frozenset()
            pending_skips[change.shard] = inherited | set(skips_of_new_shard(db, change))
    if not pending_skips and not passed:
        return {}
    ran = _ran(db)
    found: dict[tuple[Shard, int | None], tuple[ExecutedDdl, ...]] = {}
    numbers = _held_numbers(db, pending_skips.keys() | passed.keys())
    for shard in pending_skips.keys() | passed.keys():
        mine = pending_skips.get(shard, frozenset())
        found[shard, None] = _of(ran, mine)
        for seq in numbers.get(shard, ()):
            found[shard, seq] = _of(ran, mine | {lock for number, lock in passed.get(shard, ()) if number > seq})
    return {rows: statements for rows, statements in found.items() if statements}


def locks_behind(db: TaskReader, target: TableId, structure: str) -> tuple[str, ...]:
    """Return the locks whose DDL a new shard of that structure has not run.

    The shard is placed by the structures that the group's shards had before and after each lock.
    """
    columns, order = (DDL_LOCK.c.lock_id, DDL_LOCK.c.entry), DDL_LOCK.c.number
    rows = db.select(DDL_LOCK, DDL_LOCK.c.outcome.in_(HAD), target=target, only=columns, order=order)
    entries = [read_stored(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}") for row in rows]
    if not entries:
        return ()
    stands = last_index([entries[0].before, *(entry.after for entry in entries)], structure)
    return () if stands is None else tuple(row.lock_id for row in rows[stands:])


def ran_by(db: TaskReader, locks: Collection[str]) -> tuple[ExecutedDdl, ...]:
    """Return the statements that were executed for these locks, oldest first."""
    return _of(_ran(db), locks) if locks else ()


def _of(ran: list[tuple[str, ExecutedDdl]], locks: Collection[str]) -> tuple[ExecutedDdl, ...]:
    return tuple(statement for lock, statement in ran if lock in locks)


def _owed_and_passed(
    db: TaskReader, shards: Collection[Shard]
) -> tuple[dict[Shard, frozenset[str]], dict[Shard, list[tuple[int, str]]]]:
    """Read the pending skips of each shard and the resolved DDL after its held rows, in one statement."""
    pending_skips: dict[Shard, frozenset[str]] = {}
    passed: dict[Shard, list[tuple[int, str]]] = {}
    for row in db.fetch(_both(db.task, frozenset(shards))):
        if (shard := shard_of(row)) not in shards:
            continue
        if row.seq is None:
            pending_skips[shard] = pending_skips.get(shard, frozenset()) | {row.lock_id}
        else:
            passed.setdefault(shard, []).append((row.seq, row.lock_id))
    return pending_skips, passed


@lru_cache(maxsize=64)
def _both(task: str, shards: frozenset[Shard]) -> Any:
    """Return the statement; it is kept, because the windows of a source have the same shards again and again."""
    skip, ddl = DDL_LOCK_MEMBER, SHARD_DDL
    is_pending = matches(skip, {"task": task, "state": PENDING_SKIP})
    pending_skips = select(*shard_name(skip), null().label("seq"), skip.c.lock_id).where(is_pending, _are(skip, shards))
    # A skip may be resolved while older rows still wait.
    is_after = exists().where(are_same(HELD_ROWS, ddl, *SHARD_NAME), HELD_ROWS.c.seq < ddl.c.seq)
    is_resolved = matches(ddl, {"task": task, "state": EntryState.RESOLVED}), ddl.c.lock_id.is_not(None)
    passed = select(*shard_name(ddl), ddl.c.seq, ddl.c.lock_id).where(*is_resolved, _are(ddl, shards), is_after)
    return union_all(passed, pending_skips)


def _held_numbers(db: TaskReader, shards: Collection[Shard]) -> dict[Shard, set[int]]:
    found: dict[Shard, set[int]] = {}
    query = select(*shard_name(HELD_ROWS), HELD_ROWS.c.seq).distinct()
    for row in db.fetch(query.where(db.mine(HELD_ROWS, _are(HELD_ROWS, shards)))):
        found.setdefault(shard_of(row), set()).add(row.seq)
    return found


def _are(table: Any, shards: Collection[Shard]) -> Any:
    """Select these shards by name, or by source if one statement cannot name all of them."""
    return is_one_of(table, shards) if len(shards) <= AT_ONCE else table.c.source.in_({s.source for s in shards})


def _ran(db: TaskReader) -> list[tuple[str, ExecutedDdl]]:
    columns = DDL_HISTORY.c.lock_id, DDL_HISTORY.c.ddl, DDL_HISTORY.c.sql_mode
    rows = db.select(DDL_HISTORY, DDL_HISTORY.c.outcome.in_(HAD), only=columns, order=DDL_HISTORY.c.id)
    return [(row.lock_id, ExecutedDdl(row.ddl, row.sql_mode)) for row in rows]
