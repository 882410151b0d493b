"""Finds columns of a target table that cannot hold every value of the shard's column."""

import re
from collections.abc import Container

from unshard.core.model import Column, TableSchema
from unshard.core.sql.literals import INTEGERS

BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}
TEXT_BYTES = {
    f"{size}{kind}": (1 << bits) - 1
    for size, bits in (("tiny", 8), ("", 16), ("medium", 24), ("long", 32))
    for kind in ("text", "blob")
}
COUNTED = ({"char", "varchar"}, {"binary", "varbinary"}, {"bit"})
"""Groups of types whose lengths have the same unit."""
LENGTH = re.compile(r"\((\d+)(?:,(\d+))?\)")


def narrower(target: TableSchema, shard: TableSchema, but: Container[str] = ()) -> tuple[str, ...]:
    """Return the columns of the target that are too narrow for a value of the shard, except `but` (lower case)."""
    there = {column.name.lower(): column for column in target.columns if column.name.lower() not in but}
    pairs = ((column, there[column.name.lower()]) for column in shard.written if column.name.lower() in there)
    return tuple(
        f"column {wanted.name} is {_described(wanted)} there and {_described(given)} in a shard"
        for given, wanted in pairs
        if not wanted.is_generated and not _holds(wanted, given)
    )


def _holds(wanted: Column, given: Column) -> bool:
    """Whether `wanted` can hold every value of `given`; True for types that cannot be compared here."""
    if given.nullable and not wanted.nullable:
        return False
    kinds = {wanted.data_type, given.data_type}
    if kinds <= INTEGERS:
        (low, high), (lowest, highest) = _range(wanted), _range(given)
        return low <= lowest and highest <= high
    if kinds <= TEXT_BYTES.keys():
        return TEXT_BYTES[wanted.data_type] >= TEXT_BYTES[given.data_type]
    if kinds == {"decimal"}:
        return _whole_digits(wanted) >= _whole_digits(given)
    if any(kinds <= counted for counted in COUNTED):
        return _length(wanted)[0] >= _length(given)[0]
    return True


def _range(column: Column) -> tuple[int, int]:
    bits = BITS[column.data_type]
    return (0, (1 << bits) - 1) if column.is_unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _whole_digits(column: Column) -> int:
    digits, behind_the_point = _length(column)
    return digits - behind_the_point


def _length(column: Column) -> tuple[int, int]:
    found = LENGTH.search(column.column_type)
    return (int(found[1]), int(found[2] or 0)) if found else (1, 0)


def _described(column: Column) -> str:
    return f"{column.column_type}{'' if column.nullable else ' NOT NULL'}"
