"""The parts of an index in the text of SHOW CREATE TABLE: columns with prefix lengths, and expressions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from unshard.core.sql.tokens import MARIADB, Token, TokenKind, tokenize
from unshard.core.structures.createtext import items


@dataclass(frozen=True, slots=True)
class IndexPart:
    """A column, or an expression in parentheses."""

    text: str
    length: int | None = None
    """The prefix of the column that is indexed."""
    is_expression: bool = False


def index_parts(create_sql: str, index: str) -> tuple[IndexPart, ...]:
    """Return the parts of an index; empty if the text does not have it."""
    text, tokens = tokenize(create_sql, 0, MARIADB)
    for _, item in items(tokens):
        opening = next((position for position, token in enumerate(item) if token.word == "("), 0)
        if opening and _names(item[:opening], index):
            return tuple(_part(text, part) for part in split(item[opening + 1 : closing(item, opening)]))
    return ()


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the position of the parenthesis that closes another one."""
    depth = 0
    for position in range(opening, len(tokens)):
        depth += (tokens[position].word == "(") - (tokens[position].word == ")")
        if depth == 0:
            return position
    return len(tokens) - 1


def split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split tokens at the commas outside of parentheses."""
    parts, depth = [list[Token]()], 0
    for token in tokens:
        if depth == 0 and token.word == ",":
            parts.append([])
        else:
            depth += (token.word == "(") - (token.word == ")")
            parts[-1].append(token)
    return parts


def _names(head: Sequence[Token], index: str) -> bool:
    """Whether the tokens before the parts are those of this index: `UNIQUE KEY u`, `PRIMARY KEY`."""
    pairs = [(word.word, name) for word, name in pairwise(head)]
    if index == "PRIMARY":
        return any(word == "PRIMARY" and name.word == "KEY" for word, name in pairs)
    return any(word == "KEY" and name.kind is TokenKind.QUOTED and name.name == index for word, name in pairs)


def _part(text: str, part: Sequence[Token]) -> IndexPart:
    if part[0].word == "(":
        return IndexPart(text[part[0].start : part[closing(part, 0)].end], is_expression=True)
    has_length = len(part) > 2 and part[1].word == "("
    return IndexPart(part[0].name, int(part[2].raw) if has_length else None)
