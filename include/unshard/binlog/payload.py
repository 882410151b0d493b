"""Events within events: a compressed transaction (TRANSACTION_PAYLOAD), and parts of a large event (PARTIAL_ROW_DATA).

**TRANSACTION_PAYLOAD** is a whole MySQL transaction in one event. A segment stores the event unchanged, so that
positions are those of the binlog file. It is opened twice: by the cutter, which counts its rows for the index, and by
the decoder. It is read as a stream, because its content may be far larger than the memory limit. The events inside have
no checksums and positions; the checksum and the end position of the outer event apply to them.

**PARTIAL_ROW_DATA** is a part of a rows event that is larger than MariaDB's `binlog_row_event_fragment_threshold`.
A segment stores the fragments unchanged, so that positions are those of the binlog file. They are read twice: by the
cutter, which checks that they are complete and counts the rows event for the index, and by the decoder, which joins
them. All fragments of a rows event directly follow each other in one transaction.

The joined fragments are the rows event with its own frame. Its position is not used: the end of the last fragment is
the position of the event. Each fragment has a checksum. The joined event may have one, too.
"""

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from unshard.binlog.events import (
    CHECKSUM,
    COMMENTS,
    HEADER,
    MOST_BYTES,
    QUERIES,
    ROWS,
    STATEMENT_CONTEXT,
    Buffer,
    EventType,
    Frame,
    admit,
    is_whole,
    read_frame,
    read_query,
)
from unshard.binlog.tablemap import NO_TABLE, packed, table_id_of, table_of
from unshard.binlog.transactions import QueryKind, StatementEnds, classify, read_prepare
from unshard.core.model import TableId
from unshard.errors.relay import DamagedEvent, FragmentsBroken, UnsupportedEvent
from unshard.errors.rows import RowsWithoutTable

# --- PARTIAL_ROW_DATA ---

SIZED = 1
"""Flag: the size of the joined event follows."""
HEAD_BYTES = HEADER + 8
"""The frame of a rows event, its table id and its flags."""
_NUMBERS = struct.Struct("<IIB")
_EVENT_SIZE = struct.Struct("<Q")


class Fragments:
    """Checks that fragments follow each other, and collects the beginning of the rows event."""

    def __init__(self, tail: int) -> None:
        self._tail = tail
        """Size of a checksum in this file."""
        self._begin()

    def _begin(self) -> None:
        self._total = self._number = self._announced = self._size = 0
        self._is_total_last = False
        self.head = b""

    @property
    def is_pending(self) -> bool:
        return self._number < self._total

    def add(self, body: Buffer, place: str) -> Buffer:
        if not self.is_pending:
            self._begin()
        announced, chunk = self._numbers(body, place)
        if self._announced and announced not in (0, self._announced):
            raise FragmentsBroken(place, f"their event has {self._announced} bytes, and {announced} in another one")
        self._announced = self._announced or announced
        self._size += len(chunk)
        if self._size > min(self._announced or MOST_BYTES, MOST_BYTES):
            raise FragmentsBroken(place, f"they have {self._size} bytes, their event has {self._announced}")
        if len(self.head) < HEAD_BYTES:
            self.head += bytes(chunk[: HEAD_BYTES - len(self.head)])
        if not self.is_pending:
            self._check_size(place)
        return chunk

    def require_end(self, place: str) -> None:
        if self.is_pending:
            raise FragmentsBroken(place, f"fragment {self._number + 1} of {self._total} is missing")

    def frame(self) -> Frame:
        return read_frame(self.head)

    def join(self, chunks: Sequence[Buffer]) -> tuple[Frame, bytes]:
        """Return frame and body of the rows event, without its checksum if it has one."""
        whole, frame = b"".join(chunks), self.frame()
        has_checksum = self._tail and frame.size == len(whole) and is_whole(whole)
        body = whole[HEADER : len(whole) - CHECKSUM] if has_checksum else whole[HEADER:]
        return frame._replace(size=HEADER + len(body)), body

    def _numbers(self, body: Buffer, place: str) -> tuple[int, Buffer]:
        """Read the fields before the chunk: total, number, flags, and the size of the joined event, 0 if omitted.

        Descriptions of the format disagree about the order of the first two. The first fragment shows the order,
        because its number is 1.
        """
        try:
            total, number, flags = _NUMBERS.unpack_from(body)
            if flags & ~SIZED:
                raise UnsupportedEvent(place, f"a fragment of a rows event with flags {flags}")
            size = _EVENT_SIZE.unpack_from(body, _NUMBERS.size)[0] if flags else 0
        except struct.error as error:
            raise FragmentsBroken(place, f"the fragment is cut off: {error}") from error
        if not self._number:
            self._is_total_last = total == 1 < number
        if self._is_total_last:
            total, number = number, total
        if number != self._number + 1:
            raise FragmentsBroken(place, f"fragment {self._number + 1} is expected, this is number {number}")
        if number > total:
            raise FragmentsBroken(place, f"fragment {number} is one of {total}")
        if self._total and total != self._total:
            raise FragmentsBroken(place, f"fragment {number} is one of {total}, the ones before it of {self._total}")
        self._total, self._number = total, number
        return size, body[_NUMBERS.size + (_EVENT_SIZE.size if flags else 0) :]

    def _check_size(self, place: str) -> None:
        if len(self.head) < HEAD_BYTES:
            raise FragmentsBroken(place, f"they have {self._size} bytes together, too few for a rows event")
        frame = self.frame()
        if frame.type not in ROWS:
            raise FragmentsBroken(place, f"they form an event of type {frame.type}, which has no rows")
        # The sizes may include a checksum that the fragments do not carry, because each has its own.
        for told in (frame.size, self._announced or frame.size):
            if told - self._size not in (0, self._tail):
                raise FragmentsBroken(place, f"they have {self._size} bytes together, their event has {told}")


