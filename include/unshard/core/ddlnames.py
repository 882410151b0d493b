"""Tables that a text names, found without understanding the text.

For statements that cannot be read: whom they may concern, and how they look with another table in its place. What
changes a table has its name in its text, or that of its schema, whatever else the text may be; what changes rows has
not, because a view, a trigger or a routine may stand between.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from unshard.core.ddl import agreement
from unshard.core.ddlgrammar import Words
from unshard.core.ddltokens import MARIADB, Token, TokenKind, tokenize
from unshard.core.ddltypes import Role
from unshard.core.ddlwords import ROWS_VERBS
from unshard.core.model import TableId
from unshard.core.quoting import qualified
from unshard.core.segment import Statement
from unshard.errors.ddl import DdlUnreadable

Place = tuple[TableId, int, int]
"""A table that may be meant, and where it is named."""
ENCODED = "#mysql50#"
"""Before the name of a table's file, which MySQL takes for the table."""
STRINGS = re.compile(r"""'(?:[^'\\]|\\.|'')*(?:'|\Z)|"(?:[^"\\]|\\.|"")*(?:"|\Z)""", re.DOTALL)
ROUGH = re.compile(r"`(?P<quoted>(?:[^`]|``)+)`|(?P<word>[\w$\u0080-\uffff]+)|(?P<other>\S)")


@dataclass(frozen=True, slots=True)
class Mentions:
    """What a statement names."""

    text: str
    """What the places refer to."""
    places: tuple[Place, ...]
    """Each table that is named or, by the default schema, may be."""
    is_certain: bool
    """The text could be split into words, so no name is missed."""

    def of(self, table: TableId) -> list[tuple[int, int]]:
        """Return where the table is named, in any spelling: the server may not heed the case of names."""
        return [(start, end) for found, start, end in self.places if _folded(found) == _folded(table)]

    def named(self, tables: Collection[TableId]) -> Iterator[TableId]:
        """Yield those of the tables that are named; in another spelling only where none has the one that is written."""
        spelled = {_folded(found) for found, _, _ in self.places if found not in tables}
        written = {found for found, _, _ in self.places}
        yield from (table for table in tables if table in written or _folded(table) in spelled)


def mentions(statement: Statement) -> Mentions:
    """Find the tables that a statement names."""
    schema = statement.schema
    plain, tokens, is_certain = _split(statement)
    places: list[Place] = []
    position = 0
    while position < len(tokens):
        first, *rest = tokens[position : position + 3]
        position += 1
        if not _is_name(first):
            continue
        if len(rest) == 2 and rest[0].raw == "." and _is_name(rest[1]):
            places.append((TableId(first.name, rest[1].name), first.start, rest[1].end))
            position += 2
        elif schema:
            places.append((TableId(schema, first.name), first.start, first.end))
    return Mentions(plain, tuple(places), is_certain)


def concerned(statement: Statement, tables: Collection[TableId]) -> frozenset[TableId]:
    """Return the tables that a statement may concern, though it could not be read: those that it names.

    If its words are not certain, also those whose name stands anywhere in it; if it names none, also those whose
    schema does.
    """
    found = mentions(statement)
    named = frozenset(found.named(tables))
    if named and found.is_certain:
        return named
    texts = _spellings(statement.text)
    return named | {table for table in tables if _may_name(texts, statement.schema, table, not named)}


def changes_rows(statement: Statement) -> bool:
    """Whether the statement changes rows, so that it may concern tables that it does not name."""
    words = [token.word for token in _split(statement)[1] if token.kind is TokenKind.WORD]
    if words[:2] == ["SET", "STATEMENT"] and "FOR" in words:
        words = words[words.index("FOR") + 1 :]
    return words[:1] == [] or words[0] in ROWS_VERBS


def created(statement: Statement) -> TableId | None:
    """Return the table that the statement makes, if that is what it begins with."""
    text, tokens, _ = _split(statement)
    words = Words(text, tokens, statement.schema)
    if not words.eat("CREATE"):
        return None
    words.eat("OR", "REPLACE")
    if not words.eat("TABLE"):
        return None
    words.eat("IF", "NOT", "EXISTS")
    try:
        return words.table(Role.SUBJECT).table
    except DdlUnreadable:
        return None


def without_strings(text: str) -> str:
    """Return a statement as it may be kept and shown: no value, no password."""
    return STRINGS.sub("'…'", text)


def _split(statement: Statement) -> tuple[str, tuple[Token, ...], bool]:
    """Return the text without comments, its words, and whether they are surely its words."""
    try:
        return *tokenize(statement.text, statement.sql_mode, MARIADB), True
    except DdlUnreadable:
        return statement.text, _rough(statement.text), False


def _may_name(texts: tuple[str, ...], default: str, table: TableId, by_schema: bool) -> bool:
    """Whether the table can be what a text is about: by its schema's name, or by its own behind the default schema."""
    schema, name = table.schema.casefold(), table.name.casefold()
    names_schema = any(schema in text for text in texts)
    names_table = any(name in text for text in texts) and (names_schema or default.casefold() == schema)
    return names_table or (by_schema and names_schema) or ENCODED in texts[0]


def _spellings(text: str) -> tuple[str, ...]:
    """Return the text with quotes inside of quoted names as they are in the names, and without case."""
    folded = text.casefold()
    return folded, folded.replace("``", "`"), folded.replace('""', '"')


def _folded(table: TableId) -> TableId:
    return TableId(table.schema.casefold(), table.name.casefold())


def put_in(text: str, spans: Iterable[tuple[int, int]], table: TableId) -> str:
    """Return the text with a table's name in those places."""
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + qualified(table.schema, table.name) + text[end:]
    return text


def loose_agreement(text: str, sql_mode: int) -> str:
    """Return the text's tokens in one form each or, where there are none, its words."""
    try:
        return agreement(text, sql_mode)
    except DdlUnreadable:
        return " ".join(text.split())


def _is_name(token: Token) -> bool:
    return token.kind in (TokenKind.WORD, TokenKind.QUOTED)


def _rough(text: str) -> tuple[Token, ...]:
    return tuple(
        Token(_kind(match), (match["quoted"] or match[0]).replace("``", "`"), match[0], match.start(), match.end())
        for match in ROUGH.finditer(text)
    )


def _kind(match: re.Match[str]) -> TokenKind:
    if match["quoted"]:
        return TokenKind.QUOTED
    return TokenKind.WORD if match["word"] else TokenKind.OTHER
