"""LOAD DATA from memory against a real server: bytes arrive unchanged, and no value is changed silently."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.tidbsettings import is_tidb
from unshard.adapters import mysql
from unshard.adapters.structures import read_schema
from unshard.adapters.target import Loaded, Mode, load_lines, open_session, session, tried_writer
from unshard.core.model import TableId, TableSchema
from unshard.errors import UnshardError
from unshard.errors.rows import RowRefused
from unshard_demo import servers

pytestmark = [pytest.mark.integration, pytest.mark.on_statements, pytest.mark.on_tidb]

TYPES = {
    "tinyint unsigned": [b"255", b"0", None],
    "smallint": [b"-32768", b"32767", b"0"],
    "mediumint unsigned": [b"16777215", b"0", None],
    "bigint": [b"-9223372036854775808", b"9223372036854775807", b"-1"],
    "bigint unsigned": [b"18446744073709551615", b"0", None],
    "decimal(65,30)": [b"-12345678901234567890123456789012345.123456789012345678901234567890", None],
    "float": [b"1.100000023841858", b"3.4028234663852886e38", b"-0.10000000149011612"],
    "double": [b"0.1", b"1.7976931348623157e308", b"-2.2250738585072014e-308"],
    "char(5)": [b"", b"a\tb", b"\\N"],
    "varchar(300)": [b"\\", b"a\nb\tc\\d\r\0", "häß🐬".encode(), b"NULL", b"", b" x "],
    "varchar(20) character set latin1": [b"\xe4\x81\xff", b"\\\n"],
    "varchar(20) character set ucs2": ["a\n€ \\".encode("utf-16-be")],
    "text character set cp932": ["表ソ".encode("cp932")],
    "varbinary(300)": [bytes(range(256)), b"\0", b""],
    "binary(6)": [b"\x01\x02\0\0\0\0", b"\0" * 6],
    "blob": [bytes(range(256)) * 40],
    "date": [b"0000-00-00", b"2020-00-15", b"9999-12-31", b"2021-02-31"],
    "datetime(6)": [b"0000-00-00 00:00:00.000000", b"9999-12-31 23:59:59.999999"],
    "timestamp(3) null": [b"1970-01-01 00:00:01.000", b"0000-00-00 00:00:00.000", b"2038-01-19 03:14:07.999", None],
    "time(6)": [b"-838:59:59.000000", b"-00:00:00.000001", b"838:59:59.999999"],
    "year": [b"0000", b"1901", b"2155"],
    "enum('a','b','ä\\'')": ["ä'".encode(), b"", b"a", None],
    "enum('a','b') character set ucs2": [b"\0b", None],
    "set('x','y','z')": [b"x,z", b"", None],
    "bit(1)": [b"\0", b"\x01"],
    "bit(17)": [b"\x01\x02\x09", b"\0\x0a\x5c"],
    "json": [b'{"a": "\\u00e4\\n"}', None],
    "point": [b"\0\0\0\0\x01\x01\0\0\0\0\0\0\0\0\0\xf0?\0\0\0\0\0\0\0@"],
    "uuid": [b"00112233-4455-6677-8899-aabbccddeeff"],
    "inet6": [b"2001:db8::1", None],
}


NOT_ON_TIDB = {
    "varchar(20) character set ucs2": "it has no ucs2",
    "enum('a','b') character set ucs2": "it has no ucs2",
    "text character set cp932": "it has no cp932",
    "time(6)": "its TIME ends before the fractions of 838:59:59",
    "json": "its JSON prints characters outside ASCII as they are",
    "point": "it has no spatial types",
    "uuid": "it has no UUID",
    "inet6": "it has no INET6",
}


@pytest.fixture
def writer(target: servers.MariaDb, unique: str) -> Iterator[mysql.Connection]:
    target.run(f"CREATE DATABASE {unique}")
    with contextlib.closing(open_session(tried_writer(target.server, unique))) as connection:
        yield connection
    target.run(f"DROP DATABASE {unique}")


def _columns(schema: TableSchema, rows: list[tuple[bytes | None, ...]]) -> pa.RecordBatch:
    columns = [pa.array(values, pa.binary()) for values in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=[c.name for c in schema.written])


def _load(writer, table: TableId, rows, mode: Mode = Mode.PLAIN) -> Loaded:
    """Load in one transaction, again after a transient error as a load does: TiDB ends a COMMIT now and then."""
    schema = read_schema(writer, table)

    def once() -> Loaded:
        mysql.begin(writer)
        try:
            loaded = load_lines(writer, table, schema.written, _columns(schema, rows), mode)
            mysql.commit(writer)
        except UnshardError:
            mysql.rollback(writer)
            raise
        return loaded

    return session.repeated(once)


def _stored(target: servers.MariaDb, table: TableId, kind: str) -> list[object]:
    shown = "v + 0e0" if kind == "float" else "v"
    with contextlib.closing(mysql.connect_raw(target.server)) as connection:
        return [row[0] for row in mysql.query(connection, f"SELECT {shown} FROM {table} ORDER BY id")]


@pytest.mark.sample(reason="a type and a way of writing do not interact")
@pytest.mark.parametrize("kind", TYPES)
def test_every_type_arrives_byte_for_byte(writer, target, unique, kind):
    if is_tidb(target) and kind in NOT_ON_TIDB:
        pytest.skip(f"TiDB: {NOT_ON_TIDB[kind]}")
    table = TableId(unique, "t")
    target.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v {kind})")
    rows = [(b"%d" % number, value) for number, value in enumerate(TYPES[kind])]
    for mode in (Mode.PLAIN, Mode.REPLACE):
        assert _load(writer, table, rows, mode).sent == len(rows)
        assert _stored(target, table, kind) == TYPES[kind]


@pytest.mark.sample(reason="a value and a way of writing do not interact")
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("tinyint", b"300"),
        ("varchar(2)", b"abc"),
        ("varchar(2)", b"ab "),
        ("decimal(4,1)", b"1.25"),
        ("date", b"x"),
        ("enum('a')", b"b"),
        ("int not null", None),
        ("varchar(9)", b"\xff"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_column_and_key(writer, unique, mode, kind, value):
    table = TableId(unique, "t")
    mysql.query(writer, f"CREATE TABLE {table} (id int PRIMARY KEY, v {kind})")
    if not writer.uses_load_data and value == b"\xff":
        pytest.skip("a server names no column for bytes that are no text")
    good = {"date": b"2020-01-01", "enum('a')": b"a"}.get(kind, b"1")
    with pytest.raises(RowRefused) as raised:
        _load(writer, table, [(b"1", good), (b"7", value), (b"8", good)], mode)
    assert (raised.value.column, raised.value.key) == ("v", "id = 7")


@pytest.mark.mariadb_only("TiDB does not enforce CHECK unless its administrator asks for it")
@pytest.mark.parametrize("rows", [1, 3])
def test_a_check_that_fails_is_named(writer, unique, rows):
    table = TableId(unique, "t")
    mysql.query(writer, f"CREATE TABLE {table} (id int PRIMARY KEY, v int, CONSTRAINT even CHECK (v % 2 = 0))")
    with pytest.raises(RowRefused, match="even"):
        _load(writer, table, [(b"1", b"3"), (b"2", b"4"), (b"3", b"5")][:rows])


@pytest.mark.parametrize("mode", Mode)
def test_index_0_of_an_enum_is_written_though_the_server_warns(writer, target, unique, mode):
    table = TableId(unique, "t")
    target.run(f"CREATE TABLE {table} (id int PRIMARY KEY, e enum('a','b'), f enum('','x'), n tinyint)")
    rows = [(b"1", b"", b"", b"1"), (b"2", b"a", b"x", b"2"), (b"3", b"", None, b"3")]
    assert _load(writer, table, rows, mode).sent == 3
    assert target.run(f"SELECT id, e + 0, f + 0 FROM {table} ORDER BY id") == [(1, 0, 1), (2, 1, 2), (3, 0, None)]
    with pytest.raises(RowRefused) as raised:
        _load(writer, table, [(b"4", b"", b"", b"300")], mode)
    assert raised.value.column == "n"


def test_plain_counts_what_was_there_and_replace_takes_its_place(writer, target, unique):
    table = TableId(unique, "t")
    target.run(f"CREATE TABLE {table} (id int PRIMARY KEY, u int UNIQUE)", f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    loaded = _load(writer, table, [(b"1", b"7"), (b"3", b"2"), (b"4", b"4")])
    assert (loaded.sent, loaded.skipped) == (3, 2)
    told = tuple(words.replace("'t.", "'") for words in loaded.duplicates)  # TiDB names the table, too
    assert told == ("Duplicate entry '1' for key 'PRIMARY'", "Duplicate entry '2' for key 'u'")
    assert _load(writer, table, [(b"1", b"7"), (b"3", b"2")], Mode.REPLACE).replaced == 2
    assert target.run(f"SELECT * FROM {table} ORDER BY id") == [(1, 7), (3, 2), (4, 4)]


@pytest.mark.mariadb_only("TiDB never gets LOAD DATA in a transaction")
def test_insert_takes_over_where_the_server_refuses_local_files_later(writer, target, unique):
    table = TableId(unique, "t")
    ((before,),) = target.run("SELECT @@GLOBAL.local_infile")
    target.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v varchar(9))", "SET GLOBAL local_infile = 0")
    try:
        assert _load(writer, table, [(b"%d" % n, b"\t'\\") for n in range(1200)]).sent == 1200
        assert (_load(writer, table, [(b"1", b"a"), (b"5000", b"b")])).skipped == 1
        assert (_load(writer, table, [(b"1", b"a")])).skipped == 1
    finally:
        target.run(f"SET GLOBAL local_infile = {before}")
    assert target.run(f"SELECT COUNT(*), SUM(v = CONCAT(CHAR(9), CHAR(39), CHAR(92))) FROM {table}") == [(1201, 1200)]


def test_many_rows_go_in_several_statements(writer, target, unique):
    table = TableId(unique, "t")
    target.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v longblob)")
    rows = [(b"%d" % n, b"x" * (3 << 20)) for n in range(6)] + [(b"%d" % n, None) for n in range(6, 60_000)]
    assert _load(writer, table, rows).sent == 60_000
    assert target.run(f"SELECT COUNT(*), SUM(LENGTH(v)) FROM {table}") == [(60_000, 18 << 20)]


def test_rows_that_replace_others_are_no_skipped_rows(writer, target, unique):
    """An UPDATE of three rows is written in this way, in safe mode and after a collision that the policy resolves."""
    table = TableId(unique, "t")
    target.run(
        f"CREATE TABLE {table} (id int PRIMARY KEY, u int UNIQUE, v varchar(9))",
        f"INSERT INTO {table} VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')",
    )
    rows = [(b"1", b"3", b"x"), (b"2", b"2", b"b"), (b"4", b"1", b"y")]
    for _ in range(2):
        loaded = _load(writer, table, rows, Mode.REPLACE)
        assert (loaded.sent, loaded.skipped, loaded.duplicates) == (3, 0, ())
        assert target.run(f"SELECT * FROM {table} ORDER BY id") == [(1, 3, "x"), (2, 2, "b"), (4, 1, "y")]


@pytest.mark.sample(reason="the mode and the way of writing do not interact")
@pytest.mark.parametrize("count", [1, 2, 300])
def test_more_duplicates_than_a_server_lists_by_default_are_all_counted(writer, target, unique, count):
    table = TableId(unique, "t")
    target.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v int)")
    rows = [(b"%d" % n, b"1") for n in range(count)]
    assert _load(writer, table, rows).skipped == 0
    assert _load(writer, table, [*rows, (b"1000", b"1")]).skipped == count


def test_a_row_that_the_server_does_not_name_is_found(writer, target, unique):
    """A NULL that nothing here refuses: the server names the column but not the row."""
    table = TableId(unique, "t")
    target.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v int NOT NULL)")
    schema = read_schema(writer, table)
    columns = [replace(column, nullable=True) for column in schema.written]
    rows = [(b"%d" % n, b"1" if n != 57 else None) for n in range(150)]
    mysql.begin(writer)
    with pytest.raises(RowRefused) as raised:
        load_lines(writer, table, columns, _columns(schema, rows), Mode.PLAIN)
    assert writer.uses_load_data or raised.value.key == "id = 57"


def test_a_row_beyond_the_largest_statement_is_named(writer, target, unique):
    table = TableId(unique, "t")
    target.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v longblob)")
    if writer.uses_load_data:
        pytest.skip("LOAD DATA sends a row in several packets")
    rows = [(b"1", b"a"), (b"2", bytes(writer.packet_bytes // 2)), (b"3", b"c")]
    with pytest.raises(RowRefused) as raised:
        _load(writer, table, rows)
    assert raised.value.key == "id = 2"


def test_a_row_beyond_the_entry_limit_of_tidb_is_named(tidb_target, unique):
    table = TableId(unique, "t")
    tidb_target.run(f"CREATE DATABASE {unique}", f"CREATE TABLE {table} (id int PRIMARY KEY, v longblob)")
    with contextlib.closing(open_session(tried_writer(tidb_target.server, unique))) as session:
        rows = [(b"1", b"a"), (b"2", bytes(7 << 20)), (b"3", b"c")]
        with pytest.raises(RowRefused, match="too large") as raised:
            _load(session, table, rows)
        assert raised.value.key == "id = 2"
    tidb_target.run(f"DROP DATABASE {unique}")
