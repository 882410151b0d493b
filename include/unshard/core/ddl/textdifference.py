"""The differences between two statements, word by word, to show them to a person."""

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

_WORD = re.compile(r"(\s*)(`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"|[\w$@.]+|\S)", re.DOTALL)


class Word(NamedTuple):
    """A name, a literal, a keyword or a punctuation mark of a statement."""

    space: str
    """The white space before the word, which is not compared."""
    text: str

    @property
    def meaning(self) -> str:
        """The compared form: upper case, except for literals."""
        return self.text if self.text[0] in "'\"" else self.text.upper()


class Part(NamedTuple):
    """A run of words that both statements contain, or a run of one that replaces a run of the other."""

    ours: tuple[Word, ...]
    theirs: tuple[Word, ...]
    differs: bool


def compared(ours: str, theirs: str) -> Iterator[Part]:
    """Split both statements into parts that are equal and parts that differ, in order."""
    mine, others = _words(ours), _words(theirs)
    matcher = SequenceMatcher(None, [w.meaning for w in mine], [w.meaning for w in others], autojunk=False)
    for what, a, b, c, d in matcher.get_opcodes():
        yield Part(mine[a:b], others[c:d], what != "equal")


def differing_words(ours: str, theirs: str) -> tuple[str, ...]:
    """Return one phrase for each difference of the second text from the first; empty if they are equal."""
    return tuple(_phrase(part) for part in compared(ours, theirs) if part.differs)


def _words(text: str) -> tuple[Word, ...]:
    return tuple(Word(*match.groups()) for match in _WORD.finditer(text))


def _phrase(part: Part) -> str:
    mine, others = (_shown(words) for words in (part.ours, part.theirs))
    if not mine:
        return f"adds `{others}`"
    if not others:
        return f"lacks `{mine}`"
    return f"`{others}` instead of `{mine}`"


def _shown(words: Iterable[Word]) -> str:
    """Return the words as they were written: `-1` has no space, others have one."""
    return "".join((" " if word.space else "") + word.text for word in words).strip()
