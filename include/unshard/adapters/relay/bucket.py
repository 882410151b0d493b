"""Relay files in an object store or HDFS: written to a local scratch file, sent when complete.

Each request is slow, but the store handles many at once. One request lists a thousand files, and reads and deletions
run in parallel.
"""

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import BinaryIO

from pyarrow import ArrowInvalid, NativeFile, fs

from unshard.adapters.objectstore import BUCKET, TEMPORARY, opened, put, scratch
from unshard.adapters.relay.draft import Draft
from unshard.core.model import ObjectAccess
from unshard.errors.meta import StorageFailed
from unshard.errors.relay import SegmentMissing

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
        """Return the sub-prefix with that name."""
        return BucketPlace(f"{self.uri}/{name}", self.access)

    def location_of(self, name: str) -> str:
        """Return the URI of an object."""
        return f"{self.uri}/{name}"

    def names(self) -> dict[str, int]:
        """Return the existing objects with their modification times."""
        with _coded("list", self.uri):
            found = self.filesystem.get_file_info(fs.FileSelector(self.path_of(""), allow_not_found=True))
        return {info.base_name: info.mtime_ns or 0 for info in found if info.type == fs.FileType.File}

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator["StoredObject"]:
        """Open an object for reading ranges."""
        location = self.location_of(name)
        with _coded("read", location):
            stream = self.filesystem.open_input_file(self.path_of(name))
        with stream:
            yield StoredObject(location, stream, int(stream.size()))

    def prepare(self) -> None:
        """Do nothing: object stores have no folders."""

    def draft(self) -> Draft:
        """Begin an object in a scratch file."""
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
        """Delete objects, several groups at a time."""
        with ThreadPoolExecutor(PARALLEL_REQUESTS, thread_name_prefix="remove") as pool:
            for _ in pool.map(self._remove, groups):
                pass

    def path_of(self, name: str) -> str:
        """Return bucket and key of an object, or the path of a file."""
        return f"{opened(self.uri, self.access)[1]}/{name}".rstrip("/")

    @property
    def filesystem(self) -> fs.FileSystem:
        """The client."""
        return opened(self.uri, self.access)[0]

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
        """Read a range."""
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
