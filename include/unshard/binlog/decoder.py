"""Decode a byte range of a segment to Arrow batches of canonical values, one table structure each (in executors).

A range contains whole transactions and does not depend on earlier bytes. When its TABLE_MAP is read, each table is
bound to the tracked structure of its shard; a contradiction is an error.

A batch has the columns `_op` (0 INSERT, 1 DELETE, 2 BEFORE, 3 AFTER of an UPDATE) and `_seq`, then one binary column
for each written column of the structure (no generated ones), in its order. `_seq` grows in the order of the rows in the
whole range, across tables; an AFTER directly follows its BEFORE.

Two readers return the same rows. Many small events are read in lockstep (lockstep.py). All other events, and unusual
ones, are read one after the other by a generated function (rowcode.py).

**System-versioned tables**: changes are reduced to those of current rows, which a SELECT shows.

| logged                              | result                                             |
|-------------------------------------|----------------------------------------------------|
| INSERT of a row without an end      | INSERT                                             |
| INSERT of a row with an end         | history: left out                                  |
| UPDATE, both images without an end  | UPDATE                                             |
| UPDATE that ends the row            | DELETE                                             |
| UPDATE that removes the end         | INSERT                                             |
| DELETE of a row without an end      | DELETE                                             |
| DELETE or UPDATE of history         | left out                                           |

**Binding**: everything that a TABLE_MAP event and the tracked structure of its shard both contain must agree.
So an unseen DDL ends in an error, and rows are never read with the wrong structure. The more metadata the server sends,
the more is compared. Physical types and their sizes are always compared.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.binlog.events import (
    ADMITTED,
    CHECKSUM,
    COMPRESSED_ROWS,
    DELETES,
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
from unshard.binlog.lockstep import (
    Lockstep,
    Numbers,
    RowEvents,
    Skimmed,
    compile_lockstep,
    gathered,
    image_begins,
    is_worth,
    pieces,
    skim,
)
from unshard.binlog.payload import Fragments, nested
from unshard.binlog.rowcode import Reader, RowReader, compile_partial, compile_reader
from unshard.binlog.sparse import PRESENT, Annotated, Bits, Sparse, images_at, mask_type, whole_pairs
from unshard.binlog.tablemap import (
    NO_TABLE,
    NUMERIC,
    Collations,
    PhysicalField,
    TableMap,
    agrees,
    read_table,
    read_table_map,
    table_id_of,
)
from unshard.binlog.tablemap import FieldType as F
from unshard.binlog.transactions import StatementEnds, survey
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.rows.compaction import Op
from unshard.core.sql.charsets import charset_of
from unshard.core.structures.columntypes import encoded_labels, read_labels
from unshard.core.structures.hiddencolumns import FOREVER, as_in_rows
from unshard.errors.relay import DamagedEvent
from unshard.errors.rows import (
    ColumnCountDiffers,
    ColumnTypeDiffers,
    DamagedRow,
    PartialRowImage,
    RowsWithoutTable,
    UnsupportedColumn,
)

# --- system-versioned tables ---

FOREVERS = pa.array(FOREVER, pa.binary())


def present_rows(
    ops: pa.Array, seq: pa.Array, columns: Sequence[pa.Array], period_end: int
) -> tuple[pa.Array, pa.Array, list[pa.Array]]:
    """Return operations, sequence numbers and columns of the current rows, without the period-end column."""
    kinds = ops.to_numpy().copy()
    present = pc.is_in(columns[period_end], FOREVERS).to_numpy(zero_copy_only=False)
    before = np.flatnonzero(kinds == Op.BEFORE)
    after = before + 1
    kinds[before[present[before] & ~present[after]]] = Op.DELETE
    kinds[after[present[after] & ~present[before]]] = Op.INSERT
    kept = pa.array(np.flatnonzero(present))
    others = [column for number, column in enumerate(columns) if number != period_end]
    return pa.array(kinds, pa.int8()).take(kept), seq.take(kept), [column.take(kept) for column in others]


# --- tables and tracked structures ---

_CHARACTERS = frozenset((F.STRING, F.VAR_STRING, F.VARCHAR, F.BLOB, F.VARCHAR_COMPRESSED, F.BLOB_COMPRESSED, F.VECTOR))
_LABELLED = frozenset((F.ENUM, F.SET))
_ALIASES = {"utf8": "utf8mb3", None: "binary"}


def bind_structure(table_map: TableMap, schema: TableSchema, shard: str, place: str) -> RowReader:
    """Return the reader of a table's rows; ValueError if the metadata contradict the columns of the same event."""
    if len(table_map.fields) != len(schema.columns):
        raise ColumnCountDiffers(shard, place, len(table_map.fields), len(schema.columns))
    for physical, column in zip(table_map.fields, schema.columns, strict=True):
        if physical.type not in F._value2member_map_:
            raise UnsupportedColumn(shard, column.name, column.column_type)
        if not agrees(physical, column):
            raise ColumnTypeDiffers(shard, column.name, place, str(physical), column.column_type)
    _MetadataComparison(table_map, schema.columns, shard, place).run()
    return compile_reader(table_map.fields, schema.columns, shard)


