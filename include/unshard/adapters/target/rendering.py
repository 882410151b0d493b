r"""Render columns of canonical values with Arrow's kernels: as text, as parameters, or as rows of an INSERT.

**Text.** A line ends with its newline, so the value buffer of a whole array is the text to send. NULL is `\N`.
Backslash, tab and newline are escaped. Every other byte is sent unchanged (CHARACTER SET binary).

**Parameters** of MariaDB's COM_STMT_BULK_EXECUTE.
A value is an indicator (0), its length as a length-encoded integer, and its bytes. NULL is the indicator 1 alone. Every
value is sent as a BLOB, so the server converts no charset. (Source: MariaDB's protocol, "COM_STMT_BULK_EXECUTE" and
"Protocol data types".)

**Rows of an INSERT**, rendered from lines of text, column by column.
`core/sql/literals.py` defines how a value is written: the prefix of hexadecimal digits and the patterns come from
there. One form differs: text in utf8mb4 is a quoted string instead of hexadecimal digits, because TiDB reads it in two
thirds of the time. Values that no kernel covers are rendered one by one with `literal`.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from unshard.core.model import Column
from unshard.core.sql.literals import (
    BINARIES,
    DECIMALS,
    FLOATS,
    INTEGERS,
    MAYBE,
    PRINTED,
    TEMPORALS,
    TEXTS,
    literal,
    stored,
)

# --- text of LOAD DATA ---

TAB = pa.scalar(b"\t", pa.binary())
NEWLINE = pa.scalar(b"\n", pa.binary())
NOTHING = pa.scalar(b"", pa.binary())
NULL = pa.scalar(b"\\N", pa.binary())
ABSENT = b"\\A"
"""Placeholder for an unknown value in an incomplete line; no rendered value looks like it."""
ESCAPES = ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"))
SEARCHED_BYTES = 64 << 10
"""Size of a copy that is searched for them; it fits into the processor's cache."""
RUN_ROWS = 64
"""Runs of so many consecutive rows are copied faster than row by row."""
UNESCAPED = {b"t"[0]: b"\t", b"n"[0]: b"\n", b"\\"[0]: b"\\"}


def lines_of(columns: Sequence[pa.Array | None]) -> pa.BinaryArray:
    """Render one line per row. The columns are binary arrays of one length; None is a column without known values."""
    texts = [pa.scalar(ABSENT, pa.binary()) if column is None else _text(column) for column in columns]
    ended = pc.binary_join_element_wise(texts.pop(), NEWLINE, NOTHING)  # copies one column, not the whole line
    return pc.binary_join_element_wise(*texts, ended, TAB)


def values_of(line: bytes) -> list[bytes | None]:
    """Return the values of one line."""
    return [None if text == b"\\N" else unescaped(text) for text in line[:-1].split(b"\t")]


def _text(column: pa.Array) -> pa.Array:
    if _needs_escape(column):
        for plain, escaped in ESCAPES:
            column = pc.replace_substring(column, plain, escaped)
    return pc.fill_null(column, NULL) if column.null_count else column


def _needs_escape(column: pa.Array) -> bool:
    """Search the whole buffer, because most columns have nothing to escape."""
    content = content_of(column)
    copies = (content[start : start + SEARCHED_BYTES].tobytes() for start in range(0, len(content), SEARCHED_BYTES))
    return any(plain in copy for copy in copies for plain, _ in ESCAPES)


def content_of(column: pa.Array) -> np.ndarray:
    """Return the concatenated bytes of all values of a binary array, without copying."""
    _, offsets, content = column.buffers()
    if content is None or not len(column):
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)
    first, last = ends[column.offset], ends[column.offset + len(column)]
    return np.frombuffer(content, np.uint8)[first:last]


