"""GTIDs of both makes, from the event that begins a transaction or stands before a single statement."""

import struct
from dataclasses import dataclass

from unshard.binlog.events import Buffer, EventType, Frame
from unshard.binlog.values import uuid_text
from unshard.errors.relay import DamagedEvent

E = EventType
GTIDS = frozenset((E.GTID, E.GTID_MYSQL, E.ANONYMOUS_GTID_MYSQL))
_MYSQL = struct.Struct("<B16sq")


@dataclass(frozen=True, slots=True)
class Gtid:
    """A transaction's GTID, with what the event says about the transaction."""

    text: str
    """MariaDB's `domain-server-sequence` or MySQL's `uuid:number`; empty if the transaction is anonymous."""
    standalone: bool
    """Whether a statement that follows is all of it; MySQL does not say, and rows behind one open it again."""
    refused: str
    """What cannot be followed about the transaction, empty if nothing."""


def read_gtid(body: Buffer, frame: Frame, place: str) -> Gtid:
    """Read the body of a GTID event, which must come without its checksum."""
    try:
        return _mariadb(body, frame) if frame.type == E.GTID else _mysql(body, frame)
    except (struct.error, ValueError) as error:
        raise DamagedEvent(place, f"unreadable GTID event: {error}") from error


def _mariadb(body: Buffer, frame: Frame) -> Gtid:
    """Flags may follow a commit id."""
    sequence, domain, flags = struct.unpack_from("<QIB", body)
    extra = bytes(body[21:22] if flags & 2 else body[13:14])
    refused = "an XA transaction" if flags & 0xC0 else ""
    if not refused and extra and extra[0] & 0x0E:
        refused = "an ALTER in two phases (binlog_alter_two_phase)"
    return Gtid(f"{domain}-{frame.server_id}-{sequence}", bool(flags & 1), refused)


def _mysql(body: Buffer, frame: Frame) -> Gtid:
    """What follows the number (commit order, times, versions) grew from 5.6 to 9 and is not needed."""
    _, uuid, number = _MYSQL.unpack_from(body)
    if frame.type == E.ANONYMOUS_GTID_MYSQL:
        return Gtid("", True, "")
    if number <= 0:
        raise ValueError(f"transaction number {number}")
    return Gtid(f"{uuid_text(uuid).decode()}:{number}", True, "")
