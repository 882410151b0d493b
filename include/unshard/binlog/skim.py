"""Read the structure of a range at once: event offsets, the transactions' ends, and the tables of row events.

An OLTP transaction has a few events for a few rows, so the work in Python per event is most of the cost of decoding.
Here only the chain of sizes is followed event by event; the rest uses vectors. The skim supports the event types that
nearly all ranges consist of. For a range with any other type, or with anything unusual, the result is None, and the
readers that process one event after the other take over.
"""

import contextlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from unshard.binlog.checksums import are_whole
from unshard.binlog.events import (
    CHECKSUM,
    COMMENTS,
    COMPRESSED_ROWS,
    EXTRA_ROWS,
    HEADER,
    ROWS,
    UPDATES,
    Buffer,
    EventType,
    walk,
)
from unshard.binlog.gtids import GTIDS
from unshard.binlog.lockstep import PADDING, EventBytes
from unshard.binlog.tablemap import NO_TABLE
from unshard.binlog.transactions import STATEMENT_ENDS

E = EventType
Numbers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]
SINGLE_ROWS = ROWS - COMPRESSED_ROWS - {E.PARTIAL_UPDATE_ROWS}
KNOWN = (
    SINGLE_ROWS
    | GTIDS
    | COMMENTS
    | {
        E.TABLE_MAP,
        E.XID,
        E.QUERY,
        E.FORMAT_DESCRIPTION,
        E.GTID_LIST,
        E.PREVIOUS_GTIDS_MYSQL,
        E.BINLOG_CHECKPOINT,
        E.ROTATE,
        E.STOP,
    }
)
MOST_MAPS = 256
MOST_COLUMNS = 250
"""A larger number of columns needs more than one byte."""
POST_HEADER, FLAGS_AT = 8, 6
SPARSE = 4
"""Maximum size of a gap between parts that are copied in one piece."""
_SIZE_AT, _TYPE_AT, _END_AT = 9, 4, 13
_QUERY = struct.Struct("<8xB2xH")


