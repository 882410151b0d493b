"""DDL locks are opened, executed and resolved by conditional changes.

The coordinator decides (core.ddl.lock). Each step here is one transaction that changes nothing if the state is no
longer the one that the coordinator saw. While a DDL runs, the executor locks a row of `ddl_lock_guard` instead of
`ddl_lock`, so reading locks never waits for a long DDL.

TRUNCATE or DROP of a one-to-one target must not meet rows of a table of another source that has just joined. Both sides
lock the row of the target's open lock, so one of them comes first:

| first                                     | the other                                                        |
|-------------------------------------------|------------------------------------------------------------------|
| a window with a joining shard begins      | the statement is not begun while that window is open; after it   |
|                                           | the lock waits for the shard                                     |
| the statement is begun                    | the window does not begin until the lock is resolved             |
"""

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pymysql
from sqlalchemy import and_, exists, false, func, or_, select
from sqlalchemy.exc import IntegrityError, OperationalError

from unshard.adapters.meta import tables
from unshard.adapters.meta.commandrecords import OperatorAction, actions
from unshard.adapters.meta.database import Records
from unshard.adapters.meta.gateway import AnyRow, TaskReader, TaskWriter, in_portions, matches
from unshard.adapters.meta.pendingskips import (
    PENDING_SKIP,
    RESOLVED,
    SETTLED,
    Behind,
    add_pending_skip,
    inherited_skips,
    locks_behind,
    ran_by,
    read_exempted,
    read_missing_ddl,
    read_pending_skips,
)
from unshard.adapters.meta.rowvalues import (
    SHARD_NAME,
    Persisted,
    are_same,
    read_stored,
    replacement_of,
    shard_name,
    verdict_columns,
)
from unshard.adapters.meta.shardrecords import read_shards
from unshard.core import codec
from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.ddl.lock import DdlLock, LockState, Outcome, PendingSkips, SkipResolution, lock_id, resolution, void
from unshard.core.ddl.queue import Admission, EntryState, OperatorDecision, QueueEntry, WholeChange
from unshard.core.model import Shard, TableId
from unshard.core.window.plan import Plan, StructureChange
from unshard.errors.locks import LockBusy, TargetBeingChanged, TargetIsReplaced, UnknownLock

LOCK, GUARD, MEMBER, HISTORY = tables.ddl_lock, tables.ddl_lock_guard, tables.ddl_lock_member, tables.ddl_history
SHARD, SHARD_DDL, FENCE, WINDOW = tables.shard, tables.shard_ddl, tables.fence, tables.window
JOIN_TARGET, JOIN_CHANGE = tables.join_target, tables.join_change
UNRESOLVED = LOCK.c.state != LockState.RESOLVED
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


@dataclass(frozen=True, slots=True)
class Arrival:
    """A shard that has reached the DDL of a lock."""

    shard: Shard
    executed_at: int
    """When the source has executed it, in seconds since 1970."""
    seen_at: datetime
    """When the window that has read it was committed."""


ARRIVAL = Persisted(Arrival)
EXECUTION = Persisted(Execution, lock="lock_id", before="before_digest", wanted="wanted_digest")
DDL_LOCK = Persisted(DdlLock, "entry replacement exempted", id="lock_id", is_forced="forced", verdict="decision")


