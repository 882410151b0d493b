"""Row images of many events at once: image k of all events is located together, column by column, with NumPy.

Events are independent and small (8 kB by default), so few steps walk through many images. What a column's
bytes mean is the same as for the generated reader (rowcode.py), which is the authority: whatever looks odd here
raises, and that reader then says what is wrong, or reads what can be read.
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
FEWEST_EVENTS = 24
"""How many events as large as the largest one there must be: its images are that many steps."""
BEHIND = bytes(8)
"""Bytes behind the last image, so that the widest number can be read at every offset."""


Places = tuple[bytes, Numbers, Numbers]
"""Bytes that end with `BEHIND`, where events begin in them and where they end."""


class Cells(NamedTuple):
    """Where the values of a column are, in the order of the rows."""

    start: Numbers
    size: Numbers | None
    """None: all are as wide as the column."""
    null: Bits | None


@dataclass(frozen=True, slots=True)
class _Place:
    """One column, as it is located."""

    code: Code
    width: int
    """0: the value has its length before it."""
    nullable: bool
    kept: bool


@dataclass(frozen=True, slots=True)
class Lockstep:
    """Reads the row images of one structure."""

    places: tuple[_Place, ...]

    def read(self, events: Sequence[bytes]) -> tuple[list[pa.Array], Numbers]:
        """Return the columns and the number of images in each event; ValueError or IndexError if anything is odd."""
        sizes = np.fromiter(map(len, events), np.int64, len(events))
        ends = np.cumsum(sizes)
        return self.read_at((b"".join((*events, BEHIND)), ends - sizes, ends))

    def read_at(self, places: Places) -> tuple[list[pa.Array], Numbers]:
        """Do the same for events that lie at some places of one piece of bytes."""
        data, starts, ends = places
        walk = _Walk(np.frombuffer(data, np.uint8), self.places)
        counts = walk.run(starts, ends)
        order = walk.order(counts)
        found = zip(self.places, walk.cells, strict=True)
        return [_column(place.code, data, _ordered(parts, order)) for place, parts in found if place.kept], counts


def is_worth(sizes: Sequence[int] | Numbers) -> bool:
    """Whether events of these sizes are read faster together than one by one."""
    found = np.asarray(sizes)
    return bool(len(found) and found.sum() >= FEWEST_EVENTS * found.max())


@lru_cache(1024)
def compile_lockstep(fields: tuple[Field, ...], columns: tuple[Column, ...], shard: str) -> Lockstep:
    """Prepare the reader of a structure whose fields and columns agree."""
    codes = codes_of(fields, columns, shard)
    return Lockstep(tuple(
        _Place(code, _width(code), column.nullable, not column.is_generated)
        for code, column in zip(codes, columns, strict=True)))  # fmt: skip


def _width(code: Code) -> int:
    return np.dtype(code.integer).itemsize if code.integer else code.width


class _Walk:
    """The walk through the images of all events; `cells` has one list of parts for each column."""

    def __init__(self, data: npt.NDArray[np.uint8], places: Sequence[_Place]) -> None:
        self._data, self._places = data, places
        self._bitmap = (len(places) + 7) // 8
        self.cells: list[list[Cells]] = [[] for _ in places]
        self._events: list[Numbers] = []

    def run(self, starts: Numbers, ends: Numbers) -> Numbers:
        """Locate all images; return how many each event has."""
        alive = np.flatnonzero(starts < ends)
        at, until = starts[alive], ends[alive]
        while len(at):
            self._events.append(alive)
            at = self._image(at)
            if (at > until).any():
                raise IndexError("a row goes beyond the end of its event")
            more = at < until
            if not more.all():
                at, until, alive = at[more], until[more], alive[more]
        events = np.concatenate(self._events) if self._events else np.empty(0, np.int64)
        return np.bincount(events, minlength=len(starts))

    def order(self, counts: Numbers) -> Numbers:
        """Return the order of the located images that is that of the events, and of the images inside each."""
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
        for number, place in enumerate(self._places):
            null = _nulls(bits[number >> 3], number, place) if some[number >> 3] else None
            start, size = at, None
            if place.width:
                at = at + (place.width if null is None else np.where(null, 0, place.width))
            else:
                size = self._length(at, place.code.prefix, null)
                start = at + (place.code.prefix if null is None else np.where(null, 0, place.code.prefix))
                at = start + size
            self.cells[number].append(Cells(start, size, null))
        return at

    def _length(self, at: Numbers, prefix: int, null: Bits | None) -> Numbers:
        size = self._data[at].astype(np.int64)
        for byte in range(1, prefix):
            size |= self._data[at + byte].astype(np.int64) << 8 * byte
        return size if null is None else np.where(null, 0, size)


def _nulls(bits: npt.NDArray[np.uint8], number: int, place: _Place) -> Bits | None:
    found: Bits = (bits >> (number & 7) & 1).astype(bool)
    if not found.any():
        return None
    if not place.nullable:
        raise ValueError("NULL in a column that has none")
    return found


def _ordered(parts: list[Cells], order: Numbers) -> Cells:
    """Put the parts of a column together in the order of the rows."""
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
    """Let Arrow see the values and all that is between them as one column, and take every other value of it."""
    borders = np.empty(2 * len(sizes), np.int32)
    borders[::2], borders[1::2] = cells.start, cells.start + sizes
    if not len(sizes):
        return pa.array([], pa.binary())
    whole = pa.Array.from_buffers(pa.binary(), len(borders) - 1, [None, pa.py_buffer(borders), pa.py_buffer(data)])
    return whole.take(pa.array(np.arange(0, len(borders) - 1, 2), mask=cells.null))


def _together(show: Callable[..., pa.Array], data: bytes, cells: Cells) -> pa.Array:
    """Convert the values that are there, and put a NULL in the place of the others."""
    seen = np.frombuffer(data, np.uint8)
    if cells.null is None:
        return show(seen, cells.start)
    there = ~cells.null
    return show(seen, cells.start[there]).take(pa.array(np.cumsum(there) - 1, mask=cells.null))


def _values(code: Code, data: bytes, cells: Cells) -> list[Any]:
    """Convert value by value what no column-wise way is known for."""
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
        raise ValueError("a column without a way to read it")
    ends = (np.array(starts, np.int64) + sizes).tolist()
    return lambda number: then(data[starts[number] : ends[number]])
