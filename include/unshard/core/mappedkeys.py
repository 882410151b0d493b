"""Bounds of mapped keys as bounds of what the shard has, which its own index answers.

`partition id` adds one number to all ids of a shard: a key is beyond a bound exactly if the id is beyond the bound
less that number. `add prefix` keeps the order of texts that are compared character by character. Where neither
holds (numbers in a text, suffixes, collations with weights) the mapped value itself is compared, row by row.
NULL is beyond no bound, and an id that does not fit its bits is found where its mapped value is.
"""

from unshard.core import integers
from unshard.core.keyrange import NEVER, stored
from unshard.core.literals import DECIMALS, INTEGERS, literal
from unshard.core.mapping import Affix, Mapped, PartitionId, expression, length
from unshard.core.model import Column
from unshard.core.quoting import identifier

UNICODE = frozenset({"utf8", "utf8mb3", "utf8mb4"})


def compared(mapped: Mapped, given: Column, wanted: Column, operator: str, value: bytes) -> str:
    """Compare the mapped value of a shard's column with a value that the target's column holds."""
    match mapped.change:
        case PartitionId(high=high) if wanted.charset is None and given.data_type in INTEGERS | DECIMALS:
            return _number(given, operator, int(value) - high)
        case Affix(before=before, after="") if _is_ordered_by_characters(given, wanted):
            start = before.encode()
            if value.startswith(start):
                return stored(given, operator, value[len(start) :])
            if not start.startswith(value):  # else a collation that pads decides
                return _all_or_none(given, (start > value) == (operator[0] == ">"))
    return f"{expression(mapped, given, wanted)} {operator} {literal(wanted, value)}"


def _number(column: Column, operator: str, number: int) -> str:
    """Compare with what the column can hold, so that no server has to compare beyond its types."""
    low, high = _limits(column)
    if not low <= number <= high:
        return _all_or_none(column, (number < low) == (operator[0] == ">"))
    return f"{identifier(column.name)} {operator} {number}"


def _limits(column: Column) -> tuple[int, int]:
    if column.data_type in INTEGERS:
        return integers.limits(column)
    largest = 10 ** length(column) - 1
    return (0 if column.is_unsigned else -largest), largest


def _is_ordered_by_characters(given: Column, wanted: Column) -> bool:
    """Whether both compare texts by their code points, which UTF-8 orders as it does its bytes."""
    collation = wanted.collation or ""
    return (
        given.collation == collation and given.charset == wanted.charset and wanted.charset in UNICODE
        and collation == f"{wanted.charset}_bin"
    )  # fmt: skip


def _all_or_none(column: Column, is_all: bool) -> str:
    return f"{identifier(column.name)} IS NOT NULL" if is_all else NEVER
