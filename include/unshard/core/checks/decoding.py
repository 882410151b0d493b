"""Compares one value of our decoder with the value that mysql-replication reads from the same bytes.

Our decoder gives the canonical text of a value as bytes. mysql-replication gives a Python object. This module knows
which objects mean the same as which text, and which values mysql-replication cannot read.

| type | how it is compared |
|---|---|
| integers, DECIMAL | as numbers; our text of a ZEROFILL column has leading zeros |
| FLOAT, DOUBLE | as numbers; with digits, such as DOUBLE(8,2), after rounding |
| BIT | the digits of mysql-replication as bytes |
| character strings, BLOB, GEOMETRY | as stored bytes; no decoder converts the character set |
| BINARY | after adding the zero bytes at the end, which the binlog leaves out |
| UUID, INET4, INET6 | our text, as stored bytes |
| ENUM, SET | by the labels of the column |
| JSON of MySQL | as parsed documents |
| DATE, DATETIME, TIME | as text or as a duration |
| TIMESTAMP, YEAR | as text; zero is `1970-01-01 00:00:00` and 1900 for mysql-replication |
"""

import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from ipaddress import ip_address

from unshard.core.model import Column


class Reason(StrEnum):
    """Why something is not compared; the text continues a number."""

    OTHER_STRUCTURE = "events of tables that had another structure than now"
    VERSIONED = "events of system-versioned tables, whose history unshard leaves out"
    UNKNOWN_TYPE = "events of tables with a column type that mysql-replication does not know"
    COMPRESSED = "compressed events, which mysql-replication leaves out"
    ROLLED_BACK = "events that were rolled back or only prepared"
    PARTIAL_JSON = "events with partial JSON updates"
    UNREADABLE = "events that mysql-replication cannot read"
    ABSENT = "values that the row image leaves out"
    ZERO_DATE = "zero or partial dates, which mysql-replication reads as NULL"
    NEGATIVE_TIME = "negative TIME values with a fraction, which mysql-replication reads wrong"
    LATE_TIMESTAMP = "TIMESTAMP values after 2038-01-19 03:14:07, which mysql-replication reads wrong"
    JSON_TYPE = "JSON values with a decimal, a date, a time or binary data inside"


@dataclass(frozen=True, slots=True)
class Absent:
    """A column that the row image of mysql-replication does not have."""


ABSENT = Absent()
DATES = frozenset({"date", "datetime", "timestamp"})
OWN_TYPES = frozenset({"vector"})
"""Types of MySQL that mysql-replication does not know; the columns after one are read wrong."""
LAST_TIMESTAMP = b"2038-01-19 03:14:07.999999"
_PARTIAL = re.compile(rb"0000-|\d{4}-00-|\d{4}-\d\d-00")


def is_known(column: Column) -> bool:
    """Whether mysql-replication knows the type of the column in the binlog."""
    return column.data_type not in OWN_TYPES and "compressed" not in column.column_type.lower()


def compare(ours: bytes | None, theirs: object, column: Column) -> bool | Reason:
    """Return whether both values are equal, or why they cannot be compared."""
    if theirs is ABSENT:
        return Reason.ABSENT
    if ours is None or theirs is None:
        return _with_null(ours, theirs, column)
    if column.data_type == "json":
        return _json(ours, theirs)
    for kind, compared in _BY_KIND:
        if isinstance(theirs, kind):
            with suppress(ValueError, ArithmeticError):
                return compared(ours, theirs, column)
            return False
    return False


def _with_null(ours: bytes | None, theirs: object, column: Column) -> bool | Reason:
    if ours is None or theirs is not None:
        return ours is None and theirs is None
    if column.data_type in DATES and _PARTIAL.match(ours):
        return Reason.ZERO_DATE
    return column.data_type == "json" and ours == b"null"


def _bytes(ours: bytes, theirs: bytes, column: Column) -> bool:
    match column.data_type:
        case "binary":
            return ours == theirs.ljust(_last_number(column), b"\0")
        case "uuid":
            return bytes.fromhex(ours.decode().replace("-", "")) == theirs.ljust(16, b"\0")
        case "inet4" | "inet6":
            packed = ip_address(ours.decode()).packed
            return packed == theirs.ljust(len(packed), b"\0")
        case _:
            return ours == theirs


def _integer(ours: bytes, theirs: int, column: Column) -> bool:
    if column.data_type == "year" and theirs == 1900:
        return ours == b"0000"
    return int(ours) == theirs


def _float(ours: bytes, theirs: float, column: Column) -> bool:
    value = float(ours)
    if value == theirs or "," not in column.column_type:
        return value == theirs
    return math.isclose(value, theirs, rel_tol=1e-15, abs_tol=0.5000001 * 10.0 ** -_last_number(column))


def _decimal(ours: bytes, theirs: Decimal, column: Column) -> bool:
    return Decimal(ours.decode()) == theirs


def _bit(ours: bytes, theirs: str, column: Column) -> bool:
    return int(theirs, 2).to_bytes(len(ours), "big") == ours


def _moment(ours: bytes, theirs: datetime, column: Column) -> bool | Reason:
    if column.data_type == "timestamp" and _PARTIAL.match(ours):
        return theirs == datetime(1970, 1, 1)
    digits = _last_number(column)
    text = f"{theirs.isoformat(' ', 'microseconds')}"[: 20 + digits if digits else 19].encode()
    if text != ours and column.data_type == "timestamp" and ours > LAST_TIMESTAMP:
        return Reason.LATE_TIMESTAMP
    return text == ours


def _day(ours: bytes, theirs: date, column: Column) -> bool:
    return theirs.isoformat().encode() == ours


def _time(ours: bytes, theirs: timedelta, column: Column) -> bool | Reason:
    hours, minutes, seconds = ours.decode().lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    micros = int(fraction.ljust(6, "0") or 0)
    value = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(whole), microseconds=micros)
    is_negative = ours.startswith(b"-")
    equal = theirs == (-value if is_negative else value)
    return Reason.NEGATIVE_TIME if not equal and is_negative and micros else equal


_BY_KIND: tuple[tuple[type, Callable[..., bool | Reason]], ...] = (
    (bytes, _bytes),
    (int, _integer),
    (float, _float),
    (Decimal, _decimal),
    (str, _bit),
    (datetime, _moment),
    (date, _day),
    (timedelta, _time),
)
"""A datetime is a date, too, so it comes first."""


def _json(ours: bytes, theirs: object) -> bool | Reason:
    if _same(json.loads(ours), theirs):
        return True
    return Reason.JSON_TYPE if _has_own_types(theirs) or b'"base64:' in ours else False


def _same(ours: object, theirs: object) -> bool:
    """Compare two JSON documents; 1 and true are different, 1 and 1.0 are equal."""
    theirs = theirs.decode() if isinstance(theirs, bytes) else theirs
    match ours, theirs:
        case dict(), dict():
            named = {name.decode() if isinstance(name, bytes) else name: value for name, value in theirs.items()}
            return ours.keys() == named.keys() and all(_same(value, named[name]) for name, value in ours.items())
        case list(), list():
            return len(ours) == len(theirs) and all(map(_same, ours, theirs))
        case (bool(), _) | (_, bool()):
            return ours is theirs
        case _:
            return ours == theirs


def _has_own_types(value: object) -> bool:
    match value:
        case dict():
            return any(map(_has_own_types, value.values()))
        case list():
            return any(map(_has_own_types, value))
        case _:
            return not isinstance(value, None | bool | int | float | str | bytes)


def _last_number(column: Column) -> int:
    """Return the digits after the point, or the length."""
    return (0, *column.numbers)[-1]
