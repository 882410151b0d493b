"""Decides which structures may be merged: shards with each other, and shards with an existing target.

The order of columns, defaults, comments and non-unique indexes may differ: rows are written by column name and with
every value. Different names of the same type in different server versions are equal: MySQL prints `int` for `int(11)`
since 8.0.19, `year` for `year(4)`, and `utf8mb3_bin` for `utf8_bin` since 8.0.30, as MariaDB does since 10.6.
"""

import re
from collections.abc import Collection, Sequence
from itertools import zip_longest

from unshard.core.model import Column, TableSchema
from unshard.core.sql.charsets import canonical
from unshard.core.structures.filledkeys import as_filled, finding_index

DISPLAY_WIDTH = re.compile(r"^((?:tiny|small|medium|big)?int|year)\(\d+\)")


def structure_differences(first: TableSchema, other: TableSchema) -> tuple[str, ...]:
    """Return the differences between two shards of one target; empty if they may be merged."""
    mine, theirs = _columns(first), _columns(other)
    found = [f"only the first has column {mine[name].name}" for name in mine if name not in theirs]
    found += [f"only the second has column {theirs[name].name}" for name in theirs if name not in mine]
    for name in mine:
        if name in theirs and (own := _described(mine[name])) != (others := _described(theirs[name])):
            found.append(f"column {mine[name].name} is {own} and {others}")
    if _lower(first.key) != _lower(other.key):
        found.append(f"the key is ({', '.join(first.key)}) and ({', '.join(other.key)})")
    return tuple(found)


def order_differences(before: TableSchema, after: TableSchema) -> str:
    """Return the first column in which two structures of a shard differ; empty: rows of both are read alike."""
    pairs = zip_longest(*([f"{c.name.lower()} {_described(c)}" for c in schema.columns] for schema in (before, after)))
    different = ((number, one, other) for number, (one, other) in enumerate(pairs, 1) if one != other)
    return next((f"column {n} was {one or 'none'} and is {other or 'none'}" for n, one, other in different), "")


def has_all_of(target: TableSchema, shard: TableSchema) -> bool:
    """Whether a target has the columns of a shard with the same types, its key and its unique indexes."""
    there, wanted = _columns(target), _columns(shard)
    are_there = all(name in there and _described(there[name]) == _described(wanted[name]) for name in wanted)
    filled = as_filled(target, wanted.keys())
    unique = {frozenset(_lower(index.columns)) for index in filled.unique_indexes}
    return (
        are_there
        and _lower(filled.key) == _lower(shard.key)
        and all(frozenset(_lower(index.columns)) in unique for index in shard.unique_indexes)
    )


def unfit_reasons(target: TableSchema, shard: TableSchema, extracted: Collection[str] = ()) -> tuple[str, ...]:
    """Return why rows of the shard cannot be written to the target; `extracted` are columns that its route fills."""
    there = _columns(target)
    found = [f"it lacks column {column.name}" for column in shard.written if column.name.lower() not in there]
    wanted = _columns(shard)
    for name, column in there.items():
        if column.is_generated and name in wanted and not wanted[name].is_generated:
            found.append(f"its column {column.name} is generated, a shard's is not")
    return (*found, *foreign_reasons(target, shard.key, {*wanted, *extracted}))


def foreign_reasons(target: TableSchema, key: Sequence[str], filled: Collection[str]) -> tuple[str, ...]:
    """Return what the target alone has and what rejects rows; `filled` are its columns that get a value, in lower case.

    `key` is that of a shard.
    """
    alone = (column for column in target.columns if column.name.lower() not in filled)
    found = [f"its column {column.name} needs a value that no shard has" for column in alone if _needs_value(column)]
    if key and not as_filled(target, filled).key and not finding_index(target, key, filled):
        found.append(
            f"it has neither a key of columns that its shards fill, nor an index that begins with their key"
            f" ({', '.join(key)})"
        )
    return tuple(found)


def _columns(schema: TableSchema) -> dict[str, Column]:
    return {column.name.lower(): column for column in schema.columns}


def _described(column: Column) -> str:
    collation = f"collate {canonical(column.collation)}" if column.collation else ""
    words = [
        DISPLAY_WIDTH.sub(r"\1", column.column_type),
        collation,
        "" if column.nullable else "not null",
        "generated" if column.is_generated else "",
    ]
    return " ".join(filter(None, words))


def _needs_value(column: Column) -> bool:
    optional = column.nullable or column.default is not None or column.is_generated or column.is_numbered
    return not optional


def _lower(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)
