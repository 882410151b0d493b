"""One reading of a CREATE TABLE (from `createtext`): its columns, indexes, constraints and options.

A process keeps the texts that it has read last, so nothing else splits them again. `create_parts` divides a text into
parts, from which smaller statements can be built: `units.ddl.createtrial` finds the one that a server refuses.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

from unshard.core.sql.quoting import identifier
from unshard.core.sql.tokens import MARIADB, Edit, Token, TokenKind, at_commas, closing, edited, outside, tokenize

UNIQUE = frozenset({"PRIMARY", "UNIQUE"})
Item = Sequence[Token]
"""A column, an index or a constraint."""


@dataclass(frozen=True, slots=True)
class IndexText:
    """An index: `PRIMARY`, `UNIQUE`, `FULLTEXT`, `SPATIAL`, `VECTOR` or no kind; its parts; what follows them."""

    kind: str
    name: str
    parts: tuple[Item, ...]
    options: Item


@dataclass(frozen=True)
class ParsedTable:
    """A CREATE TABLE without comments, and its tokens."""

    text: str
    tokens: tuple[Token, ...]

    @cached_property
    def items(self) -> tuple[tuple[Token | None, Item], ...]:
        """The columns, indexes and constraints, each with the comma before it."""
        return tuple(items(self.tokens))

    @cached_property
    def columns(self) -> Mapping[str, Item]:
        """The columns, each with its name as the first token, by the name in lower case."""
        return {item[0].name.lower(): item for _, item in self.items if item[0].kind is TokenKind.QUOTED}

    @cached_property
    def others(self) -> tuple[Item, ...]:
        return tuple(item for _, item in self.items if item[0].kind is not TokenKind.QUOTED)

    @cached_property
    def indexes(self) -> tuple[IndexText, ...]:
        return tuple(_index(item) for item in self.others if "KEY" in _words(item[:2]) and _checked(item) is None)

    @cached_property
    def checks(self) -> tuple[tuple[str, Item], ...]:
        """The CHECK constraints of the table: their names, and the tokens of their expressions."""
        found = ((item, _checked(item)) for item in self.others)
        return tuple((item[1].name if at == 2 else "", item[at + 1 :]) for item, at in found if at is not None)

    @cached_property
    def end(self) -> int:
        opening = next((at for at, token in enumerate(self.tokens) if token.word == "("), len(self.tokens))
        return closing(self.tokens, opening)

    def column_text(self, name: str) -> str:
        """Return a column as the server shows it, after its name, which is given in lower case; empty without it."""
        item = self.columns.get(name)
        return self.text[item[0].end : item[-1].end].strip() if item else ""


@lru_cache(512)
def parsed(create_sql: str) -> ParsedTable:
    """Read the text of a structure."""
    return ParsedTable(*tokenize(create_sql, 0, MARIADB))


def items(tokens: Sequence[Token]) -> Iterator[tuple[Token | None, list[Token]]]:
    """Yield the items between the outer parentheses, each with the comma before it (None for the first)."""
    depth, comma, item = 0, None, list[Token]()
    for token in tokens:
        depth -= token.word == ")"
        if depth == 0 and item:
            yield comma, item
            return
        if depth == 1 and token.word == ",":
            yield comma, item
            comma, item = token, []
        elif depth >= 1:
            item.append(token)
        depth += token.word == "("


def in_parentheses(tokens: Sequence[Token], word: str) -> Item:
    """Return the tokens from the parenthesis after a word, which is not inside of others, to the closing one."""
    opening = next((position + 1 for position in outside(tokens, word, "(")), len(tokens))
    return tokens[opening : closing(tokens, opening) + 1]


def without_computed_defaults(create_sql: str) -> str:
    """Return the text without the defaults that are expressions or functions."""
    table, edits = parsed(create_sql), list[Edit]()
    for item in table.columns.values():
        for at in outside(item, "DEFAULT"):
            opening = next((n for n in (at + 1, at + 2) if n < len(item) and item[n].word == "("), None)
            if opening:
                edits.append((item[at].start, item[closing(item, opening)].end, ""))
    return edited(table.text, edits)


def with_sorted_checks(text: str) -> str:
    """Return the text with the named CHECK constraints in the order of their names."""
    if text.count(" CHECK (") < 2:
        return text
    table = parsed(text)
    found = [i for i in table.others if len(i) > 2 and (i[0].word, i[2].word) == ("CONSTRAINT", "CHECK")]
    texts = [table.text[i[0].start : i[-1].end] for i in sorted(found, key=lambda item: item[1].name.lower())]
    return edited(table.text, ((i[0].start, i[-1].end, new) for i, new in zip(found, texts, strict=True)))


@dataclass(frozen=True, slots=True)
class GeneratedExpression:
    """The expression of a generated column, and the columns that it reads, in lower case."""

    text: str
    columns: frozenset[str]


@lru_cache(256)
def expressions(create_sql: str) -> Mapping[str, GeneratedExpression]:
    """Return the expression of each generated column, by the column's name in lower case.

    Texts are equal for expressions that differ only in white space, in the case of words and in the parentheses
    around the whole. Servers print the same expression differently, so different texts may have the same value.
    """
    columns = parsed(create_sql).columns if create_sql else {}
    bodies = {name: in_parentheses(item, "AS") for name, item in columns.items()}
    return {name: _expression(body) for name, body in bodies.items() if body}


@lru_cache(256)
def generation(create_sql: str) -> Mapping[str, str]:
    """Return the SQL of each generated column as the server prints it, in parentheses, by the name in lower case."""
    if not create_sql:
        return {}
    table = parsed(create_sql)
    bodies = {name: in_parentheses(item, "AS") for name, item in table.columns.items()}
    return {name: table.text[body[0].start : body[-1].end] for name, body in bodies.items() if body}


def _expression(tokens: Item) -> GeneratedExpression:
    while tokens and tokens[0].word == "(" and closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    names = frozenset(token.name.lower() for token in tokens if token.kind is TokenKind.QUOTED)
    words = (token.name.lower() if token.kind is TokenKind.QUOTED else token.word or token.raw for token in tokens)
    return GeneratedExpression(" ".join(words), names)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """A column, or an expression in parentheses."""

    text: str
    length: int | None = None
    """The prefix of the column that is indexed."""
    is_expression: bool = False


def index_parts(create_sql: str, index: str) -> tuple[IndexPart, ...]:
    """Return the parts of an index; empty if the text does not have it."""
    table = parsed(create_sql)
    found = next((each for each in table.indexes if (each.name or each.kind) == index), None)
    return tuple(_part(table.text, part) for part in found.parts) if found else ()


def _part(text: str, part: Item) -> IndexPart:
    if part[0].word == "(":
        return IndexPart(text[part[0].start : part[closing(part, 0)].end], is_expression=True)
    has_length = len(part) > 2 and part[1].word == "("
    return IndexPart(part[0].name, int(part[2].raw) if has_length else None)


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

    @property
    def placeholder(self) -> str:
        """A column of the same name with a type that every server supports."""
        return f"{identifier(self.name)} varchar(64)"


@dataclass(frozen=True, slots=True)
class CreateParts:
    """All parts of a statement, in order; `head` ends with the opening parenthesis."""

    head: str
    columns: tuple[Part, ...]
    keys: tuple[Part, ...]
    options: tuple[Part, ...]
    """Table options, then the partitioning."""

    def without(self, parts: Collection[Part]) -> "CreateParts":
        kept = (tuple(p for p in group if p not in parts) for group in (self.columns, self.keys, self.options))
        return CreateParts(self.head, *kept)

    @property
    def text(self) -> str:
        body = ",\n  ".join(part.text for part in (*self.columns, *self.keys))
        return f"{self.head}\n  {body}\n) {' '.join(part.text for part in self.options)}".rstrip()


def create_parts(create_sql: str) -> CreateParts:
    """Split a statement into its parts."""
    table = parsed(create_sql)
    opened = next(token for token in table.tokens if token.word == "(")
    columns = tuple(_named_part(table.text, item) for item in table.columns.values())
    keys = tuple(_named_part(table.text, item) for item in table.others)
    options = _options(table.text, [token for token in table.tokens[table.end + 1 :] if token.raw])
    return CreateParts(table.text[: opened.end], columns, keys, tuple(options))


def without_parts(create_sql: str, parts: Collection[Part]) -> str:
    """Return the text without some of its indexes and constraints, and without the commas before them."""
    table = parsed(create_sql)
    removed = ((comma.start, i[-1].end) for comma, i in table.items if comma and _named_part(table.text, i) in parts)
    return edited(table.text, ((start, end, "") for start, end in removed))


def _named_part(text: str, item: Item) -> Part:
    shown = text[item[0].start : item[-1].end]
    words = _words(item)
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
    name = "PRIMARY" if words[0] == "PRIMARY" else names[0] if names else ""
    return Part(PartKind.INDEX, name, shown, columns, words[0] in UNIQUE)


def _options(text: str, tail: Item) -> Iterator[Part]:
    """Yield each option `NAME=value` with the words before it, then the partitioning.

    A character set and the COLLATE after it are one option, because each alone has another meaning.
    """
    ends, first = [*outside(tail)], 0
    for position in ends:
        token, before = tail[position], [each.word for each in tail[max(0, position - 2) : position]]
        if token.word == "PARTITION" and position == first:
            yield Part(PartKind.PARTITION, "", text[token.start : tail[-1].end])
            return
        following = tail[position + 1].word if position + 1 < len(tail) else ""
        is_charset = following == "COLLATE" and not {"CHARSET", "SET"}.isdisjoint(before)
        if position > first and (before[-1] == "=" or token.word == ")") and not is_charset:
            yield _option(text, tail[first : position + 1])
            first = position + 1
    if first < len(tail):
        yield _option(text, tail[first:])


def _option(text: str, tokens: Item) -> Part:
    shown = text[tokens[0].start : tokens[-1].end]
    return Part(PartKind.OPTION, shown, shown)


def _index(item: Item) -> IndexText:
    kind = "" if item[0].word in ("KEY", "INDEX") else item[0].word
    opening = next(at for at, token in enumerate(item) if token.word == "(")
    end = closing(item, opening)
    name = "" if kind == "PRIMARY" else item[opening - 1].name
    return IndexText(kind, name, tuple(at_commas(item[opening + 1 : end])), item[end + 1 :])


def _checked(item: Item) -> int | None:
    """Return the position of CHECK in a CHECK constraint; None for an index."""
    words = _words(item[:3])
    return words.index("CHECK") if "CHECK" in words else None


def _words(item: Item) -> list[str]:
    return [token.word for token in item]
