"""Convert bytes of a row image to canonical values: the text that MySQL prints, in the column's own charset.

Dump, binlog and held files must contain equal bytes for equal values. So every rule here is a rule of the server's text
protocol, and tests compare both: `1e20` and not `1e+20`, `-00:00:00.1`, labels of ENUM and SET in the column's charset.
A converter takes (bytes, offset). Bytes that are not a valid value of the type raise ValueError or IndexError, which
the decoder turns into a coded error.

**Binary JSON** of MySQL is converted to the text that the server prints; partial updates are applied.
A document is read into dicts, lists, and scalars that are already printed. The server orders the keys of an object by
length, then by bytes, and allows no duplicates; a document that violates this is damaged. A contradiction raises
ValueError or IndexError, which the decoder turns into a coded error.
"""

import itertools
import json
import math
import re
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from functools import lru_cache

from unshard.binlog.tablemap import packed

Converter = Callable[[bytes, int], bytes]
EPOCH_DAY = date(1970, 1, 1).toordinal()
FIXED_POINT = range(-14, 16)
"""Decimal point positions that MySQL prints without an exponent."""
MAX_HOURS = 838
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def fraction_bytes(digits: int) -> int:
    """Return the number of bytes that store this many fractional digits of a second."""
    return (digits + 1) // 2


def date_text(data: bytes, offset: int) -> bytes:
    """Read DATE: day, month and year in 5, 4 and 15 bits."""
    value = data[offset] | data[offset + 1] << 8 | data[offset + 2] << 16
    return _calendar(value >> 9, value >> 5 & 15, value & 31)


def datetime_text(digits: int) -> Converter:
    """Return the reader of DATETIME(digits)."""
    if not digits:
        return lambda data, offset: _whole_datetime(data[offset : offset + 5])
    fraction = _fraction(digits)
    return lambda data, offset: _whole_datetime(data[offset : offset + 5]) + fraction(data, offset + 5)


def timestamp_text(digits: int) -> Converter:
    """Return the reader of TIMESTAMP(digits); the text is UTC."""
    fraction = _fraction(digits)
    width = 4 + fraction_bytes(digits)

    def read(data: bytes, offset: int) -> bytes:
        if not any(data[offset : offset + width]):
            return b"0000-00-00 00:00:00" + fraction(data, offset + 4)
        return _epoch(int.from_bytes(data[offset : offset + 4], "big")) + fraction(data, offset + 4)

    return read


def time_text(digits: int) -> Converter:
    """Return the reader of TIME(digits): integer and fraction are one number in offset binary."""
    extra = fraction_bytes(digits)
    shift, zero, width = 8 * extra, 0x800000 << 8 * extra, 3 + extra

    def read(data: bytes, offset: int) -> bytes:
        value = int.from_bytes(data[offset : offset + width], "big") - zero
        sign, value = (b"-", -value) if value < 0 else (b"", value)
        whole = value >> shift
        text = sign + _hours(whole)
        return text + _fraction_text(value & (1 << shift) - 1, digits) if digits else text

    return read


def date_of(value: int) -> bytes:
    """Print a DATE from JSON: a packed date and time of day, whose time must be zero."""
    if value < 0 or value & 0x1FFFFFFFFFF:
        raise ValueError("a date with a time of day")
    return _months(value >> 41)


def datetime_of(value: int) -> bytes:
    """Print a DATETIME or TIMESTAMP from JSON, always with microseconds."""
    if value < 0:
        raise ValueError("a negative DATETIME")
    return _months(value >> 41) + _clock(value >> 24 & 0x1FFFF) + _fraction_text(value & 0xFFFFFF, 6)


def time_of(value: int) -> bytes:
    """Print a TIME from JSON, always with microseconds."""
    sign, value = (b"-", -value) if value < 0 else (b"", value)
    return sign + _hours(value >> 24) + _fraction_text(value & 0xFFFFFF, 6)