class _MetadataComparison:
    """The comparison of the metadata of one TABLE_MAP with the tracked columns."""

    def __init__(self, table_map: TableMap, columns: Sequence[Column], shard: str, place: str) -> None:
        self._metadata, self._columns = table_map.metadata, columns
        self._types = [physical.type for physical in table_map.fields]
        self._shard, self._place = shard, place

    def run(self) -> None:
        self._names()
        self._signs()
        self._dimensions()
        self._labels(self._metadata.enum_labels, F.ENUM)
        self._labels(self._metadata.set_labels, F.SET)
        self._charsets(self._metadata.charsets, self._character_columns())
        self._charsets(self._metadata.label_charsets, self._of(_LABELLED))

    def _of(self, types: frozenset[F]) -> list[Column]:
        return [column for kind, column in zip(self._types, self._columns, strict=True) if kind in types]

    def _differs(self, column: Column, found: str, tracked: str) -> ColumnTypeDiffers:
        return ColumnTypeDiffers(self._shard, column.name, self._place, found, tracked)

    def _names(self) -> None:
        if self._metadata.names:
            for name, column in zip(self._metadata.names, self._columns, strict=True):
                if name != (known := column.own_name or column.name):
                    raise self._differs(column, f"called {name}", f"called {known}")

    def _signs(self) -> None:
        # The last byte is padded; a server without metadata sends no signs.
        for unsigned, column in zip(self._metadata.unsigned, self._of(NUMERIC), strict=False):
            if unsigned != column.is_unsigned and column.data_type != "year":
                raise self._differs(column, "unsigned" if unsigned else "signed", column.column_type)

    def _dimensions(self) -> None:
        if self._metadata.dimensions:
            for found, column in zip(self._metadata.dimensions, self._of(frozenset((F.VECTOR,))), strict=True):
                if found != column.numbers[0]:
                    raise self._differs(column, f"vector({found})", column.column_type)

    def _labels(self, labels: tuple[tuple[bytes, ...], ...], kind: F) -> None:
        if not labels:
            return
        for found, column in zip(labels, self._of(frozenset((kind,))), strict=True):
            as_utf8 = tuple(label.encode() for label in read_labels(column.column_type))
            if found not in (as_utf8, encoded_labels(column, self._shard)):
                shown = ",".join(label.decode("utf-8", "replace") for label in found)
                raise self._differs(column, f"{kind.name} of {shown}", column.column_type)

    def _character_columns(self) -> list[Column]:
        """Return the columns with a character set; MariaDB includes GEOMETRY, MySQL does not."""
        found, wider = self._of(_CHARACTERS), self._of(_CHARACTERS | {F.GEOMETRY})
        charsets = self._metadata.charsets
        if charsets is None or len(found) == len(wider):
            return found
        if charsets.default:
            # It is unknown which of the two lists the numbers refer to.
            return []
        return wider if len(charsets.ids) == len(wider) else found

    def _charsets(self, collations: Collations | None, columns: Sequence[Column]) -> None:
        if collations is None or not columns:
            return
        for collation, column in zip(collations.of(len(columns)), columns, strict=True):
            found = _charset(collation)
            tracked = _ALIASES.get(column.charset, column.charset)
            if found and found != tracked:
                raise self._differs(column, f"in character set {found}", f"{column.column_type} in {tracked}")


