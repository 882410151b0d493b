"""Format of the data between stage 1 and stage 2 of a window: the runs of a target as Arrow IPC bytes.

Runs in executors. Spark serialises each row of a DataFrame on its way between two Python workers. For single runs this
costs more than decoding, compacting and writing them. So one row of the shuffle, a shuffle payload, contains thousands
of runs, and Spark only copies its bytes.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

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
