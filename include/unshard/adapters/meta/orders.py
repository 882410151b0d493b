"""Operators' orders: each is one transaction that changes what it orders and records it, or changes nothing.

An order finds the lock as it was when it was given, else it is refused or does nothing; what follows from it is the
coordinator's affair. A shard that is dropped keeps what waits of it until the next window of its source, because
a window in flight may still read the files.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, case, delete, insert, or_, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.debts import FORGIVEN, OWED, SETTLED
from unshard.adapters.meta.rows import AnyRow, matches, shard_columns, verdict_columns
from unshard.core.ddllock import DdlLock, LockState
from unshard.core.model import Shard
from unshard.core.orders import Cleared, Given
from unshard.core.window import EntryState, QueueEntry, Verdict
from unshard.errors.orders import LockBegun

K, M, A, Q, S = tables.ddl_lock, tables.ddl_lock_member, tables.operator_action, tables.shard_ddl, tables.shard
H, F, T = tables.ddl_history, tables.held_rows, tables.stopped_target

UNNAMED, CLEARED = "", "cleared"
"""In place of a name that is not known yet, and where the details say whose it is."""
LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """An order that a person gave to a lock."""

    number: int
    lock: str
    action: str
    who: str | Cleared
    via: str
    reason: str
    done_at: datetime
    details: Mapping[str, Any]
    """What the order said besides its lock: owner, shard, statements."""


class Orders:
    """Rows of `operator_action` and what they change; every method says whether it has changed anything."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def force(self, lock: str, owner: str | None, order: Given) -> bool:
        """Let a lock go with the shards that have come, also after a refusal.

        An owner that is given takes the place of the present one, unless that has begun.
        """
        is_new = or_(K.c.forced == 0, K.c.error.is_not(None))
        values: dict[str, Any] = {"forced": True, "error": None}
        if owner is not None:
            is_new = or_(is_new, K.c.owner.is_distinct_from(owner) & K.c.started_at.is_(None))
            values["owner"] = case((K.c.started_at.is_(None), owner), else_=K.c.owner)
        where = self._is(lock), is_new, K.c.state != LockState.RESOLVED.value
        with self._database.transaction() as connection:
            changed = bool(connection.execute(update(K).where(*where).values(values)).rowcount)
            self._record(connection, lock, order, changed)
        return changed

    def decide(self, lock: str, verdict: Verdict, statements: tuple[str, ...], order: Given) -> bool:
        """Skip or replace the DDL of all shards; LockBegun if the target may have it. The caller holds the guard."""
        said = verdict_columns(verdict, statements)
        with self._database.transaction() as connection:
            row = self._open(connection, lock)
            if row is None or ((row.decision, row.replacement) == tuple(said.values()) and row.error is None):
                return False
            is_again = (row.decision, row.replacement) == tuple(said.values())
            values = {**said, "error": None, "started_at": None, "done": row.done if is_again else 0}
            connection.execute(update(K).where(self._is(lock)).values(values))
            given_up = {"done_at": tables.NOW, "outcome": "given up"}
            intent = H.c.task == self._task, H.c.lock_id == lock, H.c.done_at.is_(None)
            connection.execute(update(H).where(*intent).values(given_up))
            self._record(connection, lock, order)
        return True

    def skip_head(self, lock: DdlLock, entry: QueueEntry, order: Given) -> bool:
        """Resolve a shard's DDL without executing it; if it is the lock's, the shard is excused from the lock."""
        is_ours = entry.agreement == lock.agreement
        done = {"state": EntryState.RESOLVED.value, "outcome": "skipped", "resolved_at": tables.NOW,
                "lock_id": lock.id if is_ours else None, **verdict_columns(Verdict.SKIP)}  # fmt: skip
        with self._database.transaction() as connection:
            if self._open(connection, lock.id, begun=True) is None or not self._change(connection, entry, done):
                return False
            if is_ours:
                self._excuse(connection, lock.id, entry.shard, SETTLED, entry.seq)
            self._record(connection, lock.id, order)
        return True

    def excuse(self, lock: str, shard: Shard, order: Given) -> bool:
        """Let a shard that has reached no DDL owe the lock a skip; the lock does not wait for it."""
        with self._database.transaction() as connection:
            if self._open(connection, lock, begun=True) is None:
                return False
            changed = self._excuse(connection, lock, shard, OWED, None)
            self._record(connection, lock, order, changed)
        return changed

    def replace_head(self, lock: str, entry: QueueEntry, changed: QueueEntry, order: Given) -> bool:
        """Let statements count as a shard's DDL, if that still is `entry`; LockBegun if the target may have it."""
        values = {"routed": changed.routed, "agreement": changed.agreement, "reason": "",
                  **verdict_columns(Verdict.REPLACE, changed.replacement)}  # fmt: skip
        with self._database.transaction() as connection:
            if self._open(connection, lock) is None or not self._change(connection, entry, values):
                return False
            self._record(connection, lock, order)
        return True

    def retry(self, lock: str, entries: Sequence[QueueEntry], order: Given) -> bool:
        """Forget what the target has said about a lock's DDL; LockBegun if the target may have it."""
        with self._database.transaction() as connection:
            row = self._open(connection, lock)
            if row is None:
                return False
            changed = row.error is not None
            connection.execute(update(K).where(self._is(lock)).values(error=None))
            for entry in entries:
                asked = {"seq": entry.seq, "state": EntryState.PENDING.value, "after_digest": "",
                         "reason": entry.reason, "decision": ""}  # fmt: skip
                mine = matches(Q, {"task": self._task, **shard_columns(entry.shard), **asked})
                changed = bool(connection.execute(update(Q).where(mine).values(reason="")).rowcount) or changed
            self._record(connection, lock, order, changed)
        return changed

    def drop_shard(self, lock: str, shard: Shard, order: Given) -> bool:
        """Take a shard out of its group; it owes nothing any more, and a target that it may have stopped goes on."""
        mine = {"task": self._task, **shard_columns(shard)}
        with self._database.transaction() as connection:
            dropped = update(S).where(matches(S, mine), S.c.dropped == 0).values(dropped=True)
            changed = bool(connection.execute(dropped).rowcount)
            if changed:
                owed = update(M).where(matches(M, {**mine, "state": OWED}))
                connection.execute(owed.values(state=FORGIVEN, updated_at=tables.NOW))
                target = select(S.c.target_schema, S.c.target_table).where(matches(S, mine))
                name = dict(connection.execute(target).one()._mapping)
                stopped = {"task": self._task, "source": shard.source, **name}
                connection.execute(update(T).where(matches(T, stopped)).values(is_open=0))
            self._record(connection, lock, order, changed)
        return changed

    def name(self, number: int, who: str) -> None:
        """Record who cleared the task that gave an order, found out afterwards; a name that is known stays."""
        unnamed = {"task": self._task, "id": number, "who": UNNAMED}
        with self._database.transaction() as connection:
            connection.execute(update(A).where(matches(A, unnamed)).values(who=who[:LONGEST_NAME]))

    def _is(self, lock: str) -> Any:
        return matches(K, {"task": self._task, "lock_id": lock})

    def _open(self, connection: Connection, lock: str, begun: bool = False) -> AnyRow | None:
        """Lock the lock's row; None if it is resolved, LockBegun if that matters and the target may have its DDL."""
        row = connection.execute(select(K).where(self._is(lock)).with_for_update()).one()
        if row.state == LockState.RESOLVED.value:
            return None
        if not begun and row.started_at is not None and row.error is None:
            raise LockBegun(lock)
        return row

    def _change(self, connection: Connection, entry: QueueEntry, values: Mapping[str, Any]) -> bool:
        same = {"seq": entry.seq, "state": EntryState.PENDING.value, "agreement": entry.agreement}
        key = {"task": self._task, **shard_columns(entry.shard), **same}
        return bool(connection.execute(update(Q).where(matches(Q, key)).values(values)).rowcount)

    def _excuse(self, connection: Connection, lock: str, shard: Shard, state: str, seq: int | None) -> bool:
        row = {"task": self._task, "lock_id": lock, **shard_columns(shard), "state": state, "seq": seq,
               "updated_at": tables.NOW}  # fmt: skip
        return bool(connection.execute(insert(M).prefix_with("IGNORE").values(row)).rowcount)

    def _record(self, connection: Connection, lock: str, order: Given, changed: bool = True) -> None:
        if changed:
            record(connection, self._task, lock, order)


