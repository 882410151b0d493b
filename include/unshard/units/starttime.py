"""Where the binlog of a source stood at a time: by the creation of its files first, then transaction by transaction.

The first transaction that was written at or after the time is where windows begin. What stands behind it up to the
present end may be in the target already, because nobody knows the place to the byte: safe mode lasts until there.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import chain

from unshard.adapters import binlogstream, mysql, upstream
from unshard.binlog.events import EventType, read_frame
from unshard.core.model import Location, Server
from unshard.core.relaychain import FIRST_POSITION
from unshard.errors.life import StartNotNew, StartTimeAhead, StartTimePurged
from unshard.errors.relay import UnsupportedEvent
from unshard.units.failover import LONGEST, begins
from unshard.units.work import Work

FIRST_FILE = 1


def refuse_begun(work: Work) -> None:
    """Raise StartNotNew if the task has begun: its place in the binlog is not moved, rows would come twice or never."""
    if known := work.meta.sources.all():
        raise StartNotNew(work.task.name, f"it has begun already, with {', '.join(each.source for each in known)}")


def location_at(server: Server, source: str, wanted: datetime, replica_id: int) -> Location:
    """Return the begin of the first transaction at or after a time, the binlog's end if there is none yet."""
    moment = wanted.timestamp()
    with contextlib.closing(mysql.connect(server, f"source {source}")) as connection:
        ((now,),) = mysql.query(connection, "SELECT UNIX_TIMESTAMP()")
        if moment > int(now):
            raise StartTimeAhead(source, wanted.isoformat())
        files, end = list(upstream.binlog_files(connection)), upstream.location(connection, source)
    first = last_before(files, lambda file: _created(server, source, file, replica_id), moment)
    if first is None:
        if Location(files[0], 0).order[1] != FIRST_FILE:
            raise StartTimePurged(source, wanted.isoformat(), files[0])
        first = files[0]
    return _first_at(server, (source, replica_id), Location(first, FIRST_POSITION), moment) or end


def last_before(files: Sequence[str], created: Callable[[str], int], moment: float) -> str | None:
    """Return the last of the files, the oldest first, that was created before a time; None if all are younger."""
    low, high = 0, len(files)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if created(files[middle]) < moment else (low, middle)
    return files[low - 1] if low else None


def _created(server: Server, source: str, file: str, replica_id: int) -> int:
    with _events(server, source, Location(file, FIRST_POSITION), replica_id) as events:
        frames = map(read_frame, events)
        for frame in frames:
            if frame.type == EventType.FORMAT_DESCRIPTION:
                return frame.time
    raise UnsupportedEvent(file, "a file without its first event")


def _first_at(server: Server, who: tuple[str, int], first: Location, moment: float) -> Location | None:
    with _events(server, who[0], first, who[1]) as events:
        for location, time in begins(events):
            if time >= moment:
                if location.position >= LONGEST:
                    raise UnsupportedEvent(str(location), "a start time in a file beyond 4 GiB")
                return location
    return None


@contextlib.contextmanager
def _events(server: Server, source: str, first: Location, replica_id: int) -> Iterator[Iterator[bytes]]:
    with contextlib.closing(mysql.connect(server, f"source {source}")) as connection:
        yield chain.from_iterable(run.events() for run in binlogstream.dump(connection, source, first, replica_id))
