"""Gives the text of a table without transactions the engine InnoDB, because a target table must roll back.

Options about the storage of the old engine are left out: InnoDB refuses `ROW_FORMAT=FIXED`, `ROW_FORMAT=COMPRESSED`
has another meaning there, and TiDB refuses options of Aria. InnoDB ignores all others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from unshard.core.model import TableSchema, lacks_transactions
from unshard.core.sql.tokens import MARIADB, Token, tokenize

ENGINE = "InnoDB"
STORAGE = (
    ("ROW_FORMAT",),
    ("PAGE_CHECKSUM",),
    ("TRANSACTIONAL",),
    ("KEY_BLOCK_SIZE",),
    ("INSERT_METHOD",),
    ("UNION",),
    ("DATA", "DIRECTORY"),
    ("INDEX", "DIRECTORY"),
)


@lru_cache(256)
def with_transactions(create_sql: str) -> str:
    """Return the text of the same table with the engine InnoDB if its own engine has no transactions."""
    if not lacks_transactions(create_sql):
        return create_sql
    plain, tokens = tokenize(create_sql, 0, MARIADB)
    edits = sorted({*_engines(tokens), *_storage(tokens)}, reverse=True)
    for start, end, text in edits:
        plain = plain[:start] + text + plain[end:]
    return plain


def with_engine(schema: TableSchema, engine: str) -> TableSchema:
    """Return the structure with this engine; as it is if the name is empty."""
    if not engine:
        return schema
    plain, tokens = tokenize(schema.create_sql, 0, MARIADB)
    for position in _outside(tokens, ("ENGINE", "=")):
        name = tokens[position + 2]
        return replace(schema, create_sql=plain[: name.start] + engine + plain[name.end :])
    return schema


def _engines(tokens: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    """Yield the names of engines, of the table and of its partitions."""
    for position in _outside(tokens, ("ENGINE", "=")):
        name = tokens[position + 2]
        yield name.start, name.end, ENGINE


def _storage(tokens: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    for words in STORAGE:
        for position in _outside(tokens, (*words, "=")):
            last = position + len(words) + 1
            if tokens[last].word == "(":
                last = next(place for place in range(last, len(tokens)) if tokens[place].word == ")")
            yield tokens[position - 1].end, tokens[last].end, ""


def _outside(tokens: Sequence[Token], words: tuple[str, ...]) -> Iterator[int]:
    """Yield the positions of the words after the columns and indexes of the table."""
    depth, is_after = 0, False
    for position, token in enumerate(tokens):
        depth += (token.word == "(") - (token.word == ")")
        is_after = is_after or (depth == 0 and token.word == ")")
        if is_after and tuple(each.word for each in tokens[position : position + len(words)]) == words:
            yield position
