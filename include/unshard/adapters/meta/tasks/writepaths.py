"""The write path of the last process that wrote rows of a task; `status` reads it instead of making a trial."""

from sqlalchemy import select
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.core.rows.writepath import LoadData

WRITE_PATH = tables.write_path


class WritePathReader(ReadingPart):
    """The row of `write_path` of one task."""

    def last(self) -> LoadData | None:
        """Return the result of the last trial; None if no process has written rows."""
        with self._database.reading() as connection:
            name = connection.scalar(select(WRITE_PATH.c.load_data).where(WRITE_PATH.c.task == self._task))
        return LoadData[name] if name else None


class WritePaths(WritingPart, WritePathReader):
    """Changes the row of `write_path` of one task."""

    def record(self, load_data: LoadData) -> None:
        """Replace the result of the last trial."""
        newer = {"load_data": load_data.name, "tried_at": tables.NOW}
        with self._database.transaction() as connection:
            row = {"task": self._task, **newer}
            connection.execute(insert(WRITE_PATH).values(row).on_duplicate_key_update(newer))
