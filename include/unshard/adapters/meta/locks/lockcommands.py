"""Operator commands about locks. Each one is a transaction that makes its change and records it, or changes nothing.

A command requires the lock in the state that the operator saw; otherwise it is rejected or does nothing. The
coordinator acts on the change. A dropped shard keeps its queue and held rows until the next window of its source,
because a running window may still read the files.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, case, delete, insert, or_, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.locks.pendingskips import PENDING_SKIP, SETTLED, WAIVED
from unshard.adapters.meta.parts import WritingPart
from unshard.adapters.meta.rows import AnyRow, matches, shard_columns, verdict_columns
from unshard.adapters.meta.tasks.actions import LONGEST_NAME, UNNAMED, record
from unshard.core.ddl.lock import DdlLock, LockState
from unshard.core.ddl.lockcommands import IssuedCommand
from unshard.core.ddl.queue import EntryState, OperatorDecision, QueueEntry
from unshard.core.model import Shard
from unshard.errors.locks import LockBegun

DDL_LOCK, DDL_LOCK_MEMBER, OPERATOR_ACTION, SHARD_DDL, SHARD = (
    tables.ddl_lock,
    tables.ddl_lock_member,
    tables.operator_action,
    tables.shard_ddl,
    tables.shard,
)
DDL_HISTORY, HELD_ROWS, SUSPENDED_TARGET = tables.ddl_history, tables.held_rows, tables.suspended_target


class LockCommands(WritingPart):
    """Commands about locks, recorded in `operator_action`; every method returns whether it has changed anything."""

    def force(
        self, lock: str, owner: str | None, order: IssuedCommand, counted: Sequence[tuple[QueueEntry, QueueEntry]] = ()
    ) -> bool:
        """Unlock: the lock waits for no more shards; also after the target has rejected the DDL.

        `owner` replaces the present owner unless that one has started. `counted` are DDLs of shards in conflict, each
        with the entry that counts as the lock's DDL; an entry that is no longer the same is not changed.
        """
        is_new = or_(DDL_LOCK.c.forced == 0, DDL_LOCK.c.error.is_not(None))
        values: dict[str, Any] = {"forced": True, "error": None}
        if owner is not None:
            is_new = or_(is_new, DDL_LOCK.c.owner.is_distinct_from(owner) & DDL_LOCK.c.started_at.is_(None))
            values["owner"] = case((DDL_LOCK.c.started_at.is_(None), owner), else_=DDL_LOCK.c.owner)
        where = self._is(lock), is_new, DDL_LOCK.c.state != LockState.RESOLVED.value
        with self._database.transaction() as connection:
            changed = bool(connection.execute(update(DDL_LOCK).where(*where).values(values)).rowcount)
            row = connection.execute(select(DDL_LOCK).where(self._is(lock)).with_for_update()).one()
            is_open = row.state != LockState.RESOLVED.value and (row.started_at is None or row.error is not None)
            for entry, made in counted if is_open else ():
                changed = self._change(connection, entry, _replaced(made)) or changed
            self._record(connection, lock, order, changed)
        return changed

    def decide(self, lock: str, verdict: OperatorDecision, statements: tuple[str, ...], order: IssuedCommand) -> bool:
        """Skip or replace the DDL of all shards; LockBegun if the target may have it. The caller holds the guard."""
        decided = verdict_columns(verdict, statements)
        with self._database.transaction() as connection:
            row = self._open(connection, lock)
            if row is None or ((row.decision, row.replacement) == tuple(decided.values()) and row.error is None):
                return False
            is_again = (row.decision, row.replacement) == tuple(decided.values())
            values = {**decided, "error": None, "started_at": None, "done": row.done if is_again else 0}
            connection.execute(update(DDL_LOCK).where(self._is(lock)).values(values))
            given_up = {"done_at": tables.NOW, "outcome": "given up"}
            intent = DDL_HISTORY.c.task == self._task, DDL_HISTORY.c.lock_id == lock, DDL_HISTORY.c.done_at.is_(None)
            connection.execute(update(DDL_HISTORY).where(*intent).values(given_up))
            self._record(connection, lock, order)
        return True

    def skip_head(self, lock: DdlLock, entry: QueueEntry, order: IssuedCommand) -> bool:
        """Resolve a shard's DDL without executing it; if it is the lock's DDL, exempt the shard from the lock."""
        is_ours = entry.fingerprint == lock.fingerprint
        done = {
            "state": EntryState.RESOLVED.value,
            "outcome": "skipped",
            "resolved_at": tables.NOW,
            "lock_id": lock.id if is_ours else None,
            **verdict_columns(OperatorDecision.SKIP),
        }
        with self._database.transaction() as connection:
            if self._open(connection, lock.id, begun=True) is None or not self._change(connection, entry, done):
                return False
            if is_ours:
                self._exempt(connection, lock.id, entry.shard, SETTLED, entry.seq)
            self._record(connection, lock.id, order)
        return True

    def exempt(self, lock: str, shard: Shard, order: IssuedCommand) -> bool:
        """Exempt a shard that has not reached the DDL; it gets a pending skip."""
        with self._database.transaction() as connection:
            if self._open(connection, lock, begun=True) is None:
                return False
            changed = self._exempt(connection, lock, shard, PENDING_SKIP, None)
            self._record(connection, lock, order, changed)
        return changed

    def replace_head(self, lock: str, entry: QueueEntry, changed: QueueEntry, order: IssuedCommand) -> bool:
        """Replace a shard's DDL by statements if it is still `entry`; LockBegun if the target may have the DDL."""
        with self._database.transaction() as connection:
            if self._open(connection, lock) is None or not self._change(connection, entry, _replaced(changed)):
                return False
            self._record(connection, lock, order)
        return True

    def retry(self, lock: str, entries: Sequence[QueueEntry], order: IssuedCommand) -> bool:
        """Delete the target's error about a lock's DDL; LockBegun if the target may have the DDL."""
        with self._database.transaction() as connection:
            row = self._open(connection, lock)
            if row is None:
                return False
            changed = row.error is not None
            connection.execute(update(DDL_LOCK).where(self._is(lock)).values(error=None))
            for entry in entries:
                asked = {
                    "seq": entry.seq,
                    "state": EntryState.PENDING.value,
                    "after_digest": "",
                    "reason": entry.reason,
                    "decision": "",
                }
                mine = matches(SHARD_DDL, {"task": self._task, **shard_columns(entry.shard), **asked})
                changed = bool(connection.execute(update(SHARD_DDL).where(mine).values(reason="")).rowcount) or changed
            self._record(connection, lock, order, changed)
        return changed

    def drop_shard(self, lock: str, shard: Shard, order: IssuedCommand) -> bool:
        """Drop a shard from its group; waive its pending skips and lift the suspension of its target."""
        mine = {"task": self._task, **shard_columns(shard)}
        with self._database.transaction() as connection:
            dropped = update(SHARD).where(matches(SHARD, mine), SHARD.c.dropped == 0).values(dropped=True)
            changed = bool(connection.execute(dropped).rowcount)
            if changed:
                pending_skips = update(DDL_LOCK_MEMBER).where(matches(DDL_LOCK_MEMBER, {**mine, "state": PENDING_SKIP}))
                connection.execute(pending_skips.values(state=WAIVED, updated_at=tables.NOW))
                target = select(SHARD.c.target_schema, SHARD.c.target_table).where(matches(SHARD, mine))
                name = dict(connection.execute(target).one()._mapping)
                stopped = {"task": self._task, "source": shard.source, **name}
                connection.execute(update(SUSPENDED_TARGET).where(matches(SUSPENDED_TARGET, stopped)).values(is_open=0))
            self._record(connection, lock, order, changed)
        return changed

    def name(self, number: int, who: str) -> None:
        """Record who cleared the Airflow task that gave a command; a known name stays."""
        unnamed = {"task": self._task, "id": number, "who": UNNAMED}
        with self._database.transaction() as connection:
            connection.execute(
                update(OPERATOR_ACTION).where(matches(OPERATOR_ACTION, unnamed)).values(who=who[:LONGEST_NAME])
            )

    def _is(self, lock: str) -> Any:
        return matches(DDL_LOCK, {"task": self._task, "lock_id": lock})

    def _open(self, connection: Connection, lock: str, begun: bool = False) -> AnyRow | None:
        """Lock the row of a lock; None if it is resolved, LockBegun (unless `begun`) if the target may have the DDL."""
        row = connection.execute(select(DDL_LOCK).where(self._is(lock)).with_for_update()).one()
        if row.state == LockState.RESOLVED.value:
            return None
        if not begun and row.started_at is not None and row.error is None:
            raise LockBegun(lock)
        return row

    def _change(self, connection: Connection, entry: QueueEntry, values: Mapping[str, Any]) -> bool:
        same = {"seq": entry.seq, "state": EntryState.PENDING.value, "fingerprint": entry.fingerprint}
        key = {"task": self._task, **shard_columns(entry.shard), **same}
        return bool(connection.execute(update(SHARD_DDL).where(matches(SHARD_DDL, key)).values(values)).rowcount)

    def _exempt(self, connection: Connection, lock: str, shard: Shard, state: str, seq: int | None) -> bool:
        row = {
            "task": self._task,
            "lock_id": lock,
            **shard_columns(shard),
            "state": state,
            "seq": seq,
            "updated_at": tables.NOW,
        }
        return bool(connection.execute(insert(DDL_LOCK_MEMBER).prefix_with("IGNORE").values(row)).rowcount)

    def _record(self, connection: Connection, lock: str, order: IssuedCommand, changed: bool = True) -> None:
        if changed:
            record(connection, self._task, lock, order)


def _replaced(entry: QueueEntry) -> dict[str, Any]:
    return {
        "routed": entry.routed,
        "fingerprint": entry.fingerprint,
        "reason": "",
        **verdict_columns(OperatorDecision.REPLACE, entry.replacement),
        "unnamed": entry.is_unnamed,
    }


def drop_waiting(connection: Connection, task: str, shard: Shard) -> None:
    """Delete the queue and the held rows of a dropped shard, in the transaction of a window of its source."""
    mine = {"task": task, **shard_columns(shard)}
    if connection.scalar(select(SHARD.c.dropped).where(matches(SHARD, mine))):
        connection.execute(delete(HELD_ROWS).where(matches(HELD_ROWS, mine)))
        done = {"state": EntryState.RESOLVED.value, "outcome": "dropped", "resolved_at": tables.NOW}
        connection.execute(
            update(SHARD_DDL).where(matches(SHARD_DDL, {**mine, "state": EntryState.PENDING.value})).values(done)
        )
