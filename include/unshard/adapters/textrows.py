"""Rows of a SELECT as columns of canonical values, read from the text protocol packet by packet.

The driver's cursors make Python objects of every value, at a tenth of this speed. Here rows stay in the
buffer into which they were received; the packets are walked once, then row after row of a column is
found by vectors, and Arrow copies the values out. What the server prints is canonical but for FLOAT, of
which it prints 6 digits only: that is read as DOUBLE (`expression`).

The connection must come from `mysql.connect_raw` (SET NAMES binary, +00:00); `prepare` sets the rest.
"""

from collections.abc import Iterator, Sequence
from struct import Struct

import numpy as np
import pyarrow as pa
from pymysql.connections import Connection
from pymysql.constants import CR
from pymysql.err import OperationalError

from unshard.adapters import mysql, pymysqlprivate
from unshard.core.model import Column

HEADER = 4
HEADER_START = Struct("<I")
LONGEST = 0xFFFFFF
"""A packet of this length continues in the next one."""
END, ERROR, NULL, TWO, THREE, EIGHT = 0xFE, 0xFF, 0xFB, 0xFC, 0xFD, 0xFE
BUFFER_BYTES = 4 << 20
LONGEST_ROW = (1 << 30) + BUFFER_BYTES
"""max_allowed_packet is at most 1 GiB."""
RECEIVED = 1 << 16
SPARE = 16
BATCH_ROWS = 20_000
SESSION = "SET SESSION sql_mode = '', time_zone = '+00:00', net_write_timeout = 3600, net_read_timeout = 3600"
"""Independent of the source file: no PAD_CHAR_TO_FULL_LENGTH, UTC, and long timeouts for a reader with a slow disk."""


def prepare(connection: Connection) -> None:
    """Set the variables that the values of `read_rows` depend on."""
    mysql.query(connection, SESSION)


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema of rows with these columns."""
    return pa.schema([pa.field(column.name, pa.binary()) for column in columns])


def read_rows(
    connection: Connection, columns: Sequence[Column], statement: str, rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Run a SELECT of `literals.expression`s and yield its rows, at most `rows` and a few megabytes at a time."""
    schema = schema_of(columns)
    with mysql.coded_errors(connection, statement):
        pymysqlprivate.begin_rows(connection, statement, len(columns))
        buffer = _Buffer(connection)
        finished = False
        while not finished:
            starts, finished = buffer.walk(rows)
            if starts:
                with pymysqlprivate.guarded(connection):
                    arrays = list(buffer.columns(np.array(starts, np.int64), len(columns)))
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            buffer.drop_walked()


class _Buffer:
    """Received bytes: rows that have been walked, then bytes that have not, then room."""

    def __init__(self, connection: Connection) -> None:
        self._bytes = bytearray(BUFFER_BYTES)
        self._connection = connection
        # The driver's buffer would be one more copy.
        received, self._socket = pymysqlprivate.take_over_receiving(connection)
        self._filled = len(received)
        self._bytes[: self._filled] = received
        self._walked = self._rows_end = 0

    def walk(self, rows: int) -> tuple[list[int], bool]:
        """Find where rows begin, until there are enough; returns True if the result has ended."""
        starts: list[int] = []
        while True:
            stopped = self._walk_received(starts, rows)
            if stopped or len(starts) >= rows or (starts and self._filled > BUFFER_BYTES // 2):
                return starts, stopped
            self._receive()

    def columns(self, position: np.ndarray, count: int) -> Iterator[pa.Array]:
        """Yield the values of each column of the rows that begin at these positions and fill their packets."""
        data, values = np.frombuffer(self._bytes, np.uint8), pa.py_buffer(self._bytes)
        ends = np.append(position[1:] - HEADER, self._rows_end)
        for _ in range(count):
            null, start, length = _located(data, position)
            if (length < 0).any() or (start + length > ends).any():
                raise ValueError("a value ends after its row")
            yield _gathered(values, null, start, length)
            position = start + length
        if (position != ends).any():
            raise ValueError("a row has more values than columns")

    def drop_walked(self) -> None:
        rest = self._filled - self._walked
        self._bytes[:rest] = self._bytes[self._walked : self._filled]
        self._filled, self._walked = rest, 0

    def _walk_received(self, starts: list[int], rows: int) -> bool:
        data, here, filled, length_at = self._bytes, self._walked, self._filled, HEADER_START.unpack_from
        while len(starts) < rows and filled - here >= HEADER:
            length = length_at(data, here)[0] & LONGEST
            if length == LONGEST:
                self._walked = self._rows_end = here
                joined = self._joined(length)
                if joined is None:
                    return False
                length, filled = joined, self._filled
            end = here + HEADER + length
            if end > filled:
                break
            first = data[here + HEADER]
            here, row = end, here + HEADER
            if first >= END and self._is_no_row(row, end):
                self._walked, self._rows_end = here, row - HEADER
                return True
            starts.append(row)
        self._walked = self._rows_end = here
        return False

    def _is_no_row(self, start: int, end: int) -> bool:
        """Whether a packet that begins like a large row is the end; raises the server's error."""
        if self._bytes[start] == ERROR:
            pymysqlprivate.raise_error(self._connection, bytes(self._bytes[start:end]))
        return end - start < 9

    def _joined(self, length: int) -> int | None:
        """Remove the packet headers from the middle of a split row; return its length, None while it is incomplete."""
        ends, end = [], self._walked + HEADER + length
        while length == LONGEST:
            if self._filled < end + HEADER:
                return None
            ends.append(end)
            length = HEADER_START.unpack_from(self._bytes, end)[0] & LONGEST
            end += HEADER + length
        if self._filled < end:
            return None
        for header in reversed(ends):
            self._bytes[header : self._filled - HEADER] = self._bytes[header + HEADER : self._filled]
            self._filled -= HEADER
        return end - HEADER * len(ends) - self._walked - HEADER

    def _receive(self) -> None:
        if len(self._bytes) - SPARE - self._filled < RECEIVED:
            if self._filled > LONGEST_ROW:
                raise self._connection.refuse(pymysqlprivate.PROTOCOL_BROKEN, "a row is larger than 1 GiB")
            self._bytes = self._bytes + bytearray(len(self._bytes))
        with memoryview(self._bytes) as view, view[self._filled : len(view) - SPARE] as room:
            try:
                count = self._socket.readinto(room)
            except OSError as error:
                raise OperationalError(CR.CR_SERVER_LOST, f"lost connection while reading rows ({error})") from error
        if not count:
            raise OperationalError(CR.CR_SERVER_LOST, "lost connection while reading rows")
        self._filled += count


def _located(data: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read the length-encoded strings at these positions: NULL or not, where the bytes start, how many."""
    first = data[position]
    length, start = first.astype(np.int64), position + 1
    null = first == NULL
    length[null] = 0
    for mark, width in ((TWO, 2), (THREE, 3), (EIGHT, 8)):
        rows = np.flatnonzero(first == mark)
        if len(rows):
            places = position[rows]
            length[rows] = sum(data[places + 1 + byte].astype(np.int64) << 8 * byte for byte in range(width))
            start[rows] += width
    return null, start, length


def _gathered(values: pa.Buffer, null: np.ndarray, start: np.ndarray, length: np.ndarray) -> pa.Array:
    """Copy the values: they are every second entry of an array that also has the bytes between them as entries."""
    rows = len(start)
    offsets = np.empty(2 * rows, np.int32)
    offsets[0::2], offsets[1::2] = start, start + length
    everything = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(offsets), values])
    return everything.take(pa.array(np.arange(rows, dtype=np.int32) * 2, mask=null))
