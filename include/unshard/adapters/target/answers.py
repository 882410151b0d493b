"""What a server says about a statement that has written rows: every warning is accounted for.

TiDB and other servers keep a limited number of warnings. A statement whose warnings are not all listed is an error.
"""

import re

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.destination import Destination, is_blankable, key_of
from unshard.adapters.target.lines import values_of
from unshard.core.model import Column
from unshard.errors.target import RowRefused

DUPLICATE = 1062
TRUNCATED = 1265
_PLACE = re.compile(r"for column (?:`[^`]*`\.`[^`]*`\.)?[`']?(?P<column>.*?)[`']? at row (?P<row>\d+)")
_ROW = re.compile(r"at row (\d+)")


def expected_warnings(connection: Connection, destination: Destination, lines: pa.BinaryArray,
                       skipped: int, warnings: int) -> tuple[str, ...]:  # fmt: skip
    """Return the words about duplicates; raises for every other warning that nothing explains."""
    duplicates = []
    listed = mysql.query(connection, "SHOW WARNINGS")
    if len(listed) < warnings:
        words = f"{warnings} warnings, of which the server lists {len(listed)}"
        raise RowRefused(str(destination.table), "", "", words)
    for _, code, words in listed:
        if code == DUPLICATE:
            duplicates.append(words)
        elif not (code == TRUNCATED and _is_blank(destination, lines, words)):
            raise refused(destination, lines, words) or RowRefused(str(destination.table), "", "", words)
    if len(duplicates) != skipped:
        words = f"{skipped} rows were skipped, {len(duplicates)} of them as duplicates"
        raise RowRefused(str(destination.table), "", "", words)
    return tuple(duplicates[:10])


def _is_blank(destination: Destination, lines: pa.BinaryArray, words: str) -> bool:
    """Whether a warning speaks of an ENUM value with index 0, which is stored as it should be."""
    place = _PLACE.search(words)
    if place is None:
        return False
    number, column = _column(destination, place["column"])
    values = values_of(lines[int(place["row"]) - 1].as_py())
    return column is not None and is_blankable(column) and values[number] == b""


def _column(destination: Destination, name: str) -> tuple[int, Column | None]:
    for number, column in enumerate(destination.columns):
        if column.name.lower() == name.lower():
            return number, column
    return -1, None


def refused(destination: Destination, lines: pa.BinaryArray, words: str) -> RowRefused | None:
    """Name column and key of the row that the server's words speak of, if they speak of one."""
    row = _ROW.search(words)
    if row is None or not 1 <= int(row[1]) <= len(lines):
        return None
    place = _PLACE.search(words)
    line = lines[int(row[1]) - 1].as_py()
    return RowRefused(str(destination.table), place["column"] if place else "", key_of(destination, line), words, line)
