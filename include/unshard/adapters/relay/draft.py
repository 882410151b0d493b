"""A file that is being written: it gets its name when it is complete."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class Draft:
    """An unnamed file; the place that created it knows how to publish and how to discard it."""

    file: BinaryIO
    keep: Callable[[str], None]
    """Makes the content durable under a name."""
    forget: Callable[[], None] = lambda: None

    def write(self, data: bytes | memoryview) -> None:
        """Append to the file."""
        self.file.write(data)

    def publish(self, name: str, length: int | None = None) -> None:
        """Publish the file under a name, permanently; content after `length` is cut off first."""
        self.file.flush()
        if length is not None:
            self.file.truncate(length)
        self.keep(name)
        self.file.close()

    def discard(self) -> None:
        """Discard the file."""
        self.forget()
        # Closing would write buffered data that a full disk has refused.
        with contextlib.suppress(OSError):
            self.file.close()
