"""Find the binlog location of a source at a time: by the creation of its files first, then by transaction.

Runs in the driver. Windows begin at the first transaction that was written at or after the time. The transactions after
it up to the present end may already be in the target, because the exact location of the target's data is unknown: safe
mode lasts until that end.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import chain

from unshard.adapters import binlogstream, mysql, serverstate, upstream
from unshard.binlog.events import EventType, read_frame
from unshard.core.model import Location, Server
from unshard.core.relay.chain import FIRST_POSITION
from unshard.errors.meta import StartNotNew, StartTimeAhead, StartTimePurged
from unshard.errors.relay import UnsupportedEvent
from unshard.units.relay.failover import LONGEST, begins
from unshard.units.work import Work

FIRST_FILE = 1


def refuse_begun(work: Work) -> None:
    """Raise StartNotNew if the task has begun: moving its binlog location would repeat or lose rows."""
    if known := work.meta.sources.all():
        raise StartNotNew(work.task.name, f"it has begun already, with {', '.join(each.source for each in known)}")


def location_at(server: Server, source: str, wanted: datetime, replica_id: int) -> Location:
    """Return the beginning of the first transaction at or after a time; the binlog's end if it does not exist yet."""
    moment = wanted.timestamp()
    with contextlib.closing(mysql.connect(server, f"source {source}")) as connection:
        if moment > serverstate.clock(connection):
            raise StartTimeAhead(source, wanted.isoformat())
        files, end = list(upstream.binlog_files(connection)), upstream.location(connection, source)
    first = last_before(files, lambda file: _created(server, source, file, replica_id), moment)
    if first is None:
        if Location(files[0], 0).order[1] != FIRST_FILE:
            raise StartTimePurged(source, wanted.isoformat(), files[0])
        first = files[0]
    return _first_at(server, (source, replica_id), Location(first, FIRST_POSITION), moment) or end


def last_before(files: Sequence[str], created: Callable[[str], int], moment: float) -> str | None:
    """Return the last file (they are sorted by age) that was created before a time; None if all are younger."""
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


def _first_at(server: Server, replica: tuple[str, int], first: Location, moment: float) -> Location | None:
    with _events(server, replica[0], first, replica[1]) as events:
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
