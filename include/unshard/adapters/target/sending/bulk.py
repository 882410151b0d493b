"""Write rows by COM_STMT_BULK_EXECUTE: MariaDB runs one prepared statement for all rows of a packet.

The server parses no text, which is a sixth of its work for LOAD DATA (ADR 0020). Under the strict sql_mode a value that
does not fit and a taken key are errors, and the statement writes nothing. A cut DECIMAL is only a note. In all these
cases the rows are written again by the caller as text, which tells the row and the column, and counts taken keys.
"""

import itertools

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql, pymysqlprivate
from unshard.adapters.target.destination import Destination, Loaded, Mode
from unshard.adapters.target.rendering.lines import text_of
from unshard.adapters.target.sending.statements import VERBS
from unshard.errors.source import StatementRefused

NUMBERS = itertools.count()


def bulk_bytes(connection: Connection, destination: Destination) -> int:
    """Return how many bytes of rows one command may have."""
    return pymysqlprivate.bulk_bytes(len(destination.columns), connection.packet_bytes)


def insert_rows(connection: Connection, destination: Destination, rows: pa.BinaryArray, mode: Mode) -> Loaded | None:
    """Write rows of parameters in the open transaction; None: the server did not take them all, so none is written."""
    if not connection.uses_bulk or rows.nbytes > bulk_bytes(connection, destination):
        return None
    statement, width = bulk_statement(destination, mode), len(destination.columns)
    # With a name of its own: if SAVEPOINT itself fails, nothing is rolled back to an older one.
    savepoint = f"bulk_{next(NUMBERS)}"
    try:
        number = prepared(connection, statement)
    except StatementRefused:
        return None
    try:
        with mysql.coded_errors(connection, statement):
            before = f"SAVEPOINT {savepoint}"
            ok = pymysqlprivate.execute_bulk(connection, before, number, width, text_of(rows))
    except StatementRefused:
        ok = None
    replaced = ok.affected_rows - len(rows) if ok else -1
    if ok and not ok.warning_count and (replaced == 0 or (replaced > 0 and mode is Mode.REPLACE)):
        return Loaded(len(rows), replaced=replaced)
    mysql.query(connection, f"ROLLBACK TO SAVEPOINT {savepoint}")
    return None


def bulk_statement(destination: Destination, mode: Mode) -> str:
    """Return the statement that writes one row of a destination."""
    names = ", ".join(mysql.identifier(column.name) for column in destination.columns)
    marks = ", ".join("?" * len(destination.columns))
    return f"{VERBS[mode]} INTO {mysql.table_name(destination.table)} ({names}) VALUES ({marks})"


def prepared(connection: Connection, statement: str) -> int:
    """Return the server's number of a statement; a session prepares it once. Raises coded errors."""
    if statement not in connection.prepared:
        with mysql.coded_errors(connection, statement):
            connection.prepared[statement] = pymysqlprivate.prepare(connection, statement)
    number: int = connection.prepared[statement]
    return number
