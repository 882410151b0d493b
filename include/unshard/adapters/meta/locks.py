"""DDL locks: opened, executed and resolved, each by a conditional change.

The coordinator decides (core.ddllock); here each step is one transaction that finds the same state again
or changes nothing. While a DDL runs, the executor holds a row of `ddl_lock_guard`, not of `ddl_lock`, so
that looking at the locks never waits for a long DDL.
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
from unshard.adapters.meta.behind import Behind, locks_behind, owe_late, ran_by, read_behind
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.debts import RESOLVED, SETTLED, inherit, owe, read_debts, read_excused
from unshard.adapters.meta.orders import OperatorAction, actions
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
from unshard.adapters.meta.structures import read_shards
from unshard.core import codec
from unshard.core.ddllock import DdlLock, Debts, LockState, Outcome, Settlement, lock_id, resolution, void
from unshard.core.lineage import Ran
from unshard.core.model import Shard, TableId
from unshard.core.newcomers import Admission
from unshard.core.window import EntryState, QueueEntry, StructureChange, Verdict
from unshard.errors.shardddl import LockBusy, UnknownLock

K, G, M, H, Q, S = (tables.ddl_lock, tables.ddl_lock_guard, tables.ddl_lock_member, tables.ddl_history,
                    tables.shard_ddl, tables.shard)  # fmt: skip
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
    """executed, present (the structure was there already) or refused; None while it runs or after a death."""
    error: str | None


class Locks:
    """Rows of `ddl_lock`, its members, the history and the operators' orders."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def open(self) -> tuple[DdlLock, ...]:
        """Return the locks that are not resolved."""
        return self._select(K.c.state != LockState.RESOLVED.value)

    def all(self, resolved: int = 20) -> tuple[DdlLock, ...]:
        """Return the open locks and the newest resolved ones, the oldest first."""
        newest = select(K).where(K.c.task == self._task, K.c.state == LockState.RESOLVED.value)
        newest = newest.order_by(K.c.resolved_at.desc()).limit(resolved)
        with self._database.reading() as connection:
            done = tuple(map(_lock, connection.execute(newest)))
        return (*sorted(done, key=lambda lock: lock.seen_at), *self.open())

    def get(self, lock: str) -> DdlLock:
        """Return the lock of that id; UnknownLock if there is none."""
        found = self._select(K.c.lock_id == lock)
        if not found:
            raise UnknownLock(self._task, lock)
        return found[0]

    def owed(self) -> Debts:
        """Return the skips that shards owe, the oldest lock first."""
        with self._database.reading() as connection:
            return read_debts(connection, self._task)

    def behind(self, shards: Collection[Shard], changes: Iterable[StructureChange] = ()) -> Behind:
        """Return the DDL that the target has had and rows of these shards, some of them just joining, have not."""
        with self._database.reading() as connection:
            return read_behind(connection, self._task, shards, changes)

    def behind_at(self, target: TableId, structure: str) -> tuple[Ran, ...]:
        """Return the DDL that the target has had and a shard that was never seen, of that structure, has not."""
        with self._database.reading() as connection:
            return ran_by(connection, self._task, locks_behind(connection, self._task, target, structure))

    def owe_late(self, source: str) -> None:
        """Let the shards of a source that has just been snapshot owe the skips of what they have yet to run."""
        with self._database.transaction() as connection:
            owe_late(connection, self._task, source)

    def create(self, target: TableId, entry: QueueEntry) -> None:
        """Open the next lock of a target; if another process has just done so or resolved the DDL, do nothing."""
        queued = {"task": self._task, **shard_columns(entry.shard), "seq": entry.seq}
        # Suppressed inside: the transaction would turn it into a coded error.
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
            connection.execute(insert(K).values(
                **key, **target_columns(target), number=number, state=LockState.WAITING.value, forced=False, done=0,
                entry=codec.dumps(entry), opened_at=datetime.fromtimestamp(entry.statement.timestamp, UTC),
                seen_at=tables.NOW, **verdict_columns(Verdict.NONE),
            ))  # fmt: skip

    def note(self, lock: DdlLock, state: LockState, owner: str | None) -> None:
        """Record where an open lock stands, for whoever looks; nothing depends on it but the owner."""
        if (lock.state, lock.owner) != (state, owner):
            self._change(lock.id, {"state": state.value, "owner": owner}, K.c.owner.is_not_distinct_from(lock.owner))

    def settle(self, settlement: Settlement) -> None:
        """Resolve a queue head as the skip that its shard owes; both rows change or none."""
        shard = shard_columns(settlement.shard)
        debt = {"task": self._task, "lock_id": settlement.lock, **shard, "state": "owed"}
        with self._database.transaction() as connection:
            if not self._is_still(connection, settlement.shard, settlement.born):
                return
            done = {"state": SETTLED, "seq": settlement.seq, "updated_at": tables.NOW}
            if connection.execute(update(M).where(matches(M, debt)).values(done)).rowcount:
                self._resolve_entries(
                    connection, [(settlement.shard, settlement.seq)], settlement.lock, Outcome.SKIPPED
                )
                self._say(connection, settlement)

    def admit(self, admission: Admission) -> None:
        """Resolve the DDL of one shard alone, which has become like a peer, and let it owe what the peer owes."""
        key = {"task": self._task, **shard_columns(admission.shard), "seq": admission.seq}
        done = {"state": EntryState.RESOLVED.value, "outcome": "admitted", "resolved_at": tables.NOW}
        pending = Q.c.state == EntryState.PENDING.value
        with self._database.transaction() as connection:
            if not (self._is_still(connection, admission.shard, admission.born)
                    and self._is_still(connection, admission.peer, admission.peer_born)):  # fmt: skip
                return
            if connection.execute(update(Q).where(matches(Q, key), pending).values(done)).rowcount:
                inherit(connection, self._task, admission.shard, admission.peer)

    def withdraw(self, lock: DdlLock) -> None:
        """Resolve a lock whose DDL no shard brings any more, without executing it."""
        values = {"state": LockState.RESOLVED.value, "outcome": Outcome.WITHDRAWN.value, "resolved_at": tables.NOW}
        where = *self._is(lock.id), K.c.state != LockState.RESOLVED.value, K.c.started_at.is_(None)
        with self._database.transaction() as connection:
            if connection.execute(update(K).where(*where, K.c.decision != Verdict.SKIP.value).values(values)).rowcount:
                members = read_shards(connection, self._task, target=lock.target)
                for shard in void(members, lock, read_debts(connection, self._task)):
                    debt = {"task": self._task, "lock_id": lock.id, **shard_columns(shard)}
                    connection.execute(delete(M).where(matches(M, debt)))

    @contextlib.contextmanager
    def exclusive(self, lock: str) -> Iterator[None]:
        """Be the only executor of a lock; LockBusy if another process is. Ends with the process."""
        query = select(G).where(G.c.task == self._task, G.c.lock_id == lock).with_for_update(nowait=True)
        with self._database.transaction() as connection:
            try:
                connection.execute(query).one()
            except OperationalError as error:
                if isinstance(error.orig, pymysql.err.OperationalError) and error.orig.args[0] in LOCKED:
                    raise LockBusy(lock) from error
                raise
            yield

    def start(self, lock: DdlLock, source: str, entry: QueueEntry) -> bool:
        """Write the intent of the lock's next statement or take up one that a death left open.

        False if the lock was resolved or ordered otherwise meanwhile.
        """
        row = {"task": self._task, "lock_id": lock.id, "source": source, "ddl": entry.routed,
               "before_digest": entry.before, "wanted_digest": entry.after, "sql_mode": entry.statement.sql_mode,
               "started_at": tables.NOW}  # fmt: skip
        with self._database.transaction() as connection:
            found = _lock(connection.execute(select(K).where(*self._is(lock.id)).with_for_update()).one())
            if found.state is LockState.RESOLVED or _script(found) != _script(lock):
                return False
            begun: dict[str, Any] = {"owner": func.coalesce(K.c.owner, source), "error": None}
            begun |= {"started_at": tables.NOW} if found.started_at is None else {}
            connection.execute(update(K).where(*self._is(lock.id)).values(begun))
            intent = select(H.c.id).where(H.c.task == self._task, H.c.lock_id == lock.id, H.c.done_at.is_(None))
            if connection.execute(intent).first() is None:
                connection.execute(insert(H).values(row))
        return True

    def advance(self, lock: DdlLock, outcome: Outcome) -> None:
        """Note that the target has the lock's next statement, and that others follow; idempotent."""
        with self._database.transaction() as connection:
            moved = update(K).where(*self._is(lock.id), K.c.done == lock.done).values(done=lock.done + 1)
            if connection.execute(moved).rowcount:
                self._finish(connection, lock.id, outcome.value, None)

    def fail(self, lock: DdlLock, error: str, *, may_be_done: bool = False) -> None:
        """Record that the target refused the DDL; it has changed nothing, so the intent ends.

        An intent whose DDL `may_be_done` stays open: it alone knows what the table was before.
        """
        values: dict[str, Any] = {"error": error, "state": LockState.FAILED.value}
        with self._database.transaction() as connection:
            if may_be_done:
                connection.execute(update(K).where(*self._is(lock.id)).values(values))
                return
            connection.execute(update(K).where(*self._is(lock.id)).values(values | {"started_at": None}))
            self._finish(connection, lock.id, "refused", error)

    def resolve(self, lock: DdlLock, outcome: Outcome) -> None:
        """Resolve a lock that was executed or skipped: its shards' heads, the others' debts, history; idempotent."""
        with self._database.transaction() as connection:
            row = connection.execute(select(K).where(*self._is(lock.id)).with_for_update()).one()
            if row.state == LockState.RESOLVED.value:
                return
            members = read_shards(connection, self._task, target=lock.target)
            lock = _lock(row, read_excused(connection, self._task).get(lock.id, frozenset()))
            what = resolution(members, lock, read_debts(connection, self._task))
            done = Outcome.SKIPPED if outcome is Outcome.SKIPPED else Outcome.EXECUTED
            for heads in in_portions(what.resolved):
                self._resolve_entries(connection, heads, lock.id, done)
                member = {"task": self._task, "lock_id": lock.id, "state": RESOLVED, "updated_at": tables.NOW}
                rows = [{**member, **shard_columns(shard), "seq": seq} for shard, seq in heads]
                connection.execute(insert(M).values(rows))
            owe(connection, self._task, what.owing, (lock.id,))
            self._finish(connection, lock.id, outcome.value, None)
            values = {"state": LockState.RESOLVED.value, "resolved_at": tables.NOW, "error": None}
            connection.execute(update(K).where(*self._is(lock.id)).values(**values, outcome=outcome.value))

    def executions(self, lock: str | None = None, newest: int | None = None) -> tuple[Execution, ...]:
        """Return the history of one lock or of all, or the newest of it, the oldest first."""
        query = select(H).where(H.c.task == self._task).order_by(H.c.id.desc()).limit(newest)
        query = query.where(H.c.lock_id == lock) if lock else query
        with self._database.reading() as connection:
            found = tuple(
                Execution(row.lock_id, row.source, row.ddl, row.before_digest, row.wanted_digest, row.started_at,
                          row.done_at, row.outcome, row.error)
                for row in connection.execute(query)
            )  # fmt: skip
        return found[::-1]

    def actions(self, lock: str | None = None, newest: int | None = None) -> tuple[OperatorAction, ...]:
        """Return the operators' orders to one lock or to all, or the newest of them, the oldest first."""
        with self._database.reading() as connection:
            return actions(connection, self._task, lock, newest)

    def _is_still(self, connection: Connection, shard: Shard, born: str) -> bool:
        """Whether the name still is that shard's, until the transaction ends: it may have been renamed meanwhile."""
        same = matches(S, {"task": self._task, **shard_columns(shard), "born": born})
        return connection.execute(select(S.c.born).where(same).with_for_update()).first() is not None

    def _select(self, condition: Any) -> tuple[DdlLock, ...]:
        """Return locks with the shards that are excused from them while they are open, in one statement."""
        is_excused = and_(M.c.task == K.c.task, M.c.lock_id == K.c.lock_id, K.c.state != LockState.RESOLVED.value)
        shard = (M.c[name].label(f"excused_{name}") for name in ("source", "shard_schema", "shard_table"))
        query = select(K, *shard).outerjoin(M, is_excused).where(K.c.task == self._task, condition)
        rows: dict[str, AnyRow] = {}
        excused: dict[str, set[Shard]] = defaultdict(set)
        with self._database.reading() as connection:
            for row in connection.execute(query.order_by(K.c.seen_at, K.c.lock_id)):
                rows.setdefault(row.lock_id, row)
                if row.excused_source is not None:
                    table = TableId(row.excused_shard_schema, row.excused_shard_table)
                    excused[row.lock_id].add(Shard(row.excused_source, table))
        return tuple(_lock(row, frozenset(excused[lock])) for lock, row in rows.items())

    def _change(self, lock: str, values: dict[str, Any], still: ColumnElement[bool]) -> None:
        where = *self._is(lock), K.c.state != LockState.RESOLVED.value, still
        with self._database.single() as connection:
            connection.execute(update(K).where(*where).values(values))

    def _is(self, lock: str) -> tuple[Any, ...]:
        return K.c.task == self._task, K.c.lock_id == lock

    def _say(self, connection: Connection, settlement: Settlement) -> None:
        """Let an entry that an order has excused say so itself, where nothing was said about the lock's DDL."""
        row = connection.execute(select(K.c.decision, K.c.replacement).where(*self._is(settlement.lock))).one()
        key = {"task": self._task, **shard_columns(settlement.shard), "seq": settlement.seq, "after_digest": ""}
        said = {"decision": row.decision or Verdict.SKIP.value, "replacement": row.replacement}
        connection.execute(update(Q).where(matches(Q, key)).values(said))

    def _resolve_entries(self, connection: Connection, heads: Iterable[tuple[Shard, int]], lock: str,
                         outcome: Outcome) -> None:  # fmt: skip
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


def _lock(row: AnyRow, excused: frozenset[Shard] = frozenset()) -> DdlLock:
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
        verdict=Verdict(row.decision),
        replacement=replacement_of(row, f"lock {row.lock_id}"),
        done=row.done,
        outcome=Outcome(row.outcome) if row.outcome else None,
        excused=excused,
    )
