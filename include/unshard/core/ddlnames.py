"""Tables that a text names, found without understanding the text.

For statements that cannot be read: whom they may concern, and how they look with another table in its place.
"""

import re
from collections.abc import Iterable

from unshard.core.ddl import agreement
from unshard.core.ddltokens import MARIADB, Token, TokenKind, tokenize
from unshard.core.model import TableId
from unshard.core.quoting import qualified
from unshard.errors.ddl import DdlUnreadable

Place = tuple[TableId, int, int]
"""A table that may be meant, and where it is named."""
ROUGH = re.compile(r"`(?P<quoted>(?:[^`]|``)+)`|(?P<word>[\w$]+)|(?P<other>\S)")


def mentions(text: str, sql_mode: int, schema: str) -> tuple[str, tuple[Place, ...]]:
    """Return the text that the places refer to, and each table that is named or, by the default schema, may be."""
    try:
        plain, tokens = tokenize(text, sql_mode, MARIADB)
    except DdlUnreadable:
        plain, tokens = text, _rough(text)
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
    return plain, tuple(places)


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
