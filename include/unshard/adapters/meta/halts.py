"""Whether a task is halted, and the record of who has halted and resumed it.

The row is read in the transaction that begins a window, so none begins behind a pause that was answered.
"""

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.orders import record
from unshard.core.halt import Halt, HaltKind
from unshard.core.orders import Given
from unshard.errors.life import TaskHalted

H = tables.halt
WHOLE_TASK = ""
"""In the place of a lock in the record of orders."""
RESUME = "resume"


class Halts:
    """The row of `halt`, and the rows of `operator_action` that are about the whole task."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def get(self) -> Halt | None:
        """Return who has halted the task; None while it may move."""
        with self._database.reading() as connection:
            return halted(connection, self._task)

    def refuse(self) -> None:
        """Raise TaskHalted if the task is halted."""
        with self._database.reading() as connection:
            refuse_halted(connection, self._task)

    def halt(self, kind: HaltKind, order: Given) -> bool:
        """Halt the task; False if it is halted so already, by whom is not changed then."""
        row = {"task": self._task, "kind": kind.value, "who": order.by, "via": order.via, "reason": order.reason,
               "halted_at": tables.NOW}  # fmt: skip
        sources = tables.source
        with self._database.transaction() as connection:
            # Whoever begins a window holds its source's row: the pause comes before all of it or behind it.
            connection.execute(select(sources).where(sources.c.task == self._task).with_for_update())
            found = halted(connection, self._task)
            if found is not None and (found.kind is kind or found.kind is HaltKind.STOPPED):
                return False
            newer = {name: value for name, value in row.items() if name != "task"}
            connection.execute(insert(H).values(row).on_duplicate_key_update(newer))
            self._record(connection, order)
        return True

    def resume(self, order: Given) -> bool:
        """Let the task go on; False if nobody has halted it."""
        with self._database.transaction() as connection:
            changed = bool(connection.execute(delete(H).where(H.c.task == self._task)).rowcount)
            if changed:
                self._record(connection, order)
        return changed

    def record(self, order: Given) -> None:
        """Write an order about the whole task into the record."""
        with self._database.transaction() as connection:
            self._record(connection, order)

    def _record(self, connection: Connection, order: Given) -> None:
        record(connection, self._task, WHOLE_TASK, order)


def halted(connection: Connection, task: str) -> Halt | None:
    """Return who has halted a task."""
    row = connection.execute(select(H).where(H.c.task == task)).one_or_none()
    return Halt(HaltKind(row.kind), row.who, row.via, row.reason, row.halted_at) if row else None


def refuse_halted(connection: Connection, task: str) -> None:
    """Raise TaskHalted if the task is halted."""
    halt = halted(connection, task)
    if halt is not None:
        raise TaskHalted(task, str(halt))
