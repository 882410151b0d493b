"""Stores that are no folder, S3 and HDFS: what the storage and the relay have in common there.

In S3 an object exists as a whole from the moment its PUT, or the last request of its upload, has been answered. So
nothing is written under another name and moved, which would be a copy. Arrow ends the upload of a stream that is given
up in the middle, and half a file would get the name: everything is written to a scratch file first and sent when it is
whole. Whoever dies while it is sent leaves parts without a name, which a rule of the bucket may remove. After an error
an object may be there all the same, its answer was lost or Arrow has tried once more: then it is whole, so whoever
tries again must give another name or the same bytes. HDFS shows a file from its first byte: there it gets its name
when it is whole. Whoever dies before that leaves a `.tmp-` file.
"""

import mmap
import os
import tempfile
import uuid
from functools import lru_cache
from typing import BinaryIO

import pyarrow as pa
from pyarrow import fs

from unshard.core.model import ObjectAccess

BUCKET, HDFS = "s3://", "webhdfs://"
TEMPORARY = ".tmp-"
PIECE = 8 << 20
BUFFER = 1 << 20
CONNECT_SECONDS, REQUEST_SECONDS = 5.0, 60.0
ATTEMPTS = 3


def is_object_store(path: str) -> bool:
    """Tell a bucket or HDFS from a folder."""
    return path.startswith((BUCKET, HDFS))


def opened(uri: str, access: ObjectAccess) -> tuple[fs.FileSystem, str]:
    """Return the client for a URI, and the path that it has there."""
    if uri.startswith(BUCKET):
        return object_store(access), uri.removeprefix(BUCKET).rstrip("/")
    # Imported here: its libraries take longer to import than most commands run, and need not be on every worker.
    from unshard.adapters.hdfs import hdfs

    address, _, path = uri.removeprefix(HDFS).partition("/")
    return hdfs(address), f"/{path}".rstrip("/")


@lru_cache(16)
def object_store(access: ObjectAccess) -> fs.S3FileSystem:
    """Return the client of this process, with its open connections; what `access` leaves open, the SDK looks for."""
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
        background_writes=False,  # in the background all parts of a file are copied into memory at once
    )


def scratch() -> BinaryIO:
    """Open a file of this machine that has no name, for what is not whole yet."""
    return tempfile.TemporaryFile(buffering=BUFFER)  # type: ignore[return-value]


def put(filesystem: fs.FileSystem, path: str, file: BinaryIO) -> int:
    """Store all of a scratch file under a name, and return its size."""
    file.flush()
    size = os.fstat(file.fileno()).st_size
    whole = pa.py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    if isinstance(filesystem, fs.S3FileSystem):
        stream = filesystem.open_output_stream(path)
        # In one call, which nothing interrupts: all of it is sent or, after an error, nothing that gets the name.
        stream.write(whole)
        stream.close()
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