def rows_of(values: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Return the values of these rows; consecutive rows are not copied, and long runs of them are copied at once."""
    if not len(rows):
        return values.slice(0, 0)
    ends = np.flatnonzero(np.diff(rows) != 1) + 1
    if len(ends) * RUN_ROWS > len(rows):
        return values.take(pa.array(rows))
    bounds = [0, *ends.tolist(), len(rows)]
    runs = [values.slice(int(rows[first]), last - first) for first, last in pairwise(bounds)]
    return runs[0] if len(runs) == 1 else pa.concat_arrays(runs)


def unescaped(text: bytes) -> bytes:
    """Return the value of an escaped field."""
    if b"\\" not in text:
        return text
    parts, start = [], 0
    while (found := text.find(b"\\", start)) >= 0:
        parts += [text[start:found], UNESCAPED[text[found + 1]]]
        start = found + 2
    return b"".join([*parts, text[start:]])


def pieces(lines: pa.BinaryArray, rows: int, size: int) -> Iterator[pa.BinaryArray]:
    """Yield slices of at most `rows` rows and `size` bytes; a single line may be larger."""
    start, total = 0, len(lines)
    if not total:
        return
    ends = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + total + 1]
    while start < total:
        fits = int(np.searchsorted(ends, ends[start] + size, side="right")) - 1
        stop = min(max(fits, start + 1), start + rows, total)
        yield lines.slice(start, stop - start)
        start = stop


def text_of(lines: pa.BinaryArray) -> memoryview:
    """Return the concatenated bytes of all lines, without copying."""
    offsets = np.frombuffer(lines.buffers()[1], np.int32)
    first, last = int(offsets[lines.offset]), int(offsets[lines.offset + len(lines)])
    return memoryview(lines.buffers()[2])[first:last]


# --- parameters of COM_STMT_BULK_EXECUTE ---

NULL_INDICATOR = 1
SHORT = 250
"""The longest value whose length takes one byte."""
LENGTHS = ((1 << 16, 0xFC, 2), (1 << 24, 0xFD, 3), (1 << 32, 0xFE, 8))
"""Of longer values the bound, the first byte of the length, and how many bytes follow it."""
TYPES = INTEGERS | DECIMALS | FLOATS | TEMPORALS | TEXTS | BINARIES | {"bit"}
"""Types that store a BLOB as they store the same bytes from LOAD DATA; others accept only text, or check more."""


def can_be_parameters(columns: Sequence[Column]) -> bool:
    """Whether rows of these columns can be sent as parameters."""
    return all(column.data_type in TYPES for column in columns)


def parameters_of(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """Render one row of parameters per row. The columns are binary arrays of one length."""
    parts: list[pa.Array] = []
    for column in columns:
        parts += (_headers(column), pc.fill_null(column, NOTHING) if column.null_count else column)
    return pc.binary_join_element_wise(*parts, NOTHING)


def values_in(row: bytes) -> list[bytes | None]:
    """Return the values of one row of parameters."""
    values: list[bytes | None] = []
    place = 0
    while place < len(row):
        indicator, place = row[place], place + 1
        if indicator == NULL_INDICATOR:
            values.append(None)
            continue
        size, place = row[place], place + 1
        for _, first, more in LENGTHS:
            if size == first:
                size, place = int.from_bytes(row[place : place + more], "little"), place + more
                break
        values.append(row[place : place + size])
        place += size
    return values


def _headers(column: pa.Array) -> pa.BinaryArray:
    if not len(column):
        return column
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(ends)
    if not column.null_count and lengths.max() <= SHORT:
        both = np.zeros((len(lengths), 2), np.uint8)
        both[:, 1] = lengths
        return _binaries(np.full(len(lengths), 2), both)
    sizes = np.full(len(lengths), 2)
    for bound, _, more in reversed(LENGTHS):
        sizes[(lengths > SHORT) & (lengths < bound)] = 2 + more
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = 1
    content = np.zeros(sizes.sum(), np.uint8)
    starts = np.cumsum(sizes) - sizes
    content[starts[sizes == 1]] = NULL_INDICATOR
    content[starts[sizes == 2] + 1] = lengths[sizes == 2]
    for _, first, more in LENGTHS:
        places, rest = starts[sizes == 2 + more] + 1, lengths[sizes == 2 + more].astype(np.int64)
        content[places] = first
        for number in range(more):
            content[places + 1 + number] = rest >> (8 * number) & 0xFF
    return _binaries(sizes, content)


def _binaries(sizes: npt.NDArray[np.int64], content: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.BinaryArray.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(content)])


# --- rows of an INSERT ---

COMMA = pa.scalar(b", ", pa.binary())
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
    if kind in TEXTS | PRINTED | BINARIES and (text := _text_literals(column, values)) is not None:
        return _exact(column, values, text) if kind == "json" else text
    return pa.array(
        [None if value is None else stored(column, value).encode() for value in values.to_pylist()], pa.binary()
    )


def _text_literals(column: Column, values: pa.BinaryArray) -> pa.BinaryArray | None:
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
    if not len(values):
        return values
    ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    digits = DIGITS[content_of(values)]
    offsets = ((ends - ends[0]) * 2).astype(np.int32)
    texts = pa.BinaryArray.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(digits)])
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.binary()))
