"""A view of a source at one moment, and the exact location in its binlog that belongs to it.

`SHOW MASTER STATUS` is not exact: a transaction may stand in the binlog while InnoDB does not show its
rows yet, so a reader that begins there would miss them for ever. MariaDB tells the location of a consistent
snapshot itself; elsewhere commits are held up for a moment by FLUSH TABLES WITH READ LOCK. Who asks for locks
(`consistency: lock`) gets one per table, which also holds for engines that have no snapshots.
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
    """All transactions before `location` are in the snapshot, and no other."""

    location: Location
    gtid: str


def begin_snapshot(connection: Connection, source: str) -> Moment:
    """Open a consistent snapshot on the connection, which lasts until its transaction ends."""
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
    """Keep writers of a table out until the connection ends; the moment is exact for this table, whatever its engine.

    The lock is granted when every transaction that has written to the table has ended, in the binlog too. A writer
    who comes while we wait for it waits with us, so we give up after a while; that may be tried again.
    """
    query(connection, "SET SESSION lock_wait_timeout = %s", (LOCK_WAIT_SECONDS,))
    query(connection, f"LOCK TABLES {table_name(table)} READ")
    return Moment(*upstream.reached(connection, source))
