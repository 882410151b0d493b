"""DDL locks are opened, executed and resolved by conditional changes.

The coordinator decides (core.ddl.lock). Each step here is one transaction that changes nothing if the state is no
longer the one that the coordinator saw. While a DDL runs, the executor locks a row of `ddl_lock_guard` instead of
`ddl_lock`, so reading locks never waits for a long DDL.
"""

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pymysql
from sqlalchemy import Connection, and_, delete, false, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.sql import ColumnElement

from unshard.adapters.meta import tables
from unshard.adapters.meta.locks.missingddl import Behind, add_late_skip, locks_behind, ran_by, read_missing_ddl
from unshard.adapters.meta.locks.pendingskips import (
    RESOLVED,
    SETTLED,
    add_pending_skip,
    inherit,
    read_exempted,
    read_pending_skips,
)
from unshard.adapters.meta.locks.wholetargets import is_written
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import (
    AnyRow,
    in_portions,
    matches,
    read,
    replacement_of,
    shard_columns,
    target_columns,
    target_of,
    verdict_columns,
)
from unshard.adapters.meta.shards.structures import read_shards
from unshard.adapters.meta.tasks.actions import OperatorAction, actions
from unshard.core import codec
from unshard.core.ddl.lock import DdlLock, LockState, Outcome, PendingSkips, SkipResolution, lock_id, resolution, void
from unshard.core.ddl.queue import EntryState, OperatorDecision, QueueEntry, WholeChange
from unshard.core.ddl.sessioneffects import ExecutedDdl
from unshard.core.ddl.shardgroup import Admission
from unshard.core.model import Shard, TableId
from unshard.core.window.plan import StructureChange
from unshard.errors.join import TargetBeingChanged
from unshard.errors.locks import LockBusy, UnknownLock

K, G, M, H, Q, S, J, X = (
    tables.ddl_lock,
    tables.ddl_lock_guard,
    tables.ddl_lock_member,
    tables.ddl_history,
    tables.shard_ddl,
    tables.shard,
    tables.join_target,
    tables.join_change,
)
LOCKED = (1205, 3572)
"""Lock wait timeout (MariaDB's NOWAIT) and ER_LOCK_NOWAIT (MySQL, TiDB)."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a lock's DDL on the target: intent, then outcome."""

    lock: str
    source: str
    ddl: str
    before: str
    wanted: str
    started_at: datetime
    done_at: datetime | None
    outcome: str | None
    """executed, present (the target already had the structure) or refused; None while it runs or after a crash."""
    error: str | None


