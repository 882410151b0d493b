"""Decodes a part of each source's binlog with our decoder and with mysql-replication and compares the rows.

Our side cuts the dump into segments and ranges as the relay does, but in memory: nothing is written anywhere. Both
sides use the structures that the shards have now. The part begins with the newest binlog files that fit into the limit
together, or with the newest one, and ends at a transaction border within the limit.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby

import pyarrow as pa

from unshard.adapters import binlogstream, mysql, structures, upstream
from unshard.adapters.referencedecoder import ReferenceEvent, Row, read_events
from unshard.binlog.cutter import RunCutter
from unshard.binlog.decoder import ROW_BITS, RangeOrigin, decode_range, opened
from unshard.binlog.events import CHECKSUM, COMPRESSED_ROWS, MAGIC, EventType, walk
from unshard.binlog.sparse import PRESENT
from unshard.binlog.transactions import survey
from unshard.config import Connections, Instance, Task, environment_connections, resolve
from unshard.core.checks.decoding import ABSENT, Absent, Reason, compare
from unshard.core.model import Column, Location, Server, Shard, TableId, TableSchema
from unshard.core.relay.segment import ByteRange, Prepared, Segment
from unshard.errors import UnshardError
from unshard.errors.checks import DecodersDiffer
from unshard.errors.relay import BinlogOff
from unshard.errors.rows import ColumnCountDiffers, ColumnTypeDiffers
from unshard.units.full.discover import find_shards
from unshard.units.relay.pull import SEGMENT_BYTES
from unshard.units.rows.sparserows import has

PART_BYTES = 8 << 20
PART_EVENTS = 50_000
MOST_PARTS = 2
"""A transaction that is longer than so many parts is not read to its end."""
SHOWN = 60
POSITION_BITS = 0xFFFFFFFF
SILENT = frozenset({EventType.TRANSACTION_PAYLOAD, EventType.PARTIAL_ROW_DATA}) | COMPRESSED_ROWS
"""Events that mysql-replication leaves out."""
OTHER_STRUCTURES = (ColumnCountDiffers, ColumnTypeDiffers)
ALL_COLUMNS = "the rows of the event"
OPERATIONS = ("INSERT", "DELETE", "UPDATE, before", "UPDATE, after")
MOST_DETAILS = 20

Place = tuple[str, int, TableId]
"""File, position after the event modulo 2^32, table: both decoders know an event by these."""
Compare = Callable[[bytes | None, object, Column], bool | Reason]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of each source's binlog is read at most."""

    bytes: int = PART_BYTES
    events: int = PART_EVENTS


@dataclass(frozen=True, slots=True)
class DecoderReport:
    """The comparison for one source."""

    source: str
    begins: Location | None = None
    ends: Location | None = None
    events: int = 0
    rows: int = 0
    values: int = 0
    tables: int = 0
    differences: tuple[DecodersDiffer, ...] = ()
    """The first one of each column."""
    not_compared: Mapping[Reason, int] = field(default_factory=dict)
    details: tuple[str, ...] = ()
    """Different errors of mysql-replication and of structures, each once."""
    error: UnshardError | None = None
    """Why the source could not be compared at all."""

    @property
    def is_equal(self) -> bool:
        return not self.differences and self.error is None


def check_decoder(
    task: Task, limits: Limits = Limits(), connections: Connections = environment_connections
) -> tuple[DecoderReport, ...]:
    """Compare both decoders for all sources side by side."""
    with ThreadPoolExecutor(max(1, len(task.instances))) as pool:
        return tuple(pool.map(lambda instance: _of_source(instance, limits, connections), task.instances))


