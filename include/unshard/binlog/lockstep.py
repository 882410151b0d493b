"""Read row images of many events at once: NumPy locates image k of all events together, column by column.

Events are independent and small (8 kB by default), so a few steps process many images. The bytes of a column have the
same meaning as in the generated reader (rowcode.py), which is authoritative. Unusual data raises an error here; then
that reader reports the error, or reads the data.
"""

import contextlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unshard.binlog.columns import padded_column
from unshard.binlog.rowcode import Code, codes_of
from unshard.binlog.tablemap import Field
from unshard.core.model import Column

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
        walk = _Walk(np.frombuffer(data, np.uint8), self.layouts)
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
def compile_lockstep(fields: tuple[Field, ...], columns: tuple[Column, ...], shard: str) -> Lockstep:
    """Prepare the reader of a structure whose fields and columns agree."""
    codes = codes_of(fields, columns, shard)
    return Lockstep(
        tuple(
            _Layout(code, _width(code), column.nullable, not column.is_generated)
            for code, column in zip(codes, columns, strict=True)
        )
    )


def _width(code: Code) -> int:
    return np.dtype(code.integer).itemsize if code.integer else code.width


class _Walk:
    """Locates the images of all events step by step; `cells` has one list of parts for each column."""

    def __init__(self, data: npt.NDArray[np.uint8], layouts: Sequence[_Layout]) -> None:
        self._data, self._layouts = data, layouts
        self._bitmap = (len(layouts) + 7) // 8
        self.cells: list[list[Cells]] = [[] for _ in layouts]
        self._events: list[Numbers] = []

    def run(self, starts: Numbers, ends: Numbers) -> Numbers:
        """Locate all images; return how many each event has."""
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
        """Locate one image of each event; return where the next ones begin."""
        begins, at = at, at + self._bitmap
        bits = [self._data[begins + byte] for byte in range(self._bitmap)]
        some = [bool(eight.any()) for eight in bits]
        for number, layout in enumerate(self._layouts):
            null = _nulls(bits[number >> 3], number, layout) if some[number >> 3] else None
            start, size = at, None
            if layout.width:
                at = at + (layout.width if null is None else np.where(null, 0, layout.width))
            else:
                size = self._length(at, layout.code.prefix, null)
                start = at + (layout.code.prefix if null is None else np.where(null, 0, layout.code.prefix))
                at = start + size
            self.cells[number].append(Cells(start, size, null))
        return at

    def _length(self, at: Numbers, prefix: int, null: Bits | None) -> Numbers:
        size = self._data[at].astype(np.int64)
        for byte in range(1, prefix):
            size |= self._data[at + byte].astype(np.int64) << 8 * byte
        return size if null is None else np.where(null, 0, size)


def _nulls(bits: npt.NDArray[np.uint8], number: int, layout: _Layout) -> Bits | None:
    found: Bits = (bits >> (number & 7) & 1).astype(bool)
    if not found.any():
        return None
    if not layout.nullable:
        raise ValueError("NULL in a NOT NULL column")
    return found


def _ordered(parts: list[Cells], order: Numbers) -> Cells:
    """Concatenate the parts of a column in the order of the rows."""
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
    return pa.array(view[cells.start], mask=cells.null).cast(pa.string()).cast(pa.binary())


def _texts(data: bytes, cells: Cells, sizes: Numbers) -> pa.Array:
    """Create one Arrow column from the values and the bytes between them, and take every other entry."""
    borders = np.empty(2 * len(sizes), np.int32)
    borders[::2], borders[1::2] = cells.start, cells.start + sizes
    if not len(sizes):
        return pa.array([], pa.binary())
    whole = pa.Array.from_buffers(pa.binary(), len(borders) - 1, [None, pa.py_buffer(borders), pa.py_buffer(data)])
    return whole.take(pa.array(np.arange(0, len(borders) - 1, 2), mask=cells.null))


def _together(show: Callable[..., pa.Array], data: bytes, cells: Cells) -> pa.Array:
    """Convert the values that are not NULL, and insert the NULLs."""
    seen = np.frombuffer(data, np.uint8)
    if cells.null is None:
        return show(seen, cells.start)
    there = ~cells.null
    return show(seen, cells.start[there]).take(pa.array(np.cumsum(there) - 1, mask=cells.null))


def _values(code: Code, data: bytes, cells: Cells) -> list[Any]:
    """Convert one value at a time, for types without a column-wise converter."""
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
