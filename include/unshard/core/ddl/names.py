"""The tables that the text of an unreadable statement names, found without parsing it.

They decide which shards the statement may concern, and where its text names a shard that must be replaced by the
target. A statement that changes the structure of a table always contains the name of the table or of its schema. A
statement that changes rows need not: it may use a view, a trigger or a routine.

A change of rows may be logged as a statement, without row events. Its text names the tables that it writes, but not
those that triggers, views, stored functions, foreign keys and some storage engines write in addition. The source is
asked about them (units.window.statementcontext).
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from unshard.core.ddl.parsed import Role
from unshard.core.ddl.statement import TokenCursor, fingerprint
from unshard.core.model import TableId
from unshard.core.relay.segment import Statement
from unshard.core.sql.quoting import qualified
from unshard.core.sql.tokens import MARIADB, Token, TokenKind, tokenize
from unshard.core.sql.words import RESERVED, ROWS_VERBS, words_of
from unshard.errors.ddl import DdlUnreadable

Place = tuple[TableId, int, int]
"""A table that a text may name, and the start and end of the name in the text."""
ENCODED = "#mysql50#"
"""MySQL's prefix for an encoded table name: the rest is the name of the table's file."""
STRINGS = re.compile(r"""'(?:[^'\\]|\\.|'')*(?:'|\Z)|"(?:[^"\\]|\\.|"")*(?:"|\Z)""", re.DOTALL)
ROUGH = re.compile(r"`(?P<quoted>(?:[^`]|``)+)`|(?P<word>[\w$\u0080-\uffff]+)|(?P<other>\S)")


@dataclass(frozen=True, slots=True)
class Mentions:
    """The tables that a statement names."""

    text: str
    """The text to which the spans refer."""
    places: tuple[Place, ...]
    """Each table that is named, with its schema or in the default schema."""
    is_certain: bool
    """The text could be split into tokens, so no name is missed."""

    def of(self, table: TableId) -> list[tuple[int, int]]:
        """Return where the table is named. Case is ignored, because names may be case-insensitive on the server."""
        return [(start, end) for found, start, end in self.places if found.folded == table.folded]

    def named(self, tables: Collection[TableId]) -> Iterator[TableId]:
        """Yield the tables that are named. A name in different case matches only if no table has the exact name."""
        spelled = {found.folded for found, _, _ in self.places if found not in tables}
        written = {found for found, _, _ in self.places}
        yield from (table for table in tables if table in written or table.folded in spelled)


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
    """Return the tables that an unreadable statement may concern: those that it names.

    If the text could not be split into tokens, also the tables whose name occurs anywhere in it. If the statement
    names none of the tables, also all tables whose schema it names.
    """
    found = mentions(statement)
    named = frozenset(found.named(tables))
    if named and found.is_certain:
        return named
    folded = statement.text.casefold()
    texts = folded, folded.replace("``", "`"), folded.replace('""', '"')
    return named | {table for table in tables if _may_name(texts, statement.schema, table, not named)}


def changes_rows(statement: Statement) -> bool:
    """Whether the statement may change rows, and so may concern tables that it does not name."""
    words = [token.word for token in _split(statement)[1] if token.kind is TokenKind.WORD]
    if words[:2] == ["SET", "STATEMENT"] and "FOR" in words:
        words = words[words.index("FOR") + 1 :]
    return words[:1] == [] or words[0] in ROWS_VERBS


def created(statement: Statement) -> TableId | None:
    """Return the table of a statement that begins with CREATE TABLE; None for other statements."""
    text, tokens, _ = _split(statement)
    cursor = TokenCursor(text, tokens, statement.schema)
    if not cursor.eat("CREATE"):
        return None
    cursor.eat("OR", "REPLACE")
    if not cursor.eat("TABLE"):
        return None
    cursor.eat("IF", "NOT", "EXISTS")
    try:
        return cursor.table(Role.SUBJECT).table
    except DdlUnreadable:
        return None


def without_strings(text: str) -> str:
    """Return a statement without its string literals, which may contain values or passwords, to store and show it."""
    return STRINGS.sub("'…'", text)


def _split(statement: Statement) -> tuple[str, tuple[Token, ...], bool]:
    try:
        return *tokenize(statement.text, statement.sql_mode, MARIADB), True
    except DdlUnreadable:
        return statement.text, _rough(statement.text), False


def _may_name(texts: tuple[str, ...], default: str, table: TableId, by_schema: bool) -> bool:
    """Whether a text names the table, in its schema or the default schema, or (`by_schema`) only names its schema."""
    schema, name = table.folded.schema, table.folded.name
    names_schema = any(schema in text for text in texts)
    names_table = any(name in text for text in texts) and (names_schema or default.casefold() == schema)
    return names_table or (by_schema and names_schema) or ENCODED in texts[0]


def put_in(text: str, spans: Iterable[tuple[int, int]], table: TableId) -> str:
    """Return the text with the name of `table` in place of these spans."""
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + qualified(table.schema, table.name) + text[end:]
    return text


def loose_fingerprint(text: str, sql_mode: int) -> str:
    """Return the fingerprint of a text; if it cannot be split into tokens, the text with single blanks."""
    try:
        return fingerprint(text, sql_mode)
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


# --- the tables that a change of rows in a statement writes


MODIFIERS = ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK", "IGNORE", "HISTORY")
SEVERAL = ("SELECT", "DO", "WITH")
"""Verbs of statements that write only what they name, if they name no routine."""
KEYWORDS = RESERVED | words_of("""
    CROSS DISTINCT FROM GROUP HAVING IGNORE INFILE INNER INSERT JOIN LEFT LIMIT LINES LOAD NATURAL OUTER RIGHT UNION
    USING
""")
"""Words that are tables only if they are quoted."""
UNDOES = re.compile(
    r"\b(?:TRIGGER|FUNCTION|PROCEDURE|PACKAGE|VIEW|DATABASE|SCHEMA|FOREIGN|CONSTRAINT)\b", re.IGNORECASE
)
REMOVES = re.compile(r"\b(?:DROP|REPLACE|RENAME)\b", re.IGNORECASE)
TEMPORARY = re.compile(r"\A\W*(?:CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?TEMPORARY\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RowChange:
    """The names in a change of rows."""

    written: frozenset[TableId]
    named: frozenset[TableId]
    names: frozenset[str]
    """All names, of which some may be routines."""


def row_change(statement: Statement) -> RowChange | None:
    """Return the names in a change of rows; None if its text does not tell what it writes."""
    try:
        text, tokens = tokenize(statement.text, statement.sql_mode, MARIADB)
        cursor = TokenCursor(text, tokens, statement.schema)
        if cursor.eat("SET", "STATEMENT"):
            while not cursor.ends() and not cursor.eat("FOR"):
                cursor.position += 1
        written = _written(cursor)
    except DdlUnreadable:
        return None
    names = frozenset(token.name for token in tokens if token.kind in (TokenKind.WORD, TokenKind.QUOTED))
    if written is None or any("\ufffd" in name for name in names):
        return None
    found = mentions(statement)
    named = frozenset(table for table, start, end in found.places if found.text[start:end].upper() not in KEYWORDS)
    return RowChange(written or named, named, names)


def _written(cursor: TokenCursor) -> frozenset[TableId] | None:
    """Return the table that a statement writes; empty if it may be any that it names, None if the verb is another."""
    verb = cursor.name().word
    while cursor.eat_any(*MODIFIERS):
        pass
    is_single = False
    match verb:
        case "INSERT" | "REPLACE":
            cursor.eat("INTO")
            is_single = True
        case "LOAD":
            while not cursor.ends() and not cursor.eat("INTO", "TABLE"):
                cursor.position += 1
            is_single = True
        case "DELETE":
            is_single = cursor.eat("FROM") and not _has(cursor, "USING", "JOIN")
        case "UPDATE":
            is_single = not _has(cursor, "JOIN")
        case _:
            return frozenset() if verb in SEVERAL else None
    if not is_single:
        return frozenset()
    table = cursor.table(Role.SUBJECT).table
    if verb in ("DELETE", "UPDATE") and not (cursor.ends() or cursor.peek() in ("SET", "WHERE", "ORDER", "LIMIT")):
        return frozenset()
    return frozenset((table,))


def _has(cursor: TokenCursor, *words: str) -> bool:
    return any(token.word in words for token in cursor.tokens)


def may_hide(later: Statement, change: RowChange, routed: bool) -> bool:
    """Whether a later statement may have removed what the source would have told about a change of rows.

    `routed`: it names a table of the task, which a foreign key may have bound to a changed table.
    """
    if TEMPORARY.match(later.text):
        return False
    found = mentions(later)
    folded = {table.folded for table in change.named}
    if any(table.folded in folded for table, _, _ in found.places):
        return True
    removes = bool(REMOVES.search(later.text)) or not found.is_certain
    return removes and (routed or bool(UNDOES.search(later.text)) or not found.is_certain)