class Locks(Records):
    """Rows of `ddl_lock`, its members, the history and the operator commands."""

    def open(self) -> tuple[DdlLock, ...]:
        return self._select(UNRESOLVED)

    def all(self, resolved: int = 20) -> tuple[DdlLock, ...]:
        """Return the newest resolved locks and the open ones, oldest first."""
        newest = self._db.select(LOCK, state=LockState.RESOLVED, order=LOCK.c.resolved_at.desc(), limit=resolved)
        return (*sorted(map(_lock, newest), key=lambda lock: lock.seen_at), *self.open())

    def get(self, lock: str) -> DdlLock:
        found = self._select(LOCK.c.lock_id == lock)
        if not found:
            raise UnknownLock(self._db.task, lock)
        return found[0]

    def pending_skips(self) -> PendingSkips:
        return read_pending_skips(self._db)

    def behind(self, shards: Collection[Shard], changes: Iterable[StructureChange] = ()) -> Behind:
        """Return the DDL that the target has and that rows of these shards lack; `changes` are shards that join."""
        return read_missing_ddl(self._db, shards, changes)

    def behind_at(self, target: TableId, structure: str) -> tuple[ExecutedDdl, ...]:
        """Return the DDL that the target has and that a new shard of that structure lacks."""
        return ran_by(self._db, locks_behind(self._db, target, structure))

    def arrivals(self, lock: DdlLock) -> tuple[Arrival, ...]:
        """Return the shards that have reached the DDL of a lock, in that order."""
        c = SHARD_DDL.c
        if lock.is_open:
            mine = self._db.mine(SHARD_DDL, state=EntryState.PENDING, target=lock.target, fingerprint=lock.fingerprint)
        else:
            resolved = exists().where(are_same(MEMBER, SHARD_DDL, *SHARD_NAME, "seq"), MEMBER.c.lock_id == lock.id)
            mine = self._db.mine(SHARD_DDL, resolved, lock_id=lock.id)
        query = select(*shard_name(SHARD_DDL), c.executed_at, c.seen_at).where(mine)
        return tuple(map(ARRIVAL.of, self._db.fetch(query.order_by(c.executed_at, c.seen_at))))

    def executions(self, lock: str | None = None, newest: int | None = None) -> tuple[Execution, ...]:
        """Return the executions of one lock or of all, or the newest ones, oldest first."""
        of_lock: dict[str, Any] = {"lock_id": lock} if lock else {}
        rows = self._db.select(HISTORY, **of_lock, order=HISTORY.c.id.desc(), limit=newest)
        return tuple(map(EXECUTION.of, rows[::-1]))

    def actions(self, lock: str | None = None, newest: int | None = None) -> tuple[OperatorAction, ...]:
        return actions(self._db, lock, newest)

    def _select(self, condition: Any) -> tuple[DdlLock, ...]:
        """Return locks with the shards that are exempted from the open ones, in one statement."""
        shard = (MEMBER.c[name].label(f"exempted_{name}") for name in SHARD_NAME)
        query = select(LOCK, *shard).outerjoin(MEMBER, and_(are_same(MEMBER, LOCK, "lock_id"), UNRESOLVED))
        query = query.where(self._db.mine(LOCK, condition)).order_by(LOCK.c.seen_at, LOCK.c.lock_id)
        rows: dict[str, AnyRow] = {}
        exempted: dict[str, set[Shard]] = defaultdict(set)
        for row in self._db.fetch(query):
            rows.setdefault(row.lock_id, row)
            if row.exempted_source is not None:
                table = TableId(row.exempted_shard_schema, row.exempted_shard_table)
                exempted[row.lock_id].add(Shard(row.exempted_source, table))
        return tuple(_lock(row, frozenset(exempted[lock])) for lock, row in rows.items())

    def add_late_skip(self, source: str) -> None:
        """Add pending skips for the DDL that the shards of a new source have not reached, after its snapshot."""
        with self._db.transaction() as db:
            db.delete(MEMBER, source=source, state=PENDING_SKIP)
            for state in read_shards(db, source):
                add_pending_skip(db, (state.shard,), locks_behind(db, state.target, state.structure))

    def create(self, target: TableId, entry: QueueEntry) -> None:
        """Open the next lock of a target; do nothing if one is open or another process has resolved the DDL."""
        # Suppressed here, because outside the transaction it would be a coded error.
        with self._db.transaction() as db, contextlib.suppress(IntegrityError):
            state = db.value(SHARD_DDL, SHARD_DDL.c.state, shard=entry.shard, seq=entry.seq)
            columns, order = (LOCK.c.number, LOCK.c.state), LOCK.c.number.desc()
            newest = db.row(LOCK, target=target, only=columns, order=order, limit=1)
            if state != EntryState.PENDING or (newest and newest.state != LockState.RESOLVED):
                return
            number = newest.number + 1 if newest else 1
            key = {"lock_id": lock_id(db.task, target, number)}
            row = {
                "target": target,
                "number": number,
                "state": LockState.WAITING,
                "forced": False,
                "done": 0,
                "entry": codec.dumps(entry),
                "opened_at": datetime.fromtimestamp(entry.statement.timestamp, UTC),
                "seen_at": tables.NOW,
                **verdict_columns(OperatorDecision.NONE),
            }
            db.insert(GUARD, key)
            db.insert(LOCK, {**key, **row})

    def note(self, lock: DdlLock, state: LockState, owner: str | None) -> None:
        """Record the state of an open lock for status pages, and its owner."""
        if (lock.state, lock.owner) != (state, owner):
            with self._db.single() as db:
                db.update(LOCK, {"state": state, "owner": owner}, UNRESOLVED, lock_id=lock.id, owner=lock.owner)

    def settle(self, skip_resolution: SkipResolution) -> None:
        """Resolve a queue head as a pending skip; both rows change or none."""
        shard, lock, seq = skip_resolution.shard, skip_resolution.lock, skip_resolution.seq
        with self._db.transaction() as db:
            if not _is_still(db, shard, skip_resolution.shard_uid):
                return
            done = {"state": SETTLED, "seq": seq, "updated_at": tables.NOW}
            if db.update(MEMBER, done, lock_id=lock, shard=shard, state=PENDING_SKIP):
                _resolve_entries(db, [(shard, seq)], db.one(LOCK, lock_id=lock), Outcome.SKIPPED)
                # An entry whose structure is unknown gets the lock's decision, or SKIP.
                decided = {"decision": OperatorDecision.SKIP, "replacement": ""}
                db.update(SHARD_DDL, decided, shard=shard, seq=seq, after_digest="", decision=OperatorDecision.NONE)

    def admit(self, admission: Admission) -> None:
        """Resolve the DDL of one shard that has the structure of a peer now, and copy the pending skips of the peer."""
        done = {"state": EntryState.RESOLVED, "outcome": "admitted", "resolved_at": tables.NOW}
        queued = {"shard": admission.shard, "seq": admission.seq, "state": EntryState.PENDING}
        with self._db.transaction() as db:
            if not (
                _is_still(db, admission.shard, admission.shard_uid)
                and _is_still(db, admission.peer, admission.peer_uid)
            ):
                return
            if db.update(SHARD_DDL, done, **queued):
                add_pending_skip(db, (admission.shard,), inherited_skips(db, admission.peer))

    def withdraw(self, lock: DdlLock) -> None:
        """Resolve a lock without executing it, because no shard has the DDL in its queue."""
        values = {"state": LockState.RESOLVED, "outcome": Outcome.WITHDRAWN, "resolved_at": tables.NOW}
        is_executed = LOCK.c.decision != OperatorDecision.SKIP
        with self._db.transaction() as db:
            if db.update(LOCK, values, UNRESOLVED, is_executed, lock_id=lock.id, started_at=None):
                for shard in void(read_shards(db, target=lock.target), lock, read_pending_skips(db)):
                    db.delete(MEMBER, lock_id=lock.id, shard=shard)

    @contextlib.contextmanager
    def exclusive(self, lock: str) -> Iterator[None]:
        """Hold the guard of a lock for the block; LockBusy if another process holds it. It ends with the process."""
        with self._db.transaction() as db:
            try:
                db.execute(select(GUARD).where(db.mine(GUARD, lock_id=lock)).with_for_update(nowait=True)).one()
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
            "lock_id": lock.id,
            "source": source,
            "ddl": entry.routed,
            "before_digest": entry.before,
            "wanted_digest": entry.after,
            "sql_mode": entry.statement.sql_mode,
            "started_at": tables.NOW,
        }
        with self._db.transaction() as db:
            _refuse_changing(db, lock.target, join_version)
            found = _unchanged(db, lock)
            if found is None or (_is_whole(entry) and _is_written(db, lock.target, source)):
                return False
            begun: dict[str, Any] = {"owner": func.coalesce(LOCK.c.owner, source), "error": None}
            begun |= {"started_at": tables.NOW} if found.started_at is None else {}
            db.update(LOCK, begun, lock_id=lock.id)
            if not db.has(HISTORY, lock_id=lock.id, done_at=None):
                db.insert(HISTORY, row)
        return True

    def split(self, lock: DdlLock, statements: tuple[str, ...]) -> bool:
        """Record the steps that replace the lock's DDL, because the target accepts it only in steps.

        Returns False if the lock was resolved or changed by a command in the meantime.
        """
        with self._db.transaction() as db:
            if _unchanged(db, lock) is None:
                return False
            db.update(LOCK, {"replacement": codec.dumps(statements)}, lock_id=lock.id)
        return True

    def advance(self, lock: DdlLock, outcome: Outcome) -> None:
        """Record that the target has the lock's next statement and that others follow; idempotent."""
        with self._db.transaction() as db:
            if db.update(LOCK, {"done": lock.done + 1}, lock_id=lock.id, done=lock.done):
                _finish(db, lock.id, outcome, None)

    def fail(self, lock: DdlLock, error: str, *, may_be_done: bool = False) -> None:
        """Record that the target has rejected the DDL. The target is unchanged, so the intent ends.

        If the DDL `may_be_done`, the intent stays open: only it holds the structure before the DDL.
        """
        values: dict[str, Any] = {"error": error, "state": LockState.FAILED}
        with self._db.transaction() as db:
            db.update(LOCK, values if may_be_done else values | {"started_at": None}, lock_id=lock.id)
            if not may_be_done:
                _finish(db, lock.id, "refused", error)

    def resolve(self, lock: DdlLock, outcome: Outcome) -> None:
        """Resolve an executed or skipped lock: queue heads, pending skips of other shards, history; idempotent."""
        with self._db.transaction() as db:
            row = db.one(LOCK, lock_id=lock.id, lock=True)
            if row.state == LockState.RESOLVED:
                return
            members = read_shards(db, target=lock.target)
            lock = _lock(row, read_exempted(db).get(lock.id, frozenset()))
            what = resolution(members, lock, read_pending_skips(db))
            done = Outcome.SKIPPED if outcome is Outcome.SKIPPED else Outcome.EXECUTED
            for heads in in_portions(what.resolved):
                _resolve_entries(db, heads, row, done)
            member = {"lock_id": lock.id, "state": RESOLVED, "updated_at": tables.NOW}
            db.insert_all(MEMBER, [{**member, "shard": shard, "seq": seq} for shard, seq in what.resolved])
            reached = {state.shard: state.queue[0].seq for state in members if state.shard in what.parted}
            add_pending_skip(db, what.skipping, (lock.id,), reached)
            _finish(db, lock.id, outcome, None)
            values = {"state": LockState.RESOLVED, "resolved_at": tables.NOW, "error": None, "outcome": outcome}
            db.update(LOCK, values, lock_id=lock.id)


