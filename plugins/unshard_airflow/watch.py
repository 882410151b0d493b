"""Waits in Airflow's triggerer, without a process: for new binlog, for a lock, for a difference."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TaskSuccessEvent, TriggerEvent

from unshard.config import has_changed
from unshard.core.masking import statement
from unshard.core.shown import as_json, listed, visible
from unshard_airflow.connections import airflow_connections, ask_on_this_loop
from unshard_airflow.options import task_with_options
from unshard_airflow.stats import STATE_SECONDS, initialize_in_triggerer, send_state

if TYPE_CHECKING:
    from unshard.config import Task
    from unshard.units.ddl.differences import DifferenceView
    from unshard.units.ddl.scene import LockFacts, LockView, Scene
    from unshard.units.work import Work

LOOK_SECONDS = 1.0
LOCK_SECONDS = 0.25
"""Between two looks at the row of a lock: the rows of all shards wait for it."""
LOOK_AT_ALL_SECONDS = 30.0
DUE_SECONDS = 60.0
AFTER_ERROR_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A lock as one look has found it."""

    lock: "LockFacts"
    pause: str
    """Why the task is paused or stopped; empty if it is not."""
    scene: "Scene"

    @property
    def is_over(self) -> bool:
        """Whether the wait is over. A run that waits for a failed lock tries the DDL again."""
        lock = self.lock
        return not lock.is_open or (not self.pause and (lock.is_executable or lock.state == "failed"))

    def __str__(self) -> str:
        lock = self.lock
        if not lock.is_open:
            return f"lock is resolved lock={lock.id}"
        if self.pause:
            return f"the task is {self.pause}: lock {lock.id} waits until it is resumed"
        return (
            f"lock waits lock={lock.id} state={lock.state} missing={listed(lock.missing)}"
            f" ready={listed(lock.ready)} ddl={visible(statement(lock.ddl))}"
        )


def look(work: "Work", lock: str) -> Seen:
    """Update the locks of a task that is not paused, and return the state of one."""
    from unshard.units.ddl import coordinate
    from unshard.units.ddl.scene import NO_SCENE, find

    pause = work.meta.pauses.get()
    scene = coordinate.observe(work.meta) if pause is None else NO_SCENE
    found, scene = find(work.meta, lock, scene)
    return Seen(scene.facts(found), str(pause or ""), scene)


def published(view: "LockView") -> dict[str, Any]:
    """Return what `wait_for_shards` publishes as XCom values, also while it waits."""
    return {key: as_json(getattr(view, key)) for key in ("owner", "members", "ddl", "missing")}


