"""Read tasks and locks for the page, and issue its commands.

Tasks come from their files, everything else from the meta tables. Reading changes nothing, except that it records the
user who cleared a task (page.audit). Open overviews share the answers of the sources for some seconds: however many
there are, they do not query every source of every task again.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    from unshard.adapters.meta.lockrecords import Arrival, Execution
    from unshard.adapters.meta.shardrecords import ListedShard
    from unshard.adapters.meta.taskrecords import StoredPrechecks
    from unshard.core.model import Location, TableSchema
    from unshard.core.rows.rowerrors import RecordedCollision, RowError
    from unshard.core.task.history import Charts, TaskEvent
    from unshard.core.task.lag import Lag
    from unshard.core.task.state import PauseState
    from unshard.core.window.suspension import SuspendedTarget
    from unshard.operate.advice import NextStep
    from unshard.units.ddl.differences import DifferenceView
    from unshard.units.ddl.matrix import TargetMatrix
    from unshard.units.ddl.scene import LockFacts, LockView
    from unshard.units.task.status import Remarks, SourceStatus

VIA = "page"
SHOWN = 100
"""Longest list of a kind; the page shows the number of further entries."""
SHOWN_ROWS = 10
"""Longest list of diverted rows, which are counted by target."""


OVERVIEW_SECONDS = 20.0
"""How long overviews share the answers of the sources."""
TASK_SECONDS = 5.0
"""How long pages of a task do so."""
MINUTES = {1: 1, 24: 10}
"""Minutes of an interval of the charts, by their hours."""

T = TypeVar("T")


class Recent(Generic[T]):
    """A value that is read again when it is too old. While a thread reads it, the others wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: tuple[float, T] | None = None

    def get(self, read: Callable[[], T], seconds: float) -> T:
        """Return the value if it is younger than that; otherwise `read` makes a new one."""
        with self._lock:
            if self._read is None or time.monotonic() - self._read[0] >= seconds:
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
class ShardList:
    """A part of the shards that a search has found."""

    count: int
    """The number of all shards that it has found."""
    first: int
    shards: "tuple[ListedShard, ...]"
    checkpoints: "Mapping[str, Location]"
    """The checkpoint of each source: the position of its shards whose rows do not wait."""
    structures: "Mapping[str, TableSchema]"
    """The structures of these shards, by digest."""

    def position(self, shard: "ListedShard") -> "Location | None":
        """Return the location up to which the target has the rows of a shard; None before the handover."""
        return shard.position or self.checkpoints.get(shard.shard.source)


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

    @property
    def rows_per_second(self) -> float:
        return sum(each.rows_per_second for each in self.sources)

    @property
    def rows_held(self) -> int:
        return sum(each.rows_held for each in self.sources)

    @property
    def open_locks(self) -> "Sequence[LockFacts]":
        return [lock for lock in self.remarks.locks if lock.is_open] if self.remarks else []

    @property
    def step(self) -> "NextStep":
        """The next step of the task."""
        from unshard.operate.advice import next_step
        from unshard.units.task.status import Remarks

        return next_step(self.sources, self.remarks or Remarks())


class Service:
    """Reads tasks and locks of the folder of task files from which the DAGs are built, and issues commands."""

    def __init__(self, who_cleared: Callable[[str, Cleared], str | None]) -> None:
        """`who_cleared` returns the user who cleared a task, from its DAG and the worker's data, if known."""
        self._who_cleared = who_cleared
        self._sources: dict[str, tuple[Task, Recent[Sequence[SourceStatus]]]] = {}

    def files(self) -> Sequence[TaskFile]:
        """Return all task files, by their names."""
        return [_task_file(path) for path in task_files()]

    def overview(self, task: Task, seconds: float = OVERVIEW_SECONDS) -> Overview:
        """Return the state from the meta tables and the recent answers of the sources; an error of the target too."""
        from unshard.units.task.status import remarks

        try:
            sources = tuple(self.sources(task, seconds))
            with _meta(task) as meta:
                return Overview(sources, remarks(meta, task.sources))
        except UnshardError as error:
            return Overview(error=error)

    def sources(self, task: Task, seconds: float = TASK_SECONDS) -> "Sequence[SourceStatus]":
        """Query the sources in parallel, unless another page has just done so."""
        from unshard.units.task.status import status

        if self._sources.get(task.name, (None,))[0] != task:
            self._sources[task.name] = task, Recent()
        _, recent = self._sources[task.name]
        return recent.get(lambda: status(task, airflow_connections), seconds)

    def shards(self, task: Task, search: str, first: int, most: int = SHOWN) -> ShardList:
        """Return a part of the shards that a search finds."""
        with _meta(task) as meta:
            if meta is None:
                return ShardList(0, 0, (), {}, {})
            count, found = meta.structures.listed(search, first, most)
            structures = meta.structures.get({each.structure for each in found if each.structure})
            return ShardList(count, first, found, meta.checkpoints.locations(), structures)

    def matrices(self, task: Task) -> "tuple[TargetMatrix, ...]":
        """Return the matrix of shards and changes of each target that has changes."""
        from unshard.units.ddl.matrix import difference_matrices, queue_matrices
        from unshard.units.ddl.scene import scene_of
        from unshard.units.task.opendifferences import open_differences

        with _meta(task) as meta:
            if meta is None:
                return ()
            queues = queue_matrices(scene_of(meta, meta.locks.open()))
            return (*queues, *difference_matrices(open_differences(task, meta, airflow_connections)))

    def events(self, task: Task, most: int = SHOWN) -> "tuple[TaskEvent, ...]":
        """Return the newest events, newest first."""
        from unshard.core.task.history import timeline

        with _meta(task) as meta:
            return timeline(meta.events.newest(most), most) if meta else ()

    def charts(self, task: Task, hours: int) -> "Charts":
        """Return the lag and the throughput of the last hours."""
        from unshard.core.task.history import charts_of

        step = MINUTES[hours]
        with _meta(task) as meta:
            samples = meta.windows.samples(hours * 60, step) if meta else ()
        return charts_of(samples, int(time.time() // 60), hours * 60, step)

    def arrivals(self, task: Task, lock: str) -> "tuple[Arrival, ...]":
        """Return when each shard has reached the DDL of a lock."""
        with _meta(task) as meta:
            return meta.locks.arrivals(meta.locks.get(lock)) if meta else ()

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

    def locks(self, task: Task) -> "Sequence[LockFacts]":
        """Return the newest resolved and the open locks, oldest first."""
        from unshard.units.ddl import coordinate

        with _meta(task) as meta:
            return coordinate.facts(meta, resolved=True) if meta else ()

    def differences(self, task: Task) -> "Sequence[DifferenceView]":
        """Return the open differences of targets in optimistic mode, the oldest first."""
        from unshard.units.task.opendifferences import open_differences

        with _meta(task) as meta:
            return open_differences(task, meta, airflow_connections) if meta else ()

    def history(self, task: Task, lock: str | None) -> CommandHistory:
        """Return commands and executions of one lock or of all."""
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
