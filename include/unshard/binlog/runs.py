"""Runs of events: read the properties of many common events at once, to store them quickly.

An OLTP transaction has a few events for a few rows, so the work in Python per event is most of the relay's cost. A
`Run` is a sequence of events as received. A `Stretch` is a part of a run with common events only: row events and their
maps, comments, and the events that begin and end transactions. A stretch ends before any other event and before any
error. The cutter processes those one event after the other.

**Packets** of a binlog dump are read as many at once as have arrived; their events are returned back to back.
A packet is the length of its payload in three bytes, a sequence number, and the payload. The payload is a zero byte and
an event, or the message that ends the dump. A payload of 16 MiB or more continues in the next packet. A read may end
anywhere, also inside a packet. Complete packets are passed on immediately; another read happens only if more bytes are
already available.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unshard.binlog.events import (
    ARTIFICIAL,
    CHECKSUM,
    COMMENTS,
    HEADER,
    MOST_BYTES,
    ROWS,
    EventType,
    are_whole,
    is_whole,
    read_frame,
)
from unshard.binlog.tablemap import NO_TABLE
from unshard.binlog.transactions import GTIDS, STATEMENT_ENDS, QueryKind
from unshard.core.model import TableId

E = EventType
Numbers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]
FRAME = np.dtype(
    [("time", "<u4"), ("type", "u1"), ("server", "<u4"), ("size", "<u4"), ("end", "<u4"), ("flags", "<u2")]
)
SIZE_AT = 9
PLAIN = ROWS | GTIDS | COMMENTS | {E.TABLE_MAP, E.XID, E.QUERY}
CONTROL: dict[QueryKind | None, bool] = {QueryKind.BEGIN: False, QueryKind.COMMIT: True, QueryKind.ROLLBACK: True}
"""Queries that a stretch may contain, and whether they end a transaction."""
SHORTEST_MAP = 8
_MARIADB = np.dtype([("sequence", "<u8"), ("domain", "<u4"), ("flags", "u1")])
ODD_GTID = 0x40 | 0x80
"""Flags of a GTID event of an XA transaction."""
ID_BITS = (1 << 48) - 1


def _table(kinds: frozenset[EventType] | set[EventType]) -> Bits:
    return np.isin(np.arange(256), [int(kind) for kind in kinds])


_IS_PLAIN, _IS_ROWS, _IS_GTID = _table(PLAIN), _table(ROWS), _table(GTIDS)


@dataclass(frozen=True, slots=True)
class Run:
    """Whole events back to back."""

    data: memoryview
    offsets: Numbers
    """Offsets of the events, and the end of the last one."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def event(self, number: int) -> bytes:
        return bytes(self.data[int(self.offsets[number]) : int(self.offsets[number + 1])])

    def events(self) -> Iterator[bytes]:
        return map(self.event, range(len(self)))

    def framed(self) -> int:
        """Return the number of events before the first one whose header does not say its size."""
        sizes = np.diff(self.offsets)
        short = np.flatnonzero(sizes < HEADER)
        count = int(short[0]) if len(short) else len(self)
        if not count:
            return 0
        told = self.parts(np.arange(count), SIZE_AT, 4).view("<u4").ravel()
        wrong = np.flatnonzero(told != sizes[:count])
        return int(wrong[0]) if len(wrong) else count

    def first(self, count: int) -> "Run":
        return Run(self.data[: int(self.offsets[count])], self.offsets[: count + 1])

    def parts(self, numbers: Numbers, skip: int, size: int) -> npt.NDArray[np.uint8]:
        """Return `size` bytes of each of these events after `skip` bytes; all events must be that long."""
        places = np.ndarray(len(self.data) - size + 1, f"V{size}", self.data, strides=(1,))
        return places[self.offsets[numbers] + skip].view(np.uint8).reshape(-1, size)


