"""Helpers for tests of the relay and the decoder: pull a server's binlog, decode it, read it back."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pymysql
from pyarrow import RecordBatch

from unshard.adapters import mysql, structures, upstream
from unshard.adapters.relayfiles import RelayStore
from unshard.binlog.decoder import decode_range
from unshard.binlog.events import HEADER, MAGIC, read_frame
from unshard.binlog.rawrows import RowSpan, decode, extract
from unshard.core.model import Location, TableId, TableSchema
from unshard.core.relay.segment import Segment, chain
from unshard.units.relay.pull import pull
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb

SOURCE = "s1"
FIRST = Location("mysql-bin.000001", 4)
UNKNOWN_XID = 1397
SECONDS = 900.0
Row = tuple[bytes | None, ...]


def end_of(server: MariaDb) -> Location:
    """Return the server's next write position, once it is stable: a new file has its checkpoint event."""
    with contextlib.closing(server.connect()) as connection:
        file = upstream.location(connection).file

        def has_checkpoint() -> bool:
            with connection.cursor() as cursor:
                cursor.execute(f"SHOW BINLOG EVENTS IN '{file}'")
                return any(event[2] == "Binlog_checkpoint" and event[5] == file for event in cursor)

        if "MariaDB" in connection.get_server_info():  # MySQL has none
            await_true(has_checkpoint, SECONDS, [server.program], f"a checkpoint in {file}")
        return upstream.location(connection)


def schema_of(server: MariaDb, table: TableId) -> TableSchema:
    with contextlib.closing(mysql.connect(server.server)) as connection:
        return structures.read_schema(connection, table)


def changes(
    server: MariaDb,
    folder: Path,
    begins: Location,
    wanted: dict[TableId, TableSchema],
    starts: dict[TableId, int] | None = None,
) -> list[tuple[TableId, int, Row]]:
    """Pull and decode everything after `begins`; return table, operation and values of each row in order."""
    store = RelayStore(folder)
    pull(SOURCE, server.server, store, begins)
    found = []
    for segment in chain(store.segments(SOURCE), begins):
        for part in segment.ranges:
            data = store.read(SOURCE, segment.name, part.start, part.end)
            rows = [
                (seq, table, op, tuple(values))
                for table, batch in decode_range(data.data, data.checksum, wanted, starts or {}, data.origin)
                for op, seq, *values in _tuples(batch)
            ]
            rows.sort(key=lambda row: row[0])
            assert len({row[0] for row in rows}) == len(rows)
            found += [row[1:] for row in rows]
            for table, schema in wanted.items():
                pieces = extract(data.data, data.checksum, table, RowSpan((starts or {}).get(table, -1)), data.origin)
                held = [
                    (op, tuple(values)) for batch in decode(pieces, schema, SOURCE) for op, _, *values in _tuples(batch)
                ]
                assert held == [row[2:] for row in rows if row[1] == table], "held raw it would be other rows"
    return found


def _tuples(batch: RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def selected(server: MariaDb, table: TableId, schema: TableSchema, order: str = "id") -> list[Row]:
    """Read a table as the dump does: the server's own bytes, FLOAT widened to DOUBLE."""
    names = ", ".join(f"`{c.name}` + 0e0" if c.data_type == "float" else f"`{c.name}`" for c in schema.written)
    with contextlib.closing(mysql.connect_raw(server.server)) as connection:
        rows = mysql.query(connection, f"SELECT {names} FROM `{table.schema}`.`{table.name}` ORDER BY {order}")
    return [tuple(row) for row in rows]


def round_trip(server: MariaDb, folder: Path, table: TableId, statements: Sequence[str]) -> tuple[list[Row], list[Row]]:
    """Run the statements, which only insert; return the decoded rows and the rows that the server prints."""
    begins = end_of(server)
    server.run(f"USE `{table.schema}`", *statements)
    schema = schema_of(server, table)
    rows = [values for _, _, values in changes(server, folder, begins, {table: schema})]
    return rows, selected(server, table, schema)


def path_of(store: RelayStore, segment: Segment) -> Path:
    """Return the path of the segment's bytes, in a store that is a folder."""
    assert isinstance(store.folder, Path)
    return store.folder / segment.source / segment.name


def bytes_of(store: RelayStore, segment: Segment) -> bytes:
    """Return the segment's own bytes, without the head that makes the file readable on its own."""
    with store._of(segment.source).opened(segment.name) as file:
        data = bytes(file.read(0, file.size))
    if segment.start == len(MAGIC):
        return data[len(MAGIC) :]
    return data[len(MAGIC) + read_frame(data, len(MAGIC)).size :]


def assert_equal_to_server(server: MariaDb, store: RelayStore, begins: Location = FIRST) -> tuple[Segment, ...]:
    """Compare all stored bytes from `begins` on with the server's own binlog files; return the segments."""
    run = chain(store.segments(SOURCE), begins)
    stored: dict[str, bytes] = {}
    for segment in run:
        assert len(bytes_of(store, segment)) == segment.size
        stored[segment.file] = stored.get(segment.file, b"") + bytes_of(store, segment)
    for file, data in stored.items():
        own = bytearray((server.folder / "data" / file).read_bytes())
        own[len(MAGIC) + HEADER - 2] &= 0xFE  # the flag of a file in use
        start = begins.position if file == begins.file else len(MAGIC)
        assert data == own[start : start + len(data)]
        if file != run[-1].file:
            assert start + len(data) == len(own)
    return run


def purge(server: MariaDb, file: str = "") -> None:
    """Remove the binlog files before this one, or before the last; a dump may still hold them for a moment."""
    file = file or str(server.run("SHOW BINARY LOGS")[-1][0])

    def is_first() -> bool:
        server.run(f"PURGE BINARY LOGS TO '{file}'")
        return str(server.run("SHOW BINARY LOGS")[0][0]) == file

    await_true(is_first, SECONDS, [server.program], "the binlog is purged")


def end_xa(server: MariaDb, word: str, xid: str) -> None:
    """COMMIT or ROLLBACK a transaction that another session has prepared; the server may notice late that this session
    ended.
    """

    def is_ended() -> bool:
        try:
            server.run(f"XA {word} {xid}")
        except pymysql.err.OperationalError as error:
            if error.args[0] != UNKNOWN_XID:
                raise
            return False
        return True

    await_true(is_ended, SECONDS, [server.program], f"XA {word}")


def pull_several(server: MariaDb, store: RelayStore) -> tuple[Segment, ...]:
    """Pull several segments with rows."""
    for number in range(3):
        fill(server, 10)
        server.run(f"CREATE TABLE d.p{number}(id int)")
    pull(SOURCE, server.server, store, FIRST)
    return chain(store.segments(SOURCE), FIRST)


def fill(server: MariaDb, count: int, size: int = 50) -> None:
    server.run(f"INSERT INTO d.t(v) SELECT REPEAT('x', {size}) FROM d.seq_1_to_{count}")
