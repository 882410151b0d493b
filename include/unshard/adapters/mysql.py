"""Connections to MySQL-compatible servers, and the conversion of their errors to coded errors.

All connections of unshard are created here, with the same settings for values: utf8mb4, autocommit, time zone +00:00.
`where` names the server's role in messages (`source s1`, `target`). No message contains the password, because neither
the driver's messages nor ours do.

**TLS**: the peer is verified before the login is sent.
Contexts are created once per process, because reading certificates costs more than a login. Certificates are part of a
`Server` as text. OpenSSL reads the client certificate only from files, so it gets the path of a file in memory that is
on no disk.
"""

import contextlib
import os
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
from pymysql.constants.CLIENT import LOCAL_FILES
from pymysql.converters import conversions
from pymysql.cursors import Cursor, SSCursor

from unshard.adapters import tracebacks
from unshard.adapters.pymysqlprivate import (
    FILE_REQUESTED,
    PASSWORD_REQUESTED,
    PROTOCOL_BROKEN,
    BulkConnection,
    GuardedConnection,
)
from unshard.core.model import Server, TableId, Tls, Verify
from unshard.core.relay.segment import Statement
from unshard.core.sql.mode import mode_names
from unshard.core.sql.quoting import qualified
from unshard.errors import UnshardError
from unshard.errors.base import ServerError
from unshard.errors.config import CertificateInvalid
from unshard.errors.source import (
    AccessDenied,
    ConnectionLost,
    FileRequested,
    MissingPrivilege,
    PasswordRequested,
    ProtocolBroken,
    ServerBusy,
    ServerFull,
    ServerReadOnly,
    ServerUnreachable,
    SessionVariableRefused,
    StatementRefused,
    TableMissing,
    TlsFailed,
    UnknownDatabase,
)

# --- TLS ---


class CheckedContext(ssl.SSLContext):
    """A context that also checks the common name of the certificate."""

    allowed: tuple[str, ...] = ()
    authenticates = False
    """Whether only the right server can have the certificate, so that it may get the password itself."""

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Complete the handshake, then check the name; raises SSLCertVerificationError."""
        wrapped = super().wrap_socket(*args, **options)
        names = common_names(wrapped.getpeercert() or {})
        if self.allowed and not set(names) & set(self.allowed):
            wrapped.close()
            shown = ", ".join(names) or "none"
            raise ssl.SSLCertVerificationError(f"common name {shown} is not one of {', '.join(self.allowed)}")
        return wrapped


@cache
def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the context for connections with these TLS settings."""
    secured = CheckedContext(ssl.PROTOCOL_TLS_CLIENT)
    secured.allowed = tls.allowed
    secured.authenticates = tls.verify is Verify.FULL or (tls.verify is Verify.CA and bool(tls.ca or tls.allowed))
    secured.minimum_version = ssl.TLSVersion.TLSv1_2
    secured.check_hostname = tls.verify is Verify.FULL
    secured.verify_mode = ssl.CERT_NONE if tls.verify is Verify.NONE else ssl.CERT_REQUIRED
    try:
        if tls.ca:
            secured.load_verify_locations(cadata=tls.ca)
        else:
            secured.load_default_certs()
        if tls.certificate:
            with _memory_file(tls.certificate) as certificate, _memory_file(tls.key) as key:
                # Without this function OpenSSL would prompt for the key's password on the terminal.
                secured.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        # The message names the kind of fault, never the content of the file.
        raise CertificateInvalid(str(getattr(error, "reason", None) or "it is not in PEM format")) from None
    return secured


def common_names(certificate: Any) -> tuple[str, ...]:
    """Return the common names in a certificate's subject."""
    return tuple(value for part in certificate.get("subject", ()) for name, value in part if name == "commonName")


@contextlib.contextmanager
def _memory_file(text: str) -> Iterator[str]:
    """Return the path of a file that exists only in memory, until the block ends."""
    descriptor = os.memfd_create("unshard")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


# --- connections ---

