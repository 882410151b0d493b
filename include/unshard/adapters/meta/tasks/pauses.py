"""Whether a task is paused or stopped, and the record of pausing and resuming it.

The row is read in the transaction that begins a window, so no window begins after a pause has returned.
"""

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.tasks.actions import record
from unshard.core.ddl.lockcommands import IssuedCommand
from unshard.core.task.state import PauseKind, PauseState
from unshard.errors.meta import TaskPaused

PAUSE = tables.pause
WHOLE_TASK = ""
"""The value of `lock_id` for commands about the whole task."""
RESUME = "resume"


class PauseReader(ReadingPart):
    """The row of `pause`, and the rows of `operator_action` that are about the whole task."""

    def get(self) -> PauseState | None:
        """Return the pause state of the task; None if it is running."""
        with self._database.reading() as connection:
            return halted(connection, self._task)

    def refuse(self) -> None:
        """Raise TaskPaused if the task is paused or stopped."""
        with self._database.reading() as connection:
            refuse_paused(connection, self._task)


class PauseStates(WritingPart, PauseReader):
    """Changes the row of `pause`, and the rows of `operator_action` that are about the whole task."""

    def pause(self, kind: PauseKind, order: IssuedCommand) -> bool:
        """Pause or stop the task; return False, and change nothing, if it already is."""
        row = {
            "task": self._task,
            "kind": kind.value,
            "who": order.by,
            "via": order.via,
            "reason": order.reason,
            "paused_at": tables.NOW,
        }
        sources = tables.source
        with self._database.transaction() as connection:
            # A window that begins locks the row of its source, so the pause comes before or after the whole beginning.
            connection.execute(select(sources).where(sources.c.task == self._task).with_for_update())
            found = halted(connection, self._task)
            if found is not None and (found.kind is kind or found.kind is PauseKind.STOPPED):
                return False
            newer = {name: value for name, value in row.items() if name != "task"}
            connection.execute(insert(PAUSE).values(row).on_duplicate_key_update(newer))
            self._record(connection, order)
        return True

    def resume(self, order: IssuedCommand) -> bool:
        """Resume the task; return False if it is running."""
        with self._database.transaction() as connection:
            changed = bool(connection.execute(delete(PAUSE).where(PAUSE.c.task == self._task)).rowcount)
            if changed:
                self._record(connection, order)
        return changed

    def record(self, order: IssuedCommand) -> None:
        """Record a command about the whole task."""
        with self._database.transaction() as connection:
            self._record(connection, order)

    def _record(self, connection: Connection, order: IssuedCommand) -> None:
        record(connection, self._task, WHOLE_TASK, order)


def halted(connection: Connection, task: str) -> PauseState | None:
    """Return the pause state of a task."""
    row = connection.execute(select(PAUSE).where(PAUSE.c.task == task)).one_or_none()
    return PauseState(PauseKind(row.kind), row.who, row.via, row.reason, row.paused_at) if row else None


def refuse_paused(connection: Connection, task: str) -> None:
    """Raise TaskPaused if the task is paused or stopped."""
    pause = halted(connection, task)
    if pause is not None:
        raise TaskPaused(task, str(pause))
