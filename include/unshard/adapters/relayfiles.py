"""The relay's files: one place per source, with a segment file and an index file for each segment.

**In a folder** a file is written to a temporary name, flushed, and renamed.
A writer locks its temporary file, so that only files of dead writers are deleted.

**In an object store or HDFS** a file is written to a local scratch file, and sent when it is complete.
Each request is slow, but the store handles many at once. One request lists a thousand files, and reads and deletions
run in parallel.

| process dies                      | remaining                       | result                               |
|-----------------------------------|---------------------------------|--------------------------------------|
| while writing a segment           | `.tmp-…` in a folder            | deleted by the next pull             |
|                                   | parts of an upload in a bucket  | no object; a rule of the bucket      |
| after publishing the segment      | a segment without index         | does not count, is written again     |
| while writing the index           | the same, and as in the first   | as above                             |
| after publishing the index        | both                            | the segment exists                   |

All names follow from the content, so two pulls of one source write the same bytes under the same names.
"""

import contextlib
import fcntl
import json
import mmap
import os
import secrets
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self
from urllib.parse import quote

from pyarrow import ArrowInvalid, NativeFile, fs

from unshard.adapters.objectstore import BUCKET, TEMPORARY, opened_store, put, scratch
from unshard.adapters.privatefiles import create, private_folder
from unshard.binlog.decoder import RangeOrigin
from unshard.binlog.events import HEADER, MAGIC, Format, read_format, read_frame
from unshard.core import codec
from unshard.core.model import Location, ObjectAccess, TableId
from unshard.core.relay.segment import ByteRange, Commit, Link, Links, Prepared, Segment, Statement
from unshard.errors.meta import StorageFailed
from unshard.errors.relay import RelayUnwritable, SegmentDamaged, SegmentMissing

# --- files that are being written ---


@dataclass(frozen=True, slots=True)
class Draft:
    """An unnamed file; the place that created it knows how to publish and how to discard it."""

    file: BinaryIO
    keep: Callable[[str], None]
    """Makes the content durable under a name."""
    forget: Callable[[], None] = lambda: None

    def write(self, data: bytes | memoryview) -> None:
        self.file.write(data)

    def publish(self, name: str, length: int | None = None) -> None:
        """Publish the file under a name, permanently; content after `length` is cut off first."""
        self.file.flush()
        if length is not None:
            self.file.truncate(length)
        self.keep(name)
        self.file.close()

    def discard(self) -> None:
        self.forget()
        # Closing would write buffered data that a full disk has refused.
        with contextlib.suppress(OSError):
            self.file.close()


# --- places of files ---


class Stored(Protocol):
    """A file that is open for reading."""

    @property
    def size(self) -> int:
        """Its size in bytes."""

    def read(self, start: int, end: int) -> memoryview:
        """Return a range of the file; shorter if the file ends before."""


class RelayPlace(Hashable, Protocol):
    """A place for files that are written once and never changed; equal values are the same place."""

    @property
    def parallel_reads(self) -> int:
        """How many files should be read at once."""

    def below(self, name: str) -> Self:
        """Return the sub-place with that name."""

    def location_of(self, name: str) -> str:
        """Return the path or URI of a file, for messages."""

    def names(self) -> Mapping[str, int]:
        """Return the existing files, each with a number that changes if the file is replaced under its name."""

    def opened(self, name: str) -> AbstractContextManager[Stored]:
        """Open a file; SegmentMissing if it is gone."""

    def prepare(self) -> None:
        """Prepare the place for drafts."""

    def draft(self) -> Draft:
        """Begin a file; its errors are OSErrors."""

    def clean(self) -> None:
        """Delete unfinished files of dead writers."""

    def remove(self, groups: Iterable[tuple[str, ...]]) -> None:
        """Delete files, those of a group one after the other; missing files are not an error."""


# --- folders ---

BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """A local or shared folder."""

    folder: Path
    parallel_reads = 1

    def below(self, name: str) -> "FolderPlace":
        return FolderPlace(self.folder / name)

    def location_of(self, name: str) -> str:
        return str(self.folder / name)

    def names(self) -> dict[str, int]:
        """Return the existing files with their inodes: a new file under an old name has another inode."""
        try:
            with os.scandir(self.folder) as entries:
                return {entry.name: entry.inode() for entry in entries}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise RelayUnwritable(str(self.folder), str(error)) from error

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator["StoredFile"]:
        path = self.folder / name
        try:
            file = path.open("rb", buffering=0)
        except FileNotFoundError as error:
            raise SegmentMissing(str(path), str(error)) from error
        except OSError as error:
            raise SegmentDamaged(str(path), str(error)) from error
        with file:
            yield StoredFile(file.fileno(), os.fstat(file.fileno()).st_size)

    def prepare(self) -> None:
        private_folder(self.folder)

    def draft(self) -> Draft:
        path, file = _temporary(self.folder)
        return Draft(file, partial(self._rename, path, file), partial(path.unlink, missing_ok=True))

    def clean(self) -> None:
        for name in self.names():
            if name.startswith(TEMPORARY):
                _remove_abandoned(self.folder / name)

    def remove(self, groups: Iterable[tuple[str, ...]]) -> None:
        for name in (name for group in groups for name in group):
            (self.folder / name).unlink(missing_ok=True)

    def _rename(self, path: Path, file: BinaryIO, name: str) -> None:
        os.fsync(file.fileno())
        os.replace(path, self.folder / name)
        _sync(self.folder)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An open file; the memory maps that it returns remain valid after it is closed."""

    descriptor: int
    size: int

    def read(self, start: int, end: int) -> memoryview:
        if not self.size:
            return memoryview(b"")
        return memoryview(mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ))[start:end]


def _temporary(folder: Path) -> tuple[Path, BinaryIO]:
    while True:
        path = folder / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        file = os.fdopen(create(path), "wb", buffering=BUFFER)
        fcntl.flock(file, fcntl.LOCK_EX)
        # Another pull may have deleted the file between its creation and the lock.
        if path.exists():
            return path, file
        file.close()


def _remove_abandoned(path: Path) -> None:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
    except (FileNotFoundError, BlockingIOError):
        return


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- object stores and HDFS ---

PARALLEL_REQUESTS = 16
ABANDONED = timedelta(days=1)
"""No upload takes this long, so older temporary files are abandoned."""


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """A prefix in a bucket, or a folder of HDFS; has no open handles, so it can be sent to executors."""

    uri: str
    access: ObjectAccess = field(default=ObjectAccess(), repr=False)
    parallel_reads = PARALLEL_REQUESTS

    def below(self, name: str) -> "BucketPlace":
        return BucketPlace(f"{self.uri}/{name}", self.access)

    def location_of(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def names(self) -> dict[str, int]:
        with _coded("list", self.uri):
            found = self.filesystem.get_file_info(fs.FileSelector(self.path_of(""), allow_not_found=True))
        return {info.base_name: info.mtime_ns or 0 for info in found if info.type == fs.FileType.File}

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator["StoredObject"]:
        location = self.location_of(name)
        with _coded("read", location):
            stream = self.filesystem.open_input_file(self.path_of(name))
        with stream:
            yield StoredObject(location, stream, int(stream.size()))

    def prepare(self) -> None:
        """Do nothing: object stores have no folders."""

    def draft(self) -> Draft:
        file = scratch()
        return Draft(file, partial(self._send, file))

    def clean(self) -> None:
        """Delete temporary files of dead writers in HDFS; in a bucket an unfinished object has no name."""
        if self.uri.startswith(BUCKET):
            return
        before = (datetime.now(UTC) - ABANDONED).timestamp() * 1e9
        old = [name for name, time in self.names().items() if name.startswith(TEMPORARY) and time < before]
        self.remove((name,) for name in old)

    def remove(self, groups: Iterable[tuple[str, ...]]) -> None:
        with ThreadPoolExecutor(PARALLEL_REQUESTS, thread_name_prefix="remove") as pool:
            for _ in pool.map(self._remove, groups):
                pass

    def path_of(self, name: str) -> str:
        """Return bucket and key of an object, or the path of a file."""
        return f"{opened_store(self.uri, self.access)[1]}/{name}".rstrip("/")

    @property
    def filesystem(self) -> fs.FileSystem:
        return opened_store(self.uri, self.access)[0]

    def _send(self, file: BinaryIO, name: str) -> None:
        put(self.filesystem, self.path_of(name), file)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with _coded("delete", self.location_of(name)), contextlib.suppress(FileNotFoundError):
                self.filesystem.delete_file(self.path_of(name))


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that is open for reading."""

    location: str
    stream: NativeFile
    size: int

    def read(self, start: int, end: int) -> memoryview:
        with _coded("read", self.location):
            return memoryview(self.stream.read_at(max(0, min(end, self.size) - start), start))


