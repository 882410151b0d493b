"""Extract the events of one table from a byte range, for rows whose structure is not yet known.

`extract` takes the events of the table that `decode_range` would read, processed as far as possible without a
structure. Transactions that the dump has seen and rows that were rolled back are left out. Payloads are opened;
checksums are verified and removed. Everything else is unchanged. So for every structure, decoding the extract returns
the same rows in the same order as decoding the range.

An extract consists of pieces that can be decoded separately: each contains the TABLE_MAP events that its rows need.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from unshard.binlog.decoder import RangeOrigin, bind_structure, decode_range, opened
from unshard.binlog.events import CHECKSUM, HEADER, ROWS, Buffer, EventType, Frame, admit, walk, write_frame
from unshard.binlog.sparse import Annotated
from unshard.binlog.tablemap import NO_TABLE, read_table, read_table_map, table_id_of
from unshard.binlog.transactions import survey
from unshard.core.model import TableId, TableSchema
from unshard.core.structures.hiddencolumns import as_in_rows
from unshard.errors.base import RelayError
from unshard.errors.relay import DamagedEvent
from unshard.errors.rows import RowsWithoutTable

PIECE_BYTES = 8 << 20
BEYOND = 1 << 62
"""After every position of a binlog file."""


class RowSpan(NamedTuple):
    """Positions of a binlog file, `until` included."""

    after: int = -1
    until: int = BEYOND


WHOLE = RowSpan()
NOWHERE = RangeOrigin()
RAW = pa.schema(
    [
        ("table_schema", pa.string()),
        ("table_name", pa.string()),
        ("file", pa.string()),
        ("count", pa.int64()),
        ("maps", pa.binary()),
        ("events", pa.binary()),
    ]
)
"""The columns of a file of pieces; `file` is the binlog file, `count` the number of row events."""
WITHOUT_EVENTS = tuple(name for name in RAW.names if name != "events")
_UNREADABLE = (IndexError, ValueError)


@dataclass(slots=True)
class _Extract:
    """The events since the last piece, and the tables of the table ids."""

    table: TableId
    file: str
    ids: dict[int, tuple[bytes, bytes] | None] = field(default_factory=dict)
    """Body and whole event of the current TABLE_MAP of each id; None: another table."""
    written: set[int] = field(default_factory=set)
    """Ids whose current TABLE_MAP is among the events."""
    maps: list[bytes] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    count: int = 0
    size: int = 0

    def bind(self, frame: Frame, body: bytes, end: int) -> None:
        try:
            number, is_ours = table_id_of(body), read_table(body)[0] == self.table
        except _UNREADABLE as error:
            raise DamagedEvent(f"{self.file}:{end}", f"unreadable TABLE_MAP: {error}") from error
        known = self.ids.get(number)
        if not is_ours:
            self.ids[number] = None
        elif known is None or known[0] != body:
            self.ids[number] = body, write_frame(frame, body, end) + body
            self.written.discard(number)

    def add(self, frame: Frame, body: bytes, end: int) -> bool:
        number = table_id_of(body)
        if number == NO_TABLE:
            return False
        if number not in self.ids:
            raise RowsWithoutTable(f"{self.file}:{end}", number)
        described = self.ids[number]
        if described is None:
            return False
        if number not in self.written:
            self.written.add(number)
            self.maps.append(described[1])
            self._take(described[1])
        self._take(write_frame(frame, body, end) + body)
        self.count += 1
        return True

    def piece(self) -> pa.RecordBatch:
        row = {
            "table_schema": self.table.schema,
            "table_name": self.table.name,
            "file": self.file,
            "count": self.count,
            "maps": b"".join(self.maps),
            "events": b"".join(self.events),
        }
        self.written, self.maps, self.events, self.count, self.size = set(), [], [], 0, 0
        return pa.RecordBatch.from_pylist([row], schema=RAW)

    def _take(self, event: bytes) -> None:
        self.events.append(event)
        self.size += len(event)


def extract(
    data: Buffer,
    checksum: bool,
    table: TableId,
    span: RowSpan = WHOLE,
    origin: RangeOrigin = NOWHERE,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the table's row events of transactions that end within `span`, one piece per batch.

    A piece ends with the event that makes it as large as `piece_bytes`.
    """
    events = tuple(walk(data, checksum, f"{origin.source} {origin.file}".strip()))
    tail = CHECKSUM if checksum else 0
    found = survey(opened(data, events, tail, origin), origin.file, origin.committed)
    gathered = _Extract(table, origin.file)
    annotated = Annotated()
    for number, (frame, body, end) in enumerate(opened(data, events, tail, origin)):
        kind = admit(frame, f"{origin.file}:{end}")
        annotated.see(frame, body)
        if kind == EventType.TABLE_MAP:
            gathered.bind(frame, bytes(body), end)
        elif kind in ROWS and number not in found.undone and span.after < found.ends[number] <= span.until:
            if gathered.add(frame, bytes(body), end):
                annotated.check(frame, body, origin.shard(table), f"{origin.file}:{end}")
            if gathered.size >= piece_bytes:
                yield gathered.piece()
    if gathered.count:
        yield gathered.piece()


