"""Operator commands: the record of all, those about locks, and those about single statements.

Each command about a lock is a transaction that makes its change and records it, or changes nothing. It requires the
lock in the state that the operator saw; otherwise it is rejected or does nothing. The coordinator acts on the change. A
dropped shard keeps its queue and held rows until the next window of its source, because a running window may still read
the files.

Adding and reverting a command about a statement locks the source; a window's commit uses the command:

| when the command comes                   | what happens                                                          |
|------------------------------------------|-----------------------------------------------------------------------|
| before a window is planned               | the plan applies it                                                   |
| between its planning and its beginning   | the window does not begin and is planned again                        |
| after it has begun                       | rejected if the window has the statement, else it waits for a later one |
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import and_, case, or_, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import Records
from unshard.adapters.meta.gateway import AnyRow, TaskReader, TaskWriter
from unshard.adapters.meta.pendingskips import PENDING_SKIP, SETTLED, WAIVED
from unshard.adapters.meta.rowvalues import (
    Persisted,
    location_columns,
    location_of,
    read_stored,
    target_of,
    verdict_columns,
)
from unshard.adapters.meta.sourcerecords import lock_source
from unshard.core import codec
from unshard.core.ddl.issuedcommands import Cleared, IssuedCommand
from unshard.core.ddl.lock import DdlLock, LockState
from unshard.core.ddl.queue import EntryState, OperatorDecision, QueueEntry
from unshard.core.ddl.statementcommands import CommandKind, StatementCommand, StatementPlace
from unshard.core.model import Location, Shard
from unshard.core.window.plan import Plan
from unshard.errors.locks import CommandsChanged, CommandSpent, CommandTaken, LockBegun

OPERATOR_ACTION, STATEMENT_COMMAND, WINDOW = tables.operator_action, tables.statement_command, tables.window
DDL_LOCK, DDL_LOCK_MEMBER, DDL_HISTORY = tables.ddl_lock, tables.ddl_lock_member, tables.ddl_history
SHARD, SHARD_DDL, HELD_ROWS, SUSPENDED_TARGET = (
    tables.shard,
    tables.shard_ddl,
    tables.held_rows,
    tables.suspended_target,
)
LONGEST_NAME = 255
UNNAMED, CLEARED = "", "cleared"
"""UNNAMED replaces a name that is not known yet; CLEARED is the key of the details that identify it."""
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """A command that a person gave."""

    number: int
    lock: str
    action: str
    who: str | Cleared
    via: str
    reason: str
    done_at: datetime
    details: Mapping[str, Any]
    """The arguments of the command besides its lock: owner, shard, statements."""


class CommandState(StrEnum):
    """The state of a command about a statement."""

    WAITING = "waiting"
    USED = "used"
    REVERTED = "reverted"


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A command about a statement with its record."""

    command: StatementCommand
    state: CommandState
    who: str
    via: str
    reason: str
    given_at: datetime
    ended_at: datetime | None
    """When it was used or reverted."""
    window: int | None
    """The window that has used it."""
    met: Location | None
    """Location of the statement."""
    text: str
    """The statement without its string literals; empty until a window has found it."""


COMMAND_RECORD = Persisted(CommandRecord, "command", met="matched_", text="matched_text")