C = TypeVar("C", bound="ServerConnection")
Row = tuple[Any, ...]
Arguments = Sequence[object] | Mapping[str, object] | None
_QUOTED = re.compile("`[^`]*`")


class Spelled(str):
    """A statement in which every `%` is doubled that is not a placeholder."""

    __slots__ = ()


CONNECT_SECONDS = 10.0
ENCODERS = {kind: convert for kind, convert in conversions.items() if not isinstance(kind, int)}
SAME_EVERYWHERE = (
    "SET NAMES utf8mb4, time_zone = '+00:00', sql_select_limit = 18446744073709551615, sql_quote_show_create = 1,"
    " lc_messages = 'en_US', completion_type = 'NO_CHAIN'"
)
"""Settings that make statements and results independent of the configuration of a server or of a task's session."""
OWN_SESSION = f"{SAME_EVERYWHERE}, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
SET_MODES = "SET SESSION sql_mode = %s"
UNKNOWN_MODES: dict[str, frozenset[str]] = {}
"""Modes that a server has refused, by its version; each process asks once."""
COLLATIONS = ("collation_connection", "collation_server")
COLLATION_NAMES = "information_schema.COLLATIONS"
TIMESTAMP_DEFAULTS = "explicit_defaults_for_timestamp"
TIMESTAMP = re.compile(r"\btimestamp\b", re.IGNORECASE)
"""Statements without this word do not depend on TIMESTAMP_DEFAULTS. TiDB does not allow setting it."""
SHOWN_STATEMENT = 200
CONNECT = "connect"
SCHEMA_DENIED = 1044
"""This error does not tell which privilege is missing, or for which object."""
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
    # TiDB: write conflicts, a schema changed by another session, its own servers that do not answer in time.
    **dict.fromkeys((8002, 8005, 8022, 8028, 9001, 9002, 9003, 9004, 9005, 9006, 9007), ServerBusy),
    FILE_REQUESTED: FileRequested,
    PASSWORD_REQUESTED: PasswordRequested,
    PROTOCOL_BROKEN: ProtocolBroken,
    # TiDB: it is unknown whether the COMMIT succeeded.
    8501: ConnectionLost,
}
REFUSALS = (StatementRefused, TableMissing, UnknownDatabase, MissingPrivilege)
"""Errors that mean that the server refuses a statement; others are trouble with the connection."""
READ_ONLY = frozenset({1792, 1836})
OPTION_PREVENTS = 1290
"""An option of the server does not allow the statement; only the message names the option."""
READ_ONLY_OPTION = re.compile("read[-_]only", re.IGNORECASE)
UNKNOWN_ERROR = 1105
"""TiDB's number for errors without their own number."""
ABORTED = "tikv aborts txn"
"""TiDB: a lock of the transaction was lost, so none of it is committed."""


class ServerConnection(GuardedConnection):
    """A connection that knows the role of its server in the task."""

    where = "server"

    def set_character_set(self, charset: str, collation: str | None = None) -> None:
        """Send nothing: `prepare` sets the character set together with other variables of the session."""
        self.charset, self.collation = charset, collation


class WritingConnection(BulkConnection, ServerConnection):
    """A connection that writes many rows."""


def driver_connection(server: Server, kind: type[C] = ServerConnection, **options: Any) -> C:
    """Connect without setting the session; raises the driver's errors."""
    tracebacks.hide(server.password)
    if server.tls is not None:
        options["ssl"] = tls_context(server.tls)
    # The driver would encode the password as latin1, and fail for other characters.
    return kind(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password.encode(),
        charset="utf8mb4",
        **({"connect_timeout": CONNECT_SECONDS} | options),
    )


def connect(
    server: Server,
    where: str = "server",
    *,
    database: str | None = None,
    local_infile: bool = False,
    read_timeout: float | None = None,
    own: Sequence[str] = (OWN_SESSION,),
) -> Connection:
    """Connect with utf8mb4, autocommit, the task's session variables, and then the variables in `own`.

    `local_infile`: the session may use LOAD DATA LOCAL and COM_STMT_BULK_EXECUTE.
    """
    # Not the driver's local_infile: it would send any file that the server requests.
    kind, flag = (WritingConnection, LOCAL_FILES) if local_infile else (ServerConnection, 0)
    options = {"database": database, "client_flag": flag, "read_timeout": read_timeout}
    return prepare(_open(server, where, {**options, "kind": kind}), server, own)


