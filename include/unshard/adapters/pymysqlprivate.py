"""All use of PyMySQL's private API: packets, the receive buffer and the socket of a connection.

tests/unit/servers/test_pymysqlprivate.py fails if a version of PyMySQL changes what is used here. No function here
converts errors; the caller does (`mysql.coded_errors`).
"""

import math
import socket
from collections.abc import Mapping
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

from pymysql.connections import Connection
from pymysql.constants.CLIENT import LONG_PASSWORD
from pymysql.constants.COMMAND import COM_QUERY, COM_STMT_PREPARE
from pymysql.err import Error, OperationalError, raise_mysql_exception
from pymysql.protocol import OKPacketWrapper

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


class Answer(NamedTuple):
    """The server's answer to a statement without rows."""

    affected_rows: int
    warning_count: int
    message: bytes


class TlsSharingConnection(Connection):  # type: ignore[misc]
    """A connection that shares the default TLS context of the process.

    PyMySQL reads all certificates of the system for every connection, which takes 25 ms.
    """

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
        try:
            super().connect(sock)
        finally:
            self._read_timeout = own
        for option, value in KEEPALIVE.items():
            self._sock.setsockopt(socket.IPPROTO_TCP, option, value)

    def _execute_command(self, command: int, sql: Any) -> None:
        """Send a command; one that is too large is refused here, because the server would hang up."""
        if len(sql) > ALWAYS_TAKEN:
            sql = sql.encode(self.encoding, "surrogateescape") if isinstance(sql, str) else sql
            if not self.packet_bytes:
                self.query(PACKET_BYTES)
                self.packet_bytes = int(self._result.rows[0][0])
            if len(sql) >= self.packet_bytes:
                raise OperationalError(TOO_LARGE, f"{len(sql)} bytes, max_allowed_packet is {self.packet_bytes}")
        super()._execute_command(command, sql)


class BulkConnection(TlsSharingConnection):
    """A connection that may use COM_STMT_BULK_EXECUTE if the server is MariaDB (`executes_bulk`)."""

    executes_bulk = False
    _is_logged_in = False

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

    def connect(self, sock: Any = None) -> None:
        """Connect and log in."""
        self._is_logged_in = False
        super().connect(sock)
        self._is_logged_in = True


@cache
def _default_context() -> Any:
    return Connection(defer_connect=True).ctx


def run(connection: Connection, statement: str | bytes) -> Answer:
    """Run a statement without rows."""
    connection._execute_command(COM_QUERY, statement)
    return _answer(connection._read_packet())


def load_local(connection: Connection, statement: str, text: memoryview) -> Answer:
    """Run LOAD DATA LOCAL with lines from memory; PyMySQL itself reads only files."""
    connection._execute_command(COM_QUERY, statement)
    request = connection._read_packet()
    if not request.is_load_local_packet():
        return _answer(request)
    size = min(LOCAL_BYTES, connection.packet_bytes or LOCAL_BYTES)
    for start in range(0, len(text), size):
        connection.write_packet(text[start : start + size])
    connection.write_packet(b"")
    return _answer(connection._read_packet())


def prepare(connection: Connection, statement: str) -> int:
    """Prepare a statement; return the server's number of it."""
    connection._execute_command(COM_STMT_PREPARE, statement)
    number, *counts = PREPARED.unpack_from(connection._read_packet()._data)
    for count in reversed(counts):  # the definitions of parameters, then those of columns, each with an EOF packet
        for _ in range(count + 1 if count else 0):
            connection._read_packet()
    return int(number)


def bulk_bytes(parameters: int, packet_bytes: int) -> int:
    """Return how many bytes of rows one command may have; `packet_bytes` is the server's max_allowed_packet."""
    return min(packet_bytes, MOST_IN_PACKET) - BULK.size - len(BLOB) * parameters


def execute_bulk(connection: Connection, before: str, number: int, parameters: int, rows: memoryview) -> Answer:
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
            answer = _answer(connection._read_packet())
        except Error as error:
            if not connection.open:
                raise
            errors.append(error)
    if errors:
        raise errors[0]
    return answer


def _answer(packet: Any) -> Answer:
    wrapped = OKPacketWrapper(packet)
    return Answer(wrapped.affected_rows, wrapped.warning_count, bytes(wrapped.message))


def begin_rows(connection: Connection, statement: str) -> int:
    """Run a statement with rows and read up to the first row; return the number of columns."""
    connection._execute_command(COM_QUERY, statement)
    count = int(connection._read_packet().read_length_encoded_integer())
    for _ in range(count):
        connection._read_packet()
    assert connection._read_packet().is_eof_packet()
    return count


def take_over_receiving(connection: Connection) -> tuple[bytes, Any]:
    """Return the bytes that the driver has received already, and the raw stream that follows them.

    PyMySQL must not read from the connection before the caller has read the whole answer.
    """
    reader: Any = connection._rfile
    return reader.read(len(reader.peek())), reader.raw


def raise_error(packet: bytes) -> None:
    """Raise the driver's error for an error packet."""
    raise_mysql_exception(packet)


def send_command(connection: Connection, payload: bytes) -> None:
    """Send a command that PyMySQL does not know, in one packet."""
    connection._write_bytes(LENGTH.pack(len(payload)) + payload)
    connection._next_seq_id = 1


def read_answer(connection: Connection) -> None:
    """Read one packet; raises the driver's error if it is an error packet."""
    connection._read_packet()


def socket_of(connection: Connection, seconds: float) -> Any:
    """Return the socket, whose reads wait for so long; the driver's buffer is empty as long as no answer is due.

    The driver itself has set the limit for its last write.
    """
    connection._sock.settimeout(seconds)
    return connection._sock
