"""Parquet files of rows below the storage path; a file appears only when it is complete.

The storage is a folder, a prefix of a bucket (`s3://`) or a folder of HDFS (`webhdfs://`). The driver and every
executor reach it under the same name.

In a folder, a file is written next to its final place under a name that starts with `.tmp-`, flushed to disk, then
renamed. If the process dies before that, a `.tmp-` file remains; `list` does not show it, and `delete_folder` removes
it. In a bucket or HDFS, a file is written to a local scratch file and then sent.

Every page has a checksum that is verified on reading. Rows are stored for weeks, and no other check would detect a
flipped bit.
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
from unshard.adapters.privatefiles import create, private_folder
from unshard.core.model import ObjectAccess
from unshard.errors import UnshardError
from unshard.errors.meta import StorageFailed, StoredFileDamaged, StoredFileMissing

COMPRESSION = "zstd"
READ_ROWS = 20_000
_DAMAGE = re.compile(r"CRC checksum|thrift|[Cc]orrupt|ZSTD|flatbuffer|Unexpected end of stream|Unknown encoding")
"""Arrow reports damaged content as an I/O error; these parts of its messages identify it."""


@dataclass(frozen=True, slots=True)
class Written:
    """Size of a finished file."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Storage:
    """The files of one task; has no open handles, so it can be sent to executors."""

    path: str
    access: ObjectAccess = field(default=ObjectAccess(), repr=False)

    def write_batches(self, relative: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write the file `relative`, replacing an older one; one row group per batch."""
        filesystem, base = self._open()
        caller = _CallerBatches(batches)
        with _coded("write", self._shown(relative), caller):
            write = _write_and_send if is_object_store(self.path) else _write_and_rename
            return write(filesystem, f"{base}/{relative}", schema, caller)

    def read_batches(
        self, relative: str, rows: int = READ_ROWS, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the file's rows, or some of its columns, in the order of writing, at most `rows` at a time."""
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
        filesystem, base = self._open()
        with (
            _coded("read", self._shown(relative)),
            filesystem.open_input_file(f"{base}/{relative}") as stream,
            pq.ParquetFile(stream, page_checksum_verification=True) as file,
        ):
            return file.schema_arrow

    def exists(self, relative: str) -> bool:
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
        return tuple(
            sorted(name[len(base) + 1 :] for name in names if not name.rpartition("/")[2].startswith(TEMPORARY))
        )

    def delete(self, relative: str) -> None:
        """Delete a file; a missing file is not an error, so the step can be repeated."""
        filesystem, base = self._open()
        with _coded("delete", self._shown(relative)), contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(f"{base}/{relative}")

    def delete_folder(self, relative: str) -> None:
        """Delete a folder with its content, unfinished files included; a missing folder is not an error."""
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


class _CallerBatches:
    """The caller's batches; remembers an error that they raise, because it is not an error of the storage."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.error: BaseException | None = None
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except Exception as error:
            self.error = error
            raise


def _write_and_rename(filesystem: fs.FileSystem, final: str, schema: pa.Schema, batches: _CallerBatches) -> Written:
    folder, _, name = final.rpartition("/")
    temporary = f"{folder}/{TEMPORARY}{uuid.uuid4().hex[:12]}-{name}"
    private_folder(Path(folder))
    os.close(create(temporary))
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
    # A rename survives a power failure only if the folder is flushed too.
    _flush(folder, os.O_RDONLY | os.O_DIRECTORY)
    return Written(rows, size)


def _write_and_send(filesystem: fs.FileSystem, final: str, schema: pa.Schema, batches: _CallerBatches) -> Written:
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


@contextlib.contextmanager
def _coded(action: str, path: str, caller: _CallerBatches | None = None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if caller is not None and caller.error is not None:
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
