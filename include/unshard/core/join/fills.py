"""The fill: an SQL literal that the rows of a shard have in a column that the shard lacks.

It is what ADD COLUMN gave to the rows that existed. If the shards convert the column later, its type may not hold this
value any more. Then the fill becomes NULL or the zero of the type, and each shard that adds the column is read again.
"""

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from unshard.core.join.tables import NULL
from unshard.core.model import Column
from unshard.core.rows.missingcolumns import filled_value, implicit_value
from unshard.core.sql import charsets
from unshard.core.sql.literals import BINARIES, TEXTS
from unshard.core.structures.columntypes import (
    BinaryType,
    ColumnType,
    DecimalType,
    IntegerType,
    LabelType,
    TextType,
    TimeType,
    TypeForm,
    type_of,
)

LITERAL = re.compile(r"'(?:[^'\\]|''|\\.)*'|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
MOMENT = re.compile(r"-?\d[\d:. -]*")
TIMES = ("date", "year")
FLOATS = ("float", "double", "real")


def fill_of(column: Column) -> str | None:
    """Return what ALTER TABLE gives to the old rows of a new column; None if that is unknown or differs by server."""
    if column.is_generated:
        return NULL
    if column.is_numbered:
        return None
    if column.default in (None, NULL):
        return NULL if column.nullable else _implicit(column)
    return column.default if LITERAL.fullmatch(str(column.default)) else None


def _implicit(column: Column) -> str | None:
    """Return the literal of the value that ALTER TABLE gives to old rows without a default; None if it is unknown."""
    value = implicit_value(column)
    if value is None:
        return None
    if column.data_type in BINARIES:
        return f"x'{value.hex()}'" if value else "''"
    text = charsets.decode(value, column.encoding or "ascii").replace("'", "''")
    return text if LITERAL.fullmatch(text) and column.data_type not in TEXTS else f"'{text}'"


def is_same_fill(one: str | None, other: str | None) -> bool:
    """Whether two fills are known and equal."""
    if one is None or other is None:
        return False
    return one == other or _number(one) == _number(other) is not None


def _number(literal: str) -> Decimal | None:
    try:
        return Decimal(literal)
    except InvalidOperation:
        return None


def held_fill(fill: str, columns: Sequence[Column]) -> str:
    """Return the fill if a column of the shards holds it, else NULL or the zero of their type."""
    if fill == NULL or not columns or any(column.is_generated or _is_held(fill, column) for column in columns):
        return fill
    return NULL if any(column.nullable for column in columns) else _implicit(columns[0]) or NULL


def _is_held(fill: str, column: Column) -> bool:
    """Whether a column can hold the value of a literal unchanged."""
    try:
        value = filled_value(column, fill)
    except UnicodeError:
        return False
    return value is not None and _holds(type_of(column), column, value)


def _holds(kind: ColumnType, column: Column, value: bytes) -> bool:
    text = charsets.decode(value, column.encoding or "latin1")
    is_large = isinstance(kind, TextType) and kind.resolved[0] is TypeForm.LARGE
    match kind:
        case IntegerType() | DecimalType():
            return _holds_number(kind, _number(text))
        case TextType() | BinaryType():
            most = kind.resolved[1] if isinstance(kind, TextType) else kind.most_bytes
            return len(value if is_large else text) <= most
        case LabelType():
            return {*(text.split(",") if kind.name == "set" and text else [text])} <= {*kind.labels}
    if isinstance(kind, TimeType) or column.data_type in TIMES:
        return MOMENT.fullmatch(text) is not None
    return column.data_type not in FLOATS or _number(text) is not None


def _holds_number(kind: IntegerType | DecimalType, number: Decimal | None) -> bool:
    if number is None or not number.is_finite() or (number < 0 and kind.is_unsigned):
        return False
    if isinstance(kind, DecimalType):
        return abs(number) < 10**kind.whole and number == round(number, kind.scale)
    bits = kind.bits if kind.is_unsigned else kind.bits - 1
    return number == int(number) and (0 if kind.is_unsigned else -(1 << bits)) <= number < 1 << bits
