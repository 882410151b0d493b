"""MariaDB's unique keys that no index can hold: of a TEXT or BLOB, of too many bytes, or made USING HASH.

The server keeps a hash of their values in a column that nothing shows but the rows of the binlog: it stands behind all
others there, one for each such key.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count, islice, pairwise

from unshard.core.ddlcreate import items
from unshard.core.ddltokens import MARIADB, tokenize
from unshard.core.model import Column, TableSchema

HASH = Column("DB_ROW_HASH_1", "bigint", "bigint(20) unsigned", True, None, None, None, "virtual generated")


def with_hashes(schema: TableSchema, columns: int) -> TableSchema:
    """Return the structure of rows that have so many columns: with its hashes, if that is what it lacks.

    Other servers, and engines with hash indexes of their own, keep the same keys without.
    """
    lacking = columns - len(schema.columns)
    if lacking <= 0 or lacking != hashed_keys(schema.create_sql):
        return schema
    return replace(schema, columns=(*schema.columns, *_hashes(schema.names, lacking)))


@lru_cache(1024)
def hashed_keys(create_sql: str) -> int:
    """Return the number of unique keys that are made by hash, by SHOW CREATE TABLE."""
    if "USING HASH" not in create_sql:
        return 0
    keys = ([token.word for token in item] for _, item in items(tokenize(create_sql, 0, MARIADB)[1]))
    return sum(key[0] == "UNIQUE" and ("USING", "HASH") in pairwise(key) for key in keys)


def _hashes(taken: Sequence[str], wanted: int) -> tuple[Column, ...]:
    """Return the columns; a name that the table has itself is passed over."""
    names = (f"DB_ROW_HASH_{number}" for number in count(1))
    own = {name.upper() for name in taken}
    free = (name for name in names if name not in own)
    return tuple(replace(HASH, name=name) for name in islice(free, wanted))
