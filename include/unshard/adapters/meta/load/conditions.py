"""The condition (`where`) of the dump of each source; all its rows in the target were read with the same condition."""

from sqlalchemy import select
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart

DUMP_CONDITION = tables.dump_condition


class ConditionReader(ReadingPart):
    """Rows of `dump_condition`."""

    def get(self, source: str) -> str:
        """Return the condition of a source; empty means all rows."""
        query = select(DUMP_CONDITION.c.body).where(
            DUMP_CONDITION.c.task == self._task, DUMP_CONDITION.c.source == source
        )
        with self._database.reading() as connection:
            return str(connection.scalar(query) or "")


class Conditions(WritingPart, ConditionReader):
    """Changes rows of `dump_condition`."""

    def put(self, source: str, condition: str) -> None:
        """Set the condition of a source."""
        row = {"body": condition}
        with self._database.transaction() as connection:
            values = {"task": self._task, "source": source, **row}
            connection.execute(insert(DUMP_CONDITION).values(values).on_duplicate_key_update(row))