@contextlib.contextmanager
def _coded(action: str, location: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if action == "delete":
            raise
        raise SegmentMissing(location, "it is missing") from error
    except (OSError, ArrowInvalid) as error:
        raise StorageFailed(action, location, str(error)) from error


# --- the index of a segment ---

SEGMENT, INDEX = ".seg", ".json"


def index_of(name: str) -> str:
    """Return the name of a segment's index."""
    return name.removesuffix(SEGMENT) + INDEX


def link_of(name: str, location: str) -> Link:
    """Return the locations that the name of a segment contains."""
    file, _, positions = name.removesuffix(SEGMENT).rpartition(".")
    start, _, end = positions.partition("-")
    if not (start.isdecimal() and end.isdecimal()):
        raise SegmentDamaged(location, "its name is not that of a segment")
    return Link(name, Location(file, int(start)), Location(file, int(end)))


def to_json(segment: Segment) -> bytes:
    """Return the JSON text of a segment's index."""
    body = asdict(segment)
    body["ranges"] = [[r.start, r.end, [[t.schema, t.name, n] for t, n in r.tables]] for r in segment.ranges]
    return json.dumps(body, ensure_ascii=False).encode()


@lru_cache(1 << 14)
def read_index(place: RelayPlace, name: str, number: int) -> Segment:
    """Read the index of a segment; `number` distinguishes a new index under an old name, so the cache stays valid."""
    name = index_of(name)
    try:
        with place.opened(name) as file:
            return _from_json(json.loads(bytes(file.read(0, file.size))))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SegmentDamaged(place.location_of(name), f"its index is unreadable: {error}") from error


class ReadAhead:
    """Reads indexes one by one or ahead, where each read is a round trip.

    Sequential calls read more and more indexes in parallel; other calls read a single one.
    """

    def __init__(self, links: Sequence[Link], most: int, read: Callable[[Link], Segment]) -> None:
        self._links, self._most, self._read = links, most, read
        self._numbers: Mapping[str, int] = {link.name: number for number, link in enumerate(links)}
        self._found: dict[str, Future[Segment]] = {}
        """Results that were read ahead; the error of one is raised only when its index is requested."""
        self._next, self._width = 0, 1

    def __call__(self, link: Link) -> Segment:
        if link.name not in self._found:
            number = self._numbers[link.name]
            self._width = min(2 * self._width, self._most) if number == self._next else 1
            self._next = number + self._width
            with ThreadPoolExecutor(self._width, thread_name_prefix="index") as pool:
                for each in self._links[number : self._next]:
                    self._found[each.name] = pool.submit(self._read, each)
        return self._found[link.name].result()


def _from_json(body: dict[str, Any]) -> Segment:
    ranges = tuple(
        ByteRange(start, end, tuple((TableId(schema, name), count) for schema, name, count in tables))
        for start, end, tables in body.pop("ranges")
    )
    statement = body.pop("statement")
    commits = codec.from_plain(tuple[Commit, ...], body.pop("commits", []))
    changes = codec.from_plain(tuple[Statement, ...], body.pop("changes", []))
    prepared = codec.from_plain(tuple[Prepared, ...], body.pop("open", []))
    finished = tuple(body.pop("finished", ()))
    return Segment(
        **body,
        ranges=ranges,
        statement=codec.from_plain(Statement, statement) if statement else None,
        commits=commits,
        open=prepared,
        finished=finished,
        changes=changes,
    )


# --- segments ---

DESCRIPTION_BYTES = 4096
"""Larger than any FORMAT_DESCRIPTION event."""


@dataclass(frozen=True, slots=True)
class RangeBytes:
    """A byte range of a segment in memory, with the other arguments of `decode_range`."""

    data: memoryview
    checksum: bool
    origin: RangeOrigin


@dataclass(frozen=True, slots=True)
class RelayStore:
    """The segments of a task under one folder or prefix; has no open handles, so it can be sent to executors."""

    folder: Path | BucketPlace

    def segments(self, source: str) -> tuple[Segment, ...]:
        links, read = self._indexes(source)
        return tuple(sorted(map(read, links), key=lambda segment: (segment.begins.order, segment.ends.order)))

    def links(self, source: str) -> Links:
        """Return the stored segments of a source by name; their indexes are read on demand."""
        return Links(*self._indexes(source))

    def read(self, source: str, name: str, start: int, end: int) -> RangeBytes:
        """Return a byte range of a segment; SegmentDamaged if the file contradicts its index."""
        place = self._of(source)
        location = place.location_of(name)
        link = link_of(name, location)
        with place.opened(name) as file:
            described, prefix = _description(file, link, location)
            if not prefix <= start <= end <= file.size:
                raise SegmentDamaged(location, f"bytes {start} to {end} are requested, the file has {file.size}")
            data = file.read(start, end)
        position = link.begins.position + start - prefix
        return RangeBytes(data, described.checksum, RangeOrigin(source, link.begins.file, position))

    def whole(self, segment: Segment) -> RangeBytes:
        place = self._of(segment.source)
        location = place.location_of(segment.name)
        with place.opened(segment.name) as file:
            described, prefix = _description(file, link_of(segment.name, location), location)
            data = file.read(prefix, file.size)
        return RangeBytes(data, described.checksum, RangeOrigin(segment.source, segment.file, segment.start))

    def described(self, segment: Segment) -> Format:
        place = self._of(segment.source)
        location = place.location_of(segment.name)
        with place.opened(segment.name) as file:
            return _description(file, link_of(segment.name, location), location)[0]

    def writer(self, source: str) -> "SegmentWriter":
        writer = SegmentWriter(self._of(source))
        writer.prepare()
        return writer

    def clean(self, source: str) -> None:
        self._of(source).clean()

    def purge(self, source: str, before: Location) -> int:
        """Delete the segments that are not needed from a location on; return how many."""
        return self._remove(source, self.links(source).unneeded(before))

    def _remove(self, source: str, links: Iterable[Link]) -> int:
        names = [(index_of(link.name), link.name) for link in links]
        self._of(source).remove(names)
        return len(names)

    def _of(self, source: str) -> RelayPlace:
        name = quote(source, safe="")
        if isinstance(self.folder, BucketPlace):
            return self.folder.below(name)
        return FolderPlace(self.folder / name)

    def _indexes(self, source: str) -> tuple[list[Link], Callable[[Link], Segment]]:
        """Return the segments in order, and a function that reads their indexes."""
        place = self._of(source)
        names = place.names()
        found = [
            link_of(name, place.location_of(name))
            for name in names
            if name.endswith(SEGMENT) and index_of(name) in names
        ]

        def read(link: Link) -> Segment:
            return read_index(place, link.name, names[index_of(link.name)])

        if place.parallel_reads == 1:
            return found, read
        found.sort(key=lambda link: (link.begins.order, link.ends.order))
        return found, ReadAhead(found, place.parallel_reads, read)


class SegmentWriter:
    """Writes segments one after the other; each appears only when it is complete."""

    def __init__(self, place: RelayPlace) -> None:
        self.stored: list[Segment] = []
        self._place = place
        self._draft: Draft | None = None

    def prepare(self) -> None:
        with self._writable():
            self._place.prepare()

    def begin(self, prefix: bytes) -> None:
        with self._writable():
            self._draft = self._place.draft()
            self._draft.write(prefix)

    def write(self, events: bytes | memoryview) -> None:
        with self._writable():
            self._begun.write(events)

    def finish(self, segment: Segment, length: int) -> None:
        """Publish the segment under its name, then its index."""
        with self._writable():
            self._begun.publish(segment.name, length)
            self._draft = self._place.draft()
            self._draft.write(to_json(segment))
            self._draft.publish(index_of(segment.name))
        self._draft = None
        self.stored.append(segment)

    def abandon(self) -> None:
        if self._draft is not None:
            self._draft.discard()
            self._draft = None

    @property
    def _begun(self) -> Draft:
        if self._draft is None:
            raise RuntimeError("no segment was begun")
        return self._draft

    @contextlib.contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RelayUnwritable(self._place.location_of(""), str(error)) from error


def _description(file: Stored, link: Link, location: str) -> tuple[Format, int]:
    """Return the format and the number of bytes before the segment's own events."""
    head = bytes(file.read(0, DESCRIPTION_BYTES))
    start = len(MAGIC)
    if head[:start] != MAGIC or len(head) < start + HEADER:
        raise SegmentDamaged(location, "it does not begin like a binlog file")
    frame = read_frame(head, start)
    described = read_format(head[start : start + frame.size], location)
    return described, start if link.begins.position == start else start + frame.size
