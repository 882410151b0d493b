"""Ranges of a table's key, as conditions that servers answer from the key's index."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unshard.core.literals import literal
from unshard.core.model import Column
from unshard.core.quoting import identifier

NEVER = "FALSE"
"""The condition of a range in which a table can have no row."""

Compared = Callable[[Column, str, bytes], str]
"""The comparison of a key's column with a value, by the operator between them."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows with lower < key <= upper; None leaves that side open."""

    lower: tuple[bytes, ...] | None = None
    upper: tuple[bytes, ...] | None = None


def stored(column: Column, operator: str, value: bytes) -> str:
    """Compare a column that holds the key's values as they are."""
    return f"{identifier(column.name)} {operator} {literal(column, value)}"


def condition(columns: Sequence[Column], span: KeyRange, compared: Compared = stored) -> str:
    """Return the WHERE condition of a range, `NEVER` if its bounds are outside of what a column can hold."""
    parts = []
    if span.lower is not None:
        parts.append(_beyond(columns, span.lower, (">", ">"), compared))
    if span.upper is not None:
        parts.append(_beyond(columns, span.upper, ("<", "<="), compared))
    return NEVER if NEVER in parts else " AND ".join(parts) or "TRUE"


def _beyond(columns: Sequence[Column], values: Sequence[bytes], operators: tuple[str, str], compared: Compared) -> str:
    """`(a >= 1 AND (a > 1 OR b > 2))`: row constructors would be right too, but not use the index."""
    (column, *others), (value, *rest) = columns, values
    strict, last = operators
    if not others:
        return compared(column, last, value)
    first = compared(column, f"{strict}=", value)
    if first == NEVER:
        return NEVER
    return f"({first} AND ({compared(column, strict, value)} OR {_beyond(others, rest, operators, compared)}))"
