"""Row images that leave columns out: what a session with `binlog_row_image` MINIMAL, NOBLOB or FULL_NODUP writes.

| image          | holds                                               | what becomes of it here                   |
|----------------|-----------------------------------------------------|-------------------------------------------|
| INSERT         | columns with a value, computed defaults             | the rest gets its default: a whole row    |
| DELETE, BEFORE | at least the primary key; all columns without one   | as it is: a row by its key                |
| AFTER          | columns that the statement set                      | the rest comes from BEFORE if that has it |

So a batch of such rows has one column more than others, the last: which of the written columns a row has, as bits;
NULL for a row that has all. What an AFTER image then lacks is as it was. A table without a primary key gets whole rows,
for its BEFORE images are whole.

MariaDB logs a REPLACE that meets a row as an UPDATE of the columns that it names, although it sets the others to
their defaults: nothing in the row event tells. So such rows are refused if the annotated statement is one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from unshard.binlog.defaults import default_of
from unshard.binlog.events import EXTRA_ROWS, INSERTS, ROWS, UPDATES, Buffer, EventType, Frame
from unshard.binlog.metadata import packed
from unshard.binlog.rowcode import Finish, codes_of, read_once
from unshard.binlog.tablemap import Field
from unshard.core.literals import INTEGERS
from unshard.core.model import Column, TableSchema
from unshard.errors.relay import DefaultUnknown, PartialRowImage

PRESENT = "_present"
Bits = tuple[int, ...]
"""Which columns the images of an event have, first and (UPDATE) second; empty: both have all."""
_COMMENTS = rb"\s*(?:/\*.*?\*/\s*|--[^\n]*\n\s*|#[^\n]*\n\s*)*"
_REPLACES = re.compile(_COMMENTS + rb"(?:REPLACE\b|LOAD\s.*\bREPLACE\b)", re.IGNORECASE | re.DOTALL)
_STATEMENT_ENDS = 1


def images_at(frame: Frame, body: Buffer) -> tuple[int, int, Bits]:
    """Return the number of columns of a row event, where its images begin, and which columns these have."""
    offset = 8 + (extra_bytes(body) if frame.type in EXTRA_ROWS else 0)
    count, offset = packed(bytes(body[: offset + 9]), offset)
    size, every = (count + 7) // 8, (1 << count) - 1
    present = []
    for _ in range(2 if frame.type in UPDATES else 1):
        present.append(int.from_bytes(body[offset : offset + size], "little") & every)
        offset += size
    return count, offset, () if all(bits == every for bits in present) else tuple(present)


def extra_bytes(body: Buffer) -> int:
    """Return how many bytes of a row event of version 2 are about partitions or clusters, with those of the number."""
    size = int.from_bytes(body[8:10], "little")
    if not 2 <= size <= len(body) - 8:
        raise ValueError(f"{size} extra bytes in an event of {len(body)}")
    return size


class Annotated:
    """The statement that row events belong to, as far as the server tells it."""

    def __init__(self) -> None:
        self._text, self._has_ended = b"", False

    def see(self, frame: Frame, body: Buffer) -> None:
        """Take the text of a statement; forget it behind the statement's last rows."""
        if self._has_ended:
            self._text = b""
        if frame.type == EventType.ANNOTATE_ROWS:
            self._text = bytes(body)
        self._has_ended = frame.type in ROWS and bool(body[6] & _STATEMENT_ENDS)

    def check(self, frame: Frame, body: Buffer, shard: str, place: str) -> None:
        """Raise for an UPDATE that lacks columns and was a REPLACE."""
        if self._text and frame.type in UPDATES and _REPLACES.match(self._text) and images_at(frame, body)[2]:
            why = "and come from REPLACE, which the server logs as an UPDATE without the columns that got defaults"
            raise PartialRowImage(shard, place, why)


