"""Where the history of a source goes on in the binlog of another server of the same GTID history.

It is proven, never believed: at the location that is found the new server must have exactly the transactions that
were pulled from the old one, no more and no fewer. MariaDB is asked for its state there; MySQL sends nothing that
is in the set it is given, so what stands before its first transaction is in the set, and the set must be in what
it has executed (a transaction of the set that stands behind would come a second time, which the relay refuses).

| the new server …                                   | what happens                       |
|----------------------------------------------------|------------------------------------|
| has the same transactions up to a place            | the relay goes on there            |
| has not got them all yet                           | GtidNotFound; goes on once it has  |
| has others in their place, or has purged the place | GtidNotFound                       |
"""

import contextlib
from collections.abc import Iterator

from pymysql.connections import Connection

from unshard.adapters import binlogstream, mysql, upstream
from unshard.binlog.events import ARTIFICIAL, CHECKSUM, HEADER, EventType, Frame, read_format, read_frame, read_rotate
from unshard.binlog.gtids import GTIDS
from unshard.core.gtidset import contains, same
from unshard.core.model import Location, Server
from unshard.errors.relay import DumpBroken, DumpRefused, GtidNotFound, UnsupportedEvent

LONGEST = 1 << 32


def locate(server: Server, source: str, history: str, replica_id: int) -> Location:
    """Return the location behind exactly these transactions, by the server's own name of the file."""
    with contextlib.closing(mysql.connect(server, f"source {source}")) as connection:
        found = upstream.inspect(connection, source)
        if history and (":" in history) != (found.flavor == "mysql"):
            raise GtidNotFound(source, found.identity, history, f"{found.flavor} has no GTIDs that look like these")
        if found.flavor == "mysql" and not contains(found.gtid, history):
            raise GtidNotFound(source, found.identity, history, f"it has executed {found.gtid} only")
        at_end = same(found.gtid, history)
        location = found.end if at_end else _first_behind(server, source, history, (found.identity, replica_id))
        if location.position >= LONGEST or upstream.binlog_files(connection).get(location.file, 0) >= LONGEST:
            raise UnsupportedEvent(str(location), "the place of a GTID in a file beyond 4 GiB")
        if found.flavor == "mariadb":
            _prove(connection, source, location, history, found.identity)
    return location


def _prove(connection: Connection, source: str, location: Location, history: str, identity: str) -> None:
    rows = mysql.query(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (location.file, location.position))
    there = rows[0][0] or ""
    there = there.decode() if isinstance(there, bytes) else str(there)
    if not same(there, history):
        raise GtidNotFound(source, identity, history, f"it has {there or 'none'} at {location}")


def _first_behind(server: Server, source: str, history: str, who: tuple[str, int]) -> Location:
    """Let the server find the first transaction that is not in the history."""
    identity, replica_id = who
    try:
        with contextlib.closing(mysql.connect(server, f"source {source}")) as connection:
            for location, _ in begins(binlogstream.dump_behind(connection, source, history, replica_id)):
                return location
    except (DumpRefused, DumpBroken) as error:
        raise GtidNotFound(source, identity, history, error.words) from error
    raise GtidNotFound(source, identity, history, "it has no transaction behind it")


def begins(events: Iterator[bytes]) -> Iterator[tuple[Location, int]]:
    """Yield where the transactions begin, and at which time."""
    file, tail = "", CHECKSUM
    for event in events:
        frame = read_frame(event)
        if frame.type == EventType.FORMAT_DESCRIPTION:
            tail = CHECKSUM if read_format(event, file).checksum else 0
        elif frame.type == EventType.ROTATE:
            file = read_rotate(event[HEADER : len(event) - _tail_of(frame, event, tail)])[0]
        elif frame.type in GTIDS:
            yield Location(file, frame.end - frame.size), frame.time


def _tail_of(frame: Frame, event: bytes, tail: int) -> int:
    """Whether an event that stands in no file has a checksum depends on the server."""
    if frame.flags & ARTIFICIAL or not frame.time:
        return binlogstream.checksum_of(event)
    return tail
