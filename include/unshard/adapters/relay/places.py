"""The interface between the relay and the place that stores a source's files."""

from collections.abc import Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, Self

from unshard.adapters.relay.draft import Draft


class Stored(Protocol):
    """A file that is open for reading."""

    @property
    def size(self) -> int:
        """Its size in bytes."""

    def read(self, start: int, end: int) -> memoryview:
        """Return a range of the file; shorter if the file ends before."""


class RelayPlace(Hashable, Protocol):
    """A place for files that are written once and never changed; equal values are the same place."""

    @property
    def parallel_reads(self) -> int:
        """How many files should be read at once."""

    def below(self, name: str) -> Self:
        """Return the sub-place with that name."""

    def location_of(self, name: str) -> str:
        """Return the path or URI of a file, for messages."""

    def names(self) -> Mapping[str, int]:
        """Return the existing files, each with a number that changes if the file is replaced under its name."""

    def opened(self, name: str) -> AbstractContextManager[Stored]:
        """Open a file; SegmentMissing if it is gone."""

    def prepare(self) -> None:
        """Prepare the place for drafts."""

    def draft(self) -> Draft:
        """Begin a file; its errors are OSErrors."""

    def clean(self) -> None:
        """Delete unfinished files of dead writers."""

    def remove(self, groups: Iterable[tuple[str, ...]]) -> None:
        """Delete files, those of a group one after the other; missing files are not an error."""
