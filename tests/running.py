"""A started program for the time of a block."""

import contextlib
from collections.abc import Iterator
from typing import Protocol, TypeVar


class Stoppable(Protocol):
    def stop(self) -> None: ...


T = TypeVar("T", bound=Stoppable)


@contextlib.contextmanager
def while_up(started: T) -> Iterator[T]:
    """Stop what was started at the end of the block."""
    try:
        yield started
    finally:
        started.stop()
