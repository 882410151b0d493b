"""Object stores (S3) and HDFS: what the row storage and the relay share.

An S3 object exists, whole, from the moment its PUT or the last request of its upload succeeds. So files are not written
under another name and moved, because a move would be a copy. If a stream is abandoned in the middle, Arrow completes
the upload, and half a file would get the name. So every file is first written to a local scratch file and sent when it
is complete.

If the process dies while it sends, unnamed parts remain; a lifecycle rule of the bucket may delete them. After an error
the object may still exist: its answer was lost, or Arrow retried. Then it is whole, so a retry must use another name or
the same bytes.

HDFS shows a file from its first byte, so the file gets its name when it is complete. If the process dies before that, a
`.tmp-` file remains.
"""

import mmap
import os
import tempfile
import uuid
from functools import lru_cache
from typing import BinaryIO

import pyarrow as pa
from pyarrow import fs

from unshard.adapters import tracebacks
from unshard.core.model import ObjectAccess

BUCKET, HDFS = "s3://", "webhdfs://"
TEMPORARY = ".tmp-"
PIECE = 8 << 20
BUFFER = 1 << 20
CONNECT_SECONDS, REQUEST_SECONDS = 5.0, 60.0
ATTEMPTS = 3
_FAILED: list[pa.NativeFile] = []
"""Streams whose upload failed, until the process ends. Arrow stores an empty object under the name of a failed upload
of several parts when Python destroys the stream, at any moment, and it holds the GIL meanwhile."""


def is_object_store(path: str) -> bool:
    """Whether a path is in a bucket or HDFS, not in a folder."""
    return path.startswith((BUCKET, HDFS))


def opened_store(uri: str, access: ObjectAccess) -> tuple[fs.FileSystem, str]:
    """Return the client for a URI, and the path within it."""
    if uri.startswith(BUCKET):
        return object_store(access), uri.removeprefix(BUCKET).rstrip("/")
    # Imported here because its libraries take longer to import than most commands run, and not every worker has them.
    from unshard.adapters.hdfs import hdfs

    address, _, path = uri.removeprefix(HDFS).partition("/")
    return hdfs(address), f"/{path}".rstrip("/")


@lru_cache(16)
def object_store(access: ObjectAccess) -> fs.S3FileSystem:
    """Return the client of this process, with its open connections; the SDK looks up what `access` does not set."""
    tracebacks.hide(access.secret, access.token)
    return fs.S3FileSystem(
        access_key=access.key or None,
        secret_key=access.secret or None,
        session_token=access.token or None,
        role_arn=access.role or None,
        region=access.region or None,
        endpoint_override=access.endpoint or None,
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        allow_delayed_open=True,
        background_writes=False,  # background uploads would copy all parts of a file into memory at once
    )


def scratch() -> BinaryIO:
    """Open an unnamed local file for incomplete data."""
    return tempfile.TemporaryFile(buffering=BUFFER)  # type: ignore[return-value]


def put(filesystem: fs.FileSystem, path: str, file: BinaryIO) -> int:
    """Store the content of a scratch file under a name, and return its size."""
    file.flush()
    size = os.fstat(file.fileno()).st_size
    whole = pa.py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    if isinstance(filesystem, fs.S3FileSystem):
        stream = filesystem.open_output_stream(path)
        try:
            # A single call: after an error in it, Arrow does not complete the upload with partial content.
            stream.write(whole)
            stream.close()
        except BaseException:
            _FAILED.append(stream)
            raise
    else:
        _put_and_rename(filesystem, path, whole)
    return size


def _put_and_rename(filesystem: fs.FileSystem, path: str, whole: pa.Buffer) -> None:
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/{TEMPORARY}{uuid.uuid4().hex[:12]}-{name}"
    with filesystem.open_output_stream(temporary) as stream:
        for start in range(0, whole.size, PIECE):
            stream.write(whole.slice(start, min(PIECE, whole.size - start)))
    if (found := filesystem.get_file_info(temporary).size) != whole.size:
        raise OSError(f"{temporary} has {found} of {whole.size} bytes")
    filesystem.move(temporary, path)
