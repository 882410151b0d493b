"""The indexes of target tables that are to be made after the full load: an intent, noted before they go."""

from sqlalchemy import delete, insert, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.rows import matches, read, target_columns, target_of
from unshard.core import codec
from unshard.core.lateindexes import LateIndex
from unshard.core.model import TableId

I = tables.late_index  # noqa: E741


class LateIndexes:
    """Rows of `late_index`."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database

    def note(self, target: TableId, indexes: tuple[LateIndex, ...]) -> None:
        """Note what is about to be dropped; what is noted already stays as it is."""
        row = {"task": self._database.task, **target_columns(target), "indexes": codec.dumps(indexes),
               "noted_at": tables.NOW}  # fmt: skip
        with self._database.transaction() as connection:
            connection.execute(insert(I).prefix_with("IGNORE").values(row))

    def all(self) -> dict[TableId, tuple[LateIndex, ...]]:
        """Return what is to be made, by target table."""
        with self._database.reading() as connection:
            rows = connection.execute(select(I).where(I.c.task == self._database.task))
            return {target_of(row): read(tuple[LateIndex, ...], row.indexes, "late_index") for row in rows}

    def forget(self, target: TableId) -> None:
        """Take the intent away: the table has them."""
        where = matches(I, {"task": self._database.task, **target_columns(target)})
        with self._database.transaction() as connection:
            connection.execute(delete(I).where(where))
