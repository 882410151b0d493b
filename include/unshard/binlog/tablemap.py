"""TABLE_MAP events: the table of the next row events, and the physical types of its columns.

A map contains names, signs and labels only if the server sends metadata. So it is bound to the tracked structure of the
shard (decoder.py).

**Metadata** are optional: the event has them if the server is configured to send them.
With `binlog_row_metadata` NO_LOG (MariaDB's default) the event has no metadata. MINIMAL (MySQL's default) has signs
and character sets; FULL also has names and labels. Fields that are not compared with the tracked structure are skipped:
the format allows new fields, and these do not change how rows are read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from unshard.core.model import Column, TableId
from unshard.core.sql import literals
from unshard.core.sql.charsets import MOST_BYTES
from unshard.core.sql.literals import PREFIX_BYTES
from unshard.core.structures.columntypes import read_labels
from unshard.errors.relay import DamagedEvent

# --- metadata ---

_T = TypeVar("_T")
_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS = range(1, 7)
_DEFAULT_LABEL_CHARSET, _LABEL_CHARSETS, _VECTORS = 10, 11, 13


@dataclass(frozen=True, slots=True)
class Collations:
    """Collations of some columns in order: one per column, or a default with exceptions."""

    default: int
    """0: `ids` has one collation per column."""
    ids: tuple[int, ...]
    """With a default: pairs of a column's number and its collation."""

    def of(self, count: int) -> tuple[int, ...]:
        """Return the collations of `count` columns; ValueError if their number differs."""
        if not self.default:
            if len(self.ids) != count:
                raise ValueError(f"{len(self.ids)} character sets for {count} columns")
            return self.ids
        found = [self.default] * count
        for number, collation in zip(self.ids[::2], self.ids[1::2], strict=True):
            if number >= count:
                raise ValueError(f"the character set of column {number} of {count}")
            found[number] = collation
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The fields that are compared; each is empty if the server does not send it."""

    unsigned: tuple[bool, ...] = ()
    """For the numeric columns in order."""
    names: tuple[str, ...] = ()
    charsets: Collations | None = None
    label_charsets: Collations | None = None
    """For ENUM and SET columns."""
    set_labels: tuple[tuple[bytes, ...], ...] = ()
    enum_labels: tuple[tuple[bytes, ...], ...] = ()
    dimensions: tuple[int, ...] = ()
    """For VECTOR columns."""


def packed(body: bytes, offset: int) -> tuple[int, int]:
    """Read a length-encoded integer; return it and the offset after it."""
    first = body[offset]
    if first < 251:
        return first, offset + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None or offset + 1 + size > len(body):
        raise ValueError("a packed integer is cut off")
    return int.from_bytes(body[offset + 1 : offset + 1 + size], "little"), offset + 1 + size


def read_metadata(data: bytes) -> Metadata:
    """Read the fields; IndexError or ValueError if they are damaged."""
    fields, offset = {}, 0
    while offset < len(data):
        fields[data[offset]], offset = _bytes(data, offset + 1)
    return Metadata(
        _signs(fields.get(_SIGNS, b"")),
        tuple(name.decode() for name in _all(fields.get(_NAMES, b""), _bytes)),
        _collations(fields.get(_DEFAULT_CHARSET), fields.get(_CHARSETS)),
        _collations(fields.get(_DEFAULT_LABEL_CHARSET), fields.get(_LABEL_CHARSETS)),
        _all(fields.get(_SETS, b""), _labels),
        _all(fields.get(_ENUMS, b""), _labels),
        _all(fields.get(_VECTORS, b""), packed),
    )


def _signs(value: bytes) -> tuple[bool, ...]:
    return tuple(bool(byte >> bit & 1) for byte in value for bit in range(7, -1, -1))


def _collations(default: bytes | None, each: bytes | None) -> Collations | None:
    if default is not None:
        first, *others = _all(default, packed)
        return Collations(first, tuple(others))
    return None if each is None else Collations(0, _all(each, packed))


def _labels(value: bytes, offset: int) -> tuple[tuple[bytes, ...], int]:
    count, offset = packed(value, offset)
    labels = []
    for _ in range(count):
        label, offset = _bytes(value, offset)
        labels.append(label)
    return tuple(labels), offset


def _bytes(value: bytes, offset: int) -> tuple[bytes, int]:
    size, offset = packed(value, offset)
    if offset + size > len(value):
        raise ValueError("the optional metadata is cut off")
    return value[offset : offset + size], offset + size


def _all(value: bytes, read: Callable[[bytes, int], tuple[_T, int]]) -> tuple[_T, ...]:
    found, offset = [], 0
    while offset < len(value):
        item, offset = read(value, offset)
        found.append(item)
    return tuple(found)


# --- maps and fields ---


class FieldType(IntEnum):
    """Physical column types of MySQL and MariaDB."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP_OLD = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME_OLD = 11
    DATETIME_OLD = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP = 17
    DATETIME = 18
    TIME = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    DECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


