"""Check the server's answer to a statement that wrote rows: every warning must have a known cause.

TiDB and other servers keep a limited number of warnings. A statement whose warnings are not all listed is an error.
"""

import re

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.destination import Destination, is_blankable, key_of
from unshard.adapters.target.rendering.lines import values_of
from unshard.core.model import Column
from unshard.errors.rows import RowRefused

DUPLICATE = 1062
TRUNCATED = 1265
_COLUMN_AND_ROW = re.compile(r"for column (?:`[^`]*`\.`[^`]*`\.)?[`']?(?P<column>.*?)[`']? at row (?P<row>\d+)")
_ROW = re.compile(r"at row (\d+)")


def expected_warnings(
    connection: Connection, destination: Destination, lines: pa.BinaryArray, skipped: int, warnings: int
) -> tuple[str, ...]:
    """Return the server's messages about duplicates; raises RowRefused for any other warning."""
    duplicates = []
    listed = mysql.query(connection, "SHOW WARNINGS")
    if len(listed) < warnings:
        message = f"{warnings} warnings, of which the server lists {len(listed)}"
        raise RowRefused(str(destination.table), "", "", message)
    for _, code, message in listed:
        if code == DUPLICATE:
            duplicates.append(message)
        elif not (code == TRUNCATED and _is_blank(destination, lines, message)):
            raise refused(destination, lines, message) or RowRefused(str(destination.table), "", "", message)
    if len(duplicates) != skipped:
        message = f"{skipped} rows were skipped, {len(duplicates)} of them as duplicates"
        raise RowRefused(str(destination.table), "", "", message)
    return tuple(duplicates[:10])


def _is_blank(destination: Destination, lines: pa.BinaryArray, message: str) -> bool:
    """Whether a warning is about an ENUM value with index 0, which the server stores correctly."""
    found = _COLUMN_AND_ROW.search(message)
    if found is None:
        return False
    number, column = _column(destination, found["column"])
    values = values_of(lines[int(found["row"]) - 1].as_py())
    return column is not None and is_blankable(column) and values[number] == b""


def _column(destination: Destination, name: str) -> tuple[int, Column | None]:
    for number, column in enumerate(destination.columns):
        if column.name.lower() == name.lower():
            return number, column
    return -1, None


def refused(destination: Destination, lines: pa.BinaryArray, message: str) -> RowRefused | None:
    """Return an error with column and key of the row that a server message is about; None if it names no row."""
    row = _ROW.search(message)
    if row is None or not 1 <= int(row[1]) <= len(lines):
        return None
    found = _COLUMN_AND_ROW.search(message)
    line = lines[int(row[1]) - 1].as_py()
    return RowRefused(
        str(destination.table), found["column"] if found else "", key_of(destination, line), message, line
    )
