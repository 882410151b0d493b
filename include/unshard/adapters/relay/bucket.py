"""Files of the relay in an object store or HDFS: written to a scratch file of this machine, sent when they are whole.

Each request takes a while, and the store answers many at once: listings are one request for a thousand files, and
what is read or removed one by one elsewhere is asked for together here.
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
from unshard.errors.relay import SegmentDamaged

TOGETHER = 16
ABANDONED = timedelta(days=1)
"""Nobody sends a file for so long."""


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """A prefix in a bucket, or a folder of HDFS; a value without open handles, so it travels to executors."""

    uri: str
    access: ObjectAccess = field(default=ObjectAccess(), repr=False)
    together = TOGETHER

    def below(self, name: str) -> "BucketPlace":
        """Return the prefix of that name in it."""
        return BucketPlace(f"{self.uri}/{name}", self.access)

    def location_of(self, name: str) -> str:
        """Return the URI of an object."""
        return f"{self.uri}/{name}"

    def names(self) -> dict[str, int]:
        """Return what is there, with the times of writing."""
        with _coded("list", self.uri):
            found = self.filesystem.get_file_info(fs.FileSelector(self.path_of(""), allow_not_found=True))
        return {info.base_name: info.mtime_ns or 0 for info in found if info.type == fs.FileType.File}

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator["StoredObject"]:
        """Open an object to be read in ranges."""
        location = self.location_of(name)
        with _coded("read", location):
            stream = self.filesystem.open_input_file(self.path_of(name))
        with stream:
            yield StoredObject(location, stream, int(stream.size()))

    def prepare(self) -> None:
        """There are no folders."""

    def draft(self) -> Draft:
        """Begin an object in a scratch file."""
        file = scratch()
        return Draft(file, partial(self._send, file))

    def clean(self) -> None:
        """Remove what writers left in HDFS when they died; in a bucket nothing has a name before it is whole."""
        if self.uri.startswith(BUCKET):
            return
        before = (datetime.now(UTC) - ABANDONED).timestamp() * 1e9
        old = [name for name, time in self.names().items() if name.startswith(TEMPORARY) and time < before]
        self.remove((name,) for name in old)

    def remove(self, groups: Iterable[tuple[str, ...]]) -> None:
        """Remove objects, several groups at a time."""
        with ThreadPoolExecutor(TOGETHER, thread_name_prefix="remove") as pool:
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
    """An object that is there."""

    location: str
    stream: NativeFile
    size: int

    def read(self, start: int, end: int) -> memoryview:
        """Ask for a range."""
        with _coded("read", self.location):
            return memoryview(self.stream.read_at(max(0, min(end, self.size) - start), start))


@contextlib.contextmanager
def _coded(action: str, location: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if action == "delete":
            raise
        raise SegmentDamaged(location, "it is missing") from error
    except (OSError, ArrowInvalid) as error:
        raise StorageFailed(action, location, str(error)) from error
