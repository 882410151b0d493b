"""What the relay asks of the place where it keeps the files of a source."""

from collections.abc import Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, Self

from unshard.adapters.relay.draft import Draft


class Stored(Protocol):
    """A file that is there, opened."""

    @property
    def size(self) -> int:
        """Its bytes."""

    def read(self, start: int, end: int) -> memoryview:
        """Return a part of them, less where it has less."""


class Place(Hashable, Protocol):
    """A place for files that are written once and never changed; equal ones are the same place."""

    @property
    def together(self) -> int:
        """How many files are worth asking for at once."""

    def below(self, name: str) -> Self:
        """Return the place of that name in it."""

    def location_of(self, name: str) -> str:
        """Return where a file is, for people."""

    def names(self) -> Mapping[str, int]:
        """Return the files that are there, each with a number that another one of that name would not have."""

    def opened(self, name: str) -> AbstractContextManager[Stored]:
        """Open a file; SegmentDamaged if it is missing."""

    def prepare(self) -> None:
        """Make the place ready for drafts."""

    def draft(self) -> Draft:
        """Begin a file; its errors are OSErrors."""

    def clean(self) -> None:
        """Remove what writers that died have left."""

    def remove(self, groups: Iterable[tuple[str, ...]]) -> None:
        """Remove files, those of a group one after the other; missing ones are fine."""
