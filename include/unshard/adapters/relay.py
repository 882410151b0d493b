"""The relay's files: one folder for each source, a segment file and its index beside it.

| died …                            | what remains                    | what happens                         |
|-----------------------------------|---------------------------------|--------------------------------------|
| while writing a segment           | `.tmp-…`                        | removed by the next pull             |
| after renaming the segment        | a segment without index         | does not exist, is written again     |
| while writing the index           | the same, and `.tmp-…`          | as above                             |
| after renaming the index          | both                            | the segment exists                   |

All names follow from the content, so two pulls of one source write the same bytes under the same names.
A writer locks its temporary file, so that only files of dead writers are removed.
"""

import contextlib
import fcntl
import json
import mmap
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from unshard.binlog.decoder import Origin
from unshard.binlog.events import HEADER, MAGIC, Format, read_format, read_frame
from unshard.core import codec
from unshard.core.model import Location, TableId
from unshard.core.relaychain import Link, Links
from unshard.core.segment import ByteRange, Commit, Prepared, Segment, Statement
from unshard.errors.relay import RelayUnwritable, SegmentDamaged

TEMPORARY = ".tmp-"
SEGMENT, INDEX = ".seg", ".json"
DESCRIPTION_BYTES = 4096
"""More than any FORMAT_DESCRIPTION event has."""


@dataclass(frozen=True, slots=True)
class RangeBytes:
    """A byte range of a segment, mapped into memory, with what `decode_range` needs besides."""

    data: memoryview
    checksum: bool
    origin: Origin


@dataclass(frozen=True, slots=True)
class RelayStore:
    """The segments of a task under one folder."""

    folder: Path

    def segments(self, source: str) -> tuple[Segment, ...]:
        """Return the stored segments of a source in order of their location."""
        names = self._names(source)
        found = (_read_index(str(self._of(source) / name), inode) for name, inode in names.items()
                 if name.endswith(INDEX) and name.removesuffix(INDEX) + SEGMENT in names)  # fmt: skip
        return tuple(sorted(found, key=lambda segment: (segment.begins.order, segment.ends.order)))

    def links(self, source: str) -> Links:
        """Return the stored segments of a source by their names, whose indexes are read when they are needed."""
        names, folder = self._names(source), self._of(source)
        found = [_link(folder / name) for name in names
                 if name.endswith(SEGMENT) and name.removesuffix(SEGMENT) + INDEX in names]  # fmt: skip

        def read(link: Link) -> Segment:
            index = link.name.removesuffix(SEGMENT) + INDEX
            return _read_index(str(folder / index), names[index])

        return Links(found, read)

    def path(self, segment: Segment) -> Path:
        """Return where the segment's bytes are."""
        return self._of(segment.source) / segment.name

    def read(self, source: str, name: str, start: int, end: int) -> RangeBytes:
        """Map a byte range of a segment; SegmentDamaged if the file is not what its index says."""
        path = self._of(source) / name
        with _opened(path) as file:
            described, prefix = _description(file, path)
            size = os.fstat(file.fileno()).st_size
            if not prefix <= start <= end <= size:
                raise SegmentDamaged(str(path), f"bytes {start} to {end} are wanted, it has {size}")
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        file_name, begins = _named(name)
        position = begins + start - prefix
        return RangeBytes(mapped[start:end], described.checksum, Origin(source, file_name, position))

    def described(self, segment: Segment) -> Format:
        """Return what the segment's FORMAT_DESCRIPTION event says about its binlog file."""
        with _opened(self.path(segment)) as file:
            return _description(file, self.path(segment))[0]

    def writer(self, source: str) -> "SegmentWriter":
        """Return what stores new segments of a source."""
        folder = self._of(source)
        with _writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return SegmentWriter(folder)

    def clean(self, source: str) -> None:
        """Remove what pulls that died have left; files that are being written stay."""
        for name in self._names(source):
            if name.startswith(TEMPORARY):
                _remove_abandoned(self._of(source) / name)

    def purge(self, source: str, before: Location) -> int:
        """Remove the segments that nothing from a location on needs; return how many."""
        return self._remove(source, self.links(source).unneeded(before))

    def forget(self, source: str) -> int:
        """Remove all segments of a source, before it is begun anew; return how many."""
        return self._remove(source, self.links(source).all)

    def _remove(self, source: str, links: Iterable[Link]) -> int:
        gone = [self._of(source) / link.name for link in links]
        for path in gone:
            path.with_suffix(INDEX).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        return len(gone)

    def _of(self, source: str) -> Path:
        return self.folder / quote(source, safe="")

    def _names(self, source: str) -> dict[str, int]:
        try:
            with os.scandir(self._of(source)) as entries:
                return {entry.name: entry.inode() for entry in entries}
        except FileNotFoundError:
            return {}


