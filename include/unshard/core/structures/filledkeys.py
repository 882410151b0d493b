"""Which keys of a target find the rows of its shards, if the target has columns of its own.

A shard's row can be found by a unique key of the target only if the shards fill all its columns. A column of its own (a
surrogate key by AUTO_INCREMENT, for example) gets its value from the target.

| the target has                                  | a row is found by                                             |
|-------------------------------------------------|---------------------------------------------------------------|
| a usable key that the shards fill               | this key                                                      |
| no such key, an index with the shard's key      | all its values; the index makes this fast                     |
| neither                                         | all its values, in a scan of the table: rejected at the start |

A changed row keeps the values of the target's own columns (adapters/target/completing.py).
"""

from collections.abc import Collection
from dataclasses import replace

from unshard.core.model import Column, Index, TableSchema


def as_filled(target: TableSchema, filled: Collection[str]) -> TableSchema:
    """Return the structure with its own columns marked; `filled` are the others, in lower case."""
    own = tuple(c.name.lower() for c in target.columns if not c.is_generated and c.name.lower() not in filled)
    return replace(target, own=own)


def own_columns(target: TableSchema) -> tuple[Column, ...]:
    """Return the columns that only the target has, without generated ones; their values are read and written again.

    TiDB keeps any bytes in a latin1 column, and CONVERT would replace those that are not UTF-8. So their text has the
    column's own character set. GBK text is always valid there, and TiDB refuses the introducer `_gbk`.
    """
    columns = (column for column in target.written if column.name.lower() in target.own)
    return tuple(replace(column, sent_as=None) if column.charset == "latin1" else column for column in columns)


def finding_index(target: TableSchema, key: Collection[str], filled: Collection[str]) -> Index | None:
    """Return an index that begins with the key of the shards; columns that the shards fill may precede it."""
    wanted = {name.lower() for name in key}
    return next((index for index in target.indexes if wanted and _begins_with(index, wanted, filled)), None)


def _begins_with(index: Index, wanted: Collection[str], filled: Collection[str]) -> bool:
    left = set(wanted)
    for name in index.columns:
        if not left or name.lower() not in filled:
            break
        left.discard(name.lower())
    return not left
