"""In which words two statements differ, for a person to read."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

_WORD = re.compile(r"(\s*)(`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"|[\w$@.]+|\S)", re.DOTALL)


class Word(NamedTuple):
    """A name, a literal, a keyword or a sign of a statement."""

    space: str
    """The white space before it, which never differs."""
    text: str

    @property
    def meaning(self) -> str:
        """What is compared: without case, but in a literal."""
        return self.text if self.text[0] in "'\"" else self.text.upper()


class Part(NamedTuple):
    """A run of words that both statements have, or that stand in place of each other."""

    ours: tuple[Word, ...]
    theirs: tuple[Word, ...]
    differs: bool


def compared(ours: str, theirs: str) -> Iterator[Part]:
    """Cut both statements into the parts in which they are the same and those in which they differ."""
    mine, others = _words(ours), _words(theirs)
    matcher = SequenceMatcher(None, [w.meaning for w in mine], [w.meaning for w in others], autojunk=False)
    for what, a, b, c, d in matcher.get_opcodes():
        yield Part(mine[a:b], others[c:d], what != "equal")


def differing_words(ours: str, theirs: str) -> tuple[str, ...]:
    """Return one phrase for each place where the second text differs from the first; empty if they are the same."""
    return tuple(_phrase(part) for part in compared(ours, theirs) if part.differs)


def _words(text: str) -> tuple[Word, ...]:
    return tuple(Word(*match.groups()) for match in _WORD.finditer(text))


def _phrase(part: Part) -> str:
    mine, others = (" ".join(word.text for word in words) for words in (part.ours, part.theirs))
    if not mine:
        return f"adds `{others}`"
    if not others:
        return f"lacks `{mine}`"
    return f"`{others}` instead of `{mine}`"
