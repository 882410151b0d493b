"""Generate the reader of row images as Python source for one table structure.

One function with straight code for each column makes a scalar decoder fast enough; runs of integers without NULL are
unpacked at once. The code never reads beyond an event: an index or a struct outside the bytes raises an error. A slice
that is cut short moves the offset beyond the end, and every row must end inside the event. Integers stay numbers here
and become text as whole columns.

**Columns** of values are printed as text, all rows at once, with the same text as values.py returns value by value.
Each function takes bytes and the offsets of values that are not NULL. An unusual value raises ValueError or IndexError.
values.py is authoritative: the reader that uses it then reports the error, or reads the value.
"""

import itertools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unshard.binlog import values
from unshard.binlog.tablemap import FIXED_BYTES, GEOMETRIES, INTEGERS, PhysicalField, packed
from unshard.binlog.tablemap import FieldType as F
from unshard.binlog.values import DIGIT_BYTES, decimal_bytes, fraction_bytes, json_text, patched_text
from unshard.core.model import Column
from unshard.core.sql.charsets import encode
from unshard.core.sql.literals import PREFIX_BYTES
from unshard.core.structures.columntypes import encoded_labels
from unshard.errors.rows import UnsupportedColumn

# --- columns as text ---

Numbers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
ColumnPrinter = Callable[[Octets, Numbers], pa.Array]
DASH, COLON, SPACE, POINT = b"-: ."
PLAIN_DOUBLES = (1e-4, 1e9)
"""Magnitudes that Arrow prints as MySQL does."""


def date_column(data: Octets, starts: Numbers) -> pa.Array:
    """Print DATE."""
    value = little(data, starts, 3)
    return _fixed(_calendar(np.empty((len(starts), 10), np.uint8), value >> 9, value >> 5 & 15, value & 31))