def connect_raw(
    server: Server, where: str = "server", *, database: str | None = None, read_timeout: float | None = None
) -> Connection:
    """Connect like `connect`, but return every value as the bytes that the server stores (SET NAMES binary).

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


@contextlib.contextmanager
def raw_results(connection: Connection) -> Iterator[None]:
    """Return values in the block as the bytes that the server stores, as `connect_raw` does."""
    before = connection.use_unicode, connection.decoders
    query(connection, "SET character_set_results = binary")
    connection.use_unicode, connection.decoders = False, {}
    try:
        yield
    finally:
        connection.use_unicode, connection.decoders = before
        if connection.open:
            query(connection, "SET character_set_results = utf8mb4")


def change(connection: Connection, sql: str, args: Arguments) -> int:
    """Run one statement and return how many rows it has changed; raises coded errors."""
    with coded_errors(connection, sql), connection.cursor(Cursor) as cursor:
        return int(cursor.execute(_spelled(sql, args), args))


def begin(connection: Connection) -> None:
    """Begin a transaction."""
    query(connection, "BEGIN")


def commit(connection: Connection) -> None:
    """Commit the transaction."""
    query(connection, "COMMIT")


def rollback(connection: Connection) -> None:
    """Roll the transaction back."""
    query(connection, "ROLLBACK")


def stream(connection: Connection, sql: str, args: Arguments = None, size: int = 1000) -> Iterator[list[Row]]:
    """Run one statement and yield its rows in lists of `size` without holding all of them; raises coded errors."""
    with coded_errors(connection, sql), contextlib.closing(connection.cursor(SSCursor)) as cursor:
        cursor.execute(_spelled(sql, args), args)
        while rows := cursor.fetchmany(size):
            yield list(rows)


def _spelled(sql: str, args: Arguments) -> str:
    """Return the statement in the driver's form: it also looks for placeholders in quoted names."""
    return (
        sql if args is None or isinstance(sql, Spelled) else _QUOTED.sub(lambda name: name[0].replace("%", "%%"), sql)
    )


@contextlib.contextmanager
def coded_errors(connection: Connection, statement: str) -> Iterator[None]:
    """Convert the driver's errors inside the block to coded errors."""
    try:
        yield
    except pymysql.err.Error as error:
        raise coded(error, connection, statement) from error


def coded(error: pymysql.err.Error, connection: Connection, statement: str) -> UnshardError:
    """Return the coded error for a driver error on this connection."""
    return _translate(error, getattr(connection, "where", "server"), _address(connection), statement)


def _translate(error: pymysql.err.Error, where: str, server: str, statement: str) -> ServerError:
    errno, words = _parts(error)
    if isinstance(getattr(error, "original_exception", None), ssl.SSLError):
        return TlsFailed(where, server, words)
    if errno == SCHEMA_DENIED and statement != CONNECT:
        words = f"{words}: it may not {' '.join(statement.split()[:2])}"
    if errno == UNKNOWN_ERROR and words.startswith(ABORTED):
        return ServerBusy(where, server, words)
    if cause := CAUSES.get(errno):
        return cause(where, server, words)
    if errno in READ_ONLY or (errno == OPTION_PREVENTS and READ_ONLY_OPTION.search(words)):
        return ServerReadOnly(where, server, words, errno, statement[:SHOWN_STATEMENT])
    return StatementRefused(where, server, words, errno, statement[:SHOWN_STATEMENT])


def errno_of(error: ServerError) -> int:
    """Return the server's number of an error; 0 if it has none."""
    cause = error.__cause__
    return _parts(cause)[0] if isinstance(cause, pymysql.err.Error) else 0


def is_lost(error: pymysql.err.Error) -> bool:
    """Whether the connection is lost, so that it cannot be used any more."""
    return CAUSES.get(_parts(error)[0]) is ConnectionLost


