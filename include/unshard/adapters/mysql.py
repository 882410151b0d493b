"""Connections to MySQL-compatible servers, and the one place where their errors become coded ones.

Every connection of unshard is made here, so that all of them agree on what a value looks like: utf8mb4,
autocommit, time zone +00:00. `where` names the server's role in messages (`source s1`, `target`); the
password is in no message, because neither the driver's words nor ours contain it.
"""

import contextlib
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pymysql
from pymysql.connections import Connection
from pymysql.converters import conversions
from pymysql.cursors import Cursor, SSCursor

from unshard.adapters import tls
from unshard.core.model import Server, TableId
from unshard.core.quoting import identifier, qualified
from unshard.core.segment import Statement
from unshard.core.sqlmode import mode_names
from unshard.errors import UnshardError
from unshard.errors.source import (
    AccessDenied,
    ConnectionLost,
    MissingPrivilege,
    ServerBusy,
    ServerError,
    ServerFull,
    ServerUnreachable,
    SessionVariableRefused,
    StatementRefused,
    TableMissing,
    TlsFailed,
    UnknownDatabase,
)

__all__ = ["assume_session", "coded", "coded_errors", "connect", "connect_raw", "create_as_shown", "identifier",
           "plain_mode", "prepare", "query", "stream", "table_name"]  # fmt: skip

C = TypeVar("C", bound="ServerConnection")
Row = tuple[Any, ...]
Arguments = Sequence[object] | Mapping[str, object] | None
_QUOTED = re.compile("`[^`]*`")


class Spelled(str):
    """A statement in which `%` is doubled wherever it is no place of an argument."""

    __slots__ = ()


CONNECT_SECONDS = 10.0
ENCODERS = {kind: convert for kind, convert in conversions.items() if not isinstance(kind, int)}
SAME_EVERYWHERE = (
    "SET NAMES utf8mb4, time_zone = '+00:00', sql_select_limit = 18446744073709551615, sql_quote_show_create = 1,"
    " lc_messages = 'en_US', completion_type = 'NO_CHAIN'"
)
"""What our statements and answers to them mean must not depend on how a server, or a task's session, is set."""
OWN_SESSION = f"{SAME_EVERYWHERE}, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
SET_MODES = "SET SESSION sql_mode = %s"
COLLATIONS = ("collation_connection", "collation_server")
TIMESTAMP_DEFAULTS = "explicit_defaults_for_timestamp"
TIMESTAMP = re.compile(r"\btimestamp\b", re.IGNORECASE)
"""Statements without this word mean the same whatever TIMESTAMP_DEFAULTS is. TiDB does not let it be set."""
SHOWN_STATEMENT = 200
CONNECT = "connect"
SCHEMA_DENIED = 1044
"""Says neither which privilege is lacking nor for what."""
CAUSES: Mapping[int, type[ServerError]] = {
    **dict.fromkeys((1045, 1698, 1251, 1524, 1862, 3118, 4151), AccessDenied),
    **dict.fromkeys((1044, 1129, 1130, 1142, 1143, 1227, 1370, 1410, 8121), MissingPrivilege),
    **dict.fromkeys((1049,), UnknownDatabase),
    **dict.fromkeys((1146,), TableMissing),
    **dict.fromkeys((2002, 2003, 2005), ServerUnreachable),
    **dict.fromkeys((0, 1053, 1927, 2006, 2013, 2014, 2055, 4031, 1152, 1158, 1159, 1160, 1161), ConnectionLost),
    **dict.fromkeys((2026, 3159), TlsFailed),
    **dict.fromkeys((1040, 1203, 1226, 1041, 1135), ServerFull),
    **dict.fromkeys((1205, 1213), ServerBusy),
    # TiDB: write conflicts, a schema that has changed meanwhile, its own servers that do not answer in time.
    **dict.fromkeys((8002, 8005, 8022, 8028, 9001, 9002, 9003, 9004, 9005, 9006, 9007), ServerBusy),
    # TiDB: it is unknown whether the COMMIT was carried out.
    8501: ConnectionLost,
}


class ServerConnection(Connection):  # type: ignore[misc]
    """A connection that knows what its server is to the task and shares the preparations for TLS.

    The driver reads all certificates of the system anew for every connection, which takes 25 ms.
    """

    where = "server"

    def set_character_set(self, charset: str, collation: str | None = None) -> None:
        """Send nothing: `prepare` sets the character set together with other variables of the session."""
        self.charset, self.collation = charset, collation

    def _create_ssl_ctx(self, sslp: Mapping[str, Any]) -> Any:
        return super()._create_ssl_ctx(sslp) if sslp else _unasked()


@cache
def _unasked() -> Any:
    return Connection(defer_connect=True).ctx