F = FieldType
NO_TABLE = 0xFFFFFF
"""Table id of a row event that only ends a statement."""
NAMES = {int(kind): kind.name for kind in FieldType}
_ONE_BYTE = frozenset(
    (F.BLOB, F.GEOMETRY, F.JSON, F.FLOAT, F.DOUBLE, F.TIMESTAMP, F.DATETIME, F.TIME, F.BLOB_COMPRESSED, F.VECTOR)
)
_TWO_BYTES = frozenset((F.VARCHAR, F.VARCHAR_COMPRESSED, F.BIT, F.DECIMAL, F.STRING, F.VAR_STRING))
INTEGERS = {"tinyint": F.TINY, "smallint": F.SHORT, "mediumint": F.INT24, "int": F.LONG, "bigint": F.LONGLONG}
GEOMETRIES = literals.GEOMETRIES | {"geomcollection"}
FIXED_BYTES = {"uuid": 16, "inet6": 16, "inet4": 4}
NUMERIC = frozenset((*INTEGERS.values(), F.FLOAT, F.DOUBLE, F.DECIMAL, F.YEAR))
"""Types for which the optional metadata contain the sign."""


@dataclass(frozen=True, slots=True)
class PhysicalField:
    """The physical type of one column; the meaning of its metadata `a` and `b` depends on the type.

    Byte length of strings; bytes of the length prefix of blobs; fractional digits of times; precision and scale of
    DECIMAL; bytes of ENUM and SET; bytes and odd bits of BIT.
    """

    type: int
    a: int = 0
    b: int = 0

    def __str__(self) -> str:
        name = NAMES.get(self.type, f"type {self.type}")
        return f"{name}({self.a},{self.b})" if self.b else f"{name}({self.a})" if self.a else name


@dataclass(frozen=True, slots=True)
class TableMap:
    """One TABLE_MAP event."""

    table_id: int
    table: TableId
    fields: tuple[PhysicalField, ...]
    metadata: Metadata


def table_id_of(body: bytes) -> int:
    """Return the number that connects a TABLE_MAP and its row events."""
    return int.from_bytes(body[:6], "little")


def read_table(body: bytes) -> tuple[TableId, int]:
    """Return the table of a TABLE_MAP event and the offset after its name; IndexError if cut off."""
    schema_end = 9 + body[8]
    name_end = schema_end + 2 + body[schema_end + 1]
    if body[name_end] or body[schema_end]:
        raise ValueError("the table's name is not ended by a zero byte")
    return TableId(body[9:schema_end].decode(), body[schema_end + 2 : name_end].decode()), name_end + 1


def table_of(body: bytes, place: str) -> TableId:
    """Return the table that the body of a TABLE_MAP names."""
    try:
        return read_table(body)[0]
    except (IndexError, ValueError) as error:
        raise DamagedEvent(place, f"unreadable TABLE_MAP: {error}") from error


def read_table_map(body: bytes) -> TableMap:
    """Read a whole TABLE_MAP body; IndexError or ValueError if its bytes contradict each other."""
    table, offset = read_table(body)
    count, offset = packed(body, offset)
    types = body[offset : offset + count]
    size, offset = packed(body, offset + count)
    sizes = body[offset : offset + size]
    rest = offset + size + (count + 7) // 8
    if rest > len(body) or len(types) != count:
        raise ValueError("the columns are cut off")
    metadata = read_metadata(body[rest:])
    if metadata.names and len(metadata.names) != count:
        raise ValueError(f"{len(metadata.names)} names for {count} columns")
    return TableMap(table_id_of(body), table, _fields(types, sizes), metadata)


def _fields(types: bytes, metadata: bytes) -> tuple[PhysicalField, ...]:
    fields, offset = [], 0
    for kind in types:
        size = 2 if kind in _TWO_BYTES else 1 if kind in _ONE_BYTE else 0
        part = metadata[offset : offset + size]
        if len(part) != size:
            raise ValueError("the column metadata is cut off")
        offset += size
        fields.append(_field(kind, part))
    if offset != len(metadata):
        raise ValueError("the column metadata is too long")
    return tuple(fields)


def _field(kind: int, metadata: bytes) -> PhysicalField:
    match kind:
        case F.STRING | F.VAR_STRING:
            return _string_field(metadata)
        case F.DECIMAL:
            return PhysicalField(kind, metadata[0], metadata[1])
        case F.BIT:
            return PhysicalField(kind, metadata[1], metadata[0])
        case F.VARCHAR | F.VARCHAR_COMPRESSED:
            return PhysicalField(kind, int.from_bytes(metadata, "little"))
        case _:
            return PhysicalField(kind, metadata[0] if metadata else 0)


