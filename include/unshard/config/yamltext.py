"""Read YAML as keys, texts and line numbers, without converting values.

YAML guesses types: `0123` becomes 83, `12:30:00` a number, `no` a boolean. So a scalar stays the text that the
user wrote, and the declaration of its key determines the type. Messages never quote a scalar, because it could be
a password.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from unshard.errors.config import FileEmpty, FileUnreadable, KeyTwice, YamlInvalid

LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
STANDARD = "tag:yaml.org,2002:"
NULL, MERGE = f"{STANDARD}null", f"{STANDARD}merge"
TAGS = {
    STANDARD + name for name in ("null", "merge", "str", "int", "float", "bool", "timestamp", "value", "map", "seq")
}
# These messages quote a text that begins like an alias, an anchor or a tag. It may be a password.
QUOTES_TEXT = re.compile(r"alias|anchor|tag|handle")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text; None is YAML's null."""

    text: str | None
    line: int


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple["Node", ...]
    line: int


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping, with the line of each key."""

    entries: dict[str, "Node"]
    lines: dict[str, int]
    line: int


Node = Scalar | Items | Entries


def read_file(path: Path) -> Entries:
    """Return the mapping of the file."""
    text = _text(path)
    try:
        root = yaml.compose(text, LOADER)
        if root is None or root.tag == NULL:
            raise FileEmpty(str(path))
        node = _Conversion(path).convert(root)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise YamlInvalid(f"{path}:{line}", _problem(error)) from None
    except yaml.YAMLError:
        raise YamlInvalid(f"{path}:1", "it has characters that YAML does not allow") from None
    except RecursionError:
        raise YamlInvalid(f"{path}:1", "it is nested too deeply") from None
    if not isinstance(node, Entries):
        raise YamlInvalid(f"{path}:{node.line}", "the file must be a mapping of keys and values")
    if not node.entries:
        raise FileEmpty(str(path))
    return node


def modified(path: Path) -> int:
    """Return the time of the last change of a file, in nanoseconds; 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileUnreadable(str(path), f"byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise FileUnreadable(str(path), (error.strerror or "unknown reason").lower()) from None


def _problem(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "syntax error"
    if QUOTES_TEXT.search(problem):
        return "a text begins with one of * & ! and is not quoted"
    return problem


class _Conversion:
    """Converts YAML's nodes to ours. An alias is converted once, which also limits the work."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: dict[int, Node | None] = {}

    def convert(self, node: yaml.Node) -> Node:
        if id(node) not in self.done:
            self.done[id(node)] = None
            self.done[id(node)] = self._converted(node)
        known = self.done[id(node)]
        if known is None:
            raise self._invalid(node, "an alias is inside its own anchor")
        return known

    def _converted(self, node: yaml.Node) -> Node:
        line = node.start_mark.line + 1
        if node.tag not in TAGS:
            raise self._invalid(node, "a text begins with ! and is not quoted")
        match node:
            case yaml.ScalarNode():
                if not node.style and node.start_mark.line != node.end_mark.line:
                    # Otherwise `user: u` above an indented `password:secret` would be one user name, shown in messages.
                    raise self._invalid(
                        node, "a text without quotes continues in the next line; is a blank missing after a colon?"
                    )
                return Scalar(None if node.tag == NULL else node.value, line)
            case yaml.SequenceNode():
                return Items(tuple(map(self.convert, node.value)), line)
            case _:
                return self._mapping(node, line)

    def _mapping(self, node: yaml.MappingNode, line: int) -> Entries:
        entries: dict[str, Node] = {}
        lines: dict[str, int] = {}
        merged: list[Node] = []
        for key, value in node.value:
            at = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise self._invalid(key, "a key must be a text")
            if key.tag == MERGE:
                merged.append(self.convert(value))
                continue
            if key.value in entries:
                raise KeyTwice(f"{self.path}:{at}", key.value, lines[key.value])
            entries[key.value], lines[key.value] = self.convert(value), at
        for base in merged:
            self._merge(base, entries, lines)
        return Entries(entries, lines, line)

    def _merge(self, base: Node, entries: dict[str, Node], lines: dict[str, int]) -> None:
        """Merge `<<: *base` or a list of them; other keys of the mapping take precedence."""
        match base:
            case Entries():
                for key, value in base.entries.items():
                    if key not in entries:
                        entries[key], lines[key] = value, base.lines[key]
            case Items():
                for item in base.items:
                    self._merge(item, entries, lines)
            case Scalar():
                raise YamlInvalid(f"{self.path}:{base.line}", "<< needs a mapping")

    def _invalid(self, node: yaml.Node, reason: str) -> YamlInvalid:
        return YamlInvalid(f"{self.path}:{node.start_mark.line + 1}", reason)