def driver_connection(server: Server, kind: type[C] = ServerConnection, **options: Any) -> C:
    """Connect without setting the session; raises the driver's errors."""
    if server.tls is not None:
        options["ssl"] = tls.context(server.tls)
    # The driver would encode the password as latin1, and fail at what does not fit.
    return kind(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password.encode(),
        charset="utf8mb4",
        connect_timeout=CONNECT_SECONDS,
        **options,
    )


def connect(server: Server, where: str = "server", *, database: str | None = None, local_infile: bool = False,
            read_timeout: float | None = None, own: Sequence[str] = (OWN_SESSION,)) -> Connection:  # fmt: skip
    """Connect with utf8mb4, autocommit, the task's session variables and, set by `own`, ours."""
    options = {"database": database, "local_infile": local_infile, "read_timeout": read_timeout}
    return prepare(_open(server, where, options), server, own)


def connect_raw(server: Server, where: str = "server", *, database: str | None = None,
                read_timeout: float | None = None) -> Connection:  # fmt: skip
    """Connect like `connect`, but every value comes as the bytes that the server stores (SET NAMES binary).

    Statements are still sent as UTF-8, so identifiers outside ASCII work; string literals are binary.
    """
    options = {"database": database, "use_unicode": False, "conv": ENCODERS, "read_timeout": read_timeout}
    connection = prepare(_open(server, where, options), server)
    query(connection, "SET NAMES binary")
    return connection


def query(connection: Connection, sql: str, args: Arguments = None) -> list[Row]:
    """Run one statement and return all its rows; raises coded errors."""
    with coded_errors(connection, sql), connection.cursor(Cursor) as cursor:
        cursor.execute(_spelled(sql, args), args)
        return list(cursor.fetchall())


def change(connection: Connection, sql: str, args: Arguments) -> int:
    """Run one statement and return how many rows it has changed; raises coded errors."""
    with coded_errors(connection, sql), connection.cursor(Cursor) as cursor:
        return int(cursor.execute(_spelled(sql, args), args))


def stream(connection: Connection, sql: str, args: Arguments = None, size: int = 1000) -> Iterator[list[Row]]:
    """Run one statement and yield its rows in lists of `size` without holding all of them; raises coded errors."""
    with coded_errors(connection, sql), contextlib.closing(connection.cursor(SSCursor)) as cursor:
        cursor.execute(_spelled(sql, args), args)
        while rows := cursor.fetchmany(size):
            yield list(rows)


def _spelled(sql: str, args: Arguments) -> str:
    """Return the statement as the driver takes it, which looks for its arguments in quoted names, too."""
    return (
        sql if args is None or isinstance(sql, Spelled) else _QUOTED.sub(lambda name: name[0].replace("%", "%%"), sql)
    )


@contextlib.contextmanager
def coded_errors(connection: Connection, statement: str) -> Iterator[None]:
    """Turn the driver's errors inside the block into coded ones."""
    try:
        yield
    except pymysql.err.Error as error:
        raise coded(error, connection, statement) from error


def coded(error: pymysql.err.Error, connection: Connection, statement: str) -> UnshardError:
    """Return the coded error for what the driver raised on this connection."""
    return _translate(error, getattr(connection, "where", "server"), _address(connection), statement)


def _translate(error: pymysql.err.Error, where: str, server: str, statement: str) -> ServerError:
    errno, words = _parts(error)
    if isinstance(getattr(error, "original_exception", None), ssl.SSLError):
        return TlsFailed(where, server, words)
    if errno == SCHEMA_DENIED and statement != CONNECT:
        words = f"{words}: it may not {' '.join(statement.split()[:2])}"
    if cause := CAUSES.get(errno):
        return cause(where, server, words)
    return StatementRefused(where, server, words, errno, statement[:SHOWN_STATEMENT])


def is_lost(error: pymysql.err.Error) -> bool:
    """Return whether the connection is lost, so that nothing can run on it any more."""
    return CAUSES.get(_parts(error)[0]) is ConnectionLost


def _parts(error: pymysql.err.Error) -> tuple[int, str]:
    """Split into number and words; the driver's own errors (lost packets, closed connection) have number 0."""
    if len(error.args) >= 2 and isinstance(error.args[0], int):
        return error.args[0], str(error.args[1])
    return 0, str(error) or type(error).__name__


def _address(connection: Connection) -> str:
    user = connection.user.decode() if isinstance(connection.user, bytes) else connection.user
    return f"{user}@{connection.host}:{connection.port}"


def _open(server: Server, where: str, options: Mapping[str, Any]) -> ServerConnection:
    try:
        connection: ServerConnection = driver_connection(server, autocommit=True, **options)
    except pymysql.err.Error as error:
        raise _translate(error, where, str(server), CONNECT) from error
    except (OSError, RuntimeError) as error:
        # RuntimeError: the driver lacks what the account's authentication plugin needs.
        raise ServerUnreachable(where, str(server), str(error)) from error
    connection.where = where
    return connection


