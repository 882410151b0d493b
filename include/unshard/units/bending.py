"""Values that a server changes without a warning when they come into a column of another type.

LOAD DATA LOCAL warns of most that does not fit, but not of what it takes for the same: CHAR without the blanks at its
end, BINARY filled up with zeros, a number that is the place of an ENUM's label, a year of two digits.
"""

import pyarrow as pa
import pyarrow.compute as pc

from unshard.binlog.labels import read_labels
from unshard.binlog.tablemap import numbers_of
from unshard.core import charsets
from unshard.core.model import Column

FLOATS = frozenset({"float", "double"})
YEAR = r"\A[0-9]{4}\z"


def bent(given: Column, wanted: Column, array: pa.Array) -> tuple[int, str] | None:
    """Return the number of the first value of a column `given` that would change in `wanted`, and why."""
    check = _CHECKS.get(wanted.data_type)
    if check is None or given.column_type == wanted.column_type:
        return None
    marks, words = check(given, wanted, array)
    row = pc.index(pc.fill_null(marks, False), True).as_py()
    return None if row < 0 else (row, words)


def rounds(given: Column, wanted: Column) -> bool:
    """Whether floating-point values lose digits because the column says how many it keeps."""
    if wanted.data_type not in FLOATS or given.data_type not in FLOATS:
        return False
    kept, there = numbers_of(wanted.column_type)[1:], numbers_of(given.column_type)[1:]
    return bool(kept) and (given.data_type != wanted.data_type or not there or there > kept)


def _blanks(given: Column, wanted: Column, array: pa.Array) -> tuple[pa.Array, str]:
    blank = charsets.encode(" ", wanted.encoding or "binary")
    return pc.and_(
        pc.ends_with(array, blank), given.data_type != "char"
    ), "the target's column drops the blanks at its end"


def _zeros(given: Column, wanted: Column, array: pa.Array) -> tuple[pa.Array, str]:
    (width,) = numbers_of(wanted.column_type)
    return pc.less(pc.binary_length(array), width), "the target's column fills it up with zero bytes"


def _years(given: Column, wanted: Column, array: pa.Array) -> tuple[pa.Array, str]:
    marks = pc.invert(pc.match_substring_regex(array, YEAR))
    return pc.and_(marks, given.data_type != "year"), "the target's column takes it for another year"


def _labels(given: Column, wanted: Column, array: pa.Array) -> tuple[pa.Array, str]:
    labels = frozenset(read_labels(wanted.column_type))
    coded = pc.dictionary_encode(array)
    strange = [_is_strange(value, wanted, labels) for value in coded.dictionary.to_pylist()]
    return pa.array(strange, pa.bool_()).take(coded.indices), "it is no label of the target's column"


def _is_strange(value: bytes, wanted: Column, labels: frozenset[str]) -> bool:
    try:
        text = charsets.decode(value, wanted.encoding or "binary")
    except UnicodeDecodeError:
        return False
    return text != "" and not labels.issuperset(text.split(",") if wanted.data_type == "set" else [text])


_CHECKS = {"char": _blanks, "binary": _zeros, "year": _years, "enum": _labels, "set": _labels}
