"""The binlog dump protocol on top of the driver's connection: the raw bytes of each event.

The driver authenticates and sets up the session. The packets of the dump are read here, because event bytes must be
stored unchanged, and mysql-replication drops event types that it does not know. On MariaDB the session requests every
event (GTIDs, ANNOTATE_ROWS), because a missing event would be a gap.
"""

import select
import ssl
import struct
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pymysql
from pymysql.connections import Connection

from unshard.adapters.mysql import query
from unshard.adapters.pymysqlprivate import read_answer, send_command, socket_of
from unshard.binlog.events import CHECKSUM, is_whole
from unshard.binlog.runs import EOF, ERROR, Packets, Run
from unshard.core.model import Location
from unshard.core.relay.gtidset import read_set
from unshard.core.relay.segment import FIRST_POSITION
from unshard.errors.relay import DamagedEvent, DumpBroken, DumpRefused

REGISTER_REPLICA = 0x15
BINLOG_DUMP = 0x12
BINLOG_DUMP_GTID = 0x1E
THROUGH_GTID = 4
NON_BLOCK = 1
REPLICA_IDS = (1 << 31, (1 << 32) - 1)
WAIT = 0
"""The server sends later events as well, and never ends the dump."""
SEND_ANNOTATE_ROWS = 2
SHORT_EOF = 9
READ_SECONDS = 60.0
"""A server that sends nothing for so long has lost the connection."""
BEAT = "SET @master_heartbeat_period = 10000000000, @source_heartbeat_period = 10000000000"
"""After so many nanoseconds without events the server shows that the connection lives."""
SETUP = (
    "SET @master_binlog_checksum = @@global.binlog_checksum, @source_binlog_checksum = @@global.binlog_checksum",
    "SET @mariadb_slave_capability = 4",
    "SET @master_heartbeat_period = 0, @source_heartbeat_period = 0",
    "SET @slave_uuid = UUID(), @replica_uuid = @slave_uuid",
)


def dump(connection: Connection, source: str, location: Location, replica_id: int) -> Iterator[Run]:
    """Yield all events from `location` to the end of the binlog as received, including events that are not in the file.

    The position is sent in four bytes. The connection cannot be used afterwards and must be closed by the caller.
    """
    request = struct.pack("<BIHI", BINLOG_DUMP, location.position, NON_BLOCK | SEND_ANNOTATE_ROWS, replica_id)
    yield from _dumped(connection, source, location, request + location.server_file.encode(), replica_id)


class LiveDump:
    """The events from `location` on, also those that the source writes later; the caller closes the connection."""

    def __init__(self, connection: Connection, source: str, location: Location, replica_id: int) -> None:
        self._connection, self._source, self._location = connection, source, location
        request = struct.pack("<BIHI", BINLOG_DUMP, location.position, WAIT | SEND_ANNOTATE_ROWS, replica_id)
        request += location.server_file.encode()
        self._runs = _dumped(connection, source, location, request, replica_id, pauses=True)
        self._heard = time.monotonic()
        self._has_more = True

    def arrived(self) -> Iterator[Run]:
        self._has_more = True
        for run in self._runs:
            if not len(run):
                self._has_more = False
                return
            self._heard = time.monotonic()
            yield run

    def wait(self, seconds: float) -> bool:
        """Wait for the next event or heartbeat; raises DumpBroken if there was none for READ_SECONDS."""
        if self._has_more or _is_readable(socket_of(self._connection, READ_SECONDS), seconds):
            return True
        if time.monotonic() - self._heard > READ_SECONDS:
            raise DumpBroken(self._source, str(self._location), f"the server was silent for {READ_SECONDS:.0f} s")
        return False


