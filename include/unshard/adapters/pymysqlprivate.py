"""All use of PyMySQL's private API: packets, the receive buffer and the socket of a connection.

tests/unit/servers/test_pymysqlprivate.py fails if a version of PyMySQL changes what is used here. No function here
converts errors; the caller does (`mysql.coded_errors`).

No server is trusted: it may be replaced, or someone in between may change its answers. `GuardedConnection` closes the
connection and raises the driver's error with one of these numbers:

| the server …                                                       | number               |
|--------------------------------------------------------------------|----------------------|
| requests a file, except in `load_local`, which sends its own lines | `FILE_REQUESTED`     |
| requests a password in a form that it, or someone in between, can read | `PASSWORD_REQUESTED` |
| sends bytes that contradict the protocol                           | `PROTOCOL_BROKEN`    |
"""

import contextlib
import ipaddress
import math
import socket
import time
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from struct import Struct
from typing import Any, NamedTuple

from pymysql.connections import MAX_PACKET_LEN, Connection, MySQLResult
from pymysql.constants.CLIENT import LONG_PASSWORD
from pymysql.constants.COMMAND import COM_QUERY, COM_STMT_PREPARE
from pymysql.constants.CR import CR_SERVER_LOST
from pymysql.err import Error, OperationalError, raise_mysql_exception
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket, OKPacketWrapper

