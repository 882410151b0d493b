"""Probe the target: are LOAD DATA LOCAL and COM_STMT_BULK_EXECUTE accepted, and are they part of the open transaction?

TiDB commits the open transaction when it runs LOAD DATA LOCAL. Rows and fence would not be one transaction there. The
trial loads one row, rolls back, and looks for the row. It runs once per process and task.

| process dies              | remaining                            |
|---------------------------|--------------------------------------|
| before the ROLLBACK       | on TiDB the row, elsewhere nothing   |
| before the row is deleted | the row                              |

Every trial uses a different row. So a remaining row affects no later trial, and trials of several processes do not
interfere. The table is kept, because creating it takes TiDB longer than the rest of the trial.
"""

import contextlib
import secrets

from pymysql.connections import Connection

from unshard.adapters import mysql, pymysqlprivate
from unshard.adapters.pymysqlprivate import load_local
from unshard.adapters.target.sending import LOCAL_INFILE_REFUSED, statement_number
from unshard.adapters.target.session import NUMBERS, TRANSACTIONS, Writer, open_session, repeated
from unshard.core.model import Server, TableId
from unshard.core.rows.writepath import LoadData, Writing, has_bulk
from unshard.errors.source import ConnectionLost, MissingPrivilege, StatementRefused, TableMissing

TABLE = "load_data_trial"
UNKNOWN_PROCESSORS = 2


def tried_writer(server: Server, meta_schema: str) -> Writer:
    """Return how rows are written into the target; raises coded errors if the target cannot be reached."""
    return repeated(lambda: _tried(server, TableId(meta_schema, TABLE)))


def tried_writing(server: Server, table: TableId) -> Writing:
    """Return how rows would be written; creates `table` for the trial and drops it afterwards."""
    return repeated(lambda: _tried_and_dropped(server, table))


def _tried_and_dropped(server: Server, table: TableId) -> Writing:
    try:
        return _tried(server, table).writing
    finally:
        with contextlib.closing(open_session(Writer(server))) as connection:
            mysql.query(connection, f"DROP TABLE IF EXISTS {mysql.table_name(table)}")


def _tried(server: Server, table: TableId) -> Writer:
    with contextlib.closing(open_session(Writer(server))) as connection:
        ((packet,),) = mysql.query(connection, "SELECT @@max_allowed_packet")
        settings = ", ".join(each for each in (TRANSACTIONS, NUMBERS) if _accepts(connection, f"SET SESSION {each}"))
        version = connection.get_server_info()
        return Writer(
            server,
            _found(connection, table),
            int(packet),
            settings=(f"SET SESSION {settings}",) if settings else (),
            version=version,
            processors=_processors(connection),
            bulk=has_bulk(version) and _takes_bulk(Writer(server, version=version, bulk=True), table),
        )


def _takes_bulk(writer: Writer, table: TableId) -> bool:
    """Whether COM_STMT_BULK_EXECUTE writes a row in the open transaction; a proxy may not know the command."""
    row, name = secrets.token_hex(16).encode(), mysql.table_name(table)
    statement = f"INSERT INTO {name} (id) VALUES (?)"  # noqa: S608
    try:
        with contextlib.closing(open_session(writer)) as connection:
            if not connection.uses_bulk:
                return False
            try:
                number = statement_number(connection, statement)
            except TableMissing:  # LOAD DATA LOCAL was refused before its table was needed
                mysql.query(connection, _creation(name))
                number = statement_number(connection, statement)
            mysql.query(connection, "BEGIN")
            with mysql.coded_errors(connection, statement):
                rows = memoryview(b"\0\x20" + row)
                wrote = pymysqlprivate.execute_bulk(connection, "SAVEPOINT s", number, 1, rows).affected_rows
            mysql.query(connection, "ROLLBACK")
            found = mysql.query(connection, f"SELECT 1 FROM {name} WHERE id = %s", (row,))  # noqa: S608
            return wrote == 1 and not found
    except (StatementRefused, MissingPrivilege, ConnectionLost):
        return False


def _creation(name: str) -> str:
    return f"CREATE TABLE IF NOT EXISTS {name} (id CHAR(32) PRIMARY KEY) ENGINE = InnoDB"


def _processors(connection: Connection) -> int:
    """Return how many processors the target has: MariaDB has as many groups in its thread pool, MySQL does not tell."""
    rows = mysql.query(connection, "SHOW GLOBAL VARIABLES LIKE 'thread_pool_size'")
    return int(rows[0][1]) if rows else UNKNOWN_PROCESSORS


def _accepts(connection: Connection, statement: str) -> bool:
    try:
        mysql.query(connection, statement)
    except (StatementRefused, MissingPrivilege):
        return False
    return True


def _found(connection: Connection, table: TableId) -> LoadData:
    try:
        return _outcome(connection, table)
    except StatementRefused as error:
        return LoadData.REFUSED if error.errno in LOCAL_INFILE_REFUSED else LoadData.UNKNOWN
    except MissingPrivilege:
        return LoadData.UNKNOWN


def _outcome(connection: Connection, table: TableId) -> LoadData:
    name, row = mysql.table_name(table), secrets.token_hex(16)
    mysql.query(connection, "BEGIN")
    try:
        loaded = _load(connection, name, row)
    except TableMissing:
        mysql.query(connection, _creation(name))
        mysql.query(connection, "BEGIN")
        loaded = _load(connection, name, row)
    mysql.query(connection, "ROLLBACK")
    if mysql.query(connection, f"SELECT 1 FROM {name} WHERE id = %s", (row,)):  # noqa: S608
        mysql.query(connection, f"DELETE FROM {name} WHERE id = %s", (row,))  # noqa: S608
        return LoadData.COMMITS
    return LoadData.TRANSACTIONAL if loaded else LoadData.UNKNOWN


def _load(connection: Connection, name: str, row: str) -> int:
    statement = f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {name} CHARACTER SET binary (id)"
    with mysql.coded_errors(connection, statement):
        return load_local(connection, statement, memoryview(row.encode() + b"\n")).affected_rows
