"""The condition by which the rows of each source are dumped: every row that is in the target was read by the same."""

from sqlalchemy import select
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase

D = tables.dump_condition


class Conditions:
    """Rows of `dump_condition`."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def get(self, source: str) -> str:
        """Return the condition of a source; empty: all of its rows are dumped."""
        query = select(D.c.body).where(D.c.task == self._task, D.c.source == source)
        with self._database.reading() as connection:
            return str(connection.scalar(query) or "")

    def put(self, source: str, condition: str) -> None:
        """Let the rows of a source be dumped by this condition."""
        row = {"body": condition}
        with self._database.transaction() as connection:
            values = {"task": self._task, "source": source, **row}
            connection.execute(insert(D).values(values).on_duplicate_key_update(row))