def _charset(collation: int) -> str:
    try:
        return charset_of(collation)
    except KeyError:
        return ""


# --- ranges ---

INSERT, DELETE, BEFORE, AFTER = range(4)
BATCH_ROWS = 20_000
BATCH_BYTES = 4 << 20
ROW_BITS = 32
_UNREADABLE = (IndexError, ValueError, OverflowError, struct.error)
_NO_TABLES: Mapping[TableId, int] = {}


@dataclass(frozen=True, slots=True)
class RangeOrigin:
    """The source of the bytes, for messages and for positions in the binlog file."""

    source: str = ""
    file: str = ""
    position: int = 0
    """Position of the first byte in the binlog file; 0: events contain their own positions (up to 4 GiB)."""
    committed: bool = False
    """The bytes are an XA transaction that was prepared there and has been committed since."""

    def shard(self, table: TableId) -> str:
        return f"{self.source} {table}".strip()


class _RowImages(NamedTuple):
    """The row images of one event."""

    kind: int
    data: bytes
    end: int
    number: int
    present: Bits = ()
    """The columns that they have; empty: all."""


_Read = tuple[list[pa.Array], Numbers]
"""Columns, and the number of rows of each event."""


@dataclass(slots=True)
class _Bound:
    """A table of the range, bound to its structure, with the rows that are not in a batch yet."""

    table: TableId
    fields: tuple[PhysicalField, ...]
    columns: tuple[Column, ...]
    reader: RowReader
    structure: TableSchema
    schema: pa.Schema
    shard: str
    file: str
    period_end: int | None = None
    """Index of the column that shows whether a row of a versioned table is current."""
    events: list[_RowImages] = field(default_factory=list)
    bytes: int = 0

    def batches(self) -> Iterator[tuple[TableId, pa.RecordBatch]]:
        """Yield the pending rows as batches and clear them."""
        events, self.events, self.bytes = self.events, [], 0
        for is_sparse, batch in groupby(events, key=lambda event: bool(event.present)):
            yield from (self._sparse if is_sparse else self._full)(list(batch))

    def _full(self, events: Sequence[_RowImages]) -> Iterator[tuple[TableId, pa.RecordBatch]]:
        kinds = np.fromiter((event.kind for event in events), np.int64, len(events))
        numbers = np.fromiter((event.number for event in events), np.int64, len(events))
        yield from self._sliced(kinds, numbers, self._together(events) or self._one_by_one(events))

    def _sparse(self, events: Sequence[_RowImages]) -> Iterator[tuple[TableId, pa.RecordBatch]]:
        """Read images that omit columns; a batch does not end inside an UPDATE."""
        if self.period_end is not None:
            why = "and the table is system-versioned, so a row may belong to its history"
            raise PartialRowImage(self.shard, f"{self.file}:{events[0].end}", why)
        reader, cells, counts = Sparse(self.fields, self.structure, self.shard), None, []
        for event in events:
            try:
                found = reader.read(event.data, event.kind, event.present, f"{self.file}:{event.end}")
            except _UNREADABLE as error:
                raise DamagedRow(self.shard, f"{self.file}:{event.end}", str(error)) from error
            counts.append(len(found.masks))
            cells = found if cells is None else cells.add(found)
        if cells is None:
            return
        kinds = np.fromiter((event.kind for event in events), np.int64, len(events))
        numbers = np.fromiter((event.number for event in events), np.int64, len(events))
        sized = np.array(counts, np.int64)
        inside, columns = _numbered(sized), cells.arrays(self.reader.finish)
        ops = _operations(kinds, sized, inside)
        schema = (
            self.schema
            if len(columns) == len(self.reader.finish)
            else self.schema.append(pa.field(PRESENT, mask_type(len(self.reader.finish))))
        )
        seq = pa.array(np.repeat(numbers << ROW_BITS, sized) + inside)
        whole = pa.RecordBatch.from_arrays([ops, seq, *columns], schema=schema)
        for part in whole_pairs(ops.to_pylist(), BATCH_ROWS, AFTER):
            yield self.table, whole.slice(part.start, part.stop - part.start)

    def _sliced(self, kinds: Numbers, numbers: Numbers, read: _Read) -> Iterator[tuple[TableId, pa.RecordBatch]]:
        columns, counts = read
        inside = _numbered(counts)
        ops, seq = _operations(kinds, counts, inside), pa.array(np.repeat(numbers << ROW_BITS, counts) + inside)
        if self.period_end is not None:
            ops, seq, columns = present_rows(ops, seq, columns, self.period_end)
        whole = pa.RecordBatch.from_arrays([ops, seq, *columns], schema=self.schema)
        for start in range(0, whole.num_rows, BATCH_ROWS):
            yield self.table, whole.slice(start, BATCH_ROWS)

    def skimmed(self, data: Buffer, rows: RowEvents) -> Iterator[tuple[TableId, pa.RecordBatch]] | None:
        """Return the batches of rows that the skim found; None if these events are unusual."""
        begins = image_begins(data, rows, len(self.columns))
        return None if begins is None else self._pieces(data, rows, begins)

    def _pieces(self, data: Buffer, rows: RowEvents, begins: Numbers) -> Iterator[tuple[TableId, pa.RecordBatch]]:
        for piece in pieces(rows.stop - begins, BATCH_BYTES):
            batch, starts = rows.only(piece), begins[piece]
            read = partial(Lockstep.read_at, events=gathered(data, starts, batch.stop))
            found = self._lockstep(read, batch.stop - starts, batch.kind)
            if found is None:
                yield from self._skimmed_one_by_one(data, batch, starts)
                continue
            yield from self._sliced(batch.kind, batch.number, found)

    def _skimmed_one_by_one(
        self, data: Buffer, rows: RowEvents, begins: Numbers
    ) -> Iterator[tuple[TableId, pa.RecordBatch]]:
        locations = zip(
            rows.kind.tolist(),
            begins.tolist(),
            rows.stop.tolist(),
            rows.end.tolist(),
            rows.number.tolist(),
            strict=True,
        )
        self.events = [
            _RowImages(kind, bytes(data[begin:stop]), end, number) for kind, begin, stop, end, number in locations
        ]
        return self.batches()

    def _together(self, events: Sequence[_RowImages]) -> _Read | None:
        """Read all events in lockstep; None if there are few or one of them is unusual."""
        if any(event.kind == EventType.PARTIAL_UPDATE_ROWS for event in events):
            return None
        kinds = np.fromiter((event.kind for event in events), np.int64, len(events))
        sizes = np.fromiter((len(event.data) for event in events), np.int64, len(events))
        return self._lockstep(lambda reader: reader.read([event.data for event in events]), sizes, kinds)

    def _lockstep(self, read: Callable[[Lockstep], _Read], sizes: Numbers, kinds: Numbers) -> _Read | None:
        if not is_worth(sizes):
            return None
        try:
            columns, counts = read(compile_lockstep(self.fields, self.columns, self.shard))
        except _UNREADABLE:
            return None
        lacks_image = (counts[_OPERATIONS[kinds] == BEFORE] % 2).any()
        return None if lacks_image else (columns, counts)

    def _one_by_one(self, events: Sequence[_RowImages]) -> _Read:
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

    def _reader(self, event: _RowImages) -> Reader:
        if event.kind == EventType.PARTIAL_UPDATE_ROWS:
            return compile_partial(self.fields, self.columns, self.shard)
        return self.reader.read


