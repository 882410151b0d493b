"""The default character set of each schema of a source, from which location on.

Rows are facts of the binlog: they never change, so planning may write them at any time and again. The snapshot's
are the first; a source that is begun anew forgets all.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.rows import location_columns
from unshard.core.model import Location
from unshard.core.segment import SchemaDefault

D = tables.schema_default


@dataclass(frozen=True, slots=True)
class DefaultChange:
    """From `location` on the schema has this default; None: it was dropped, or its default is not known."""

    schema: str
    location: Location
    default: SchemaDefault | None


class Defaults:
    """Rows of `schema_default`."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database

    def begin(self, source: str, location: Location, defaults: Mapping[str, SchemaDefault]) -> None:
        """Set what a snapshot has seen; whatever was known of the source before is forgotten."""
        with self._database.transaction() as connection:
            connection.execute(delete(D).where(D.c.task == self._database.task, D.c.source == source))
            for schema, default in sorted(defaults.items()):
                connection.execute(insert(D).values(self._row(source, DefaultChange(schema, location, default))))

    def add(self, source: str, change: DefaultChange) -> None:
        """Add what a statement has changed; once is enough."""
        with self._database.transaction() as connection:
            connection.execute(insert(D).prefix_with("IGNORE").values(self._row(source, change)))

    def of(self, source: str) -> tuple[DefaultChange, ...]:
        """Return all changes in the order of the binlog."""
        query = select(D).where(D.c.task == self._database.task, D.c.source == source)
        with self._database.reading() as connection:
            found = [
                DefaultChange(row.shard_schema, Location(row.file, row.position),
                              SchemaDefault(row.charset, row.collation) if row.charset else None)
                for row in connection.execute(query)
            ]  # fmt: skip
        return tuple(sorted(found, key=lambda change: change.location.order))

    def _row(self, source: str, change: DefaultChange) -> dict[str, object]:
        default = change.default or SchemaDefault("")
        return {"task": self._database.task, "source": source, "shard_schema": change.schema,
                **location_columns(change.location), "charset": default.charset, "collation": default.collation,
                "added_at": tables.NOW}  # fmt: skip
