"""Declarations of keys, used to read and check files and to generate docs/config.md.

A block is a tuple of declared keys of four kinds. unshard supports a `Key`. A `Later` is a key of DM that a later
version will support; it is rejected unless its value has no effect. An `Ignored` is a key of DM that has no effect
here, accepted with a warning. A `Refused` is a key of DM for a feature that is set in another way here. Any other
key is unknown and rejected.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, assert_never

from unshard.config.yamltext import Entries, Items, Node, Scalar
from unshard.errors import UnshardError
from unshard.errors.config import KeyRefused, LaterKey, MissingKey, SeveralErrors, UnknownKey, WrongType

T = TypeVar("T")
KEYS = "keys"
"""The declared keys of a field, in its metadata."""


@dataclass(frozen=True, slots=True)
class FileWarning:
    """A warning about an accepted value."""

    text: str
    """Begins with the place."""
    is_idle: bool = False
    """The value has no effect here; the command line prints only the number of such warnings."""
    is_password: bool = False
    """The value is a password; the command line prints only the number of such warnings."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The warnings and errors of one load."""

    warnings: list[FileWarning] = field(default_factory=list)
    errors: list[UnshardError] = field(default_factory=list)

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an error for `refuse`, so that the next part of the file is read too."""
        try:
            yield
        except SeveralErrors as error:
            self.errors.extend(error.errors)
        except UnshardError as error:
            self.errors.append(error)

    def refuse(self, first: int = 0) -> None:
        if found := self.errors[first:]:
            del self.errors[first:]
            raise found[0] if len(found) == 1 else SeveralErrors(tuple(found))


@dataclass(frozen=True, slots=True)
class FilePlace:
    """File, line and path of a value."""

    file: Path
    line: int
    path: str = ""
    findings: Findings = field(default_factory=Findings, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.path}".rstrip()

    def at(self, key: str, line: int) -> "FilePlace":
        return FilePlace(self.file, line, f"{self.path}.{key}" if self.path else key, self.findings)

    def item(self, number: int, line: int) -> "FilePlace":
        return FilePlace(self.file, line, f"{self.path}[{number}]", self.findings)

    def warn(self, text: str, *, is_password: bool = False) -> None:
        """Record a warning about an accepted value that should be changed."""
        self.findings.warnings.append(FileWarning(f"{self}: {text}", is_password=is_password))

    def warn_idle(self, value: str, why: str) -> None:
        """Record a warning about a value that has no effect here."""
        self.findings.warnings.append(FileWarning(f"{self}: '{value}' has no effect here: {why}", is_idle=True))


@dataclass(frozen=True, slots=True)
class ValueKind:
    """The type of a value: its name in the docs and its reader."""

    name: str
    read: Callable[[Node, FilePlace], Any]
    block: "Block | None" = None


@dataclass(frozen=True, slots=True)
class Key:
    """A key that unshard supports."""

    name: str
    kind: ValueKind
    about: str
    default: Any = None
    required: bool = False
    shown: str = ""
    """The default as the docs print it, if it differs from `default`."""

    @property
    def field(self) -> Any:
        """The field of a dataclass that has the value of this key."""
        return declared(self)


def declared(*keys: Key, repr: bool = True) -> Any:
    """Return a field of a dataclass with the value of its key, or with one that `build` gets for several keys."""
    return field(default=keys[0].default if len(keys) == 1 else None, repr=repr, metadata={KEYS: keys})


def keys_of(kind: Any) -> tuple[Key, ...]:
    """Return the keys of a dataclass, in the order of its fields."""
    return tuple(key for each in fields(kind) for key in each.metadata.get(KEYS, ()))


@dataclass(frozen=True, slots=True)
class Later:
    """A key of DM that a later version will support."""

    name: str
    feature: str
    harmless: tuple[str, ...] = ()
    """Values without an effect; null, "" and empty lists and mappings always count as such."""


BY_GTID = "unshard follows a source by file and byte, and uses GTIDs to continue on a replacement server"


@dataclass(frozen=True, slots=True)
class Ignored:
    """A key of DM that has no effect here."""

    name: str
    why: str
    silent: tuple[str, ...] = ()
    """Values without a warning, because they match the behaviour."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A key of DM for a feature that is set in another way here."""

    name: str
    instead: str
    """The alternative, in the imperative."""
    harmless: tuple[str, ...] = ()
    beside: str = ""
    """The supported key of the same block that makes this one an `Ignored`."""