def dump_behind(connection: Connection, source: str, history: str, replica_id: int) -> Iterator[bytes]:
    """Yield the events of all transactions that are not in a GTID history."""
    if ":" in history:
        data = encoded_set(history)
        flags = NON_BLOCK | THROUGH_GTID
        request = struct.pack("<BHIIQI", BINLOG_DUMP_GTID, flags, replica_id, 0, FIRST_POSITION, len(data)) + data
    else:
        query(connection, "SET @slave_connect_state = %s, @slave_gtid_strict_mode = 1", (history,))
        request = struct.pack("<BIHI", BINLOG_DUMP, FIRST_POSITION, NON_BLOCK | SEND_ANNOTATE_ROWS, replica_id)
    for run in _dumped(connection, source, Location("", FIRST_POSITION), request, replica_id):
        yield from run.events()


def encoded_set(history: str) -> bytes:
    """Return MySQL's GTID set as COM_BINLOG_DUMP_GTID expects it; tags change its form."""
    sets = read_set(history)
    tagged = any(":" in name for name in sets)
    parts = [struct.pack("<Q", len(sets) << 8 | 1 << 56 | 1 if tagged else len(sets))]
    for name, intervals in sets.items():
        server, _, tag = name.partition(":")
        parts.append(uuid.UUID(server).bytes + (bytes((len(tag) << 1,)) + tag.encode() if tagged else b""))
        parts.append(struct.pack("<Q", len(intervals)))
        parts += [struct.pack("<QQ", first, last + 1) for first, last in intervals]
    return b"".join(parts)


def checksum_of(event: bytes) -> int:
    """Return the size of the checksum at the end of an event, 0 without one; only its CRC tells."""
    return CHECKSUM if is_whole(event) else 0


def _dumped(
    connection: Connection, source: str, location: Location, request: bytes, replica_id: int, pauses: bool = False
) -> Iterator[Run]:
    for statement in (*SETUP, *([BEAT] if pauses else ())):
        query(connection, statement)
    try:
        send_command(connection, _registration(replica_id))
        read_answer(connection)
        send_command(connection, request)
        packets = _packets(connection, pauses)
        for run in packets.runs():
            framed = run.framed()
            if framed or not len(run):
                yield run.first(framed)
            if framed < len(run):
                raise ValueError("an event does not have the size that its header says")
    except pymysql.err.Error as error:
        if len(error.args) > 1 and error.args[0] not in (2006, 2013):
            raise DumpRefused(source, str(location), int(error.args[0]), str(error.args[1])) from error
        raise DumpBroken(source, str(location), str(error)) from error
    except (OSError, EOFError) as error:
        raise DumpBroken(source, str(location), str(error) or type(error).__name__) from error
    except ValueError as error:
        raise DamagedEvent(f"{source}, after {location}", str(error)) from error
    _end(packets.last, source, location)


def _registration(replica_id: int) -> bytes:
    host = b"unshard"
    return struct.pack("<BIB", REGISTER_REPLICA, replica_id, len(host)) + host + b"\0\0" + struct.pack("<HII", 0, 0, 0)


def _packets(connection: Connection, pauses: bool) -> Packets:
    """Read from the socket, not through the driver's buffer."""
    sock = socket_of(connection, READ_SECONDS)
    return Packets(sock.recv_into, lambda: _is_readable(sock, 0), pauses=pauses)


def _is_readable(sock: Any, seconds: float) -> bool:
    is_open_record = isinstance(sock, ssl.SSLSocket) and sock.pending() > 0
    return is_open_record or bool(select.select((sock,), (), (), seconds)[0])


def _end(packet: bytes, source: str, location: Location) -> None:
    if packet[0] == EOF and len(packet) < SHORT_EOF:
        return
    if packet[0] == ERROR:
        words = packet[9:] if packet[3:4] == b"#" else packet[3:]
        number = int.from_bytes(packet[1:3], "little")
        raise DumpRefused(source, str(location), number, words.decode("utf-8", "replace"))
    raise DumpBroken(source, str(location), f"unknown packet {packet[:1].hex()}")
