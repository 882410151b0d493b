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

Equal GTIDs do not prove equal rows: a server may have been written to directly, or a transaction may have been injected
under the GTID of another one. So the relay follows a new server only if the last transaction has the same content
there.

| the transaction …                                        | what happens                     |
|----------------------------------------------------------|----------------------------------|
| has the same content on the new server                   | the relay follows                |
| has another content there                                | FailoverDiverged with both       |
| is not stored here, because nothing was pulled yet       | the GTIDs alone decide           |
| is in a binlog file that the new server has purged       | the GTIDs alone decide           |
"""

import contextlib
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol, TypedDict, Unpack

import numpy as np
from pymysql.connections import Connection

from unshard.adapters import binlogstream, mysql, upstream
from unshard.adapters.relayfiles import RelayStore
from unshard.binlog.cutter import RunCutter
from unshard.binlog.decoder import opened_events, unwrapped
from unshard.binlog.events import (
    ARTIFICIAL,
    BETWEEN,
    CHECKSUM,
    COMPRESSED_ROWS,
    DELETES,
    HEADER,
    INSERTS,
    MAGIC,
    QUERIES,
    ROWS,
    EventType,
    Format,
    Frame,
    Opened,
    inflate,
    is_artificial,
    read_format,
    read_frame,
    read_query,
    read_rotate,
    walk,
)
from unshard.binlog.runs import Numbers, Run
from unshard.binlog.sparse import images_at
from unshard.binlog.tablemap import NO_TABLE, table_id_of, table_of
from unshard.binlog.transactions import GTIDS, HISTORIES, QueryKind, classify, read_gtid, read_history
from unshard.core.model import Location, Server, TableId
from unshard.core.relay.gtidset import History, contains, has_gtid, same
from unshard.core.relay.segment import POSITIONS, RowImages, Segment, TransactionContent, content_difference, dump_start
from unshard.errors import UnshardError
from unshard.errors.relay import (
    BinlogPurged,
    BinlogReplaced,
    BinlogSettingRefused,
    DumpBroken,
    DumpRefused,
    FailoverDiverged,
    GtidNotFound,
    PositionBeyondEnd,
    SourceReplaced,
    UnsupportedEvent,
)
from unshard.errors.rows import RowsWithoutTable

HEAD_BYTES = 256
PARTIAL = -1
"""Stands for changes of JSON values among the columns of images."""
_IS_CONTROL = np.isin(np.arange(256), [int(kind) for kind in GTIDS | BETWEEN])


@dataclass(frozen=True, slots=True)
class Last:
    """The last transaction that was pulled."""

    gtid: str
    place: Location
    """Where it begins in the binlog file of the former server."""
    content: TransactionContent


def compare_last(
    server: Server, source: str, last: Last, following: Location, new_server: tuple[str, int]
) -> Location | None:
    """Compare a transaction with its copy before `following`; return where the copy is, None if it is purged.

    `new_server` is the identity of the server and the replica id to register with.
    """
    identity, replica_id = new_server
    copy = _find(server, source, last.gtid, following, replica_id)
    if copy is None:
        return None
    with contextlib.closing(mysql.connect(server, f"source {source}", read_timeout=binlogstream.READ_SECONDS)) as one:
        events = _transaction(binlogstream.stream_runs(one, source, copy, replica_id), copy)
        found = content_difference(last.content, read_content(events, str(copy)))
    if found:
        ours, theirs = found
        raise FailoverDiverged(source, identity, last.gtid, str(last.place), ours, str(copy), theirs)
    return copy


def last_pulled(store: RelayStore, source: str, end: Location) -> Last | None:
    """Return the last transaction of the stored binlog that ends there; None if it is not stored or has no GTID."""
    links = store.links(source)
    segment, later = links.ending_at(end), list[Iterator[Opened]]()
    while segment is not None:
        data = store.whole(segment)
        frames = list(walk(data.data, data.checksum, source))
        tail = CHECKSUM if data.checksum else 0
        begins = [number for number, (_, frame) in enumerate(frames) if frame.type in GTIDS]
        mine = opened_events(data.data, frames[begins[-1] if begins else 0 :], tail, data.origin)
        if begins:
            offset, frame = frames[begins[-1]]
            gtid = read_gtid(data.data[offset + HEADER : offset + frame.size - tail], frame, source).text
            place = Location(segment.file, data.origin.position + offset)
            return Last(gtid, place, read_content(chain(mine, *later), str(place))) if gtid else None
        later.insert(0, mine)
        segment = links.ending_at(segment.begins)
    return None


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


@dataclass(slots=True)
class _RowImages:
    operation: str
    columns: tuple[int, ...]
    size: int = 0
    head: bytes = b""
    hash: _Hash = field(default_factory=hashlib.sha256)

    def add(self, images: bytes) -> None:
        self.size += len(images)
        self.head += images[: HEAD_BYTES - len(self.head)]
        self.hash.update(images)

    def done(self) -> RowImages:
        return RowImages(self.operation, self.columns, self.size, self.hash.hexdigest(), self.head)


def read_content(events: Iterable[Opened], place: str) -> TransactionContent:
    """Return the content of a transaction from its events."""
    tables: dict[int, TableId] = {}
    found: dict[TableId, list[_RowImages]] = {}
    statements: list[str] = []
    for frame, body, _ in events:
        if frame.type == EventType.TABLE_MAP:
            tables[table_id_of(bytes(body[:6]))] = table_of(bytes(body), place)
        elif frame.type in ROWS and (number := table_id_of(bytes(body[:6]))) != NO_TABLE:
            if number not in tables:
                raise RowsWithoutTable(place, number)
            _add(found.setdefault(tables[number], []), frame, bytes(body), place)
        elif frame.type in QUERIES:
            query = read_query(body, frame, place)
            if classify(query.text)[0] is QueryKind.STATEMENT:
                statements.append(query.statement(place).text)
    return TransactionContent(
        {table: [images.done() for images in some] for table, some in found.items()}, tuple(statements)
    )


def _add(images: list[_RowImages], frame: Frame, body: bytes, place: str) -> None:
    operation = "INSERT" if frame.type in INSERTS else "DELETE" if frame.type in DELETES else "UPDATE"
    _, offset, columns = images_at(frame, body)
    if frame.type == EventType.PARTIAL_UPDATE_ROWS:
        columns = (*columns, PARTIAL)
    data = inflate(body[offset:], place) if frame.type in COMPRESSED_ROWS else body[offset:]
    if not images or (images[-1].operation, images[-1].columns) != (operation, columns):
        images.append(_RowImages(operation, columns))
    images[-1].add(data)


def _find(server: Server, source: str, gtid: str, until: Location, replica_id: int) -> Location | None:
    """Return where a transaction begins; the newest file is read first, and older ones only if they have it."""
    with contextlib.closing(mysql.connect(server, f"source {source}")) as connection:
        files = [*upstream.binlog_files(connection)]
    until_there = files[: files.index(until.server_file) + 1] if until.server_file in files else files
    for file in reversed(until_there):
        with contextlib.closing(
            mysql.connect(server, f"source {source}", read_timeout=binlogstream.READ_SECONDS)
        ) as connection:
            runs = binlogstream.stream_runs(connection, source, Location(file, len(MAGIC)), replica_id)
            is_older, position = _find_in(runs, file, gtid)
        if position is not None:
            if position >= POSITIONS:
                raise UnsupportedEvent(f"{file}:{position}", "the position of a transaction in a file beyond 4 GiB")
            return Location(file, position)
        if not is_older:
            return None
    return None


def _find_in(runs: Iterable[Run], file: str, gtid: str) -> tuple[bool, int | None]:
    """Return whether the transaction is in an older file, and its position if it is in this one."""
    end, tail = len(MAGIC), CHECKSUM
    for run in runs:
        kinds, starts, end = _placed(run, end)
        for number in np.flatnonzero(_IS_CONTROL[kinds]).tolist():
            event = run.event(number)
            frame = read_frame(event)
            body = event[HEADER : len(event) - tail]
            if frame.type == EventType.FORMAT_DESCRIPTION:
                tail = _tail(read_format(event, file))
            elif frame.type in HISTORIES and has_gtid(read_history(body, frame, file), gtid):
                return True, None
            elif frame.type in GTIDS and read_gtid(body, frame, file).text == gtid:
                return False, int(starts[number])
            elif frame.type in (EventType.ROTATE, EventType.STOP) and not is_artificial(frame):
                return False, None
    return False, None


def _placed(run: Run, position: int) -> tuple[Numbers, Numbers, int]:
    """Return types and positions of the events, and the position after them; `position` is before them."""
    kinds = np.frombuffer(run.data, np.uint8)[run.offsets[:-1] + 4].astype(np.int64)
    sizes = np.diff(run.offsets)
    for number in np.flatnonzero(_IS_CONTROL[kinds]).tolist():
        if is_artificial(read_frame(run.data, int(run.offsets[number]))):
            sizes[number] = 0
    ends = position + np.cumsum(sizes)
    return kinds, ends - sizes, int(ends[-1])


def _transaction(runs: Iterable[Run], place: Location) -> Iterator[Opened]:
    """Yield the events of the transaction that begins there; the server sends the description of the file first."""
    events = (event for run in runs for event in run.events())
    for event in events:
        if read_frame(event).type == EventType.FORMAT_DESCRIPTION:
            tail = _tail(read_format(event, str(place)))
            yield from unwrapped(_group(events, tail), tail, place.file)


def _group(events: Iterable[bytes], tail: int) -> Iterator[Opened]:
    """Yield the events up to the next transaction or control event."""
    is_begun = False
    for event in events:
        frame = read_frame(event)
        if is_artificial(frame):
            continue
        if frame.type in BETWEEN or (frame.type in GTIDS and is_begun):
            return
        is_begun = True
        yield frame, event[HEADER : len(event) - tail], frame.end


def _tail(described: Format) -> int:
    return CHECKSUM if described.checksum else 0


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
            state = upstream.gtid_at(connection, location)
            if not same(state, history):
                raise GtidNotFound(source, found.identity, history, f"it has {state or 'none'} at {location}")
    return location


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


@dataclass(frozen=True, slots=True)
class RelayReport:
    """The result of one pull."""

    begins: Location
    ends: Location
    upstream_end: Location
    """The end of the source's binlog when the pull began."""
    segments: int
    bytes: int
    identity: str = ""


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
    resumes = stored_end(store, source, begins)
    found = upstream.inspect(connection, source)  # after `resumes`: another pull may store more meanwhile
    if found.binlog_format.upper() != "ROW":
        raise BinlogSettingRefused(source, "binlog_format", found.binlog_format, "ROW")
    known = options.get("identity")
    if known and known != found.identity:
        _check_succession(source, resumes, found, options)
        resumes = _switch(server, source, store, resumes, found.identity, options)
        found = upstream.inspect(connection, source)
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
            dump = binlogstream.stream_runs(stream.connection, stream.source, start, _replica_id(stream.options))
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
        self._done = min(self._done + size, self._total)
        if self._progress and self._done - self._shown >= PROGRESS_BYTES:
            self._shown = self._done
            self._progress(self._done, self._total)

    def done(self) -> None:
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
