"""Find the location in the binlog of another server of the same GTID history where a source continues.

Runs in the driver. The location is proven: before it, the new server must have exactly the transactions that were
pulled from the old one, no more and no fewer. MariaDB is asked for its GTID state at the location. MySQL sends no
transaction that is in the set it is given. So all transactions before its first one are in the set, and the server must
have executed the whole set. (A transaction of the set after the location would be sent a second time; the relay refuses
it.)

| the new server …                                   | what happens                       |
|----------------------------------------------------|------------------------------------|
| has the same transactions up to a location         | the relay continues there          |
| does not have all of them yet                      | GtidNotFound; continues once it has them |
| has others in their place, or has purged the location | GtidNotFound                    |

Equal GTIDs do not prove equal rows, so the relay then compares the last transaction (lasttransaction.py).
"""

import contextlib
from collections.abc import Iterator

from pymysql.connections import Connection

from unshard.adapters import binlogstream, mysql, upstream
from unshard.binlog.events import ARTIFICIAL, CHECKSUM, HEADER, EventType, Frame, read_format, read_frame, read_rotate
from unshard.binlog.transactions import GTIDS
from unshard.core.model import Location, Server
from unshard.core.relay.gtidset import contains, same
from unshard.errors.relay import DumpBroken, DumpRefused, GtidNotFound, UnsupportedEvent

LONGEST = 1 << 32


def locate(server: Server, source: str, history: str, replica_id: int) -> Location:
    """Return the location after exactly these transactions, with the server's own file name."""
    with contextlib.closing(mysql.connect(server, f"source {source}")) as connection:
        found = upstream.inspect(connection, source)
        if history and (":" in history) != (found.flavor == "mysql"):
            raise GtidNotFound(source, found.identity, history, f"{found.flavor} has no GTIDs that look like these")
        if found.flavor == "mysql" and not contains(found.gtid, history):
            raise GtidNotFound(source, found.identity, history, f"it has executed {found.gtid} only")
        at_end = same(found.gtid, history)
        location = found.end if at_end else _first_after(server, source, history, (found.identity, replica_id))
        if location.position >= LONGEST or upstream.binlog_files(connection).get(location.file, 0) >= LONGEST:
            raise UnsupportedEvent(str(location), "the position of a GTID in a file beyond 4 GiB")
        if found.flavor == "mariadb":
            _prove(connection, source, location, history, found.identity)
    return location


def _prove(connection: Connection, source: str, location: Location, history: str, identity: str) -> None:
    state = upstream.gtid_at(connection, location)
    if not same(state, history):
        raise GtidNotFound(source, identity, history, f"it has {state or 'none'} at {location}")


def _first_after(server: Server, source: str, history: str, new_server: tuple[str, int]) -> Location:
    """Let the server find the first transaction that is not in the history."""
    identity, replica_id = new_server
    try:
        with contextlib.closing(
            mysql.connect(server, f"source {source}", read_timeout=binlogstream.READ_SECONDS)
        ) as connection:
            for location, _ in begins(binlogstream.dump_behind(connection, source, history, replica_id)):
                return location
    except (DumpRefused, DumpBroken) as error:
        raise GtidNotFound(source, identity, history, error.server_message) from error
    raise GtidNotFound(source, identity, history, "it has no transaction after that history")


def begins(events: Iterator[bytes]) -> Iterator[tuple[Location, int]]:
    """Yield the beginnings of transactions and their times."""
    file, tail = "", CHECKSUM
    for event in events:
        frame = read_frame(event)
        if frame.type == EventType.FORMAT_DESCRIPTION:
            tail = CHECKSUM if read_format(event, file).checksum else 0
        elif frame.type == EventType.ROTATE:
            file = read_rotate(event[HEADER : len(event) - _tail_of(frame, event, tail)], file or "the dump")[0]
        elif frame.type in GTIDS:
            yield Location(file, frame.end - frame.size), frame.time


def _tail_of(frame: Frame, event: bytes, tail: int) -> int:
    """Return the checksum size of an event that is not in a file: it depends on the server."""
    if frame.flags & ARTIFICIAL or not frame.time:
        return binlogstream.checksum_of(event)
    return tail
