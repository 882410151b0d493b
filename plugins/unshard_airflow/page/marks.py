"""Which words of two statements differ, to be marked where the statements stand side by side."""

import re
from difflib import SequenceMatcher
from typing import NamedTuple

_WORD = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|\w+|\s+|.", re.DOTALL)


class Piece(NamedTuple):
    """A part of a statement."""

    text: str
    differs: bool


def marked(one: str, other: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Cut both statements into pieces; names and keywords are compared as whole words, without case."""
    left, right = _words(one), _words(other)
    # White space never differs, so that a statement in several lines is not marked as a whole.
    ours, theirs = ([" " if word.isspace() else word.upper() for word in words] for words in (left, right))
    pieces: tuple[list[Piece], list[Piece]] = ([], [])
    for tag, i, j, k, m in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        for found, words in zip(pieces, (left[i:j], right[k:m]), strict=True):
            if words:
                found.append(Piece("".join(words), tag != "equal"))
    return tuple(pieces[0]), tuple(pieces[1])


def _words(text: str) -> list[str]:
    return [match.group() for match in _WORD.finditer(text)]