def decode(batches: Iterable[pa.RecordBatch], schema: TableSchema, source: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an extract, as `decode_range` does."""
    for piece in _pieces(batches):
        table = TableId(piece["table_schema"], piece["table_name"])
        origin = RangeOrigin(source, piece["file"])
        for _, batch in decode_range(piece["events"], False, {table: schema}, origin=origin):
            yield batch


def misfit(batches: Iterable[pa.RecordBatch], schema: TableSchema, source: str) -> str:
    """Return why the rows' TABLE_MAPs contradict that structure; empty if they do not."""
    for piece in _pieces(batches):
        shard = RangeOrigin(source).shard(TableId(piece["table_schema"], piece["table_name"]))
        for offset, frame in walk(piece["maps"], False, piece["file"]):
            body = piece["maps"][offset + HEADER : offset + frame.size]
            if why := _misfit(body, schema, shard, f"{piece['file']}:{frame.end}"):
                return why
    return ""


def _misfit(body: bytes, schema: TableSchema, shard: str, place: str) -> str:
    try:
        table_map = read_table_map(body)
        whole, _ = as_in_rows(schema, len(table_map.fields))
        bind_structure(table_map, whole, shard, place)
    except RelayError as error:
        return error.message
    return ""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Where the rows of a table begin to contradict its structure."""

    table: TableId
    position: int
    """Position in the binlog file: rows of transactions that end at or before it fit."""
    columns: str
    words: str


def misfits(
    data: Buffer,
    checksum: bool,
    wanted: Mapping[TableId, TableSchema],
    starts: Mapping[TableId, int],
    origin: RangeOrigin = NOWHERE,
) -> Iterator[Misfit]:
    """Yield the first contradiction of each wanted table in a range that `decode_range` has refused."""
    events = tuple(walk(data, checksum, f"{origin.source} {origin.file}".strip()))
    tail = CHECKSUM if checksum else 0
    found = survey(opened(data, events, tail, origin), origin.file, origin.committed)
    begins = origin.position or (events[0][1].end - events[0][1].size if events else 0)
    bodies: dict[int, bytes] = {}
    left = dict(wanted)
    for number, (frame, body, end) in enumerate(opened(data, events, tail, origin)):
        if frame.type == EventType.TABLE_MAP:
            bodies[table_id_of(bytes(body[:6]))] = bytes(body)
        elif frame.type in ROWS:  # also if they are rolled back, because the table had these columns then
            described = bodies.get(table_id_of(bytes(body[:6])), b"")
            table = read_table(described)[0] if described else None
            if table is None or table not in left or found.ends[number] <= starts.get(table, -1):
                continue
            if why := _misfit(described, left[table], origin.shard(table), f"{origin.file}:{end}"):
                del left[table]
                before = (position for position in found.ends if position < found.ends[number])
                yield Misfit(table, max(before, default=begins), _columns(described), why)


def _columns(body: bytes) -> str:
    """Return the physical types of the columns, with their names if the server sends them."""
    table_map = read_table_map(body)
    names = table_map.metadata.names or ("",) * len(table_map.fields)
    return ", ".join(f"{name} {physical}".strip() for name, physical in zip(names, table_map.fields, strict=True))


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()
