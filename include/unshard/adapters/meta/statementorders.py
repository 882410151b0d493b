"""Orders about single statements: given and taken back under the lock of their source, used by the commit of a window.

| comes                                    | what happens                                                          |
|------------------------------------------|-----------------------------------------------------------------------|
| before a window is planned               | the plan obeys it                                                     |
| between its planning and its beginning   | the window does not begin, and is planned anew                        |
| after it has begun                       | refused if the window has the statement, else it waits for a later one |
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, insert, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.orders import record
from unshard.adapters.meta.rows import AnyRow, location_of, matches, read
from unshard.adapters.meta.sources import lock_source
from unshard.core import codec
from unshard.core.ddlorders import Kind, Place, StatementOrder
from unshard.core.model import Location
from unshard.core.orders import Given
from unshard.core.window import Plan
from unshard.errors.ddlorders import OrdersChanged, OrderSpent, OrderTaken

R, A, W = tables.statement_order, tables.operator_action, tables.window


class OrderState(StrEnum):
    """What has become of an order."""

    WAITING = "waiting"
    USED = "used"
    REVERTED = "reverted"


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """An order with all that is known of it."""

    order: StatementOrder
    state: OrderState
    who: str
    via: str
    reason: str
    given_at: datetime
    ended_at: datetime | None
    """When it was used or taken back."""
    window: int | None
    """That has used it."""
    met: Location | None
    """Where the statement was."""
    text: str
    """The statement, without its strings; empty until it is met."""


Check = Callable[[], None]


class StatementOrders:
    """Rows of `statement_order` of one task."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def waiting(self, source: str) -> tuple[StatementOrder, ...]:
        """Return the orders about statements of a source that no window has met."""
        with self._database.reading() as connection:
            return tuple(map(_order, connection.execute(_waiting(self._task, source))))

    def all(self) -> tuple[OrderRecord, ...]:
        """Return every order, the oldest first."""
        query = select(R, A.c.who, A.c.via, A.c.reason, A.c.done_at.label("given_at")).join(
            A, (A.c.task == R.c.task) & (A.c.id == R.c.action)
        )
        with self._database.reading() as connection:
            return tuple(map(_record, connection.execute(query.where(R.c.task == self._task).order_by(R.c.id))))

    def add(self, place: Place, kind: Kind, statements: Sequence[str], order: Given, check: Check) -> bool:
        """Keep an order; False if the same one waits already. `check` raises if it comes too late."""
        with self._database.transaction() as connection:
            lock_source(connection, self._task, place.source)
            check()
            for known in map(_order, connection.execute(_waiting(self._task, place.source))):
                if known.place == place:
                    if (known.kind, known.statements) != (kind, tuple(statements)):
                        raise OrderTaken(str(place), known.number, known.kind)
                    return False
            action = record(connection, self._task, "", order)
            row = {"task": self._task, "source": place.source, "gtid": place.gtid, "kind": kind.value,
                   "file": place.at.file if place.at else None, "position": place.at.position if place.at else None,
                   "statements": codec.dumps(tuple(statements)), "state": OrderState.WAITING.value, "action": action,
                   "met_text": ""}  # fmt: skip
            connection.execute(insert(R).values(row))
        return True

    def revert(self, number: int, order: Given) -> bool:
        """Take back an order that waits, False if it was; raises OrderSpent once a window has met its statement."""
        mine = {"task": self._task, "id": number}
        with self._database.transaction() as connection:
            row = connection.execute(select(R).where(matches(R, mine))).one_or_none()
            if row is None:
                raise OrderSpent(f"order {number}", "there is none of that number")
            lock_source(connection, self._task, row.source)
            state = connection.scalar(select(R.c.state).where(matches(R, mine)).with_for_update())
            if state == OrderState.REVERTED.value:
                return False
            if state != OrderState.WAITING.value or _is_obeyed(connection, self._task, row.source, number):
                raise OrderSpent(f"order {number}", "a window has met its statement")
            connection.execute(update(R).where(matches(R, mine)).values(state=OrderState.REVERTED.value,
                                                                        ended_at=tables.NOW))  # fmt: skip
            record(connection, self._task, "", order)
        return True


def require_known(connection: Connection, task: str, plan: Plan) -> None:
    """Raise OrdersChanged unless a plan was made with the orders that wait; the source is locked."""
    waiting = {order.number for order in map(_order, connection.execute(_waiting(task, plan.source)))}
    if waiting != set(plan.orders):
        raise OrdersChanged(plan.source)


def use(connection: Connection, task: str, plan: Plan) -> None:
    """Note the orders that a window has met, in its commit."""
    for met in plan.obeyed:
        used = {"state": OrderState.USED.value, "window": plan.number, "met_file": met.location.file,
                "met_position": met.location.position, "met_text": met.text, "ended_at": tables.NOW}  # fmt: skip
        connection.execute(update(R).where(matches(R, {"task": task, "id": met.number})).values(used))


def _waiting(task: str, source: str) -> Any:
    mine = {"task": task, "source": source, "state": OrderState.WAITING.value}
    return select(R).where(matches(R, mine)).order_by(R.c.id)


def _is_obeyed(connection: Connection, task: str, source: str, number: int) -> bool:
    query = select(W.c.plan).where(W.c.task == task, W.c.source == source, W.c.state == "planned")
    text = connection.scalar(query)
    plan = read(Plan, text, f"the plan of the open window of {source}") if text else None
    return plan is not None and any(met.number == number for met in plan.obeyed)


def _order(row: AnyRow) -> StatementOrder:
    statements = read(tuple[str, ...], row.statements, f"the statements of order {row.id}")
    return StatementOrder(row.id, Kind(row.kind), Place(row.source, location_of(row), row.gtid), statements)


def _record(row: AnyRow) -> OrderRecord:
    return OrderRecord(_order(row), OrderState(row.state), row.who, row.via, row.reason, row.given_at, row.ended_at,
                       row.window, location_of(row, "met_"), row.met_text)  # fmt: skip
