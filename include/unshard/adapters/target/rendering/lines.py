r"""Render columns of canonical values as lines of LOAD DATA text, with Arrow's kernels.

A line ends with its newline, so the value buffer of a whole array is the text to send. NULL is `\N`. Backslash, tab and
newline are escaped. Every other byte is sent unchanged (CHARACTER SET binary).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