class SegmentWriter:
    """Writes one segment after the other; each exists as a whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stored: list[Segment] = []
        self._file: BinaryIO | None = None
        self._path = folder

    def begin(self, prefix: bytes) -> None:
        """Start a temporary file."""
        with _writable(self.folder):
            self._path, self._file = _temporary(self.folder)
            self._file.write(prefix)

    def write(self, events: bytes | memoryview) -> None:
        """Append to it."""
        with _writable(self.folder):
            self._opened.write(events)

    def finish(self, segment: Segment, length: int) -> None:
        """Make it durable under its own name, then its index."""
        with _writable(self.folder):
            self._opened.flush()
            self._opened.truncate(length)
            self._publish(segment.name)
            self._path, self._file = _temporary(self.folder)
            self._opened.write(json.dumps(_to_json(segment), ensure_ascii=False).encode())
            self._opened.flush()
            self._publish(Path(segment.name).with_suffix(INDEX).name)
        self.stored.append(segment)

    def abandon(self) -> None:
        """Remove the temporary file, if there is one."""
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            # Closing would write what a full disk has not taken.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    @property
    def _opened(self) -> BinaryIO:
        if self._file is None:
            raise RuntimeError("no segment was begun")
        return self._file

    def _publish(self, name: str) -> None:
        file = self._opened
        os.fsync(file.fileno())
        os.replace(self._path, self.folder / name)
        file.close()
        self._file = None
        _sync(self.folder)


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RelayUnwritable(str(folder), str(error)) from error


def _temporary(folder: Path) -> tuple[Path, BinaryIO]:
    while True:
        path = folder / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        file = path.open("xb", buffering=1 << 20)
        fcntl.flock(file, fcntl.LOCK_EX)
        # Between creation and lock a cleaning pull may have removed it.
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


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise SegmentDamaged(str(path), str(error)) from error


def _description(file: BinaryIO, path: Path) -> tuple[Format, int]:
    """Return the format and the length of what stands before the segment's own bytes."""
    head = file.read(DESCRIPTION_BYTES)
    start = len(MAGIC)
    if head[:start] != MAGIC or len(head) < start + HEADER:
        raise SegmentDamaged(str(path), "it does not begin like a binlog file")
    frame = read_frame(head, start)
    described = read_format(head[start : start + frame.size], str(path))
    return described, start if _named(path.name)[1] == start else start + frame.size


def _named(name: str) -> tuple[str, int]:
    """Split a segment's name into binlog file and start."""
    begins = _link(Path(name)).begins
    return begins.file, begins.position


def _link(path: Path) -> Link:
    file, _, positions = path.name.removesuffix(SEGMENT).rpartition(".")
    start, _, end = positions.partition("-")
    if not (start.isdecimal() and end.isdecimal()):
        raise SegmentDamaged(str(path), "its name is not that of a segment")
    return Link(path.name, Location(file, int(start)), Location(file, int(end)))


def _to_json(segment: Segment) -> dict[str, Any]:
    body = asdict(segment)
    body["ranges"] = [[r.start, r.end, [[t.schema, t.name, n] for t, n in r.tables]] for r in segment.ranges]
    return body


@lru_cache(1 << 14)
def _read_index(path: str, inode: int) -> Segment:
    """Read an index; they never change, and a new one under an old name has another inode."""
    try:
        return _from_json(json.loads(Path(path).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SegmentDamaged(path, f"its index is unreadable: {error}") from error


def _from_json(body: dict[str, Any]) -> Segment:
    ranges = tuple(ByteRange(start, end, tuple((TableId(schema, name), count) for schema, name, count in tables))
                   for start, end, tables in body.pop("ranges"))  # fmt: skip
    statement = body.pop("statement")
    commits = codec.from_plain(tuple[Commit, ...], body.pop("commits", []))
    prepared = codec.from_plain(tuple[Prepared, ...], body.pop("open", []))
    finished = tuple(body.pop("finished", ()))
    return Segment(**body, ranges=ranges, statement=codec.from_plain(Statement, statement) if statement else None,
                   commits=commits, open=prepared, finished=finished)  # fmt: skip
