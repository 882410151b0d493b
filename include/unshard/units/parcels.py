"""What stage 1 of a window sends to stage 2: the runs of a target as Arrow IPC bytes, many in one value.

Spark takes each row of a DataFrame apart and puts it together again on its way between two Python workers, which
for runs by themselves costs more than decoding, netting and writing them. So a row of the shuffle is a parcel of
thousands of runs, and what Spark does to it is to copy its bytes.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from unshard.units.changes import RUNS

PARCELS = pa.schema([
    ("slot", pa.int32()),     # number of the partition that applies it
    ("target", pa.int32()),   # number of the target table; -1: a message
    ("body", pa.binary()),    # runs as an Arrow stream, or the message
])  # fmt: skip
PARCELS_SPARK = "slot int, target int, body binary"
MESSAGE = -1
PARCEL_BYTES = 4 << 20
"""A parcel is closed when it has as much: Spark holds a few of them at a time."""

Run = tuple[int, pa.RecordBatch]
"""Number of a target, and runs of it."""


def parcels(runs: Iterable[Run], slots: int) -> Iterator[pa.RecordBatch]:
    """Yield runs as parcels; those of a target keep their order."""
    waiting: dict[int, list[pa.RecordBatch]] = {}
    for target, batch in runs:
        some = waiting.setdefault(target, [])
        some.append(batch)
        if sum(each.nbytes for each in some) >= PARCEL_BYTES:
            yield _parcel(target, waiting.pop(target), slots)
    for target, some in waiting.items():
        yield _parcel(target, some, slots)


def message(slot: int, body: bytes) -> pa.RecordBatch:
    """Return a parcel that carries a message to the applier of a slot instead of runs."""
    return _row(slot, MESSAGE, pa.py_buffer(body))


def messages_in(found: pa.Table) -> list[bytes]:
    """Return the messages among the parcels."""
    bodies: list[bytes] = found.filter(pc.equal(found["target"], MESSAGE))["body"].to_pylist()
    return bodies


def targets_in(found: pa.Table) -> Iterator[int]:
    """Yield the numbers of the target tables that parcels are for, ascending."""
    yield from sorted(number for number in pc.unique(found["target"]).to_pylist() if number >= 0)


def of_target(found: pa.Table, target: int) -> pa.Table:
    """Return the runs of one target table; they lie where the parcels do."""
    places = found["target"].to_numpy() == target
    bodies = (body for body, is_its in zip(found["body"], places.tolist(), strict=True) if is_its)
    return pa.concat_tables([pa.ipc.open_stream(body.as_buffer()).read_all() for body in bodies])


def _parcel(target: int, some: list[pa.RecordBatch], slots: int) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RUNS) as writer:
        for batch in some:
            writer.write_batch(batch)
    return _row(target % slots, target, sink.getvalue())


def _row(slot: int, target: int, body: pa.Buffer) -> pa.RecordBatch:
    ends = pa.array([0, body.size], pa.int32()).buffers()[1]
    bodies = pa.Array.from_buffers(pa.binary(), 1, [None, ends, body])
    return pa.RecordBatch.from_arrays([pa.array([slot], pa.int32()), pa.array([target], pa.int32()), bodies],
                                      schema=PARCELS)  # fmt: skip
