"""Relay files in a folder: written to a temporary name, flushed, renamed.

A writer locks its temporary file, so that only files of dead writers are deleted.
"""

import contextlib
import fcntl
import mmap
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from unshard.adapters.objectstore import TEMPORARY
from unshard.adapters.privatefiles import create, private_folder
from unshard.adapters.relay.draft import Draft
from unshard.errors.relay import RelayUnwritable, SegmentDamaged, SegmentMissing

BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """A local or shared folder."""

    folder: Path
    parallel_reads = 1

    def below(self, name: str) -> "FolderPlace":
        """Return the subfolder with that name."""
        return FolderPlace(self.folder / name)

    def location_of(self, name: str) -> str:
        """Return the path of a file."""
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
        """Open a file to be mapped into memory."""
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
        """Create the folder."""
        private_folder(self.folder)

    def draft(self) -> Draft:
        """Begin a file under a temporary name."""
        path, file = _temporary(self.folder)
        return Draft(file, partial(self._rename, path, file), partial(path.unlink, missing_ok=True))

    def clean(self) -> None:
        """Delete temporary files of dead writers; files that are being written stay."""
        for name in self.names():
            if name.startswith(TEMPORARY):
                _remove_abandoned(self.folder / name)

    def remove(self, groups: Iterable[tuple[str, ...]]) -> None:
        """Delete files."""
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
        """Map a range of the file into memory."""
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
