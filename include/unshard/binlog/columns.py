"""Print columns of values as text, all rows at once, with the same text as values.py returns value by value.

Each function takes bytes and the offsets of values that are not NULL. An unusual value raises ValueError or IndexError.
values.py is authoritative: the reader that uses it then reports the error, or reads the value.
"""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unshard.binlog.values import DIGIT_BYTES, decimal_bytes, fraction_bytes

Numbers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
Column = Callable[[Octets, Numbers], pa.Array]
DASH, COLON, SPACE, POINT = b"-: ."
PLAIN_DOUBLES = (1e-4, 1e9)
"""Magnitudes that Arrow prints as MySQL does."""


def date_column(data: Octets, starts: Numbers) -> pa.Array:
    """Print DATE."""
    value = _little(data, starts, 3)
    return _fixed(_calendar(np.empty((len(starts), 10), np.uint8), value >> 9, value >> 5 & 15, value & 31))


def datetime_column(digits: int) -> Column:
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


def timestamp_column(digits: int) -> Column:
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


def enum_column(labels: Sequence[bytes], width: int) -> Column:
    """Return the printer of ENUM."""
    members = pa.array([b"", *labels], pa.binary())

    def show(data: Octets, starts: Numbers) -> pa.Array:
        value = _little(data, starts, width)
        _demand(value < len(members))
        return members.take(pa.array(value))

    return show


def int24_column(unsigned: bool) -> Column:
    """Return the printer of MEDIUMINT."""

    def show(data: Octets, starts: Numbers) -> pa.Array:
        value = _little(data, starts, 3)
        return _text(pa.array(value if unsigned else value - ((value >> 23) << 24)))

    return show


def double_column(data: Octets, starts: Numbers) -> pa.Array:
    """Print DOUBLE."""
    value = np.ascontiguousarray(data[starts[:, None] + np.arange(8)]).view("<f8")[:, 0]
    size = np.abs(value)
    _demand(((size >= PLAIN_DOUBLES[0]) & (size < PLAIN_DOUBLES[1])) | (value == 0))
    return _text(pa.array(value))


def padded_column(data: Octets, starts: Numbers, sizes: Numbers, width: int) -> pa.Array:
    """Return values of BINARY with their trailing zero bytes, which are not stored."""
    _demand(sizes <= width)
    places = starts[:, None] + np.arange(width)
    return _fixed(data.take(places, mode="clip") * (np.arange(width) < sizes[:, None]).astype(np.uint8))


def decimal_column(precision: int, scale: int) -> Column | None:
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
        return _decimal(np.where(negative, -number, number), scale)

    return show


def _decimal(number: Numbers, scale: int) -> pa.Array:
    if not scale:
        return _text(pa.array(number))
    words = np.stack([number, number >> 63], axis=1)
    return _text(pa.Array.from_buffers(pa.decimal128(38, scale), len(number), [None, pa.py_buffer(words)]))


def _text(array: pa.Array) -> pa.Array:
    return array.cast(pa.string()).cast(pa.binary())


def _demand(holds: npt.NDArray[np.bool_]) -> None:
    if not holds.all():
        raise ValueError("a value is read one by one")


def _little(data: Octets, starts: Numbers, width: int) -> Numbers:
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
    """Return the digits of all numbers with this many digits."""
    return np.frombuffer(b"".join(b"%0*d" % (digits, n) for n in range(10**digits)), np.uint8).reshape(-1, digits)


@cache
def _days() -> Octets:
    """Return all dates that a TIMESTAMP can have."""
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
    """Create a column of texts of one length."""
    rows, width = text.shape
    offsets = np.arange(0, width * (rows + 1), width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
