"""The state that a source reports: the end of its binlog, its identity, its binlog settings, and parts of its catalog.

Identity: MySQL has `server_uuid`. MariaDB has no persistent id (its `server_uid` changes with the port, host names
change with every container), so `server_id` and the data directory are used. A server that is replaced under the same
identity is still detected, because each binlog file is identified by its creation time (see units/relay/pull.py).

**A consistent snapshot** has an exact binlog location.
`SHOW MASTER STATUS` is not exact: the binlog may contain a transaction whose rows InnoDB does not show yet. A reader
that begins there would miss them for ever. MariaDB itself reports the location of a consistent snapshot. On other
servers FLUSH TABLES WITH READ LOCK blocks commits for a moment. With `consistency: lock`, each table is locked, which
also works for engines without snapshots.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters.mysql import Row, query, table_name
from unshard.core.model import Location, TableId
from unshard.errors import UnshardError
from unshard.errors.relay import BinlogInEngine, BinlogOff
from unshard.errors.source import MissingPrivilege, StatementRefused

WRONG_OFFSET = 1220
BETWEEN = (
    "Format_desc",
    "Start_encryption",
    "Gtid",
    "Anonymous_Gtid",
    "Previous_gtids",
    "Binlog_checkpoint",
    "View_change",
    "Rotate",
    "Stop",
)
"""Prefixes of the names that SHOW BINLOG EVENTS prints for events between transactions or at the start of one."""
WITHIN = re.compile(r"(use .*; )?(COMMIT|ROLLBACK|SAVEPOINT|XA END)\b")
"""Query events that continue a transaction. All others begin one or are one; on MySQL 5.6 nothing precedes them."""
VARIABLES = (
    "version",
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "binlog_storage_engine",
    "server_id",
    "datadir",
    "server_uuid",
)


@dataclass(frozen=True, slots=True)
class Upstream:
    """State of a source at one moment."""

    end: Location
    """Location after the last complete event of its binlog."""
    gtid: str
    """GTIDs that its binlog has reached (MariaDB: gtid_binlog_pos), empty if unknown."""
    identity: str
    flavor: str
    """`mariadb` or `mysql`."""
    version: str
    binlog_format: str
    binlog_row_image: str


def refuse_without_files(source: str, variables: Mapping[str, str]) -> None:
    """Raise if the server's variables say that it has no binlog in files."""
    if variables.get("log_bin") not in ("ON", "1"):
        raise BinlogOff(source)
    if engine := variables.get("binlog_storage_engine"):
        raise BinlogInEngine(source, engine)


def inspect(connection: Connection, source: str) -> Upstream:
    """Read all settings that the relay needs before it pulls; raises if there is no binlog in files."""
    variables = _variables(connection)
    refuse_without_files(source, variables)
    version = variables.get("version", "")
    flavor = "mariadb" if "mariadb" in version.lower() else "mysql"
    end, gtid = reached(connection, source)
    return Upstream(
        end,
        gtid,
        _identity(variables, flavor),
        flavor,
        version,
        variables.get("binlog_format", ""),
        variables.get("binlog_row_image", ""),
    )


def location(connection: Connection, source: str = "") -> Location:
    """Return the current end of the binlog."""
    return reached(connection, source)[0]


def reached(connection: Connection, source: str) -> tuple[Location, str]:
    """Return the current end of the binlog and the GTIDs that it has reached; BinlogOff if there is no binlog."""
    rows = show_status(connection)
    if not rows:
        raise BinlogOff(source)
    reached_at = Location(plain_text(rows[0][0]), int(rows[0][1]))
    if len(rows[0]) > 4:
        return reached_at, plain_text(rows[0][4]).replace("\n", "")
    ((gtid,),) = query(connection, "SELECT @@gtid_binlog_pos")
    return reached_at, plain_text(gtid)


def plain_text(value: object) -> str:
    """Return a text value of a connection, which may return bytes; NULL is empty."""
    if value is None:
        return ""
    return value.decode() if isinstance(value, bytes) else str(value)


def show_status(connection: Connection) -> list[Row]:
    """Return the row with the end of the binlog, from a server of any version; empty if it has no binlog."""
    try:
        return query(connection, "SHOW MASTER STATUS")
    except StatementRefused as refused:
        # MySQL 8.4 supports only the new statement.
        try:
            return query(connection, "SHOW BINARY LOG STATUS")
        except UnshardError:
            raise refused from None


def identity(connection: Connection) -> str:
    """Return a string that identifies this server, also after a restart."""
    variables = _variables(connection)
    return _identity(variables, "mariadb" if "mariadb" in variables.get("version", "").lower() else "mysql")


def prepared(connection: Connection) -> frozenset[Row] | None:
    """Return the prepared XA transactions; None if the account may not see them (MySQL: XA_RECOVER_ADMIN)."""
    try:
        return frozenset(query(connection, "XA RECOVER"))
    except (StatementRefused, MissingPrivilege):
        # The relay refuses the COMMIT of an unknown XA transaction, so nothing is lost without them.
        return None


def binlog_files(connection: Connection) -> dict[str, int]:
    """Return the binlog files that the server still has, oldest first, with their sizes."""
    return {str(row[0]): int(row[1]) for row in query(connection, "SHOW BINARY LOGS")}


def gtid_at(connection: Connection, place: Location) -> str:
    """Return the GTIDs that the binlog has reached at a location (MariaDB)."""
    rows = query(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (place.file, place.position))
    return plain_text(rows[0][0])


