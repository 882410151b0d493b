"""A file that is being written: it exists, under its name, from the moment when it is whole."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class Draft:
    """A file that does not exist yet; its place knows how it gets its name, and how it goes without one."""

    file: BinaryIO
    keep: Callable[[str], None]
    """Make what is written durable under a name."""
    forget: Callable[[], None] = lambda: None

    def write(self, data: bytes | memoryview) -> None:
        """Append to it."""
        self.file.write(data)

    def publish(self, name: str, length: int | None = None) -> None:
        """Let it exist, whole and for good, under a name; `length`: what comes behind it is cut off."""
        self.file.flush()
        if length is not None:
            self.file.truncate(length)
        self.keep(name)
        self.file.close()

    def discard(self) -> None:
        """Forget it."""
        self.forget()
        # Closing would write what a full disk has not taken.
        with contextlib.suppress(OSError):
            self.file.close()