class InspectedRun:
    """The frames of a run, and which events are unusual; `control` returns the kind of a QUERY, None if unusual."""

    def __init__(self, run: Run, control: Callable[[bytes], QueryKind | None]) -> None:
        self.run, self._control = run, control
        self.frames = _frames(run)
        self.sizes = np.diff(run.offsets)
        self.kinds = self.frames["type"].astype(np.int64)
        self.is_close = self.kinds == E.XID
        self._queries = np.flatnonzero(self.kinds == E.QUERY)
        odd = ~_IS_PLAIN[self.kinds] | (self.frames["size"] != self.sizes)
        odd |= (self.frames["flags"] & ARTIFICIAL) != 0
        self._odd = np.append(np.flatnonzero(odd), len(run))

    def plain_until(self, begin: int) -> int:
        """Return the number of the first unusual event from `begin` on."""
        end = int(self._odd[np.searchsorted(self._odd, begin)])
        first, last = np.searchsorted(self._queries, (begin, end))
        for number in self._queries[first:last].tolist():
            closes = CONTROL.get(self._control(self.run.event(number)))
            if closes is None:
                return int(number)
            self.is_close[number] = closes
        return end


def inspect(run: Run, control: Callable[[bytes], QueryKind | None]) -> InspectedRun | None:
    """Inspect a run; None if it contains events without a valid frame."""
    return InspectedRun(run, control) if len(run) and int(np.diff(run.offsets).min()) >= HEADER else None


