"""The location of a snapshot is exact: changes before it are visible, changes after it are not."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from unshard.adapters import mysql, upstream
from unshard.adapters.relayfiles import RelayStore
from unshard.adapters.structures import read_schema
from unshard.adapters.upstream import SnapshotMoment, begin_snapshot, lock_table
from unshard.binlog.decoder import decode_range
from unshard.core.model import Location, TableId
from unshard.units.relay.pull import pull
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
WRITERS = 4
LOOKS = 40
TABLE = TableId("d", "many")


def locked(connection, source: str) -> SnapshotMoment:
    mysql.query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    return upstream._under_lock(connection, source)


def table_locked(connection, source: str) -> SnapshotMoment:
    return lock_table(connection, source, TABLE)


def write(server: MariaDb, table: TableId, number: int, done: threading.Event) -> None:
    connection = server.connect()
    with connection, connection.cursor() as cursor:
        while not done.is_set():
            cursor.execute(f"INSERT INTO {table} VALUES ({number})")


CASES = [(begin_snapshot, "InnoDB"), (locked, "InnoDB"), (table_locked, "InnoDB"), (table_locked, "MyISAM")]


@pytest.mark.parametrize(("begin", "engine"), CASES)
def test_a_snapshot_and_its_location_agree(
    upstream_server: MariaDb, tmp_path: Path, begin: Callable[[object, str], SnapshotMoment], engine: str
) -> None:
    table, done = TABLE, threading.Event()
    upstream_server.run(f"CREATE TABLE {table} (v INT) ENGINE={engine}")
    with closing(mysql.connect(upstream_server.server)) as connection:
        ((file, position, *_),) = mysql.query(connection, "SHOW MASTER STATUS")
        schema = read_schema(connection, table)
        first = begin(connection, "s1")
        assert (first.location.file, first.location.position) == (file, position)
        mysql.query(connection, "ROLLBACK")
        mysql.query(connection, "UNLOCK TABLES")
        writers = [threading.Thread(target=write, args=(upstream_server, table, n, done)) for n in range(WRITERS)]
        for writer in writers:
            writer.start()
        looks: list[tuple[Location, int]] = []
        while len(looks) < LOOKS or looks[-1][1] < LOOKS:
            moment = begin(connection, "s1")
            ((rows,),) = mysql.query(connection, f"SELECT COUNT(*) FROM {table}")
            mysql.query(connection, "ROLLBACK")
            mysql.query(connection, "UNLOCK TABLES")
            looks.append((moment.location, rows))
        done.set()
        for writer in writers:
            writer.join()
    store = RelayStore(tmp_path / "relay")
    pull("s1", upstream_server.server, store, begins=first.location)
    for location, rows in looks:
        # Windows skip rows of transactions that end at or before the location: the snapshot has them.
        behind = count(store, table, schema, {table: location.position})
        assert rows + behind == count(store, table, schema, {})


def count(store: RelayStore, table: TableId, schema, starts) -> int:
    rows = 0
    for segment in store.segments("s1"):
        for piece in segment.ranges:
            data = store.read("s1", segment.name, piece.start, piece.end)
            found = decode_range(data.data, data.checksum, {table: schema}, starts, data.origin)
            rows += sum(batch.num_rows for _, batch in found)
    return rows
