"""Pull the binlog of a source up to its present end and store it as segments. Runs in the driver.

Level-triggered: each pull reads what is stored, continues at its end, and stops at the position that the source had
when the pull began. So it ends under any write load. An idle source costs one connection.

| process dies …            | what happens                                                        |
|---------------------------|---------------------------------------------------------------------|
| before the dump           | nothing was written                                                 |
| inside a segment          | whole segments stay; the next pull continues after the last of them |
| between segment and index | the segment does not exist, the next pull writes it again           |

Find the location in the binlog of another server of the same GTID history where a source continues.

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
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypedDict, Unpack

from pymysql.connections import Connection

from unshard.adapters import binlogstream, mysql, upstream
from unshard.adapters.relayfiles import RelayStore
from unshard.binlog.cutter import RunCutter
from unshard.binlog.events import (
    ARTIFICIAL,
    CHECKSUM,
    HEADER,
    MAGIC,
    EventType,
    Frame,
    read_format,
    read_frame,
    read_rotate,
)
from unshard.binlog.runs import Run
from unshard.binlog.transactions import GTIDS
from unshard.core.model import Location, Server
from unshard.core.relay.gtidset import History, contains, same
from unshard.core.relay.segment import Segment, dump_start
from unshard.errors import UnshardError
from unshard.errors.relay import (
    BinlogPurged,
    BinlogReplaced,
    BinlogSettingRefused,
    DumpBroken,
    DumpRefused,
    GtidNotFound,
    PositionBeyondEnd,
    SourceReplaced,
    UnsupportedEvent,
)
from unshard.units.relay.lasttransaction import compare_last, last_pulled

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


# --- the pull


SEGMENT_BYTES = (8 << 20) - (128 << 10)
"""A window takes whole segments, so this is the granularity of window sizes: a sixteenth of `window-size`, less some
room for the transaction that reaches it. Otherwise a window of 128 MiB would take only fifteen of them.
"""
PROGRESS_BYTES = 1 << 19
NO_SUCH_BINLOG = 1236
LIVE_BYTES = 64 << 20
"""A live pull stores at most about so much at a time, so that windows begin before a backlog is stored."""
NEVER = 1 << 30
"""A generation that no source reaches."""
Progress = Callable[[int, int], None]


class PullOptions(TypedDict, total=False):
    """Optional parameters of `pull`."""

    server_id: int
    """Replica id to register with; 0 or absent: a random high one."""
    segment_bytes: int
    until: Location | None
    """Stop at the first transaction border at or after it."""
    identity: str | None
    """The recorded identity of the source; another server must prove by GTIDs that it continues the history."""
    gtid: str
    """The history up to `begins`, if it is known."""
    dump_end: Location | None
    """No other server can continue before this location: the dump's reads are known by positions of the first server
    only.
    """
    progress: Progress | None
    """Called with the number of bytes done and the total."""


@dataclass(frozen=True, slots=True)
class RelayReport:
    """The result of one pull."""

    begins: Location
    """Where the pull continued."""
    ends: Location
    """Where the stored binlog ends now."""
    upstream_end: Location
    """The end of the source's binlog when the pull began."""
    segments: int
    bytes: int
    identity: str = ""
    """Identity of the server that answered."""


def pull(
    source: str, server: Server, store: RelayStore, begins: Location, **options: Unpack[PullOptions]
) -> RelayReport:
    """Store the binlog from `begins` (or the end of what is stored) to the source's present end."""
    with contextlib.closing(_connect(source, server)) as connection:
        found, resumes = _resumed(connection, source, server, store, begins, options)
        end = found.end.in_generation(resumes.generation)
        stop = min(options.get("until") or end, end)
        if resumes >= stop:
            return RelayReport(resumes, resumes, end, 0, 0, found.identity)
        return _Pull(_Stream(connection, source, store, resumes, options), end, stop, found.identity).run()


