"""Render canonical values as SQL literals for WHERE clauses: chunk bounds, deletes by key; and select them.

A canonical value is the bytes that MySQL prints for it in the column's own charset. A literal must
select the same rows through an index whatever the session's charset is, so text becomes an introducer
with hexadecimal digits: the server then compares in the column's collation, and nothing needs escaping.
"""

import re

from unshard.core.model import Column
from unshard.core.quoting import identifier
from unshard.errors.source import UnknownColumnType, ValueNotCanonical

INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "integer", "bigint"})
DECIMALS = frozenset({"decimal", "numeric"})
FLOATS = frozenset({"float", "double", "real"})
TEMPORALS = frozenset({"date", "datetime", "timestamp", "time", "year"})
TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})
BINARIES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point",
                      "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
                      "geometrycollection", "vector"})  # fmt: skip
PRINTED = frozenset({"uuid", "inet4", "inet6", "json"})
"""Types whose values print as ASCII or utf8mb4 text although the column has no charset."""

_NUMBER = re.compile(rb"-?\d+(\.\d+)?(e[+-]?\d+)?\Z", re.IGNORECASE)
_TEMPORAL = re.compile(rb"-?[\d:. -]+\Z")


def literal(column: Column, value: bytes | None) -> str:
    """Return the literal of `value` for a comparison with `column`; `NULL` for None."""
    if value is None:
        return "NULL"
    kind = column.data_type
    if kind in TEXTS or kind in PRINTED:
        return f"_{_charset(column)} x'{value.hex()}'"
    if kind in BINARIES:
        return f"x'{value.hex()}'"
    if kind == "bit":
        return str(int.from_bytes(value, "big"))
    return _printed_literal(column, value)


def expression(column: Column) -> str:
    """Return what to select so that the column's values print canonically: servers print six digits of a FLOAT."""
    name = identifier(column.name)
    # MySQL has CAST(… AS DOUBLE) since 8.0.17 only; adding zero would lose the sign of -0.
    return f"{name} * 1e0" if column.data_type == "float" else name


def _printed_literal(column: Column, value: bytes) -> str:
    """Return a literal that consists of what the value prints."""
    kind = column.data_type
    if kind in INTEGERS or kind in DECIMALS:
        return _matching(_NUMBER, column, value)
    if kind in FLOATS:
        # Without an exponent the literal would be a DECIMAL and lose what a double can hold.
        number = _matching(_NUMBER, column, value)
        return number if "e" in number.lower() else f"{number}e0"
    if kind in TEMPORALS:
        return f"'{_matching(_TEMPORAL, column, value)}'"
    raise UnknownColumnType(column.name, column.column_type)


def _charset(column: Column) -> str:
    charset = column.charset or ("binary" if column.data_type in TEXTS else "utf8mb4")
    if not charset.isalnum():
        raise UnknownColumnType(column.name, f"{column.column_type} character set {charset}")
    return charset


def _matching(pattern: re.Pattern[bytes], column: Column, value: bytes) -> str:
    if pattern.match(value) is None:
        raise ValueNotCanonical(column.name, column.column_type)
    return value.decode("ascii")
