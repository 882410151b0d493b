"""Chunks: ranges of a table's key that are dumped, loaded and repeated one by one.

A table is cut along its key only where reading it in pieces at different moments is harmless. When one usable key
identifies a row and no other unique index exists, the binlog, applied by that key from before the first piece on,
brings every row to the same end. With other unique indexes two pieces may bring two rows with one value, which has
moved between them meanwhile. Only one of them can be loaded; the other one is left to the binlog, which has a change
of both (docs/adr/0007). All other tables are one piece.

Bounds are values found by walking the key, so skewed, composite and text keys give even chunks. The server
compares them in the column's own collation. ENUM and SET sort by number but compare with a literal as
text, so the walk uses only the columns of the key before the first of these.
"""

from collections.abc import Iterable
from itertools import takewhile

from unshard.core.keyrange import KeyRange, condition
from unshard.core.literals import INTEGERS
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.quoting import identifier, qualified
from unshard.core.uniquekeys import UniqueKey, unique_keys

Key = tuple[bytes, ...]


def is_chunked(schema: TableSchema) -> bool:
    """Whether pieces of the table may be read at different moments, whatever its target is like."""
    return bool(schema.key) and len(schema.unique_indexes) == 1


def may_leave_rows(schema: TableSchema, target: TableSchema) -> bool:
    """Whether rows of one shard can meet in the target only if they have changed since the dump began.

    That is so when every unique key of the target is one of the shard, too: no two of its rows have the same value at
    any one moment.
    """
    own = unique_keys(schema)
    return bool(target.key) and all(
        any(_implies(schema, one, target, wanted) for one in own) for wanted in unique_keys(target)
    )


def walked_columns(schema: TableSchema) -> tuple[Column, ...]:
    """Return the columns along which the table can be cut; none when it has to stay one piece."""
    key = (schema.column(name) for name in schema.key)
    return tuple(takewhile(lambda column: column.data_type not in ("enum", "set"), key))


def _implies(schema: TableSchema, own: UniqueKey, target: TableSchema, wanted: UniqueKey) -> bool:
    """Whether rows that differ in a unique key of a shard differ in that of the target."""
    lengths = {name.lower(): length for name, length in zip(wanted.columns, wanted.lengths, strict=True)}
    return not any(target.column(name).is_generated for name in wanted.columns) and all(
        name.lower() in lengths
        and _counts_as_much(length, lengths[name.lower()])
        and _compares_alike(schema.column(name), target.column(name))
        for name, length in zip(own.columns, own.lengths, strict=True)
    )


def _counts_as_much(own: int | None, wanted: int | None) -> bool:
    return wanted is None or (own is not None and own <= wanted)


def _compares_alike(given: Column, wanted: Column) -> bool:
    if given.data_type in INTEGERS:
        return wanted.data_type in INTEGERS
    is_same = (given.data_type, given.collation) == (wanted.data_type, wanted.collation)
    return is_same and given.data_type not in ("float", "double")


def key_index(schema: TableSchema) -> str:
    """Return the name of the index that the key comes from."""
    return next(index.name for index in schema.unique_indexes if index.columns == schema.key)


def next_bound(table: TableId, schema: TableSchema, lower: Key | None, rows: int) -> str:
    """Return the query for the key of the last row of a chunk that begins behind `lower`."""
    columns = walked_columns(schema)
    names = ", ".join(identifier(column.name) for column in columns)
    return (
        f"SELECT {names} FROM {qualified(table.schema, table.name)} FORCE INDEX ({identifier(key_index(schema))})"  # noqa: S608
        f" WHERE {condition(columns, KeyRange(lower))} ORDER BY {names} LIMIT 1 OFFSET {rows - 1}"
    )


def ranges(bounds: Iterable[Key]) -> tuple[KeyRange, ...]:
    """Return the chunks that the bounds make: without a gap, the first and the last open-ended."""
    cuts = [None, *bounds, None]
    return tuple(map(KeyRange, cuts, cuts[1:]))


def pack_key(key: Key | None) -> list[str] | None:
    """Return a bound as JSON holds it."""
    return None if key is None else [value.hex() for value in key]


def unpack_key(packed: list[str] | None) -> Key | None:
    """Return the bound that `pack_key` packed."""
    return None if packed is None else tuple(map(bytes.fromhex, packed))