def is_border(connection: Connection, start: Location) -> bool:
    """Whether no transaction is in progress at this location; false if no event begins there."""
    try:
        events = query(connection, "SHOW BINLOG EVENTS IN %s FROM %s LIMIT 1", (start.file, start.position))
    except StatementRefused as error:
        if error.errno == WRONG_OFFSET:
            return False
        raise
    kinds = [(str(kind), str(info)) for _, _, kind, *_, info in events]
    return all(kind.startswith(BETWEEN) or (kind == "Query" and not WITHIN.match(info)) for kind, info in kinds)


def _variables(connection: Connection) -> dict[str, str]:
    names = ", ".join(f"'{name}'" for name in VARIABLES)
    rows = query(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return {str(name).lower(): str(value) for name, value in rows}


def _identity(variables: dict[str, str], flavor: str) -> str:
    if variables.get("server_uuid"):
        return f"{flavor}:{variables['server_uuid']}"
    directory = hashlib.sha256(variables.get("datadir", "").encode()).hexdigest()[:12]
    return f"{flavor}:{variables.get('server_id', '0')}:{directory}"


# --- what a statement may write besides the tables that it names

KINDS = "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES"
TRIGGERS = "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS"
CHILDREN = """SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UPDATE_RULE, DELETE_RULE
FROM information_schema.REFERENTIAL_CONSTRAINTS"""
ROUTINES = "SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_NAME IN ({marks})"
HARMLESS = ("RESTRICT", "NO ACTION")
OWN_ROWS = frozenset(
    {"ARCHIVE", "ARIA", "BLACKHOLE", "CSV", "INNODB", "MEMORY", "MYISAM", "PERFORMANCE_SCHEMA", "ROCKSDB", "TOKUDB"}
)
"""Engines of tables that have their own rows; others may write into other tables."""
TABLES = ("BASE TABLE", "SEQUENCE", "SYSTEM VERSIONED")
SHOWN = "SYSTEM VIEW"
"""A table of information_schema."""


def real_tables(connection: Connection, tables: Collection[TableId]) -> frozenset[TableId] | None:
    """Return the tables that exist; None if one of them is a view, or of an engine that may write into another."""
    found = _of(connection, KINDS, ("TABLE_SCHEMA", "TABLE_NAME"), tables)
    found = [row for row in found if row[2] != SHOWN]
    if any(kind not in TABLES or str(engine).upper() not in OWN_ROWS for _, _, kind, engine in found):
        return None
    return frozenset(TableId(schema, name) for schema, name, *_ in found)


def have_triggers(connection: Connection, tables: Collection[TableId]) -> bool:
    """Whether one of the tables has a trigger."""
    return bool(_of(connection, TRIGGERS, ("EVENT_OBJECT_SCHEMA", "EVENT_OBJECT_TABLE"), tables))


def children(connection: Connection, tables: Collection[TableId]) -> frozenset[TableId]:
    """Return the tables whose foreign keys change their rows with those of the tables."""
    names = ("UNIQUE_CONSTRAINT_SCHEMA", "REFERENCED_TABLE_NAME")
    return frozenset(
        TableId(schema, name)
        for schema, name, *rules in _of(connection, CHILDREN, names, tables)
        if not set(rules) <= {*HARMLESS}
    )


def are_routines(connection: Connection, names: Collection[str]) -> bool:
    """Whether one of the names is that of a stored routine or package."""
    marks = ", ".join(["%s"] * len(names))
    return bool(names and query(connection, ROUTINES.format(marks=marks), sorted(names)))


def _of(connection: Connection, select: str, names: tuple[str, str], tables: Collection[TableId]) -> list[Row]:
    """Return the rows about the tables, whose names the server may have in lower case."""
    if not tables:
        return []
    spelled = sorted(
        {TableId(t.schema, t.name) for t in tables} | {TableId(t.schema.lower(), t.name.lower()) for t in tables}
    )
    marks = ", ".join(["(%s, %s)"] * len(spelled))
    values = [part for table in spelled for part in (table.schema, table.name)]
    return query(connection, f"{select} WHERE ({', '.join(names)}) IN ({marks})", values)


# --- snapshots ---

LOCK_WAIT_SECONDS = 60
BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"


@dataclass(frozen=True, slots=True)
class SnapshotMoment:
    """The snapshot contains exactly the transactions before `location`."""

    location: Location
    gtid: str


def begin_snapshot(connection: Connection, source: str) -> SnapshotMoment:
    """Open a consistent snapshot on the connection; it lasts until the transaction ends."""
    query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    query(connection, BEGIN)
    shown = query(connection, "SHOW STATUS LIKE 'binlog\\_snapshot\\_%'")
    found = {plain_text(name): plain_text(value) for name, value in shown}
    file = found.get("Binlog_snapshot_file", "")
    if not file:
        return _under_lock(connection, source)
    location = Location(file, int(found["Binlog_snapshot_position"]))
    ((gtid,),) = query(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (location.file, location.position))
    return SnapshotMoment(location, plain_text(gtid))


def _under_lock(connection: Connection, source: str) -> SnapshotMoment:
    query(connection, "ROLLBACK")
    query(connection, "FLUSH TABLES WITH READ LOCK")
    try:
        query(connection, BEGIN)
        return SnapshotMoment(*reached(connection, source))
    finally:
        if connection.open:
            query(connection, "UNLOCK TABLES")


def lock_table(connection: Connection, source: str, table: TableId) -> SnapshotMoment:
    """Block writers of a table until the connection ends; the moment is exact for this table, with any engine.

    The server grants the lock when every transaction that has written to the table has ended and is in the binlog. New
    writers wait while unshard waits for the lock, so it gives up after a timeout; that error may be retried.
    """
    query(connection, "SET SESSION lock_wait_timeout = %s", (LOCK_WAIT_SECONDS,))
    query(connection, f"LOCK TABLES {table_name(table)} READ")
    return SnapshotMoment(*reached(connection, source))
