"""What the page reads and what it orders: tasks from their files, all else from the task's meta store.

Reading changes nothing but that it names whoever cleared a task, once Airflow tells (page.audit). It asks the sources
only on the page of one task: an overview that many people leave open must not knock at every source of every task.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from unshard.config import Task, load_task, resolve
from unshard.core.orders import Cleared, Order
from unshard.errors import UnshardError
from unshard_airflow.connections import airflow_connections
from unshard_airflow.files import DEFAULT, VARIABLE, invalid_dag_id
from unshard_airflow.graph import DDL, FULL

if TYPE_CHECKING:
    from unshard.adapters.meta.locks import Execution
    from unshard.adapters.meta.orders import OperatorAction
    from unshard.adapters.meta.prechecks import StoredPrechecks
    from unshard.adapters.meta.statementorders import OrderRecord
    from unshard.core.collision import RecordedCollision
    from unshard.core.halt import Halt
    from unshard.core.rowerrors import RowError
    from unshard.core.stops import Stop
    from unshard.units.coordinate import LockView
    from unshard.units.status import Remarks, SourceStatus

VIA = "page"
SHOWN = 100
"""The longest list of a kind; the page tells how many more there are."""
SHOWN_ROWS = 10
"""Of rows that were put aside, which are counted by target."""


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One file of the folder: a task, or what it is instead."""

    name: str
    dag: str
    """The DAG whose permissions hold for it."""
    task: Task | None


@dataclass(frozen=True, slots=True)
class History:
    """What has been ordered and executed of late, the newest first."""

    actions: "tuple[OperatorAction, ...]" = ()
    executions: "tuple[Execution, ...]" = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """A task as its meta store knows it, read at one go."""

    remarks: "Remarks"
    history: History = History()
    prechecks: "StoredPrechecks | None" = None
    """What the last prechecks have found, if they were ever stored."""
    orders: "tuple[OrderRecord, ...]" = ()
    """Orders about single statements: those that wait, then the newest others."""
    row_errors: "tuple[RowError, ...]" = ()
    """The newest rows that were put aside and that a target lacks."""
    collisions: "tuple[RecordedCollision, ...]" = ()
    """Those that something waits for, then the newest."""


@dataclass(frozen=True, slots=True)
class Overview:
    """A task in a few figures."""

    sources: "tuple[SourceStatus, ...]" = ()
    remarks: "Remarks | None" = None
    """None if the store does not answer: there is an error then."""
    error: UnshardError | None = None


class Desk(Protocol):
    """Where tasks and locks are looked at and orders are given."""

    def files(self) -> Sequence[TaskFile]:
        """Return all task files."""

    def overview(self, task: Task) -> Overview:
        """Return what the meta store knows; a store that does not answer is an error in the value."""

    def sources(self, task: Task) -> "Sequence[SourceStatus]":
        """Return where the sources stand, asking them."""

    def locks(self, task: Task) -> "Sequence[LockView]":
        """Return open and newest resolved locks, the oldest first."""

    def reading(self, task: Task) -> Reading:
        """Return what the meta store knows of a task."""

    def history(self, task: Task, lock: str) -> History:
        """Return orders and executions of one lock."""

    def halt(self, task: Task) -> "Halt | None":
        """Return who has paused or stopped the task."""

    def stops(self, task: Task) -> "Sequence[Stop]":
        """Return the targets that take no rows of a source."""

    def at_work(self, task: Task) -> Sequence[str]:
        """Name what is going on of the task."""

    def set_halted(self, task: Task, is_halted: bool, by: str, reason: str) -> None:
        """Pause the task, or let it go on."""

    def retry(self, task: Task, stops: "Collection[Stop]", by: str, reason: str) -> None:
        """Let targets that are stopped go on."""

    def preview(self, task: Task, order: Order) -> tuple[Order, Sequence[str]]:
        """Return the order, bound to the DDL that it means now, and what it would do."""

    def give(self, task: Task, order: Order, by: str, reason: str) -> "LockView":
        """Carry the order out."""


