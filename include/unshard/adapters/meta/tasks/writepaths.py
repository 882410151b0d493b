"""The write path of the last process that wrote rows of a task; `status` reads it instead of making a trial."""

from sqlalchemy import select
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.core.rows.writepath import LoadData, Writing

WRITE_PATH = tables.write_path


class WritePathReader(ReadingPart):
    """The row of `write_path` of one task."""

    def last(self) -> Writing | None:
        """Return the result of the last trial; None if no process has written rows."""
        columns = WRITE_PATH.c.load_data, WRITE_PATH.c.processors, WRITE_PATH.c.bulk
        with self._database.reading() as connection:
            row = connection.execute(select(*columns).where(WRITE_PATH.c.task == self._task)).one_or_none()
        return Writing(LoadData[row.load_data], row.processors, bool(row.bulk)) if row else None


class WritePaths(WritingPart, WritePathReader):
    """Changes the row of `write_path` of one task."""

    def record(self, writing: Writing) -> None:
        """Replace the result of the last trial."""
        newer = {
            "load_data": writing.load_data.name,
            "processors": writing.processors,
            "bulk": writing.bulk,
            "tried_at": tables.NOW,
        }
        with self._database.transaction() as connection:
            row = {"task": self._task, **newer}
            connection.execute(insert(WRITE_PATH).values(row).on_duplicate_key_update(newer))