def refuse_replaced(db: TaskWriter, plan: Plan) -> None:
    """Raise TargetIsReplaced if a shard joins a target for which such a statement of another source is begun."""
    joined = {change.target for change in plan.structures if change.joins}
    if not joined:
        return
    named = or_(*(matches(LOCK, {"target": target}) for target in joined))
    for row in db.select(LOCK, UNRESOLVED, named, lock=True):
        entry = read_stored(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}")
        if _is_whole(entry) and row.started_at is not None and entry.shard.source != plan.source:
            raise TargetIsReplaced(str(entry.target), row.lock_id, entry.routed)


def _is_whole(entry: QueueEntry) -> bool:
    return entry.whole not in (WholeChange.NONE, WholeChange.CREATE)


def _is_written(db: TaskReader, target: TableId, source: str) -> bool:
    """Whether a window of another source that may write the target is open."""
    is_open = exists().where(are_same(WINDOW, FENCE, "source"), WINDOW.c.state == tables.PLANNED)
    return db.has(FENCE, FENCE.c.source != source, is_open, target=target)


def _is_still(db: TaskWriter, shard: Shard, shard_uid: str) -> bool:
    """Lock the shard and return whether it still has this name; it may have been renamed."""
    return db.has(SHARD, shard=shard, shard_uid=shard_uid, lock=True)


