"""Files of MariaDB 10.11 and MySQL 9.7 with every type: the decoder returns the values that their SQL wrote."""

from dataclasses import replace

import pytest

from tests.binlogfiles import changes, read, structure
from unshard.binlog.decoder import AFTER, BEFORE, DELETE, INSERT
from unshard.errors.rows import ColumnTypeDiffers

MARIADB, MYSQL = read("types_maria_full.binlog"), read("types_my97_FULL.binlog")
MB4 = "; utf8mb4"
COMMON = {
    "t1": (
        (
            "id! int",
            "ut tinyint unsigned",
            "us smallint unsigned",
            "um mediumint unsigned",
            "ui int unsigned",
            "ub bigint unsigned",
        ),
        [(b"1", b"200", b"60000", b"16000000", b"4000000000", b"18000000000000000000")],
    ),
    "t2": (
        (
            "id! int",
            "b1 bit(1)",
            "b10 bit(10)",
            "b64 bit(64)",
            f"en enum('a','b','ü'){MB4}",
            f"st set('x','y','z'){MB4}",
            f"en0 enum('a'){MB4}",
        ),
        [
            (b"1", b"\1", b"\2\3", b"\xff" * 8, "ü".encode(), b"x,z", b""),
            (b"2", b"\0", b"\0\0", bytes(8), b"a", b"", None),
        ],
    ),
    "t3": (
        (
            "id! int",
            "d date",
            "d2 date",
            "dt datetime",
            "dt6 datetime(6)",
            "ts timestamp",
            "ts3 timestamp(3)",
            "y year",
            "y0 year",
        ),
        [
            (
                b"1",
                b"0000-00-00",
                b"2020-00-15",
                b"0000-00-00 00:00:00",
                b"9999-12-31 23:59:59.999999",
                b"0000-00-00 00:00:00",
                b"2037-01-01 00:00:00.007",
                b"2155",
                b"0000",
            ),
            (
                b"2",
                b"1000-01-01",
                b"9999-12-31",
                b"2020-02-00 00:00:00",
                b"0001-01-01 00:00:00.000001",
                b"1970-01-01 00:00:01",
                b"1970-01-01 00:00:00.001",
                b"1901",
                None,
            ),
        ],
    ),
    "t4": (
        ("id! int", "t time", "t1 time(1)", "t3 time(3)", "t6 time(6)"),
        [
            (b"1", b"-00:00:01", b"-00:00:00.1", b"-838:59:59.500", b"-12:34:56.123456"),
            (b"2", b"838:59:59", b"00:00:00.9", b"-00:00:00.001", b"-00:00:00.000001"),
            (b"3", b"-01:00:00", b"-01:00:01.5", b"12:00:00.123", b"838:59:58.999999"),
        ],
    ),
    "t5": (
        (
            "id! int",
            "l1 varchar(20); latin1",
            "gb varchar(20); gbk",
            "u8 varchar(20); utf8mb3",
            "ck varchar(20); ucs2",
            "vb varbinary(20)",
            "bn binary(6)",
            "bl blob",
            "tx text; latin1",
            f"ch char(10){MB4}",
        ),
        [
            (
                b"1",
                b"\xe9\x80",
                b"\x9dh",
                "é".encode(),
                "漢é".encode("utf-16-be"),
                b"\0\xff\x80",
                b"\1\2\0\0\0\0",
                b"\0xff",
                b"\xe9\x80",
                "😀".encode(),
            ),
            (b"2", b"\x81\x8d", None, None, None, b"\xff", b"\xff" + bytes(5), b"\xff", b"\x81", b""),
        ],
    ),
    "t6": (
        (
            "id! int",
            "d1 decimal(5,5)",
            "d2 decimal(65,30)",
            "d3 decimal(10,0)",
            "d4 decimal(20,18)",
            "f float",
            "g double",
        ),
        [
            (
                b"1",
                b"-0.00001",
                b"-12345678901234567890123456789012345.123456789012345678901234567890",
                b"-1",
                b"-99.999999999999999999",
                b"3.3999999521443642e38",
                b"-1.7e308",
            ),
            (b"2", b"0.00000", b"0." + b"0" * 30, b"0", b"0.000000000000000001", b"9.999999350456404e-39", b"0.1"),
        ],
    ),
    "t8": (("id! int", "v int", "gv int; ; virtual generated", "gs int; ; stored generated"), [(b"1", b"5")]),
}
STORED_OTHERWISE = {
    # The session's character set had no such letter.
    (MARIADB, "t5", 0, 9): b"????",
    # MySQL has no such moment, and cuts the fraction off the longest time.
    (MYSQL, "t3", 1, 6): b"0000-00-00 00:00:00.000",
    (MYSQL, "t4", 0, 3): b"-838:59:59.000",
}
POINT = bytes.fromhex("000000000101000000000000000000f03f0000000000000040")
J1 = ("id! int", "j json", "g geometry", "inv int; ; invisible")
DOCUMENTS = [
    '{"a": [1, 2.5, null, true, "é"], "o": {"x": "y"}, "big": 18446744073709551615, "neg": -5}',
    "null",
    None,
    '{"b": "base64:type15:/wA=", "d": 1.50, "t": "-10:00:00.000000", "dt": "2020-01-02 03:04:05.600000"}',
    "{}",
    "[]",
    '""',
    "1e100",
]


