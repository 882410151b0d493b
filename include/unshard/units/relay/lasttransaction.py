"""Compare the last pulled transaction with the copy of it on a server that replaces a source. Runs in the driver.

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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import numpy as np

from unshard.adapters import binlogstream, mysql, upstream
from unshard.adapters.relayfiles import RelayStore
from unshard.binlog.decoder import opened, unwrapped
from unshard.binlog.events import (
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
    walk,
)
from unshard.binlog.runs import Numbers, Run
from unshard.binlog.sparse import images_at
from unshard.binlog.tablemap import NO_TABLE, table_id_of, table_of
from unshard.binlog.transactions import GTIDS, HISTORIES, QueryKind, classify, read_gtid, read_history
from unshard.core.model import Location, Server, TableId
from unshard.core.relay.gtidset import has_gtid
from unshard.core.relay.segment import POSITIONS, RowImages, TransactionContent, difference
from unshard.errors.relay import FailoverDiverged, UnsupportedEvent
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
        events = _transaction(binlogstream.dump(one, source, copy, replica_id), copy)
        found = difference(last.content, read_content(events, str(copy)))
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
        mine = opened(data.data, frames[begins[-1] if begins else 0 :], tail, data.origin)
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
    """Row images that are being collected."""

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
            runs = binlogstream.dump(connection, source, Location(file, len(MAGIC)), replica_id)
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