class LockCommands(Records):
    """Commands about locks, recorded in `operator_action`; every method returns whether it has changed anything."""

    def force(
        self,
        lock: str,
        owner: str | None,
        command: IssuedCommand,
        counted: Sequence[tuple[QueueEntry, QueueEntry]] = (),
    ) -> bool:
        """Unlock: the lock waits for no more shards; also after the target has rejected the DDL.

        `owner` replaces the present owner unless that one has started. `counted` are DDLs of shards in conflict, each
        with the entry that counts as the lock's DDL; an entry that is no longer the same is not changed.
        """
        c = DDL_LOCK.c
        is_new = or_(c.forced == 0, c.error.is_not(None))
        values: dict[str, Any] = {"forced": True, "error": None}
        if owner is not None:
            is_new = or_(is_new, c.owner.is_distinct_from(owner) & c.started_at.is_(None))
            values["owner"] = case((c.started_at.is_(None), owner), else_=c.owner)
        with self._db.transaction() as db:
            changed = bool(db.update(DDL_LOCK, values, is_new, c.state != LockState.RESOLVED, lock_id=lock))
            row = db.one(DDL_LOCK, lock_id=lock, lock=True)
            is_open = row.state != LockState.RESOLVED and (row.started_at is None or row.error is not None)
            for entry, made in counted if is_open else ():
                changed = _change(db, entry, _replaced(made)) or changed
            if changed:
                record_command(db, lock, command)
        return changed

    def decide(self, lock: str, verdict: OperatorDecision, statements: tuple[str, ...], command: IssuedCommand) -> bool:
        """Skip or replace the DDL of all shards; LockBegun if the target may have it. The caller holds the guard."""
        decided = verdict_columns(verdict, statements)
        with self._db.transaction() as db:
            row = _open(db, lock)
            if row is None:
                return False
            is_again = (row.decision, row.replacement) == tuple(decided.values())
            if is_again and row.error is None:
                return False
            begun = {"error": None, "started_at": None, "done": row.done if is_again else 0}
            db.update(DDL_LOCK, {**decided, **begun}, lock_id=lock)
            db.update(DDL_HISTORY, {"done_at": tables.NOW, "outcome": "given up"}, lock_id=lock, done_at=None)
            record_command(db, lock, command)
        return True

    def skip_head(self, lock: DdlLock, entry: QueueEntry, command: IssuedCommand) -> bool:
        """Resolve a shard's DDL without executing it; if it is the lock's DDL, exempt the shard from the lock."""
        is_ours = entry.fingerprint == lock.fingerprint
        done = {
            "state": EntryState.RESOLVED,
            "outcome": "skipped",
            "resolved_at": tables.NOW,
            "lock_id": lock.id if is_ours else None,
            **verdict_columns(OperatorDecision.SKIP),
        }
        with self._db.transaction() as db:
            if _open(db, lock.id, begun=True) is None or not _change(db, entry, done):
                return False
            if is_ours:
                _exempt(db, lock.id, entry.shard, SETTLED, entry.seq)
            record_command(db, lock.id, command)
        return True

    def exempt(self, lock: str, shard: Shard, command: IssuedCommand) -> bool:
        """Exempt a shard that has not reached the DDL; it gets a pending skip."""
        with self._db.transaction() as db:
            if _open(db, lock, begun=True) is None or not _exempt(db, lock, shard, PENDING_SKIP, None):
                return False
            record_command(db, lock, command)
        return True

    def replace_head(self, lock: str, entry: QueueEntry, changed: QueueEntry, command: IssuedCommand) -> bool:
        """Replace a shard's DDL by statements if it is still `entry`; LockBegun if the target may have the DDL."""
        with self._db.transaction() as db:
            if _open(db, lock) is None or not _change(db, entry, _replaced(changed)):
                return False
            record_command(db, lock, command)
        return True

    def retry(self, lock: str, entries: Sequence[QueueEntry], command: IssuedCommand) -> bool:
        """Delete the target's error about a lock's DDL; LockBegun if the target may have the DDL."""
        with self._db.transaction() as db:
            row = _open(db, lock)
            if row is None:
                return False
            changed = row.error is not None
            db.update(DDL_LOCK, {"error": None}, lock_id=lock)
            for entry in entries:
                asked = {"seq": entry.seq, "state": EntryState.PENDING, "reason": entry.reason}
                asked |= {"after_digest": "", "decision": ""}
                changed = bool(db.update(SHARD_DDL, {"reason": ""}, shard=entry.shard, **asked)) or changed
            if changed:
                record_command(db, lock, command)
        return changed

    def drop_shard(self, lock: str, shard: Shard, command: IssuedCommand) -> bool:
        """Drop a shard from its group; waive its pending skips and lift the suspension of its target."""
        with self._db.transaction() as db:
            if not db.update(SHARD, {"dropped": True}, shard=shard, dropped=0):
                return False
            waived = {"state": WAIVED, "updated_at": tables.NOW}
            db.update(DDL_LOCK_MEMBER, waived, shard=shard, state=PENDING_SKIP)
            target = target_of(db.one(SHARD, shard=shard))
            db.update(SUSPENDED_TARGET, {"is_open": 0}, source=shard.source, target=target)
            record_command(db, lock, command)
        return True

    def name(self, number: int, who: str) -> None:
        """Record who cleared the Airflow task that gave a command; a known name stays."""
        with self._db.transaction() as db:
            db.update(OPERATOR_ACTION, {"who": who[:LONGEST_NAME]}, id=number, who=UNNAMED)


