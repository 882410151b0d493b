"""The indexes that are created after the full load; they are recorded before they are dropped."""

from sqlalchemy import delete, insert, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import matches, read, target_columns, target_of
from unshard.core import codec
from unshard.core.full.lateindexes import LateIndex
from unshard.core.model import TableId

LATE_INDEX = tables.late_index


class LateIndexReader(ReadingPart):
    """Rows of `late_index`."""

    def all(self) -> dict[TableId, tuple[LateIndex, ...]]:
        """Return the missing indexes by target table."""
        with self._database.reading() as connection:
            rows = connection.execute(select(LATE_INDEX).where(LATE_INDEX.c.task == self._database.task))
            return {target_of(row): read(tuple[LateIndex, ...], row.indexes, "late_index") for row in rows}


class LateIndexes(WritingPart, LateIndexReader):
    """Changes rows of `late_index`."""

    def note(self, target: TableId, indexes: tuple[LateIndex, ...]) -> None:
        """Record indexes before they are dropped; an existing record stays unchanged."""
        row = {
            "task": self._database.task,
            **target_columns(target),
            "indexes": codec.dumps(indexes),
            "noted_at": tables.NOW,
        }
        with self._database.transaction() as connection:
            connection.execute(insert(LATE_INDEX).prefix_with("IGNORE").values(row))

    def forget(self, target: TableId) -> None:
        """Delete the record after the indexes were created."""
        where = matches(LATE_INDEX, {"task": self._database.task, **target_columns(target)})
        with self._database.transaction() as connection:
            connection.execute(delete(LATE_INDEX).where(where))
