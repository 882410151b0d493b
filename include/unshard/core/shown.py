"""Text of a source for a terminal, words of a suggested command for a shell, lists of shards, values as JSON."""

import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

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
    """Return a statement without its line breaks."""
    return " ".join(text.split())


def listed(shards: Sequence[object]) -> str:
    """Return the names of the shards; of many, only the first."""
    if not shards:
        return "-"
    shown = ", ".join(map(str, shards[:SHOWN_SHARDS]))
    return f"{shown} and {len(shards) - SHOWN_SHARDS} more" if len(shards) > SHOWN_SHARDS else shown


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


def as_document(value: object, keys: str, **others: str) -> dict[str, Any]:
    """Return attributes of a value as JSON; `others` has the path of each attribute that is not named like its key."""
    found = {key: attrgetter(others.get(key, key))(value) for key in keys.split()}
    return {key: one.isoformat() if isinstance(one, datetime) else as_json(one) for key, one in found.items()}
