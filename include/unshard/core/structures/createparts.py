"""Splits a CREATE TABLE text (from `createtext`) into parts, from which smaller statements can be built.

`units.ddl.createtrial` uses it to find out which column, index or option a server refuses.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.sql.quoting import identifier
from unshard.core.sql.tokens import MARIADB, Token, TokenKind, tokenize
from unshard.core.structures.createtext import items

UNIQUE = frozenset({"PRIMARY", "UNIQUE"})


class PartKind(StrEnum):
    """The kind of a part, as messages name it."""

    COLUMN = "column"
    INDEX = "index"
    CHECK = "CHECK constraint"
    OPTION = "table option"
    PARTITION = "partitioning"


@dataclass(frozen=True, slots=True)
class Part:
    """One column, index, constraint or option, with its text in the statement."""

    kind: PartKind
    name: str
    text: str
    columns: frozenset[str] = frozenset()
    """The quoted names in the text, in lower case; they include the columns that an index or generated column needs."""
    is_unique: bool = False
    """Whether it is a primary or unique key, which identifies rows."""
    is_generated: bool = False
    bare: str = ""
    """A column's text without AUTO_INCREMENT, which needs an index."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else str(self.kind)


@dataclass(frozen=True, slots=True)
class CreateParts:
    """All parts of a statement, in order; `head` ends with the opening parenthesis."""

    head: str
    columns: tuple[Part, ...]
    keys: tuple[Part, ...]
    """Indexes and CHECK constraints."""
    options: tuple[Part, ...]
    """Table options, then the partitioning."""

    def without(self, parts: Collection[Part]) -> "CreateParts":
        """Return the statement without these parts."""
        kept = (tuple(p for p in group if p not in parts) for group in (self.columns, self.keys, self.options))
        return CreateParts(self.head, *kept)

    @property
    def text(self) -> str:
        """The statement that consists of these parts."""
        body = ",\n  ".join(part.text for part in (*self.columns, *self.keys))
        return f"{self.head}\n  {body}\n) {' '.join(part.text for part in self.options)}".rstrip()


def create_parts(create_sql: str) -> CreateParts:
    """Split a statement into its parts."""
    text, tokens = tokenize(create_sql, 0, MARIADB)
    found = [_item(text, item) for _, item in items(tokens)]
    opened = next(token for token in tokens if token.word == "(")
    columns = tuple(part for part in found if part.kind is PartKind.COLUMN)
    keys = tuple(part for part in found if part.kind is not PartKind.COLUMN)
    return CreateParts(text[: opened.end], columns, keys, tuple(_options(text, _tail(tokens))))


def without_parts(create_sql: str, parts: Collection[Part]) -> str:
    """Return the text without some of its indexes and constraints, and without the commas before them."""
    text, tokens = tokenize(create_sql, 0, MARIADB)
    removed = [(comma.start, item[-1].end) for comma, item in items(tokens) if comma and _item(text, item) in parts]
    for start, end in reversed(removed):
        text = text[:start] + text[end:]
    return text


def _item(text: str, item: Sequence[Token]) -> Part:
    shown = text[item[0].start : item[-1].end]
    words = [token.word for token in item]
    names = [token.name for token in item if token.kind is TokenKind.QUOTED]
    columns = frozenset(name.lower() for name in names)
    if item[0].kind is TokenKind.QUOTED:
        counter = next((token for token in item if token.word == "AUTO_INCREMENT"), None)
        bare = text[item[0].start : counter.start] + text[counter.end : item[-1].end] if counter else shown
        is_generated = "AS" in words and ("VIRTUAL" in words or "STORED" in words or "PERSISTENT" in words)
        return Part(PartKind.COLUMN, names[0], shown, columns, is_generated=is_generated, bare=bare)
    if "CHECK" in words:
        return Part(PartKind.CHECK, names[0] if words[0] == "CONSTRAINT" and names else "", shown, columns)
    if words[0] == "PERIOD":
        return Part(PartKind.CHECK, shown, shown, columns)
    is_unique = words[0] in UNIQUE
    name = "PRIMARY" if words[0] == "PRIMARY" else names[0] if names else ""
    return Part(PartKind.INDEX, name, shown, columns, is_unique)


def _tail(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return the tokens after the outer parentheses."""
    depth = 0
    for position, token in enumerate(tokens):
        depth += (token.word == "(") - (token.word == ")")
        if depth == 0 and token.word == ")":
            return [each for each in tokens[position + 1 :] if each.raw]
    return ()


def _options(text: str, tail: Sequence[Token]) -> Iterator[Part]:
    """Yield each option `NAME=value` with the words before it, then the partitioning."""
    first, depth = 0, 0
    for position, token in enumerate(tail):
        if depth == 0 and token.word == "PARTITION" and position == first:
            shown = text[token.start : tail[-1].end]
            yield Part(PartKind.PARTITION, "", shown)
            return
        depth += (token.word == "(") - (token.word == ")")
        if depth == 0 and position > first and (tail[position - 1].word == "=" or token.word == ")"):
            if position + 1 < len(tail) and _goes_on(tail, position):
                continue
            yield _option(text, tail[first : position + 1])
            first = position + 1
    if first < len(tail):
        yield _option(text, tail[first:])


def _goes_on(tail: Sequence[Token], position: int) -> bool:
    """Whether COLLATE follows a character set: both are one option, because each alone has another meaning."""
    following = tail[position + 1].word
    charset = {token.word for token in tail[max(0, position - 2) : position]} & {"CHARSET", "SET"}
    return following == "COLLATE" and bool(charset)


def _option(text: str, tokens: Sequence[Token]) -> Part:
    shown = text[tokens[0].start : tokens[-1].end]
    return Part(PartKind.OPTION, shown, shown)


def placeholder(column: Part) -> str:
    """Return a column of the same name with a type that every server supports."""
    return f"{identifier(column.name)} varchar(64)"
