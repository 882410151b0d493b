"""Cut a stream of binlog events into segments; takes bytes, calls a sink, does no I/O of its own.

A segment ends at a size limit, at a rotation, and before and after every statement that is not transaction control. It
ends only at transaction borders. The exception is a statement inside a transaction (CREATE TABLE … SELECT), which is
cut out at event borders. Control events between transactions belong to the segment being written, so that positions
have no gaps.

| the stream ends …                              | result                                                  |
|------------------------------------------------|---------------------------------------------------------|
| at a transaction border                        | the segment ends there                                  |
| inside a transaction                           | the segment ends at the last border, the rest is dropped |
| inside a transaction because of a crash, and   | as above, and `next_file` is set: a crashed server      |
| the server continues in another file           | rolls such a transaction back                           |

**RunCutter** cuts many events at a time, to the same segments, byte for byte, as the cutter.
Only the most common events are processed together: whole transactions of rows, and the rows inside a large transaction.
The cutter processes everything else one event at a time, and reports errors.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol
from zlib import crc32

import numpy as np

from unshard.binlog.events import (
    BETWEEN,
    CHECKSUM,
    COMMENTS,
    HEADER,
    MAGIC,
    QUERIES,
    ROWS,
    STATEMENT_CONTEXT,
    EventType,
    Format,
    Frame,
    Query,
    admit,
    is_artificial,
    read_format,
    read_frame,
    read_query,
    read_rotate,
    verify,
)
from unshard.binlog.payload import Fragments, Whole, rows_of
from unshard.binlog.runs import Numbers, Run, Stretch, inspect
from unshard.binlog.tablemap import NO_TABLE, table_id_of, table_of
from unshard.binlog.transactions import (
    GTIDS,
    HISTORIES,
    Gtid,
    PreparedTransactions,
    QueryKind,
    StatementEnds,
    classify,
    named,
    read_gtid,
    read_history,
    read_prepare,
)
from unshard.core.model import Location, TableId
from unshard.core.relay.gtidset import History
from unshard.core.relay.segment import ByteRange, Commit, Prepared, Segment, Statement
from unshard.errors.relay import DamagedEvent, PositionGap, UnsupportedEvent
from unshard.errors.rows import RowsWithoutTable

E = EventType
RANGE_BYTES = 4 << 20


class Sink(Protocol):
    """Stores the bytes of one segment at a time."""

    def begin(self, prefix: bytes) -> None:
        """Start a segment file with these bytes."""

    def write(self, events: bytes | memoryview) -> None:
        """Append one or more events."""

    def finish(self, segment: Segment, length: int) -> None:
        """Cut the file to `length` bytes and store it as this segment."""

    def abandon(self) -> None:
        """Discard the segment that was begun."""


class SegmentDraft:
    """The segment being written, and its state at the last border."""

    def __init__(self, file: str, start: int, prefix: int) -> None:
        self.file, self.start = file, start
        self.offset = self.range_start = self.border = prefix
        self.prefix = prefix
        self.tables: Counter[TableId] = Counter()
        self.group: Counter[TableId] = Counter()
        """Row events of the incomplete transaction."""
        self.changes: dict[Statement, None] = {}
        self.group_changes: dict[Statement, None] = {}
        """Changes of rows that were logged as statements, in order."""
        self.ranges: list[ByteRange] = []
        self.commits: list[Commit] = []
        self.times = self.border_times = (0, 0)
        self.statement: Statement | None = None

    def add(self, size: int, first: int, last: int) -> None:
        """Count the bytes of events, and record their first and last time stamp."""
        self.offset += size
        if last:
            self.times = (self.times[0] or first, last)

    def close_group(self) -> None:
        self.border, self.border_times = self.offset, self.times
        self.tables += self.group
        self.group = Counter()
        self.changes |= self.group_changes
        self.group_changes = {}
        if self.border - self.range_start >= RANGE_BYTES:
            self.close_range()

    def prepare(self, xid: str) -> Prepared:
        """Remove the current group from the counted rows and return it; the segment has no name yet."""
        group, self.group = self.group, Counter()
        return Prepared(xid, "", self.file, self.border, self.offset, tuple(sorted(group.items())))

    def commit(self, prepared: Prepared, position: int) -> None:
        """Count the rows of a prepared transaction: in the range that contains both its parts, or by reference."""
        if not prepared.segment and prepared.start >= self.range_start:
            self.tables += Counter(dict(prepared.tables))
        else:
            self.commits.append(Commit(prepared, position))

    def close_range(self) -> None:
        """End the byte range; a range without rows is left out."""
        if self.tables:
            counts = tuple(sorted(self.tables.items()))
            self.ranges.append(ByteRange(self.range_start, self.border, counts))
        self.tables = Counter()
        self.range_start = self.border

    @property
    def end(self) -> int:
        return self.start + self.border - self.prefix


class Cutter:
    """Reads events in order from `location`, and moves `location` to the last border that it reached.

    `before` is a stored segment that ends at the start, if there is one.
    """

    def __init__(
        self, source: str, location: Location, sink: Sink, segment_bytes: int, before: Segment | None = None
    ) -> None:
        self.source, self.sink, self.segment_bytes = source, sink, segment_bytes
        self.location = location
        self.format: Format | None = None
        self._description = b""
        self._position = location.position
        self._draft: SegmentDraft | None = None
        self._held_back: list[tuple[Frame, bytes]] = []
        """Events of a transaction that may still turn out to be a statement."""
        self._open = False
        """Whether a transaction with rows has begun."""
        self._tables: dict[int, TableId] = {}
        self.history = History(before.gtid if before else "")
        """All transactions up to `location`."""
        self._gtid: str | None = None
        """GTID of the current transaction, until it is part of the history."""
        self._standalone = True
        self._prepared_xa = PreparedTransactions(before)
        self._prepares = False
        """Whether the transaction is the first part of an XA transaction."""
        self._is_void = False
        self._has_begun = False
        """Whether a BEGIN precedes the events that are held back."""
        self._ends = StatementEnds()
        self._fragments = Fragments(0)
        """The fragments of a rows event so far."""

    def feed(self, event: bytes) -> None:
        if len(event) < HEADER:
            raise DamagedEvent(f"{self.source} {self.location.file}:{self._position}", "its header is cut off")
        frame = read_frame(event)
        place = f"{self.source} {self.location.file}:{self._position + frame.size}"
        if frame.size != len(event):
            raise DamagedEvent(place, f"received {len(event)} bytes, but its header says {frame.size}")
        if frame.type in (E.HEARTBEAT, E.HEARTBEAT_V2):
            return
        if frame.type == E.FORMAT_DESCRIPTION:
            self._describe(event, place)
        if is_artificial(frame):
            self._artificial(frame, event)
            return
        self._check(frame, event, place)
        self._position += frame.size
        if self._position <= self.location.position:
            return
        kind = admit(frame, place)
        if kind == E.PARTIAL_ROW_DATA:
            self._take_fragment(frame, event, place)
        else:
            self._fragments.require_end(place)
            self._take(kind, frame, event, place)

    def read_again_from(self, position: int) -> None:
        """Expect events from before `location`; those up to it are only checked."""
        self._position = position

    @property
    def is_at_border(self) -> bool:
        """Whether all events so far are whole transactions, so that `end` drops none, and more events may follow."""
        is_whole = self._draft is None or self._draft.border == self._draft.offset
        return is_whole and not (self._open or self._held_back or self._fragments.is_pending)

    def end(self) -> None:
        self._finish("")

    def _describe(self, event: bytes, place: str) -> None:
        self.format = read_format(event, place)
        self._description = event
        self._fragments = Fragments(self._tail)

    def _artificial(self, frame: Frame, event: bytes) -> None:
        """Process an event that is not in the file; a ROTATE names the file from which the server continues."""
        if frame.type != E.ROTATE:
            return
        # Whether such an event has a checksum depends on the server, so its CRC is tested.
        has_checksum = crc32(event[:-CHECKSUM]) == int.from_bytes(event[-CHECKSUM:], "little")
        file = self._file_of(event[HEADER : len(event) - (CHECKSUM if has_checksum else 0)])
        if file != self.location.file:
            self._go_on_in(file)

    def _check(self, frame: Frame, event: bytes, place: str) -> None:
        if self.format is None:
            raise DamagedEvent(place, "no FORMAT_DESCRIPTION event precedes it")
        if frame.end and frame.end != (self._position + frame.size) & 0xFFFFFFFF:
            raise PositionGap(self.source, f"{self.location.file}:{self._position}", frame.end)
        if self.format.checksum:
            verify(event, place)

    def _take(self, kind: EventType, frame: Frame, event: bytes, place: str) -> None:
        body = event[HEADER : len(event) - self._tail]
        self._ends.see(kind, body, place)
        match kind:
            case _ if kind in BETWEEN:
                self._between(kind, frame, event, place)
            case _ if kind in GTIDS:
                self._begin(read_gtid(body, frame, place), frame, event, place)
            case E.TABLE_MAP:
                self._release()
                self._tables[table_id_of(body)] = table_of(body, place)
                self._put(frame, event)
            case E.XID:
                self._close(frame, event)
            case E.XA_PREPARE:
                self._release()
                self._put(frame, event)
                self._end_part(*read_prepare(body, place))
            case E.TRANSACTION_PAYLOAD:
                self._whole(rows_of(body, place), frame, event, place)
            case _ if kind in ROWS:
                self._count(body, place)
                self._put(frame, event)
            case _ if kind in QUERIES:
                self._query(read_query(body, frame, place), frame, event, place)
            case _ if kind in COMMENTS or kind in STATEMENT_CONTEXT:
                self._hold(frame, event)
            case _:
                raise UnsupportedEvent(place, kind.name)

    def _between(self, kind: EventType, frame: Frame, event: bytes, place: str) -> None:
        if self._open or self._held_back:
            raise DamagedEvent(place, f"{kind.name} inside a transaction")
        self._put(frame, event)
        body = event[HEADER : len(event) - self._tail]
        if kind in HISTORIES:
            self.history.reset(read_history(body, frame, place))
        self._border()
        if kind == E.ROTATE:
            self._go_on_in(self._file_of(body))

    def _file_of(self, body: bytes) -> str:
        """Return the file name of a ROTATE event, in the current generation."""
        file, _ = read_rotate(body, f"{self.source} {self.location.file}:{self._position}")
        return Location(file, 0).in_generation(self.location.generation).file

    def _begin(self, gtid: Gtid, frame: Frame, event: bytes, place: str) -> None:
        if self._open or self._held_back:
            raise DamagedEvent(place, "a transaction begins inside another one")
        self._gtid, self._standalone = gtid.text, gtid.standalone
        self._prepares, self._is_void = gtid.prepares, gtid.is_void
        self._held_back.append((frame, event))

    def _query(self, query: Query, frame: Frame, event: bytes, place: str) -> None:
        kind, name = classify(query.text)
        match kind:
            case QueryKind.COMMIT | QueryKind.ROLLBACK:
                self._close(frame, event)
            case QueryKind.BEGIN | QueryKind.XA_BEGIN | QueryKind.XA_END:
                self._prepares |= kind is QueryKind.XA_BEGIN
                self._has_begun |= kind is QueryKind.BEGIN
                self._hold(frame, event)
            case QueryKind.XA_COMMIT | QueryKind.XA_ROLLBACK:
                self._complete(name, kind is QueryKind.XA_COMMIT, frame, event)
            case QueryKind.SAVEPOINT | QueryKind.ROLLBACK_TO:
                self._release()
                self._put(frame, event)
            case QueryKind.XA | QueryKind.XA_PREPARE:
                raise UnsupportedEvent(place, "an XA statement of unknown form")
            case QueryKind.DML:
                self._change(query, frame, event)
            case QueryKind.STATEMENT if self._is_void:
                self._close(frame, event)
            case QueryKind.STATEMENT:
                if self._prepares:
                    raise UnsupportedEvent(place, "a statement inside an XA transaction")
                version = self.format.server_version if self.format else ""
                self._statement(query.statement(place, version), frame, event)

    def _change(self, query: Query, frame: Frame, event: bytes) -> None:
        """Write a change of rows without row events into its transaction; planning judges it."""
        is_alone = self._standalone and not (self._open or self._has_begun)
        self._release()
        change = query.change(self.format.server_version if self.format else "")
        self._put(frame, event).group_changes[change] = None
        if is_alone:
            self._end_group()

    def _statement(self, statement: Statement, frame: Frame, event: bytes) -> None:
        inside = self._open
        if inside and self._draft:
            self._draft.close_group()
        self._advance_to(self._position - frame.size - sum(held.size for held, _ in self._held_back))
        self._finish("")
        self._release()
        self._put(frame, event)
        if self._draft:
            self._draft.statement = statement
        self._border()
        self._finish("")
        self._open = inside or not self._standalone
        self._standalone = True

    def _hold(self, frame: Frame, event: bytes) -> None:
        if self._open:
            self._put(frame, event)
        else:
            self._held_back.append((frame, event))

    def _release(self) -> None:
        """Write the events that were held back: the transaction has rows, or ends."""
        held_back, self._held_back = self._held_back, []
        self._open = True
        for frame, event in held_back:
            self._put(frame, event)

    def _count(self, body: bytes, place: str) -> None:
        number = table_id_of(body)
        if not self._open or (number not in self._tables and number != NO_TABLE):
            raise RowsWithoutTable(place, number)
        if self._draft and number != NO_TABLE:
            self._draft.group[self._tables[number]] += 1

    def _take_fragment(self, frame: Frame, event: bytes, place: str) -> None:
        """Store a fragment unchanged; the last one completes a rows event."""
        self._fragments.add(event[HEADER : len(event) - self._tail], place)
        if not self._fragments.is_pending:
            self._count(self._fragments.head[HEADER:], place)
            self._ends.see(self._fragments.frame().type, self._fragments.head[HEADER:], place)
        self._put(frame, event)

    def _whole(self, whole: Whole, frame: Frame, event: bytes, place: str) -> None:
        """Store an event that is a whole transaction unchanged; only its rows are counted."""
        if self._open:
            raise DamagedEvent(place, "a whole transaction inside another one")
        self._release()
        self._put(frame, event).group += whole.rows
        self._end_part(QueryKind.XA_PREPARE if whole.prepared else QueryKind.COMMIT, whole.prepared)

    def _close(self, frame: Frame, event: bytes) -> None:
        self._release()
        self._put(frame, event)
        self._end_group()

    def _end_part(self, kind: QueryKind, xid: str) -> None:
        """End a transaction that is committed, or prepared for a later commit."""
        if kind is QueryKind.XA_PREPARE and self._draft:
            self._prepared_xa.open[xid] = self._draft.prepare(xid)
        self._end_group()

    def _complete(self, xid: str, commits: bool, frame: Frame, event: bytes) -> None:
        place = f"{self.location.file}:{self._position}"
        prepared = self._prepared_xa.finish(xid, commits, self.source, place)
        self._release()
        draft = self._put(frame, event)
        if prepared:
            draft.commit(prepared, self._position)
        self._end_group()

    def _end_group(self) -> None:
        self._ends.require(f"{self.source} {self.location.file}:{self._position}")
        self._open, self._standalone, self._prepares, self._is_void = False, True, False, False
        self._has_begun = False
        self._border()
        if self._draft and self._draft.border >= self.segment_bytes:
            self._finish("")

    def _put(self, frame: Frame, event: bytes) -> SegmentDraft:
        draft = self._draft or self._start()
        self.sink.write(event)
        draft.add(frame.size, frame.time, frame.time)
        return draft

    def _start(self) -> SegmentDraft:
        prefix = self._prefix
        self.sink.begin(prefix)
        self._draft = SegmentDraft(self.location.file, self.location.position, len(prefix))
        return self._draft

    @property
    def _prefix(self) -> bytes:
        """Return the bytes before the segment's own events; at position 4 the description is one of its own."""
        return MAGIC if self.location.position == len(MAGIC) else MAGIC + self._description

    def _border(self) -> None:
        if self._gtid is not None:
            gtid, self._gtid = self._gtid, None
            self._remember(gtid)
        if self._draft:
            self._draft.close_group()
        self._advance_to(self._position)

    def _remember(self, gtid: str) -> None:
        try:
            self.history.add(gtid)
        except ValueError as error:
            raise DamagedEvent(f"{self.source} {self.location.file}:{self._position}", f"{gtid}: {error}") from error

    def _advance_to(self, position: int) -> None:
        self.location = Location(self.location.file, position)

    def _go_on_in(self, file: str) -> None:
        """Continue in another file. The old file ends at the last border;

        an incomplete transaction in it was rolled back.
        """
        following = Location(file, len(MAGIC))
        if following < self.location:
            raise DamagedEvent(str(self.location), f"the server returned to {file}")
        if not self._draft:
            self._start()
        self._finish(file)
        self.location, self._position = following, following.position
        self._held_back, self._open, self._tables, self._prepares, self._gtid = [], False, {}, False, None
        self._has_begun = False
        self._fragments, self._ends = Fragments(self._tail), StatementEnds()

    def _finish(self, next_file: str) -> None:
        draft, self._draft = self._draft, None
        if draft is None:
            return
        if draft.end == draft.start and not next_file:
            self.sink.abandon()
            return
        draft.close_range()
        self.sink.finish(self._segment(draft, next_file), draft.border)

    def _segment(self, draft: SegmentDraft, next_file: str) -> Segment:
        first, last = draft.border_times
        name = f"{draft.file}.{draft.start}-{draft.end}.seg"
        self._prepared_xa.name_segment(name)
        commits = tuple(replace(commit, prepared=named(commit.prepared, name)) for commit in draft.commits)
        return Segment(
            self.source,
            draft.file,
            draft.start,
            draft.end,
            name,
            self.history.text,
            first,
            last,
            tuple(draft.ranges),
            draft.statement,
            next_file,
            commits,
            tuple(self._prepared_xa.open.values()),
            finished=self._prepared_xa.finished,
            changes=tuple(draft.changes),
        )

    @property
    def _tail(self) -> int:
        return CHECKSUM if self.format and self.format.checksum else 0


