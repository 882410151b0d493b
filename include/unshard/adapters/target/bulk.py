"""Write rows by COM_STMT_BULK_EXECUTE: MariaDB runs one prepared statement for all rows of a packet.

The server parses no text, which is a sixth of its work for LOAD DATA (ADR 0016). Under the strict sql_mode a value that
does not fit and a taken key are errors, and the statement writes nothing. A cut DECIMAL is only a note. In all these
cases the rows are written again by the caller as text, which tells the row and the column, and counts taken keys.
"""

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql, pymysqlprivate
from unshard.adapters.target.destination import Destination, Loaded, Mode
from unshard.adapters.target.rendering.lines import text_of
from unshard.errors.source import StatementRefused

VERBS = {Mode.PLAIN: "INSERT", Mode.REPLACE: "REPLACE"}
SAVEPOINT = "before_bulk"


def bulk_bytes(connection: Connection, destination: Destination) -> int:
    """Return how many bytes of rows one command may have."""
    return pymysqlprivate.bulk_bytes(len(destination.columns), connection.packet_bytes)


def insert_rows(connection: Connection, destination: Destination, rows: pa.BinaryArray, mode: Mode) -> Loaded | None:
    """Write rows of parameters in the open transaction; None: the server did not take them all, so none is written."""
    if not connection.uses_bulk or rows.nbytes > bulk_bytes(connection, destination):
        return None
    statement = bulk_statement(destination, mode)
    mysql.query(connection, f"SAVEPOINT {SAVEPOINT}")
    try:
        with mysql.coded_errors(connection, statement):
            ok = run_bulk(connection, statement, len(destination.columns), text_of(rows))
    except StatementRefused:
        ok = None
    if ok and not ok.warning_count and (mode is Mode.REPLACE or ok.affected_rows == len(rows)):
        return Loaded(len(rows), replaced=ok.affected_rows - len(rows))
    mysql.query(connection, f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
    return None


def bulk_statement(destination: Destination, mode: Mode) -> str:
    """Return the statement that writes one row of a destination."""
    names = ", ".join(mysql.identifier(column.name) for column in destination.columns)
    marks = ", ".join("?" * len(destination.columns))
    return f"{VERBS[mode]} INTO {mysql.table_name(destination.table)} ({names}) VALUES ({marks})"


def run_bulk(connection: Connection, statement: str, columns: int, rows: memoryview) -> pymysqlprivate.Answer:
    """Run a statement for each row of parameters; a session prepares it once. Raises the driver's errors."""
    if statement not in connection.prepared:
        connection.prepared[statement] = pymysqlprivate.prepare(connection, statement)
    return pymysqlprivate.execute_bulk(connection, connection.prepared[statement], columns, rows)
