"""Read tasks and locks for the page, and issue its commands.

Tasks come from their files, everything else from the meta tables. Reading changes nothing, except that it records the
user who cleared a task (page.audit). Open overviews share the answers of the sources for some seconds: however many
there are, they do not query every source of every task again.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from unshard.config import Task, resolve
from unshard.core.ddl.issuedcommands import Cleared
from unshard.errors import UnshardError
from unshard.operate.command import LockCommand
from unshard_airflow.connections import airflow_connections
from unshard_airflow.files import task_files
from unshard_airflow.graph import DDL, FULL
from unshard_airflow.options import task_with_options

if TYPE_CHECKING:
    from unshard.adapters.meta import Meta
    from unshard.adapters.meta.commandrecords import CommandRecord, OperatorAction
    from unshard.adapters.meta.lockrecords import Execution
    from unshard.adapters.meta.taskrecords import StoredPrechecks
    from unshard.core.rows.rowerrors import RecordedCollision, RowError
    from unshard.core.task.lag import Lag
    from unshard.core.task.state import PauseState
    from unshard.core.window.suspension import SuspendedTarget
    from unshard.units.ddl.differences import DifferenceView
    from unshard.units.ddl.scene import LockFacts, LockView
    from unshard.units.task.status import Remarks, SourceStatus

VIA = "page"
SHOWN = 100
"""Longest list of a kind; the page shows the number of further entries."""
SHOWN_ROWS = 10
"""Longest list of diverted rows, which are counted by target."""


OVERVIEW_SECONDS = 20.0
"""How long overviews share the answers of the sources."""

T = TypeVar("T")


class Recent(Generic[T]):
    """A value that is read again after some seconds. While a thread reads it, the others wait."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock = seconds, threading.Lock()
        self._read: tuple[float, T] | None = None

    def get(self, read: Callable[[], T]) -> T:
        """Return the value; `read` makes a new one."""
        with self._lock:
            if self._read is None or time.monotonic() - self._read[0] >= self._seconds:
                value = read()
                self._read = time.monotonic(), value
            return self._read[1]


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One file of the folder: a task or an invalid file."""

    name: str
    dag: str
    """The DAG whose permissions apply to it."""
    task: Task | None


@dataclass(frozen=True, slots=True)
class CommandHistory:
    """The latest commands and executions, the newest first."""

    actions: "tuple[OperatorAction, ...]" = ()
    executions: "tuple[Execution, ...]" = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of a task from the meta tables, read at once."""

    remarks: "Remarks"
    history: CommandHistory = CommandHistory()
    prechecks: "StoredPrechecks | None" = None
    """Result of the last stored prechecks."""
    commands: "tuple[CommandRecord, ...]" = ()
    """Commands about single statements: waiting ones, then the newest others."""
    row_errors: "tuple[RowError, ...]" = ()
    """The newest diverted rows that a target lacks."""
    collisions: "tuple[RecordedCollision, ...]" = ()
    """Open collisions, then the newest others."""
    differences: "tuple[DifferenceView, ...]" = ()
    """Open differences of targets in optimistic mode, the oldest first."""


@dataclass(frozen=True, slots=True)
class Overview:
    """A task in a few figures."""

    sources: "tuple[SourceStatus, ...]" = ()
    remarks: "Remarks | None" = None
    """None if the target does not answer; then `error` is set."""
    error: UnshardError | None = None

    @property
    def state(self) -> str:
        """The state of the task in a word."""
        from unshard.units.task.status import condition_of_task

        return condition_of_task(self.sources, self.remarks.pause if self.remarks else None)

    @property
    def lag(self) -> "Lag":
        """The longest lag of its sources."""
        from unshard.units.task.status import lag_of_task

        return lag_of_task(self.sources)