_OPERATIONS = np.array(
    [BEFORE if kind in UPDATES else DELETE if kind in DELETES else INSERT for kind in range(256)], np.int8
)
"""The operation of the first image of an event, by the event's type."""


def _operations(kinds: Numbers, counts: Numbers, inside: Numbers) -> pa.Array:
    found = np.repeat(_OPERATIONS[kinds], counts)
    return pa.array(found + (found == BEFORE) * (inside % 2).astype(np.int8))


def _numbered(counts: Numbers) -> Numbers:
    total: Numbers = np.arange(int(counts.sum()), dtype=np.int64)
    return total - np.repeat(np.cumsum(counts) - counts, counts)


def decode_range(
    data: Buffer,
    checksum: bool,
    wanted: Mapping[TableId, TableSchema],
    starts: Mapping[TableId, int] = _NO_TABLES,
    origin: RangeOrigin = RangeOrigin(),
) -> Iterator[tuple[TableId, pa.RecordBatch]]:
    """Yield the batches of the wanted tables in the order of their rows.

    Rows of a table in `starts` are skipped if their transaction ends at or before that position of the binlog file.
    Memory is bounded by a batch and the largest event.
    """
    decoder = _Decoder(data, checksum, wanted, origin)
    found = skim(data, checksum, decoder.where, origin.position)
    parts = decoder.skimmed(found, starts) if found else None
    if parts is None:
        parts = [decoder.in_order(starts)]
    for part in parts:
        yield from part