class LockReader(ReadingPart):
    """Rows of `ddl_lock`, its members, the history and the operator commands."""

    def open(self) -> tuple[DdlLock, ...]:
        """Return the locks that are not resolved."""
        return self._select(K.c.state != LockState.RESOLVED.value)

    def all(self, resolved: int = 20) -> tuple[DdlLock, ...]:
        """Return the newest resolved locks and the open ones, oldest first."""
        newest = select(K).where(K.c.task == self._task, K.c.state == LockState.RESOLVED.value)
        newest = newest.order_by(K.c.resolved_at.desc()).limit(resolved)
        with self._database.reading() as connection:
            done = tuple(map(_lock, connection.execute(newest)))
        return (*sorted(done, key=lambda lock: lock.seen_at), *self.open())

    def get(self, lock: str) -> DdlLock:
        """Return one lock; raises UnknownLock."""
        found = self._select(K.c.lock_id == lock)
        if not found:
            raise UnknownLock(self._task, lock)
        return found[0]

    def pending_skips(self) -> PendingSkips:
        """Return the pending skips of each shard, oldest lock first."""
        with self._database.reading() as connection:
            return read_pending_skips(connection, self._task)

    def behind(self, shards: Collection[Shard], changes: Iterable[StructureChange] = ()) -> Behind:
        """Return the DDL that the target has and that rows of these shards lack; `changes` are shards that join."""
        with self._database.reading() as connection:
            return read_missing_ddl(connection, self._task, shards, changes)

    def behind_at(self, target: TableId, structure: str) -> tuple[ExecutedDdl, ...]:
        """Return the DDL that the target has and that a new shard of that structure lacks."""
        with self._database.reading() as connection:
            return ran_by(connection, self._task, locks_behind(connection, self._task, target, structure))

    def executions(self, lock: str | None = None, newest: int | None = None) -> tuple[Execution, ...]:
        """Return the executions of one lock or of all, or the newest ones, oldest first."""
        query = select(H).where(H.c.task == self._task).order_by(H.c.id.desc()).limit(newest)
        query = query.where(H.c.lock_id == lock) if lock else query
        with self._database.reading() as connection:
            found = tuple(
                Execution(
                    row.lock_id,
                    row.source,
                    row.ddl,
                    row.before_digest,
                    row.wanted_digest,
                    row.started_at,
                    row.done_at,
                    row.outcome,
                    row.error,
                )
                for row in connection.execute(query)
            )
        return found[::-1]

    def actions(self, lock: str | None = None, newest: int | None = None) -> tuple[OperatorAction, ...]:
        """Return the operator commands about one lock or about all, or the newest ones, oldest first."""
        with self._database.reading() as connection:
            return actions(connection, self._task, lock, newest)

    def _select(self, condition: Any) -> tuple[DdlLock, ...]:
        """Return locks with the shards that are exempted from the open ones, in one statement."""
        is_exempted = and_(M.c.task == K.c.task, M.c.lock_id == K.c.lock_id, K.c.state != LockState.RESOLVED.value)
        shard = (M.c[name].label(f"excused_{name}") for name in ("source", "shard_schema", "shard_table"))
        query = select(K, *shard).outerjoin(M, is_exempted).where(K.c.task == self._task, condition)
        rows: dict[str, AnyRow] = {}
        exempted: dict[str, set[Shard]] = defaultdict(set)
        with self._database.reading() as connection:
            for row in connection.execute(query.order_by(K.c.seen_at, K.c.lock_id)):
                rows.setdefault(row.lock_id, row)
                if row.excused_source is not None:
                    table = TableId(row.excused_shard_schema, row.excused_shard_table)
                    exempted[row.lock_id].add(Shard(row.excused_source, table))
        return tuple(_lock(row, frozenset(exempted[lock])) for lock, row in rows.items())


