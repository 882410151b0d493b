"""A consistent snapshot of a source, and the exact binlog location that belongs to it.

`SHOW MASTER STATUS` is not exact: the binlog may contain a transaction whose rows InnoDB does not show yet. A reader
that begins there would miss them for ever. MariaDB itself reports the location of a consistent snapshot. On other
servers FLUSH TABLES WITH READ LOCK blocks commits for a moment. With `consistency: lock`, each table is locked, which
also works for engines without snapshots.
"""

from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters import upstream
from unshard.adapters.mysql import query, table_name
from unshard.core.model import Location, TableId

LOCK_WAIT_SECONDS = 60
BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"


@dataclass(frozen=True, slots=True)
class Moment:
    """The snapshot contains exactly the transactions before `location`."""

    location: Location
    gtid: str


def begin_snapshot(connection: Connection, source: str) -> Moment:
    """Open a consistent snapshot on the connection; it lasts until the transaction ends."""
    query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    query(connection, BEGIN)
    shown = query(connection, "SHOW STATUS LIKE 'binlog\\_snapshot\\_%'")
    found = {upstream.text(name): upstream.text(value) for name, value in shown}
    file = found.get("Binlog_snapshot_file", "")
    if not file:
        return _under_lock(connection, source)
    location = Location(file, int(found["Binlog_snapshot_position"]))
    ((gtid,),) = query(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (location.file, location.position))
    return Moment(location, upstream.text(gtid))


def _under_lock(connection: Connection, source: str) -> Moment:
    query(connection, "ROLLBACK")
    query(connection, "FLUSH TABLES WITH READ LOCK")
    try:
        query(connection, BEGIN)
        return Moment(*upstream.reached(connection, source))
    finally:
        if connection.open:
            query(connection, "UNLOCK TABLES")


def lock_table(connection: Connection, source: str, table: TableId) -> Moment:
    """Block writers of a table until the connection ends; the moment is exact for this table, with any engine.

    The server grants the lock when every transaction that has written to the table has ended and is in the binlog. New
    writers wait while unshard waits for the lock, so it gives up after a timeout; that error may be retried.
    """
    query(connection, "SET SESSION lock_wait_timeout = %s", (LOCK_WAIT_SECONDS,))
    query(connection, f"LOCK TABLES {table_name(table)} READ")
    return Moment(*upstream.reached(connection, source))
