"""Removes all rows of a task in one transaction.

The epochs are raised first. A writer that was given up for dead finds no fence, or one of a later task of that name,
whose epochs are higher than all of this one (see Sources.add).
"""

from collections.abc import Iterable

from sqlalchemy import delete, func, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import WritingPart
from unshard.core.model import TableId
from unshard.core.sql import lastwrites


class Removal(WritingPart):
    """All rows of a task."""

    def targets(self) -> tuple[TableId, ...]:
        """Return the targets that the task has written to or prepared."""
        S = tables.shard
        query = select(S.c.target_schema, S.c.target_table).where(S.c.task == self._task).distinct()
        with self._database.reading() as connection:
            return tuple(sorted(TableId(*row) for row in connection.execute(query)))

    def count(self) -> int:
        """Return how many rows the task has in all meta tables."""
        with self._database.reading() as connection:
            counts = (connection.scalar(select(func.count()).where(table.c.task == self._task)) for table in OF_TASKS)
            return sum(int(count or 0) for count in counts)

    def remove(self, schemas: Iterable[str] = ()) -> int:
        """Delete all rows of the task, and its last writes in these target schemas; return the number of rows."""
        S, F = tables.source, tables.fence
        with self._database.transaction() as connection:
            connection.execute(select(S).where(S.c.task == self._task).with_for_update())
            for table in (S, F):
                connection.execute(update(table).where(table.c.task == self._task).values(epoch=table.c.epoch + 1))
            for schema in schemas:
                forget = lastwrites.forget(schema.replace("%", "%%"))
                connection.exec_driver_sql(forget, (self._database.schema, self._task, schema))
            return sum(
                connection.execute(delete(table).where(table.c.task == self._task)).rowcount for table in OF_TASKS
            )


OF_TASKS = tuple(table for table in tables.metadata.tables.values() if "task" in table.c)