class StatementCommands(Records):
    """Rows of `statement_command`."""

    def waiting(self, source: str) -> tuple[StatementCommand, ...]:
        return _waiting(self._db, source)

    def all(self) -> tuple[CommandRecord, ...]:
        action = OPERATOR_ACTION.c
        both = and_(action.task == STATEMENT_COMMAND.c.task, action.id == STATEMENT_COMMAND.c.action)
        columns = action.who, action.via, action.reason, action.done_at.label("given_at")
        query = select(STATEMENT_COMMAND, *columns).join(OPERATOR_ACTION, both)
        query = query.where(self._db.mine(STATEMENT_COMMAND)).order_by(STATEMENT_COMMAND.c.id)
        return tuple(map(_record, self._db.fetch(query)))

    def add(
        self, place: StatementPlace, kind: CommandKind, statements: Sequence[str], command: IssuedCommand, check: Check
    ) -> bool:
        """Store a command; return False if the same one already waits. `check` raises if the command comes too late."""
        row = {
            "source": place.source,
            "gtid": place.gtid,
            "kind": kind,
            **location_columns(place.at),
            "statements": codec.dumps(tuple(statements)),
            "state": CommandState.WAITING,
            "matched_text": "",
        }
        with self._db.transaction() as db:
            lock_source(db, place.source)
            check()
            for known in _waiting(db, place.source):
                if known.place == place:
                    if (known.kind, known.statements) != (kind, tuple(statements)):
                        raise CommandTaken(str(place), known.number, known.kind)
                    return False
            db.insert(STATEMENT_COMMAND, {**row, "action": record_command(db, "", command)})
        return True

    def revert(self, number: int, command: IssuedCommand) -> bool:
        """Revert a waiting command; return False if it was reverted. CommandSpent if a window has its statement."""
        with self._db.transaction() as db:
            row = db.row(STATEMENT_COMMAND, id=number)
            if row is None:
                raise CommandSpent(f"command {number}", "it does not exist")
            lock_source(db, row.source)
            state = db.value(STATEMENT_COMMAND, STATEMENT_COMMAND.c.state, id=number, lock=True)
            if state == CommandState.REVERTED:
                return False
            if state != CommandState.WAITING or _is_applied(db, row.source, number):
                raise CommandSpent(f"command {number}", "a window has its statement")
            db.update(STATEMENT_COMMAND, {"state": CommandState.REVERTED, "ended_at": tables.NOW}, id=number)
            record_command(db, "", command)
        return True


def record_command(db: TaskWriter, lock: str, command: IssuedCommand) -> int:
    """Record a command about a lock or, with '', about none; return its number."""
    if isinstance(command.by, Cleared):
        who, details = UNNAMED, {**command.details, CLEARED: asdict(command.by)}
    else:
        who, details = command.by, {**command.details}
    row = {
        "lock_id": lock,
        "action": command.action,
        "who": who[:LONGEST_NAME],
        "via": command.via,
        "reason": command.reason,
        "details": json.dumps(details, ensure_ascii=False),
        "done_at": tables.NOW,
    }
    return db.insert(OPERATOR_ACTION, row)


def actions(db: TaskReader, lock: str | None, newest: int | None) -> tuple[OperatorAction, ...]:
    """Read the commands about one lock or about all, or the newest ones, oldest first."""
    of_lock: dict[str, Any] = {"lock_id": lock} if lock else {}
    rows = db.select(OPERATOR_ACTION, order=OPERATOR_ACTION.c.id.desc(), limit=newest, **of_lock)
    return tuple(map(_action, rows))[::-1]


