"""An object store that speaks S3: what the storage and the relay have in common there.

An object exists as a whole from the moment its PUT, or the last request of its upload, has been answered. So nothing
is written under another name and moved, which would be a copy. Arrow ends the upload of a stream that is given up in
the middle, and half a file would get the name: everything is written to a scratch file first and sent when it is whole.
Whoever dies while it is sent leaves parts without a name, which a rule of the bucket may remove. After an error an
object may be there all the same, its answer was lost or Arrow has tried once more: then it is whole, so whoever tries
again must give another name or the same bytes.
"""

import mmap
import os
import tempfile
from functools import lru_cache
from typing import BinaryIO

import pyarrow as pa
from pyarrow import fs

from unshard.core.model import ObjectAccess

SCHEME = "s3://"
BUFFER = 1 << 20
CONNECT_SECONDS, REQUEST_SECONDS = 5.0, 60.0
ATTEMPTS = 3


def is_object_store(path: str) -> bool:
    """Tell a bucket from a folder."""
    return path.startswith(SCHEME)


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
    stream = filesystem.open_output_stream(path)
    # In one call, which nothing interrupts: all of it is sent or, after an error, nothing that gets the name.
    stream.write(whole)
    stream.close()
    return size
