"""Evaluate expression filters on the target, over rows in a temporary table with the shard's structure (in executors).

So the server itself applies its rules for comparisons, functions, NULL, collations and types. A temporary table is
visible only to its session and ends with it. It needs the privilege CREATE TEMPORARY TABLES on the meta schema.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.structures import keeps_utf8, with_utf8
from unshard.adapters.target.sending import load_lines
from unshard.adapters.target.session import Writer, kept_session
from unshard.adapters.target.targetrows import Mode
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.sql import charsets
from unshard.core.sql.quoting import identifier
from unshard.errors.rows import RowFilterFailed
from unshard.errors.source import StatementRefused

NUMBER = Column("", "bigint", "bigint", False, None, None, None, "")


class ExpressionEvaluator:
    """Evaluates expressions over rows; opens its session at the first use."""

    def __init__(self, writer: Writer, schema: str, time_zone: str) -> None:
        self._writer, self._time_zone = writer, time_zone
        self._table = TableId(schema, "_filtered_rows")
        self._connection: Connection | None = None
        self._lent = contextlib.ExitStack()

    def close(self) -> None:
        self._lent.close()
        self._connection = None

    def true_for(self, rule: str, expression: str, structure: TableSchema, columns: Sequence[pa.Array]) -> np.ndarray:
        """Return a mask of the rows for which the expression is true; `columns` hold the shard's values."""
        if self._connection is None:
            self._connection = self._lent.enter_context(kept_session(self._writer))
        with self._table_of(self._connection, rule, expression, structure, columns) as number:
            found = self._rows(self._connection, rule, expression, number)
        mask = np.zeros(len(columns[0]), bool)
        mask[found] = True
        return mask

    @contextlib.contextmanager
    def _table_of(
        self, connection: Connection, rule: str, expression: str, structure: TableSchema, columns: Sequence[pa.Array]
    ) -> Iterator[str]:
        """Create the table for the block and drop it afterwards; after an error the session remains usable."""
        try:
            try:
                number = self._make(connection, structure, columns)
            except UnicodeError as error:
                raise RowFilterFailed(rule, expression, f"the text of a row is not valid: {error}") from error
            mysql.query(connection, "SET SESSION time_zone = %s", (self._time_zone,))
            yield number
        finally:
            if connection.open:
                mysql.query(connection, "SET SESSION time_zone = '+00:00'")
                mysql.query(connection, f"DROP TEMPORARY TABLE IF EXISTS {mysql.table_name(self._table)}")

    def _make(self, connection: Connection, structure: TableSchema, columns: Sequence[pa.Array]) -> str:
        names = {column.name.lower() for column in structure.columns}
        number = next(name for n in range(len(names) + 1) if (name := f"_row_{n}") not in names)
        numbered = [replace(NUMBER, name=number), *(replace(column, nullable=True) for column in structure.written)]
        definitions = ", ".join(map(_definition, numbered))
        mysql.query(connection, f"CREATE TEMPORARY TABLE {mysql.table_name(self._table)} ({definitions})")
        numbers = pa.array([str(row).encode() for row in range(len(columns[0]))], pa.binary())
        if keeps_utf8(connection):
            sent = with_utf8(replace(structure, columns=tuple(numbered))).columns
            columns = [*map(_in_utf8, sent[1:], columns)]
            numbered = [*sent]
        rows = pa.RecordBatch.from_arrays([numbers, *columns], [column.name for column in numbered])
        load_lines(connection, self._table, numbered, rows, Mode.PLAIN)
        return number

    def _rows(self, connection: Connection, rule: str, expression: str, number: str) -> list[int]:
        sql = f"SELECT {identifier(number)} FROM {mysql.table_name(self._table)} WHERE ({expression})"  # noqa: S608
        try:
            return [row for (row,) in mysql.query(connection, sql)]
        except StatementRefused as error:
            raise RowFilterFailed(rule, expression, error.server_message) from error


def check_expression(connection: Connection, rule: str, expression: str, structure: TableSchema) -> None:
    """Raise RowFilterFailed for an expression that the server cannot parse, or that uses an unknown column."""
    columns = ", ".join(f"NULL AS {identifier(column.name)}" for column in structure.written)
    sql = f"SELECT 1 FROM (SELECT {columns}) AS shard WHERE ({expression}) LIMIT 0"  # noqa: S608
    try:
        mysql.query(connection, sql)
    except StatementRefused as error:
        raise RowFilterFailed(rule, expression, error.server_message) from error


def _in_utf8(column: Column, values: pa.Array) -> pa.Array:
    """Return text in the character set that the server expects; TiDB would keep the bytes of latin1 as they are."""
    if not (column.sent_as and column.charset):
        return values
    charset = column.charset
    texts = (None if value is None else charsets.decode(value, charset) for value in values.to_pylist())
    return pa.array([None if text is None else text.encode() for text in texts], pa.binary())


def _definition(column: Column) -> str:
    charset = f" CHARACTER SET {column.charset} COLLATE {column.collation}" if column.charset else ""
    return f"{identifier(column.name)} {column.column_type}{charset} {'' if column.nullable else 'NOT '}NULL"
