"""Read which tables a change of rows writes that was logged as a statement, because its events have no rows.

The text names the tables, but not those that triggers, views, stored functions, foreign keys and some storage engines
write in addition. The source is asked about them (units.window.rowchanges).
"""

import re
from dataclasses import dataclass

from unshard.core.ddl.grammar import TokenCursor
from unshard.core.ddl.names import mentions
from unshard.core.ddl.parsed import Role
from unshard.core.model import TableId
from unshard.core.relay.segment import Statement
from unshard.core.sql.tokens import MARIADB, TokenKind, tokenize
from unshard.core.sql.words import RESERVED, words_of
from unshard.errors.ddl import DdlUnreadable

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
    """The tables that it may write."""
    named: frozenset[TableId]
    """All tables that it may name."""
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
