"""The row of `precheck`: what the last prechecks of a task have found, for those who look at it later."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.rows import read
from unshard.core import codec
from unshard.core.prechecks import Item

K = tables.precheck


@dataclass(frozen=True, slots=True)
class StoredPrechecks:
    """All items of the last prechecks."""

    items: tuple[Item, ...]
    at: datetime


class Prechecks:
    """The row of `precheck` of one task."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database

    def store(self, items: tuple[Item, ...]) -> None:
        """Keep these in place of the last ones."""
        found = {"items": codec.dumps(items), "checked_at": tables.NOW}
        row = {"task": self._database.task, **found}
        with self._database.transaction() as connection:
            connection.execute(insert(K).values(row).on_duplicate_key_update(found))

    def last(self) -> StoredPrechecks | None:
        """Return the last ones, if they were ever stored."""
        with self._database.reading() as connection:
            row = connection.execute(select(K).where(K.c.task == self._database.task)).one_or_none()
        if row is None:
            return None
        return StoredPrechecks(read(tuple[Item, ...], row.items, "the last prechecks"), row.checked_at)
