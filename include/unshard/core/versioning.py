"""MariaDB's system-versioned tables: a structure has the columns that can be written, its rows in the binlog have more.

Rows carry the period for which they were valid, in two columns that are hidden unless the table declares them. The
binlog holds history, too: an UPDATE is that of the present row and the INSERT of a row whose period is over; a DELETE
is an UPDATE that ends the period. Only present rows are merged. So neither columns nor target have anything of a
period; the text of the structure has, for that is what the rows are read by.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from unshard.core.ddlcreate import items
from unshard.core.ddltokens import MARIADB, Token, TokenKind, tokenize
from unshard.core.longunique import with_hashes
from unshard.core.model import Column, Index, TableSchema

FOREVER = (b"2038-01-19 03:14:07.999999", b"2106-02-07 06:28:15.999999")
"""The end of a period that has not ended: the last moment of TIMESTAMP, the second from MariaDB 11.5 on."""
HIDDEN = ("row_start", "row_end")
_MENTIONED = re.compile(r"SYSTEM\s+VERSIONING", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Period:
    """The columns that say from when to when a row was valid."""

    start: str
    end: str
    shown: tuple[str, ...] = ()
    """All columns of the table in their order, if it declares the two; else they are hidden behind all others."""


@lru_cache(1024)
def period_of(create_sql: str) -> Period | None:
    """Return the period of a versioned table, by its SHOW CREATE TABLE."""
    if not _MENTIONED.search(create_sql):
        return None
    tokens = tokenize(create_sql, 0, MARIADB)[1]
    if not _is_versioned(tokens):
        return None
    parts = [item for _, item in items(tokens)]
    for item in parts:
        words = [token.word for token in item]
        if words[:3] == ["PERIOD", "FOR", "SYSTEM_TIME"]:
            start, end = (token.name for token in item if token.kind is TokenKind.QUOTED)
            return Period(start, end, tuple(i[0].name for i in parts if i[0].kind is TokenKind.QUOTED))
    return Period(*HIDDEN)


def without_period(columns: Sequence[Column], indexes: Sequence[Index],
                   create_sql: str) -> tuple[tuple[Column, ...], tuple[Index, ...]]:  # fmt: skip
    """Return columns and indexes of a versioned table as if it were none."""
    period = period_of(create_sql)
    own = () if period is None else (period.start.lower(), period.end.lower())
    kept = tuple(column for column in columns if column.name.lower() not in own)
    cut = (replace(i, columns=tuple(name for name in i.columns if name.lower() not in own)) for i in indexes)
    return kept, tuple(index for index in cut if index.columns)


def as_in_rows(schema: TableSchema, count: int) -> tuple[TableSchema, int | None]:
    """Return the structure of rows in the binlog that have `count` columns; which written one ends the period."""
    period = period_of(schema.create_sql)
    if period is None:
        return with_hashes(schema, count), None
    start = Column(period.start, "timestamp", "timestamp(6)", False, None, None, None, "stored generated")
    added = {period.start: start, period.end: replace(start, name=period.end, extra="")}
    names = period.shown or (*schema.names, period.start, period.end)
    columns = tuple(added[name] if name in added else schema.column(name) for name in names)
    whole = with_hashes(replace(schema, columns=columns), count)
    return whole, [column.name for column in whole.written].index(period.end)


@lru_cache(256)
def unversioned(create_sql: str) -> str:
    """Return the text of a table that keeps no history and is the same else."""
    period = period_of(create_sql)
    if period is None:
        return create_sql
    plain, tokens = tokenize(create_sql, 0, MARIADB)
    for start, end in sorted({*_left_out(tokens, period)}, reverse=True):
        plain = plain[:start] + plain[end:]
    return plain


def _left_out(tokens: Sequence[Token], period: Period) -> Iterator[tuple[int, int]]:
    """Yield what of the text is about versions: columns, period, parts of keys, options, partitions of history."""
    own = (period.start, period.end) if period.shown else ()
    for comma, item in items(tuple(tokens)):
        words = [token.word for token in item]
        is_own = item[0].kind is TokenKind.QUOTED and item[0].name in own
        if comma is not None and (is_own or words[:2] == ["PERIOD", "FOR"]):
            yield comma.start, item[-1].end
        elif item[0].kind is TokenKind.QUOTED:
            yield from _phrases(item)
        else:
            yield from _key_parts(item, own)
    for place in _outside(tokens, "WITH", "SYSTEM", "VERSIONING"):
        yield tokens[place - 1].end, tokens[place + 2].end
    for place in _outside(tokens, "PARTITION", "BY", "SYSTEM_TIME"):
        yield tokens[place - 1].end, [t for t in tokens if t.raw][-1].end


def _phrases(item: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield WITHOUT SYSTEM VERSIONING of a column, and WITH."""
    for place in range(1, len(item) - 2):
        if [t.word for t in item[place + 1 : place + 3]] == ["SYSTEM", "VERSIONING"] and item[place].word in (
            "WITH", "WITHOUT"):  # fmt: skip
            yield item[place - 1].end, item[place + 2].end


def _key_parts(item: Sequence[Token], own: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the end of the period in a key, which the server has put behind the key's own columns."""
    for before, token in pairwise(item):
        if before.word == "," and token.kind is TokenKind.QUOTED and token.name in own:
            yield before.start, token.end


def _is_versioned(tokens: Sequence[Token]) -> bool:
    return any(True for _ in _outside(tokens, "WITH", "SYSTEM", "VERSIONING"))


def _outside(tokens: Sequence[Token], *words: str) -> Iterator[int]:
    """Yield where these words follow each other outside of all parentheses."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token.word == "(") - (token.word == ")")
        if depth == 0 and [t.word for t in tokens[place : place + len(words)]] == [*words]:
            yield place
