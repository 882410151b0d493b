"""From a byte range of a segment to Arrow batches of canonical values, one table structure each.

A range holds whole transactions and needs nothing that stands before it. Its tables are bound to the
tracked structures of the shards when their TABLE_MAP is met, and nothing that contradicts them passes.

A batch: `_op` (0 INSERT, 1 DELETE, 2 BEFORE, 3 AFTER of an UPDATE), `_seq` (grows in the order of the rows
in the whole range, across tables; an AFTER directly follows its BEFORE), then one binary column for each
column of the structure that is written (no generated ones), in its order.

Two readers give the same rows: many small events are read in lockstep (lockstep.py), everything else, and what is
odd there, one event after the other by a generated function (rowcode.py).
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from unshard.binlog.binding import bind_structure
from unshard.binlog.events import (
    ADMITTED,
    CHECKSUM,
    COMPRESSED_ROWS,
    DELETES,
    EXTRA_ROWS,
    HEADER,
    ROWS,
    UPDATES,
    Buffer,
    EventType,
    Frame,
    Opened,
    admit,
    inflate,
    walk,
)
from unshard.binlog.lockstep import Numbers, compile_lockstep, is_worth
from unshard.binlog.metadata import packed
from unshard.binlog.payload import nested
from unshard.binlog.rowcode import Reader, RowReader, compile_partial
from unshard.binlog.tablemap import NO_TABLE, Field, read_table, read_table_map, table_id_of
from unshard.binlog.transactions import Survey, survey
from unshard.core.model import Column, TableId, TableSchema
from unshard.errors.relay import (
    ColumnCountDiffers,
    DamagedEvent,
    DamagedRow,
    PartialRowImage,
    RowsWithoutTable,
)

INSERT, DELETE, BEFORE, AFTER = range(4)
BATCH_ROWS = 20_000
BATCH_BYTES = 4 << 20
ROW_BITS = 32
_UNREADABLE = (IndexError, ValueError, OverflowError, struct.error)
_NO_TABLES: Mapping[TableId, int] = {}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where bytes come from: for messages, and for positions in the binlog file."""

    source: str = ""
    file: str = ""
    position: int = 0
    """Of the first byte, in the binlog file; 0: events tell it themselves (up to 4 GiB)."""
    committed: bool = False
    """The bytes are an XA transaction that was prepared there and has been committed since."""

    def shard(self, table: TableId) -> str:
        """Return a table's name for messages."""
        return f"{self.source} {table}".strip()


class _Images(NamedTuple):
    """The row images of one event."""

    kind: int
    data: bytes
    end: int
    number: int


_Read = tuple[list[pa.Array], Numbers]
"""Columns, and the number of rows of each event."""


@dataclass(slots=True)
class _Bound:
    """A table of the range, bound to its structure, with the rows that no batch holds yet."""

    table: TableId
    fields: tuple[Field, ...]
    columns: tuple[Column, ...]
    reader: RowReader
    schema: pa.Schema
    shard: str
    file: str
    events: list[_Images] = field(default_factory=list)
    bytes: int = 0

    def batches(self) -> Iterator[tuple[TableId, pa.RecordBatch]]:
        """Yield the waiting rows and forget them."""
        events, self.events, self.bytes = self.events, [], 0
        columns, counts = self._together(events) or self._one_by_one(events)
        arrays = [_operations(events, counts), _order(events, counts), *columns]
        whole = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        for start in range(0, whole.num_rows, BATCH_ROWS):
            yield self.table, whole.slice(start, BATCH_ROWS)

    def _together(self, events: Sequence[_Images]) -> _Read | None:
        """Read all events in lockstep; None if they are few or anything about them is odd."""
        if any(event.kind == EventType.PARTIAL_UPDATE_ROWS for event in events):
            return None
        if not is_worth([len(event.data) for event in events]):
            return None
        try:
            columns, counts = compile_lockstep(self.fields, self.columns, self.shard).read(
                [event.data for event in events])  # fmt: skip
        except _UNREADABLE:
            return None
        return None if _is_odd(events, counts) else (columns, counts)

    def _one_by_one(self, events: Sequence[_Images]) -> _Read:
        rows: list[tuple[Any, ...]] = []
        counts = []
        for event in events:
            before = len(rows)
            try:
                self._reader(event)(event.data, 0, len(event.data), rows.append)
            except _UNREADABLE as error:
                raise DamagedRow(self.shard, f"{self.file}:{event.end}", str(error)) from error
            counts.append(len(rows) - before)
            if event.kind in UPDATES and counts[-1] % 2:
                raise DamagedRow(self.shard, f"{self.file}:{event.end}", "an UPDATE lacks its last AFTER image")
        cells = list(zip(*rows, strict=True)) or [()] * len(self.reader.finish)
        columns = [finish(values) for finish, values in zip(self.reader.finish, cells, strict=True)]
        return columns, np.array(counts, np.int64)

    def _reader(self, event: _Images) -> Reader:
        if event.kind == EventType.PARTIAL_UPDATE_ROWS:
            return compile_partial(self.fields, self.columns, self.shard)
        return self.reader.read