def record(connection: Connection, task: str, lock: str, order: Given) -> int:
    """Record an order, to a lock or to none (''); return its number."""
    return int(connection.execute(insert(A).values({"task": task, "lock_id": lock, **recorded(order)})).lastrowid)


def recorded(order: Given) -> dict[str, Any]:
    """Return the columns of an order in the record."""
    who, details = (order.by, order.details) if isinstance(order.by, str) else (UNNAMED, _unnamed(order, order.by))
    return {"action": order.action, "who": who[:LONGEST_NAME], "via": order.via, "reason": order.reason,
            "details": json.dumps(details, ensure_ascii=False), "done_at": tables.NOW}  # fmt: skip


def actions(connection: Connection, task: str, lock: str | None, newest: int | None) -> tuple[OperatorAction, ...]:
    """Read the operators' orders to one lock or to all, or the newest of them, the oldest first."""
    query = select(A).where(A.c.task == task).order_by(A.c.id.desc()).limit(newest)
    rows = connection.execute(query.where(A.c.lock_id == lock) if lock else query)
    return tuple(map(_action, rows))[::-1]


def _action(row: AnyRow) -> OperatorAction:
    details = json.loads(row.details)
    cleared = details.pop(CLEARED, None)
    who = Cleared(**cleared) if cleared and row.who == UNNAMED else row.who
    return OperatorAction(row.id, row.lock_id, row.action, who, row.via, row.reason, row.done_at, details)


def _unnamed(order: Given, cleared: Cleared) -> dict[str, Any]:
    return {**order.details, CLEARED: asdict(cleared)}


def drop_waiting(connection: Connection, task: str, shard: Shard) -> None:
    """Drop the DDL and the held rows of a shard that was dropped, in the transaction of its source's window."""
    mine = {"task": task, **shard_columns(shard)}
    if connection.scalar(select(S.c.dropped).where(matches(S, mine))):
        connection.execute(delete(F).where(matches(F, mine)))
        done = {"state": EntryState.RESOLVED.value, "outcome": "dropped", "resolved_at": tables.NOW}
        connection.execute(update(Q).where(matches(Q, {**mine, "state": EntryState.PENDING.value})).values(done))
