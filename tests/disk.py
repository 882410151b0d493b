"""A disk that is full."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def room(size: int) -> Iterator[None]:
    """Let no file become larger, as if the disk were full there."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
