"""Render lines of LOAD DATA text as rows of an INSERT statement, column by column with Arrow's kernels.

`core/sql/literals.py` defines how a value is written: the prefix of hexadecimal digits and the patterns come from
there. One form differs: text in utf8mb4 is a quoted string instead of hexadecimal digits, because TiDB reads it in two
thirds of the time. Values that no kernel covers are rendered one by one with `literal`.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.adapters.target.rendering.lines import NULL, content_of, unescaped
from unshard.core.model import Column
from unshard.core.sql.jsonnumbers import MAYBE
from unshard.core.sql.literals import BINARIES, DECIMALS, FLOATS, INTEGERS, PRINTED, TEMPORALS, TEXTS, literal, stored

COMMA = pa.scalar(b", ", pa.binary())
NOTHING = pa.scalar(b"", pa.binary())
SQL_NULL = pa.scalar(b"NULL", pa.binary())
UTF8 = "_utf8mb4 "
SPECIAL = ((b"\\", b"\\\\"), (b"'", b"''"), (b"\0", b"\\0"))
r"""`\` comes first, because the other replacements insert it."""
NUMBER, TEMPORAL = r"^-?\d+(\.\d+)?([eE][+-]?\d+)?$", r"^-?[\d:. -]+$"
DIGITS = np.array([int.from_bytes(b"%02x" % byte, "little") for byte in range(256)], "<u2")


def tuples_of(columns: Sequence[Column], lines: pa.BinaryArray) -> pa.BinaryArray:
    """Return one `(value, …), ` for each line."""
    texts = [rendered(*pair) for pair in zip(columns, _fields(lines, len(columns)), strict=True)]
    joined = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, COMMA)
    opening, closing = pa.scalar(b"(", pa.binary()), pa.scalar(b"), ", pa.binary())
    return pc.binary_join_element_wise(opening, joined, closing, NOTHING)


def rendered(column: Column, values: pa.BinaryArray) -> pa.BinaryArray:
    """Return the literals of a column's values; `NULL` for None."""
    texts = _rendered(column, values)
    return pc.fill_null(texts, SQL_NULL) if texts.null_count else texts


def _rendered(column: Column, values: pa.BinaryArray) -> pa.BinaryArray:
    kind = column.data_type
    if kind in INTEGERS | DECIMALS and _all_match(values, NUMBER):
        return values
    if kind in FLOATS and _all_match(values, NUMBER):
        exponent = pc.match_substring(values, b"e", ignore_case=True)
        return pc.if_else(exponent, values, _around(b"", values, b"e0"))
    if kind in TEMPORALS and _all_match(values, TEMPORAL):
        return _around(b"'", values, b"'")
    if kind in TEXTS | PRINTED | BINARIES and (text := _text(column, values)) is not None:
        return _exact(column, values, text) if kind == "json" else text
    return pa.array(
        [None if value is None else stored(column, value).encode() for value in values.to_pylist()], pa.binary()
    )


def _text(column: Column, values: pa.BinaryArray) -> pa.BinaryArray | None:
    """Render text and bytes; None if `literal` must find the value that is not valid text."""
    empty = literal(column, b"")
    if not column.sent_as and empty != f"{UTF8}x''":
        return _around(empty.removesuffix("'").encode(), _hexadecimal(values), b"'")
    if _is_utf8(values):
        return _around(empty.removesuffix("'").encode() if column.sent_as else b"'", _quoted(values), b"'")
    return None if column.sent_as else _around(f"{UTF8}x'".encode(), _hexadecimal(values), b"'")


def _exact(column: Column, values: pa.BinaryArray, texts: pa.BinaryArray) -> pa.BinaryArray:
    """Return the literals of JSON; those with numbers that may not be doubles are rendered by `stored`."""
    marks = pc.fill_null(pc.match_substring_regex(values, MAYBE), False)
    if not pc.any(marks).as_py():
        return texts
    exact = pa.array([stored(column, value).encode() for value in values.filter(marks).to_pylist()], pa.binary())
    return pc.replace_with_mask(texts, marks, exact)


def _fields(lines: pa.BinaryArray, width: int) -> list[pa.BinaryArray]:
    """Return the values of the lines as one array per column."""
    fields = pc.list_flatten(pc.split_pattern(pc.binary_slice(lines, 0, -1), b"\t"))
    escapes = bool((content_of(lines) == b"\\"[0]).any())
    columns = [fields.take(pa.array(np.arange(number, len(fields), width))) for number in range(width)]
    return [_unescaped(column) for column in columns] if escapes else columns


def _unescaped(fields: pa.BinaryArray) -> pa.BinaryArray:
    values = pc.if_else(pc.equal(fields, NULL), pa.scalar(None, pa.binary()), fields)
    escaped = pc.fill_null(pc.match_substring(values, b"\\"), False)
    if not pc.any(escaped).as_py():
        return values
    return pc.replace_with_mask(
        values, escaped, pa.array(map(unescaped, values.filter(escaped).to_pylist()), pa.binary())
    )


def _around(before: bytes, values: pa.BinaryArray, after: bytes) -> pa.BinaryArray:
    ends = (pa.scalar(text, pa.binary()) for text in (before, after))
    return pc.binary_join_element_wise(next(ends), values, next(ends), NOTHING)


def _all_match(values: pa.BinaryArray, pattern: str) -> bool:
    """Whether all values have the form that `literal` accepts; if not, `literal` raises for the wrong one."""
    return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py() is not False)


def _is_utf8(values: pa.BinaryArray) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _quoted(values: pa.BinaryArray) -> pa.BinaryArray:
    content = content_of(values)
    for plain, escaped in SPECIAL:
        if (content == plain[0]).any():
            values = pc.replace_substring(values, plain, escaped)
    return values


def _hexadecimal(values: pa.BinaryArray) -> pa.BinaryArray:
    """Render each byte as two hexadecimal digits; nulls stay."""
    if not len(values):
        return values
    ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    digits = DIGITS[content_of(values)]
    offsets = ((ends - ends[0]) * 2).astype(np.int32)
    texts = pa.BinaryArray.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(digits)])
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.binary()))
