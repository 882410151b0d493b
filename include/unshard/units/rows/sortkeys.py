"""Encode keys as bytes that sort roughly like the target's index, and decode them.

An integer is nine bytes: the sign, then eight big-endian bytes. Any other value is its canonical text with 0x00 written
as 0x00 0xff, ended by 0x00 0x00. So a key of several columns is one byte string that can be compared, sorted and sent
through Spark, for any column types.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.core.model import Column
from unshard.core.sql.literals import INTEGERS

INTEGER_BYTES = 9
NEGATIVE, POSITIVE = 0, 1
END = b"\0\0"
NOTHING = pa.scalar(b"", pa.binary())


def encode(columns: Sequence[Column], values: Sequence[pa.Array]) -> pa.BinaryArray:
    """Return one key per row from the columns of canonical values."""
    parts = [_integers(v) if c.data_type in INTEGERS else _escaped(v) for c, v in zip(columns, values, strict=True)]
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, NOTHING)


def decode(columns: Sequence[Column], key: bytes) -> tuple[bytes, ...]:
    """Return the canonical values of a key."""
    values, place = [], 0
    for column in columns:
        if column.data_type in INTEGERS:
            values.append(_integer(key[place : place + INTEGER_BYTES]))
            place += INTEGER_BYTES
        else:
            end = _end(key, place)
            values.append(key[place:end].replace(b"\0\xff", b"\0"))
            place = end + len(END)
    return tuple(values)


def _integers(values: pa.Array) -> pa.BinaryArray:
    texts = values.cast(pa.string())
    negative = pc.starts_with(texts, "-").to_numpy(zero_copy_only=False)
    coded = np.empty((len(values), INTEGER_BYTES), np.uint8)
    coded[:, 0] = np.where(negative, NEGATIVE, POSITIVE)
    numbers = coded[:, 1:]
    numbers[~negative] = _big_endian(texts.filter(pa.array(~negative)).cast(pa.uint64()), ">u8")
    numbers[negative] = _big_endian(texts.filter(pa.array(negative)).cast(pa.int64()), ">i8")
    offsets = np.arange(0, INTEGER_BYTES * (len(values) + 1), INTEGER_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(coded)])


def _big_endian(numbers: pa.Array, kind: str) -> np.ndarray:
    plain: np.ndarray = numbers.to_numpy(zero_copy_only=False)
    return plain.astype(kind).view(np.uint8).reshape(-1, 8)


def _integer(part: bytes) -> bytes:
    return str(int.from_bytes(part[1:], "big", signed=part[0] == NEGATIVE)).encode()


def _escaped(values: pa.Array) -> pa.Array:
    escaped = pc.replace_substring(values, b"\0", b"\0\xff")
    return pc.binary_join_element_wise(escaped, pa.scalar(END, pa.binary()), NOTHING)


def _end(key: bytes, place: int) -> int:
    """Return the position of the end mark: two zero bytes, the first of which does not belong to an escaped byte."""
    while True:
        place = key.index(b"\0", place)
        if key[place + 1 : place + 2] == b"\0":
            return place
        place += 2