def datetime_column(digits: int) -> ColumnPrinter:
    """Return the printer of DATETIME(digits)."""

    def show(data: Octets, starts: Numbers) -> pa.Array:
        value = _big(data, starts, 5) - 0x8000000000
        _demand(value >= 0)
        text = np.empty((len(starts), 19 + digits + (digits > 0)), np.uint8)
        months = value >> 22
        _calendar(text, months // 13, months % 13, value >> 17 & 31)
        _clock(text, value >> 12 & 31, value >> 6 & 63, value & 63)
        return _fixed(_fraction(text, data, starts + 5, digits))

    return show


def timestamp_column(digits: int) -> ColumnPrinter:
    """Return the printer of TIMESTAMP(digits) in UTC."""

    def show(data: Octets, starts: Numbers) -> pa.Array:
        value = _big(data, starts, 4)
        _demand(value > 0)
        text = np.empty((len(starts), 19 + digits + (digits > 0)), np.uint8)
        text[:, :10] = _days()[value // 86400]
        second = value % 86400
        _clock(text, second // 3600, second // 60 % 60, second % 60)
        return _fixed(_fraction(text, data, starts + 4, digits))

    return show


def year_column(data: Octets, starts: Numbers) -> pa.Array:
    """Print YEAR."""
    value = data[starts].astype(np.int64)
    return _fixed(_numbers(4)[np.where(value > 0, value + 1900, 0)])


def enum_column(labels: Sequence[bytes], width: int) -> ColumnPrinter:
    """Return the printer of ENUM."""
    members = pa.array([b"", *labels], pa.binary())

    def show(data: Octets, starts: Numbers) -> pa.Array:
        value = little(data, starts, width)
        _demand(value < len(members))
        return members.take(pa.array(value))

    return show


def int24_column(unsigned: bool) -> ColumnPrinter:
    """Return the printer of MEDIUMINT."""

    def show(data: Octets, starts: Numbers) -> pa.Array:
        value = little(data, starts, 3)
        return as_text(pa.array(value if unsigned else value - ((value >> 23) << 24)))

    return show


def double_column(data: Octets, starts: Numbers) -> pa.Array:
    """Print DOUBLE."""
    value = np.ascontiguousarray(data[starts[:, None] + np.arange(8)]).view("<f8")[:, 0]
    size = np.abs(value)
    _demand(((size >= PLAIN_DOUBLES[0]) & (size < PLAIN_DOUBLES[1])) | (value == 0))
    return as_text(pa.array(value))


def padded_column(data: Octets, starts: Numbers, sizes: Numbers, width: int) -> pa.Array:
    """Return values of BINARY with their trailing zero bytes, which are not stored."""
    _demand(sizes <= width)
    places = starts[:, None] + np.arange(width)
    return _fixed(data.take(places, mode="clip") * (np.arange(width) < sizes[:, None]).astype(np.uint8))


def decimal_column(precision: int, scale: int) -> ColumnPrinter | None:
    """Return the printer of DECIMAL; None if it has more digits than a 64-bit number."""
    if precision > 18 or scale > 6:
        return None
    width = decimal_bytes(precision, scale)
    whole = precision - scale
    groups = [digits for digits in (whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9) if digits]

    def show(data: Octets, starts: Numbers) -> pa.Array:
        octets = data[starts[:, None] + np.arange(width)]
        negative = octets[:, 0] < 0x80
        octets[:, 0] ^= 0x80
        octets[negative] ^= 0xFF
        number, at = np.zeros(len(starts), np.int64), 0
        for digits in groups:
            group = np.zeros(len(starts), np.int64)
            for byte in range(at, at + DIGIT_BYTES[digits]):
                group = group << 8 | octets[:, byte]
            _demand(group < 10**digits)
            number, at = number * 10**digits + group, at + DIGIT_BYTES[digits]
        _demand(~negative | (number > 0))
        return _decimal_texts(np.where(negative, -number, number), scale)

    return show


def _decimal_texts(number: Numbers, scale: int) -> pa.Array:
    if not scale:
        return as_text(pa.array(number))
    words = np.stack([number, number >> 63], axis=1)
    return as_text(pa.Array.from_buffers(pa.decimal128(38, scale), len(number), [None, pa.py_buffer(words)]))


def as_text(array: pa.Array) -> pa.Array:
    """Return numbers as their texts in bytes."""
    return array.cast(pa.string()).cast(pa.binary())


def _demand(holds: npt.NDArray[np.bool_]) -> None:
    if not holds.all():
        raise ValueError("a value is read one by one")


def little(data: Octets, starts: Numbers, width: int) -> Numbers:
    """Return the numbers of `width` bytes, the lowest byte first."""
    value = data[starts].astype(np.int64)
    for byte in range(1, width):
        value |= data[starts + byte].astype(np.int64) << 8 * byte
    return value


def _big(data: Octets, starts: Numbers, width: int) -> Numbers:
    value = data[starts].astype(np.int64)
    for byte in range(1, width):
        value = value << 8 | data[starts + byte]
    return value


@cache
def _numbers(digits: int) -> Octets:
    return np.frombuffer(b"".join(b"%0*d" % (digits, n) for n in range(10**digits)), np.uint8).reshape(-1, digits)


@cache
def _days() -> Octets:
    days = np.datetime_as_string(np.arange((1 << 32) // 86400 + 1).astype("M8[D]"))
    return days.astype("S10").view(np.uint8).reshape(-1, 10)


def _calendar(text: Octets, year: Numbers, month: Numbers, day: Numbers) -> Octets:
    _demand((year <= 9999) & (month <= 12))
    text[:, :4], text[:, 4], text[:, 7] = _numbers(4)[year], DASH, DASH
    text[:, 5:7], text[:, 8:10] = _numbers(2)[month], _numbers(2)[day]
    return text


def _clock(text: Octets, hour: Numbers, minute: Numbers, second: Numbers) -> None:
    _demand((hour <= 23) & (minute <= 59) & (second <= 59))
    text[:, 10], text[:, 13], text[:, 16] = SPACE, COLON, COLON
    text[:, 11:13], text[:, 14:16], text[:, 17:19] = _numbers(2)[hour], _numbers(2)[minute], _numbers(2)[second]


def _fraction(text: Octets, data: Octets, starts: Numbers, digits: int) -> Octets:
    """Append the fraction of a second, which is stored as two digits per byte."""
    if not digits:
        return text
    value = _big(data, starts, fraction_bytes(digits))
    if digits % 2:
        _demand(value % 10 == 0)
        value = value // 10
    _demand(value < 10**digits)
    text[:, 19] = POINT
    for place in range(digits):
        text[:, 20 + place] = value // 10 ** (digits - 1 - place) % 10 + ord("0")
    return text


def _fixed(text: Octets) -> pa.Array:
    rows, width = text.shape
    offsets = np.arange(0, width * (rows + 1), width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


# --- the generated reader ---

Append = Callable[[tuple[Any, ...]], None]
Reader = Callable[[bytes, int, int, Append], None]
Finish = Callable[[Sequence[Any]], pa.Array]
DOUBLE_WIDTH = 22
"""Display width of DOUBLE ZEROFILL."""
NO_JSON = -1
_SHORT = frozenset((F.VARCHAR, F.STRING, F.VAR_STRING, F.VARCHAR_COMPRESSED))
"""Types whose metadata is their maximum length; it determines the size of their length prefix."""
INTEGER_CODES = {F.TINY: "bB", F.SHORT: "hH", F.LONG: "iI", F.LONGLONG: "qQ"}


@dataclass(frozen=True, slots=True)
class Code:
    """How one column is read: exactly one of `integer`, `convert` and `prefix` is set."""

    integer: str = ""
    """Format character of `struct` for one integer."""
    convert: Callable[..., Any] | None = None
    width: int = 0
    """Number of bytes that `convert(data, offset)` reads."""
    prefix: int = 0
    """Size of the length prefix."""
    then: Callable[[bytes], bytes] | None = None
    """Converts the bytes after the prefix to the value; None: they are the value."""
    finish: Finish | None = None
    plain: bool = False
    """Whether `finish` only prints integers."""
    json: int = NO_JSON
    """Index of the column among those of MySQL's JSON type, which partial updates refer to."""
    together: ColumnPrinter | None = None
    """Converts many rows at once, with the same result as `convert` and `finish`."""
    padded: int = 0
    """Size to which `then` pads a value with zeros, if it does nothing else."""


@dataclass(frozen=True, slots=True)
class RowReader:
    """`read(data, begin, end, append)` appends one tuple per row image; `finish` converts them to columns."""

    read: Reader
    finish: tuple[Finish, ...]


@lru_cache(1024)
def compile_reader(fields: tuple[PhysicalField, ...], columns: tuple[Column, ...], shard: str) -> RowReader:
    """Generate the reader of a structure whose fields and columns agree; it skips generated columns."""
    codes = codes_of(fields, columns, shard)
    namespace: dict[str, Any] = {}
    lines = [" while o<e:", *_image(codes, columns, namespace)]
    kept = [code for code, column in zip(codes, columns, strict=True) if not column.is_generated]
    return RowReader(_compiled(lines, namespace, shard), tuple(code.finish or _binary for code in kept))


def read_once(codes: Sequence[Code], columns: Sequence[Column], shard: str) -> Callable[..., int]:
    """Generate the reader of a single image of these columns: it appends a tuple and returns the end of the image."""
    namespace: dict[str, Any] = {}
    lines = [" if True:", *_image(codes, columns, namespace), "  return o"]
    read: Callable[..., int] = _compiled(lines, namespace, f"part of {shard}")
    return read


@lru_cache(1024)
def compile_partial(fields: tuple[PhysicalField, ...], columns: tuple[Column, ...], shard: str) -> Reader:
    """Generate the reader of PARTIAL_UPDATE_ROWS: an AFTER image may contain changes of JSON instead of its values."""
    codes = codes_of(fields, columns, shard)
    namespace: dict[str, Any] = {"packed": packed, "patched": _patched}
    size = (sum(code.json != NO_JSON for code in codes) + 7) // 8
    options = [
        "  v,o=packed(b,o)",
        "  if v>1: raise ValueError(f'row value options {v}')",
        "  p=0",
        f"  if v: p=fb(b[o:o+{size}],'little'); o+={size}",
    ]
    before = _image(codes, columns, namespace, "before")
    after = _image(codes, columns, namespace, "after")
    return _compiled([" while o<e:", *before, *options, *after], namespace, shard)


def codes_of(fields: Sequence[PhysicalField], columns: Sequence[Column], shard: str) -> list[Code]:
    """Return how the columns of a structure are read."""
    codes = [_code(field, column, shard) for field, column in zip(fields, columns, strict=True)]
    numbers = itertools.count()
    return [
        replace(code, json=next(numbers)) if field.type == F.JSON else code
        for code, field in zip(codes, fields, strict=True)
    ]


def _compiled(lines: Sequence[str], namespace: dict[str, Any], shard: str) -> Callable[..., Any]:
    namespace["fb"] = int.from_bytes
    source = "\n".join(["def read(b,o,e,append):", *lines])
    exec(compile(source, f"<rows of {shard}>", "exec"), namespace)  # noqa: S102
    read: Callable[..., Any] = namespace["read"]
    return read


def _image(codes: Sequence[Code], columns: Sequence[Column], namespace: dict[str, Any], part: str = "") -> list[str]:
    """Return the source lines for one row image; `part` belongs to a partial update."""
    bitmap = (len(codes) + 7) // 8
    filled = sum(1 << number for number, column in enumerate(columns) if not column.nullable)
    lines = [f"  n=fb(b[o:o+{bitmap}],'little')", f"  o+={bitmap}"]
    if filled:
        # A NULL here means that the rows do not have the tracked structure.
        lines.append(f"  if n&{filled}: raise ValueError('NULL in a NOT NULL column')")
    number = 0
    while number < len(codes):
        run = _run(codes, columns, number)
        if run > 1:
            lines += _integers(codes[number : number + run], number, namespace)
        elif part and codes[number].json != NO_JSON:
            lines += _json(codes[number], number, part, namespace)
        else:
            lines += _column(codes[number], number, columns[number].nullable, namespace)
        number += max(run, 1)
    kept = "".join(f"c{k}," for k, column in enumerate(columns) if not column.is_generated)
    return [*lines, "  if o>e: raise IndexError('a row extends beyond the end of its event')", f"  append(({kept}))"]


def _json(code: Code, number: int, part: str, namespace: dict[str, Any]) -> list[str]:
    """Store the document of a BEFORE image, and use it where the AFTER image has only changes."""
    namespace[f"t{number}"] = code.then
    value = f"   s=fb(b[o:o+{code.prefix}],'little'); o+={code.prefix}; d=b[o:o+s]; o+=s"
    read = f"   c{number}=t{number}(d)"
    if part == "before":
        return [f"  if n&{1 << number}: c{number}=j{number}=None", "  else:", value, f"   j{number}=d", read]
    changed = f"   if p>>{code.json}&1: c{number}=patched(j{number},d)"
    return [f"  if n&{1 << number}: c{number}=None", "  else:", value, changed, f"   else: {read.strip()}"]


def _patched(before: bytes | None, changes: bytes) -> bytes:
    if before is None:
        raise ValueError("changes of a JSON value that is NULL")
    return patched_text(before, changes)


def _run(codes: Sequence[Code], columns: Sequence[Column], start: int) -> int:
    end = start
    while end < len(codes) and codes[end].integer and not columns[end].nullable:
        end += 1
    return end - start


def _integers(codes: Sequence[Code], first: int, namespace: dict[str, Any]) -> list[str]:
    unpack = struct.Struct("<" + "".join(code.integer for code in codes))
    namespace[f"u{first}"] = unpack.unpack_from
    names = ",".join(f"c{first + k}" for k in range(len(codes)))
    return [f"  {names}=u{first}(b,o); o+={unpack.size}"]


def _column(code: Code, number: int, nullable: bool, namespace: dict[str, Any]) -> list[str]:
    body = _value(code, number, namespace)
    if not nullable:
        return [f"  {body}"]
    return [f"  if n&{1 << number}: c{number}=None", "  else:", f"   {body}"]


def _value(code: Code, number: int, namespace: dict[str, Any]) -> str:
    if code.integer:
        unpack = struct.Struct("<" + code.integer)
        namespace[f"u{number}"] = unpack.unpack_from
        return f"c{number},=u{number}(b,o); o+={unpack.size}"
    if code.convert:
        namespace[f"f{number}"] = code.convert
        return f"c{number}=f{number}(b,o); o+={code.width}"
    size = {1: "b[o]", 2: "b[o]|b[o+1]<<8"}.get(code.prefix, f"fb(b[o:o+{code.prefix}],'little')")
    value = "b[o:o+s]"
    if code.then:
        namespace[f"t{number}"] = code.then
        value = f"t{number}({value})"
    return f"s={size}; o+={code.prefix}; c{number}={value}; o+=s"


def _code(field: PhysicalField, column: Column, shard: str) -> Code:
    kind = column.data_type
    if kind in INTEGERS:
        return _integer(field, column)
    if kind in ("float", "double", "decimal", "bit"):
        return _number(field, column)
    if kind in ("enum", "set"):
        return _labelled(field, column, shard)
    if kind in ("binary", *FIXED_BYTES):
        return _padded(field, column)
    if kind in ("char", "varchar", "varbinary", "vector", "json", *PREFIX_BYTES, *GEOMETRIES):
        return _bytes(field, column)
    return _temporal(field, column, shard)


def _bytes(field: PhysicalField, column: Column) -> Code:
    prefix = (2 if field.a > 255 else 1) if field.type in _SHORT else field.a
    if field.type in (F.VARCHAR_COMPRESSED, F.BLOB_COMPRESSED):
        return Code(prefix=prefix, then=values.inflated)
    match column.data_type:
        case "json":
            return Code(prefix=prefix, then=json_text)
        case "vector":
            return Code(prefix=prefix, then=values.vector_of(column.numbers[0]))
        case _:
            return Code(prefix=prefix)


def _number(field: PhysicalField, column: Column) -> Code:
    match column.data_type:
        case "float":
            return Code(convert=values.float_text("<f", None), width=4)
        case "double":
            return _double(column)
        case "decimal":
            return _decimal(field, column)
        case _:
            return Code(convert=values.bit_bytes(field.a, field.b), width=field.a + (field.b > 0))


def _integer(field: PhysicalField, column: Column) -> Code:
    unsigned = column.is_unsigned
    finish = _padded_integers(column) if "zerofill" in column.column_type else _integers_text(unsigned)
    plain = "zerofill" not in column.column_type
    if field.type == F.INT24:
        together = int24_column(unsigned) if plain else None
        return Code(convert=_unsigned24 if unsigned else _signed24, width=3, finish=finish, together=together)
    return Code(integer=INTEGER_CODES[F(field.type)][unsigned], finish=finish, plain=plain)


def _signed24(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 3], "little", signed=True)


def _unsigned24(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 3], "little")


def _decimal(field: PhysicalField, column: Column) -> Code:
    width = values.decimal_bytes(field.a, field.b)
    finish: Finish | None = None
    together = decimal_column(field.a, field.b)
    if "zerofill" in column.column_type:
        finish, together = _padded_texts(field.a + (field.b > 0)), None
    return Code(convert=values.decimal_text(field.a, field.b), width=width, finish=finish, together=together)


def _labelled(field: PhysicalField, column: Column, shard: str) -> Code:
    labels = encoded_labels(column, shard)
    charset = column.charset or "utf8mb4"
    if column.data_type == "enum":
        together = enum_column(labels, field.a)
        return Code(convert=values.enum_text(labels, field.a), width=field.a, together=together)
    return Code(convert=values.set_text(labels, field.a, encode(",", charset)), width=field.a)


def _padded(field: PhysicalField, column: Column) -> Code:
    """Restore trailing zero bytes, which are part of the value but not stored in the binlog."""
    width = FIXED_BYTES.get(column.data_type, field.a)
    show = {"uuid": values.uuid_text, "inet4": values.inet4_text, "inet6": values.inet6_text}.get(column.data_type)

    def pad(value: bytes) -> bytes:
        if len(value) > width:
            raise ValueError(f"{len(value)} bytes in a column of {width}")
        whole = value.ljust(width, b"\0")
        return show(whole) if show else whole

    return Code(prefix=2 if field.a > 255 else 1, then=pad, padded=0 if show else width)


def _temporal(field: PhysicalField, column: Column, shard: str) -> Code:
    fraction = values.fraction_bytes(field.a)
    match field.type:
        case F.DATE | F.NEWDATE:
            return Code(convert=values.date_text, width=3, together=date_column)
        case F.DATETIME:
            together = datetime_column(field.a)
            return Code(convert=values.datetime_text(field.a), width=5 + fraction, together=together)
        case F.TIMESTAMP:
            together = timestamp_column(field.a)
            return Code(convert=values.timestamp_text(field.a), width=4 + fraction, together=together)
        case F.TIME:
            return Code(convert=values.time_text(field.a), width=3 + fraction)
        case F.YEAR if column.column_type != "year(2)":
            return Code(convert=values.year_text, width=1, together=year_column)
        case F.TIME_OLD | F.DATETIME_OLD | F.TIMESTAMP_OLD:
            return _old_temporal(F(field.type), (*column.numbers, 0)[0])
        case _:
            raise UnsupportedColumn(shard, column.name, f"{column.column_type} stored as {field}")


def _old_temporal(kind: F, digits: int) -> Code:
    if digits:
        convert, width = _OLD_FRACTIONS[kind](digits)
        return Code(convert=convert, width=width)
    if kind == F.TIME_OLD:
        return Code(convert=values.old_time_text, width=3)
    if kind == F.DATETIME_OLD:
        return Code(convert=values.old_datetime_text, width=8)
    return Code(convert=values.old_timestamp_text, width=4)


_OLD_FRACTIONS = {
    F.TIME_OLD: values.old_time_fraction,
    F.DATETIME_OLD: values.old_datetime_fraction,
    F.TIMESTAMP_OLD: values.old_timestamp_fraction,
}


def _double(column: Column) -> Code:
    """Print DOUBLE(m,d) with exactly d digits, and ZEROFILL with the full display width."""
    width, digits = column.numbers or (DOUBLE_WIDTH, None)
    finish = _padded_texts(width) if "zerofill" in column.column_type else None
    together = double_column if digits is None and finish is None else None
    return Code(convert=values.float_text("<d", digits), width=8, finish=finish, together=together)


def _binary(cells: Sequence[bytes | None]) -> pa.Array:
    return pa.array(cells, pa.binary())


def _integers_text(unsigned: bool) -> Finish:
    kind = pa.uint64() if unsigned else pa.int64()
    return lambda cells: as_text(pa.array(cells, kind))


def _padded_integers(column: Column) -> Finish:
    """Print the leading zeros of ZEROFILL, as the server does."""
    pad = _padded_texts(column.numbers[0])
    return lambda cells: pad([None if cell is None else b"%d" % cell for cell in cells])


def _padded_texts(width: int) -> Finish:
    return lambda cells: _binary([None if cell is None else cell.rjust(width, b"0") for cell in cells])