def _parts(error: pymysql.err.Error) -> tuple[int, str]:
    """Return number and message; the driver's own errors (lost packets, closed connection) have number 0."""
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
        # RuntimeError: a library that the account's authentication plugin needs is not installed.
        raise ServerUnreachable(where, str(server), str(error)) from error
    connection.where = where
    return connection


def prepare(connection: Connection, server: Server, own: Sequence[str] = (OWN_SESSION,)) -> Connection:
    """Set the session variables, those in `own` last; if that fails, close the connection."""
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
        raise SessionVariableRefused(error.where, error.server, error.server_message, name) from error


def _typed(value: str) -> int | float | str:
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    return float(value) if re.fullmatch(r"-?\d+\.\d+", value) else value


def plain_mode(connection: Connection) -> None:
    """Remove strictness from the session, because a DDL may recreate a structure that a lenient source allowed.

    Under our sql_mode the target refuses an unknown engine, an ENUM with a duplicate value, and a default such as
    '2020-02-31'. It refuses the latter two also when an index is dropped or added.
    """
    query(connection, "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'")


def uncheck_foreign_keys(connection: Connection) -> None:
    """Let the session create foreign keys whose parent does not exist yet."""
    query(connection, "SET SESSION foreign_key_checks = 0")


def create_as_shown(connection: Connection, text: str) -> None:
    """Run the output of SHOW CREATE TABLE, with timestamps as they are written; the session keeps this setting."""
    plain_mode(connection)
    with contextlib.suppress(StatementRefused, MissingPrivilege):  # fixed before MariaDB 10.8, always on in MySQL 8
        query(connection, "SET SESSION explicit_defaults_for_timestamp = 1")
    query(connection, text)


def assume_session(connection: Connection, statement: Statement) -> None:
    """Set every variable that affects the statement to its value when the source ran the statement.

    The text is sent in UTF-8 whatever its original charset was; only literals are read in that charset. A variable that
    this server does not have, or whose value it does not accept, is an error unless the meaning is the same here. A
    collation that this server does not have is left out: its character set is set, or nothing depends on it. A
    statement without a time zone has converted no time.

    If the server accepts all values, one SET is enough. Otherwise collations are set by name (TiDB), then each variable
    separately.
    """
    values = _assumed(connection, statement)
    if _set_at_once(connection, values):
        return
    if not values.keys().isdisjoint(COLLATIONS) and _set_at_once(connection, _with_names(connection, values)):
        return
    _assume_each(connection, statement)


def _assumed(connection: Connection, statement: Statement) -> dict[str, object]:
    """Return the session variables of a statement, in the order in which they must be set."""
    values: dict[str, object] = {"sql_mode": _modes(connection, statement), "foreign_key_checks": 0}
    if re.fullmatch(r"\w+", statement.charset):
        values["character_set_connection"] = statement.charset
    names = (name for name, _ in statement.session)
    needed = {name for name in names if name != TIMESTAMP_DEFAULTS or TIMESTAMP.search(statement.text)}
    values |= {name: value for name, value in statement.session if name in needed}
    if statement.timestamp:
        values["timestamp"] = _moment(statement)
    return {**values, "time_zone": statement.time_zone or "+00:00"}


def _set_at_once(connection: Connection, values: Mapping[str, object]) -> bool:
    """Set all variables with one statement; return False if the server refuses one of them."""
    assignments = ", ".join(f"{name} = %s" for name in values)
    try:
        query(connection, f"SET SESSION {assignments}", list(values.values()))
    except (StatementRefused, MissingPrivilege):
        return False
    return True


def _with_names(connection: Connection, values: Mapping[str, object]) -> dict[str, object]:
    """Return the variables with collations by name, without those that this server does not have."""
    numbers = [value for name, value in values.items() if name in COLLATIONS]
    marks = ", ".join(["%s"] * len(numbers))
    found = query(connection, f"SELECT ID, COLLATION_NAME FROM {COLLATION_NAMES} WHERE ID IN ({marks})", numbers)  # noqa: S608
    known: dict[object, str] = dict(found)
    named = {name: known.get(value) if name in COLLATIONS else value for name, value in values.items()}
    return {name: value for name, value in named.items() if value is not None}