def _string_field(metadata: bytes) -> PhysicalField:
    """Return the field of ENUM, SET or CHAR. They share one type;

    two bits of the real type are inverted for long lengths.
    """
    real, size = metadata
    if real in (F.ENUM, F.SET):
        return PhysicalField(real, size)
    if real & 0x30 != 0x30:
        return PhysicalField(F.STRING, size | ((real & 0x30) ^ 0x30) << 4)
    return PhysicalField(F.STRING, size)


def agrees(field: PhysicalField, column: Column) -> bool:
    """Whether the physical type is the one that the server uses for that column."""
    return any(field == each or (field.type == each.type and each.a == ANY_SIZE) for each in _expected(column))


ANY_SIZE = -1
"""Sizes that `column_type` does not contain in bytes."""


def _expected(column: Column) -> tuple[PhysicalField, ...]:
    kind, numbers = column.data_type, column.numbers
    if kind in ("char", "varchar"):
        return _text(kind, numbers[0], column.charset)
    if kind in ("enum", "set"):
        return (_labelled(kind, column.column_type),)
    return _EXPECTED[kind](numbers) if kind in _EXPECTED else _by_name(kind)


def _by_name(kind: str) -> tuple[PhysicalField, ...]:
    if kind in INTEGERS:
        return (PhysicalField(INTEGERS[kind]),)
    if kind in PREFIX_BYTES:
        return (PhysicalField(F.BLOB, PREFIX_BYTES[kind]), PhysicalField(F.BLOB_COMPRESSED, PREFIX_BYTES[kind]))
    if kind in FIXED_BYTES:
        return (PhysicalField(F.STRING, FIXED_BYTES[kind]),)
    return (PhysicalField(F.GEOMETRY, ANY_SIZE),) if kind in GEOMETRIES else ()


def _text(kind: str, characters: int, charset: str | None) -> tuple[PhysicalField, ...]:
    """Return the fields of a text type. Its size is in bytes: the maximum for its number of characters."""
    size = characters * MOST_BYTES.get(charset, 1) if charset else ANY_SIZE
    if kind == "char":
        return (PhysicalField(F.STRING, size),)
    return (PhysicalField(F.VARCHAR, size), PhysicalField(F.VARCHAR_COMPRESSED, size + 1 if charset else ANY_SIZE))


def _labelled(kind: str, column_type: str) -> PhysicalField:
    """Return the field of ENUM or SET. ENUM has one or two bytes;

    SET has a bit per label, in one to four or eight bytes.
    """
    count = len(read_labels(column_type))
    if kind == "enum":
        return PhysicalField(F.ENUM, 1 if count < 256 else 2)
    size = (count + 7) // 8
    return PhysicalField(F.SET, size if size <= 4 else 8)


def _temporal(kind: FieldType, old: FieldType) -> Callable[[tuple[int, ...]], tuple[PhysicalField, ...]]:
    return lambda numbers: (PhysicalField(kind, numbers[0] if numbers else 0), PhysicalField(old))


_EXPECTED: Mapping[str, Callable[[tuple[int, ...]], tuple[PhysicalField, ...]]] = {
    "float": lambda numbers: (PhysicalField(F.FLOAT, 4),),
    "double": lambda numbers: (PhysicalField(F.DOUBLE, 8),),
    "decimal": lambda numbers: (PhysicalField(F.DECIMAL, *numbers),),
    "binary": lambda numbers: (PhysicalField(F.STRING, *numbers),),
    "varbinary": lambda numbers: (
        PhysicalField(F.VARCHAR, *numbers),
        PhysicalField(F.VARCHAR_COMPRESSED, numbers[0] + 1),
    ),
    "json": lambda numbers: (PhysicalField(F.JSON, 4),),
    "vector": lambda numbers: (PhysicalField(F.VECTOR, 4), PhysicalField(F.VARCHAR, 4 * numbers[0])),
    "bit": lambda numbers: (PhysicalField(F.BIT, *divmod(numbers[0] if numbers else 1, 8)),),
    "date": lambda numbers: (PhysicalField(F.DATE), PhysicalField(F.NEWDATE)),
    "year": lambda numbers: (PhysicalField(F.YEAR),),
    "time": _temporal(F.TIME, F.TIME_OLD),
    "datetime": _temporal(F.DATETIME, F.DATETIME_OLD),
    "timestamp": _temporal(F.TIMESTAMP, F.TIMESTAMP_OLD),
}
