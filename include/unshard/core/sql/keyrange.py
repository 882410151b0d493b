"""Ranges of a table's key, as SQL conditions that can use the index of the key."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unshard.core.model import Column
from unshard.core.sql.literals import literal
from unshard.core.sql.quoting import identifier

NEVER = "FALSE"
"""The condition of a range in which a table can have no row."""

Compared = Callable[[Column, str, bytes], str]
"""Returns the SQL comparison of a key column with a value; the text is the operator."""


Bound = tuple[bytes, ...] | None


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows with lower < key <= upper; None means no bound."""

    lower: Bound = None
    upper: Bound = None


def write_bound(bound: Bound) -> str:
    """Return a bound as text."""
    return json.dumps(bound and [value.hex() for value in bound])


def read_bound(text: str) -> Bound:
    """Return the bound of a text from `write_bound`."""
    found = json.loads(text)
    return found and tuple(map(bytes.fromhex, found))


def stored_comparison(column: Column, operator: str, value: bytes) -> str:
    """Return the comparison for a column that stores the key's values unchanged."""
    return f"{identifier(column.name)} {operator} {literal(column, value)}"


def condition(columns: Sequence[Column], span: KeyRange, compared: Compared = stored_comparison) -> str:
    """Return the WHERE condition of a range; `NEVER` if its bounds are out of the range of a column's type."""
    parts = []
    if span.lower is not None:
        parts.append(_beyond(columns, span.lower, (">", ">"), compared))
    if span.upper is not None:
        parts.append(_beyond(columns, span.upper, ("<", "<="), compared))
    return NEVER if NEVER in parts else " AND ".join(parts) or "TRUE"


def _beyond(columns: Sequence[Column], values: Sequence[bytes], operators: tuple[str, str], compared: Compared) -> str:
    """Return `(a >= 1 AND (a > 1 OR b > 2))`: row constructors are correct, too, but do not use the index."""
    (column, *others), (value, *rest) = columns, values
    strict, last = operators
    if not others:
        return compared(column, last, value)
    first = compared(column, f"{strict}=", value)
    if first == NEVER:
        return NEVER
    return f"({first} AND ({compared(column, strict, value)} OR {_beyond(others, rest, operators, compared)}))"
