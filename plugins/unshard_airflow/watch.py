"""The wait for a lock in Airflow's triggerer, one trigger per waiting lock."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from unshard.config import load_task
from unshard.core.shown import visible
from unshard_airflow.connections import airflow_connections
from unshard_airflow.masking import statement
from unshard_airflow.remedies import listed

if TYPE_CHECKING:
    from unshard.units.ddl.coordinate import LockView
    from unshard.units.work import Work

LOOK_SECONDS = 1.0
AFTER_ERROR_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A lock as one look has found it."""

    view: "LockView"
    pause: str
    """Why the task is paused or stopped; empty if it is not."""

    @property
    def is_over(self) -> bool:
        """Whether the wait is over. A run that waits for a failed lock tries the DDL again."""
        view = self.view
        return not view.is_open or (not self.pause and (view.is_executable or view.state == "failed"))

    def __str__(self) -> str:
        if not self.view.is_open:
            return f"lock is resolved lock={self.view.id}"
        if self.pause:
            return f"the task is {self.pause}: lock {self.view.id} waits until it is resumed"
        return (
            f"lock waits lock={self.view.id} state={self.view.state} missing={listed(self.view.missing)}"
            f" ready={listed(self.view.ready)} ddl={visible(statement(self.view.ddl))}"
        )


def look(work: "Work", lock: str) -> Seen:
    """Update the locks of a task that is not paused, and return the state of one."""
    from unshard.units.ddl import coordinate

    pause = work.meta.pauses.get()
    if pause is None:
        coordinate.observe(work.meta)
    return Seen(coordinate.view(work.meta, lock), str(pause or ""))


class LockTrigger(BaseTrigger):
    """Fires when the wait for a lock is over, or at the time `until`.

    A failed look is logged and repeated: `wait_for_shards` looks itself from time to time, and fails if it cannot.
    """

    def __init__(self, *, task_file: str, lock: str, until: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.task_file = task_file
        self.lock = lock
        self.until = until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments."""
        return f"{__name__}.LockTrigger", {"task_file": self.task_file, "lock": self.lock, "until": self.until}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look once a second, in a thread."""
        watch, until = Watch(self), datetime.fromisoformat(self.until)
        try:
            while (left := (until - datetime.now(UTC)).total_seconds()) > 0:
                if await asyncio.to_thread(watch.is_over):
                    break
                await asyncio.sleep(min(watch.rest, left))
        finally:
            await asyncio.to_thread(watch.close)
        yield TriggerEvent(self.lock)  # type: ignore[no-untyped-call]


class Watch:
    """Looks at a lock over one connection; the calls may come from several threads."""

    def __init__(self, trigger: LockTrigger) -> None:
        self.trigger = trigger
        self.rest = LOOK_SECONDS
        self._using = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._work: Work | None = None
        self._told = ""

    def is_over(self) -> bool:
        with self._using:
            try:
                seen = look(self._opened(), self.trigger.lock)
            except Exception as error:
                self._close()
                self.rest = AFTER_ERROR_SECONDS
                self._tell(f"cannot look at lock {self.trigger.lock}: {visible(statement(str(error)))}")
                return False
            self.rest = LOOK_SECONDS
            self._tell(str(seen))
            return seen.is_over

    def close(self) -> None:
        """Close the connection after the last look."""
        with self._using:
            self._close()

    def _opened(self) -> "Work":
        from unshard.units.work import open_work

        if self._work is None:
            self._work = self._stack.enter_context(
                open_work(load_task(Path(self.trigger.task_file)), airflow_connections)
            )
        return self._work

    def _close(self) -> None:
        self._work = None
        with contextlib.suppress(Exception):
            self._stack.close()

    def _tell(self, text: str) -> None:
        if text != self._told:
            self.trigger.log.info("%s", text)
        self._told = text
