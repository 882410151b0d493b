"""Rows of `operator_action`: the commands of operators, with time and interface."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.rows import AnyRow
from unshard.core.ddl.lockcommands import Cleared, IssuedCommand

OPERATOR_ACTION = tables.operator_action
LONGEST_NAME = 255


UNNAMED, CLEARED = "", "cleared"
"""UNNAMED replaces a name that is not known yet; CLEARED is the key of the details that identify it."""


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


def record(connection: Connection, task: str, lock: str, order: IssuedCommand) -> int:
    """Record a command about a lock or, with '', about none; return its number."""
    return int(
        connection.execute(insert(OPERATOR_ACTION).values({"task": task, "lock_id": lock, **recorded(order)})).lastrowid
    )


def recorded(order: IssuedCommand) -> dict[str, Any]:
    """Return the columns of a recorded command."""
    who, details = (order.by, order.details) if isinstance(order.by, str) else (UNNAMED, _unnamed(order, order.by))
    return {
        "action": order.action,
        "who": who[:LONGEST_NAME],
        "via": order.via,
        "reason": order.reason,
        "details": json.dumps(details, ensure_ascii=False),
        "done_at": tables.NOW,
    }


def actions(connection: Connection, task: str, lock: str | None, newest: int | None) -> tuple[OperatorAction, ...]:
    """Read the commands about one lock or about all, or the newest ones, oldest first."""
    query = (
        select(OPERATOR_ACTION)
        .where(OPERATOR_ACTION.c.task == task)
        .order_by(OPERATOR_ACTION.c.id.desc())
        .limit(newest)
    )
    rows = connection.execute(query.where(OPERATOR_ACTION.c.lock_id == lock) if lock else query)
    return tuple(map(_action, rows))[::-1]


def _action(row: AnyRow) -> OperatorAction:
    details = json.loads(row.details)
    cleared = details.pop(CLEARED, None)
    who = Cleared(**cleared) if cleared and row.who == UNNAMED else row.who
    return OperatorAction(row.id, row.lock_id, row.action, who, row.via, row.reason, row.done_at, details)


def _unnamed(order: IssuedCommand, cleared: Cleared) -> dict[str, Any]:
    return {**order.details, CLEARED: asdict(cleared)}
