"""Operator commands about single statements; adding and reverting them locks the source, a window's commit uses them.

| when the command comes                   | what happens                                                          |
|------------------------------------------|-----------------------------------------------------------------------|
| before a window is planned               | the plan applies it                                                   |
| between its planning and its beginning   | the window does not begin and is planned again                        |
| after it has begun                       | rejected if the window has the statement, else it waits for a later one |
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, insert, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import AnyRow, location_of, matches, read
from unshard.adapters.meta.tasks.actions import record
from unshard.adapters.meta.tasks.sources import lock_source
from unshard.core import codec
from unshard.core.ddl.lockcommands import IssuedCommand
from unshard.core.ddl.statementcommands import CommandKind, StatementCommand, StatementPlace
from unshard.core.model import Location
from unshard.core.window.plan import Plan
from unshard.errors.commands import CommandsChanged, CommandSpent, CommandTaken

STATEMENT_COMMAND, OPERATOR_ACTION, WINDOW = tables.statement_command, tables.operator_action, tables.window


class CommandState(StrEnum):
    """The state of a command."""

    WAITING = "waiting"
    USED = "used"
    REVERTED = "reverted"


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A command with its record."""

    order: StatementCommand
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


Check = Callable[[], None]


class StatementCommandReader(ReadingPart):
    """Rows of `statement_command` of one task."""

    def waiting(self, source: str) -> tuple[StatementCommand, ...]:
        """Return the commands of a source that no window has used."""
        with self._database.reading() as connection:
            return tuple(map(_order, connection.execute(_waiting(self._task, source))))

    def all(self) -> tuple[CommandRecord, ...]:
        """Return all commands, oldest first."""
        query = select(
            STATEMENT_COMMAND,
            OPERATOR_ACTION.c.who,
            OPERATOR_ACTION.c.via,
            OPERATOR_ACTION.c.reason,
            OPERATOR_ACTION.c.done_at.label("given_at"),
        ).join(
            OPERATOR_ACTION,
            (OPERATOR_ACTION.c.task == STATEMENT_COMMAND.c.task) & (OPERATOR_ACTION.c.id == STATEMENT_COMMAND.c.action),
        )
        with self._database.reading() as connection:
            return tuple(
                map(
                    _record,
                    connection.execute(
                        query.where(STATEMENT_COMMAND.c.task == self._task).order_by(STATEMENT_COMMAND.c.id)
                    ),
                )
            )


class StatementCommands(WritingPart, StatementCommandReader):
    """Changes rows of `statement_command` of one task."""

    def add(
        self, place: StatementPlace, kind: CommandKind, statements: Sequence[str], order: IssuedCommand, check: Check
    ) -> bool:
        """Store a command; return False if the same one already waits. `check` raises if the command comes too late."""
        with self._database.transaction() as connection:
            lock_source(connection, self._task, place.source)
            check()
            for known in map(_order, connection.execute(_waiting(self._task, place.source))):
                if known.place == place:
                    if (known.kind, known.statements) != (kind, tuple(statements)):
                        raise CommandTaken(str(place), known.number, known.kind)
                    return False
            action = record(connection, self._task, "", order)
            row = {
                "task": self._task,
                "source": place.source,
                "gtid": place.gtid,
                "kind": kind.value,
                "file": place.at.file if place.at else None,
                "position": place.at.position if place.at else None,
                "statements": codec.dumps(tuple(statements)),
                "state": CommandState.WAITING.value,
                "action": action,
                "matched_text": "",
            }
            connection.execute(insert(STATEMENT_COMMAND).values(row))
        return True

    def revert(self, number: int, order: IssuedCommand) -> bool:
        """Revert a waiting command; return False if it was reverted. CommandSpent if a window has its statement."""
        mine = {"task": self._task, "id": number}
        with self._database.transaction() as connection:
            row = connection.execute(select(STATEMENT_COMMAND).where(matches(STATEMENT_COMMAND, mine))).one_or_none()
            if row is None:
                raise CommandSpent(f"command {number}", "it does not exist")
            lock_source(connection, self._task, row.source)
            state = connection.scalar(
                select(STATEMENT_COMMAND.c.state).where(matches(STATEMENT_COMMAND, mine)).with_for_update()
            )
            if state == CommandState.REVERTED.value:
                return False
            if state != CommandState.WAITING.value or _is_applied(connection, self._task, row.source, number):
                raise CommandSpent(f"command {number}", "a window has its statement")
            connection.execute(
                update(STATEMENT_COMMAND)
                .where(matches(STATEMENT_COMMAND, mine))
                .values(state=CommandState.REVERTED.value, ended_at=tables.NOW)
            )
            record(connection, self._task, "", order)
        return True


def require_known(connection: Connection, task: str, plan: Plan) -> None:
    """Raise CommandsChanged unless the plan was made with the commands that wait; the caller has locked the source."""
    waiting = {order.number for order in map(_order, connection.execute(_waiting(task, plan.source)))}
    if waiting != set(plan.orders):
        raise CommandsChanged(plan.source)


def use(connection: Connection, task: str, plan: Plan) -> None:
    """Record the commands that a window has used, in its commit."""
    for met in plan.applied_commands:
        used = {
            "state": CommandState.USED.value,
            "window": plan.number,
            "matched_file": met.location.file,
            "matched_position": met.location.position,
            "matched_text": met.text,
            "ended_at": tables.NOW,
        }
        connection.execute(
            update(STATEMENT_COMMAND).where(matches(STATEMENT_COMMAND, {"task": task, "id": met.number})).values(used)
        )


def _waiting(task: str, source: str) -> Any:
    mine = {"task": task, "source": source, "state": CommandState.WAITING.value}
    return select(STATEMENT_COMMAND).where(matches(STATEMENT_COMMAND, mine)).order_by(STATEMENT_COMMAND.c.id)


def _is_applied(connection: Connection, task: str, source: str, number: int) -> bool:
    query = select(WINDOW.c.plan).where(WINDOW.c.task == task, WINDOW.c.source == source, WINDOW.c.state == "planned")
    text = connection.scalar(query)
    plan = read(Plan, text, f"the plan of the open window of {source}") if text else None
    return plan is not None and any(met.number == number for met in plan.applied_commands)


def _order(row: AnyRow) -> StatementCommand:
    statements = read(tuple[str, ...], row.statements, f"the statements of command {row.id}")
    return StatementCommand(
        row.id, CommandKind(row.kind), StatementPlace(row.source, location_of(row), row.gtid), statements
    )


def _record(row: AnyRow) -> CommandRecord:
    return CommandRecord(
        _order(row),
        CommandState(row.state),
        row.who,
        row.via,
        row.reason,
        row.given_at,
        row.ended_at,
        row.window,
        location_of(row, "matched_"),
        row.matched_text,
    )
