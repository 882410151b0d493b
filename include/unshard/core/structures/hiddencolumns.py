"""Columns of row images that differ from those of the structure: MariaDB's hidden columns, and generated ones.

System-versioned tables: rows have the period for which they were valid, in two columns that are hidden unless the
table declares them. The binlog contains the history, too: an UPDATE is logged as an UPDATE of the current row and an
INSERT of a row whose period has ended; a DELETE is logged as an UPDATE that ends the period. Only current rows are
merged. So neither the columns of a structure nor the target have period columns. The text of the structure has them, to
decode the rows.

Unique keys by hash, for keys that an index cannot store: of TEXT or BLOB, too long, or made USING HASH. The server
stores a hash of their values in a hidden column, which is visible only in the row events of the binlog. There is one
such column for each such key, after all other columns.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count, islice, pairwise

from unshard.core.model import Column, Index, TableSchema
from unshard.core.sql.tokens import TokenKind, begins_at, edited, outside
from unshard.core.structures.parsedtable import Item, ParsedTable, parsed

FOREVER = (b"2038-01-19 03:14:07.999999", b"2106-02-07 06:28:15.999999")
"""The end of a current row's period: the greatest TIMESTAMP, which is the second value from MariaDB 11.5 on."""
HIDDEN = ("row_start", "row_end")
HASH = Column("DB_ROW_HASH_1", "bigint", "bigint(20) unsigned", True, None, None, None, "virtual generated")
VERSIONED = ("WITH", "SYSTEM", "VERSIONING")
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
    table = parsed(create_sql)
    if not any(True for _ in outside(table.tokens, *VERSIONED)):
        return None
    for item in table.others:
        if begins_at(item, 0, "PERIOD", "FOR", "SYSTEM_TIME"):
            start, end = (token.name for token in item if token.kind is TokenKind.QUOTED)
            return Period(start, end, tuple(column[0].name for column in table.columns.values()))
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
    table = parsed(create_sql)
    return edited(table.text, {(start, end, "") for start, end in _left_out(table, period)})


def _left_out(table: ParsedTable, period: Period) -> Iterator[tuple[int, int]]:
    """Yield the spans about versioning: columns, period, parts of keys, options, partitions of history."""
    own = (period.start, period.end) if period.shown else ()
    for comma, item in table.items:
        is_column = item[0].kind is TokenKind.QUOTED
        if comma is not None and ((is_column and item[0].name in own) or begins_at(item, 0, "PERIOD", "FOR")):
            yield comma.start, item[-1].end
        elif is_column:
            yield from _phrases(item)
        else:  # the server has added the end of the period after the key's own columns
            pairs = (pair for pair in pairwise(item) if pair[0].word == "," and pair[1].kind is TokenKind.QUOTED)
            yield from ((comma.start, token.end) for comma, token in pairs if token.name in own)
    tokens = table.tokens
    for position in outside(tokens, *VERSIONED):
        yield tokens[position - 1].end, tokens[position + 2].end
    for position in outside(tokens, "PARTITION", "BY", "SYSTEM_TIME"):
        yield tokens[position - 1].end, [t for t in tokens if t.raw][-1].end


def _phrases(item: Item) -> Iterator[tuple[int, int]]:
    """Yield the spans of WITH and WITHOUT SYSTEM VERSIONING of a column."""
    for position in range(1, len(item) - 2):
        if item[position].word in ("WITH", "WITHOUT") and begins_at(item, position + 1, "SYSTEM", "VERSIONING"):
            yield item[position - 1].end, item[position + 2].end


def with_hashes(schema: TableSchema, columns: int) -> TableSchema:
    """Return the structure of rows with this number of columns: with the hash columns if that explains the number.

    Other servers, and engines with their own hash indexes, have such keys without hash columns.
    """
    lacking = columns - len(schema.columns)
    if lacking <= 0 or lacking != hashed_keys(schema.create_sql):
        return schema
    own = {name.upper() for name in schema.names}
    names = (name for name in (f"DB_ROW_HASH_{number}" for number in count(1)) if name not in own)
    hashes = (replace(HASH, name=name) for name in islice(names, lacking))
    return replace(schema, columns=(*schema.columns, *hashes))


@lru_cache(1024)
def hashed_keys(create_sql: str) -> int:
    """Return the number of unique keys by hash in SHOW CREATE TABLE."""
    if "USING HASH" not in create_sql:
        return 0
    keys = (key for key in parsed(create_sql).indexes if key.kind == "UNIQUE")
    return sum(any(begins_at(key.options, at, "USING", "HASH") for at in range(len(key.options))) for key in keys)


def with_stored_values(structure: TableSchema) -> TableSchema:
    """Return the structure with STORED columns as plain ones: row images have their values.

    Values of VIRTUAL columns are not in every row image.
    """
    stored = {column.name for column in structure.columns if column.is_generated and "virtual" not in column.extra}
    if not stored:
        return structure
    columns = (replace(column, extra="") if column.name in stored else column for column in structure.columns)
    return replace(structure, columns=tuple(columns))
