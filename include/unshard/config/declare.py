"""Declarations: one per key, from which reading, checking and docs/config.md are all derived.

A block is a tuple of declared keys, each one of four: `Key` has a meaning here; `Later` is a key of
DM that a later version brings, refused unless its value asks for nothing; `Ignored` is a key of DM
without a meaning here, accepted with a warning; `Refused` is a key of DM whose meaning must not be lost
and is had otherwise here. Anything else is unknown and refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

from unshard.config.yamltext import Entries, Items, Node, Scalar
from unshard.errors.config import KeyRefused, LaterKey, MissingKey, UnknownKey, WrongType


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which file a value stands; `notes` collects the warnings of one loading."""

    file: Path
    line: int
    path: str = ""
    notes: list[str] = field(default_factory=list, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.path}".rstrip()

    def at(self, key: str, line: int) -> "Place":
        """Return the place of a key below this one."""
        return Place(self.file, line, f"{self.path}.{key}" if self.path else key, self.notes)

    def item(self, number: int, line: int) -> "Place":
        """Return the place of one item of a list."""
        return Place(self.file, line, f"{self.path}[{number}]", self.notes)

    def warn(self, text: str) -> None:
        """Note what was accepted but should be changed."""
        self.notes.append(f"{self}: {text}")


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a value: its name in the docs, and how one is read."""

    name: str
    read: Callable[[Node, Place], Any]
    block: "Block | None" = None
    """The keys below, for kinds that nest."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key that has a meaning here."""

    name: str
    kind: Kind
    about: str
    default: Any = None
    required: bool = False
    shown: str = ""
    """The default as the docs print it, where `default` does not say it."""


@dataclass(frozen=True, slots=True)
class Later:
    """A key of DM that a later version brings."""

    name: str
    feature: str
    harmless: tuple[str, ...] = ()
    """Values that ask for nothing; null, "" and empty lists and mappings never do."""


BY_GTID = "a source is followed by file and byte, and by GTID to another server that takes its place"


@dataclass(frozen=True, slots=True)
class Ignored:
    """A key of DM without a meaning here."""

    name: str
    why: str
    silent: tuple[str, ...] = ()
    """Values that deserve no warning, because they say what happens anyway."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A key of DM that asks for something which is done otherwise here."""

    name: str
    instead: str
    """What to do, as an order."""
    harmless: tuple[str, ...] = ()


Declared = Key | Later | Ignored | Refused


@dataclass(frozen=True, slots=True)
class Block:
    """The keys that stand together in one mapping."""

    title: str
    keys: tuple[Declared, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All declared names, refused and ignored ones too."""
        return tuple(key.name for key in self.keys)


@dataclass(frozen=True, slots=True)
class Values:
    """A block as read: every `Key` has a value, its own or the default."""

    place: Place
    values: Mapping[str, Any]
    places: Mapping[str, Place]
    """Of the keys that the file gives."""

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def gives(self, key: str) -> bool:
        """Whether the file has the key, with a value."""
        return key in self.places

    def place_of(self, key: str) -> Place:
        """Return where the file has the key, else where the block stands."""
        return self.places.get(key, self.place)


def read_block(block: Block, node: Node, place: Place) -> Values:
    """Check a mapping against its declaration."""
    if isinstance(node, Scalar) and node.text is None:
        node = Entries({}, {}, node.line)
    if not isinstance(node, Entries):
        raise WrongType(str(place), "a mapping", kind_of(node))
    for name in node.entries:
        if name not in block.names:
            raise _unknown(block, name, place.at(name, node.lines[name]))
    values: dict[str, Any] = {}
    places: dict[str, Place] = {}
    for key in block.keys:
        given = node.entries.get(key.name)
        if given is not None and not _says_nothing(given):
            places[key.name] = place.at(key.name, node.lines[key.name])
            _read_key(key, given, places[key.name], values)
        elif isinstance(key, Key):
            if key.required:
                raise MissingKey(str(place), key.name, key.about)
            values[key.name] = key.default
    return Values(place, values, places)


def _read_key(key: Declared, node: Node, place: Place, values: dict[str, Any]) -> None:
    match key:
        case Key():
            values[key.name] = key.kind.read(node, place)
        case Later():
            if not asks_nothing(node, key.harmless):
                raise LaterKey(str(place), key.name, key.feature)
        case Ignored():
            if not asks_nothing(node, key.silent):
                place.warn(f"'{key.name}' has no effect here: {key.why}")
        case Refused():
            if not asks_nothing(node, key.harmless):
                raise KeyRefused(str(place), key.name, key.instead)
        case _:
            assert_never(key)


def asks_nothing(node: Node, harmless: tuple[str, ...]) -> bool:
    """Whether a value is empty or one of the harmless ones."""
    match node:
        case Scalar():
            return not node.text or node.text.lower() in harmless
        case Items():
            return not node.items
        case Entries():
            return not node.entries
        case _:
            assert_never(node)


def kind_of(node: Node) -> str:
    """Name what stands there, for a message; never its content."""
    match node:
        case Scalar():
            return "nothing" if node.text is None else "a single value"
        case Items():
            return "a list"
        case Entries():
            return "a mapping"
        case _:
            assert_never(node)


def _says_nothing(node: Node) -> bool:
    """Null and the empty text are the same as no key, as in DM's files, which are full of `key: ""`."""
    return isinstance(node, Scalar) and not node.text


def _unknown(block: Block, name: str, place: Place) -> UnknownKey:
    from difflib import get_close_matches

    allowed = [key.name for key in block.keys if isinstance(key, Key)]
    close = get_close_matches(name.lower().replace("_", "-"), block.names, 1, 0.6)
    suggestion = f", did you mean '{close[0]}'?" if close else ""
    return UnknownKey(str(place), name, ", ".join(allowed), suggestion)