class Locks(WritingPart, LockReader):
    """Changes rows of `ddl_lock`, its members and the history."""

    def add_late_skip(self, source: str) -> None:
        """Add pending skips for the DDL that the shards of a new source have not reached, after its snapshot."""
        with self._database.transaction() as connection:
            add_late_skip(connection, self._task, source)

    def create(self, target: TableId, entry: QueueEntry) -> None:
        """Open the next lock of a target; do nothing if one is open or another process has resolved the DDL."""
        queued = {"task": self._task, **shard_columns(entry.shard), "seq": entry.seq}
        # Suppressed here, because outside the transaction it would be a coded error.
        with self._database.transaction() as connection, contextlib.suppress(IntegrityError):
            if connection.scalar(select(Q.c.state).where(matches(Q, queued))) != EntryState.PENDING.value:
                return
            group = matches(K, {"task": self._task, **target_columns(target)})
            newest = connection.execute(select(K.c.number, K.c.state).where(group).order_by(K.c.number.desc())).first()
            if newest and newest.state != LockState.RESOLVED.value:
                return
            number = newest.number + 1 if newest else 1
            key = {"task": self._task, "lock_id": lock_id(self._task, target, number)}
            connection.execute(insert(G).values(key))
            connection.execute(
                insert(K).values(
                    **key,
                    **target_columns(target),
                    number=number,
                    state=LockState.WAITING.value,
                    forced=False,
                    done=0,
                    entry=codec.dumps(entry),
                    opened_at=datetime.fromtimestamp(entry.statement.timestamp, UTC),
                    seen_at=tables.NOW,
                    **verdict_columns(OperatorDecision.NONE),
                )
            )

    def note(self, lock: DdlLock, state: LockState, owner: str | None) -> None:
        """Record the state of an open lock for status pages, and its owner."""
        if (lock.state, lock.owner) != (state, owner):
            self._change(lock.id, {"state": state.value, "owner": owner}, K.c.owner.is_not_distinct_from(lock.owner))

    def settle(self, skip_resolution: SkipResolution) -> None:
        """Resolve a queue head as a pending skip; both rows change or none."""
        shard = shard_columns(skip_resolution.shard)
        pending_skip = {"task": self._task, "lock_id": skip_resolution.lock, **shard, "state": "pending"}
        with self._database.transaction() as connection:
            if not self._is_still(connection, skip_resolution.shard, skip_resolution.shard_uid):
                return
            done = {"state": SETTLED, "seq": skip_resolution.seq, "updated_at": tables.NOW}
            if connection.execute(update(M).where(matches(M, pending_skip)).values(done)).rowcount:
                self._resolve_entries(
                    connection, [(skip_resolution.shard, skip_resolution.seq)], skip_resolution.lock, Outcome.SKIPPED
                )
                self._copy_decision(connection, skip_resolution)

    def admit(self, admission: Admission) -> None:
        """Resolve the DDL of one shard that has the structure of a peer now, and copy the pending skips of the peer."""
        key = {"task": self._task, **shard_columns(admission.shard), "seq": admission.seq}
        done = {"state": EntryState.RESOLVED.value, "outcome": "admitted", "resolved_at": tables.NOW}
        pending = Q.c.state == EntryState.PENDING.value
        with self._database.transaction() as connection:
            if not (
                self._is_still(connection, admission.shard, admission.shard_uid)
                and self._is_still(connection, admission.peer, admission.peer_uid)
            ):
                return
            if connection.execute(update(Q).where(matches(Q, key), pending).values(done)).rowcount:
                inherit(connection, self._task, admission.shard, admission.peer)

    def withdraw(self, lock: DdlLock) -> None:
        """Resolve a lock without executing it, because no shard has the DDL in its queue."""
        values = {"state": LockState.RESOLVED.value, "outcome": Outcome.WITHDRAWN.value, "resolved_at": tables.NOW}
        where = *self._is(lock.id), K.c.state != LockState.RESOLVED.value, K.c.started_at.is_(None)
        with self._database.transaction() as connection:
            if connection.execute(
                update(K).where(*where, K.c.decision != OperatorDecision.SKIP.value).values(values)
            ).rowcount:
                members = read_shards(connection, self._task, target=lock.target)
                for shard in void(members, lock, read_pending_skips(connection, self._task)):
                    pending_skip = {"task": self._task, "lock_id": lock.id, **shard_columns(shard)}
                    connection.execute(delete(M).where(matches(M, pending_skip)))

    @contextlib.contextmanager
    def exclusive(self, lock: str) -> Iterator[None]:
        """Hold the guard of a lock for the block; LockBusy if another process holds it. It ends with the process."""
        query = select(G).where(G.c.task == self._task, G.c.lock_id == lock).with_for_update(nowait=True)
        with self._database.transaction() as connection:
            try:
                connection.execute(query).one()
            except OperationalError as error:
                if isinstance(error.orig, pymysql.err.OperationalError) and error.orig.args[0] in LOCKED:
                    raise LockBusy(lock) from error
                raise
            yield

    def start(self, lock: DdlLock, source: str, entry: QueueEntry, join_version: int = 0) -> bool:
        """Record the intent to execute the lock's next statement, or continue one that a crash left open.

        Returns False if the lock was resolved or changed by a command in the meantime, or if a window of another source
        may write the target that the statement is about to truncate, drop or rename. Raises TargetBeingChanged if a
        target in optimistic mode has another version than `join_version`, or if it is being changed.
        """
        row = {
            "task": self._task,
            "lock_id": lock.id,
            "source": source,
            "ddl": entry.routed,
            "before_digest": entry.before,
            "wanted_digest": entry.after,
            "sql_mode": entry.statement.sql_mode,
            "started_at": tables.NOW,
        }
        with self._database.transaction() as connection:
            self._refuse_changing(connection, lock.target, join_version)
            found = _lock(connection.execute(select(K).where(*self._is(lock.id)).with_for_update()).one())
            if found.state is LockState.RESOLVED or _script(found) != _script(lock):
                return False
            is_whole = entry.whole not in (WholeChange.NONE, WholeChange.CREATE)
            if is_whole and is_written(connection, self._task, lock.target, source):
                return False
            begun: dict[str, Any] = {"owner": func.coalesce(K.c.owner, source), "error": None}
            begun |= {"started_at": tables.NOW} if found.started_at is None else {}
            connection.execute(update(K).where(*self._is(lock.id)).values(begun))
            intent = select(H.c.id).where(H.c.task == self._task, H.c.lock_id == lock.id, H.c.done_at.is_(None))
            if connection.execute(intent).first() is None:
                connection.execute(insert(H).values(row))
        return True

    def _refuse_changing(self, connection: Connection, target: TableId, join_version: int) -> None:
        """Raise if a target in optimistic mode is not as it was read; lock it against changes by the coordinator."""
        key = {"task": self._task, **target_columns(target)}
        version = connection.scalar(select(J.c.version).where(matches(J, key)).with_for_update()) or 0
        is_open = matches(X, key), X.c.done_at.is_(None)
        change = select(X.c.id).where(*is_open).with_for_update()
        if version != join_version or (version and connection.execute(change).first()):
            raise TargetBeingChanged(str(target))

    def split(self, lock: DdlLock, statements: tuple[str, ...]) -> bool:
        """Record the steps that replace the lock's DDL, because the target accepts it only in steps.

        Returns False if the lock was resolved or changed by a command in the meantime.
        """
        with self._database.transaction() as connection:
            found = _lock(connection.execute(select(K).where(*self._is(lock.id)).with_for_update()).one())
            if found.state is LockState.RESOLVED or _script(found) != _script(lock):
                return False
            values = {"replacement": codec.dumps(statements)}
            connection.execute(update(K).where(*self._is(lock.id)).values(values))
        return True

    def advance(self, lock: DdlLock, outcome: Outcome) -> None:
        """Record that the target has the lock's next statement and that others follow; idempotent."""
        with self._database.transaction() as connection:
            moved = update(K).where(*self._is(lock.id), K.c.done == lock.done).values(done=lock.done + 1)
            if connection.execute(moved).rowcount:
                self._finish(connection, lock.id, outcome.value, None)

    def fail(self, lock: DdlLock, error: str, *, may_be_done: bool = False) -> None:
        """Record that the target has rejected the DDL. The target is unchanged, so the intent ends.

        If the DDL `may_be_done`, the intent stays open: only it holds the structure before the DDL.
        """
        values: dict[str, Any] = {"error": error, "state": LockState.FAILED.value}
        with self._database.transaction() as connection:
            if may_be_done:
                connection.execute(update(K).where(*self._is(lock.id)).values(values))
                return
            connection.execute(update(K).where(*self._is(lock.id)).values(values | {"started_at": None}))
            self._finish(connection, lock.id, "refused", error)

    def resolve(self, lock: DdlLock, outcome: Outcome) -> None:
        """Resolve an executed or skipped lock: queue heads, pending skips of other shards, history; idempotent."""
        with self._database.transaction() as connection:
            row = connection.execute(select(K).where(*self._is(lock.id)).with_for_update()).one()
            if row.state == LockState.RESOLVED.value:
                return
            members = read_shards(connection, self._task, target=lock.target)
            lock = _lock(row, read_exempted(connection, self._task).get(lock.id, frozenset()))
            what = resolution(members, lock, read_pending_skips(connection, self._task))
            done = Outcome.SKIPPED if outcome is Outcome.SKIPPED else Outcome.EXECUTED
            for heads in in_portions(what.resolved):
                self._resolve_entries(connection, heads, lock.id, done)
                member = {"task": self._task, "lock_id": lock.id, "state": RESOLVED, "updated_at": tables.NOW}
                rows = [{**member, **shard_columns(shard), "seq": seq} for shard, seq in heads]
                connection.execute(insert(M).values(rows))
            reached = {state.shard: state.queue[0].seq for state in members if state.shard in what.parted}
            add_pending_skip(connection, self._task, what.skipping, (lock.id,), reached)
            self._finish(connection, lock.id, outcome.value, None)
            values = {"state": LockState.RESOLVED.value, "resolved_at": tables.NOW, "error": None}
            connection.execute(update(K).where(*self._is(lock.id)).values(**values, outcome=outcome.value))

    def _is_still(self, connection: Connection, shard: Shard, shard_uid: str) -> bool:
        """Lock the shard and return whether it still has this name; it may have been renamed."""
        same = matches(S, {"task": self._task, **shard_columns(shard), "shard_uid": shard_uid})
        return connection.execute(select(S.c.shard_uid).where(same).with_for_update()).first() is not None

    def _change(self, lock: str, values: dict[str, Any], still: ColumnElement[bool]) -> None:
        where = *self._is(lock), K.c.state != LockState.RESOLVED.value, still
        with self._database.single() as connection:
            connection.execute(update(K).where(*where).values(values))

    def _is(self, lock: str) -> tuple[Any, ...]:
        return K.c.task == self._task, K.c.lock_id == lock

    def _copy_decision(self, connection: Connection, skip_resolution: SkipResolution) -> None:
        """Copy the lock's decision, or SKIP, to an entry whose structure is unknown."""
        row = connection.execute(select(K.c.decision, K.c.replacement).where(*self._is(skip_resolution.lock))).one()
        key = {
            "task": self._task,
            **shard_columns(skip_resolution.shard),
            "seq": skip_resolution.seq,
            "after_digest": "",
        }
        decided = {"decision": row.decision or OperatorDecision.SKIP.value, "replacement": row.replacement}
        connection.execute(update(Q).where(matches(Q, key)).values(decided))

    def _resolve_entries(
        self, connection: Connection, heads: Iterable[tuple[Shard, int]], lock: str, outcome: Outcome
    ) -> None:
        mine = {"task": self._task, "state": EntryState.PENDING.value}
        named = (matches(Q, {**shard_columns(shard), "seq": seq}) for shard, seq in heads)
        values = {"state": EntryState.RESOLVED.value, "outcome": outcome.value, "lock_id": lock}
        where = matches(Q, mine), or_(false(), *named)
        connection.execute(update(Q).where(*where).values(**values, resolved_at=tables.NOW))

    def _finish(self, connection: Connection, lock: str, outcome: str, error: str | None) -> None:
        where = H.c.task == self._task, H.c.lock_id == lock, H.c.done_at.is_(None)
        values = {"done_at": tables.NOW, "outcome": outcome, "error": error}
        connection.execute(update(H).where(*where).values(values))


def _script(lock: DdlLock) -> tuple[object, ...]:
    return lock.verdict, lock.replacement, lock.done


def _lock(row: AnyRow, exempted: frozenset[Shard] = frozenset()) -> DdlLock:
    entry = read(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}")
    return DdlLock(
        id=row.lock_id,
        target=target_of(row),
        number=row.number,
        entry=entry,
        opened_at=row.opened_at,
        seen_at=row.seen_at,
        state=LockState(row.state),
        owner=row.owner,
        is_forced=bool(row.forced),
        started_at=row.started_at,
        error=row.error,
        resolved_at=row.resolved_at,
        verdict=OperatorDecision(row.decision),
        replacement=replacement_of(row, f"lock {row.lock_id}"),
        done=row.done,
        outcome=Outcome(row.outcome) if row.outcome else None,
        exempted=exempted,
    )