def vector_of(dimensions: int) -> Callable[[bytes], bytes]:
    """Return a function that checks a VECTOR of at most `dimensions` numbers; its value is their bytes."""

    def check(value: bytes) -> bytes:
        if len(value) % 4 or not 0 < len(value) <= 4 * dimensions:
            raise ValueError(f"a VECTOR({dimensions}) of {len(value)} bytes")
        return value

    return check


def inflated(value: bytes) -> bytes:
    """Decompress a value of a COMPRESSED column of MariaDB; short values are a zero byte and the plain bytes."""
    if not value or value[0] == 0:
        return value[1:]
    head, count = value[0], value[0] & 7
    if head >> 4 != 8 or not 1 <= count <= 4:
        raise ValueError(f"compression {head:#x} of a column")
    size = int.from_bytes(value[1 : 1 + count], "big")
    return unzipped(value[1 + count :], size, -zlib.MAX_WBITS if head & 8 else zlib.MAX_WBITS)


def unzipped(data: bytes, size: int, window: int = zlib.MAX_WBITS) -> bytes:
    """Decompress exactly `size` bytes; more are never in memory, whatever the data would become."""
    unpack = zlib.decompressobj(window)
    try:
        plain = unpack.decompress(data, size + 1)
    except zlib.error as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error
    if len(plain) != size or not unpack.eof or unpack.unused_data:
        raise ValueError("its decompressed length differs from its length field")
    return plain