def _is_odd(events: Sequence[_Images], counts: Numbers) -> bool:
    """Whether an UPDATE lacks an image."""
    updates = np.fromiter((event.kind in UPDATES for event in events), bool, len(events))
    return bool((counts[updates] % 2).any())


def _operations(events: Sequence[_Images], counts: Numbers) -> pa.Array:
    """Return the operation of each row; images of an UPDATE come in pairs."""
    each = [BEFORE if event.kind in UPDATES else DELETE if event.kind in DELETES else INSERT for event in events]
    found = np.repeat(np.array(each, np.int8), counts)
    return pa.array(found + (found == BEFORE) * (_numbered(counts) % 2).astype(np.int8))


def _order(events: Sequence[_Images], counts: Numbers) -> pa.Array:
    numbers = np.fromiter((event.number for event in events), np.int64, len(events))
    return pa.array(np.repeat(numbers << ROW_BITS, counts) + _numbered(counts))


def _numbered(counts: Numbers) -> Numbers:
    """Number the rows of each event."""
    total: Numbers = np.arange(int(counts.sum()), dtype=np.int64)
    return total - np.repeat(np.cumsum(counts) - counts, counts)


def decode_range(data: Buffer, checksum: bool, wanted: Mapping[TableId, TableSchema],
                 starts: Mapping[TableId, int] = _NO_TABLES,
                 origin: Origin = Origin()) -> Iterator[tuple[TableId, pa.RecordBatch]]:  # fmt: skip
    """Yield the batches of the wanted tables in the order of their rows.

    Rows of a table in `starts` are passed over if their transaction ends at or before that position of
    the binlog file. Memory is bounded by a batch and the largest event.
    """
    decoder = _Decoder(data, checksum, wanted, origin)
    undone, ends = decoder.survey.undone, decoder.survey.ends
    for number, (frame, body, end) in enumerate(decoder.opened()):
        if frame.type not in ADMITTED:
            admit(frame, decoder.place(end))
        if frame.type == EventType.TABLE_MAP:
            decoder.bind(bytes(body), end)
        elif frame.type in ROWS and number not in undone:
            bound = decoder.read(number, frame, body, (end, ends[number]), starts)
            if bound and bound.bytes >= BATCH_BYTES:
                yield from bound.batches()
    for bound in decoder.waiting():
        yield from bound.batches()


def opened(data: Buffer, events: Iterable[tuple[int, Frame]], tail: int, origin: Origin) -> Iterator[Opened]:
    """Yield all events of a range without their checksums, those of payloads in place of these."""
    for offset, frame in events:
        body = data[offset + HEADER : offset + frame.size - tail]
        end = origin.position + offset + frame.size if origin.position else frame.end
        if frame.type == EventType.TRANSACTION_PAYLOAD:
            yield from ((inner, held, end) for inner, held in nested(body, f"{origin.file}:{end}"))
        else:
            yield frame, body, end


