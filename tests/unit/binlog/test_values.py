"""Canonical values without a server: labels, kinds of queries, and input that must raise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.binlog import values
from unshard.binlog.tablemap import FieldType as F
from unshard.binlog.tablemap import PhysicalField, agrees, packed
from unshard.binlog.transactions import QueryKind, classify
from unshard.core.model import Column
from unshard.core.sql.charsets import charset_of, decode, encode
from unshard.core.structures.columntypes import encoded_labels, read_labels
from unshard.errors.rows import UnsupportedColumn


def column(column_type: str, charset: str | None = None) -> Column:
    return Column("c", column_type.partition("(")[0], column_type, True, charset, None, None, "")


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("enum('a','b')", ("a", "b")),
        ("set('it''s','x,y',')')", ("it's", "x,y", ")")),
        ("enum('')", ("",)),
        (r"enum('a\\','\n\0\Z')", ("a\\", "\n\0\x1a")),
        ("enum('''','a'')')", ("'", "a')")),
    ],
)
def test_labels(text, labels):
    assert read_labels(text) == labels


def test_labels_that_no_codec_can_write_are_refused():
    assert encoded_labels(column("enum('plain')", "armscii8"), "s") == (b"plain",)
    with pytest.raises(UnsupportedColumn, match="armscii8"):
        encoded_labels(column("enum('ü')", "armscii8"), "s1 a.b")


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        (b"BEGIN", QueryKind.BEGIN, ""),
        (b"COMMIT", QueryKind.COMMIT, ""),
        (b"ROLLBACK", QueryKind.ROLLBACK, ""),
        (b"SAVEPOINT `A b`", QueryKind.SAVEPOINT, "a b"),
        (b"ROLLBACK TO `A b`", QueryKind.ROLLBACK_TO, "a b"),
        (b"rollback work to savepoint x", QueryKind.ROLLBACK_TO, "x"),
        (b"XA START X'61',X'',1", QueryKind.XA_BEGIN, "X'61',X'',1"),
        (b"XA END X'61',X'',1", QueryKind.XA_END, "X'61',X'',1"),
        (b"XA COMMIT X'61',X'6A',01", QueryKind.XA_COMMIT, "X'61',X'6a',1"),
        (b"XA ROLLBACK X'',X'',0", QueryKind.XA_ROLLBACK, "X'',X'',0"),
        (b"XA COMMIT X'61',X'',1 ONE PHASE", QueryKind.XA, ""),
        (b"XA RECOVER", QueryKind.XA, ""),
        (b"insert into t values (1)", QueryKind.DML, ""),
        (b"/* app */ -- x\n # y\n UPDATE t SET a=1", QueryKind.DML, ""),
        (b"/*!50000 DELETE FROM t */", QueryKind.DML, ""),
        (b"LOAD DATA INFILE 'x' INTO TABLE t", QueryKind.DML, ""),
        (b"ALTER TABLE t ADD c int", QueryKind.STATEMENT, ""),
        (b"TRUNCATE t", QueryKind.STATEMENT, ""),
        (b"/* INSERT */ DROP TABLE t", QueryKind.STATEMENT, ""),
        (b"", QueryKind.STATEMENT, ""),
    ],
)
def test_kinds_of_queries(text, kind, name):
    assert classify(text) == (kind, name)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_printed_doubles_read_back(value):
    text = values.number_text(value)
    assert float(text) == value
    assert b"+" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, b"0"),
        (-0.0, b"-0"),
        (1e15, b"1e15"),
        (1e14, b"100000000000000"),
        (1e-15, b"0.000000000000001"),
        (1e-16, b"1e-16"),
        (1.1, b"1.1"),
        (1e20, b"1e20"),
        (1962539299388703.2, b"1962539299388703.2"),
        (1962539299388703.0, b"1.962539299388703e15"),
        (-1.7e308, b"-1.7e308"),
        (123456789012345680.0, b"1.2345678901234568e17"),
    ],
)
def test_doubles(value, text):
    assert values.number_text(value) == text


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**11), max_value=10**11))
def test_decimals(value):
    width = values.decimal_bytes(15, 4)
    number = int(abs(value).scaleb(4).to_integral_value())
    if number >= 10**15:
        return
    whole, fraction = divmod(number, 10**4)
    stored = (whole // 10**9).to_bytes(1, "big") + (whole % 10**9).to_bytes(4, "big") + fraction.to_bytes(2, "big")
    packed_value = int.from_bytes(stored, "big") | 1 << 8 * width - 1
    if value < 0:
        packed_value ^= (1 << 8 * width) - 1
    expected = f"{'-' if value < 0 else ''}{whole}.{fraction:04d}".encode()
    assert values.decimal_text(15, 4)(packed_value.to_bytes(width, "big"), 0) == expected


@pytest.mark.parametrize(
    ("convert", "data"),
    [
        (values.date_text, (13 << 5 | 1).to_bytes(3, "little")),
        (values.date_text, (10000 << 9).to_bytes(3, "little")),
        (values.datetime_text(0), b"\x7f\xff\xff\xff\xff"),
        (values.datetime_text(0), (0x8000000000 | 60 << 6).to_bytes(5, "big")),
        (values.datetime_text(0), (0x8000000000 | 24 << 12).to_bytes(5, "big")),
        (values.datetime_text(2), (0x8000000000).to_bytes(5, "big") + b"\x64"),
        (values.timestamp_text(6), b"\0\0\0\1\x0f\x42\x40"),
        (values.time_text(0), (0x800000 | 60).to_bytes(3, "big")),
        (values.old_time_text, (61).to_bytes(3, "little")),
        (values.old_datetime_text, (20241301000000).to_bytes(8, "little")),
        (values.decimal_text(9, 0), b"\xff\xff\xff\xff"),
        (values.float_text("<d", None), b"\0\0\0\0\0\0\xf8\x7f"),
        (values.enum_text((b"a",), 1), b"\x02"),
        (values.set_text((b"a",), 1, b","), b"\x02"),
    ],
)
def test_bytes_that_mean_no_value(convert, data):
    with pytest.raises((ValueError, IndexError)):
        convert(data, 0)


@pytest.mark.parametrize(
    ("field", "column_type", "fits"),
    [
        (PhysicalField(F.DECIMAL, 10, 2), "decimal(10,2)", True),
        (PhysicalField(F.DECIMAL, 10, 3), "decimal(10,2)", False),
        (PhysicalField(F.DATETIME, 0), "datetime", True),
        (PhysicalField(F.DATETIME_OLD), "datetime", True),
        (PhysicalField(F.DATETIME, 3), "datetime", False),
        (PhysicalField(F.BIT, 1, 2), "bit(10)", True),
        (PhysicalField(F.BLOB, 2), "mediumblob", False),
        (PhysicalField(F.STRING, 40), "char(10)", True),
        (PhysicalField(F.VARCHAR, 40), "char(10)", False),
        (PhysicalField(200), "int(11)", False),
        (PhysicalField(F.LONG), "vector(3)", False),
    ],
)
def test_types_that_agree(field, column_type, fits):
    assert agrees(field, column(column_type)) is fits


@pytest.mark.parametrize(("data", "value"), [(b"\x05", 5), (b"\xfc\x01\x02", 513), (b"\xfd\0\0\1", 65536)])
def test_packed_integers(data, value):
    assert packed(data, 0) == (value, len(data))
    if len(data) > 1:
        with pytest.raises(ValueError):
            packed(data[:-1], 0)


@pytest.mark.parametrize(
    ("collation", "charset"),
    [
        (45, "utf8mb4"),
        (8, "latin1"),
        (1069, "utf8mb4"),
        (255, "utf8mb4"),
        (2048, "utf8mb3"),
        (2304, "utf8mb4"),
        (28, "gbk"),
    ],
)
def test_character_sets_of_collations(collation, charset):
    assert charset_of(collation) == charset


def test_latin1_is_all_bytes():
    every = bytes(range(256))
    assert encode(decode(every, "latin1"), "latin1") == every
    with pytest.raises(UnicodeEncodeError):
        encode("漢", "latin1")
