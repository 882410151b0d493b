"""MariaDB's system-versioned tables: their rows in the binlog have period columns that their structure here lacks.

Rows have the period for which they were valid, in two columns that are hidden unless the table declares them. The
binlog contains the history, too: an UPDATE is logged as an UPDATE of the current row and an INSERT of a row whose
period has ended; a DELETE is logged as an UPDATE that ends the period. Only current rows are merged. So neither the
columns of a structure nor the target have period columns. The text of the structure has them, to decode the rows.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from unshard.core.model import Column, Index, TableSchema
from unshard.core.sql.tokens import MARIADB, Token, TokenKind, tokenize
from unshard.core.structures.createtext import items
from unshard.core.structures.longunique import with_hashes

FOREVER = (b"2038-01-19 03:14:07.999999", b"2106-02-07 06:28:15.999999")
"""The end of a current row's period: the greatest TIMESTAMP, which is the second value from MariaDB 11.5 on."""
HIDDEN = ("row_start", "row_end")
_MENTIONED = re.compile(r"SYSTEM\s+VERSIONING", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Period:
    """The two columns with the start and the end of a row's period."""

    start: str
    end: str
    shown: tuple[str, ...] = ()
    """All columns of the table in order, if it declares the two; empty if they are hidden, after all others."""


@lru_cache(1024)
def period_of(create_sql: str) -> Period | None:
    """Return the period of a table from its SHOW CREATE TABLE; None if it is not versioned."""
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


def without_period(
    columns: Sequence[Column], indexes: Sequence[Index], create_sql: str
) -> tuple[tuple[Column, ...], tuple[Index, ...]]:
    """Return the columns and indexes of a versioned table without its period."""
    period = period_of(create_sql)
    own = () if period is None else (period.start.lower(), period.end.lower())
    kept = tuple(column for column in columns if column.name.lower() not in own)
    cut = (replace(i, columns=tuple(name for name in i.columns if name.lower() not in own)) for i in indexes)
    return kept, tuple(index for index in cut if index.columns)


def as_in_rows(schema: TableSchema, count: int) -> tuple[TableSchema, int | None]:
    """Return the structure of rows with `count` columns in the binlog, and which written column ends the period."""
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
    """Return the text of the same table without system versioning."""
    period = period_of(create_sql)
    if period is None:
        return create_sql
    plain, tokens = tokenize(create_sql, 0, MARIADB)
    for start, end in sorted({*_left_out(tokens, period)}, reverse=True):
        plain = plain[:start] + plain[end:]
    return plain


def _left_out(tokens: Sequence[Token], period: Period) -> Iterator[tuple[int, int]]:
    """Yield the spans about versioning: columns, period, parts of keys, options, partitions of history."""
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
    for position in _outside(tokens, "WITH", "SYSTEM", "VERSIONING"):
        yield tokens[position - 1].end, tokens[position + 2].end
    for position in _outside(tokens, "PARTITION", "BY", "SYSTEM_TIME"):
        yield tokens[position - 1].end, [t for t in tokens if t.raw][-1].end


def _phrases(item: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield the spans of WITH and WITHOUT SYSTEM VERSIONING of a column."""
    for position in range(1, len(item) - 2):
        if [t.word for t in item[position + 1 : position + 3]] == ["SYSTEM", "VERSIONING"] and item[position].word in (
            "WITH",
            "WITHOUT",
        ):
            yield item[position - 1].end, item[position + 2].end


def _key_parts(item: Sequence[Token], own: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the span of the period's end in a key, which the server has added after the key's own columns."""
    for before, token in pairwise(item):
        if before.word == "," and token.kind is TokenKind.QUOTED and token.name in own:
            yield before.start, token.end


def _is_versioned(tokens: Sequence[Token]) -> bool:
    return any(True for _ in _outside(tokens, "WITH", "SYSTEM", "VERSIONING"))


def _outside(tokens: Sequence[Token], *words: str) -> Iterator[int]:
    """Yield the positions of this sequence of words outside of parentheses."""
    depth = 0
    for position, token in enumerate(tokens):
        depth += (token.word == "(") - (token.word == ")")
        if depth == 0 and [t.word for t in tokens[position : position + len(words)]] == [*words]:
            yield position
