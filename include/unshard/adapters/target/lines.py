"""Columns of canonical values to lines of LOAD DATA text, in Arrow's kernels.

A line ends with its newline, so the value buffer of a whole array is the text to send. NULL is `\\N`;
backslash, tab and newline are escaped; every other byte goes as it is (CHARACTER SET binary).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TAB = pa.scalar(b"\t", pa.binary())
NEWLINE = pa.scalar(b"\n", pa.binary())
NOTHING = pa.scalar(b"", pa.binary())
NULL = pa.scalar(b"\\N", pa.binary())
ABSENT = b"\\A"
"""Stands in a line that is not whole yet for a value that nobody has said; no value is written like it."""
ESCAPES = ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"))
UNESCAPED = {b"t"[0]: b"\t", b"n"[0]: b"\n", b"\\"[0]: b"\\"}


def lines_of(columns: Sequence[pa.Array | None]) -> pa.BinaryArray:
    """Render one line per row; the columns are binary arrays of the same length, None one that is absent."""
    texts = [pa.scalar(ABSENT, pa.binary()) if column is None else _text(column) for column in columns]
    joined = pc.binary_join_element_wise(*texts, TAB)
    return pc.binary_join_element_wise(joined, NEWLINE, NOTHING)


def values_of(line: bytes) -> list[bytes | None]:
    """Read the values of one line back."""
    return [None if text == b"\\N" else unescaped(text) for text in line[:-1].split(b"\t")]


def _text(column: pa.Array) -> pa.Array:
    if _needs_escape(column):
        for plain, escaped in ESCAPES:
            column = pc.replace_substring(column, plain, escaped)
    return pc.fill_null(column, NULL) if column.null_count else column


def _needs_escape(column: pa.Array) -> bool:
    """Look at the whole buffer at once: most columns have nothing to escape."""
    content = content_of(column)
    return bool(((content == 92) | (content == 9) | (content == 10)).any())


def content_of(column: pa.Array) -> np.ndarray:
    """Return the bytes of all values of a binary array, one behind the other, without copying."""
    _, offsets, content = column.buffers()
    if content is None or not len(column):
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)
    first, last = ends[column.offset], ends[column.offset + len(column)]
    return np.frombuffer(content, np.uint8)[first:last]


def unescaped(text: bytes) -> bytes:
    """Return a value that a line holds with escapes."""
    if b"\\" not in text:
        return text
    parts, place = [], 0
    while (found := text.find(b"\\", place)) >= 0:
        parts += [text[place:found], UNESCAPED[text[found + 1]]]
        place = found + 2
    return b"".join([*parts, text[place:]])


def pieces(lines: pa.BinaryArray, rows: int, size: int) -> Iterator[pa.BinaryArray]:
    """Cut into pieces of bounded rows and bytes; a single line may be larger."""
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
    """Return the bytes of all lines, one behind the other, without copying."""
    offsets = np.frombuffer(lines.buffers()[1], np.int32)
    first, last = int(offsets[lines.offset]), int(offsets[lines.offset + len(lines)])
    return memoryview(lines.buffers()[2])[first:last]
