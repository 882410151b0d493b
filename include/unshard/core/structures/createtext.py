"""Normalizes the text of SHOW CREATE TABLE: equal texts for tables that differ only in name and AUTO_INCREMENT.

The text of a structure does not contain the name of the table (the placeholder is `t`, and `*` in names of constraints
that the server has made from it), AUTO_INCREMENT=n, clauses about storage, or foreign keys, which a merged table or a
trial table cannot have. CHECK constraints are in the order of their names, as MySQL prints them. A default value that
is not valid UTF-8 is read as surrogates and written as a hexadecimal literal, so the result is always valid text.
"""

import re
from functools import lru_cache

from unshard.core.model import TableId
from unshard.core.sql.quoting import identifier, qualified
from unshard.core.sql.tokens import MARIADB, Dialect, Token, TokenKind, edited, outside, tokenize
from unshard.core.structures.constraintnames import CHECK, OWN, constraint_names, made_end, named_after
from unshard.core.structures.parsedtable import items, with_sorted_checks
from unshard.core.structures.storageclauses import without_storage

PLACEHOLDER = "t"
ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
CHARSET = re.compile(r"( DEFAULT CHARSET=\w+)")


def normal_create(text: str, dialect: Dialect = MARIADB) -> str:
    """Return the normalized text of SHOW CREATE TABLE, printed in a session of `mysql.connect`."""
    return normal_with_names(text, dialect)[0]


@lru_cache(256)
def normal_with_names(text: str, dialect: Dialect = MARIADB) -> tuple[str, tuple[str, ...]]:
    """Return the normalized text, and the names of the clauses about storage that it does not have."""
    plain, tokens = tokenize(text, 0, dialect)
    rest, left_out = without_storage(plain, tokens)
    if left_out:
        plain, tokens = tokenize(rest, 0, dialect)
    edits = [(tokens[2].start, tokens[2].end, identifier(PLACEHOLDER))]
    for each in constraint_names(tokens):
        if each.kind == CHECK and (end := made_end(each.token.name, tokens[2].name)):
            edits.append((each.token.start, each.token.end, identifier(OWN + end)))
    next_number = outside(tokens[:-1], "AUTO_INCREMENT", "=")
    edits += [(tokens[at - 1].end, tokens[at + 2].end, "") for at in next_number]
    edits += [(comma.start, item[-1].end, "") for comma, item in items(tokens) if comma and _is_foreign_key(item)]
    edits += [(token.start, token.end, _hexadecimal(token)) for token in tokens if token.kind is TokenKind.STRING]
    return with_sorted_checks(edited(plain, edits)), left_out


def create_text(normal: str, table: TableId, *, if_not_exists: bool = False) -> str:
    """Return the statement that creates `table` from the text that `normal_create` returned."""
    head = f"CREATE TABLE {identifier(PLACEHOLDER)}"
    if not normal.startswith(head):
        raise ValueError(f"not a normal CREATE TABLE: {normal[:80]!r}")
    condition = "IF NOT EXISTS " if if_not_exists else ""
    rest = named_after(normal[len(head) :], table.name)
    return f"CREATE TABLE {condition}{qualified(table.schema, table.name)}{rest}"


def with_collation(text: str, collation: str) -> str:
    """Return the text with the table's collation, which servers omit if it is the default of the character set."""
    options = text.rfind("\n) ")
    if options < 0 or not collation or " COLLATE=" in text[options:]:
        return text
    return text[:options] + CHARSET.sub(rf"\1 COLLATE={collation}", text[options:], count=1)


def _is_foreign_key(item: list[Token]) -> bool:
    words = [token.word for token in item if token.kind is not TokenKind.QUOTED]
    return words[:3] == ["CONSTRAINT", "FOREIGN", "KEY"] or words[:2] == ["FOREIGN", "KEY"]


def _hexadecimal(token: Token) -> str:
    """Return a string as a hexadecimal literal if it is not valid UTF-8; as it is if it is valid."""
    if not any("\udc80" <= character <= "\udcff" for character in token.raw):
        return token.raw

    def unescaped(match: re.Match[str]) -> str:
        return ESCAPED.get(match[1], match[1]) if match[1] else "'"

    text = re.sub(r"\\(.)|''", unescaped, token.raw[1:-1], flags=re.DOTALL)
    return f"x'{text.encode('utf-8', 'surrogateescape').hex()}'"
