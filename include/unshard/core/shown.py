"""Text of a source for a terminal, words of a suggested command for a shell, lists of shards, values as JSON."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import datetime
from difflib import SequenceMatcher
from operator import attrgetter
from typing import Any, NamedTuple

from unshard.core.model import Location, Shard, TableId
from unshard.errors import UnshardError

NOUNS = (Location, TableId, Shard, UnshardError)
SHOWN_SHARDS = 10


def visible(text: str) -> str:
    r"""Return a text for a terminal: every character that cannot be printed, except line ends, as an escape like \x1b.

    A name or a statement could otherwise move the cursor, hide text, or change what is pasted.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def shell(word: str) -> str:
    """Return a word of a command, quoted for a shell where it must be."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(_escaped(c) if c in "\\'" or not c.isprintable() else c for c in word) + "'"


def _escaped(character: str) -> str:
    number = ord(character)
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def one_line(text: str) -> str:
    """Return a text on one line, with single blanks."""
    return " ".join(text.split())


def listed(shards: Sequence[object], most: int = SHOWN_SHARDS) -> str:
    """Return the names of the shards; of more than `most`, only the first."""
    if not shards:
        return "-"
    shown = ", ".join(map(str, shards[:most]))
    return f"{shown} and {len(shards) - most} more" if len(shards) > most else shown


def as_json(value: Any) -> Any:
    """Return a report as JSON values; names of tables and positions become text."""
    if is_dataclass(value) and not isinstance(value, NOUNS):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    match value:
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {str(key): as_json(item) for key, item in value.items()}
        case Sequence() | Set() if not isinstance(value, str | bytes):
            return [as_json(item) for item in value]
        case _:
            return str(value)


def as_document(value: object, keys: str | type[Any], **others: str) -> dict[str, Any]:
    """Return attributes of a value as JSON; `others` has the path of each attribute that is not named like its key.

    `keys` are names, or a dataclass that describes the document; of its fields those that the value has.
    """
    if isinstance(keys, str):
        names = keys.split()
    else:
        names = [each.name for each in fields(keys) if each.name in others or hasattr(value, each.name)]
    found = {key: attrgetter(others.get(key, key))(value) for key in names}
    return {key: one.isoformat() if isinstance(one, datetime) else as_json(one) for key, one in found.items()}


# --- numbers, sizes and durations for people


def amount(number: int) -> str:
    """Format a number with thousands separators: `1234567` → `1,234,567`."""
    return f"{number:,}"


def size(number: int) -> str:
    """Format a number of bytes in the largest unit of which there is at least 1."""
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def lasting(seconds: int) -> str:
    """Format a duration with two units: `45 s`, `3 min 20 s`, `2 h 5 min`, `4 d 2 h`."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


# --- the differences between two statements


_WORD = re.compile(r"(\s*)(`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"|[\w$@.]+|\S)", re.DOTALL)


class Word(NamedTuple):
    """A name, a literal, a keyword or a punctuation mark of a statement."""

    space: str
    """The white space before the word, which is not compared."""
    text: str

    @property
    def meaning(self) -> str:
        return self.text if self.text[0] in "'\"" else self.text.upper()


class WordRun(NamedTuple):
    """A run of words that both statements contain, or a run of one that replaces a run of the other."""

    ours: tuple[Word, ...]
    theirs: tuple[Word, ...]
    differs: bool


def compared(ours: str, theirs: str) -> Iterator[WordRun]:
    """Split both statements into parts that are equal and parts that differ, in order."""
    mine, others = _words(ours), _words(theirs)
    matcher = SequenceMatcher(None, [w.meaning for w in mine], [w.meaning for w in others], autojunk=False)
    for what, a, b, c, d in matcher.get_opcodes():
        yield WordRun(mine[a:b], others[c:d], what != "equal")


def differing_words(ours: str, theirs: str) -> tuple[str, ...]:
    """Return one phrase for each difference of the second text from the first; empty if they are equal."""
    return tuple(_phrase(part) for part in compared(ours, theirs) if part.differs)


def _words(text: str) -> tuple[Word, ...]:
    return tuple(Word(*match.groups()) for match in _WORD.finditer(text))


def _phrase(part: WordRun) -> str:
    mine, others = (_shown(words) for words in (part.ours, part.theirs))
    if not mine:
        return f"adds `{others}`"
    if not others:
        return f"lacks `{mine}`"
    return f"`{others}` instead of `{mine}`"


def _shown(words: Iterable[Word]) -> str:
    """Return the words as they were written: `-1` has no space, others have one."""
    return "".join((" " if word.space else "") + word.text for word in words).strip()