class LivePull:
    """Pulls a source again and again over one connection, until `close`.

    Any error ends it, because events of the stream may be lost: the caller opens another one.
    """

    def __init__(
        self, source: str, server: Server, store: RelayStore, begins: Location, **options: Unpack[PullOptions]
    ) -> None:
        self._connection = _connect(source, server)
        try:
            found, resumes = _resumed(self._connection, source, server, store, begins, options)
            self.identity = found.identity
            self._stop = options.get("until") or found.end.in_generation(NEVER)
            self._known_end = found.end.in_generation(resumes.generation)
            self._stream = _Stream(self._connection, source, store, resumes, options)
            self._dump = binlogstream.LiveDump(self._connection, source, self._stream.begin(), _replica_id(options))
        except BaseException:
            self.close()
            raise

    @property
    def location(self) -> Location:
        """Where the stored binlog ends."""
        return self._stream.cutter.location

    def pull(self, seconds: float) -> int:
        """Wait for new events for so long, store what has arrived, and return the number of bytes.

        A large backlog is stored in several calls. Events that existed when the connection was opened are waited for.
        """
        if self.location < min(self._known_end, self._stop):
            seconds = binlogstream.READ_SECONDS  # these events exist already
        done = 0
        while self.location < self._stop and not done and self._dump.wait(seconds):
            done = self._store()
            seconds = 0.0 if self.location >= self._known_end else seconds
        return done

    def _store(self) -> int:
        """Store what has arrived, up to the end of its last transaction."""
        done = 0
        with self._stream.explained():
            while done < LIVE_BYTES and self.location < self._stop:
                for run in self._dump.arrived():
                    done += sum(self._stream.read(run, self._stop))
                    if done >= LIVE_BYTES or self.location >= self._stop:
                        break
                if self._stream.cutter.is_at_border:
                    self._stream.cutter.end()
                    return done
                # The server sends only whole transactions, so the rest of this one comes.
                self._dump.wait(binlogstream.READ_SECONDS)
        return done

    def close(self) -> None:
        """Close the connection, and discard a segment that is not complete."""
        self._connection.close()
        if stream := getattr(self, "_stream", None):
            stream.writer.abandon()


def _connect(source: str, server: Server) -> Connection:
    return mysql.connect(server, f"source {source}", read_timeout=binlogstream.READ_SECONDS)


def _resumed(
    connection: Connection, source: str, server: Server, store: RelayStore, begins: Location, options: PullOptions
) -> tuple[upstream.Upstream, Location]:
    """Return the state of a source that may continue the stored binlog, and the location where it continues."""
    found = upstream.inspect(connection, source)
    _check_source(source, found)
    resumes = stored_end(store, source, begins)
    known = options.get("identity")
    if known and known != found.identity:
        _check_succession(source, resumes, found, options)
        resumes = _switch(server, source, store, resumes, found.identity, options)
    end = found.end.in_generation(resumes.generation)
    if resumes > end:
        raise PositionBeyondEnd(source, str(resumes), str(end))
    return found, resumes


def stored_end(store: RelayStore, source: str, begins: Location) -> Location:
    """Return the location up to which the stored binlog has no gap."""
    return store.links(source).end(begins)


def _check_succession(source: str, resumes: Location, found: upstream.Upstream, options: PullOptions) -> None:
    """Refuse another server unless GTIDs can prove that it continues where the last one ended."""
    known, dump_end = options.get("identity") or "", options.get("dump_end")
    same_make = known.partition(":")[0] == found.flavor
    if not same_make or not found.gtid or (dump_end is not None and resumes < dump_end):
        raise SourceReplaced(source, known, found.identity)


def _switch(
    server: Server, source: str, store: RelayStore, resumes: Location, identity: str, options: PullOptions
) -> Location:
    """Store the location where another server's files continue, as an empty segment that leads there."""
    before = store.links(source).ending_at(resumes)
    history = before.gtid if before else options.get("gtid", "")
    if not history:
        raise SourceReplaced(source, options.get("identity") or "", "a server that must prove its history by GTIDs")
    located = locate(server, source, history, _replica_id(options))
    last = last_pulled(store, source, resumes)
    if last is not None:
        compare_last(server, source, last, located, (identity, _replica_id(options)))
    following = located.in_generation(resumes.generation + 1)
    link = Segment(
        source,
        resumes.file,
        resumes.position,
        resumes.position,
        f"{resumes.file}.{resumes.position}-{resumes.position}.seg",
        history,
        0,
        0,
        (),
        next_file=following.file,
        next_position=following.position,
        open=before.open if before else (),
        finished=before.finished if before else (),
    )
    writer = store.writer(source)
    writer.begin(MAGIC)
    writer.finish(link, len(MAGIC))
    return following


def _replica_id(options: PullOptions) -> int:
    return options.get("server_id") or random.randrange(*binlogstream.REPLICA_IDS)


