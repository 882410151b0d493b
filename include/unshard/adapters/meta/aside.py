"""What stands beside the shards of a source: its sequences at the checkpoint, and statements that were passed over.

Both move with the windows, in the transaction that commits one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.rows import location_columns
from unshard.core.model import Location, TableId
from unshard.core.window import Passed, Plan

Q, P = tables.sequence, tables.passed_statement
SHOWN = 20


@dataclass(frozen=True, slots=True)
class PassedStatement:
    """A statement that could not be read and concerns no shard, as a source ran it."""

    source: str
    passed: Passed
    at: datetime
    """When its window was committed."""


class Aside:
    """Rows of `sequence` and `passed_statement`."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def sequences(self, source: str) -> frozenset[TableId]:
        """Return what is a sequence on the source at the checkpoint."""
        query = select(Q).where(Q.c.task == self._task, Q.c.source == source)
        with self._database.reading() as connection:
            return frozenset(TableId(row.shard_schema, row.shard_table) for row in connection.execute(query))

    def begin(self, source: str, sequences: Iterable[TableId]) -> None:
        """Set the sequences that a snapshot has seen."""
        with self._database.transaction() as connection:
            _set_sequences(connection, self._task, source, sequences)

    def passed(self) -> dict[str, int]:
        """Return how many statements of each source were passed over; of none where nothing was."""
        query = select(P.c.source, func.count()).where(P.c.task == self._task).group_by(P.c.source)
        with self._database.reading() as connection:
            return {source: int(count) for source, count in connection.execute(query)}

    def newest(self, number: int = SHOWN) -> tuple[PassedStatement, ...]:
        """Return the statements that were passed over last, the newest first."""
        order = P.c.passed_at.desc(), P.c.source, P.c.file.desc(), P.c.position.desc()
        query = select(P).where(P.c.task == self._task).order_by(*order).limit(number)
        with self._database.reading() as connection:
            return tuple(
                PassedStatement(row.source, Passed(Location(row.file, row.position), row.statement), row.passed_at)
                for row in connection.execute(query)
            )


def move_aside(connection: Connection, task: str, plan: Plan) -> None:
    """Take over what a window has found, in its transaction."""
    for passed in plan.unread:
        row = {"task": task, "source": plan.source, **location_columns(passed.location), "statement": passed.text,
               "window": plan.number, "passed_at": tables.NOW}  # fmt: skip
        connection.execute(insert(P).values(row))
    if plan.sequences is not None:
        _set_sequences(connection, task, plan.source, plan.sequences)


def _set_sequences(connection: Connection, task: str, source: str, sequences: Iterable[TableId]) -> None:
    connection.execute(delete(Q).where(Q.c.task == task, Q.c.source == source))
    rows = [{"task": task, "source": source, "shard_schema": table.schema, "shard_table": table.name}
            for table in sorted(sequences)]  # fmt: skip
    if rows:
        connection.execute(insert(Q), rows)