class _Decoder:
    """The state of one range: which tables its ids mean, and the next row's number."""

    def __init__(self, data: Buffer, checksum: bool, wanted: Mapping[TableId, TableSchema], origin: Origin) -> None:
        self.data, self.wanted, self.origin = data, wanted, origin
        self.tail = CHECKSUM if checksum else 0
        self.events = tuple(walk(data, checksum, f"{origin.source} {origin.file}".strip()))
        self.survey: Survey = survey(self.opened(), origin.file, origin.committed)
        self.ids: dict[int, tuple[bytes, _Bound | None]] = {}
        self.bound: dict[tuple[TableId, bytes], _Bound] = {}

    def opened(self) -> Iterator[Opened]:
        return opened(self.data, self.events, self.tail, self.origin)

    def place(self, end: int) -> str:
        return f"{self.origin.file}:{end}"

    def waiting(self) -> Iterator[_Bound]:
        return (bound for bound in self.bound.values() if bound.events)

    def bind(self, body: bytes, end: int) -> None:
        """Note what a table id means from here on."""
        try:
            known = self.ids.get(table_id_of(body))
            if known is None or known[0] != body[8:]:
                self.ids[table_id_of(body)] = (body[8:], self._bound(body, end))
        except _UNREADABLE as error:
            raise DamagedEvent(self.place(end), f"unreadable TABLE_MAP: {error}") from error

    def _bound(self, body: bytes, end: int) -> _Bound | None:
        table, _ = read_table(body)
        schema = self.wanted.get(table)
        if schema is None:
            return None
        if (table, body[8:]) not in self.bound:
            shard = self.origin.shard(table)
            table_map = read_table_map(body)
            reader = bind_structure(table_map, schema, shard, self.place(end))
            self.bound[table, body[8:]] = _Bound(
                table, table_map.fields, schema.columns, reader, batch_schema(schema.written), shard,
                self.origin.file)  # fmt: skip
        return self.bound[table, body[8:]]

    def read(self, number: int, frame: Frame, body: Buffer, ends: tuple[int, int],
             starts: Mapping[TableId, int]) -> _Bound | None:  # fmt: skip
        """Add the images of an event to its table's waiting ones; None if they are not wanted.

        `number` is the event's; `ends`: the positions behind the event and behind its transaction.
        """
        table_id = table_id_of(bytes(body[:6]))
        if table_id == NO_TABLE:
            return None
        if table_id not in self.ids:
            raise RowsWithoutTable(self.place(ends[0]), table_id)
        bound = self.ids[table_id][1]
        if bound is None or ends[1] <= starts.get(bound.table, -1):
            return None
        try:
            images = self._images(bound, frame, bytes(body), ends[0])
        except _UNREADABLE as error:
            raise DamagedRow(bound.shard, self.place(ends[0]), str(error)) from error
        bound.events.append(_Images(frame.type, images, ends[0], number))
        bound.bytes += len(images)
        return bound

    def _images(self, bound: _Bound, frame: Frame, body: bytes, end: int) -> bytes:
        """Return the row images of an event, without what stands before them."""
        offset = 8 + (_extra_bytes(body) if frame.type in EXTRA_ROWS else 0)
        count, offset = packed(body, offset)
        if count != len(bound.columns):
            raise ColumnCountDiffers(bound.shard, self.place(end), count, len(bound.columns))
        size = (count + 7) // 8
        for _ in range(2 if frame.type in UPDATES else 1):
            present = int.from_bytes(body[offset : offset + size], "little")
            if ~present & ((1 << count) - 1):
                raise PartialRowImage(bound.shard, self.place(end))
            offset += size
        return inflate(body[offset:], self.place(end)) if frame.type in COMPRESSED_ROWS else body[offset:]


def _extra_bytes(body: bytes) -> int:
    """Return how many bytes of a row event of version 2 are about partitions or clusters, with those of the number."""
    size = int.from_bytes(body[8:10], "little")
    if not 2 <= size <= len(body) - 8:
        raise ValueError(f"{size} extra bytes in an event of {len(body)}")
    return size


@lru_cache(1024)
def batch_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the Arrow schema of a batch of these columns."""
    fixed = [pa.field("_op", pa.int8()), pa.field("_seq", pa.int64())]
    return pa.schema([*fixed, *(pa.field(column.name, pa.binary()) for column in columns)])