def old_time_text(data: bytes, offset: int) -> bytes:
    """Read TIME of before MySQL 5.6: a signed decimal HHMMSS."""
    value = int.from_bytes(data[offset : offset + 3], "little", signed=True)
    sign, value = (b"-", -value) if value < 0 else (b"", value)
    return b"%s%02d:%02d:%02d" % (sign, value // 10000, *_sixties(value // 100 % 100, value % 100))


def old_datetime_text(data: bytes, offset: int) -> bytes:
    """Read DATETIME of before MySQL 5.6: a decimal YYYYMMDDhhmmss."""
    days, clock = divmod(int.from_bytes(data[offset : offset + 8], "little"), 1_000_000)
    day = _calendar(days // 10000, days // 100 % 100, days % 100)
    if clock >= 240000:
        raise ValueError("an hour above 23")
    return day + b" %02d:%02d:%02d" % (clock // 10000, *_sixties(clock // 100 % 100, clock % 100))


def old_timestamp_text(data: bytes, offset: int) -> bytes:
    """Read TIMESTAMP of before MySQL 5.6."""
    value = int.from_bytes(data[offset : offset + 4], "little")
    return _epoch(value) if value else b"0000-00-00 00:00:00"


def old_time_fraction(digits: int) -> tuple[Converter, int]:
    """Return the reader of TIME(digits) without mysql56_temporal_format and its size; 0 is the lowest value."""
    width, zero = (4, 4, 5, 5, 5, 6)[digits - 1], (MAX_HOURS + 1) * 3600 * 10**digits

    def read(data: bytes, offset: int) -> bytes:
        value = int.from_bytes(data[offset : offset + width], "big") - zero
        sign, value = (b"-", -value) if value < 0 else (b"", value)
        seconds, fraction = divmod(value, 10**digits)
        if seconds >= (MAX_HOURS + 1) * 3600:
            raise ValueError(f"a TIME above {MAX_HOURS} hours")
        return sign + b"%02d:%02d:%02d.%0*d" % (seconds // 3600, seconds // 60 % 60, seconds % 60, digits, fraction)

    return read, width


def old_datetime_fraction(digits: int) -> tuple[Converter, int]:
    """Return the same for DATETIME(digits): one number with thirteen months per year, 32 days per month, and so on."""
    width = (6, 6, 7, 7, 7, 8)[digits - 1]

    def read(data: bytes, offset: int) -> bytes:
        value, fraction = divmod(int.from_bytes(data[offset : offset + width], "big"), 10**digits)
        day, second = divmod(value, 86400)
        month, day = divmod(day, 32)
        clock = b" %02d:%02d:%02d" % (second // 3600, second // 60 % 60, second % 60)
        return _calendar(month // 13, month % 13, day) + clock + b".%0*d" % (digits, fraction)

    return read, width


def old_timestamp_fraction(digits: int) -> tuple[Converter, int]:
    """Return the same for TIMESTAMP(digits): seconds and the fraction."""
    width = fraction_bytes(digits)

    def read(data: bytes, offset: int) -> bytes:
        seconds = int.from_bytes(data[offset : offset + 4], "big")
        fraction = int.from_bytes(data[offset + 4 : offset + 4 + width], "big")
        text = b".%0*d" % (digits, fraction)
        if len(text) != digits + 1:
            raise ValueError("a fraction of a second has too many digits")
        return (_epoch(seconds) if seconds or fraction else b"0000-00-00 00:00:00") + text

    return read, 4 + width


def year_text(data: bytes, offset: int) -> bytes:
    """Read YEAR: years since 1900, and 0 for 0000."""
    return b"%d" % (data[offset] + 1900) if data[offset] else b"0000"


def decimal_bytes(precision: int, scale: int) -> int:
    """Return the size of a DECIMAL in bytes: four bytes for nine digits, fewer for the rest."""
    whole = precision - scale
    return whole // 9 * 4 + DIGIT_BYTES[whole % 9] + scale // 9 * 4 + DIGIT_BYTES[scale % 9]


def decimal_text(precision: int, scale: int) -> Converter:
    """Return the reader of DECIMAL(precision, scale); all digits of the scale are printed."""
    width = decimal_bytes(precision, scale)
    groups = _decimal_groups(precision - scale, scale)
    sign_bit, ones = 1 << 8 * width - 1, (1 << 8 * width) - 1

    def read(data: bytes, offset: int) -> bytes:
        value = int.from_bytes(data[offset : offset + width], "big") ^ sign_bit
        negative = value & sign_bit
        value = value ^ ones if negative else value
        number = 0
        for shift, mask, limit in groups:
            group = value >> shift & mask
            if group >= limit:
                raise ValueError("a DECIMAL group has too many digits")
            number = number * limit + group
        digits = b"%0*d" % (scale + 1, number)
        text = digits[:-scale] + b"." + digits[-scale:] if scale else digits
        return b"-" + text if negative else text

    return read


def _decimal_groups(whole: int, scale: int) -> tuple[tuple[int, int, int], ...]:
    sizes = [whole % 9] + [9] * (whole // 9) + [9] * (scale // 9) + [scale % 9]
    shift = 8 * sum(DIGIT_BYTES[digits] for digits in sizes)
    groups = []
    for digits in filter(None, sizes):
        shift -= 8 * DIGIT_BYTES[digits]
        groups.append((shift, (1 << 8 * DIGIT_BYTES[digits]) - 1, 10**digits))
    return tuple(groups)


def float_text(code: str, digits: int | None) -> Converter:
    """Return the reader of FLOAT (`<f`) or DOUBLE (`<d`); `digits` are those of DOUBLE(m,d)."""
    unpack = struct.Struct(code).unpack_from

    def read(data: bytes, offset: int) -> bytes:
        (value,) = unpack(data, offset)
        if not math.isfinite(value):
            raise ValueError("a number that is not finite")
        return number_text(value) if digits is None else _fixed_text(value, digits)

    return read


def number_text(value: float) -> bytes:
    """Print a double as MySQL does: the shortest digits that read back, without exponent from 1e-15 to 1e15."""
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent and mantissa.endswith(".0") and len(mantissa) <= 17:
        return mantissa[:-2].encode()
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    point = len(whole) + int(exponent or 0)
    digits = (whole + fraction).rstrip("0")
    point -= len(digits) - len(digits.lstrip("0"))
    return (sign + _placed(digits.lstrip("0"), point)).encode()


def _fixed_text(value: float, digits: int) -> bytes:
    """Print `digits` digits after the point: the shortest form that reads back, then zeros."""
    shortest = format(Decimal(repr(value)), "f")
    _, _, fraction = shortest.partition(".")
    if len(fraction) > digits:
        return b"%.*f" % (digits, value)
    whole = shortest.partition(".")[0]
    return f"{whole}.{fraction.ljust(digits, '0')}".encode() if digits else whole.encode()


def _placed(digits: str, point: int) -> str:
    if not digits:
        return "0"
    if point not in FIXED_POINT and not 0 < point < len(digits):
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{digits[0]}{rest}e{point - 1}"
    if point <= 0:
        return "0." + "0" * -point + digits
    if point >= len(digits):
        return digits + "0" * (point - len(digits))
    return digits[:point] + "." + digits[point:]


def bit_bytes(whole: int, odd: int) -> Converter:
    """Return the reader of BIT: its value is the stored bytes; `odd` bits are in one more byte before the wholeones."""
    width = whole + (odd > 0)

    def read(data: bytes, offset: int) -> bytes:
        if odd and data[offset] >> odd:
            raise ValueError("a BIT has more bits than its column")
        return data[offset : offset + width]

    return read


def enum_text(labels: Sequence[bytes], width: int) -> Converter:
    """Return the reader of ENUM; number 0 is the empty label of an invalid value."""
    members = (b"", *labels)

    def read(data: bytes, offset: int) -> bytes:
        return members[int.from_bytes(data[offset : offset + width], "little")]

    return read


def set_text(labels: Sequence[bytes], width: int, comma: bytes) -> Converter:
    """Return the reader of SET: one bit for each label; `comma` is a comma in the column's charset."""

    @lru_cache(4096)
    def members(bits: int) -> bytes:
        if bits >> len(labels):
            raise ValueError("a SET has a member without a label")
        return comma.join(label for number, label in enumerate(labels) if bits >> number & 1)

    def read(data: bytes, offset: int) -> bytes:
        return members(int.from_bytes(data[offset : offset + width], "little"))

    return read


def uuid_text(value: bytes) -> bytes:
    """Print MariaDB's UUID."""
    digits = value.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode()


def inet4_text(value: bytes) -> bytes:
    """Print MariaDB's INET4."""
    return b"%d.%d.%d.%d" % tuple(value)


def inet6_text(value: bytes) -> bytes:
    """Print MariaDB's INET6: the first longest run of zero words is left out, even a single one."""
    words = struct.unpack(">8H", value)
    runs = [(start, _zeros(words, start)) for start in range(8)]
    start, length = max(runs, key=lambda run: (run[1], -run[0]))
    if start == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        return b"::" + b"ffff:" * (length == 5) + inet4_text(value[12:])
    if not length:
        return ":".join(map("{:x}".format, words)).encode()
    return "::".join(":".join(map("{:x}".format, part)) for part in (words[:start], words[start + length :])).encode()


def _zeros(words: Sequence[int], start: int) -> int:
    return next((number for number, word in enumerate(words[start:]) if word), len(words) - start)


def _fraction(digits: int) -> Converter:
    width = fraction_bytes(digits)
    if not digits:
        return lambda data, offset: b""
    return lambda data, offset: _fraction_text(int.from_bytes(data[offset : offset + width], "big"), digits)


def _fraction_text(value: int, digits: int) -> bytes:
    """Print a fraction; an odd number of digits is stored with a zero after it."""
    if digits % 2:
        value, rest = divmod(value, 10)
        if rest:
            raise ValueError("a fraction of a second has an extra digit")
    text = b".%0*d" % (digits, value)
    if len(text) != digits + 1:
        raise ValueError("a fraction of a second has too many digits")
    return text


def _hours(value: int) -> bytes:
    if value >> 12 > MAX_HOURS:
        raise ValueError(f"a TIME above {MAX_HOURS} hours")
    return b"%02d:%02d:%02d" % (value >> 12, *_sixties(value >> 6 & 63, value & 63))


def _sixties(minute: int, second: int) -> tuple[int, int]:
    if minute > 59 or second > 59:
        raise ValueError("a minute or second above 59")
    return minute, second


@lru_cache(1 << 16)
def _calendar(year: int, month: int, day: int) -> bytes:
    """Print a date. MySQL allows zero and partial dates, so only the limits of each part are checked."""
    if year > 9999 or month > 12 or day > 31:
        raise ValueError("a date outside the calendar")
    return b"%04d-%02d-%02d" % (year, month, day)


@lru_cache(1 << 16)
def _whole_datetime(packed: bytes) -> bytes:
    value = int.from_bytes(packed, "big") - 0x8000000000
    if value < 0:
        raise ValueError("a negative DATETIME")
    return _months(value >> 17) + _clock(value & 0x1FFFF)


@lru_cache(1 << 16)
def _months(value: int) -> bytes:
    """Print the date half of DATETIME: thirteen months a year, because month 0 exists."""
    year, month = divmod(value >> 5, 13)
    return _calendar(year, month, value & 31)


@lru_cache(1 << 17)
def _clock(value: int) -> bytes:
    hour, minute, second = value >> 12, value >> 6 & 63, value & 63
    if hour > 23:
        raise ValueError("an hour above 23")
    return b" %02d:%02d:%02d" % (hour, *_sixties(minute, second))


def _epoch(seconds: int) -> bytes:
    day, rest = divmod(seconds, 86400)
    minutes, second = divmod(rest, 60)
    return _epoch_day(day) + _clock(minutes // 60 << 12 | minutes % 60 << 6 | second)


@lru_cache(1 << 15)
def _epoch_day(day: int) -> bytes:
    return date.fromordinal(EPOCH_DAY + day).isoformat().encode()


# --- binary JSON ---

Node = dict[bytes, "Node"] | list["Node"] | bytes
Leg = bytes | int
MAX_DEPTH = 100
_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_STRING, _OPAQUE = 12, 15
_LITERALS = (b"null", b"true", b"false")
_NUMBERS = {
    5: struct.Struct("<h"),
    6: struct.Struct("<H"),
    7: struct.Struct("<i"),
    8: struct.Struct("<I"),
    9: struct.Struct("<q"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<d"),
}
_DOUBLE = 11
_INLINE = {2: frozenset((_LITERAL, 5, 6)), 4: frozenset((_LITERAL, 5, 6, 7, 8))}
"""Types whose value is stored in place of an offset, by the size of offsets."""
_DATE, _TIME, _DATETIME, _TIMESTAMP, _DECIMAL, _VAR_STRING = 10, 11, 12, 7, 246, 253
_LINE = 76
"""Characters of base64 after which the server starts a new line."""
_REPLACE, _INSERT, _REMOVE = range(3)
_SPECIAL = re.compile(rb'[\x00-\x1f"\\]')
_ESCAPES = {b'"': b'\\"', b"\\": b"\\\\", b"\b": b"\\b", b"\f": b"\\f", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t"}
_LEG = re.compile(r'\[(?:(\d+)|(last)(?:-(\d+))?)\]|\.(?:"((?:[^"\\]|\\.)*)"|([^.\["]+))')


def json_text(data: bytes) -> bytes:
    """Print a document."""
    return printed_json(read_json(data))


def patched_text(before: bytes, diffs: bytes) -> bytes:
    """Print a document after applying the changes of a partial update in order."""
    root, offset = read_json(before), 0
    while offset < len(diffs):
        operation = diffs[offset]
        path, offset = _counted(diffs, offset + 1)
        value: Node = b""
        if operation != _REMOVE:
            document, offset = _counted(diffs, offset)
            value = read_json(document)
        _apply(root, operation, _legs(path.decode()), value)
    return printed_json(root)


def read_json(data: bytes) -> Node:
    """Read a document; an empty value is null, as in the server."""
    return _value(data[0], data[1:], MAX_DEPTH) if data else _LITERALS[0]


def printed_json(node: Node) -> bytes:
    """Print a document that was read."""
    match node:
        case bytes():
            return node
        case list():
            return b"[" + b", ".join(map(printed_json, node)) + b"]"
        case dict():
            return b"{" + b", ".join(_quoted(key) + b": " + printed_json(value) for key, value in node.items()) + b"}"


def _value(kind: int, data: bytes, depth: int) -> Node:
    if kind <= _LARGE_ARRAY:
        if depth == 0:
            raise ValueError("JSON is nested too deeply")
        return _container(kind, data, depth)
    if kind in _NUMBERS:
        (number,) = _NUMBERS[kind].unpack_from(data)
        return _double(number) if kind == _DOUBLE else b"%d" % number
    match kind:
        case _ if kind == _LITERAL:
            return _LITERALS[data[0]]
        case _ if kind == _STRING:
            return _quoted(_sized(data, 0))
        case _ if kind == _OPAQUE:
            return _opaque(data[0], _sized(data, 1))
        case _:
            raise ValueError(f"JSON of type {kind}")


def _container(kind: int, data: bytes, depth: int) -> Node:
    """Read an object or array: counts, entries of keys and values, then the data at their offsets."""
    width = 4 if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
    is_object = kind <= _LARGE_OBJECT
    count, size = _integer(data, 0, width), _integer(data, width, width)
    values = 2 * width + (count * (width + 2) if is_object else 0)
    entries_end = values + count * (1 + width)
    if not entries_end <= size <= len(data):
        raise ValueError(f"JSON of {size} bytes in {len(data)}")
    data = data[:size]
    found: list[Node] = []
    for entry in range(values, entries_end, 1 + width):
        child, at = data[entry], entry + 1
        if child not in _INLINE[width]:
            at = _integer(data, at, width)
            if not entries_end <= at < size:
                raise ValueError("JSON points outside itself")
        found.append(_value(child, data[at:], depth - 1))
    if not is_object:
        return found
    return dict(zip(_keys(data, count, width, entries_end), found, strict=True))


def _keys(data: bytes, count: int, width: int, begins: int) -> list[bytes]:
    keys: list[bytes] = []
    for entry in range(2 * width, 2 * width + count * (width + 2), width + 2):
        at, size = _integer(data, entry, width), _integer(data, entry + width, 2)
        if at < begins or at + size > len(data):
            raise ValueError("a JSON key is outside its document")
        keys.append(data[at : at + size])
    if any(_order(one) >= _order(other) for one, other in itertools.pairwise(keys)):
        raise ValueError("JSON keys are out of order")
    return keys


def _order(key: bytes) -> tuple[int, bytes]:
    return len(key), key


def _integer(data: bytes, offset: int, width: int) -> int:
    if offset + width > len(data):
        raise IndexError("JSON is cut off")
    return int.from_bytes(data[offset : offset + width], "little")


def _sized(data: bytes, offset: int) -> bytes:
    """Read bytes that follow their length, which has seven bits in each byte."""
    size = shift = 0
    while True:
        byte = data[offset]
        size |= (byte & 127) << shift
        offset, shift = offset + 1, shift + 7
        if not byte & 128:
            break
        if shift > 28:
            raise ValueError("a length in JSON has too many bytes")
    if offset + size > len(data):
        raise IndexError("JSON is cut off")
    return data[offset : offset + size]


def _quoted(value: bytes) -> bytes:
    value.decode()
    return b'"' + (_SPECIAL.sub(_escaped, value) if _SPECIAL.search(value) else value) + b'"'


def _escaped(found: re.Match[bytes]) -> bytes:
    return _ESCAPES.get(found[0]) or b"\\u%04x" % ord(found[0])


def _double(value: float) -> bytes:
    """Print a double in a form that is read back as a double."""
    if value - value:
        raise ValueError("a JSON number is not finite")
    text = number_text(value)
    return text if b"." in text or b"e" in text else text + b".0"


def _opaque(kind: int, data: bytes) -> bytes:
    """Print a value that JSON has no type for; all but decimals and times become base64 with the type's number."""
    if kind in _TIMES:
        if len(data) != 8:
            raise ValueError(f"a time of {len(data)} bytes in JSON")
        return b'"' + _TIMES[kind](int.from_bytes(data, "little", signed=True)) + b'"'
    if kind == _DECIMAL:
        return _decimal(data)
    if kind == _VAR_STRING:
        return _quoted(data)
    encoded = b64encode(data)
    lines = b"\n".join(encoded[start : start + _LINE] for start in range(0, len(encoded), _LINE))
    return _quoted(b"base64:type%d:" % kind + lines)


def _decimal(data: bytes) -> bytes:
    precision, scale = data[0], data[1]
    if not 0 < precision <= 65 or scale > min(precision, 30) or len(data) != 2 + decimal_bytes(precision, scale):
        raise ValueError(f"DECIMAL({precision},{scale}) of {len(data)} bytes in JSON")
    return decimal_text(precision, scale)(data, 2)


_TIMES: dict[int, Callable[[int], bytes]] = {
    _DATE: date_of,
    _TIME: time_of,
    _DATETIME: datetime_of,
    _TIMESTAMP: datetime_of,
}


def _counted(data: bytes, offset: int) -> tuple[bytes, int]:
    size, offset = packed(data, offset)
    if offset + size > len(data):
        raise IndexError("a JSON change is cut off")
    return data[offset : offset + size], offset + size


def _legs(path: str) -> list[Leg]:
    """Parse a path without wildcards:

    keys as bytes, array indexes as numbers, indexes from the end as negative numbers.
    """
    legs: list[Leg] = []
    offset = 1
    while offset < len(path) and (found := _LEG.match(path, offset)):
        cell, last, back, quoted, name = found.groups()
        if cell:
            legs.append(int(cell))
        elif last:
            legs.append(-1 - int(back or 0))
        else:
            legs.append((name or json.loads(f'"{quoted}"')).encode())
        offset = found.end()
    if path[:1] != "$" or offset != len(path) or not legs:
        raise ValueError(f"the path {path} of a change of JSON")
    return legs


def _apply(root: Node, operation: int, legs: list[Leg], value: Node) -> None:
    node = root
    for leg in legs[:-1]:
        node = _child(node, leg)
    last = legs[-1]
    if operation == _INSERT:
        _insert(node, last, value)
        return
    _child(node, last)
    if operation not in (_REPLACE, _REMOVE):
        raise ValueError(f"operation {operation} on JSON")
    if isinstance(node, dict) and isinstance(last, bytes):
        if operation == _REPLACE:
            node[last] = value
        else:
            del node[last]
    elif isinstance(node, list) and isinstance(last, int):
        node[last : last + 1 or None] = [value] if operation == _REPLACE else []


def _child(node: Node, leg: Leg) -> Node:
    if isinstance(node, dict) and isinstance(leg, bytes) and leg in node:
        return node[leg]
    if isinstance(node, list) and isinstance(leg, int) and -len(node) <= leg < len(node):
        return node[leg]
    raise ValueError(f"a JSON change refers to {leg!r}, which does not exist")


def _insert(node: Node, leg: Leg, value: Node) -> None:
    if isinstance(node, dict) and isinstance(leg, bytes) and leg not in node:
        node[leg] = value
        ordered = sorted(node.items(), key=lambda item: _order(item[0]))
        node.clear()
        node.update(ordered)
    elif isinstance(node, list) and isinstance(leg, int):
        node.insert(leg, value)
    else:
        raise ValueError(f"a change of JSON inserts {leg!r}, which cannot be")