class TaskFolder:
    """The desk over the folder of task files that the DAGs are made of."""

    def __init__(self, who_cleared: Callable[[str, Cleared], str | None]) -> None:
        """`who_cleared` finds the person in Airflow by a DAG and what a worker knows, if it can."""
        self._who_cleared = who_cleared

    def files(self) -> Sequence[TaskFile]:
        """Return all task files, by their names."""
        folder = Path(os.environ.get(VARIABLE) or DEFAULT)
        return [_task_file(path) for path in sorted(folder.glob("*.yaml"))]

    def overview(self, task: Task) -> Overview:
        """Return what the meta store knows."""
        from unshard.units import status

        try:
            with _meta(task) as meta:
                known = tuple(status.known(meta, instance.source.id) for instance in task.instances)
                return Overview(known, status.remarks(meta, task.sources))
        except UnshardError as error:
            return Overview(error=error)

    def sources(self, task: Task) -> "Sequence[SourceStatus]":
        """Ask the sources side by side."""
        from unshard.units.status import status

        return status(task, airflow_connections)

    def locks(self, task: Task) -> "Sequence[LockView]":
        """Return open and newest resolved locks."""
        from unshard.units import coordinate

        with _meta(task) as meta:
            return coordinate.views(meta, resolved=True) if meta else ()

    def reading(self, task: Task) -> Reading:
        """Read what is shown of a task."""
        from unshard.units.status import remarks

        with _meta(task) as meta:
            told = remarks(meta, task.sources)
            if meta is None:
                return Reading(told)
            return Reading(
                told, self._history(meta, task), meta.prechecks.last(), _waiting_first(meta.statement_orders.all()),
                meta.row_errors.all(SHOWN_ROWS, only_open=True), meta.collisions.all(SHOWN),
            )  # fmt: skip

    def history(self, task: Task, lock: str) -> History:
        """Return orders and executions of one lock."""
        with _meta(task) as meta:
            return self._history(meta, task, lock) if meta else History()

    def halt(self, task: Task) -> "Halt | None":
        """Return who has paused or stopped the task."""
        with _meta(task) as meta:
            return meta.halts.get() if meta else None

    def stops(self, task: Task) -> "Sequence[Stop]":
        """Return the targets that take no rows of a source."""
        with _meta(task) as meta:
            return meta.stops.all() if meta else ()

    def at_work(self, task: Task) -> Sequence[str]:
        """Name what is going on of the task, wherever it runs."""
        from unshard.units import life

        with _meta(task) as meta:
            return life.at_work(task, meta, resolve(task.target, airflow_connections)) if meta else ()

    def set_halted(self, task: Task, is_halted: bool, by: str, reason: str) -> None:
        """Pause the task, or let it go on, in the user's name."""
        from unshard.units import life
        from unshard.units.work import open_work

        with open_work(task, airflow_connections) as work:
            (life.pause if is_halted else life.resume)(work, by, VIA, reason)

    def retry(self, task: Task, stops: "Collection[Stop]", by: str, reason: str) -> None:
        """Let targets that are stopped go on, in the user's name."""
        from unshard.units.stopping import order_retry
        from unshard.units.work import open_work

        with open_work(task, airflow_connections) as work:
            order_retry(work, stops, by, VIA, reason)

    def _history(self, meta: Any, task: Task, lock: str | None = None) -> History:
        actions = [self._named(meta, DDL + task.name, action) for action in meta.locks.actions(lock, SHOWN)]
        return History(tuple(reversed(actions)), meta.locks.executions(lock, SHOWN)[::-1])

    def _named(self, meta: Any, dag: str, action: "OperatorAction") -> "OperatorAction":
        """Find out who gave the order, if that is not known yet, and record it: Airflow forgets."""
        who = self._who_cleared(dag, action.who) if isinstance(action.who, Cleared) else None
        if who is None:
            return action
        meta.orders.name(action.number, who)
        return replace(action, who=who)

    def preview(self, task: Task, order: Order) -> tuple[Order, Sequence[str]]:
        """Return the order, bound to the DDL that it means now, and its dry run."""
        from unshard.units import orders
        from unshard.units.work import open_work

        with open_work(task, airflow_connections, only_reads=True) as work:
            order = orders.pinned(work.meta, order)
            return order, orders.preview(work.meta, order)

    def give(self, task: Task, order: Order, by: str, reason: str) -> "LockView":
        """Give the order in the user's name."""
        from unshard.units import orders
        from unshard.units.work import open_work

        with open_work(task, airflow_connections) as work:
            return orders.give(work.meta, order, by=by, via=VIA, reason=reason)


@contextlib.contextmanager
def _meta(task: Task) -> Iterator[Any]:
    from unshard.units.status import existing_meta

    with existing_meta(task, airflow_connections) as meta:
        yield meta


def _waiting_first(orders: "Sequence[OrderRecord]") -> "tuple[OrderRecord, ...]":
    return tuple(sorted(orders, key=lambda each: (each.ended_at is not None, -each.order.number)))


def _task_file(path: Path) -> TaskFile:
    try:
        task = load_task(path.resolve())
    except UnshardError:
        return TaskFile(path.name, invalid_dag_id(path), None)
    return TaskFile(task.name, (DDL if task.task_mode.syncs else FULL) + task.name, task)
