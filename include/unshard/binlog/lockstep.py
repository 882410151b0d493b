"""Read a range at once: first its structure (events, transactions, tables), then the images of many events.

**Images**: NumPy locates image k of all events together, column by column. Events are independent and small
(8 kB by default), so a few steps process many images. The bytes of a column have the same meaning
as in the generated reader (rowcode.py), which is authoritative. Unusual data raises an error here; then that reader
reports the error, or reads the data.

**The structure** of a range: event offsets, the ends of transactions, and the tables of row events.
An OLTP transaction has a few events for a few rows, so the work in Python per event is most of the cost of decoding.
Here only the chain of sizes is followed event by event; the rest uses vectors. The skim supports the event types that
nearly all ranges consist of. For a range with any other type, or with anything unusual, the result is None, and the
readers that process one event after the other take over.
"""

import contextlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
    are_whole,
    walk,
)
from unshard.binlog.rowcode import Code, as_text, codes_of, little, padded_column
from unshard.binlog.tablemap import NO_TABLE, PhysicalField
from unshard.binlog.transactions import GTIDS, STATEMENT_ENDS
from unshard.core.model import Column

# --- images of many events ---

Numbers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]
MIN_EVENTS = 24
"""The total size must be that of this many events of the largest size, because the largest one determines the steps."""
PADDING = bytes(8)
"""Padding after the last image, so that the widest number can be read at every offset."""


EventBytes = tuple[bytes, Numbers, Numbers]
"""Bytes that end with the padding, and the offsets where events begin and end in them."""


class Cells(NamedTuple):
    """Locations of a column's values, in the order of the rows."""

    start: Numbers
    size: Numbers | None
    """None: all have the width of the column."""
    null: Bits | None


@dataclass(frozen=True, slots=True)
class _Layout:
    """How to locate one column."""

    code: Code
    width: int
    """0: a length precedes the value."""
    nullable: bool
    is_written: bool


@dataclass(frozen=True, slots=True)
class Lockstep:
    """Reads the row images of one structure."""

    layouts: tuple[_Layout, ...]

    def read(self, events: Sequence[bytes]) -> tuple[list[pa.Array], Numbers]:
        """Return the columns and the number of images in each event; ValueError or IndexError for unusual data."""
        sizes = np.fromiter(map(len, events), np.int64, len(events))
        ends = np.cumsum(sizes)
        return self.read_at((b"".join((*events, PADDING)), ends - sizes, ends))

    def read_at(self, events: EventBytes) -> tuple[list[pa.Array], Numbers]:
        """Do the same for events at given offsets of one buffer."""
        data, starts, ends = events
        walk = _ImageWalk(np.frombuffer(data, np.uint8), self.layouts)
        counts = walk.run(starts, ends)
        order = walk.order(counts)
        found = zip(self.layouts, walk.cells, strict=True)
        columns = [_column(layout.code, data, _ordered(parts, order)) for layout, parts in found if layout.is_written]
        return columns, counts


def is_worth(sizes: Sequence[int] | Numbers) -> bool:
    """Whether reading events of these sizes together is faster than one by one."""
    found = np.asarray(sizes)
    return bool(len(found) and found.sum() >= MIN_EVENTS * found.max())


@lru_cache(1024)
def compile_lockstep(fields: tuple[PhysicalField, ...], columns: tuple[Column, ...], shard: str) -> Lockstep:
    """Prepare the reader of a structure whose fields and columns agree."""
    codes = codes_of(fields, columns, shard)
    return Lockstep(
        tuple(
            _Layout(
                code,
                np.dtype(code.integer).itemsize if code.integer else code.width,
                column.nullable,
                not column.is_generated,
            )
            for code, column in zip(codes, columns, strict=True)
        )
    )


class _ImageWalk:
    """Locates the images of all events step by step; `cells` has one list of parts for each column."""

    def __init__(self, data: npt.NDArray[np.uint8], layouts: Sequence[_Layout]) -> None:
        self._data, self._layouts = data, layouts
        self._bitmap = (len(layouts) + 7) // 8
        self.cells: list[list[Cells]] = [[] for _ in layouts]
        self._events: list[Numbers] = []

    def run(self, starts: Numbers, ends: Numbers) -> Numbers:
        alive = np.flatnonzero(starts < ends)
        at, until = starts[alive], ends[alive]
        while len(at):
            self._events.append(alive)
            at = self._image(at)
            if (at > until).any():
                raise IndexError("a row extends beyond the end of its event")
            more = at < until
            if not more.all():
                at, until, alive = at[more], until[more], alive[more]
        events = np.concatenate(self._events) if self._events else np.empty(0, np.int64)
        return np.bincount(events, minlength=len(starts))

    def order(self, counts: Numbers) -> Numbers:
        """Return the indexes that sort the located images by event, and by position inside each event."""
        if not self._events:
            return np.empty(0, np.int64)
        first = np.cumsum(counts) - counts
        place = np.concatenate([first[alive] + k for k, alive in enumerate(self._events)])
        order = np.empty_like(place)
        order[place] = np.arange(len(place))
        return order

    def _image(self, at: Numbers) -> Numbers:
        begins, at = at, at + self._bitmap
        bits = [self._data[begins + byte] for byte in range(self._bitmap)]
        some = [bool(eight.any()) for eight in bits]
        for number, layout in enumerate(self._layouts):
            null = _nulls(bits[number >> 3], number, layout) if some[number >> 3] else None
            start, size = at, None
            if layout.width:
                at = at + (layout.width if null is None else np.where(null, 0, layout.width))
            else:
                size = little(self._data, at, layout.code.prefix)
                size = size if null is None else np.where(null, 0, size)
                start = at + (layout.code.prefix if null is None else np.where(null, 0, layout.code.prefix))
                at = start + size
            self.cells[number].append(Cells(start, size, null))
        return at