def _frames(run: Run) -> npt.NDArray[np.void]:
    places = np.ndarray(len(run.data) - HEADER + 1, f"V{HEADER}", run.data, strides=(1,))
    return places[run.offsets[:-1]].view(FRAME)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The row events of a stretch, without those that have no table."""

    at: Numbers
    table: Numbers
    """Number of the table of each event."""
    tables: tuple[TableId, ...]


class Stretch:
    """Events [begin, end) of a run that are whole, follow each other, and whose tables are known."""

    def __init__(self, seen: InspectedRun, begin: int, end: int) -> None:
        self.seen, self.run, self.begin, self.end = seen, seen.run, begin, end
        self._maps: dict[int, tuple[int, TableId]] = {}
        self.rows = _Rows(np.array([], np.int64), np.array([], np.int64), ())
        self._is_open = np.zeros(0, np.bool_)

    @property
    def maps(self) -> dict[int, TableId]:
        """Tables by their ids, from the maps in the stretch."""
        return {table: name for table, (number, name) in self._maps.items() if number < self.end}

    def offset(self, number: int) -> int:
        return int(self.run.offsets[number])

    def data(self, begin: int, end: int) -> memoryview:
        return self.run.data[self.offset(begin) : self.offset(end)]

    def rows_until(self, begin: int) -> int:
        """Return the number of the first event from `begin` on that begins or ends a transaction."""
        found = np.flatnonzero(self.seen.is_close[begin : self.end] | _IS_GTID[self.seen.kinds[begin : self.end]])
        return begin + int(found[0]) if len(found) else self.end

    def check(self, position: int, tail: int) -> None:
        """End before the first event that is damaged or has another position than expected;

        `tail` is the checksum's size.
        """
        run, begin, end = self.run, self.begin, self.end
        ends = position + run.offsets[begin + 1 : end + 1] - run.offsets[begin]
        told = self.seen.frames["end"][begin:end]
        wrong = (told != 0) & ((ends & 0xFFFFFFFF) != told)
        wrong |= self.seen.sizes[begin:end] < HEADER + tail
        self._end_before(wrong)
        if tail and self.end > begin and not are_whole(self.data(begin, self.end), self._ends()):
            events = map(run.event, range(begin, self.end))
            self._end_before(np.array([not is_whole(event) for event in events], np.bool_))

    def _ends(self) -> Numbers:
        ends: Numbers = self.run.offsets[self.begin + 1 : self.end + 1] - self.run.offsets[self.begin]
        return ends

    def _end_before(self, wrong: Bits) -> None:
        found = np.flatnonzero(wrong)
        self.end = self.begin + int(found[0]) if len(found) else self.end

    def match(self, known: Mapping[int, TableId], read: Callable[[bytes], TableId | None], tail: int) -> None:
        """Find the tables of all row events. `known` are the tables of earlier maps; `read` reads the body of a map.

        End before the first row event without a map, and before a map that cannot be read or changes the table of an
        id.
        """
        kinds = self.seen.kinds[self.begin : self.end]
        at = self.begin + np.flatnonzero((kinds == E.TABLE_MAP) | _IS_ROWS[kinds])
        short = at[self.seen.sizes[at] < HEADER + SHORTEST_MAP + tail]
        if len(short):
            self.end = int(short[0])
            at = at[at < self.end]
        if not len(at):
            return
        ids, number = _distinct(self.run.parts(at, HEADER, 8).view(np.int64).ravel() & ID_BITS)
        names = [
            self._name(int(table), at[number == place] if len(ids) > 1 else at, known, (read, tail))
            for place, table in enumerate(ids)
        ]
        counted = _IS_ROWS[self.seen.kinds[at]] & (ids[number] != NO_TABLE)
        self.rows = _Rows(at[counted], number[counted], tuple(names))

    def end_before_cut(self, is_open: bool) -> None:
        """End before the first event that follows a statement without its last rows.

        `is_open`: rows must follow at the beginning.
        """
        kinds = self.seen.kinds[self.begin : self.end]
        is_rows = _IS_ROWS[kinds]
        at = np.flatnonzero(is_rows)
        self._is_open = kinds == E.TABLE_MAP
        follows = ~(is_rows | self._is_open)
        if len(at):
            self._is_open[at] = self.run.parts(self.begin + at, HEADER + 6, 1).ravel() & STATEMENT_ENDS == 0
        self._end_before(np.append(is_open, self._is_open[:-1])[: len(kinds)] & follows)

    def is_open_before(self, number: int) -> bool:
        """Whether rows must follow before that event; see `end_before_cut`."""
        return bool(self._is_open[number - 1 - self.begin])

    def _name(
        self,
        table: int,
        at: Numbers,
        known: Mapping[int, TableId],
        reading: tuple[Callable[[bytes], TableId | None], int],
    ) -> TableId:
        maps = at[self.seen.kinds[at] == E.TABLE_MAP]
        if not len(maps):
            if table not in known and table != NO_TABLE:
                self.end = min(self.end, int(at[0]))
            return known.get(table, TableId("", ""))
        read, tail = reading
        first = int(maps[0])
        name = read(self.run.event(first)[HEADER : -tail or None])
        if name is None or known.get(table, name) != name or (table not in known and at[0] < first):
            self.end = min(self.end, int(at[0]))
            return TableId("", "")
        self._maps[table] = first, name
        self.end = min(self.end, self._first_other(maps, tail))
        return name

    def _first_other(self, maps: Numbers, tail: int) -> int:
        size = int(self.seen.sizes[maps[0]]) - HEADER - tail
        same = self.seen.sizes[maps] == size + HEADER + tail
        if not same.all():
            maps = maps[: int(np.flatnonzero(~same)[0]) + 1]
            return min(int(maps[-1]), self._first_other(maps[:-1], tail))
        bodies = self.run.parts(maps, HEADER, size)
        if bodies.tobytes() == bodies[0].tobytes() * len(maps):
            return self.end
        return int(maps[np.flatnonzero((bodies != bodies[0]).any(1))[0]])

    def transactions(self, begin: int) -> Numbers:
        """Return the last event of each whole transaction from `begin` on, up to the first one with an unexpected form.

        A transaction may have a GTID only at its beginning, and must have a map before its first rows.
        """
        kinds = self.seen.kinds[begin : self.end]
        closes = np.flatnonzero(self.seen.is_close[begin : self.end])
        is_start = np.zeros(len(kinds) + 1, np.bool_)
        is_start[0] = is_start[closes + 1] = True
        numbers = np.arange(len(kinds))
        start_of = np.maximum.accumulate(np.where(is_start[:-1], numbers, 0))
        map_of = np.maximum.accumulate(np.where(kinds == E.TABLE_MAP, numbers, -1))
        wrong = np.flatnonzero((_IS_GTID[kinds] & ~is_start[:-1]) | (_IS_ROWS[kinds] & (map_of < start_of)))
        if len(wrong):
            closes = closes[closes < wrong[0]]
        return begin + closes

    def counts(self, begin: int, end: int) -> Iterator[tuple[TableId, int]]:
        first, last = np.searchsorted(self.rows.at, (begin, end))
        counts = np.bincount(self.rows.table[first:last], minlength=len(self.rows.tables))
        yield from ((self.rows.tables[place], int(counts[place])) for place in np.flatnonzero(counts).tolist())

    def times(self, begin: int, end: int) -> tuple[int, int]:
        """Return the first and the last time stamp in [begin, end), 0 if they have none."""
        times = self.seen.frames["time"][begin:end]
        if times[0] and times[-1]:
            return int(times[0]), int(times[-1])
        times = times[times != 0]
        return (int(times[0]), int(times[-1])) if len(times) else (0, 0)

    def gtids(self, begin: int, end: int) -> Numbers:
        return begin + np.flatnonzero(_IS_GTID[self.seen.kinds[begin:end]])

    def last_of_domains(self, numbers: Numbers) -> list[str] | None:
        """Return the last GTID of each MariaDB domain; None if one of these events has another form."""
        frames, least = self.seen.frames[numbers], HEADER + _MARIADB.itemsize + CHECKSUM
        if (frames["type"] != E.GTID).any() or (self.seen.sizes[numbers] < least).any():
            return None
        bodies = self.run.parts(numbers, HEADER, _MARIADB.itemsize).view(_MARIADB).ravel()
        if (bodies["flags"] & ODD_GTID).any():
            return None
        domains, backwards = np.unique(bodies["domain"][::-1], return_index=True)
        last = len(numbers) - 1 - backwards
        parts = zip(domains, frames["server"][last], bodies["sequence"][last], strict=True)
        return [f"{domain}-{server}-{sequence}" for domain, server, sequence in parts]


def _distinct(ids: Numbers) -> tuple[Numbers, Numbers]:
    firsts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    found, number = np.unique(ids[firsts], return_inverse=True)
    return found, np.repeat(number, np.diff(np.append(firsts, len(ids))))


# --- packets ---

OK, EOF, ERROR = 0x00, 0xFE, 0xFF
FULL_PACKET = 0xFFFFFF
HEAD = 4
BUFFER_BYTES = 1 << 20
"""Large enough for NumPy, and small enough for the processor's cache."""
NOTHING = Run(memoryview(b""), np.zeros(1, np.int64))
_LENGTH = struct.Struct("<I")
Receive = Callable[[memoryview], int]