class Service:
    """Reads tasks and locks of the folder of task files from which the DAGs are built, and issues commands."""

    def __init__(self, who_cleared: Callable[[str, Cleared], str | None]) -> None:
        """`who_cleared` returns the user who cleared a task, from its DAG and the worker's data, if known."""
        self._who_cleared = who_cleared
        self._sources: dict[str, tuple[Task, Recent[Sequence[SourceStatus]]]] = {}

    def files(self) -> Sequence[TaskFile]:
        """Return all task files, by their names."""
        return [_task_file(path) for path in task_files()]

    def overview(self, task: Task) -> Overview:
        """Return the state from the meta tables and the recent answers of the sources."""
        from unshard.units.task.status import remarks, status

        if self._sources.get(task.name, (None,))[0] != task:
            self._sources[task.name] = task, Recent(OVERVIEW_SECONDS)
        _, recent = self._sources[task.name]
        try:
            sources = tuple(recent.get(lambda: status(task, airflow_connections)))
            with _meta(task) as meta:
                return Overview(sources, remarks(meta, task.sources))
        except UnshardError as error:
            return Overview(error=error)

    def sources(self, task: Task) -> "Sequence[SourceStatus]":
        """Query the sources in parallel."""
        from unshard.units.task.status import status

        return status(task, airflow_connections)

    def lock(self, task: Task, lock: str) -> "LockView | None":
        """Return a lock with its ways out, unless it was resolved long ago."""
        from unshard.units.ddl import coordinate

        with _meta(task) as meta:
            return coordinate.view(meta, lock) if meta and _is_kept(meta, lock) else None

    def facts(self, task: Task, lock: str) -> "LockFacts | None":
        """Return the same without the ways out."""
        from unshard.units.ddl import coordinate

        with _meta(task) as meta:
            return coordinate.facts_of(meta, lock) if meta and _is_kept(meta, lock) else None

    def reading(self, task: Task) -> Reading:
        """Read the state of a task for its page."""
        from unshard.units.task.opendifferences import open_differences
        from unshard.units.task.status import remarks

        with _meta(task) as meta:
            told = remarks(meta, task.sources)
            if meta is None:
                return Reading(told)
            return Reading(
                told,
                self._history(meta, task),
                meta.prechecks.last(),
                tuple(
                    sorted(
                        meta.statement_commands.all(), key=lambda one: (one.ended_at is not None, -one.command.number)
                    )
                ),
                meta.row_errors.all(SHOWN_ROWS, only_open=True),
                meta.collisions.all(SHOWN),
                open_differences(task, meta, airflow_connections),
            )

    def history(self, task: Task, lock: str) -> CommandHistory:
        """Return commands and executions of one lock."""
        with _meta(task) as meta:
            return self._history(meta, task, lock) if meta else CommandHistory()

    def pause(self, task: Task) -> "PauseState | None":
        """Return the pause or stop of the task, if any."""
        with _meta(task) as meta:
            return meta.pauses.get() if meta else None

    def stops(self, task: Task) -> "Sequence[SuspendedTarget]":
        with _meta(task) as meta:
            return meta.suspended_targets.all() if meta else ()

    def at_work(self, task: Task) -> Sequence[str]:
        """Return the active work of the task, on any machine."""
        from unshard.units.task import lifecycle

        with _meta(task) as meta:
            return lifecycle.at_work(task, meta, resolve(task.target, airflow_connections)) if meta else ()

    def set_paused(self, task: Task, is_paused: bool, by: str, reason: str) -> None:
        """Pause or resume the task in the user's name."""
        from unshard.units.task import lifecycle
        from unshard.units.work import open_work

        with open_work(task, airflow_connections) as work:
            (lifecycle.pause if is_paused else lifecycle.resume)(work, by, VIA, reason)

    def retry(self, task: Task, stops: "Collection[SuspendedTarget]", by: str, reason: str) -> None:
        """Continue suspended targets in the user's name."""
        from unshard.units.window.suspending import command_retry
        from unshard.units.work import open_work

        with open_work(task, airflow_connections) as work:
            command_retry(work, stops, by, VIA, reason)

    def _history(self, meta: "Meta", task: Task, lock: str | None = None) -> CommandHistory:
        actions = [self._named(meta, DDL + task.plain_name, action) for action in meta.locks.actions(lock, SHOWN)]
        return CommandHistory(tuple(reversed(actions)), meta.locks.executions(lock, SHOWN)[::-1])

    def _named(self, meta: "Meta", dag: str, action: "OperatorAction") -> "OperatorAction":
        """Find the user of the command, if not known yet, and record it, because Airflow deletes old entries."""
        who = self._who_cleared(dag, action.who) if isinstance(action.who, Cleared) else None
        if who is None:
            return action
        meta.lock_commands.name(action.number, who)
        return replace(action, who=who)

    def preview(self, task: Task, command: LockCommand) -> tuple[LockCommand, Sequence[str]]:
        """Return the command, bound to the present DDL, and its dry run."""
        from unshard.operate import issuing
        from unshard.units.ddl.scene import find
        from unshard.units.work import open_work

        with open_work(task, airflow_connections, only_reads=True) as work:
            _, scene = find(work.meta, command.lock)
            command = issuing.pinned(work.meta, command, scene)
            return command, issuing.preview(work.meta, command, scene)

    def give(self, task: Task, command: LockCommand, by: str, reason: str) -> None:
        """Issue the command in the user's name."""
        from unshard.operate import issuing
        from unshard.units.work import open_work

        with open_work(task, airflow_connections) as work:
            issuing.give(work.meta, command, by=by, via=VIA, reason=reason)


@contextlib.contextmanager
def _meta(task: Task) -> "Iterator[Meta | None]":
    """Open the meta tables also for writing: who gave a command may become known later."""
    from unshard.adapters.meta import Meta
    from unshard.units.begun import opened_meta

    with opened_meta(Meta, task, airflow_connections) as meta:
        yield meta


def _is_kept(meta: "Meta", lock: str) -> bool:
    """Whether a lock is open or one of the newest resolved ones."""
    return any(each.id == lock for each in meta.locks.all())


def _task_file(path: Path) -> TaskFile:
    try:
        task = task_with_options(path.resolve())
    except UnshardError:
        return TaskFile(path.name, FULL + path.stem, None)
    return TaskFile(task.name, (DDL if task.task_mode.syncs else FULL) + task.plain_name, task)