# --- TRANSACTION_PAYLOAD ---

E = EventType
PIECE = 1 << 20
_END, _SIZE, _COMPRESSION, _PLAIN_SIZE = range(4)
ZSTD, PLAIN = 0, 255
CONTROL = QUERIES | {E.XID, E.XA_PREPARE}
INSIDE = CONTROL | ROWS | COMMENTS | STATEMENT_CONTEXT | {E.TABLE_MAP}
_HEAD_BYTES = 256
"""More than the fields before the data need."""


class _Head(NamedTuple):
    compression: int
    start: int
    """Offset of the data."""
    plain_size: int


def nested(body: Buffer, place: str) -> Iterator[tuple[Frame, bytes]]:
    """Yield frame and body of each event of a payload; raises if they do not fill it exactly."""
    head = _read_head(body, place)
    left = head.plain_size
    try:
        stream = _stream(body[head.start :], head.compression, place)
        while left:
            frame = read_frame(_exactly(stream, min(HEADER, left)))
            if not HEADER <= frame.size <= left:
                raise DamagedEvent(place, f"an event of {frame.size} bytes in a payload that has {left} left")
            left -= frame.size
            if frame.type not in INSIDE:
                raise DamagedEvent(place, f"{admit(frame, place).name} in a payload")
            if frame.size > MOST_BYTES:
                raise DamagedEvent(place, f"an event of {frame.size} bytes in a payload")
            yield frame, _exactly(stream, frame.size - HEADER)
        if stream.read(1):
            raise DamagedEvent(place, "a payload is longer than its size field")
    except (OSError, EOFError, pa.ArrowException, struct.error) as error:
        raise DamagedEvent(place, f"a payload cannot be decompressed: {error}") from error


class Whole(NamedTuple):
    """The content of a payload."""

    rows: Counter[TableId]
    prepared: str
    """The XA transaction that it prepares; empty: it commits or rolls back at its end."""


