"""Sequences of a source at its checkpoint, and statements that were ignored.

Both change in the transaction that commits a window.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import location_columns
from unshard.core.model import Location, TableId
from unshard.core.window.plan import Plan, UnreadStatement

SEQUENCE, IGNORED_STATEMENT = tables.sequence, tables.ignored_statement
SHOWN = 20


@dataclass(frozen=True, slots=True)
class IgnoredStatement:
    """A statement of a source that could not be parsed and concerns no shard."""

    source: str
    passed: UnreadStatement
    at: datetime
    """When its window was committed."""


class IgnoredReader(ReadingPart):
    """Rows of `sequence` and `ignored_statement`."""

    def sequences(self, source: str) -> frozenset[TableId]:
        """Return the sequences of a source at its checkpoint."""
        query = select(SEQUENCE).where(SEQUENCE.c.task == self._task, SEQUENCE.c.source == source)
        with self._database.reading() as connection:
            return frozenset(TableId(row.shard_schema, row.shard_table) for row in connection.execute(query))

    def passed(self) -> dict[str, int]:
        """Return the number of ignored statements by source."""
        query = (
            select(IGNORED_STATEMENT.c.source, func.count())
            .where(IGNORED_STATEMENT.c.task == self._task)
            .group_by(IGNORED_STATEMENT.c.source)
        )
        with self._database.reading() as connection:
            return {source: int(count) for source, count in connection.execute(query)}

    def newest(self, number: int = SHOWN) -> tuple[IgnoredStatement, ...]:
        """Return the newest ignored statements, newest first."""
        order = (
            IGNORED_STATEMENT.c.ignored_at.desc(),
            IGNORED_STATEMENT.c.source,
            IGNORED_STATEMENT.c.file.desc(),
            IGNORED_STATEMENT.c.position.desc(),
        )
        query = select(IGNORED_STATEMENT).where(IGNORED_STATEMENT.c.task == self._task).order_by(*order).limit(number)
        with self._database.reading() as connection:
            return tuple(
                IgnoredStatement(
                    row.source, UnreadStatement(Location(row.file, row.position), row.statement), row.ignored_at
                )
                for row in connection.execute(query)
            )


class IgnoredRecords(WritingPart, IgnoredReader):
    """Changes rows of `sequence` and `ignored_statement`."""

    def begin(self, source: str, sequences: Iterable[TableId]) -> None:
        """Set the sequences that a snapshot has found."""
        with self._database.transaction() as connection:
            _set_sequences(connection, self._task, source, sequences)


def forget_ignored(connection: Connection, task: str, plan: Plan) -> None:
    """Store the result of a window, in its transaction."""
    for passed in plan.unread:
        row = {
            "task": task,
            "source": plan.source,
            **location_columns(passed.location),
            "statement": passed.text,
            "window": plan.number,
            "ignored_at": tables.NOW,
        }
        connection.execute(insert(IGNORED_STATEMENT).values(row))
    if plan.sequences is not None:
        _set_sequences(connection, task, plan.source, plan.sequences)


def _set_sequences(connection: Connection, task: str, source: str, sequences: Iterable[TableId]) -> None:
    connection.execute(delete(SEQUENCE).where(SEQUENCE.c.task == task, SEQUENCE.c.source == source))
    rows = [
        {"task": task, "source": source, "shard_schema": table.schema, "shard_table": table.name}
        for table in sorted(sequences)
    ]
    if rows:
        connection.execute(insert(SEQUENCE), rows)