LENGTH = Struct("<I")
ALWAYS_TAKEN = 16_000
"""Commands of this size are sent without asking for the server's limit, which is 16 MiB or more by default."""
PACKET_BYTES, TOO_LARGE = "SELECT @@max_allowed_packet", 1153
KEEPALIVE = {socket.TCP_KEEPIDLE: 20, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""A host that does not answer for 50 seconds has lost the connection. During a long statement its host answers."""
LOCAL_BYTES = 1 << 20
"""Size of the packets that carry the lines of LOAD DATA LOCAL."""
CLIENT_MYSQL = LONG_PASSWORD
"""MariaDB's name for this bit. A server or client without it has further capabilities, in four reserved bytes."""
LOGIN = Struct("<IIB19sI")
"""The first fields of the login: capabilities, packet size, charset, reserved, further capabilities."""
BULK_OPERATIONS = 1 << 2
PREPARED = Struct("<xIHH")
"""The answer to COM_STMT_PREPARE: number of the statement, of its columns, and of its parameters."""
BULK = Struct("<BIH")
COM_STMT_BULK_EXECUTE, SENDS_TYPES = 0xFA, 128
BLOB = b"\xfc\0"
MOST_IN_PACKET = (1 << 24) - 2
"""Number of bytes in a packet that no further packet continues."""
PROTOCOL_BROKEN, PASSWORD_REQUESTED, FILE_REQUESTED = 2027, 2061, 2068
"""Numbers of the errors that the clients of MySQL raise in these cases."""
NO_DEFECT_OF_SERVER = (Error, OSError, RuntimeError, MemoryError)
"""RuntimeError: the library of an authentication plugin is not installed."""
FULL_AUTHENTICATION = b"\1\4"
"""The server's packet by which caching_sha2_password requests the password itself."""
PROVING = frozenset(("mysql_native_password", "caching_sha2_password", "client_ed25519"))
"""Plugins with which the client proves that it knows the password. Their answer does not contain the password."""
FULL = "caching_sha2_password without a cached login"
ENCRYPTING = frozenset(("sha256_password", FULL))
"""The password is encrypted with a key that the server sends, or by TLS."""
MOST_COLUMNS = 4096
MOST_PACKETS = 1 << 6
"""Number of packets of 16 MiB that one value may have: max_allowed_packet is at most 1 GiB."""
READING = (b"SELECT", b"SHOW ", b"EXPLAI", b"CHECKS")
"""The first bytes of statements that have a result set, also if it has no rows."""


class ServerAnswer(NamedTuple):
    """The server's answer to a statement without rows."""

    affected_rows: int
    warning_count: int
    message: bytes


class GuardedResult(MySQLResult):  # type: ignore[misc]
    """A result set whose form is checked."""

    def _get_descriptions(self) -> None:
        if not 1 <= (self.field_count or 0) <= MOST_COLUMNS:
            raise ValueError(f"a result set of {self.field_count} columns")
        super()._get_descriptions()

    def _read_row_from_packet(self, packet: Any) -> tuple[Any, ...]:
        row: tuple[Any, ...] = super()._read_row_from_packet(packet)
        if len(row) != self.field_count:
            raise ValueError(f"a row of {len(row)} values for {self.field_count} columns")
        return row

    def _read_rowdata_packet_unbuffered(self) -> Any:
        if not self.unbuffered_active:
            return None
        with guarded(self.connection):
            return super()._read_rowdata_packet_unbuffered()


class GuardedConnection(Connection):  # type: ignore[misc]
    """A connection to a server that is not trusted. It shares the default TLS context of the process.

    PyMySQL reads all certificates of the system for every connection, which takes 25 ms.
    """

    _is_answer_due = _sends_lines = _is_logged_in = False
    _continued = 0
    """Number of full packets of the value that is being read."""
    _login_ends = math.inf
    packet_bytes = 0
    """The server's max_allowed_packet; 0: not asked yet."""

    def _create_ssl_ctx(self, sslp: Mapping[str, Any]) -> Any:
        return super()._create_ssl_ctx(sslp) if sslp else _default_context()

    def connect(self, sock: Any = None) -> None:
        """Connect and log in, each within `connect_timeout`; notice later if the server's host is gone.

        PyMySQL limits only the opening of the connection. A server that is frozen, or a proxy without a server, accepts
        connections and then says nothing.
        """
        own: float | None = self._read_timeout
        self._read_timeout: float | None = min(own or math.inf, self.connect_timeout)
        self._is_logged_in, self._login_ends = False, time.monotonic() + 2 * self.connect_timeout
        try:
            with guarded(self):
                super().connect(sock)
        finally:
            self._read_timeout = own
        self._is_logged_in = True
        for option, value in KEEPALIVE.items():
            self._sock.setsockopt(socket.IPPROTO_TCP, option, value)

    def refuse(self, number: int, message: str) -> Error:
        self._force_close()
        if self._result is not None:  # otherwise PyMySQL would read the rest of the rows
            self._result.unbuffered_active = False
        return OperationalError(number, message)

    def _execute_command(self, command: int, sql: Any) -> None:
        """Send a command; one that is too large is refused here, because the server would hang up."""
        if len(sql) > ALWAYS_TAKEN:
            sql = sql.encode(self.encoding, "surrogateescape") if isinstance(sql, str) else sql
            if not self.packet_bytes:
                self.query(PACKET_BYTES)
                with guarded(self):
                    ((limit,),) = self._result.rows  # type: ignore[union-attr]
                    self.packet_bytes = int(limit)  # the connection may return numbers as bytes
            if len(sql) >= self.packet_bytes:
                raise OperationalError(TOO_LARGE, f"{len(sql)} bytes, max_allowed_packet is {self.packet_bytes}")
        super()._execute_command(command, sql)

    def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        """Run a statement; a server that answers a SELECT without a result set is refused."""
        found = int(super().query(sql, unbuffered))
        begin = sql[:6].encode() if isinstance(sql, str) else bytes(sql[:6])
        if self._result is not None and not self._result.field_count and begin.upper().startswith(READING):
            raise self.refuse(PROTOCOL_BROKEN, "the answer has no result set")
        return found

    def next_result(self, unbuffered: bool = False) -> int:
        """Refuse a second result. No statement has one, and PyMySQL would read all that the server sends."""
        self._is_answer_due = True
        self._read_packet()
        raise self.refuse(PROTOCOL_BROKEN, "another result follows")

    def read_request(self) -> Any:
        """Read an answer that may request the lines of LOAD DATA LOCAL."""
        self._sends_lines = True
        try:
            return self._read_packet()
        finally:
            self._sends_lines = False

    def _get_server_information(self) -> None:
        super()._get_server_information()
        if self._auth_plugin_name in ENCRYPTING:  # to others PyMySQL sends no password before the server requests it
            self._admit(self._auth_plugin_name)

    def _process_auth(self, plugin_name: bytes, auth_packet: Any, handler: Any = None) -> Any:
        self._admit(plugin_name.decode("ascii", "replace"))
        return super()._process_auth(plugin_name, auth_packet, handler)

    def _admit(self, plugin: str) -> None:
        """Refuse a plugin that sends the password so that the server, or someone in between, can read it."""
        # See tls.context: a context without verification, as the default one, has no such attribute.
        is_verified = getattr(getattr(self, "ctx", None), "authenticates", False)
        if plugin in PROVING or is_verified or not self.password:
            return
        if plugin in ENCRYPTING and _is_loopback(self._sock.getpeername()[0]):
            return
        raise self.refuse(PASSWORD_REQUESTED, f"it requests the password itself ({plugin!a})")

    def _write_bytes(self, data: Any) -> None:
        self._is_answer_due = True
        super()._write_bytes(data)

    def _read_bytes(self, num_bytes: int) -> bytes:
        if num_bytes == MAX_PACKET_LEN:
            self._continued += 1
            if self._continued > (MOST_PACKETS if self._is_logged_in else 0):
                raise ValueError("a value is larger than 1 GiB")
        if self._is_logged_in:
            return bytes(super()._read_bytes(num_bytes))
        # One read at a time, because each byte that the server sends would renew the driver's limit.
        data = bytearray()
        while len(data) < num_bytes:
            data += super()._read_bytes(1)
            if time.monotonic() > self._login_ends:
                raise self.refuse(CR_SERVER_LOST, "the login takes too long")
        return bytes(data)

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> Any:
        """Read a packet. The first one after a command is an answer; in a row, the same byte means NULL."""
        is_answer, self._is_answer_due, self._continued = self._is_answer_due, False, 0
        try:
            packet = super()._read_packet(_column if packet_type is FieldDescriptorPacket else packet_type)
        except NO_DEFECT_OF_SERVER:
            raise
        except Exception as error:
            raise self.refuse(PROTOCOL_BROKEN, f"a packet cannot be read: {error!r}") from error
        if is_answer and packet.is_load_local_packet() and not self._sends_lines:
            raise self.refuse(FILE_REQUESTED, "it requests a file of the client")
        if not self._is_logged_in and packet._data.startswith(FULL_AUTHENTICATION):
            self._admit(FULL)
        return packet

    def _read_ok_packet(self) -> Any:
        with guarded(self):
            return super()._read_ok_packet()

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        self._result, self._is_answer_due = None, True
        result = GuardedResult(self)
        with guarded(self):
            result.init_unbuffered_query() if unbuffered else result.read()
            if result.affected_rows is None:
                raise ValueError("no number of rows")
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return result.affected_rows


@contextlib.contextmanager
def guarded(connection: GuardedConnection) -> Iterator[None]:
    """Refuse a server whose answer cannot be read in the block."""
    try:
        yield
    except NO_DEFECT_OF_SERVER:
        raise
    except Exception as error:
        raise connection.refuse(PROTOCOL_BROKEN, f"an answer cannot be read: {error!r}") from error


def _is_loopback(host: str) -> bool:
    address = ipaddress.ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


class BulkConnection(GuardedConnection):
    """A connection that may use COM_STMT_BULK_EXECUTE if the server is MariaDB (`executes_bulk`)."""

    executes_bulk = False

    def _request_authentication(self) -> None:
        self.executes_bulk = not self.server_capabilities & CLIENT_MYSQL
        super()._request_authentication()

    def write_packet(self, payload: Any) -> None:
        """Write a packet; if it begins with the fields of the login, add the further capabilities to them."""
        if self.executes_bulk and not self._is_logged_in and len(payload) >= LOGIN.size:
            flags, size, charset, reserved, further = LOGIN.unpack_from(payload)
            if flags & self.client_flag == self.client_flag and not any(reserved) and not further:
                login = LOGIN.pack(flags & ~CLIENT_MYSQL, size, charset, reserved, BULK_OPERATIONS)
                payload = login + payload[LOGIN.size :]
        super().write_packet(payload)


@lru_cache(MOST_COLUMNS)
def _column(data: bytes, encoding: str) -> FieldDescriptorPacket:
    """Read the description of a column once: PyMySQL needs longer for it than for a row, and most statements repeat."""
    return FieldDescriptorPacket(data, encoding)


@cache
def _default_context() -> Any:
    return Connection(defer_connect=True).ctx


def run_without_rows(connection: GuardedConnection, statement: str | bytes) -> ServerAnswer:
    """Run a statement without rows."""
    connection._execute_command(COM_QUERY, statement)
    return _answer(connection, connection._read_packet())


def load_local(connection: GuardedConnection, statement: str, text: memoryview) -> ServerAnswer:
    """Run LOAD DATA LOCAL with lines from memory; PyMySQL itself reads only files."""
    connection._execute_command(COM_QUERY, statement)
    request = connection.read_request()
    if not request.is_load_local_packet():
        return _answer(connection, request)
    size = min(LOCAL_BYTES, connection.packet_bytes or LOCAL_BYTES)
    for start in range(0, len(text), size):
        connection.write_packet(text[start : start + size])
    connection.write_packet(b"")
    return _answer(connection, connection._read_packet())


def prepare_statement(connection: GuardedConnection, statement: str) -> int:
    """Prepare a statement; return the server's number of it."""
    connection._execute_command(COM_STMT_PREPARE, statement)
    with guarded(connection):
        number, *counts = PREPARED.unpack_from(connection._read_packet()._data)
    for count in reversed(counts):  # the definitions of parameters, then those of columns, each with an EOF packet
        for _ in range(count + 1 if count else 0):
            connection._read_packet()
    return int(number)


def bulk_bytes(parameters: int, packet_bytes: int) -> int:
    """Return how many bytes of rows one command may have; `packet_bytes` is the server's max_allowed_packet."""
    return min(packet_bytes, MOST_IN_PACKET) - BULK.size - len(BLOB) * parameters


def execute_bulk(
    connection: GuardedConnection, before: str, number: int, parameters: int, rows: memoryview
) -> ServerAnswer:
    """Run a statement, and then a prepared one for each row of parameters, which are sent as BLOBs; one round trip."""
    first = bytes((COM_QUERY,)) + before.encode()
    head = BULK.pack(COM_STMT_BULK_EXECUTE, number, SENDS_TYPES) + BLOB * parameters
    begin = LENGTH.pack(len(first)) + first + LENGTH.pack(len(head) + len(rows)) + head
    if len(rows) <= LOCAL_BYTES:
        connection._write_bytes(b"".join((begin, rows)))
    else:  # many rows are not copied, although the server may answer `before` meanwhile
        connection._write_bytes(begin)
        connection._write_bytes(rows)
    errors = []
    for _ in (first, head):
        connection._next_seq_id = 1
        try:
            answer = _answer(connection, connection._read_packet())
        except Error as error:
            if not connection.open:
                raise
            errors.append(error)
    if errors:
        raise errors[0]
    return answer


def _answer(connection: GuardedConnection, packet: Any) -> ServerAnswer:
    with guarded(connection):
        wrapped = OKPacketWrapper(packet)
    return ServerAnswer(wrapped.affected_rows, wrapped.warning_count, bytes(wrapped.message))


def begin_rows(connection: GuardedConnection, statement: str, columns: int) -> None:
    """Run a statement with rows of so many columns, and read up to the first row."""
    connection._execute_command(COM_QUERY, statement)
    with guarded(connection):
        found = connection._read_packet().read_length_encoded_integer()
        if found != columns:
            raise ValueError(f"{found} columns instead of {columns}")
        for _ in range(columns):
            connection._read_packet()
        if not connection._read_packet().is_eof_packet():
            raise ValueError("more columns than announced")


def take_over_receiving(connection: GuardedConnection) -> tuple[bytes, Any]:
    """Return the bytes that the driver has received already, and the raw stream that follows them.

    PyMySQL must not read from the connection before the caller has read the whole answer.
    """
    reader: Any = connection._rfile
    return reader.read(len(reader.peek())), reader.raw


def raise_error(connection: GuardedConnection, packet: bytes) -> None:
    """Raise the driver's error for an error packet."""
    with guarded(connection):
        raise_mysql_exception(packet)


def send_command(connection: GuardedConnection, payload: bytes) -> None:
    """Send a command that PyMySQL does not know, in one packet."""
    connection._write_bytes(LENGTH.pack(len(payload)) + payload)
    connection._next_seq_id = 1


def read_answer(connection: GuardedConnection) -> None:
    """Read one packet; raises the driver's error if it is an error packet."""
    connection._read_packet()


def socket_of(connection: GuardedConnection, seconds: float) -> Any:
    """Return the socket, whose reads wait for so long; the driver's buffer is empty as long as no answer is due.

    The driver itself has set the limit for its last write.
    """
    connection._sock.settimeout(seconds)
    return connection._sock
