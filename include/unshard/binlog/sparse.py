"""Read row images that omit columns, as a session with `binlog_row_image` MINIMAL, NOBLOB or FULL_NODUP writes them.

| image          | contains                                            | result here                               |
|----------------|-----------------------------------------------------|-------------------------------------------|
| INSERT         | columns with a value, computed defaults             | the rest gets its default: a whole row    |
| DELETE, BEFORE | at least the primary key; all columns without one   | as it is: a row by its key                |
| AFTER          | columns that the statement set                      | the rest comes from BEFORE if it has them |

So a batch of such rows has one more column, at the end: a bitmap of the written columns that the row has, NULL for a
row that has all. A column that an AFTER image still lacks did not change. A table without a primary key gets whole
rows, because its BEFORE images are whole.

If a MariaDB REPLACE replaces a row, the server logs an UPDATE of the columns that the statement names, although it sets
the others to their defaults. The row event does not show this. So such rows are refused if the annotated statement is a
REPLACE.

**Defaults** that an INSERT gives to columns missing from its row image come from the tracked structure.
Servers log columns that the statement names, AUTO_INCREMENT, and all computed defaults. A missing column therefore has
a constant default or NULL. Under a permissive sql_mode, a column without default has the zero of its type. If the
canonical value of a default is not certain, there is no result, and the caller refuses the row.
"""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import pyarrow as pa

from unshard.binlog.events import EXTRA_ROWS, INSERTS, ROWS, UPDATES, Buffer, EventType, Frame
from unshard.binlog.rowcode import Finish, codes_of, read_once
from unshard.binlog.tablemap import PhysicalField, packed
from unshard.binlog.transactions import STATEMENT_ENDS
from unshard.binlog.values import float_text
from unshard.core.model import Column, TableSchema
from unshard.core.rows.missingcolumns import implicit_value
from unshard.core.sql.charsets import encode
from unshard.core.sql.literals import EXACT, INTEGERS, TEXTS
from unshard.errors.rows import DefaultUnknown, PartialRowImage

# --- defaults ---

_QUOTED = re.compile(r"'(?:[^'\\]|''|\\[\\0nr])*'")
_ESCAPED = re.compile(r"''|\\.")
_MEANT = {"''": "'", "\\\\": "\\", "\\0": "\0", "\\n": "\n", "\\r": "\r"}
"""Escapes that SHOW CREATE TABLE prints, and their characters."""
_BITS = re.compile(r"b'([01]+)'")
_NEVER = "0000-00-00 00:00:00"
_FORMS = {
    "date": r"\d{4}-\d\d-\d\d",
    "datetime": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
    "time": r"-?\d{2,3}:\d\d:\d\d",
    "timestamp": _NEVER,
    "year": r"\d{4}",
}
_BLOBS = frozenset(("varbinary", "tinyblob", "blob", "mediumblob", "longblob"))


@dataclass(frozen=True, slots=True)
class Default:
    """The value of an omitted column."""

    value: bytes | None


def default_of(column: Column, structure: TableSchema) -> Default | None:
    """Return the default of a column as its canonical value; None if that is not certain."""
    text = column.default
    if text is None or text.upper() == "NULL":
        return Default(None) if column.nullable else _zero(column)
    read = _READERS.get(column.data_type) or (_label if column.data_type in TEXTS else None)
    try:
        value = read(column, _shown(column, text, structure)) if read else None
    except (ValueError, InvalidOperation):
        return None
    return None if value is None else Default(value)


