"""Write the rows that a repair has proven: executed in one transaction, or as statements for people to read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.apply import naming_table
from unshard.adapters.target.chunkprogress import ColumnUpdate, Values
from unshard.adapters.target.deletes import removal, remove_rows
from unshard.adapters.target.sending import load_lines
from unshard.adapters.target.session import LENIENT, STRICT
from unshard.adapters.target.targetrows import Destination, Mode, is_blankable
from unshard.core.model import TableSchema
from unshard.core.rows.columnreload import updated_by_server
from unshard.core.sql.literals import stored
from unshard.core.sql.quoting import identifier
from unshard.errors.rows import Collision

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WholeRow:
    """A row as the target must have it: a value for each column of the destination."""

    destination: Destination
    key: tuple[int, ...]
    """Numbers of the columns of the target's key."""
    values: Values

    @property
    def has_blank(self) -> bool:
        """Whether an ENUM has the value with index 0, which only a lenient sql_mode writes."""
        pairs = zip(self.destination.columns, self.values, strict=True)
        return any(is_blankable(column) and value == b"" for column, value in pairs)

    def key_first(self, row: Sequence[T]) -> tuple[T, ...]:
        """Return a row with the values of the key before the others."""
        others = (number for number in range(len(row)) if number not in self.key)
        return tuple(row[number] for number in (*self.key, *others))


@dataclass(frozen=True, slots=True)
class RowRepairs:
    """The rows of a transaction: all deletes, then updates, then inserts."""

    schema: TableSchema
    """The structure of the target."""
    destination: Destination
    removed: Sequence[bytes]
    """Lines of the target's rows, in the form of the destination."""
    changed: Sequence[WholeRow]
    inserted: Sequence[WholeRow]

    def statements(self) -> Iterator[str]:
        """Yield a statement per row."""
        table = mysql.table_name(self.destination.table)
        for line in self.removed:
            yield removal(self.destination, self.schema, line, 1)
        for row in self.changed:
            yield self._update(row).statement([row.key_first(row.values)])
        for row in self.inserted:
            columns = row.destination.columns
            names = ", ".join(identifier(column.name) for column in columns)
            values = ", ".join(stored(column, value) for column, value in zip(columns, row.values, strict=True))
            yield from [f"SET SESSION sql_mode = '{LENIENT}'"] * row.has_blank
            yield f"INSERT INTO {table} ({names}) VALUES ({values})"  # noqa: S608
            yield from [f"SET SESSION sql_mode = '{STRICT}'"] * row.has_blank

    def execute(self, connection: Connection) -> None:
        """Write the rows in the caller's transaction."""
        with naming_table(self.destination.table):
            for line in self.removed:
                remove_rows(connection, self.destination, self.schema, line, 1)
            for rows in _by_columns(self.changed):
                self._update(rows[0]).run(connection, [row.key_first(row.values) for row in rows])
            for rows in _by_columns(self.inserted):
                _insert(connection, rows)

    def _update(self, row: WholeRow) -> ColumnUpdate:
        columns = row.key_first(row.destination.columns)
        keys, rest = columns[: len(row.key)], columns[len(row.key) :]
        kept = updated_by_server(self.schema, [column.name for column in rest])
        return ColumnUpdate(self.destination.table, keys, rest, kept)


def _insert(connection: Connection, rows: Sequence[WholeRow]) -> None:
    columns, table = rows[0].destination.columns, rows[0].destination.table
    arrays = [pa.array(each, pa.binary()) for each in zip(*(row.values for row in rows), strict=True)]
    made = pa.table(arrays, [column.name for column in columns])
    loaded = load_lines(connection, table, columns, made, Mode.PLAIN)
    if loaded.skipped:
        raise Collision(str(table), "; ".join(loaded.duplicates), "that is repaired", Collision.unnamed)


def _by_columns(rows: Sequence[WholeRow]) -> list[list[WholeRow]]:
    """Group rows of the same columns, so that each group is written together."""
    groups: dict[int, list[WholeRow]] = {}
    for row in rows:
        groups.setdefault(id(row.destination), []).append(row)
    return [*groups.values()]
