"""MariaDB's unique keys by hash, for keys that an index cannot store: of TEXT or BLOB, too long, or made USING HASH.

The server stores a hash of their values in a hidden column, which is visible only in the row events of the binlog.
There is one such column for each such key, after all other columns.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count, islice, pairwise

from unshard.core.model import Column, TableSchema
from unshard.core.sql.tokens import MARIADB, tokenize
from unshard.core.structures.createtext import items

HASH = Column("DB_ROW_HASH_1", "bigint", "bigint(20) unsigned", True, None, None, None, "virtual generated")


def with_hashes(schema: TableSchema, columns: int) -> TableSchema:
    """Return the structure of rows with this number of columns: with the hash columns if that explains the number.

    Other servers, and engines with their own hash indexes, have such keys without hash columns.
    """
    lacking = columns - len(schema.columns)
    if lacking <= 0 or lacking != hashed_keys(schema.create_sql):
        return schema
    return replace(schema, columns=(*schema.columns, *_hashes(schema.names, lacking)))


@lru_cache(1024)
def hashed_keys(create_sql: str) -> int:
    """Return the number of unique keys by hash in SHOW CREATE TABLE."""
    if "USING HASH" not in create_sql:
        return 0
    keys = ([token.word for token in item] for _, item in items(tokenize(create_sql, 0, MARIADB)[1]))
    return sum(key[0] == "UNIQUE" and ("USING", "HASH") in pairwise(key) for key in keys)


def _hashes(taken: Sequence[str], wanted: int) -> tuple[Column, ...]:
    """Return the hash columns; a name that the table uses itself is skipped."""
    names = (f"DB_ROW_HASH_{number}" for number in count(1))
    own = {name.upper() for name in taken}
    free = (name for name in names if name not in own)
    return tuple(replace(HASH, name=name) for name in islice(free, wanted))
