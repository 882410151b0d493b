"""TRANSACTION_PAYLOAD: a whole transaction of MySQL in one event, its events compressed together.

A segment keeps the event as it came, so that positions stay those of the binlog file; it is opened
twice: by the cutter, which counts its rows for the index, and by the decoder. It is opened as a stream,
because it may hold far more than memory should. The events inside have no checksums and no positions of
their own: the checksum of the event that carries them covers them, and that event's end is theirs.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from unshard.binlog.events import (
    COMMENTS,
    HEADER,
    QUERIES,
    ROWS,
    STATEMENT_CONTEXT,
    Buffer,
    EventType,
    Frame,
    admit,
    read_frame,
    read_query,
)
from unshard.binlog.metadata import packed
from unshard.binlog.tablemap import NO_TABLE, table_id_of, table_of
from unshard.binlog.transactions import Kind, classify, read_prepare
from unshard.core.model import TableId
from unshard.errors.relay import DamagedEvent, RowsWithoutTable, StatementDml, UnsupportedEvent

E = EventType
PIECE = 1 << 20
SHOWN_STATEMENT = 200
_END, _SIZE, _COMPRESSION, _PLAIN_SIZE = range(4)
ZSTD, PLAIN = 0, 255
CONTROL = QUERIES | {E.XID, E.XA_PREPARE}
_HEAD_BYTES = 256
"""More than the fields before the data take."""


class _Head(NamedTuple):
    compression: int
    start: int
    """Where the data begins."""
    plain_size: int


def nested(body: Buffer, place: str) -> Iterator[tuple[Frame, bytes]]:
    """Yield frame and body of each event of a payload; they must fill it exactly."""
    head = _read_head(body, place)
    left = head.plain_size
    try:
        stream = _stream(body[head.start :], head.compression, place)
        while left:
            frame = read_frame(_exactly(stream, min(HEADER, left)))
            if not HEADER <= frame.size <= left:
                raise DamagedEvent(place, f"an event of {frame.size} bytes in a payload that has {left} left")
            left -= frame.size
            yield frame, _exactly(stream, frame.size - HEADER)
        if stream.read(1):
            raise DamagedEvent(place, "a payload holds more than it says")
    except (OSError, EOFError, struct.error) as error:
        raise DamagedEvent(place, f"a payload cannot be opened: {error}") from error


class Whole(NamedTuple):
    """What a payload holds."""

    rows: Counter[TableId]
    prepared: str
    """The XA transaction that it prepares; empty: it is committed or rolled back at its end."""


def rows_of(body: Buffer, place: str) -> Whole:
    """Count the row events by table and make sure that it is one whole transaction that can be followed."""
    tables: dict[int, TableId] = {}
    found: Counter[TableId] = Counter()
    ended, prepared = False, ""
    for frame, inner in nested(body, place):
        if ended:
            raise DamagedEvent(place, "events behind the end of a transaction in its payload")
        kind = admit(frame, place)
        if kind == E.TABLE_MAP:
            tables[table_id_of(inner)] = table_of(inner, place)
        elif kind in ROWS:
            number = table_id_of(inner)
            if number != NO_TABLE:
                found[_known(tables, number, place)] += 1
        elif kind in CONTROL:
            ended, prepared = _end(kind, frame, inner, place)
        elif kind not in COMMENTS and kind not in STATEMENT_CONTEXT:
            raise DamagedEvent(place, f"{kind.name} in a payload")
    if not ended:
        raise UnsupportedEvent(place, "a payload without the end of its transaction")
    return Whole(found, prepared)


def _end(kind: EventType, frame: Frame, inner: bytes, place: str) -> tuple[bool, str]:
    """Return whether an event ends the transaction, and which XA transaction it prepares thereby."""
    if kind in QUERIES:
        return _ends(read_query(inner, frame, place).text, place), ""
    end, xid = (Kind.COMMIT, "") if kind == E.XID else read_prepare(inner, place)
    return True, xid if end is Kind.XA_PREPARE else ""


def _ends(text: bytes, place: str) -> bool:
    """Whether a query in a payload ends its transaction."""
    match classify(text)[0]:
        case Kind.COMMIT | Kind.ROLLBACK:
            return True
        case Kind.BEGIN | Kind.SAVEPOINT | Kind.ROLLBACK_TO | Kind.XA_BEGIN | Kind.XA_END:
            return False
        case Kind.DML:
            raise StatementDml(place, text[:SHOWN_STATEMENT].decode("utf-8", "replace"))
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
    """Read the numbered fields; one that is unknown might change what the data means."""
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
        # The uncompressed size is left out where nothing is compressed.
        found[_PLAIN_SIZE] = found[_SIZE] if found[_COMPRESSION] == PLAIN else -1
    if found[_PLAIN_SIZE] <= 0:
        raise ValueError("it does not say how much it holds")
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
    """Read in pieces: a damaged size must not cost its memory before the data ends."""
    first: bytes = stream.read(min(size, PIECE))
    parts, left = [first], size - len(first)
    while left and parts[-1]:
        parts.append(stream.read(min(left, PIECE)))
        left -= len(parts[-1])
    if left:
        raise EOFError(f"it ends {left} bytes early")
    return first if len(parts) == 1 else b"".join(parts)
