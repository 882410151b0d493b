"""Files of rows below the storage path: Parquet, written whole or not at all.

The storage is a folder, a prefix of a bucket (`s3://`) or a folder of HDFS (`webhdfs://`), reached under the same name
by the driver and by every executor. A file appears under its name only when it is complete. In a folder it is written
beside its place under a name that starts with `.tmp-`, flushed to the disk, then renamed; whoever dies before that
leaves a `.tmp-` file, which `list` does not show and `delete_folder` removes. Elsewhere it is written to a scratch file
of the machine and sent.
Every page has a checksum that is compared when it is read: rows wait here for weeks, and nothing else tells of a bit.
"""

import contextlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from unshard.adapters.objectstore import TEMPORARY, is_object_store, opened, put, scratch
from unshard.core.model import ObjectAccess
from unshard.errors import UnshardError
from unshard.errors.meta import StorageFailed, StoredFileDamaged, StoredFileMissing

COMPRESSION = "zstd"
READ_ROWS = 20_000
_DAMAGE = re.compile(r"CRC checksum|thrift|[Cc]orrupt|ZSTD|flatbuffer|Unexpected end of stream|Unknown encoding")
"""What Arrow says of bytes that are not those that it has written, among all that it calls an I/O error."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a finished file holds."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Storage:
    """The files of one task; a value without open handles, so it travels to executors."""

    path: str
    """Absolute folder or URI."""
    access: ObjectAccess = field(default=ObjectAccess(), repr=False)

    def write_batches(self, relative: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write the file `relative` in one go, replacing an older one; one row group per batch."""
        filesystem, base = self._open()
        given = _Given(batches)
        with _coded("write", self._shown(relative), given):
            write = _write_and_send if is_object_store(self.path) else _write_and_rename
            return write(filesystem, f"{base}/{relative}", schema, given)

    def read_batches(self, relative: str, rows: int = READ_ROWS,
                     columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Yield the file's rows, or some columns of them, in the order of writing, at most `rows` at a time."""
        filesystem, base = self._open()
        with (
            _coded("read", self._shown(relative)),
            filesystem.open_input_file(f"{base}/{relative}") as stream,
            pq.ParquetFile(stream, page_checksum_verification=True) as file,
        ):
            left = file.metadata.num_rows
            for batch in file.iter_batches(batch_size=rows, columns=list(columns) if columns else None):
                left -= batch.num_rows
                yield batch
            if left:
                raise StoredFileDamaged(self._shown(relative), f"it has {-left:+} rows")

    def schema(self, relative: str) -> pa.Schema:
        """Return the file's columns and their types."""
        filesystem, base = self._open()
        with (
            _coded("read", self._shown(relative)),
            filesystem.open_input_file(f"{base}/{relative}") as stream,
            pq.ParquetFile(stream, page_checksum_verification=True) as file,
        ):
            return file.schema_arrow

    def exists(self, relative: str) -> bool:
        """Whether the finished file is there."""
        filesystem, base = self._open()
        with _coded("look for", self._shown(relative)):
            return bool(filesystem.get_file_info(f"{base}/{relative}").type == fs.FileType.File)

    def list(self, prefix: str = "") -> tuple[str, ...]:
        """Return the finished files below the folder `prefix`, relative to the storage, sorted."""
        filesystem, base = self._open()
        folder = f"{base}/{prefix}".rstrip("/")
        with _coded("list", self._shown(prefix)):
            found = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
        names = (info.path for info in found if info.type == fs.FileType.File)
        return tuple(sorted(name[len(base) + 1 :] for name in names if not _is_temporary(name)))

    def delete(self, relative: str) -> None:
        """Remove a file; one that is gone already is fine, so that a repeated step goes on."""
        filesystem, base = self._open()
        with _coded("delete", self._shown(relative)), contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(f"{base}/{relative}")

    def delete_folder(self, relative: str) -> None:
        """Remove a folder with all that is in it, unfinished files too; a missing one is fine."""
        filesystem, base = self._open()
        with _coded("delete", self._shown(relative)), contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(f"{base}/{relative}")

    def _shown(self, relative: str) -> str:
        return f"{self.path.rstrip('/')}/{relative}"

    def _open(self) -> tuple[fs.FileSystem, str]:
        with _coded("open", self.path):
            if is_object_store(self.path):
                return opened(self.path, self.access)
            if "://" in self.path:
                filesystem, base = fs.FileSystem.from_uri(self.path)
                return filesystem, base.rstrip("/")
            return fs.LocalFileSystem(), str(Path(self.path).absolute())


class _Given:
    """The batches of the caller; remembers their own error, which is none of the storage."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.error: BaseException | None = None
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except Exception as error:
            self.error = error
            raise


def _write_and_rename(filesystem: fs.FileSystem, final: str, schema: pa.Schema, batches: _Given) -> Written:
    folder, _, name = final.rpartition("/")
    temporary = f"{folder}/{TEMPORARY}{uuid.uuid4().hex[:12]}-{name}"
    filesystem.create_dir(folder, recursive=True)
    try:
        with filesystem.open_output_stream(temporary) as stream:
            rows = _write(stream, schema, batches)
        _flush(temporary, os.O_RDONLY)
        size = int(filesystem.get_file_info(temporary).size)
        filesystem.move(temporary, final)
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.delete_file(temporary)
        raise
    # A rename survives a power failure only when the folder that holds the name is flushed too.
    _flush(folder, os.O_RDONLY | os.O_DIRECTORY)
    return Written(rows, size)


def _write_and_send(filesystem: fs.FileSystem, final: str, schema: pa.Schema, batches: _Given) -> Written:
    with scratch() as file:
        rows = _write(file, schema, batches)
        return Written(rows, put(filesystem, final, file))


def _write(stream: pa.NativeFile | BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    rows = 0
    with pq.ParquetWriter(
        stream, schema, compression=COMPRESSION, use_dictionary=False, write_page_checksum=True
    ) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _flush(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_temporary(path: str) -> bool:
    return path.rpartition("/")[2].startswith(TEMPORARY)


@contextlib.contextmanager
def _coded(action: str, path: str, given: _Given | None = None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if given is not None and given.error is not None:
            raise
        coded = _error(action, path, error)
        if coded is None:
            raise
        raise coded from error


def _error(action: str, path: str, error: Exception) -> UnshardError | None:
    match error:
        case FileNotFoundError() if action == "read":
            return StoredFileMissing(path)
        case FileNotFoundError() if action == "delete":
            return None
        case pa.ArrowException() | UnicodeDecodeError() if action == "read":
            return StoredFileDamaged(path, str(error))
        case OSError() if action == "read" and error.errno is None and _DAMAGE.search(str(error)):
            return StoredFileDamaged(path, str(error))
        case pa.ArrowInvalid() | OSError():
            return StorageFailed(action, path, str(error))
        case _:
            return None