def rows_of(body: Buffer, place: str) -> Whole:
    """Count the row events by table; raises if the payload is not one whole transaction that unshard can follow."""
    tables: dict[int, TableId] = {}
    found: Counter[TableId] = Counter()
    ended, prepared, ends = False, "", StatementEnds()
    for frame, inner in nested(body, place):
        if ended:
            raise DamagedEvent(place, "a payload has events after the end of its transaction")
        kind = EventType(frame.type)
        ends.see(kind, inner, place)
        if kind == E.TABLE_MAP:
            tables[table_id_of(inner)] = table_of(inner, place)
        elif kind in ROWS:
            number = table_id_of(inner)
            if number != NO_TABLE:
                found[_known(tables, number, place)] += 1
        elif kind in CONTROL:
            ended, prepared = _end(kind, frame, inner, place)
    ends.require(place)
    if not ended:
        raise UnsupportedEvent(place, "a payload does not contain the end of its transaction")
    return Whole(found, prepared)


def _end(kind: EventType, frame: Frame, inner: bytes, place: str) -> tuple[bool, str]:
    """Return whether an event ends the transaction, and the XA transaction that it prepares."""
    if kind in QUERIES:
        return _ends(read_query(inner, frame, place).text, place), ""
    end, xid = (QueryKind.COMMIT, "") if kind == E.XID else read_prepare(inner, place)
    return True, xid if end is QueryKind.XA_PREPARE else ""


def _ends(text: bytes, place: str) -> bool:
    match classify(text)[0]:
        case QueryKind.COMMIT | QueryKind.ROLLBACK:
            return True
        case QueryKind.BEGIN | QueryKind.SAVEPOINT | QueryKind.ROLLBACK_TO | QueryKind.XA_BEGIN | QueryKind.XA_END:
            return False
        case _:
            raise UnsupportedEvent(place, "a statement inside a compressed transaction")


def _known(tables: dict[int, TableId], number: int, place: str) -> TableId:
    if number not in tables:
        raise RowsWithoutTable(place, number)
    return tables[number]


def _read_head(body: Buffer, place: str) -> _Head:
    try:
        return _fields(bytes(body[:_HEAD_BYTES]), len(body), place)
    except (IndexError, ValueError) as error:
        raise DamagedEvent(place, f"unreadable TRANSACTION_PAYLOAD: {error}") from error


def _fields(data: bytes, length: int, place: str) -> _Head:
    """Read the numbered fields; an unknown field is an error, because it might change the meaning of the data."""
    found = {_COMPRESSION: -1, _SIZE: -1, _PLAIN_SIZE: -1}
    kind, offset = packed(data, 0)
    while kind != _END:
        if kind not in found:
            raise UnsupportedEvent(place, f"field {kind} of a TRANSACTION_PAYLOAD")
        size, offset = packed(data, offset)
        found[kind], end = packed(data, offset)
        if end != offset + size:
            raise ValueError(f"field {kind} has {size} bytes")
        kind, offset = packed(data, end)
    if found[_SIZE] != length - offset:
        raise ValueError(f"{length - offset} bytes of data, {found[_SIZE]} are announced")
    if found[_PLAIN_SIZE] < 0:
        # The uncompressed size is omitted if the data is not compressed.
        found[_PLAIN_SIZE] = found[_SIZE] if found[_COMPRESSION] == PLAIN else -1
    if found[_PLAIN_SIZE] <= 0:
        raise ValueError("it has no size field")
    return _Head(found[_COMPRESSION], offset, found[_PLAIN_SIZE])


def _stream(data: Buffer, compression: int, place: str) -> Any:
    match compression:
        case _ if compression == ZSTD:
            return pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "zstd")
        case _ if compression == PLAIN:
            return pa.BufferReader(pa.py_buffer(data))
        case _:
            raise UnsupportedEvent(place, f"compression {compression} of a TRANSACTION_PAYLOAD")


def _exactly(stream: Any, size: int) -> bytes:
    """Read in pieces, so that a damaged size does not allocate memory beyond the data."""
    first: bytes = stream.read(min(size, PIECE))
    parts, left = [first], size - len(first)
    while left and parts[-1]:
        parts.append(stream.read(min(left, PIECE)))
        left -= len(parts[-1])
    if left:
        raise EOFError(f"it ends {left} bytes early")
    return first if len(parts) == 1 else b"".join(parts)
