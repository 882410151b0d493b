"""The differences between two structures, as phrases for messages."""

from collections.abc import Iterator

from unshard.core.model import Column, Index, TableSchema


def differences(one: TableSchema, other: TableSchema) -> tuple[str, ...]:
    """Return the differences of `other` from `one`; empty if their shapes are equal."""
    return (*_columns(one, other), *_indexes(one, other), *_collation(one, other))


def missing_columns(wanted: TableSchema, found: TableSchema) -> tuple[str, ...]:
    """Return the written columns of `wanted` that `found` does not have; names ignore case."""
    names = {name.lower() for name in found.names}
    return tuple(column.name for column in wanted.written if column.name.lower() not in names)


def _columns(one: TableSchema, other: TableSchema) -> Iterator[str]:
    mine = {column.name: column for column in one.columns}
    theirs = {column.name: column for column in other.columns}
    yield from (f"column {name} is missing" for name in mine if name not in theirs)
    yield from (f"column {name} is extra" for name in theirs if name not in mine)
    for name in mine.keys() & theirs.keys():
        if mine[name] != theirs[name]:
            yield f"column {name} is {_described(theirs[name])} instead of {_described(mine[name])}"
    if mine.keys() == theirs.keys() and one.names != other.names:
        yield f"columns come as {', '.join(other.names)} instead of {', '.join(one.names)}"


def _described(column: Column) -> str:
    words = [
        column.column_type,
        f"collate {column.collation}" if column.collation else "",
        "null" if column.nullable else "not null",
        f"default {column.default}" if column.default else "",
        column.extra,
    ]
    return " ".join(filter(None, words))


def _indexes(one: TableSchema, other: TableSchema) -> Iterator[str]:
    mine = {index.name: index for index in one.indexes}
    theirs = {index.name: index for index in other.indexes}
    yield from (f"index {name} is missing" for name in mine if name not in theirs)
    yield from (f"index {name} is extra" for name in theirs if name not in mine)
    for name in mine.keys() & theirs.keys():
        if mine[name] != theirs[name]:
            yield f"index {name} is {_parts(theirs[name])} instead of {_parts(mine[name])}"


def _parts(index: Index) -> str:
    kind = "unique " if index.unique else ""
    return f"{kind}({', '.join(index.columns)}){' with prefixes' if index.prefixed else ''}"


def _collation(one: TableSchema, other: TableSchema) -> Iterator[str]:
    if one.collation != other.collation:
        yield f"the default collation is {other.collation} instead of {one.collation}"