class TaskTrigger(BaseTrigger):
    """Looks at a task again and again, in a thread, over one connection. A failed look is logged and repeated."""

    look_seconds = LOOK_SECONDS

    def __init__(self, *, task_file: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.task_file = task_file

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments."""
        return f"{type(self).__module__}.{type(self).__name__}", self.arguments

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {"task_file": self.task_file}

    def opened(self, work: "Work", stack: contextlib.ExitStack) -> Callable[[], bool]:
        """Return a function that says whether the wait is over."""
        raise NotImplementedError

    async def wait(self, watch: "Watch", until: datetime | None = None) -> None:
        """Return when a look says that the wait is over, or at the time `until`."""
        ask_on_this_loop()
        while until is None or datetime.now(UTC) < until:
            if await asyncio.to_thread(watch.is_over):
                return
            left = inf if until is None else max(0.0, (until - datetime.now(UTC)).total_seconds())
            await asyncio.sleep(min(watch.rest, left))

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait once."""
        watch, until = Watch(self), self.arguments.get("until")
        try:
            await self.wait(watch, datetime.fromisoformat(until) if until else None)
        finally:
            await asyncio.to_thread(watch.close)
        yield self.event()

    def event(self) -> TriggerEvent:
        """Return what the end of the wait means to the waiting task: it continues in a process."""
        return TriggerEvent("over")  # type: ignore[no-untyped-call]


class BinlogTrigger(BaseEventTrigger, TaskTrigger):
    """Fires when a source has binlog that the target lacks and no live run works on it."""

    def __init__(self, *, task_file: str) -> None:
        super().__init__(task_file=task_file)  # type: ignore[no-untyped-call]

    def opened(self, work: "Work", stack: contextlib.ExitStack) -> Callable[[], bool]:
        from unshard.units.relay.newbinlog import BinlogWatch

        return stack.enter_context(contextlib.closing(BinlogWatch(work))).has_news

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait again and again; meanwhile send the state of the task as metrics."""
        watch, sending = Watch(self), asyncio.create_task(self._send_state())
        try:
            while True:
                await self.wait(watch)
                yield TriggerEvent("new binlog")  # type: ignore[no-untyped-call]
        finally:
            sending.cancel()
            await asyncio.to_thread(watch.close)

    async def _send_state(self) -> None:
        initialize_in_triggerer()
        ask_on_this_loop()
        while True:
            if error := await asyncio.to_thread(send_state, self.task_file):
                self.log.warning("%s", error)
            await asyncio.sleep(STATE_SECONDS)


class LockTrigger(TaskTrigger):
    """Ends its task when the wait for a lock is over; at the time `until` it lets the task look."""

    look_seconds = LOCK_SECONDS

    def __init__(self, *, task_file: str, lock: str, until: str) -> None:
        super().__init__(task_file=task_file)
        self.lock = lock
        self.until = until
        self._over: LockView | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {"task_file": self.task_file, "lock": self.lock, "until": self.until}

    def opened(self, work: "Work", stack: contextlib.ExitStack) -> Callable[[], bool]:
        """Read the row of the lock; everything that decides only after the row has changed, or seldom."""
        from unshard.units.ddl import coordinate

        known: list[tuple[object, float]] = []

        def is_over() -> bool:
            row, now = (work.meta.locks.get(self.lock), work.meta.pauses.get()), time.monotonic()
            if known and known[-1][0] == row and now - known[-1][1] < LOOK_AT_ALL_SECONDS:
                return False
            seen = look(work, self.lock)
            self.log.info("%s", seen)
            known[:] = [((work.meta.locks.get(self.lock), work.meta.pauses.get()), now)]
            if seen.is_over:
                self._over = coordinate.view(work.meta, self.lock, seen.scene)
            return seen.is_over

        return is_over

    def event(self) -> TriggerEvent:
        if self._over is None:
            return super().event()
        return TaskSuccessEvent(xcoms=published(self._over))


class DifferenceTrigger(TaskTrigger):
    """Fires when an open difference has changed, or at the time `until`.

    After DUE_SECONDS it also fires when something is due for a target that no live run has done.
    """

    def __init__(self, *, task_file: str, difference: str, seen: str, until: str | None) -> None:
        super().__init__(task_file=task_file)
        self.difference, self.seen, self.until = difference, seen, until
        self._began = time.monotonic()

    @property
    def arguments(self) -> dict[str, Any]:
        names = "task_file", "difference", "seen", "until"
        return {name: getattr(self, name) for name in names}

    def opened(self, work: "Work", stack: contextlib.ExitStack) -> Callable[[], bool]:
        from unshard.units.task.opendifferences import open_differences
        from unshard.units.task.optimistic import is_due

        def is_over() -> bool:
            found = open_differences(work.task, work.meta, airflow_connections)
            if shown_difference(found, self.difference) != self.seen:
                return True
            is_late = time.monotonic() - self._began > DUE_SECONDS
            return is_late and work.meta.pauses.get() is None and is_due(work)

        return is_over


def shown_difference(found: "Sequence[DifferenceView]", difference: str) -> str:
    """Return what tells a change of a difference; empty if it is settled."""
    view = next((each for each in found if each.id == difference), None)
    if view is None:
        return "a change" if any(each.is_change for each in found) else ""
    return f"{view.state} {', '.join(map(str, view.have))} {', '.join(map(str, view.lack))} {view.reason}"


@dataclass(slots=True)
class OpenTask:
    """A task that triggers of this process look at."""

    work: "Work"
    stack: contextlib.ExitStack
    users: int = 0


class OpenTasks:
    """The open tasks by their files: all triggers of a task share its connections."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._newest: dict[str, OpenTask] = {}

    @contextlib.contextmanager
    def opened(self, file: str) -> "Iterator[Work]":
        """Open the task of a file, unless another trigger has opened it since its last change."""
        with self._changing:
            task = self._newest.get(file)
            if task is None or has_changed(task.work.task):
                task = self._newest[file] = _open(file)
            task.users += 1
        try:
            yield task.work
        finally:
            with self._changing:
                task.users -= 1
                if not task.users:
                    if self._newest.get(file) is task:
                        del self._newest[file]
                    task.stack.close()


def _open(file: str) -> OpenTask:
    from unshard.units.work import open_work

    with contextlib.ExitStack() as stack:
        work = stack.enter_context(open_work(task_with_options(Path(file)), airflow_connections, only_reads=True))
        return OpenTask(work, stack.pop_all())


OPEN = OpenTasks()


class Watch:
    """Looks at a task again and again; the calls may come from several threads."""

    def __init__(self, trigger: TaskTrigger) -> None:
        self.trigger = trigger
        self.rest = trigger.look_seconds
        self._using = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._look: Callable[[], bool] | None = None
        self._task: Task | None = None
        self._told = ""

    def is_over(self) -> bool:
        with self._using:
            try:
                found = self._opened()()
            except Exception as error:
                self._close()
                self.rest = AFTER_ERROR_SECONDS
                self._tell(f"cannot look at {self.trigger.task_file}: {visible(statement(str(error)))}")
                return False
            self.rest = self.trigger.look_seconds
            return found

    def close(self) -> None:
        """Close the connection after the last look."""
        with self._using:
            self._close()

    def _opened(self) -> Callable[[], bool]:
        if self._look is None or self._task is None or has_changed(self._task):
            self._close()
            work = self._stack.enter_context(OPEN.opened(self.trigger.task_file))
            self._look, self._task = self.trigger.opened(work, self._stack), work.task
        return self._look

    def _close(self) -> None:
        self._look = None
        with contextlib.suppress(Exception):
            self._stack.close()

    def _tell(self, text: str) -> None:
        if text != self._told:
            self.trigger.log.info("%s", text)
        self._told = text
