"""The dump's reader: the same bytes as in the binlog, for every type and for large rows."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pymysql.connections import Connection

from tests import alltypes
from unshard.adapters import mysql, upstream
from unshard.adapters.relayfiles import RelayStore
from unshard.adapters.structures import read_schema
from unshard.adapters.textrows import prepare_reading, read_rows, schema_of
from unshard.binlog.decoder import decode_range
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.sql.literals import expression
from unshard.errors.source import ConnectionLost, StatementRefused
from unshard.units.relay.pull import pull
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
TEXT = Column("v", "longblob", "longblob", True, None, None, None, "")


@pytest.fixture
def connection(source_1: MariaDb) -> Iterator[Connection]:
    with closing(mysql.connect_raw(source_1.server)) as connection:
        prepare_reading(connection)
        yield connection


def select(connection: Connection, table: TableId, schema: TableSchema, rows: int = 20_000) -> list[pa.RecordBatch]:
    selected = ", ".join(map(expression, schema.written))
    return list(read_rows(connection, schema.written, f"SELECT {selected} FROM {mysql.table_name(table)}", rows))


def binlog_rows(source: MariaDb, store: RelayStore, begins, wanted) -> dict[TableId, list[dict]]:
    pull("s1", source.server, store, begins=begins)
    found: dict[TableId, list[dict]] = {table: [] for table in wanted}
    for segment in store.segments("s1"):
        for piece in segment.ranges:
            data = store.read("s1", segment.name, piece.start, piece.end)
            for table, batch in decode_range(data.data, data.checksum, wanted, origin=data.origin):
                found[table] += batch.drop_columns(["_op", "_seq"]).to_pylist()
    return found


def test_dump_and_binlog_carry_equal_bytes(source_1, connection, unique, tmp_path: Path) -> None:
    with closing(mysql.connect(source_1.server)) as plain:
        begins = upstream.location(plain)
        source_1.run(*alltypes.statements(unique))
        wanted = {table: read_schema(plain, table) for table in (TableId(unique, name) for name in alltypes.TABLES)}
    binlog = binlog_rows(source_1, RelayStore(tmp_path), begins, wanted)
    for table, schema in wanted.items():
        dumped = [row for batch in select(connection, table, schema) for row in batch.to_pylist()]
        assert len(dumped) == len(binlog[table]) >= 2
        for ours, theirs in zip(dumped, binlog[table], strict=True):
            assert ours == theirs, table


def test_batches_are_bounded(connection: Connection) -> None:
    batches = list(read_rows(connection, [TEXT], "SELECT seq FROM mysql.seq_1_to_50000", rows=7_000))
    assert [batch.num_rows for batch in batches] == [7_000] * 7 + [1_000]
    assert [int(v) for batch in batches for v in batch.column(0).to_pylist()] == list(range(1, 50_001))


def test_rows_of_every_length(connection: Connection) -> None:
    """Around each form of a length and around the size at which a packet is split, with a NULL between."""
    lengths = [
        0,
        1,
        250,
        251,
        252,
        65_535,
        65_536,
        70_000,
        (1 << 24) - 6,
        (1 << 24) - 5,
        (1 << 24) - 4,
        1 << 24,
        (1 << 25) - 10,
        40_000_000,
    ]
    lengths += [length - 9 for length in lengths if length > 1 << 23]
    statement = " UNION ALL ".join(f"SELECT REPEAT('x', {n}) UNION ALL SELECT NULL" for n in lengths)
    mysql.query(connection, "SET SESSION max_statement_time = 0")
    values = [v for b in read_rows(connection, [TEXT], statement) for v in b.column(0).to_pylist()]
    biggest = 16 << 20  # max_allowed_packet of the server: longer REPEATs are NULL
    assert [None if v is None else len(v) for v in values[0::2]] == [n if n <= biggest else None for n in lengths]
    assert set(values[1::2]) == {None}


def test_rows_over_sixteen_megabytes(source_1: MariaDb) -> None:
    source_1.run("SET GLOBAL max_allowed_packet = 1 << 30")
    try:
        with closing(mysql.connect_raw(source_1.server)) as connection:
            lengths = [5, (1 << 24) - 9, (1 << 24) + 5, 7, (1 << 25) - 18, (1 << 25) + 3, 70_000_000, 0]
            lengths += range((1 << 24) - 12, (1 << 24) + 2)
            statement = " UNION ALL ".join(f"SELECT 'a', REPEAT('x', {n}), 'b'" for n in lengths)
            columns = [TEXT, TEXT, TEXT]
            sizes = []
            for batch in read_rows(connection, columns, statement):
                first, middle, last = (column.to_pylist() for column in batch.columns)
                assert set(first) == {b"a"} and set(last) == {b"b"}
                assert all(not value.strip(b"x") for value in middle)
                sizes += map(len, middle)
            assert sizes == lengths
            assert mysql.query(connection, "SELECT 1") == [(b"1",)]
    finally:
        source_1.run("SET GLOBAL max_allowed_packet = 16 << 20")


def test_empty_result_and_next_statement(connection: Connection) -> None:
    assert list(read_rows(connection, [TEXT], "SELECT 1 FROM DUAL WHERE FALSE")) == []
    assert mysql.query(connection, "SELECT 2") == [(b"2",)]


def test_an_error_in_the_middle_is_coded(connection: Connection) -> None:
    statement = "SELECT IF(seq < 90000, seq, (SELECT 1 UNION SELECT 2)) FROM mysql.seq_1_to_100000"
    with pytest.raises(StatementRefused, match="1242"):
        list(read_rows(connection, [TEXT], statement))


def test_a_lost_connection_is_coded(source_1: MariaDb, connection: Connection) -> None:
    rows = read_rows(connection, [TEXT], "SELECT REPEAT('x', 1000) FROM mysql.seq_1_to_1000000")
    next(rows)
    source_1.run(f"KILL {connection.thread_id()}")
    with pytest.raises(ConnectionLost):
        list(rows)


def test_schema_names_the_columns() -> None:
    assert schema_of([TEXT]).names == ["v"]
