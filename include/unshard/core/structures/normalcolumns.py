"""Describes columns of MySQL and TiDB as MariaDB does, so that structures of different servers can be compared.

| part of the column | MySQL, TiDB | here, as on MariaDB |
|---|---|---|
| a nullable column without a default | no default | `NULL` |
| a default text, date or time | `abc` | `'abc'` |
| a default DECIMAL(5,2) | TiDB: `1.5`, as it was written | `1.50` |
| a default FLOAT or DOUBLE | TiDB: `1000000000000000` | `1e15` |
| a default of the current time | `CURRENT_TIMESTAMP` | `current_timestamp()` |
| ON UPDATE | `CURRENT_TIMESTAMP` | `current_timestamp()` |
| the character set `utf8` | MySQL 5, TiDB: `utf8` | `utf8mb3` |
| an integer, a year | MySQL 8: `int` | `int(11)` |
| GEOMETRYCOLLECTION | MySQL 8: `geomcollection` | `geometrycollection` |
| ZEROFILL | TiDB: only in SHOW CREATE TABLE | in the type |
| AUTO_RANDOM | TiDB: only in SHOW CREATE TABLE | `auto_random` |
"""

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from unshard.core.model import Column
from unshard.core.sql.charsets import canonical
from unshard.core.sql.literals import BINARIES, TEXTS
from unshard.core.sql.quoting import identifier

WIDTHS = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20)}
"""Default display widths, signed and unsigned."""
QUOTED = frozenset({*TEXTS, *BINARIES, "date", "time", "datetime", "timestamp"})
ESCAPES = str.maketrans({"'": "''", "\\": "\\\\", "\0": "\\0", "\n": "\\n", "\r": "\\r"})
ZEROFILL = re.compile(r" [a-z]+(?:\(\d+(?:,\d+)?\))?(?: unsigned)? zerofill\b")
AUTO_RANDOM = "/*T![auto_rand] AUTO_RANDOM("
MOMENT = re.compile(r"current_timestamp(?!\()", re.IGNORECASE)


def normal_column(column: Column, line: str, double: Callable[[float], str]) -> Column:
    """Return the column as MariaDB describes it.

    `line` is the column's line in SHOW CREATE TABLE; `double` prints a DOUBLE as servers do.
    """
    charset = "utf8mb3" if column.charset == "utf8" else column.charset
    collation = canonical(column.collation) if column.collation else column.collation
    if column.data_type == "geomcollection":
        column = replace(column, data_type="geometrycollection", column_type="geometrycollection")
    return replace(
        column,
        column_type=_type(column, line),
        charset=charset,
        collation=collation,
        default=_default(column, line, double),
        extra="auto_random" if AUTO_RANDOM in line else MOMENT.sub("current_timestamp()", column.extra),
    )


def _type(column: Column, line: str) -> str:
    text = column.column_type
    if "(" not in text and column.data_type in WIDTHS:
        width = WIDTHS[column.data_type][column.is_unsigned]
        text = text.replace(column.data_type, f"{column.data_type}({width})", 1)
    if text == "year":
        text = "year(4)"
    is_filled = "zerofill" not in text and ZEROFILL.match(line, len("  ") + len(identifier(column.name)))
    return f"{text} zerofill" if is_filled else text


def _default(column: Column, line: str, double: Callable[[float], str]) -> str | None:
    text = column.default
    if text is None or column.is_generated:
        return "NULL" if column.nullable and not column.is_generated else None
    quoted = f"'{text.translate(ESCAPES)}'"
    if f" DEFAULT {quoted}" not in line:
        return _expression(column, text)
    if column.data_type in QUOTED:
        return quoted
    return _number(column, text, double)


def _expression(column: Column, text: str) -> str:
    if column.data_type in ("datetime", "timestamp"):
        return MOMENT.sub("current_timestamp()", text).replace("CURRENT_TIMESTAMP(", "current_timestamp(")
    return "curdate()" if text.upper() == "CURRENT_DATE" else text


def _number(column: Column, text: str, double: Callable[[float], str]) -> str:
    try:
        if column.data_type == "decimal":
            scale = re.search(r",(\d+)\)", column.column_type)
            return format(Decimal(text).quantize(Decimal(1).scaleb(-int(scale[1]) if scale else 0)), "f")
        if column.column_type in ("float", "double"):
            value = float(f"{float(text):.6g}") if column.column_type == "float" else float(text)
            return double(value)
    except (ValueError, InvalidOperation):
        return text
    return text
