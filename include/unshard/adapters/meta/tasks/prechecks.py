"""The row of `precheck`: the result of the last prechecks of a task."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import read
from unshard.core import codec
from unshard.core.checks.items import Item

PRECHECK = tables.precheck


@dataclass(frozen=True, slots=True)
class StoredPrechecks:
    """All items of the last prechecks."""

    items: tuple[Item, ...]
    at: datetime


class PrecheckReader(ReadingPart):
    """The row of `precheck` of one task."""

    def last(self) -> StoredPrechecks | None:
        """Return the last result, or None."""
        with self._database.reading() as connection:
            row = connection.execute(select(PRECHECK).where(PRECHECK.c.task == self._database.task)).one_or_none()
        if row is None:
            return None
        return StoredPrechecks(read(tuple[Item, ...], row.items, "the last prechecks"), row.checked_at)


class Prechecks(WritingPart, PrecheckReader):
    """Changes the row of `precheck` of one task."""

    def store(self, items: tuple[Item, ...]) -> None:
        """Replace the last result."""
        found = {"items": codec.dumps(items), "checked_at": tables.NOW}
        row = {"task": self._database.task, **found}
        with self._database.transaction() as connection:
            connection.execute(insert(PRECHECK).values(row).on_duplicate_key_update(found))
