"""Converts bounds of mapped keys to bounds of the shard's own columns, so that the server can use the shard's indexes.

`partition id` adds one number to all ids of a shard: comparing a mapped key with a bound is the same as comparing the
id with the bound minus that number. `add prefix` keeps the order of texts that are compared character by character.
In the other cases (numbers in a text, suffixes, collations with weights), the mapped value itself is compared, row by
row. NULL matches no bound. An id with more bits than are free is found by its mapped value.
"""

from unshard.core.model import Column
from unshard.core.rules.columnmapping import Affix, Mapped, PartitionId, expression, length
from unshard.core.sql import literals
from unshard.core.sql.keyrange import NEVER, stored
from unshard.core.sql.literals import DECIMALS, INTEGERS, literal
from unshard.core.sql.quoting import identifier

UNICODE = frozenset({"utf8", "utf8mb3", "utf8mb4"})


def compared(mapped: Mapped, given: Column, wanted: Column, operator: str, value: bytes) -> str:
    """Return the SQL condition that compares the mapped value of a shard's column with a value of the target."""
    match mapped.change:
        case PartitionId(high=high) if wanted.charset is None and given.data_type in INTEGERS | DECIMALS:
            return _number(given, operator, int(value) - high)
        case Affix(before=before, after="") if _is_ordered_by_characters(given, wanted):
            start = before.encode()
            if value.startswith(start):
                return stored(given, operator, value[len(start) :])
            if not start.startswith(value):  # else the result depends on the collation's padding
                return _all_or_none(given, (start > value) == (operator[0] == ">"))
    return f"{expression(mapped, given, wanted)} {operator} {literal(wanted, value)}"


def _number(column: Column, operator: str, number: int) -> str:
    """Return the condition for a number; a number out of the column's range never gets into the SQL."""
    low, high = _limits(column)
    if not low <= number <= high:
        return _all_or_none(column, (number < low) == (operator[0] == ">"))
    return f"{identifier(column.name)} {operator} {number}"


def _limits(column: Column) -> tuple[int, int]:
    if column.data_type in INTEGERS:
        return literals.limits(column)
    largest = 10 ** length(column) - 1
    return (0 if column.is_unsigned else -largest), largest


def _is_ordered_by_characters(given: Column, wanted: Column) -> bool:
    """Whether both compare texts by code points, which in UTF-8 have the same order as the bytes."""
    collation = wanted.collation or ""
    return (
        given.collation == collation
        and given.charset == wanted.charset
        and wanted.charset in UNICODE
        and collation == f"{wanted.charset}_bin"
    )


def _all_or_none(column: Column, is_all: bool) -> str:
    return f"{identifier(column.name)} IS NOT NULL" if is_all else NEVER
