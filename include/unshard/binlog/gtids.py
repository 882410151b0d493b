"""GTIDs of both makes, from the event that begins a transaction or stands before a single statement."""

import struct
from dataclasses import dataclass

from unshard.binlog.events import Buffer, EventType, Frame
from unshard.binlog.values import uuid_text
from unshard.errors.relay import DamagedEvent

E = EventType
GTIDS = frozenset((E.GTID, E.GTID_MYSQL, E.ANONYMOUS_GTID_MYSQL))
_STANDALONE, _COMMIT_ID, _PREPARED, _COMPLETED = 1, 2, 0x40, 0x80
_XID = struct.Struct("<IBB")
_VOID = 2 | 8
"""START ALTER and ROLLBACK ALTER; COMMIT ALTER has the whole statement again."""
_MYSQL = struct.Struct("<B16sq")


@dataclass(frozen=True, slots=True)
class Gtid:
    """A transaction's GTID, with what the event says about the transaction."""

    text: str
    """MariaDB's `domain-server-sequence` or MySQL's `uuid:number`; empty if the transaction is anonymous."""
    standalone: bool
    """Whether a statement that follows is all of it; MySQL does not say, and rows behind one open it again."""
    prepares: bool
    """Whether it is the first part of an XA transaction; MySQL says so by a statement."""
    is_void: bool
    """Whether the statement that follows changes nothing: the start of an ALTER in two phases, or its rollback."""


def read_gtid(body: Buffer, frame: Frame, place: str) -> Gtid:
    """Read the body of a GTID event, which must come without its checksum."""
    try:
        return _mariadb(body, frame) if frame.type == E.GTID else _mysql(body, frame)
    except (struct.error, ValueError) as error:
        raise DamagedEvent(place, f"unreadable GTID event: {error}") from error


def _mariadb(body: Buffer, frame: Frame) -> Gtid:
    """More flags follow the numbers of a group commit and of an XA transaction."""
    sequence, domain, flags = struct.unpack_from("<QIB", body)
    offset = 21 if flags & _COMMIT_ID else 13
    if flags & (_PREPARED | _COMPLETED):
        _, size, other = _XID.unpack_from(body, offset)
        offset += _XID.size + size + other
    extra = body[offset] if offset < len(body) else 0
    text = f"{domain}-{frame.server_id}-{sequence}"
    return Gtid(text, bool(flags & _STANDALONE), bool(flags & _PREPARED), bool(extra & _VOID))


def _mysql(body: Buffer, frame: Frame) -> Gtid:
    """What follows the number (commit order, times, versions) grew from 5.6 to 9 and is not needed."""
    _, uuid, number = _MYSQL.unpack_from(body)
    if frame.type == E.ANONYMOUS_GTID_MYSQL:
        return Gtid("", True, False, False)
    if number <= 0:
        raise ValueError(f"transaction number {number}")
    return Gtid(f"{uuid_text(uuid).decode()}:{number}", True, False, False)