Declared = Key | Later | Ignored | Refused


@dataclass(frozen=True, slots=True)
class Block:
    """The keys of one mapping."""

    title: str
    keys: tuple[Declared, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All declared names, including refused and ignored ones."""
        return tuple(key.name for key in self.keys)


@dataclass(frozen=True, slots=True)
class Values:
    """A block as read: every `Key` has a value, its own or the default."""

    place: FilePlace
    values: Mapping[str, Any]
    places: Mapping[str, FilePlace]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def gives(self, key: str) -> bool:
        """Whether the file has the key, with a value."""
        return key in self.places

    def place_of(self, key: str) -> FilePlace:
        """Return where the file has the key, else the place of the block."""
        return self.places.get(key, self.place)


def build(kind: Callable[..., T], values: Values, **computed: Any) -> T:
    """Return the dataclass: each field has the value of its key, unless it is computed."""
    declarations: Any = kind
    own = {each.name: values[keys[0].name] for each in fields(declarations) if (keys := each.metadata.get(KEYS))}
    return kind(**own | computed)


def read_block(block: Block, node: Node, place: FilePlace) -> Values:
    """Check a mapping against its declaration; the findings get its errors, and a key with an error its default."""
    if isinstance(node, Scalar) and node.text is None:
        node = Entries({}, {}, node.line)
    if not isinstance(node, Entries):
        raise WrongType(str(place), "a mapping", kind_of(node))
    for name in node.entries:
        if name not in block.names:
            place.findings.errors.append(_unknown(block, name, place.at(name, node.lines[name])))
    values: dict[str, Any] = {}
    places: dict[str, FilePlace] = {}
    for key in block.keys:
        child = node.entries.get(key.name)
        # DM's files often have `key: ""`, which counts as missing.
        if child is not None and not (isinstance(child, Scalar) and not child.text):
            places[key.name] = place.at(key.name, node.lines[key.name])
            with place.findings.collected():
                _read_key(key, child, places[key.name], values)
        elif isinstance(key, Key) and key.required:
            place.findings.errors.append(MissingKey(str(place), key.name, key.about))
        if isinstance(key, Key):
            values.setdefault(key.name, key.default)
    return Values(place, values, places)


def _read_key(key: Declared, node: Node, place: FilePlace, values: dict[str, Any]) -> None:
    match key:
        case Key():
            values[key.name] = key.kind.read(node, place)
        case Later():
            if not asks_nothing(node, key.harmless):
                raise LaterKey(str(place), key.name, key.feature)
        case Ignored():
            if not asks_nothing(node, ("0", *key.silent)):
                place.warn_idle(key.name, key.why)
        case Refused():
            if asks_nothing(node, key.harmless):
                return
            if not values.get(key.beside):
                raise KeyRefused(str(place), key.name, key.instead)
            place.warn_idle(key.name, f"the key {key.beside} takes precedence")
        case _:
            assert_never(key)


def asks_nothing(node: Node, harmless: tuple[str, ...]) -> bool:
    """Return whether a value is empty or harmless, or a mapping of such values."""
    match node:
        case Scalar():
            return not node.text or node.text.lower() in harmless
        case Items():
            return not node.items
        case Entries():
            return all(asks_nothing(child, harmless) for child in node.entries.values())
        case _:
            assert_never(node)


def kind_of(node: Node) -> str:
    """Return the kind of a node for a message, never its content."""
    match node:
        case Scalar():
            return "nothing" if node.text is None else "a single value"
        case Items():
            return "a list"
        case Entries():
            return "a mapping"
        case _:
            assert_never(node)


def _unknown(block: Block, name: str, place: FilePlace) -> UnknownKey:
    from difflib import get_close_matches

    allowed = [key.name for key in block.keys if isinstance(key, Key)]
    close = get_close_matches(name.lower().replace("_", "-"), block.names, 1, 0.6)
    suggestion = f", did you mean '{close[0]}'?" if close else ""
    return UnknownKey(str(place), name, ", ".join(allowed), suggestion)
