r"""Render columns of canonical values as rows of parameters of MariaDB's COM_STMT_BULK_EXECUTE, with Arrow's kernels.

A value is an indicator (0), its length as a length-encoded integer, and its bytes. NULL is the indicator 1 alone. Every
value is sent as a BLOB, so the server converts no charset. (Source: MariaDB's protocol, "COM_STMT_BULK_EXECUTE" and
"Protocol data types".)
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from unshard.core.model import Column
from unshard.core.sql.literals import BINARIES, DECIMALS, FLOATS, INTEGERS, TEMPORALS, TEXTS

NOTHING = pa.scalar(b"", pa.binary())
NULL = 1
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
        if indicator == NULL:
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
    """Return indicator and length of each value."""
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
    content[starts[sizes == 1]] = NULL
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
