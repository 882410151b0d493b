"""Format of the data between stage 1 and stage 2 of a window: the runs of a target as Arrow IPC bytes.

Runs in executors. Spark serialises each row of a DataFrame on its way between two Python workers. For single runs this
costs more than decoding, compacting and writing them. So one row of the shuffle, a shuffle payload, contains thousands
of runs, and Spark only copies its bytes.

Encode keys as bytes that sort roughly like the target's index, and decode them.

An integer is nine bytes: the sign, then eight big-endian bytes. Any other value is its canonical text with 0x00 written
as 0x00 0xff, ended by 0x00 0x00. So a key of several columns is one byte string that can be compared, sorted and sent
through Spark, for any column types.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.core.model import Column
from unshard.core.sql.literals import INTEGERS

PAYLOADS = pa.schema(
    [
        ("slot", pa.int32()),  # number of the partition that applies it
        ("target", pa.int32()),  # number of the target table; -1: a message
        ("body", pa.binary()),  # runs as an Arrow stream, or the message
    ]
)
MESSAGE = -1
NOBODY: Mapping[int, int] = MappingProxyType({})
PAYLOAD_BYTES = 4 << 20
"""Size at which a payload is closed: Spark holds a few payloads at a time."""

Run = tuple[int, pa.RecordBatch]
"""Number of a target, and runs of it."""


def payloads(
    runs: Iterable[Run], slots: int, size: int = PAYLOAD_BYTES, leaders: Mapping[int, int] = NOBODY
) -> Iterator[pa.RecordBatch]:
    """Yield runs as shuffle payloads; those of a target keep their order. Targets with one leader have one slot."""
    waiting: dict[int, list[pa.RecordBatch]] = {}
    for target, batch in runs:
        some = waiting.setdefault(target, [])
        some.append(batch)
        if sum(each.nbytes for each in some) >= size:
            yield _payload(target, waiting.pop(target), leaders.get(target, target) % slots)
    for target, some in waiting.items():
        yield _payload(target, some, leaders.get(target, target) % slots)


def message(slot: int, body: bytes) -> pa.RecordBatch:
    """Return a payload that carries a message to the applier of a slot instead of runs."""
    return _row(slot, MESSAGE, pa.py_buffer(body))


def messages_in(found: pa.Table) -> list[bytes]:
    """Return the messages among the payloads."""
    bodies: list[bytes] = found.filter(pc.equal(found["target"], MESSAGE))["body"].to_pylist()
    return bodies


def targets_in(found: pa.Table) -> Iterator[int]:
    """Yield the numbers of the payloads' target tables, ascending."""
    yield from sorted(number for number in pc.unique(found["target"]).to_pylist() if number >= 0)


def of_target(found: pa.Table, target: int) -> pa.Table:
    """Return the runs of one target table, without copying them."""
    places = found["target"].to_numpy() == target
    bodies = (body for body, is_wanted in zip(found["body"], places.tolist(), strict=True) if is_wanted)
    return pa.concat_tables([pa.ipc.open_stream(body.as_buffer()).read_all() for body in bodies])


def _payload(target: int, some: list[pa.RecordBatch], slot: int) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, some[0].schema) as writer:
        for batch in some:
            writer.write_batch(batch)
    return _row(slot, target, sink.getvalue())


def _row(slot: int, target: int, body: pa.Buffer) -> pa.RecordBatch:
    ends = pa.array([0, body.size], pa.int32()).buffers()[1]
    bodies = pa.Array.from_buffers(pa.binary(), 1, [None, ends, body])
    return pa.RecordBatch.from_arrays(
        [pa.array([slot], pa.int32()), pa.array([target], pa.int32()), bodies], schema=PAYLOADS
    )


# --- keys as bytes that sort roughly like the target's index


INTEGER_BYTES = 9
NEGATIVE, POSITIVE = 0, 1
END = b"\0\0"
NOTHING = pa.scalar(b"", pa.binary())


def encode_keys(columns: Sequence[Column], values: Sequence[pa.Array]) -> pa.BinaryArray:
    """Return one key per row from the columns of canonical values."""
    parts = [_integers(v) if c.data_type in INTEGERS else _escaped(v) for c, v in zip(columns, values, strict=True)]
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, NOTHING)


def decode_key(columns: Sequence[Column], key: bytes) -> tuple[bytes, ...]:
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