def require_known(db: TaskReader, plan: Plan) -> None:
    """Raise CommandsChanged unless the plan was made with the commands that wait; the caller has locked the source."""
    if {command.number for command in _waiting(db, plan.source)} != set(plan.orders):
        raise CommandsChanged(plan.source)


def use(db: TaskWriter, plan: Plan) -> None:
    """Record the commands that a window has used, in its commit."""
    for met in plan.applied_commands:
        used = {
            "state": CommandState.USED,
            "window": plan.number,
            **location_columns(met.location, "matched_"),
            "matched_text": met.text,
            "ended_at": tables.NOW,
        }
        db.update(STATEMENT_COMMAND, used, id=met.number)


def drop_waiting(db: TaskWriter, shard: Shard) -> None:
    """Delete the queue and the held rows of a dropped shard, in the transaction of a window of its source."""
    if db.value(SHARD, SHARD.c.dropped, shard=shard):
        db.delete(HELD_ROWS, shard=shard)
        done = {"state": EntryState.RESOLVED, "outcome": "dropped", "resolved_at": tables.NOW}
        db.update(SHARD_DDL, done, shard=shard, state=EntryState.PENDING)


def _open(db: TaskWriter, lock: str, begun: bool = False) -> AnyRow | None:
    """Lock the row of a lock; None if it is resolved, LockBegun (unless `begun`) if the target may have the DDL."""
    row = db.one(DDL_LOCK, lock_id=lock, lock=True)
    if row.state == LockState.RESOLVED:
        return None
    if not begun and row.started_at is not None and row.error is None:
        raise LockBegun(lock)
    return row


def _change(db: TaskWriter, entry: QueueEntry, values: Mapping[str, Any]) -> bool:
    same = {"seq": entry.seq, "state": EntryState.PENDING, "fingerprint": entry.fingerprint}
    return bool(db.update(SHARD_DDL, values, shard=entry.shard, **same))


def _exempt(db: TaskWriter, lock: str, shard: Shard, state: str, seq: int | None) -> bool:
    row = {"lock_id": lock, "shard": shard, "state": state, "seq": seq, "updated_at": tables.NOW}
    return db.add(DDL_LOCK_MEMBER, row)


def _replaced(entry: QueueEntry) -> dict[str, Any]:
    return {
        "routed": entry.routed,
        "fingerprint": entry.fingerprint,
        "reason": "",
        **verdict_columns(OperatorDecision.REPLACE, entry.replacement),
        "unnamed": entry.is_unnamed,
    }


def _waiting(db: TaskReader, source: str) -> tuple[StatementCommand, ...]:
    state, order = CommandState.WAITING, STATEMENT_COMMAND.c.id
    return tuple(map(_statement_command, db.select(STATEMENT_COMMAND, source=source, state=state, order=order)))


def _is_applied(db: TaskReader, source: str, number: int) -> bool:
    text = db.value(WINDOW, WINDOW.c.plan, source=source, state=tables.PLANNED)
    plan = read_stored(Plan, text, f"the plan of the open window of {source}") if text else None
    return plan is not None and any(met.number == number for met in plan.applied_commands)


def _statement_command(row: AnyRow) -> StatementCommand:
    statements = read_stored(tuple[str, ...], row.statements, f"the statements of command {row.id}")
    return StatementCommand(
        row.id, CommandKind(row.kind), StatementPlace(row.source, location_of(row), row.gtid), statements
    )


def _record(row: AnyRow) -> CommandRecord:
    return COMMAND_RECORD.of(row, command=_statement_command(row))


def _action(row: AnyRow) -> OperatorAction:
    details = json.loads(row.details)
    cleared = details.pop(CLEARED, None)
    who = Cleared(**cleared) if cleared and row.who == UNNAMED else row.who
    return OperatorAction(row.id, row.lock_id, row.action, who, row.via, row.reason, row.done_at, details)
