"""Which objects of mysql-replication mean the same as our text, and which cannot be compared."""

from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest

from unshard.core.checks.decoding import ABSENT, NotCompared, compare, is_decoded_type
from unshard.core.model import Column


def column(column_type: str) -> Column:
    return Column("c", column_type.partition("(")[0].split()[0], column_type, True, "latin1", None, None, "")


@pytest.mark.parametrize(
    ("column_type", "ours", "theirs"),
    [
        ("int(5) unsigned zerofill", b"00042", 42),
        ("bigint unsigned", b"18446744073709551615", 18446744073709551615),
        ("year(4)", b"0000", 1900),
        ("decimal(10,2)", b"-0.50", Decimal("-0.5")),
        ("double", b"1e300", 1e300),
        ("float", b"0.10000000149011612", 0.10000000149011612),
        ("double(8,2)", b"-1.00", -1.005),
        ("bit(10)", b"\x02\x03", "1000000011"),
        ("binary(4)", b"ab\0\0", b"ab"),
        ("varchar(9)", b"\xe9", b"\xe9"),
        ("uuid", b"123e4567-e89b-12d3-a456-426655440000", bytes.fromhex("123e4567e89b12d3a45642665544")),
        ("inet6", b"::1", bytes(15) + b"\1"),
        ("inet4", b"1.2.3.0", b"\1\2\3"),
        ("date", b"2024-02-29", date(2024, 2, 29)),
        ("datetime(3)", b"2024-02-29 01:02:03.400", datetime(2024, 2, 29, 1, 2, 3, 400000)),
        ("timestamp", b"0000-00-00 00:00:00", datetime(1970, 1, 1)),
        ("time(1)", b"-00:00:01.0", -timedelta(seconds=1)),
        ("time(2)", b"838:59:59.25", timedelta(hours=838, minutes=59, seconds=59, milliseconds=250)),
        ("json", b'{"a": [1, 2.5, null, true]}', {b"a": [1, 2.5, None, True]}),
        ("json", b"null", None),
        ("int", None, None),
    ],
)
def test_equal(column_type: str, ours: bytes | None, theirs: object) -> None:
    assert compare(ours, theirs, column(column_type)) is True


@pytest.mark.parametrize(
    ("column_type", "ours", "theirs"),
    [
        ("int", b"1", 2),
        ("int", b"1", None),
        ("int", None, 1),
        ("double", b"0.1", 0.2),
        ("double(8,2)", b"-1.02", -1.005),
        ("decimal(10,2)", b"0.50", Decimal("0.51")),
        ("bit(10)", b"\x02\x04", "1000000011"),
        ("bit(1)", b"\x01", "111111111"),
        ("varchar(9)", b"a", b"a "),
        ("varchar(9)", b"", None),
        ("date", b"2024-02-29", date(2024, 2, 28)),
        ("datetime", b"2024-02-29 01:02:03", datetime(2024, 2, 29, 1, 2, 4)),
        ("timestamp", b"0000-00-00 00:00:00", datetime(1970, 1, 2)),
        ("time", b"-00:00:01", timedelta(seconds=1)),
        ("json", b"[true]", [1]),
        ("json", b'{"a": 1}', {b"b": 1}),
        ("inet4", b"1.2.3.x", b"\1\2\3\0"),
        ("int", b"1", object()),
    ],
)
def test_different(column_type: str, ours: bytes | None, theirs: object) -> None:
    assert compare(ours, theirs, column(column_type)) is False


@pytest.mark.parametrize(
    ("column_type", "ours", "theirs", "reason"),
    [
        ("date", b"2024-00-10", None, NotCompared.ZERO_DATE),
        ("datetime", b"0000-00-00 00:00:00", None, NotCompared.ZERO_DATE),
        ("time(1)", b"-00:00:00.1", timedelta(seconds=-1, microseconds=1), NotCompared.NEGATIVE_TIME),
        ("timestamp", b"2100-01-01 00:00:00", datetime(1963, 1, 1), NotCompared.LATE_TIMESTAMP),
        ("json", b"[1.50]", [Decimal("1.5"), 1], NotCompared.JSON_TYPE),
        ("json", b'["base64:type15:YQ=="]', ["a"], NotCompared.JSON_TYPE),
        ("int", b"5", ABSENT, NotCompared.ABSENT),
    ],
)
def test_not_comparable(column_type: str, ours: bytes, theirs: object, reason: NotCompared) -> None:
    assert compare(ours, theirs, column(column_type)) is reason


def test_types_that_mysql_replication_does_not_know() -> None:
    assert is_decoded_type(column("varchar(9)"))
    assert not is_decoded_type(column("vector(3)")) and not is_decoded_type(
        column("varchar(9) /*M!100301 COMPRESSED*/")
    )