def _zero(column: Column) -> Default | None:
    if column.data_type == "bit":
        return Default(bytes((column.numbers[0] + 7) // 8))
    if column.data_type == "set":
        return Default(b"")
    value = implicit_value(column)
    if value is not None and "zerofill" in column.column_type:
        return None
    return None if value is None else Default(value)


def _shown(column: Column, text: str, structure: TableSchema) -> str:
    """Return the default as SHOW CREATE TABLE prints it; MySQL's information_schema has texts without their quotes."""
    name = column.name.replace("`", "``")
    line = next((line for line in structure.create_sql.splitlines() if line.startswith(f"  `{name}` ")), "")
    quoted = "'" + text.replace("'", "''") + "'"
    return quoted if f"DEFAULT {quoted}" in line else text


def _integer(column: Column, text: str) -> bytes | None:
    number = int(_inside(text))
    width = column.numbers[0] if "zerofill" in column.column_type else 0
    return b"%0*d" % (width, number)


def _decimal(column: Column, text: str) -> bytes | None:
    if "zerofill" in column.column_type:
        return None
    scale = (*column.numbers, 0, 0)[1]
    return format(Decimal(_inside(text)).quantize(Decimal(1).scaleb(-scale), context=EXACT), "f").encode()


def _float(code: str) -> Callable[[Column, str], bytes | None]:
    def read(column: Column, text: str) -> bytes | None:
        if column.column_type not in ("float", "double"):
            return None
        return float_text(code, None)(struct.pack(code, float(_inside(text))), 0)

    return read


def _temporal(column: Column, text: str) -> bytes | None:
    """Return the default of a TIMESTAMP only if it is zero; others are printed in the session's time zone."""
    whole, _, fraction = _inside(text).partition(".")
    digits = 0 if column.data_type in ("date", "year") else (*column.numbers, 0)[0]
    if not re.fullmatch(_FORMS[column.data_type], whole) or len(fraction) > digits:
        return None
    return (whole + ("." + fraction.ljust(digits, "0") if digits else "")).encode()


def _label(column: Column, text: str) -> bytes | None:
    value = _text(text)
    if value is None or (column.data_type == "char" and value.endswith(" ")):
        return None
    return encode(value, str(column.charset))


def _binary(column: Column, text: str) -> bytes | None:
    value = _text(text)
    if value is None or not value.isascii():
        return None
    return value.encode().ljust(column.numbers[0] if column.data_type == "binary" else 0, b"\0")


def _bit(column: Column, text: str) -> bytes | None:
    found = _BITS.fullmatch(text)
    return int(found[1], 2).to_bytes((column.numbers[0] + 7) // 8, "big") if found else None


def _text(text: str) -> str | None:
    return _ESCAPED.sub(lambda found: _MEANT[found[0]], text[1:-1]) if _QUOTED.fullmatch(text) else None


def _inside(text: str) -> str:
    """Remove the quotes around numbers and times, which some servers and versions print."""
    return text[1:-1] if _QUOTED.fullmatch(text) else text


_READERS: dict[str, Callable[[Column, str], bytes | None]] = {
    **dict.fromkeys(INTEGERS, _integer),
    "decimal": _decimal,
    "float": _float("<f"),
    "double": _float("<d"),
    **dict.fromkeys(_FORMS, _temporal),
    "binary": _binary,
    **dict.fromkeys(_BLOBS, _binary),
    "bit": _bit,
}


# --- row images ---

PRESENT = "_present"
Bits = tuple[int, ...]
"""Bitmaps of the columns in an event's first and (UPDATE) second image; empty: both have all columns."""
_COMMENTS = rb"\s*(?:/\*.*?\*/\s*|--[^\n]*\n\s*|#[^\n]*\n\s*)*"
_REPLACES = re.compile(_COMMENTS + rb"(?:REPLACE\b|LOAD\s.*\bREPLACE\b)", re.IGNORECASE | re.DOTALL)


def images_at(frame: Frame, body: Buffer) -> tuple[int, int, Bits]:
    """Return the number of columns of a row event, the offset of its images, and the columns that these have."""
    offset = 8 + (extra_bytes(body) if frame.type in EXTRA_ROWS else 0)
    count, offset = packed(bytes(body[: offset + 9]), offset)
    size, every = (count + 7) // 8, (1 << count) - 1
    present = []
    for _ in range(2 if frame.type in UPDATES else 1):
        present.append(int.from_bytes(body[offset : offset + size], "little") & every)
        offset += size
    return count, offset, () if all(bits == every for bits in present) else tuple(present)


def extra_bytes(body: Buffer) -> int:
    """Return the size of the extra data (partitions, cluster) in a version 2 row event, including its length field."""
    size = int.from_bytes(body[8:10], "little")
    if not 2 <= size <= len(body) - 8:
        raise ValueError(f"{size} extra bytes in an event of {len(body)}")
    return size


class Annotated:
    """The statement that row events belong to, if the server logs it."""

    def __init__(self) -> None:
        self._text, self._has_ended = b"", False

    def see(self, frame: Frame, body: Buffer) -> None:
        """Store the text of a statement; clear it after the statement's last rows."""
        if self._has_ended:
            self._text = b""
        if frame.type == EventType.ANNOTATE_ROWS:
            self._text = bytes(body)
        self._has_ended = frame.type in ROWS and bool(body[6] & STATEMENT_ENDS)

    def check(self, frame: Frame, body: Buffer, shard: str, place: str) -> None:
        """Raise for an UPDATE without all columns that was logged for a REPLACE."""
        if self._text and frame.type in UPDATES and _REPLACES.match(self._text) and images_at(frame, body)[2]:
            why = "and come from REPLACE, which the server logs as an UPDATE without the columns that got defaults"
            raise PartialRowImage(shard, place, why)


@dataclass(frozen=True, slots=True)
class Sparse:
    """Reads rows of one structure whose images omit columns."""

    fields: tuple[PhysicalField, ...]
    structure: TableSchema
    shard: str

    def read(self, data: bytes, kind: int, present: Bits, place: str) -> "SparseCells":
        if kind == EventType.PARTIAL_UPDATE_ROWS:
            raise PartialRowImage(self.shard, place, "and contain changes of JSON values instead of the values")
        if not all(present):
            raise PartialRowImage(self.shard, place, "and an image has no columns, so its rows cannot be counted")
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
        found: list[int | None] = []
        place = 0
        for number, column in enumerate(self.structure.columns):
            if not column.is_generated:
                found.append(place if bits >> number & 1 else None)
                place += bits >> number & 1
        return found

    def _known(self, bits: int, rows: list[tuple[Any, ...]]) -> "SparseCells":
        places, cells = self._places(bits), list(zip(*rows, strict=True))
        columns = [[None] * len(rows) if place is None else list(cells[place]) for place in places]
        return SparseCells(columns, [mask_of(places)] * len(rows))

    def _whole(self, bits: int, rows: list[tuple[Any, ...]], place: str) -> "SparseCells":
        known = self._known(bits, rows)
        for number, at in enumerate(self._places(bits)):
            if at is None:
                known.columns[number] = [self._default(self.structure.written[number], place)] * len(rows)
        return SparseCells(known.columns, [None] * len(rows))

    def _default(self, column: Column, place: str) -> Any:
        found = default_of(column, self.structure)
        if found is None:
            raise DefaultUnknown(self.shard, column.name, place, column.default or "none")
        return _as_read(column, found.value)

    def _updated(self, present: Bits, images: list[list[tuple[Any, ...]]]) -> "SparseCells":
        """Interleave the two images of each UPDATE; an AFTER image gets the values that only BEFORE has."""
        before, after = self._known(present[0], images[0]), self._known(present[1], images[1])
        first, second = self._places(present[0]), self._places(present[1])
        joined: list[int | None] = []
        for number, at in enumerate(second):
            if at is None:
                after.columns[number] = before.columns[number]
            joined.append(first[number] if at is None else at)
        columns = [_alternating(*both) for both in zip(before.columns, after.columns, strict=True)]
        return SparseCells(columns, _alternating(before.masks, [mask_of(joined)] * len(after.masks)))


@dataclass(slots=True)
class SparseCells:
    """Values of the written columns as the generated readers return them, and which columns each row has."""

    columns: list[list[Any]]
    masks: list[bytes | None]

    def add(self, other: "SparseCells") -> "SparseCells":
        for mine, more in zip(self.columns, other.columns, strict=True):
            mine.extend(more)
        self.masks += other.masks
        return self

    def arrays(self, finish: Sequence[Finish]) -> list[pa.Array]:
        columns = [show(cells) for show, cells in zip(finish, self.columns, strict=True)]
        if any(mask is not None for mask in self.masks):
            columns.append(pa.array(self.masks, mask_type(len(self.columns))))
        return columns


def mask_of(places: Sequence[int | None]) -> bytes | None:
    """Return the bitmap of the existing columns; None if all exist."""
    if None not in places:
        return None
    bits = sum(1 << number for number, place in enumerate(places) if place is not None)
    return bits.to_bytes((len(places) + 7) // 8, "little")


def mask_type(columns: int) -> pa.DataType:
    """Return the type of the bitmaps of rows with this many columns; no column of values has this type."""
    return pa.binary((columns + 7) // 8)


def whole_pairs(ops: Sequence[int], rows: int, after: int) -> Iterator[slice]:
    """Yield slices of about `rows` rows that never separate the two images of an UPDATE."""
    start = 0
    while start < len(ops):
        stop = min(start + rows, len(ops))
        while stop < len(ops) and ops[stop] == after:
            stop += 1
        yield slice(start, stop)
        start = stop


@lru_cache(1024)
def _part(fields: tuple[PhysicalField, ...], columns: tuple[Column, ...], shard: str, bits: int) -> Any:
    chosen = [number for number in range(len(columns)) if bits >> number & 1]
    codes = codes_of(fields, columns, shard)
    return read_once([codes[number] for number in chosen], [columns[number] for number in chosen], shard)


def _as_read(column: Column, value: bytes | None) -> Any:
    """Return integers as numbers; they become text later as whole columns."""
    return int(value) if value is not None and column.data_type in INTEGERS else value


def _alternating(first: list[Any], second: list[Any]) -> list[Any]:
    found: list[Any] = [None] * (2 * len(first))
    found[::2], found[1::2] = first, second
    return found
