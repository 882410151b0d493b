"""Find the time of the first transaction that a source's binlog has after a location. Runs in the driver."""

import random
from collections.abc import Iterator
from contextlib import closing
from itertools import chain

from unshard.adapters import binlogstream, mysql
from unshard.binlog.events import ARTIFICIAL, BETWEEN, EventType, read_frame
from unshard.core.model import Location, Server
from unshard.core.relay.segment import POSITIONS
from unshard.core.task.lag import Unread
from unshard.errors.relay import DumpRefused

OUTSIDE = BETWEEN | {EventType.HEARTBEAT, EventType.HEARTBEAT_V2, EventType.VIEW_CHANGE, EventType.START_ENCRYPTION}


def first_unread(server: Server, source: str, location: Location) -> int | Unread:
    """Return the time, in seconds since 1970; UNKNOWN if the source does not send its binlog from there.

    The account may lack a privilege, or the source has purged the file, which the relay may have stored.
    """
    if location.position >= POSITIONS:
        return Unread.UNKNOWN
    with closing(mysql.connect(server, f"source {source}")) as connection:
        runs = binlogstream.dump(connection, source, location, random.randrange(*binlogstream.REPLICA_IDS))
        try:
            return first_time(chain.from_iterable(run.events() for run in runs))
        except DumpRefused:
            return Unread.UNKNOWN


def first_time(events: Iterator[bytes]) -> int | Unread:
    """Return the time of the first event of a transaction."""
    for frame in map(read_frame, events):
        if frame.time and not frame.flags & ARTIFICIAL and frame.type not in OUTSIDE:
            return frame.time
    return Unread.NOTHING
