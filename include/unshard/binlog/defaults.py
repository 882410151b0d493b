"""The defaults that an INSERT gives to columns missing from its row image, from the tracked structure.

Servers log columns that the statement names, AUTO_INCREMENT, and all computed defaults. A missing column therefore has
a constant default or NULL. Under a permissive sql_mode, a column without default has the zero of its type. If the
canonical value of a default is not certain, there is no result, and the caller refuses the row.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from unshard.binlog.values import float_text
from unshard.core.model import Column, TableSchema
from unshard.core.rows.missingcolumns import implicit_value
from unshard.core.sql.charsets import encode
from unshard.core.sql.literals import INTEGERS, TEXTS

_QUOTED = re.compile(r"'(?:[^'\\]|''|\\[\\0nr])*'")
_ESCAPED = re.compile(r"''|\\.")
_MEANT = {"''": "'", "\\\\": "\\", "\\0": "\0", "\\n": "\n", "\\r": "\r"}
"""Escapes that SHOW CREATE TABLE prints, and their characters."""
_BITS = re.compile(r"b'([01]+)'")
_NEVER = "0000-00-00 00:00:00"
_FORMS = {
    "date": r"\d{4}-\d\d-\d\d",
    "datetime": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
    "time": r"-?\d{2,3}:\d\d:\d\d",
    "timestamp": _NEVER,
    "year": r"\d{4}",
}
_BLOBS = frozenset(("varbinary", "tinyblob", "blob", "mediumblob", "longblob"))


@dataclass(frozen=True, slots=True)
class Default:
    """The value of an omitted column."""

    value: bytes | None


def default_of(column: Column, structure: TableSchema) -> Default | None:
    """Return the default of a column as its canonical value; None if that is not certain."""
    text = column.default
    if text is None or text.upper() == "NULL":
        return Default(None) if column.nullable else _zero(column)
    read = _READERS.get(column.data_type) or (_label if column.data_type in TEXTS else None)
    try:
        value = read(column, _shown(column, text, structure)) if read else None
    except (ValueError, InvalidOperation):
        return None
    return None if value is None else Default(value)


def _zero(column: Column) -> Default | None:
    if column.data_type == "bit":
        return Default(bytes((_numbers(column)[0] + 7) // 8))
    if column.data_type == "set":
        return Default(b"")
    value = implicit_value(column)
    if value is not None and "zerofill" in column.column_type:
        return None
    return None if value is None else Default(value)


def _shown(column: Column, text: str, structure: TableSchema) -> str:
    """Return the default as SHOW CREATE TABLE prints it; MySQL's information_schema has texts without their quotes."""
    name = column.name.replace("`", "``")
    line = next((line for line in structure.create_sql.splitlines() if line.startswith(f"  `{name}` ")), "")
    quoted = "'" + text.replace("'", "''") + "'"
    return quoted if f"DEFAULT {quoted}" in line else text


def _integer(column: Column, text: str) -> bytes | None:
    number = int(_inside(text))
    width = _numbers(column)[0] if "zerofill" in column.column_type else 0
    return b"%0*d" % (width, number)


def _decimal(column: Column, text: str) -> bytes | None:
    if "zerofill" in column.column_type:
        return None
    scale = (*_numbers(column), 0, 0)[1]
    return format(Decimal(_inside(text)).quantize(Decimal(1).scaleb(-scale)), "f").encode()


def _float(code: str) -> Callable[[Column, str], bytes | None]:
    def read(column: Column, text: str) -> bytes | None:
        if column.column_type not in ("float", "double"):
            return None
        return float_text(code, None)(struct.pack(code, float(_inside(text))), 0)

    return read


def _temporal(column: Column, text: str) -> bytes | None:
    """Return the default of a TIMESTAMP only if it is zero; others are printed in the session's time zone."""
    whole, _, fraction = _inside(text).partition(".")
    digits = 0 if column.data_type in ("date", "year") else (*_numbers(column), 0)[0]
    if not re.fullmatch(_FORMS[column.data_type], whole) or len(fraction) > digits:
        return None
    return (whole + ("." + fraction.ljust(digits, "0") if digits else "")).encode()


def _label(column: Column, text: str) -> bytes | None:
    value = _text(text)
    if value is None or (column.data_type == "char" and value.endswith(" ")):
        return None
    return encode(value, str(column.charset))


def _binary(column: Column, text: str) -> bytes | None:
    value = _text(text)
    if value is None or not value.isascii():
        return None
    return value.encode().ljust(_numbers(column)[0] if column.data_type == "binary" else 0, b"\0")


def _bit(column: Column, text: str) -> bytes | None:
    found = _BITS.fullmatch(text)
    return int(found[1], 2).to_bytes((_numbers(column)[0] + 7) // 8, "big") if found else None


def _text(text: str) -> str | None:
    return _ESCAPED.sub(lambda found: _MEANT[found[0]], text[1:-1]) if _QUOTED.fullmatch(text) else None


def _inside(text: str) -> str:
    """Remove the quotes around numbers and times, which some servers and versions print."""
    return text[1:-1] if _QUOTED.fullmatch(text) else text


def _numbers(column: Column) -> tuple[int, ...]:
    found = re.match(r"[a-z]+\((\d+)(?:,(\d+))?\)", column.column_type)
    return tuple(int(part) for part in found.groups() if part) if found else ()


_READERS: dict[str, Callable[[Column, str], bytes | None]] = {
    **dict.fromkeys(INTEGERS, _integer),
    "decimal": _decimal,
    "float": _float("<f"),
    "double": _float("<d"),
    **dict.fromkeys(_FORMS, _temporal),
    "binary": _binary,
    **dict.fromkeys(_BLOBS, _binary),
    "bit": _bit,
}
