"""Detect values that a server changes without a warning when it stores them in a column of another type.

LOAD DATA LOCAL warns of most values that do not fit. It does not warn of values that it considers equal: CHAR without
trailing spaces, BINARY padded with zeros, a number that is the index of an ENUM label, a year of two digits.
"""

import pyarrow as pa
import pyarrow.compute as pc

from unshard.binlog.tablemap import numbers_of
from unshard.core.model import Column
from unshard.core.sql import charsets
from unshard.core.structures.labels import read_labels

FLOATS = frozenset({"float", "double"})
YEAR = r"\A[0-9]{4}\z"


def first_changed(shard_column: Column, target_column: Column, array: pa.Array) -> tuple[int, str] | None:
    """Return the number of the first value that `target_column` would change, and why; None if it changes none."""
    check = _CHECKS.get(target_column.data_type)
    if check is None or shard_column.column_type == target_column.column_type:
        return None
    marks, reason = check(shard_column, target_column, array)
    row = pc.index(pc.fill_null(marks, False), True).as_py()
    return None if row < 0 else (row, reason)


def rounds(shard_column: Column, target_column: Column) -> bool:
    """Whether floating-point values lose digits because the column limits their number."""
    if target_column.data_type not in FLOATS or shard_column.data_type not in FLOATS:
        return False
    target_digits, shard_digits = numbers_of(target_column.column_type)[1:], numbers_of(shard_column.column_type)[1:]
    return bool(target_digits) and (
        shard_column.data_type != target_column.data_type or not shard_digits or shard_digits > target_digits
    )


def _blanks(shard_column: Column, target_column: Column, array: pa.Array) -> tuple[pa.Array, str]:
    blank = charsets.encode(" ", target_column.encoding or "binary")
    return pc.and_(
        pc.ends_with(array, blank), shard_column.data_type != "char"
    ), "the target's column drops the trailing spaces"


def _zeros(shard_column: Column, target_column: Column, array: pa.Array) -> tuple[pa.Array, str]:
    (width,) = numbers_of(target_column.column_type)
    return pc.less(pc.binary_length(array), width), "the target's column pads it with zero bytes"


def _years(shard_column: Column, target_column: Column, array: pa.Array) -> tuple[pa.Array, str]:
    marks = pc.invert(pc.match_substring_regex(array, YEAR))
    return pc.and_(marks, shard_column.data_type != "year"), "the target's column reads it as another year"


def _labels(shard_column: Column, target_column: Column, array: pa.Array) -> tuple[pa.Array, str]:
    labels = frozenset(read_labels(target_column.column_type))
    coded = pc.dictionary_encode(array)
    unknown = [_is_unknown(value, target_column, labels) for value in coded.dictionary.to_pylist()]
    return pa.array(unknown, pa.bool_()).take(coded.indices), "it is not a label of the target's column"


def _is_unknown(value: bytes, target_column: Column, labels: frozenset[str]) -> bool:
    try:
        text = charsets.decode(value, target_column.encoding or "binary")
    except UnicodeDecodeError:
        return False
    return text != "" and not labels.issuperset(text.split(",") if target_column.data_type == "set" else [text])


_CHECKS = {"char": _blanks, "binary": _zeros, "year": _years, "enum": _labels, "set": _labels}