def prepare(connection: Connection, server: Server, own: Sequence[str] = (OWN_SESSION,)) -> Connection:
    """Set the session, ours last; a connection that cannot be set up is closed, never handed out half-made."""
    try:
        for name, value in server.session:
            _set_variable(connection, name, value)
        for statement in own:
            query(connection, statement)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_variable(connection: Connection, name: str, value: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
        raise SessionVariableRefused(connection.where, _address(connection), "this is no name of a variable", name)
    try:
        query(connection, f"SET SESSION {name} = %s", (_typed(value),))
    except StatementRefused as error:
        raise SessionVariableRefused(error.where, error.server, error.words, name) from error


def _typed(value: str) -> int | float | str:
    """Numbers must be sent as numbers: the server takes no '10' for an integer variable."""
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    return float(value) if re.fullmatch(r"-?\d+\.\d+", value) else value


def plain_mode(connection: Connection) -> None:
    """Leave strictness out of the session: a DDL may have to make again what a lenient source has let its shards have.

    Under ours the target refuses an engine that it lacks, an ENUM that names a value twice and a default like
    '2020-02-31', the latter two also when an index is dropped or added.
    """
    query(connection, "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'")


def create_as_shown(connection: Connection, text: str) -> None:
    """Run a text that SHOW CREATE TABLE has printed, with timestamps as they are written; the session stays so."""
    plain_mode(connection)
    with contextlib.suppress(StatementRefused, MissingPrivilege):  # fixed before MariaDB 10.8, on for all in MySQL 8
        query(connection, "SET SESSION explicit_defaults_for_timestamp = 1")
    query(connection, text)


def assume_session(connection: Connection, statement: Statement) -> None:
    """Set all that the meaning of a statement depends on to what it was when the source ran it.

    The text goes over in UTF-8 whatever charset it came in; only literals are taken in that charset. A variable
    that this server does not have, or not with that value, is an error unless it means the same here. A collation
    that this server does not have is left out: its character set is set, or nothing relies on it.
    """
    modes = mode_names(statement.sql_mode, mariadb="MariaDB" in connection.get_server_info())
    _set_modes(connection, modes)
    query(connection, "SET SESSION foreign_key_checks = 0")
    if re.fullmatch(r"\w+", statement.charset):
        with contextlib.suppress(StatementRefused):  # a charset that this server does not know
            query(connection, f"SET SESSION character_set_connection = {statement.charset}")
    for name, value in statement.session:
        if name in COLLATIONS:
            set_collation(connection, name, value)
        elif name != TIMESTAMP_DEFAULTS or TIMESTAMP.search(statement.text):
            _assume(connection, name, value)
    if statement.timestamp:
        moment = Decimal(statement.timestamp) + Decimal(statement.microseconds).scaleb(-6)
        query(connection, "SET SESSION timestamp = %s", (moment,))
    try:
        query(connection, "SET SESSION time_zone = %s", (statement.time_zone,))
    except StatementRefused:
        offset = _offset(statement)
        if not offset:
            raise
        query(connection, "SET SESSION time_zone = %s", (offset,))


def _set_modes(connection: Connection, modes: str) -> None:
    """Set sql_mode, without the modes that this server does not know."""
    try:
        query(connection, SET_MODES, (modes,))
    except StatementRefused:
        known = [mode for mode in modes.split(",") if _knows_mode(connection, mode)]
        query(connection, SET_MODES, (",".join(known),))


def _knows_mode(connection: Connection, mode: str) -> bool:
    try:
        query(connection, SET_MODES, (mode,))
    except StatementRefused:
        return False
    return True


def set_collation(connection: Connection, name: str, number: int) -> bool:
    """Set a collation variable by the collation's number; return False if this server does not have that collation.

    TiDB takes names only. Collations have the same numbers on all servers that have them.
    """
    with contextlib.suppress(StatementRefused):
        query(connection, f"SET SESSION {name} = %s", (number,))
        return True
    found = query(connection, "SELECT COLLATION_NAME FROM information_schema.COLLATIONS WHERE ID = %s", (number,))
    if not found:
        return False
    query(connection, f"SET SESSION {name} = %s", found[0])
    return True


def _assume(connection: Connection, name: str, value: int) -> None:
    """Set one variable of the source's session; the names come from binlog.session."""
    try:
        query(connection, f"SET SESSION {name} = %s", (value,))
    except (StatementRefused, MissingPrivilege):  # MySQL 8 lets few accounts set explicit_defaults_for_timestamp
        ((present,),) = query(connection, f"SELECT @@{name}")
        if present != value:
            raise


def _offset(statement: Statement) -> str:
    """Return the zone's offset at the time of the statement, for servers without tables of time zones."""
    try:
        moment = datetime.fromtimestamp(statement.timestamp, ZoneInfo(statement.time_zone))
    except (ZoneInfoNotFoundError, ValueError):
        return ""
    return moment.isoformat()[-6:]


def table_name(table: TableId) -> str:
    """Return the table's name quoted and qualified, as it stands in a statement."""
    return qualified(table.schema, table.name)