def opened(data: Buffer, events: Iterable[tuple[int, Frame]], tail: int, origin: RangeOrigin) -> Iterator[Opened]:
    """Yield all events of a range without their checksums, as `unwrapped` does."""
    bodies = (
        (
            frame,
            data[offset + HEADER : offset + frame.size - tail],
            origin.position + offset + frame.size if origin.position else frame.end,
        )
        for offset, frame in events
    )
    return unwrapped(bodies, tail, origin.file)


def unwrapped(events: Iterable[Opened], tail: int, file: str) -> Iterator[Opened]:
    """Replace a payload by the events inside it, and the fragments of a rows event by that event.

    `tail` is the size of a checksum in the file. Raises if a statement lacks its last rows.
    """
    ends, end = StatementEnds(), 0
    for frame, body, end in _unwrapped(events, tail, file):
        ends.see(frame.type, body, f"{file}:{end}")
        yield frame, body, end
    ends.require(f"{file}:{end}")


def _unwrapped(events: Iterable[Opened], tail: int, file: str) -> Iterator[Opened]:
    fragments, chunks, end = Fragments(tail), list[Buffer](), 0
    for frame, body, end in events:
        place = f"{file}:{end}"
        if frame.type == EventType.PARTIAL_ROW_DATA:
            chunks.append(fragments.add(body, place))
            if not fragments.is_pending:
                yield (*fragments.join(chunks), end)
                chunks = []
            continue
        fragments.require_end(place)
        if frame.type == EventType.TRANSACTION_PAYLOAD:
            yield from ((inner, held, end) for inner, held in nested(body, place))
        else:
            yield frame, body, end
    fragments.require_end(f"{file}:{end}")