class Packets:
    """Reads packets: `receive` fills a part of a buffer, `has_more` tells whether a read returns at once."""

    def __init__(
        self, receive: Receive, has_more: Callable[[], bool], buffer_bytes: int = BUFFER_BYTES, pauses: bool = False
    ) -> None:
        self._receive, self._has_more, self._size, self._pauses = receive, has_more, buffer_bytes, pauses
        self._buffer = bytearray(buffer_bytes)
        self._filled = 0
        self._failure: Exception | None = None
        self.last = b""
        """The packet that ended the dump."""

    def runs(self) -> Iterator[Run]:
        """Yield the events up to the packet that ends the dump; EOFError if there is no such packet.

        With `pauses`, an empty run says that the next read may wait.
        """
        while not self.last:
            starts, end = self._whole()
            if not end:
                if self._pauses and not self._failure and not self._has_more():
                    yield NOTHING
                self._fill()
            if starts:
                run, end_of_dump = _opened(self._buffer, starts, end)
                if len(run):
                    yield run
                if end_of_dump == b"":
                    raise EOFError("received an empty packet")
                self.last = end_of_dump or b""
            elif end:
                yield from self._large(end)
            if end:
                self._drop(end)

    def _fill(self) -> None:
        if self._failure:
            raise self._failure
        if self._filled == len(self._buffer):
            self._check_size()
            self._resize(2 * self._filled)
        self._read()
        while self._filled < len(self._buffer) and not self._failure and self._has_more():
            self._read()

    def _check_size(self) -> None:
        """Raise ValueError if an incomplete payload is larger than its event."""
        if self._filled < HEAD + 1 + HEADER:
            return
        head = memoryview(self._buffer)[HEAD:]
        size = read_frame(head, 1).size if head[0] == OK else 0
        received = self._filled - 1 - HEAD * (1 + self._filled // (HEAD + FULL_PACKET))
        if received > min(size, MOST_BYTES):
            raise ValueError(f"an event of {size} bytes has more than {received} in its packets")

    def _read(self) -> None:
        """Read once. An error of the connection is raised only after all bytes before it have been processed."""
        try:
            count = self._receive(memoryview(self._buffer)[self._filled :])
            if not count:
                raise EOFError("the server closed the connection")
            self._filled += count
        except (OSError, EOFError) as error:
            self._failure = error

    def _whole(self) -> tuple[list[int], int]:
        """Return the offsets of the complete packets and the end of the last one;

        none for a packet that continues in others.
        """
        starts, at, filled, buffer = list[int](), 0, self._filled - HEAD, self._buffer
        length_at, add = _LENGTH.unpack_from, starts.append
        while at <= filled:
            size = length_at(buffer, at)[0] & FULL_PACKET
            if size == FULL_PACKET or at + size > filled:
                break
            add(at)
            at += HEAD + size
        return (starts, at) if starts else (starts, self._end_of_large())

    def _end_of_large(self) -> int:
        """Return the end of a payload that spans several packets, 0 if it is incomplete."""
        at, size = 0, FULL_PACKET
        while size == FULL_PACKET:
            if at + HEAD > self._filled:
                return 0
            size = _LENGTH.unpack_from(self._buffer, at)[0] & FULL_PACKET
            at += HEAD + size
        return at if at <= self._filled else 0

    def _large(self, end: int) -> Iterator[Run]:
        heads = range(0, end, HEAD + FULL_PACKET)
        payload = b"".join(memoryview(self._buffer)[at + HEAD : min(at + HEAD + FULL_PACKET, end)] for at in heads)
        if payload[0] == OK:
            yield Run(memoryview(payload)[1:], np.array([0, len(payload) - 1]))
        else:
            self.last = payload

    def _drop(self, end: int) -> None:
        left = self._filled - end
        if len(self._buffer) > self._size > left:
            self._resize(self._size, end)
        elif end:
            self._buffer[:left] = self._buffer[end : self._filled]
        self._filled = left

    def _resize(self, size: int, begin: int = 0) -> None:
        old, self._buffer = self._buffer, bytearray(size)
        self._buffer[: self._filled - begin] = old[begin : self._filled]


def _opened(buffer: bytearray, packets: list[int], end: int) -> tuple[Run, bytes | None]:
    starts = np.array([*packets, end], np.int64)
    seen = np.frombuffer(buffer, np.uint8)
    sizes = np.diff(starts) - HEAD
    others = np.flatnonzero((sizes == 0) | (seen[np.minimum(starts[:-1] + HEAD, end - 1)] != OK))
    end_of_dump = None
    if len(others):
        first = int(others[0])
        end_of_dump = bytes(buffer[packets[first] + HEAD : int(starts[first + 1])])
        starts, sizes = starts[: first + 1], sizes[:first]
    return Run(_without_heads(seen, starts), np.append(0, np.cumsum(sizes - 1))), end_of_dump


def _without_heads(seen: npt.NDArray[np.uint8], starts: Numbers) -> memoryview:
    mask = np.ones(int(starts[-1]), np.bool_)
    for byte in range(HEAD + 1):
        mask[starts[:-1] + byte] = False
    return seen[: len(mask)][mask].data