@dataclass(frozen=True, slots=True)
class Sparse:
    """Reads the rows of one structure whose images leave columns out."""

    fields: tuple[Field, ...]
    structure: TableSchema
    shard: str

    def read(self, data: bytes, kind: int, present: Bits, place: str) -> "Cells":
        """Return the rows of one event."""
        if kind == EventType.PARTIAL_UPDATE_ROWS:
            raise PartialRowImage(self.shard, place, "and have changes of JSON values instead of these")
        if not all(present):
            raise PartialRowImage(self.shard, place, "and some of them have none at all, so nobody can count them")
        parts = [_part(self.fields, self.structure.columns, self.shard, bits) for bits in present]
        images = self._images(data, parts)
        if kind in UPDATES:
            return self._updated(present, images)
        return self._whole(present[0], images[0], place) if kind in INSERTS else self._known(present[0], images[0])

    def _images(self, data: bytes, parts: Sequence[Any]) -> list[list[tuple[Any, ...]]]:
        found: list[list[tuple[Any, ...]]] = [[] for _ in parts]
        offset, end = 0, len(data)
        while offset < end:
            for read, rows in zip(parts, found, strict=True):
                if offset >= end:
                    raise IndexError("an UPDATE lacks its last AFTER image")
                offset = read(data, offset, end, rows.append)
        return found

    def _places(self, bits: int) -> list[int | None]:
        """Return where the values of each written column are in an image."""
        found: list[int | None] = []
        place = 0
        for number, column in enumerate(self.structure.columns):
            if not column.is_generated:
                found.append(place if bits >> number & 1 else None)
                place += bits >> number & 1
        return found

    def _known(self, bits: int, rows: list[tuple[Any, ...]]) -> "Cells":
        places, cells = self._places(bits), list(zip(*rows, strict=True))
        columns = [[None] * len(rows) if place is None else list(cells[place]) for place in places]
        return Cells(columns, [mask_of(places)] * len(rows))

    def _whole(self, bits: int, rows: list[tuple[Any, ...]], place: str) -> "Cells":
        known = self._known(bits, rows)
        for number, at in enumerate(self._places(bits)):
            if at is None:
                known.columns[number] = [self._default(self.structure.written[number], place)] * len(rows)
        return Cells(known.columns, [None] * len(rows))

    def _default(self, column: Column, place: str) -> Any:
        found = default_of(column, self.structure)
        if found is None:
            raise DefaultUnknown(self.shard, column.name, place, column.default or "none")
        return _as_read(column, found.value)

    def _updated(self, present: Bits, images: list[list[tuple[Any, ...]]]) -> "Cells":
        """Put the two images of each UPDATE behind each other; AFTER has what BEFORE has where it has nothing."""
        before, after = self._known(present[0], images[0]), self._known(present[1], images[1])
        first, second = self._places(present[0]), self._places(present[1])
        joined: list[int | None] = []
        for number, at in enumerate(second):
            if at is None:
                after.columns[number] = before.columns[number]
            joined.append(first[number] if at is None else at)
        columns = [_alternating(*both) for both in zip(before.columns, after.columns, strict=True)]
        return Cells(columns, _alternating(before.masks, [mask_of(joined)] * len(after.masks)))


@dataclass(slots=True)
class Cells:
    """Values of the written columns as the generated readers leave them, and which columns each row has."""

    columns: list[list[Any]]
    masks: list[bytes | None]

    def add(self, other: "Cells") -> "Cells":
        """Put other rows behind these; return these."""
        for mine, more in zip(self.columns, other.columns, strict=True):
            mine.extend(more)
        self.masks += other.masks
        return self

    def arrays(self, finish: Sequence[Finish]) -> list[pa.Array]:
        """Return the columns, and behind them the masks unless all rows have all."""
        columns = [show(cells) for show, cells in zip(finish, self.columns, strict=True)]
        if any(mask is not None for mask in self.masks):
            columns.append(pa.array(self.masks, mask_type(len(self.columns))))
        return columns


def mask_of(places: Sequence[int | None]) -> bytes | None:
    """Return the bits of the columns that are there; None if all are."""
    if None not in places:
        return None
    bits = sum(1 << number for number, place in enumerate(places) if place is not None)
    return bits.to_bytes((len(places) + 7) // 8, "little")


def mask_type(columns: int) -> pa.DataType:
    """Return the type of the masks of rows with so many columns; no value of a column has such a type."""
    return pa.binary((columns + 7) // 8)


def whole_pairs(ops: Sequence[int], rows: int, after: int) -> Iterator[slice]:
    """Cut rows into slices of about so many, never between the two images of an UPDATE."""
    start = 0
    while start < len(ops):
        stop = min(start + rows, len(ops))
        while stop < len(ops) and ops[stop] == after:
            stop += 1
        yield slice(start, stop)
        start = stop


@lru_cache(1024)
def _part(fields: tuple[Field, ...], columns: tuple[Column, ...], shard: str, bits: int) -> Any:
    """Return the reader of one image that has only some columns."""
    chosen = [number for number in range(len(columns)) if bits >> number & 1]
    codes = codes_of(fields, columns, shard)
    return read_once([codes[number] for number in chosen], [columns[number] for number in chosen], shard)


def _as_read(column: Column, value: bytes | None) -> Any:
    """Integers are numbers until they become text as whole columns."""
    return int(value) if value is not None and column.data_type in INTEGERS else value


def _alternating(first: list[Any], second: list[Any]) -> list[Any]:
    found: list[Any] = [None] * (2 * len(first))
    found[::2], found[1::2] = first, second
    return found
