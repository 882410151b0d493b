"""The default character set of each schema of a source, with the location from which on it applies.

Rows are facts of the binlog and never change, so planning may write them at any time and repeatedly. The snapshot
writes the first ones. A source that begins again deletes all.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import location_columns
from unshard.core.model import Location
from unshard.core.relay.segment import SchemaDefault

SCHEMA_DEFAULT = tables.schema_default


@dataclass(frozen=True, slots=True)
class DefaultChange:
    """From `location` on the schema has this default; None means dropped or unknown."""

    schema: str
    location: Location
    default: SchemaDefault | None


class DefaultReader(ReadingPart):
    """Rows of `schema_default`."""

    def of(self, source: str) -> tuple[DefaultChange, ...]:
        """Return all changes in the order of the binlog."""
        query = select(SCHEMA_DEFAULT).where(
            SCHEMA_DEFAULT.c.task == self._database.task, SCHEMA_DEFAULT.c.source == source
        )
        with self._database.reading() as connection:
            found = [
                DefaultChange(
                    row.shard_schema,
                    Location(row.file, row.position),
                    SchemaDefault(row.charset, row.collation) if row.charset else None,
                )
                for row in connection.execute(query)
            ]
        return tuple(sorted(found, key=lambda change: change.location.order))


class Defaults(WritingPart, DefaultReader):
    """Changes rows of `schema_default`."""

    def begin(self, source: str, location: Location, defaults: Mapping[str, SchemaDefault]) -> None:
        """Replace the rows of the source by those of a snapshot."""
        with self._database.transaction() as connection:
            connection.execute(
                delete(SCHEMA_DEFAULT).where(
                    SCHEMA_DEFAULT.c.task == self._database.task, SCHEMA_DEFAULT.c.source == source
                )
            )
            for schema, default in sorted(defaults.items()):
                connection.execute(
                    insert(SCHEMA_DEFAULT).values(self._row(source, DefaultChange(schema, location, default)))
                )

    def add(self, source: str, change: DefaultChange) -> None:
        """Add the change of a statement; idempotent."""
        with self._database.transaction() as connection:
            connection.execute(insert(SCHEMA_DEFAULT).prefix_with("IGNORE").values(self._row(source, change)))

    def _row(self, source: str, change: DefaultChange) -> dict[str, object]:
        default = change.default or SchemaDefault("")
        return {
            "task": self._database.task,
            "source": source,
            "shard_schema": change.schema,
            **location_columns(change.location),
            "charset": default.charset,
            "collation": default.collation,
            "added_at": tables.NOW,
        }