@dataclass(frozen=True, slots=True)
class RowEvents:
    """Row events in order, as vectors of one length."""

    number: Numbers
    """Number of the event in the range."""
    kind: Numbers
    begin: Numbers
    """Offset where the body begins."""
    stop: Numbers
    """Offset where the body ends, without checksum."""
    end: Numbers
    """Position in the binlog file after the event."""
    commit: Numbers
    """Position after its transaction."""
    map: Numbers
    """Index of its TABLE_MAP body."""

    def only(self, which: Bits | slice) -> "RowEvents":
        """Return some of the events."""
        return RowEvents(*(getattr(self, name)[which] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True, slots=True)
class Skimmed:
    """The rows of a range, and the distinct TABLE_MAP bodies that they need, with the position after each."""

    rows: RowEvents
    maps: Sequence[tuple[bytes, int]]


def skim(data: Buffer, checksum: bool, place: str, position: int) -> Skimmed | None:
    """Find the rows of a range; raises for damaged events. `position` is that of the first byte, 0 if unknown."""
    offsets = _offsets(data, checksum, place)
    seen = np.frombuffer(data, np.uint8)
    kinds = seen[offsets + _TYPE_AT].astype(np.int64)
    if not len(offsets) or not _IS_KNOWN[kinds].all():
        return None
    next_offsets = np.append(offsets[1:], len(data))
    ends = position + next_offsets if position else _read(seen, offsets + _END_AT, 4)
    begins, stops = offsets + HEADER, next_offsets - (CHECKSUM if checksum else 0)
    commits = _commits(data, kinds, (begins, stops, ends))
    if commits is None or _lacks_rows(seen, kinds, begins):
        return None
    return _matched(data, seen, RowEvents(np.arange(len(offsets)), kinds, begins, stops, ends, commits, offsets))


_IS_KNOWN = np.isin(np.arange(256), [int(kind) for kind in KNOWN])
_IS_ROWS = np.isin(np.arange(256), [int(kind) for kind in SINGLE_ROWS])


def _offsets(data: Buffer, checksum: bool, place: str) -> Numbers:
    """Return the offsets of all events after checking them; for damaged events, `walk` raises the error."""
    found, offset, end = list[int](), 0, len(data)
    size_at, add = struct.Struct(f"<{_SIZE_AT}xI").unpack_from, found.append
    with contextlib.suppress(struct.error):  # the end of the bytes, or a broken chain
        for _ in repeat(None, end // HEADER):
            add(offset)
            (size,) = size_at(data, offset)
            offset += size
            if offset == end:
                break
    offsets = np.array(found, np.int64)
    if offset == len(data) and _are_whole(data, offsets, HEADER + (CHECKSUM if checksum else 0), checksum):
        return offsets
    return np.array([offset for offset, _ in walk(data, checksum, place)], np.int64)


def _are_whole(data: Buffer, offsets: Numbers, shortest: int, checksum: bool) -> bool:
    ends = np.append(offsets[1:], len(data))
    fits = len(offsets) and (ends - offsets >= shortest).all()
    return bool(fits) and (not checksum or are_whole(data, ends))


def _read(seen: npt.NDArray[np.uint8], at: Numbers, size: int) -> Numbers:
    """Read numbers of `size` bytes."""
    value = seen[at].astype(np.int64)
    for byte in range(1, size):
        value |= seen[at + byte].astype(np.int64) << 8 * byte
    return value


def _commits(data: Buffer, kinds: Numbers, places: tuple[Numbers, Numbers, Numbers]) -> Numbers | None:
    """Return the position after the transaction of each event; None if rows may have been rolled back."""
    begins, stops, ends = places
    closing = kinds == E.XID
    for number in np.flatnonzero(kinds == E.QUERY).tolist():
        match _text(data, int(begins[number]), int(stops[number])):
            case b"COMMIT":
                closing[number] = True
            case b"BEGIN":
                pass
            case _:
                return None
    closing[-1] = True
    closes = np.flatnonzero(closing)
    commits: Numbers = ends[closes[np.searchsorted(closes, np.arange(len(kinds)))]]
    return commits


def _lacks_rows(seen: npt.NDArray[np.uint8], kinds: Numbers, begins: Numbers) -> bool:
    """Whether a statement has no last row event, as far as the flags tell."""
    is_rows, is_map = _IS_ROWS[kinds], kinds == E.TABLE_MAP
    flags = seen[np.minimum(begins + FLAGS_AT, len(seen) - 1)]
    is_open = is_map | (is_rows & (flags & STATEMENT_ENDS == 0))
    return bool(is_open[-1] or (is_open[:-1] & ~(is_rows | is_map)[1:]).any())


def _text(data: Buffer, begin: int, stop: int) -> bytes:
    """Return the statement of a QUERY event, empty if it cannot be found."""
    if stop - begin < _QUERY.size:
        return b""
    schema, variables = _QUERY.unpack_from(data, begin)
    return bytes(data[begin + _QUERY.size + variables + schema + 1 : stop])


def _matched(data: Buffer, seen: npt.NDArray[np.uint8], events: RowEvents) -> Skimmed | None:
    """Assign each row event to the last TABLE_MAP with its table id before it."""
    is_map, is_rows = events.kind == E.TABLE_MAP, _IS_ROWS[events.kind]
    both = events.only(is_map | is_rows)
    if ((both.stop - both.begin) < 8).any():
        return None
    table = _read(seen, both.begin, 6)
    maps = _different(data, seen, both.only(both.kind == E.TABLE_MAP))
    if maps is None:
        return None
    bodies, numbers = maps
    known = np.full(len(both), -1)
    known[both.kind == E.TABLE_MAP] = numbers
    # Sort by table id and then by position; the last map before an event is the running maximum of map positions.
    order = np.argsort(table, kind="stable")
    places = np.maximum.accumulate(np.where(known[order] >= 0, np.arange(len(both)), -1))
    same = (places >= 0) & (table[order] == table[order][places])
    found = np.full(len(both), -1)
    found[order] = np.where(same, known[order][places], -1)
    chosen = _IS_ROWS[both.kind] & (table != NO_TABLE)
    if (found[chosen] < 0).any():
        return None
    rows = both.only(chosen)
    rows.map[:] = found[chosen]
    return Skimmed(rows, bodies)


def _different(
    data: Buffer, seen: npt.NDArray[np.uint8], maps: RowEvents
) -> tuple[list[tuple[bytes, int]], Numbers] | None:
    """Return the distinct bodies with the position after the first of each, and the index of each event's body."""
    numbers, bodies = np.full(len(maps), -1), list[tuple[bytes, int]]()
    sizes = maps.stop - maps.begin
    while len(left := np.flatnonzero(numbers < 0)):
        if len(bodies) == MOST_MAPS:
            return None
        first = int(left[0])
        begin, stop = int(maps.begin[first]), int(maps.stop[first])
        left = left[sizes[left] == stop - begin]
        same = left[(seen[maps.begin[left][:, None] + np.arange(stop - begin)] == seen[begin:stop]).all(1)]
        numbers[same] = len(bodies)
        bodies.append((bytes(data[begin:stop]), int(maps.end[first])))
    return bodies, numbers


def image_begins(data: Buffer, rows: RowEvents, columns: int) -> Numbers | None:
    """Return where the row images begin; None if the bytes before them are not the usual ones."""
    if columns > MOST_COLUMNS:
        return None
    seen = np.frombuffer(data, np.uint8)
    begins = rows.begin.copy()
    for kind in np.unique(rows.kind).tolist():
        chosen = rows.kind == kind
        head = _head(kind, columns)
        places = rows.begin[chosen][:, None] + POST_HEADER + np.arange(len(head))
        if (rows.stop[chosen] < places[:, -1] + 1).any() or (seen[places] & _mask(kind, columns) != head).any():
            return None
        begins[chosen] = places[:, -1] + 1
    return begins


def _head(kind: int, columns: int) -> npt.NDArray[np.uint8]:
    """Return the bytes between table id with flags and images: no extra data, all columns present in all images."""
    present = ((1 << columns) - 1).to_bytes((columns + 7) // 8, "little") * (2 if kind in UPDATES else 1)
    extra = b"\2\0" if kind in EXTRA_ROWS else b""
    return np.frombuffer(extra + bytes([columns]) + present, np.uint8)


def _mask(kind: int, columns: int) -> npt.NDArray[np.uint8]:
    """Return which bits of the head matter; the bits of a bitmap after the last column do not."""
    head = _head(kind, columns)
    mask, size = np.full(len(head), 255, np.uint8), (columns + 7) // 8
    ends = [len(head) - 1, len(head) - 1 - size] if kind in UPDATES else [len(head) - 1]
    mask[ends] = head[ends]
    return mask


def pieces(sizes: Numbers, limit: int) -> Iterator[slice]:
    """Split events into runs of almost equal size, about `limit` bytes: a short rest would be read one by one."""
    total = np.cumsum(sizes)
    if not len(total):
        return
    count = max(1, round(int(total[-1]) / limit))
    inner = np.searchsorted(total, np.arange(1, count) * total[-1] // count) + 1
    ends = np.unique(np.append(inner, len(total))).tolist()
    yield from map(slice, [0, *ends[:-1]], ends)


def gathered(data: Buffer, starts: Numbers, stops: Numbers) -> EventBytes:
    """Return a buffer with these parts and their offsets in it; nearby parts are copied together."""
    first, last = int(starts[0]), int(stops[-1])
    sizes = stops - starts
    if last - first <= SPARSE * int(sizes.sum()):
        return b"".join((data[first:last], PADDING)), starts - first, stops - first
    parts = [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    ends = np.cumsum(sizes)
    return b"".join((*parts, PADDING)), ends - sizes, ends