def _check_source(source: str, found: upstream.Upstream) -> None:
    if found.binlog_format.upper() != "ROW":
        raise BinlogSettingRefused(source, "binlog_format", found.binlog_format, "ROW")


class _Stream:
    """Cuts the events of one dump that continues the stored binlog."""

    def __init__(
        self, connection: Connection, source: str, store: RelayStore, resumes: Location, options: PullOptions
    ) -> None:
        generation = resumes.generation
        self.source, self.resumes, self.options = source, resumes, options
        self.files = {
            Location(file, 0).in_generation(generation).file: size
            for file, size in upstream.binlog_files(connection).items()
        }
        if resumes.file not in self.files:
            raise BinlogPurged(source, str(resumes), next(iter(self.files), "none"))
        store.clean(source)
        self._stored = store.links(source)
        before = self._stored.ending_at(resumes)
        self.connection, self.writer = connection, store.writer(source)
        self.cutter = RunCutter(source, resumes, self.writer, options.get("segment_bytes", SEGMENT_BYTES), before)
        if before is None:
            self.cutter.history = History(options.get("gtid", ""))
        self._known = store.described(before).fingerprint if before and before.file == resumes.file else ""
        """The fingerprint of the binlog file that continues, if a part of it is stored."""

    def begin(self) -> Location:
        """Return the location from which to request the dump."""
        start = dump_start(self._stored.all, self.resumes)
        self.cutter.read_again_from(start.position)
        return start

    def read(self, run: Run, stop: Location) -> Iterator[int]:
        """Cut the events up to the first border at or after `stop`; yield the bytes of each step."""
        for size in self.cutter.read(run, stop):
            if self._known and self.cutter.format:
                found = self.cutter.format.fingerprint
                if found != self._known:
                    raise BinlogReplaced(self.source, self.cutter.location.file, self._known, found)
                self._known = ""
            yield size

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """After an error, store what is whole, and raise the error with its own remedy."""
        try:
            yield
        except UnshardError as error:
            # All earlier segments are whole and stay.
            self.cutter.end()
            raise _explained(error) from error


@dataclass(frozen=True, slots=True)
class _Pull:
    """One pull with something to pull."""

    stream: _Stream
    end: Location
    stop: Location
    identity: str

    def run(self) -> RelayReport:
        stream, writer = self.stream, self.stream.writer
        meter = _Meter(stream.options.get("progress"), stream.files, stream.resumes, self.stop)
        try:
            self._copy(meter)
        finally:
            writer.abandon()
        size = sum(segment.size for segment in writer.stored)
        return RelayReport(stream.resumes, stream.cutter.location, self.end, len(writer.stored), size, self.identity)

    def _copy(self, meter: "_Meter") -> None:
        """Feed events to the cutter until the stop position; an earlier end by the server is an error."""
        stream, cutter = self.stream, self.stream.cutter
        with stream.explained():
            start = stream.begin()
            dump = binlogstream.dump(stream.connection, stream.source, start, _replica_id(stream.options))
            for run in dump:
                for size in stream.read(run, self.stop):
                    meter.add(size)
                if cutter.location >= self.stop:
                    break
        cutter.end()
        if cutter.location < self.stop:
            raise DumpBroken(stream.source, str(cutter.location), f"the server ended before {self.stop}")
        meter.done()


class _Meter:
    """Calls the progress function at intervals, not for every event."""

    def __init__(self, progress: Progress | None, files: Mapping[str, int], begins: Location, stop: Location) -> None:
        self._progress = progress
        self._done = self._shown = 0
        first, last = (Location(at.file, 0) for at in (begins, stop))
        before_stop = [size - len(MAGIC) for file, size in files.items() if first <= Location(file, 0) < last]
        self._total = sum(before_stop) + stop.position - begins.position

    def add(self, size: int) -> None:
        """Count an event."""
        self._done = min(self._done + size, self._total)
        if self._progress and self._done - self._shown >= PROGRESS_BYTES:
            self._shown = self._done
            self._progress(self._done, self._total)

    def done(self) -> None:
        """Report the end."""
        if self._progress:
            self._progress(self._total, self._total)


def _explained(error: UnshardError) -> UnshardError:
    """Return the error with its own remedy if the file was purged after the check."""
    if (
        isinstance(error, DumpRefused)
        and error.errno == NO_SUCH_BINLOG
        and "could not find" in error.server_message.lower()
    ):
        return BinlogPurged(error.source, error.location, "unknown")
    return error