def _moment(statement: Statement) -> Decimal:
    return Decimal(statement.timestamp) + Decimal(statement.microseconds).scaleb(-6)


def _assume_each(connection: Connection, statement: Statement) -> None:
    """Set the variables of a statement one by one; some are set differently or not at all."""
    _set_modes(connection, _modes(connection, statement))
    uncheck_foreign_keys(connection)
    if re.fullmatch(r"\w+", statement.charset):
        with contextlib.suppress(StatementRefused):  # a charset that this server does not have
            query(connection, f"SET SESSION character_set_connection = {statement.charset}")
    for name, value in statement.session:
        if name in COLLATIONS:
            set_collation(connection, name, value)
        elif name != TIMESTAMP_DEFAULTS or TIMESTAMP.search(statement.text):
            _assume(connection, name, value)
    if statement.timestamp:
        query(connection, "SET SESSION timestamp = %s", (_moment(statement),))
    try:
        query(connection, "SET SESSION time_zone = %s", (statement.time_zone or "+00:00",))
    except StatementRefused:
        offset = _offset(statement)
        if not offset:
            raise
        query(connection, "SET SESSION time_zone = %s", (offset,))


def _set_modes(connection: Connection, modes: str) -> None:
    """Set sql_mode, without the modes that this server does not have; these are remembered."""
    try:
        query(connection, SET_MODES, (modes,))
    except StatementRefused:
        unknown = frozenset(mode for mode in modes.split(",") if not _knows_mode(connection, mode))
        version = connection.get_server_info()
        UNKNOWN_MODES[version] = UNKNOWN_MODES.get(version, frozenset()) | unknown
        query(connection, SET_MODES, (_without(modes, unknown),))


def _modes(connection: Connection, statement: Statement) -> str:
    """Return the modes of a statement without those that servers of this version are known to refuse."""
    version = connection.get_server_info()
    modes = mode_names(statement.sql_mode, mariadb="MariaDB" in version)
    return _without(modes, UNKNOWN_MODES.get(version, frozenset()))


def _without(modes: str, unknown: frozenset[str]) -> str:
    return ",".join(mode for mode in modes.split(",") if mode not in unknown)


def _knows_mode(connection: Connection, mode: str) -> bool:
    try:
        query(connection, SET_MODES, (mode,))
    except StatementRefused:
        return False
    return True


def set_collation(connection: Connection, name: str, number: int) -> bool:
    """Set a collation variable by the collation's number; return False if this server does not have that collation.

    TiDB accepts only names. A collation has the same number on all servers that have it.
    """
    with contextlib.suppress(StatementRefused):
        query(connection, f"SET SESSION {name} = %s", (number,))
        return True
    found = query(connection, f"SELECT COLLATION_NAME FROM {COLLATION_NAMES} WHERE ID = %s", (number,))  # noqa: S608
    if not found:
        return False
    query(connection, f"SET SESSION {name} = %s", found[0])
    return True


def _assume(connection: Connection, name: str, value: int) -> None:
    """Set one variable of the source's session; the names come from binlog.events."""
    try:
        query(connection, f"SET SESSION {name} = %s", (value,))
    except (StatementRefused, MissingPrivilege):  # MySQL 8 requires a privilege for explicit_defaults_for_timestamp
        ((present,),) = query(connection, f"SELECT @@{name}")
        if present != value:
            raise


def _offset(statement: Statement) -> str:
    """Return the zone's offset at the time of the statement, for servers without time zone tables."""
    try:
        moment = datetime.fromtimestamp(statement.timestamp, ZoneInfo(statement.time_zone))
    except (ZoneInfoNotFoundError, ValueError):
        return ""
    return moment.isoformat()[-6:]


def table_name(table: TableId) -> str:
    """Return the quoted and qualified name of the table, for a statement."""
    return qualified(table.schema, table.name)