class _Decoder:
    """The state of one range: the tables of its table ids, and the bound structures."""

    def __init__(
        self, data: Buffer, checksum: bool, wanted: Mapping[TableId, TableSchema], origin: RangeOrigin
    ) -> None:
        self.data, self.wanted, self.origin = data, wanted, origin
        self.checksum = checksum
        self.where = f"{origin.source} {origin.file}".strip()
        self.ids: dict[int, tuple[bytes, _Bound | None]] = {}
        self.bound: dict[tuple[TableId, bytes], _Bound] = {}
        self.annotated = Annotated()

    def skimmed(
        self, found: Skimmed, starts: Mapping[TableId, int]
    ) -> list[Iterator[tuple[TableId, pa.RecordBatch]]] | None:
        """Return the batches of each table of a skimmed range; None if a table is unusual."""
        bounds = [self._readable(body, end) for body, end in found.maps]
        parts = []
        for bound in self.bound.values():
            mine = np.array([other is bound for other in bounds])[found.rows.map]
            rows = found.rows.only(mine & (found.rows.commit > starts.get(bound.table, -1)))
            parts.append(bound.skimmed(self.data, rows))
        is_whole = len({table for table, _ in self.bound}) == len(self.bound)
        return [part for part in parts if part is not None] if is_whole and None not in parts else None

    def in_order(self, starts: Mapping[TableId, int]) -> Iterator[tuple[TableId, pa.RecordBatch]]:
        latest: dict[TableId, _Bound] = {}
        events = tuple(walk(self.data, self.checksum, self.where))
        tail = CHECKSUM if self.checksum else 0
        found = survey(opened(self.data, events, tail, self.origin), self.origin.file, self.origin.committed)
        for number, (frame, body, end) in enumerate(opened(self.data, events, tail, self.origin)):
            if frame.type not in ADMITTED:
                admit(frame, self.place(end))
            self.annotated.see(frame, body)
            if frame.type == EventType.TABLE_MAP:
                self.bind(bytes(body), end)
            elif frame.type in ROWS and number not in found.undone:
                bound = self.read(number, frame, body, (end, found.ends[number]), starts)
                if bound is None:
                    continue
                before = latest.get(bound.table, bound)
                if before is not bound:
                    # The same structure with another TABLE_MAP: first yield the earlier rows, to keep the table's
                    # order.
                    yield from before.batches()
                latest[bound.table] = bound
                if bound.bytes >= BATCH_BYTES:
                    yield from bound.batches()
        for bound in self.bound.values():
            if bound.events:
                yield from bound.batches()

    def place(self, end: int) -> str:
        return f"{self.origin.file}:{end}"

    def bind(self, body: bytes, end: int) -> None:
        known = self.ids.get(table_id_of(body))
        if known is None or known[0] != body[8:]:
            self.ids[table_id_of(body)] = (body[8:], self._readable(body, end))

    def _readable(self, body: bytes, end: int) -> _Bound | None:
        try:
            return self._bound(body, end)
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
            whole, period_end = as_in_rows(schema, len(table_map.fields))
            reader = bind_structure(table_map, whole, shard, self.place(end))
            self.bound[table, body[8:]] = _Bound(
                table,
                table_map.fields,
                whole.columns,
                reader,
                whole,
                batch_schema(schema.written),
                shard,
                self.origin.file,
                period_end,
            )
        return self.bound[table, body[8:]]

    def read(
        self, number: int, frame: Frame, body: Buffer, ends: tuple[int, int], starts: Mapping[TableId, int]
    ) -> _Bound | None:
        """Add the images of an event to its table's pending ones; None if they are not wanted.

        `number` is the event's number; `ends` are the positions after the event and after its transaction.
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
            self.annotated.check(frame, body, bound.shard, self.place(ends[0]))
            images, present = self._images(bound, frame, bytes(body), ends[0])
        except _UNREADABLE as error:
            raise DamagedRow(bound.shard, self.place(ends[0]), str(error)) from error
        bound.events.append(_RowImages(frame.type, images, ends[0], number, present))
        bound.bytes += len(images)
        return bound

    def _images(self, bound: _Bound, frame: Frame, body: bytes, end: int) -> tuple[bytes, Bits]:
        """Return the row images of an event without the bytes before them, and the columns that they have."""
        count, offset, present = images_at(frame, body)
        if count != len(bound.columns):
            raise ColumnCountDiffers(bound.shard, self.place(end), count, len(bound.columns))
        images = inflate(body[offset:], self.place(end)) if frame.type in COMPRESSED_ROWS else body[offset:]
        return images, present


@lru_cache(1024)
def batch_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the Arrow schema of a batch of these columns."""
    fixed = [pa.field("_op", pa.int8()), pa.field("_seq", pa.int64())]
    return pa.schema([*fixed, *(pa.field(column.name, pa.binary()) for column in columns)])
