"""Read GTIDs of MariaDB and MySQL from the event before a transaction or a single statement."""

import struct
from dataclasses import dataclass

from unshard.binlog.events import Buffer, EventType, Frame
from unshard.binlog.values import uuid_text
from unshard.core.relay.gtidset import Interval
from unshard.errors.relay import DamagedEvent

E = EventType
GTIDS = frozenset((E.GTID, E.GTID_MYSQL, E.ANONYMOUS_GTID_MYSQL, E.GTID_TAGGED_MYSQL))
HISTORIES = frozenset((E.GTID_LIST, E.PREVIOUS_GTIDS_MYSQL))
_STANDALONE, _COMMIT_ID, _PREPARED, _COMPLETED = 1, 2, 0x40, 0x80
_XID = struct.Struct("<IBB")
_VOID = 2 | 8
"""START ALTER and ROLLBACK ALTER; COMMIT ALTER has the whole statement again."""
_MYSQL = struct.Struct("<B16sq")


@dataclass(frozen=True, slots=True)
class Gtid:
    """A transaction's GTID, and the flags of its event."""

    text: str
    """MariaDB's `domain-server-sequence`, MySQL's `uuid:number` or `uuid:tag:number`; empty: it is anonymous."""
    standalone: bool
    """Whether the transaction is a single statement; MySQL does not tell, and rows after a statement reopen the
    transaction."""
    prepares: bool
    """Whether it is the first part of an XA transaction; in MySQL a statement tells this."""
    is_void: bool
    """Whether the statement that follows changes nothing: the start of an ALTER in two phases, or its rollback."""


def read_gtid(body: Buffer, frame: Frame, place: str) -> Gtid:
    """Read the body of a GTID event, without its checksum."""
    try:
        match frame.type:
            case E.GTID:
                return _mariadb(body, frame)
            case E.GTID_TAGGED_MYSQL:
                return _tagged(bytes(body))
            case _:
                return _mysql(body, frame)
    except (struct.error, ValueError, IndexError) as error:
        raise DamagedEvent(place, f"unreadable GTID event: {error}") from error


def _mariadb(body: Buffer, frame: Frame) -> Gtid:
    """Read MariaDB's GTID; more flags follow the numbers of a group commit and of an XA transaction."""
    sequence, domain, flags = struct.unpack_from("<QIB", body)
    offset = 21 if flags & _COMMIT_ID else 13
    if flags & (_PREPARED | _COMPLETED):
        _, size, other = _XID.unpack_from(body, offset)
        offset += _XID.size + size + other
    extra = body[offset] if offset < len(body) else 0
    text = f"{domain}-{frame.server_id}-{sequence}"
    return Gtid(text, bool(flags & _STANDALONE), bool(flags & _PREPARED), bool(extra & _VOID))


def _mysql(body: Buffer, frame: Frame) -> Gtid:
    """Read MySQL's GTID; later fields (commit order, times, versions) vary from 5.6 to 9 and are not needed."""
    _, uuid, number = _MYSQL.unpack_from(body)
    if frame.type == E.ANONYMOUS_GTID_MYSQL:
        return Gtid("", True, False, False)
    if number <= 0:
        raise ValueError(f"transaction number {number}")
    return Gtid(f"{uuid_text(uuid).decode()}:{number}", True, False, False)


def _tagged(body: bytes) -> Gtid:
    """Read MySQL's serialized message: numbered fields, of which only the first ones are needed."""
    offset = 0
    for _ in range(3):  # version, size, last field that must be known
        _, offset = _number(body, offset)
    _, offset = _field(body, offset, 0)
    server = bytearray()
    _, offset = _field(body, offset, 1, value=False)
    for _ in range(16):
        byte, offset = _number(body, offset)
        server.append(byte)
    number, offset = _field(body, offset, 2)
    size, offset = _field(body, offset, 3)
    tag = body[offset : offset + size].decode("ascii")
    # The lowest bit of a signed number is its sign.
    if number & 1 or not number or len(tag) != size:
        raise ValueError(f"transaction number {number}, tag {tag!r}")
    return Gtid(f"{uuid_text(bytes(server)).decode()}:{tag}{':' if tag else ''}{number >> 1}", True, False, False)


def _field(body: bytes, offset: int, wanted: int, value: bool = True) -> tuple[int, int]:
    found, offset = _number(body, offset)
    if found != wanted:
        raise ValueError(f"found field {found} instead of {wanted}")
    return _number(body, offset) if value else (0, offset)


def _number(body: bytes, offset: int) -> tuple[int, int]:
    """Read an integer of variable length:

    the number of one bits at the low end of the first byte is the number of bytes after it.
    """
    first = body[offset]
    more = (~first & (first + 1)).bit_length() - 1
    whole = body[offset : offset + 1 + more]
    if len(whole) != 1 + more:
        raise ValueError("a number is cut off")
    return int.from_bytes(whole, "little") >> min(more + 1, 8), offset + 1 + more


def read_history(body: Buffer, frame: Frame, place: str) -> list[str] | dict[str, list[Interval]]:
    """Read the GTIDs of all earlier transactions from the head of a file."""
    try:
        return _list(bytes(body)) if frame.type == E.GTID_LIST else _previous(bytes(body))
    except (struct.error, ValueError, IndexError) as error:
        raise DamagedEvent(place, f"unreadable {E(frame.type).name}: {error}") from error


def _list(body: bytes) -> list[str]:
    (count,) = struct.unpack_from("<I", body)
    found = (struct.unpack_from("<IIQ", body, 4 + 16 * number) for number in range(count & 0x0FFFFFFF))
    return [f"{domain}-{server}-{sequence}" for domain, server, sequence in found]


def _previous(body: bytes) -> dict[str, list[Interval]]:
    """Read MySQL's set of GTIDs; the highest and lowest byte of the first number are 1 if there are tags."""
    (count,) = struct.unpack_from("<Q", body)
    has_tags, offset = count >> 56 == 1, 8
    found: dict[str, list[Interval]] = {}
    for _ in range(count >> 8 & (1 << 48) - 1 if has_tags else count):
        name, offset = uuid_text(body[offset : offset + 16]).decode(), offset + 16
        if has_tags:
            size, offset = _number(body, offset)
            name += f":{body[offset : offset + size].decode('ascii')}" if size else ""
            offset += size
        (intervals,) = struct.unpack_from("<Q", body, offset)
        pairs = (struct.unpack_from("<QQ", body, offset + 8 + 16 * number) for number in range(intervals))
        found[name] = [(first, end - 1) for first, end in pairs]
        offset += 8 + 16 * intervals
    return found
