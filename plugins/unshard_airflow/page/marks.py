"""Mark the words in which two statements differ, for the comparison on the page."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from unshard.core.shown import Word, compared


class Piece(NamedTuple):
    """A part of a statement."""

    text: str
    differs: bool


def marked(one: str, other: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Split both statements into pieces that are equal or differ."""
    parts = [*compared(one, other)]
    left = [piece for part in parts for piece in _pieces(part.ours, part.differs)]
    right = [piece for part in parts for piece in _pieces(part.theirs, part.differs)]
    return tuple(left), tuple(right)


def _pieces(words: Sequence[Word], differs: bool) -> Iterator[Piece]:
    """Yield the space before the first word without a mark."""
    if words:
        first, *rest = words
        yield Piece(first.space, False)
        yield Piece(first.text + "".join(space + text for space, text in rest), differs)
