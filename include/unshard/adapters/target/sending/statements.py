"""Multi-row INSERT and REPLACE, for targets where LOAD DATA LOCAL is refused or commits the transaction.

A plain INSERT comes first. Under the strict sql_mode every value that does not fit is an error, and a failed statement
writes nothing. Only if a key is taken, the same rows are written by INSERT IGNORE, and its warnings must be exactly the
duplicates. A server does not always name the row that it refuses. Then the rows are halved until the row is found.
"""

import numpy as np
import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql, pymysqlprivate
from unshard.adapters.target.destination import Destination, Loaded, Mode, key_of
from unshard.adapters.target.rendering.lines import pieces, text_of, values_of
from unshard.adapters.target.rendering.tuples import tuples_of
from unshard.adapters.target.sending.answers import DUPLICATE, expected_warnings, refused
from unshard.core.sql.literals import stored
from unshard.errors.rows import RowRefused
from unshard.errors.source import JsonNumberLost, StatementRefused, ValueNotCanonical

STATEMENT_ROWS = 200
STATEMENT_BYTES = 1 << 20
"""Limit for the rendered rows; a larger row gets its own statement."""
RENDERED_ROWS = 20_000
VERBS = {Mode.PLAIN: "INSERT", Mode.REPLACE: "REPLACE"}
IGNORING = "INSERT IGNORE"


def insert_lines(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    """Write lines by statements of bounded size; raises RowRefused for any error except a duplicate."""
    loaded = Loaded()
    size = min(STATEMENT_BYTES, connection.packet_bytes // 2)
    for start in range(0, len(lines), RENDERED_ROWS):
        part = lines.slice(start, RENDERED_ROWS)
        rows, done = _rendered(destination, part), 0
        for piece in pieces(rows, STATEMENT_ROWS, size):
            loaded += _insert(connection, destination, part.slice(done, len(piece)), piece, mode)
            done += len(piece)
    return loaded


def _rendered(destination: Destination, lines: pa.BinaryArray) -> pa.BinaryArray:
    """Render rows for a statement; raises RowRefused for the first value that does not have its column's type."""
    try:
        return tuples_of(destination.columns, lines)
    except (ValueNotCanonical, JsonNumberLost):
        for line in lines.to_pylist():
            for column, value in zip(destination.columns, values_of(line), strict=True):
                try:
                    stored(column, value)
                except (ValueNotCanonical, JsonNumberLost) as error:
                    is_lost = isinstance(error, JsonNumberLost)
                    message = error.message if is_lost else f"the value does not have the type {column.column_type}"
                    key = key_of(destination, line)
                    raise RowRefused(str(destination.table), column.name, key, message, line) from error
        raise


def run_statement(connection: Connection, statement: str | bytes) -> pymysqlprivate.Answer:
    """Run a statement without result rows; return the server's answer with its counts."""
    with mysql.coded_errors(connection, statement if isinstance(statement, str) else shown(statement)):
        return pymysqlprivate.run(connection, statement)


def shown(statement: bytes) -> str:
    """Return the beginning of a statement for messages."""
    return statement[: mysql.SHOWN_STATEMENT].decode("utf-8", "backslashreplace")


def _insert(
    connection: Connection, destination: Destination, lines: pa.BinaryArray, rows: pa.BinaryArray, mode: Mode
) -> Loaded:
    """Write some rows; if the server refuses them, find the row that caused it."""
    try:
        return _insert_once(connection, destination, lines, rows, mode)
    except StatementRefused as error:
        if named := refused(destination, lines, error.server_message):
            raise named from error
        if len(lines) == 1:
            line = lines[0].as_py()
            raise RowRefused(
                str(destination.table), "", key_of(destination, line), error.server_message, line
            ) from error
        half = len(lines) // 2
        for start, size in ((0, half), (half, len(lines) - half)):
            _insert(connection, destination, lines.slice(start, size), rows.slice(start, size), mode)
        raise  # each half succeeds alone: the server refused the size of the statement, or had another reason


def _insert_once(
    connection: Connection, destination: Destination, lines: pa.BinaryArray, rows: pa.BinaryArray, mode: Mode
) -> Loaded:
    try:
        ok = run_statement(connection, _statement(connection, destination, lines, rows, VERBS[mode]))
    except StatementRefused as error:
        if error.errno != DUPLICATE or mode is not Mode.PLAIN:
            raise
        ok = run_statement(connection, _statement(connection, destination, lines, rows, IGNORING))
    count, changed = len(lines), ok.affected_rows
    skipped = count - changed if mode is Mode.PLAIN else 0
    duplicates: tuple[str, ...] = ()
    if ok.warning_count or skipped:
        duplicates = expected_warnings(connection, destination, lines, skipped, ok.warning_count)
    return Loaded(count, skipped, max(0, changed - count) if mode is Mode.REPLACE else 0, duplicates)


def _statement(
    connection: Connection, destination: Destination, lines: pa.BinaryArray, rows: pa.BinaryArray, verb: str
) -> bytes:
    names = ", ".join(mysql.identifier(column.name) for column in destination.columns)
    head = f"{verb} INTO {mysql.table_name(destination.table)} ({names}) VALUES ".encode()
    text = text_of(rows)
    if len(head) + len(text) > connection.packet_bytes:
        line = lines[int(np.argmax([len(row) for row in rows.to_pylist()]))].as_py()
        message = f"as a statement it has {len(text)} bytes, max_allowed_packet is {connection.packet_bytes}"
        raise RowRefused(str(destination.table), "", key_of(destination, line), message, line)
    return b"".join((head, text[:-2]))
