"""The expressions of generated columns, read from the text of their table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from unshard.core.model import Column, TableSchema
from unshard.core.sql.tokens import MARIADB, Token, TokenKind, tokenize
from unshard.core.structures.createtext import items


def with_stored_values(structure: TableSchema) -> TableSchema:
    """Return the structure with STORED columns as plain ones: row images have their values.

    Values of VIRTUAL columns are not in every row image.
    """
    if not any(_is_stored(column) for column in structure.columns):
        return structure
    columns = (replace(column, extra="") if _is_stored(column) else column for column in structure.columns)
    return replace(structure, columns=tuple(columns))


def _is_stored(column: Column) -> bool:
    return column.is_generated and "virtual" not in column.extra


@dataclass(frozen=True, slots=True)
class Expression:
    """The expression of a generated column, and the columns that it reads, in lower case."""

    text: str
    columns: frozenset[str]


@lru_cache(256)
def expressions(create_sql: str) -> Mapping[str, Expression]:
    """Return the expression of each generated column, by the column's name in lower case.

    Texts are equal for expressions that differ only in white space, in the case of words and in the parentheses
    around the whole. Servers print the same expression differently, so different texts may have the same value.
    """
    if not create_sql:
        return {}
    columns = [item for _, item in items(tokenize(create_sql, 0, MARIADB)[1]) if item[0].kind is TokenKind.QUOTED]
    found = {item[0].name.lower(): _expression(item) for item in columns}
    return {name: expression for name, expression in found.items() if expression is not None}


@lru_cache(256)
def generation(create_sql: str) -> Mapping[str, str]:
    """Return the SQL of each generated column as the server prints it, in parentheses, by the name in lower case."""
    if not create_sql:
        return {}
    text, tokens = tokenize(create_sql, 0, MARIADB)
    found = dict[str, str]()
    for _, item in items(tokens):
        start = _start(item) if item[0].kind is TokenKind.QUOTED else None
        if start is not None:
            found[item[0].name.lower()] = text[item[start].start : item[_closing(item, start)].end]
    return found


def _start(column: Sequence[Token]) -> int | None:
    """Return the position of the parenthesis that begins the expression of a column; None without one."""
    words = [token.word for token in column]
    return next((place + 1 for place, pair in enumerate(pairwise(words)) if pair == ("AS", "(")), None)


def _expression(column: Sequence[Token]) -> Expression | None:
    start = _start(column)
    if start is None:
        return None
    body = _bare(column[start : _closing(column, start) + 1])
    names = frozenset(token.name.lower() for token in body if token.kind is TokenKind.QUOTED)
    return Expression(" ".join(map(_word, body)), names)


def _bare(tokens: Sequence[Token]) -> Sequence[Token]:
    """Remove the parentheses around all of the tokens."""
    while tokens and tokens[0].word == "(" and _closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def _closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the position of the parenthesis that closes the one at `opening`."""
    depth = 0
    for position in range(opening, len(tokens)):
        depth += (tokens[position].word == "(") - (tokens[position].word == ")")
        if not depth:
            return position
    return len(tokens) - 1


def _word(token: Token) -> str:
    return token.name.lower() if token.kind is TokenKind.QUOTED else token.word or token.raw