def _nulls(bits: npt.NDArray[np.uint8], number: int, layout: _Layout) -> Bits | None:
    found: Bits = (bits >> (number & 7) & 1).astype(bool)
    if not found.any():
        return None
    if not layout.nullable:
        raise ValueError("NULL in a NOT NULL column")
    return found


def _ordered(parts: list[Cells], order: Numbers) -> Cells:
    start = np.concatenate([part.start for part in parts])[order] if parts else order
    size = np.concatenate([part.size for part in parts if part.size is not None])[order] if _sized(parts) else None
    if all(part.null is None for part in parts):
        return Cells(start, size, None)
    nulls = [np.zeros(len(part.start), bool) if part.null is None else part.null for part in parts]
    return Cells(start, size, np.concatenate(nulls)[order])


def _sized(parts: list[Cells]) -> bool:
    return bool(parts) and parts[0].size is not None


def _column(code: Code, data: bytes, cells: Cells) -> pa.Array:
    if code.integer and code.plain:
        return _integers(code.integer, data, cells)
    if cells.size is not None and code.then is None:
        return _texts(data, cells, cells.size)
    with contextlib.suppress(ValueError, IndexError):
        if code.together is not None:
            return _together(code.together, data, cells)
        if cells.size is not None and code.padded and cells.null is None:
            return padded_column(np.frombuffer(data, np.uint8), cells.start, cells.size, code.padded)
    values = _values(code, data, cells)
    return code.finish(values) if code.finish else pa.array(values, pa.binary())


def _integers(code: str, data: bytes, cells: Cells) -> pa.Array:
    kind = np.dtype("<" + code)
    view = np.ndarray((len(data) - kind.itemsize + 1,), kind, data, strides=(1,))
    return as_text(pa.array(view[cells.start], mask=cells.null))


def _texts(data: bytes, cells: Cells, sizes: Numbers) -> pa.Array:
    """Create one Arrow column from the values and the bytes between them, and take every other entry."""
    borders = np.empty(2 * len(sizes), np.int32)
    borders[::2], borders[1::2] = cells.start, cells.start + sizes
    if not len(sizes):
        return pa.array([], pa.binary())
    whole = pa.Array.from_buffers(pa.binary(), len(borders) - 1, [None, pa.py_buffer(borders), pa.py_buffer(data)])
    return whole.take(pa.array(np.arange(0, len(borders) - 1, 2), mask=cells.null))


def _together(show: Callable[..., pa.Array], data: bytes, cells: Cells) -> pa.Array:
    seen = np.frombuffer(data, np.uint8)
    if cells.null is None:
        return show(seen, cells.start)
    there = ~cells.null
    return show(seen, cells.start[there]).take(pa.array(np.cumsum(there) - 1, mask=cells.null))


def _values(code: Code, data: bytes, cells: Cells) -> list[Any]:
    starts = cells.start.tolist()
    read = _reader(code, data, starts, cells.size)
    if cells.null is None:
        return [read(number) for number in range(len(starts))]
    return [None if null else read(number) for number, null in enumerate(cells.null.tolist())]


def _reader(code: Code, data: bytes, starts: list[int], sizes: Numbers | None) -> Callable[[int], Any]:
    convert, then = code.convert, code.then
    if convert is not None:
        return lambda number: convert(data, starts[number])
    if code.integer:
        unpack = struct.Struct("<" + code.integer).unpack_from
        return lambda number: unpack(data, starts[number])[0]
    if then is None or sizes is None:
        raise ValueError("a column without a reader")
    ends = (np.array(starts, np.int64) + sizes).tolist()
    return lambda number: then(data[starts[number] : ends[number]])


# --- the structure of a range ---

E = EventType
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
    ends = position + next_offsets if position else little(seen, offsets + _END_AT, 4)
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
    table = little(seen, both.begin, 6)
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