@pytest.mark.parametrize("table", COMMON)
@pytest.mark.parametrize("data", [MARIADB, MYSQL], ids=["mariadb", "mysql"])
def test_types_of_both_makes(data, table):
    columns, rows = COMMON[table]
    stored = [
        tuple(STORED_OTHERWISE.get((data, table, r, c), value) for c, value in enumerate(row))
        for r, row in enumerate(rows)
    ]
    assert changes(data, f"ty.{table}", structure(*columns)) == [(INSERT, row) for row in stored]


def test_json_of_mysql_and_partial_updates_of_it():
    found = changes(MYSQL, "ty.j1", structure(*J1))
    inserted = [
        (b"%d" % n, text and text.encode(), POINT if n == 1 else None, b"7") for n, text in enumerate(DOCUMENTS, 1)
    ]
    after = DOCUMENTS[0].replace("[1,", "[99,").replace("-5", "7").encode()
    assert found[:8] == [(INSERT, row) for row in inserted]
    assert found[8:] == [(BEFORE, inserted[0]), (AFTER, (b"1", after, POINT, b"7"))]


def test_vector_of_mysql():
    columns = ("id! int", "v vector(3)", "a varchar(10); utf8mb4")
    vector = bytes.fromhex("0000803f0000004000004040")
    assert changes(MYSQL, "ty.bx", structure(*columns)) == [(INSERT, (b"1", vector, b"after"))]


def test_types_of_mariadb():
    columns = (
        "id! int",
        "j longtext; utf8mb4",
        "inv int; ; invisible",
        "g point",
        "cc varchar(200) /*M!100301 COMPRESSED*/; utf8mb4",
        "cb text /*M!100301 COMPRESSED*/; utf8mb4",
        "u uuid",
        "ip inet6",
    )
    assert changes(MARIADB, "ty.t7", structure(*columns)) == [
        (
            INSERT,
            (
                b"1",
                b'{"a":[1,2.5,null,true]}',
                b"7",
                POINT,
                b"ab" * 90,
                b"xyz" * 100,
                b"123e4567-e89b-12d3-a456-426655440000",
                b"::1",
            ),
        )
    ]


def test_system_versioned_table_of_mariadb():
    """The binlog contains the old version of an updated row, but SELECT does not show it."""
    versioned = replace(
        structure("id! int", "v int"), create_sql="CREATE TABLE `t` (\n  `id` int\n) WITH SYSTEM VERSIONING"
    )
    found = changes(MARIADB, "ty.t9", versioned)
    assert found == [(INSERT, (b"1", b"1")), (BEFORE, (b"1", b"1")), (AFTER, (b"1", b"2"))]


def test_compressed_events_of_mariadb():
    found = changes(read("compressed.binlog"), "sb.cz", structure("id int", "v text; utf8mb4"))
    values = [b"".join(b"abc%d" % n for _ in range(40)) for n in range(1, 501)]
    assert [op for op, _ in found] == [INSERT] * 500 + [BEFORE, AFTER] * 99 + [DELETE] * 100
    assert [row for op, row in found if op == INSERT] == [(b"%d" % n, value) for n, value in enumerate(values, 1)]
    assert [row for op, row in found if op == AFTER] == [(b"%d" % n, values[n - 1] + b"x") for n in range(1, 100)]
    assert [row for op, row in found if op == DELETE] == [(b"%d" % n, values[n - 1]) for n in range(401, 501)]


@pytest.mark.parametrize(
    ("table", "column", "missed"),
    [
        ("t1", 1, "ut tinyint"),
        ("t1", 5, "renamed bigint unsigned"),
        ("t2", 4, f"en enum('a','c','ü'){MB4}"),
        ("t2", 4, f"en enum('a','b'){MB4}"),
        ("t2", 5, f"st set('x','y','zz'){MB4}"),
        ("t2", 6, "en0 enum('a'); latin1"),
        ("t5", 1, "l1 varchar(20); cp1251"),
        ("t5", 2, "gb varchar(20); gb18030"),
        ("t5", 9, "ch char(10); latin1"),
        ("t5", 7, "bl text; latin1"),
        ("t6", 1, "d1 decimal(5,5) unsigned"),
    ],
)
@pytest.mark.parametrize("data", [MARIADB, MYSQL], ids=["mariadb", "mysql"])
def test_metadata_that_differ_from_the_tracked_structure(data, table, column, missed):
    columns = list(COMMON[table][0])
    columns[column] = missed
    with pytest.raises(ColumnTypeDiffers, match=missed.split(" ", maxsplit=1)[0]):
        changes(data, f"ty.{table}", structure(*columns))


def test_metadata_of_vector():
    with pytest.raises(ColumnTypeDiffers, match="vector"):
        changes(MYSQL, "ty.bx", structure("id! int", "v vector(4)", "a varchar(10); utf8mb4"))