def _of_source(instance: Instance, limits: Limits, connections: Connections) -> DecoderReport:
    source = instance.source.id
    try:
        server = resolve(instance.source.endpoint, connections)
        replica_id = instance.source.server_id or random.randrange(*binlogstream.REPLICA_IDS)
        with contextlib.closing(mysql.connect(server, f"source {source}")) as connection:
            tables = structures.read_schemas(connection, find_shards(connection, instance).targets)
            end, files = upstream.location(connection, source), upstream.binlog_files(connection)
        begins = _begin(source, files, limits.bytes)
        return compare_part(source, server, (begins, end), tables, limits, replica_id)
    except UnshardError as error:
        return DecoderReport(source, error=error)


def _begin(source: str, files: Mapping[str, int], limit: int) -> Location:
    """Return the begin of the oldest file from which all newer ones fit into the limit, at least of the newest."""
    if not files:
        raise BinlogOff(source)
    first, *older = reversed([*files])
    size = files[first]
    for file in older:
        size += files[file]
        if size > limit:
            break
        first = file
    return Location(first, len(MAGIC))


def compare_part(  # noqa: PLR0913, PLR0917
    source: str,
    server: Server,
    part: tuple[Location, Location],
    tables: Mapping[TableId, TableSchema],
    limits: Limits,
    replica_id: int,
    compare_values: Compare | None = None,
) -> DecoderReport:
    """Compare the rows of the tables between two locations, as far as the limits go."""
    pieces, ends = _cut(source, server, part, limits, replica_id)
    own = _Own(tables)
    for piece in pieces:
        own.read(piece)
    comparison = _DecoderComparison(source, own, compare_values or compare)
    for event in read_events(server, source, part[0], ends, tables, replica_id) if tables else ():
        comparison.add(event)
    return replace(comparison.report(), begins=part[0], ends=ends)


@dataclass(frozen=True, slots=True)
class _Piece:
    data: memoryview
    checksum: bool
    origin: RangeOrigin
    tables: frozenset[TableId]


class _Memory:
    """Keeps the segments that a cutter finishes."""

    def __init__(self) -> None:
        self.finished: list[tuple[Segment, bytes, int]] = []
        """Each with its bytes and the number of those before its first event of the binlog."""
        self._data, self._prefix = bytearray(), 0

    def begin(self, prefix: bytes) -> None:
        self._data, self._prefix = bytearray(prefix), len(prefix)

    def write(self, events: bytes | memoryview) -> None:
        self._data += events

    def finish(self, segment: Segment, length: int) -> None:
        self.finished.append((segment, bytes(self._data[:length]), self._prefix))

    def abandon(self) -> None:
        self._data = bytearray()


def _cut(
    source: str, server: Server, part: tuple[Location, Location], limits: Limits, replica_id: int
) -> tuple[list[_Piece], Location]:
    """Read the part as the relay does; return its ranges and the border at which it ends."""
    begins, end = part
    # A part that begins in an older file fits into the limit.
    within = Location(begins.file, begins.position + limits.bytes)
    stop = min(end, within) if end.file == begins.file else end
    memory = _Memory()
    cutter = RunCutter(source, begins, memory, SEGMENT_BYTES)
    checksums: dict[str, bool] = {}
    size = events = 0
    with contextlib.closing(
        mysql.connect(server, f"source {source}", read_timeout=binlogstream.READ_SECONDS)
    ) as connection:
        for run in binlogstream.dump(connection, source, begins, replica_id):
            for step in cutter.read(run, stop):
                size += step
                if cutter.format:
                    checksums[cutter.location.file] = cutter.format.checksum
            events += len(run)
            if cutter.location >= stop or size >= MOST_PARTS * limits.bytes or events >= limits.events:
                break
    cutter.end()
    return [piece for one in memory.finished for piece in _pieces(one, memory.finished, checksums)], cutter.location


def _pieces(
    one: tuple[Segment, bytes, int], all_of_them: Sequence[tuple[Segment, bytes, int]], checksums: Mapping[str, bool]
) -> Iterator[_Piece]:
    segment, data, prefix = one
    ranges: list[ByteRange | Prepared] = [*segment.ranges]
    others = (each for other, _, _ in all_of_them for each in (*other.open, *(one.prepared for one in other.commits)))
    ranges += sorted({each for each in others if each.segment == segment.name}, key=lambda each: each.start)
    for part in ranges:
        position = segment.start + part.start - prefix
        origin = RangeOrigin(segment.source, segment.file, position, committed=isinstance(part, Prepared))
        tables = frozenset(table for table, _ in part.tables)
        yield _Piece(memoryview(data)[part.start : part.end], checksums[segment.file], origin, tables)


