"""Files of the relay in a folder: written to a temporary name, flushed, renamed.

A writer locks its temporary file, so that only files of dead writers are removed.
"""

import contextlib
import fcntl
import mmap
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from unshard.errors.relay import SegmentDamaged

TEMPORARY = ".tmp-"
BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """A folder of this machine, or one that it shares with others."""

    folder: Path
    together = 1

    def below(self, name: str) -> "FolderPlace":
        """Return the folder of that name in it."""
        return FolderPlace(self.folder / name)

    def location_of(self, name: str) -> str:
        """Return the path of a file."""
        return str(self.folder / name)

    def names(self) -> dict[str, int]:
        """Return what is there, with the inodes: a new file under an old name has another one."""
        try:
            with os.scandir(self.folder) as entries:
                return {entry.name: entry.inode() for entry in entries}
        except FileNotFoundError:
            return {}

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator["StoredFile"]:
        """Open a file to be mapped into memory."""
        path = self.folder / name
        try:
            file = path.open("rb", buffering=0)
        except OSError as error:
            raise SegmentDamaged(str(path), str(error)) from error
        with file:
            yield StoredFile(file.fileno(), os.fstat(file.fileno()).st_size)

    def prepare(self) -> None:
        """Make the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def draft(self) -> "DraftFile":
        """Begin a file under a temporary name."""
        return DraftFile(self.folder)

    def clean(self) -> None:
        """Remove temporary files of dead writers; those that are being written stay."""
        for name in self.names():
            if name.startswith(TEMPORARY):
                _remove_abandoned(self.folder / name)

    def remove(self, groups: Iterable[tuple[str, ...]]) -> None:
        """Remove files."""
        for name in (name for group in groups for name in group):
            (self.folder / name).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An open file; what is read of it is mapped and outlives it."""

    descriptor: int
    size: int

    def read(self, start: int, end: int) -> memoryview:
        """Map the file."""
        if not self.size:
            return memoryview(b"")
        return memoryview(mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ))[start:end]


class DraftFile:
    """A locked temporary file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path, self._file = _temporary(folder)

    def write(self, data: bytes | memoryview) -> None:
        """Append to it."""
        self._file.write(data)

    def publish(self, name: str, length: int | None = None) -> None:
        """Make it durable under its own name."""
        self._file.flush()
        if length is not None:
            self._file.truncate(length)
        os.fsync(self._file.fileno())
        os.replace(self._path, self._folder / name)
        self._file.close()
        _sync(self._folder)

    def discard(self) -> None:
        """Remove it."""
        self._path.unlink(missing_ok=True)
        # Closing would write what a full disk has not taken.
        with contextlib.suppress(OSError):
            self._file.close()


def _temporary(folder: Path) -> tuple[Path, BinaryIO]:
    while True:
        path = folder / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        file = path.open("xb", buffering=BUFFER)
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