def _refuse_changing(db: TaskWriter, target: TableId, join_version: int) -> None:
    """Raise if a target in optimistic mode is not as it was read; lock it against changes by the coordinator."""
    version = db.value(JOIN_TARGET, JOIN_TARGET.c.version, target=target, lock=True) or 0
    if version != join_version or (version and db.has(JOIN_CHANGE, target=target, done_at=None, lock=True)):
        raise TargetBeingChanged(str(target))


def _unchanged(db: TaskWriter, lock: DdlLock) -> DdlLock | None:
    """Lock the row of a lock; None if it was resolved or changed by a command since it was read."""
    found = _lock(db.one(LOCK, lock_id=lock.id, lock=True))
    is_same = (found.verdict, found.replacement, found.done) == (lock.verdict, lock.replacement, lock.done)
    return found if is_same and found.state is not LockState.RESOLVED else None


def _resolve_entries(db: TaskWriter, heads: Sequence[tuple[Shard, int]], lock: AnyRow, outcome: Outcome) -> None:
    named = (matches(SHARD_DDL, {"shard": shard, "seq": seq}) for shard, seq in heads)
    values = {"state": EntryState.RESOLVED, "outcome": outcome, "lock_id": lock.lock_id, "resolved_at": tables.NOW}
    which = or_(false(), *named)
    db.update(SHARD_DDL, values, which, state=EntryState.PENDING)
    if lock.decision == OperatorDecision.REPLACE:
        # The columns of the shards have the names that the statements of the lock give them.
        is_known = (SHARD_DDL.c.before_digest != "") & (SHARD_DDL.c.after_digest != "")
        answer = {"decision": lock.decision, "replacement": lock.replacement, "unnamed": is_known}
        db.update(SHARD_DDL, answer, which, decision=OperatorDecision.NONE)


def _finish(db: TaskWriter, lock: str, outcome: str, error: str | None) -> None:
    db.update(HISTORY, {"done_at": tables.NOW, "outcome": outcome, "error": error}, lock_id=lock, done_at=None)


def _lock(row: AnyRow, exempted: frozenset[Shard] = frozenset()) -> DdlLock:
    replacement = replacement_of(row, f"lock {row.lock_id}")
    entry = read_stored(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}")
    return DDL_LOCK.of(row, entry=entry, replacement=replacement, exempted=exempted)