# --- many events at a time ---

FEW = 8
"""For fewer events, processing them together is not faster."""
REMEMBERED = 1024
VARYING = 8
"""Bytes at the beginning of a QUERY body that differ each time: thread and seconds."""


class RunCutter(Cutter):
    """Reads runs of events in order."""

    def __init__(
        self, source: str, location: Location, sink: Sink, segment_bytes: int, before: Segment | None = None
    ) -> None:
        super().__init__(source, location, sink, segment_bytes, before)
        self._controls: dict[bytes, QueryKind | None] = {}
        """Kinds of QUERY events, by the constant part of their bodies; servers send the same few again and again."""
        self._names: dict[bytes, TableId | None] = {}
        """Tables by the bodies of their maps."""

    def read(self, run: Run, stop: Location) -> Iterator[int]:
        """Process the events of a run up to the first border at or after `stop`; yield the bytes of each step."""
        seen = inspect(run, self._control) if len(run) > FEW else None
        number = 0
        while number < len(run) and self.location < stop:
            began = number
            is_regular = self._position >= self.location.position and not self._fragments.is_pending
            if seen and self.format and is_regular:
                number = self._take_stretch(Stretch(seen, number, seen.plain_until(number)), stop)
            if number == began:
                self.feed(run.event(number))
                number += 1
            yield int(run.offsets[number] - run.offsets[began])

    def _take_stretch(self, stretch: Stretch, stop: Location) -> int:
        number = stretch.begin
        if stretch.end - number < FEW:
            return number
        stretch.check(self._position, self._tail)
        stretch.match(self._tables, self._name, self._tail)
        stretch.end_before_cut(self._ends.is_open)
        self._tables.update(stretch.maps)
        while number < stretch.end and self.location < stop:
            began = number
            if self._open:
                number = self._take_rows(stretch, number)
            elif not self._held_back:
                number = self._take_transactions(stretch, number, stop)
            if number == began:
                self.feed(stretch.run.event(number))
                number += 1
        return number

    def _take_rows(self, stretch: Stretch, begin: int) -> int:
        end = stretch.rows_until(begin)
        if end > begin:
            self._append(stretch, begin, end)
        return end

    def _take_transactions(self, stretch: Stretch, begin: int, stop: Location) -> int:
        """Process whole transactions, up to the border where a range or a segment ends or `stop` is reached."""
        ends = stretch.transactions(begin) + 1
        if not len(ends):
            return begin
        lengths = stretch.run.offsets[ends] - stretch.run.offsets[begin]
        end = self._remember_all(stretch, begin, ends[: int(np.searchsorted(lengths, self._room(stop))) + 1])
        if end > begin:
            self._append(stretch, begin, end)
            self._end_group()
        return end

    def _room(self, stop: Location) -> int:
        """Return how many bytes may follow before something must be done at a border."""
        draft = self._draft
        held = draft.offset if draft else len(self._prefix)
        range_end = (draft.range_start if draft else held) + RANGE_BYTES
        room = min(self.segment_bytes, range_end) - held
        return min(room, stop.position - self._position) if stop.file == self.location.file else room

    def _append(self, stretch: Stretch, begin: int, end: int) -> SegmentDraft:
        data = stretch.data(begin, end)
        draft = self._draft or self._start()
        self.sink.write(data)
        draft.add(len(data), *stretch.times(begin, end))
        draft.group.update(dict(stretch.counts(begin, end)))
        self._position += len(data)
        self._ends.is_open = stretch.is_open_before(end)
        return draft

    def _remember_all(self, stretch: Stretch, begin: int, ends: Numbers) -> int:
        """Add transactions to the history; return the end of the last one that could be added."""
        numbers = stretch.gtids(begin, int(ends[-1]))
        last = stretch.last_of_domains(numbers)
        if last is not None:
            for gtid in last:
                self.history.add(gtid)
            return int(ends[-1])
        for number in numbers.tolist():
            event = stretch.run.event(number)
            try:
                self.history.add(read_gtid(event[HEADER : len(event) - self._tail], read_frame(event), "").text)
            except (DamagedEvent, ValueError):
                before = ends[ends <= number]
                return int(before[-1]) if len(before) else begin
        return int(ends[-1])

    def _control(self, event: bytes) -> QueryKind | None:
        body = event[HEADER : len(event) - self._tail]
        key = body[VARYING:]
        if key not in self._controls:
            if len(self._controls) >= REMEMBERED:
                self._controls.clear()
            try:
                self._controls[key] = classify(read_query(body, read_frame(event), "").text)[0]
            except DamagedEvent:
                self._controls[key] = None
        return self._controls[key]

    def _name(self, body: bytes) -> TableId | None:
        if body not in self._names:
            if len(self._names) >= REMEMBERED:
                self._names.clear()
            try:
                self._names[body] = table_of(body, "")
            except DamagedEvent:
                self._names[body] = None
        return self._names[body]