@dataclass(frozen=True, slots=True)
class _Slice:
    batch: pa.RecordBatch
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class _Failure:
    """A range in which our decoder could not read a table."""

    table: TableId
    file: str
    begin: int
    end: int
    error: UnshardError


class _Own:
    """What our decoder reads, by event."""

    def __init__(self, tables: Mapping[TableId, TableSchema]) -> None:
        self.tables = tables
        self.slices: dict[Place, list[_Slice]] = {}
        self.silent: set[tuple[str, int]] = set()
        """Events that mysql-replication leaves out."""
        self.undone: set[tuple[str, int]] = set()
        """Row events that were rolled back, or prepared only."""
        self.failures: list[_Failure] = []

    def read(self, piece: _Piece) -> None:
        """Decode a piece, each table by itself where one cannot be read."""
        origin, file = piece.origin, piece.origin.file
        frames = tuple(walk(piece.data, piece.checksum, file))
        for offset, frame in frames:
            if frame.type in SILENT:
                self.silent.add((file, origin.position + offset + frame.size & POSITION_BITS))
        events = tuple(opened(piece.data, frames, CHECKSUM if piece.checksum else 0, origin))
        ends = [end & POSITION_BITS for _, _, end in events]
        self.undone |= {(file, ends[number]) for number in survey(events, file, origin.committed).undone}
        wanted = {table: self.tables[table] for table in piece.tables if table in self.tables}
        try:
            found = self._decoded(piece, wanted)
        except UnshardError:
            found = [batch for table in wanted for batch in self._one(piece, table)]
        known = frozenset(self.slices)
        for table, batch in found:
            for number, start, length in _events_of(batch):
                place = (file, ends[number], table)
                if place not in known:
                    self.slices.setdefault(place, []).append(_Slice(batch, start, length))

    def failure(self, place: Place) -> _Failure | None:
        file, end, table = place
        return next((f for f in self.failures if (f.table, f.file) == (table, file) and f.begin <= end <= f.end), None)

    def _one(self, piece: _Piece, table: TableId) -> list[tuple[TableId, pa.RecordBatch]]:
        try:
            return self._decoded(piece, {table: self.tables[table]})
        except UnshardError as error:
            begin = piece.origin.position
            end = begin + len(piece.data)
            self.failures.append(_Failure(table, piece.origin.file, begin, end, error))
            return []

    @staticmethod
    def _decoded(piece: _Piece, wanted: Mapping[TableId, TableSchema]) -> list[tuple[TableId, pa.RecordBatch]]:
        return list(decode_range(piece.data, piece.checksum, wanted, {}, piece.origin))


def _events_of(batch: pa.RecordBatch) -> Iterator[tuple[int, int, int]]:
    start = 0
    for number, rows in groupby(batch.column(1).to_pylist(), key=lambda seq: seq >> ROW_BITS):
        length = sum(1 for _ in rows)
        yield number, start, length
        start += length


