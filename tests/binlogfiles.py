"""Binlog files without a server: cut them as the relay does, decode the segments, build events by hand."""

import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from unshard.binlog.cutter import Cutter
from unshard.binlog.decoder import RangeOrigin, decode_range
from unshard.binlog.events import CHECKSUM, HEADER, MAGIC, EventType, read_frame
from unshard.binlog.rawrows import RowSpan, decode, extract
from unshard.core.model import Column, Location, TableId, TableSchema
from unshard.core.relay.segment import Link, Links, Segment

FILES = Path(__file__).parent / "files"
Change = tuple[int, tuple[bytes | None, ...]]


@dataclass
class Memory:
    """Keeps segments instead of storing them."""

    segments: list[tuple[Segment, bytes]] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)

    def begin(self, prefix: bytes) -> None:
        self.data = bytearray(prefix)

    def write(self, events: bytes | memoryview) -> None:
        self.data += events

    def finish(self, segment: Segment, length: int) -> None:
        self.segments.append((segment, bytes(self.data[:length])))

    def abandon(self) -> None:
        self.data = bytearray()


def links_of(segments: list[Segment], asked: list[str] | None = None) -> Links:
    """Return segments as a store has them; `asked` gets the names of those whose indexes are read."""
    stored = {segment.name: segment for segment in segments}

    def read_index(link: Link) -> Segment:
        if asked is not None:
            asked.append(link.name)
        return stored[link.name]

    return Links((Link(s.name, s.begins, Location(s.file, s.end)) for s in stored.values()), read_index)


def read(name: str) -> bytes:
    """Return a file as a server sends it: without the flag of a file in use, which the checksum does not cover."""
    data = bytearray((FILES / name).read_bytes())
    data[len(MAGIC) + HEADER - 2] &= 0xFE
    return bytes(data)


def events_of(data: bytes) -> list[bytes]:
    """Split a binlog file into its events."""
    events, offset = [], len(MAGIC)
    while offset < len(data):
        size = read_frame(data, offset).size
        events.append(data[offset : offset + size])
        offset += size
    return events


def cut(data: bytes, file: str = "binlog.000001", segment_bytes: int = 1 << 20) -> list[tuple[Segment, bytes]]:
    """Feed a whole file to the cutter; return the segments and the contents of their files."""
    sink = Memory()
    cutter = Cutter("s1", Location(file, len(MAGIC)), sink, segment_bytes)
    for event in events_of(data):
        cutter.feed(event)
    cutter.end()
    return sink.segments


def changes(data: bytes, table: str, schema: TableSchema, **options: int) -> list[Change]:
    """Cut and decode a file; return operation and values of each row of a table `schema.name`, in order."""
    wanted, checksum = {TableId(*table.split(".")): schema}, events_of(data)[0][-CHECKSUM - 1] == 1
    found: list[Change] = []
    for segment, stored in cut(data):
        prefix = len(stored) - segment.size
        for part in segment.ranges:
            origin = RangeOrigin("s1", segment.file, segment.start + part.start - prefix)
            starts = dict.fromkeys(wanted, options["start"]) if options else {}
            batches = decode_range(memoryview(stored)[part.start : part.end], checksum, wanted, starts, origin)
            rows = [row for _, batch in batches for row in _rows(batch)]
            ranged = memoryview(stored)[part.start : part.end]
            span = RowSpan(options.get("start", -1))
            pieces = extract(ranged, checksum, TableId(*table.split(".")), span, origin)
            assert [row for batch in decode(pieces, schema, "s1") for row in _rows(batch)] == rows
            found += rows
    return found


def _rows(batch: pa.RecordBatch) -> list[Change]:
    columns = [column.to_pylist() for column in batch.columns]
    return [(op, tuple(rest)) for op, _, *rest in zip(*columns, strict=True)]


def structure(*columns: str) -> TableSchema:
    """Build a structure of `name type[, charset[, extra]]`; a name with `!` is NOT NULL."""
    return TableSchema(tuple(map(_column, columns)), (), "CREATE TABLE `t` ()")


def _column(text: str) -> Column:
    definition, charset, extra, *_ = [*text.split("; "), "", ""]
    name, column_type = definition.split(" ", 1)
    data_type = column_type.split("(")[0].split(" ")[0]
    return Column(name.rstrip("!"), data_type, column_type, "!" not in name, charset or None, None, None, extra)


def event(kind: EventType, body: bytes, position: int = 0, *, server_id: int = 1) -> bytes:
    """Make an event with a checksum; an event with position 0 is inside a payload and has no checksum."""
    tail = CHECKSUM if position else 0
    size = HEADER + len(body) + tail
    whole = struct.pack(
        "<IBIIIH", 1700000000, kind, server_id, size, (position + size) & 0xFFFFFFFF if position else 0, 0
    )
    whole += body
    return whole + zlib.crc32(whole).to_bytes(4, "little") if position else whole


def with_events(data: bytes, *bodies: tuple[EventType, bytes]) -> bytes:
    """Append events to a file."""
    for kind, body in bodies:
        data += event(kind, body, len(data))
    return data


def head_of(name: str) -> bytes:
    """Return a file's magic number and FORMAT_DESCRIPTION event."""
    return MAGIC + events_of(read(name))[0]
