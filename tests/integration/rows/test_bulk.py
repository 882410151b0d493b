"""Rows go to MariaDB by COM_STMT_BULK_EXECUTE; what it does not take goes as text, and is refused with its place."""

import contextlib
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pymysql.connections import Connection

from tests.integration.rows.test_target_load import TYPES
from unshard.adapters import mysql
from unshard.adapters.structures import read_schema
from unshard.adapters.target import Loaded, Mode, load_lines, open_session, tried_writer
from unshard.adapters.target.rendering import TYPES as PARAMETERS
from unshard.core.model import TableId
from unshard.core.rows.writepath import LoadData, WritePath
from unshard.errors.rows import RowRefused
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def session(mariadb_target: MariaDb, unique: str) -> Iterator[Connection]:
    mariadb_target.run(f"CREATE DATABASE {unique}")
    with contextlib.closing(open_session(tried_writer(mariadb_target.server, unique))) as connection:
        mysql.query(connection, f"USE {unique}")
        mysql.begin(connection)
        yield connection
    mariadb_target.run(f"DROP DATABASE {unique}")


def create(session: Connection, unique: str, columns: str) -> TableId:
    table = TableId(unique, "t")
    mysql.query(session, f"CREATE TABLE {table} ({columns})")
    mysql.begin(session)
    return table


def load(session: Connection, table: TableId, rows: list[tuple[bytes | None, ...]], mode: Mode = Mode.PLAIN) -> Loaded:
    schema = read_schema(session, table)
    columns = [pa.array(values, pa.binary()) for values in zip(*rows, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, names=[column.name for column in schema.written])
    return load_lines(session, table, schema.written, batch, mode)


def statements(session: Connection) -> tuple[int, int]:
    """Return how many commands of bulk and of LOAD DATA the session has run."""
    counts = dict(mysql.query(session, "SHOW SESSION STATUS WHERE Variable_name IN ('Com_stmt_execute', 'Com_load')"))
    return int(counts["Com_stmt_execute"]), int(counts["Com_load"])


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("kind", TYPES)
def test_every_type_that_takes_a_blob_goes_by_bulk(session, unique, kind, mode):
    table = create(session, unique, f"id int PRIMARY KEY, v {kind}")
    type_ = read_schema(session, table).columns[1].data_type
    before = statements(session)
    # Index 0 of an ENUM prints as an empty text, which a strict session refuses.
    rows = [(b"%d" % n, value) for n, value in enumerate(TYPES[kind]) if not (type_ == "enum" and value == b"")]
    assert load(session, table, rows, mode).sent == len(rows)
    bulk, text = (after - then for after, then in zip(statements(session), before, strict=True))
    assert (bulk > 0, text) == ((True, 0) if type_ in PARAMETERS else (False, 1))
    shown = "v + 0e0" if kind == "float" else "v"
    with mysql.raw_results(session):
        found = [row[0] for row in mysql.query(session, f"SELECT {shown} FROM {table} ORDER BY id")]
    assert found == [value for _, value in rows]


@pytest.mark.parametrize(
    ("kind", "bad"), [("tinyint", b"300"), ("decimal(4,1)", b"1.25"), ("varchar(3)", "ä€".encode()[:4])]
)
def test_what_it_refuses_is_named_by_text_and_nothing_stays(session, unique, kind, bad):
    """A decimal that is cut is only a note: the server has written the row, so it must be undone."""
    table = create(session, unique, f"id int PRIMARY KEY, v {kind}")
    load(session, table, [(b"1", b"1")])
    before = statements(session)
    mysql.query(session, "SAVEPOINT here")
    with pytest.raises(RowRefused) as raised:
        load(session, table, [(b"2", b"2"), (b"7", bad), (b"8", b"3")])
    assert (raised.value.column, raised.value.key) == ("v", "id = 7")
    assert statements(session)[1] == before[1] + 1
    mysql.query(session, "ROLLBACK TO SAVEPOINT here")
    assert mysql.query(session, f"SELECT id FROM {table}") == [(1,)]


def test_taken_keys_are_counted(session, unique):
    table = create(session, unique, "id int PRIMARY KEY, u int UNIQUE")
    assert load(session, table, [(b"1", b"1"), (b"2", b"2")]).skipped == 0
    loaded = load(session, table, [(b"1", b"9"), (b"3", b"2"), (b"4", b"4")])
    assert (loaded.sent, loaded.skipped, len(loaded.duplicates)) == (3, 2, 2)
    loaded = load(session, table, [(b"1", b"2"), (b"5", b"5")], Mode.REPLACE)
    assert (loaded.sent, loaded.replaced) == (2, 2)
    assert mysql.query(session, f"SELECT * FROM {table} ORDER BY id") == [(1, 2), (4, 4), (5, 5)]


def test_triggers_see_every_row(session, unique):
    table = create(session, unique, "id int PRIMARY KEY, v int")
    mysql.query(session, "CREATE TABLE seen (id int)")
    mysql.query(session, f"CREATE TRIGGER tr BEFORE INSERT ON {table} FOR EACH ROW INSERT INTO seen VALUES (NEW.id)")
    mysql.begin(session)
    load(session, table, [(b"%d" % n, b"1") for n in range(500)])
    assert mysql.query(session, "SELECT COUNT(*), SUM(id) FROM seen") == [(500, 499 * 250)]


def test_a_row_larger_than_a_packet_goes_as_text(session, unique):
    table = create(session, unique, "id int PRIMARY KEY, v longblob")
    session.packet_bytes = 1 << 20
    large = session.packet_bytes - 4  # with its key it fills a packet, which also has a header
    before = statements(session)
    assert load(session, table, [(b"1", b"a"), (b"2", bytes(large)), (b"3", b"c")]).sent == 3
    assert statements(session)[1] == before[1] + 1
    assert mysql.query(session, f"SELECT id, LENGTH(v) FROM {table} ORDER BY id") == [(1, 1), (2, large), (3, 1)]


def test_a_table_that_changes_is_prepared_again(session, unique):
    table = create(session, unique, "id int PRIMARY KEY, v int")
    load(session, table, [(b"1", b"1")])
    mysql.query(session, f"ALTER TABLE {table} MODIFY v varchar(20)")
    mysql.begin(session)
    load(session, table, [(b"2", b"2")])
    assert mysql.query(session, f"SELECT * FROM {table} ORDER BY id") == [(1, "1"), (2, "2")]


def test_a_server_that_prepares_nothing_any_more_gets_text(session, mariadb_target, unique):
    table = create(session, unique, "id int PRIMARY KEY, v int")
    ((most,),) = mariadb_target.run("SELECT @@GLOBAL.max_prepared_stmt_count")
    mariadb_target.run("SET GLOBAL max_prepared_stmt_count = 0")
    try:
        assert load(session, table, [(b"1", b"1")]).sent == 1
    finally:
        mariadb_target.run(f"SET GLOBAL max_prepared_stmt_count = {most}")
    assert mysql.query(session, f"SELECT * FROM {table}") == [(1, 1)]


def test_a_server_that_refuses_load_data_gets_parameters(mariadb_target, unique):
    mariadb_target.run(f"CREATE DATABASE {unique}", "SET GLOBAL local_infile = 0")
    try:
        writer = tried_writer(mariadb_target.server, unique)
    finally:
        mariadb_target.run("SET GLOBAL local_infile = 1", f"DROP DATABASE {unique}")
    assert (writer.load_data, writer.writing.path) == (LoadData.REFUSED, WritePath.BULK)
