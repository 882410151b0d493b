"""Values for columns of the target that the rows of a shard do not have, if an INSERT cannot omit the column."""

import re
from dataclasses import replace

from unshard.core.model import Column
from unshard.core.sql import charsets
from unshard.core.sql.literals import BINARIES, GEOMETRIES, INTEGERS, TEXTS
from unshard.core.structures.columntypes import read_labels

SHAPED = GEOMETRIES | {"vector"}
NUMBER = re.compile(r"-?\d+(\.\d+)?")
ESCAPED = re.compile(r"\\(.)|''", re.DOTALL)
CONTROLS = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
"""The characters that servers print as a letter after a backslash."""
ZEROS = {
    "date": b"0000-00-00",
    "datetime": b"0000-00-00 00:00:00",
    "timestamp": b"0000-00-00 00:00:00",
    "time": b"00:00:00",
    "year": b"0000",
    "decimal": b"0",
    "float": b"0",
    "double": b"0",
    **dict.fromkeys(INTEGERS, b"0"),
}


def implicit_value(column: Column) -> bytes | None:
    """Return the value that ALTER TABLE gives to existing rows for a new NOT NULL column without a default.

    None if the column needs no value or the value is unknown.
    """
    if column.nullable or column.default is not None or column.is_generated or column.is_numbered:
        return None
    kind = column.data_type
    if kind in ZEROS:
        return _with_fraction(column, ZEROS[kind])
    if kind == "enum":
        return _encoded(column, read_labels(column.column_type)[0])
    if kind == "binary":
        return bytes((*column.numbers, 1)[0])
    return b"" if kind in TEXTS or kind in BINARIES - SHAPED else None


def filled_value(column: Column, literal: str) -> bytes | None:
    """Return the canonical value of an SQL literal that ALTER TABLE gave to existing rows of a column; None for NULL.

    An empty literal is the implicit value of the type.
    """
    if not literal:
        return implicit_value(replace(column, nullable=False, default=None))
    if literal.upper() == "NULL":
        return None
    if literal[:2].lower() == "x'":
        return bytes.fromhex(literal[2:-1])
    if not literal.startswith("'"):
        return literal.encode()
    text = ESCAPED.sub(lambda found: CONTROLS.get(found[1], found[1]) if found[1] else "'", literal[1:-1])
    return charsets.encode(text, column.encoding or "utf8mb4")


def constant_default(column: Column) -> bytes | None:
    """Return the value of a default that is a plain number or text, the implicit value without one, else None."""
    text = column.default
    if text is None or column.is_generated:
        return implicit_value(column)
    if NUMBER.fullmatch(text) and column.data_type in INTEGERS and "." not in text:
        return text.encode()
    if column.data_type in TEXTS and re.fullmatch(r"'(?:[^'\\]|'')*'", text):
        return _encoded(column, text[1:-1].replace("''", "'"))
    return None


def _with_fraction(column: Column, zero: bytes) -> bytes:
    if column.data_type == "decimal":
        digits = (*column.numbers, 0, 0)[1]
    else:
        digits = (*column.numbers, 0)[0] if column.data_type in ("datetime", "timestamp", "time") else 0
    return zero + b"." + b"0" * digits if digits else zero


def _encoded(column: Column, text: str) -> bytes | None:
    try:
        return charsets.encode(text, str(column.encoding))
    except UnicodeError:
        return None