@dataclass
class _DecoderComparison:
    """Counts what is equal and collects the first difference of each column."""

    source: str
    own: _Own
    compare_values: Compare
    events: int = 0
    rows: int = 0
    values: int = 0
    tables: set[TableId] = field(default_factory=set)
    differences: dict[tuple[TableId, str], DecodersDiffer] = field(default_factory=dict)
    not_compared: Counter[Reason] = field(default_factory=Counter)
    details: dict[str, None] = field(default_factory=dict)

    def add(self, event: ReferenceEvent) -> None:
        place = (event.file, event.end, event.table)
        slices, failure = self.own.slices.pop(place, None), self.own.failure(place)
        if event.reason:
            self._leave_out(event.reason, event.detail)
        elif slices is not None:
            self._compare(place, slices, event.rows)
        elif failure is not None and isinstance(failure.error, OTHER_STRUCTURES):
            self._leave_out(Reason.OTHER_STRUCTURE, str(failure.error))
        elif failure is not None:
            self._differ(place, ALL_COLUMNS, str(failure.error), f"{len(event.rows)} rows")
        elif place[:2] in self.own.undone:
            self._leave_out(Reason.ROLLED_BACK, "")
        else:
            self._differ(place, ALL_COLUMNS, "no event", f"{len(event.rows)} rows")

    def report(self) -> DecoderReport:
        for place, slices in self.own.slices.items():
            if place[:2] in self.own.silent:
                self._leave_out(Reason.COMPRESSED, "")
            else:
                self._differ(place, ALL_COLUMNS, f"{sum(each.length for each in slices)} rows", "no event")
        return DecoderReport(
            self.source,
            events=self.events,
            rows=self.rows,
            values=self.values,
            tables=len(self.tables),
            differences=tuple(self.differences.values()),
            not_compared=dict(self.not_compared),
            details=tuple(self.details),
        )

    def _compare(self, place: Place, slices: Sequence[_Slice], theirs: Sequence[Row]) -> None:
        ours = [row for each in slices for row in _rows(each, self.own.tables[place[2]])]
        self.events += 1
        self.tables.add(place[2])
        if len(ours) != len(theirs):
            self._differ(place, "number of rows", str(len(ours)), str(len(theirs)))
            return
        for (operation, values), (other, their_values) in zip(ours, theirs, strict=True):
            self.rows += 1
            if operation != other:
                self._differ(place, "operation", OPERATIONS[operation], OPERATIONS[other])
            for number, column, value in values:
                self._compare_value(place, column, value, their_values[number])

    def _compare_value(self, place: Place, column: Column, ours: bytes | Absent | None, theirs: object) -> None:
        if ours is ABSENT and theirs is not ABSENT:
            self._differ(place, f"column {column.name}", "no value", _shown(theirs))
            return
        outcome = self.compare_values(None if isinstance(ours, Absent) else ours, theirs, column)
        if isinstance(outcome, Reason):
            self._leave_out(outcome, "")
            return
        self.values += 1
        if not outcome:
            self._differ(place, f"column {column.name}", _shown(ours), _shown(theirs))

    def _leave_out(self, reason: Reason, detail: str) -> None:
        self.not_compared[reason] += 1
        if detail and len(self.details) < MOST_DETAILS:
            self.details[detail] = None

    def _differ(self, place: Place, column: str, ours: str, theirs: str) -> None:
        file, end, table = place
        error = DecodersDiffer(str(Shard(self.source, table)), f"{file}:{end}", column, ours, theirs)
        self.differences.setdefault((table, column), error)


def _rows(part: _Slice, schema: TableSchema) -> Iterator[tuple[int, list[tuple[int, Column, bytes | Absent | None]]]]:
    """Yield the operation of each row and its values, each with the number of its column among all columns."""
    batch = part.batch.slice(part.start, part.length)
    names = batch.schema.names
    columns = [(number, column) for number, column in enumerate(schema.columns) if column.name in names]
    cells = [batch.column(names.index(column.name)).to_pylist() for _, column in columns]
    masks = batch.column(names.index(PRESENT)).to_pylist() if PRESENT in names else [None] * len(batch)
    bits = {column.name: number for number, column in enumerate(schema.written)}
    for row, (operation, mask) in enumerate(zip(batch.column(0).to_pylist(), masks, strict=True)):
        yield (
            operation,
            [
                (number, column, cells[place][row] if has(mask, bits[column.name]) else ABSENT)
                for place, (number, column) in enumerate(columns)
            ],
        )


def _shown(value: object) -> str:
    text = "NULL" if value is None else repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
