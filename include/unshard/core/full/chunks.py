"""Chunks: ranges of a table's key that are dumped, loaded and repeated one by one.

A table is divided only if its chunks can safely be read at different times. If the table has one usable key and no
other unique index, and the target finds its rows by this key, too, this is safe: the binlog is applied by that key from
a location before the first chunk, so every row gets its final state. With other unique indexes, a value may move from
one row to another between the reading of two chunks, so that both rows have it. Only one of the rows can be loaded; the
other one is deferred to the binlog, which has a change of both (docs/adr/0007). All other tables are one chunk.

The bounds are found by walking along the key, so skewed, composite and text keys give chunks of equal size. The server
compares them in the column's own collation. ENUM and SET sort by number but compare with a literal as
text, so the walk uses only the key columns before the first of these.
"""

from collections.abc import Iterable
from itertools import takewhile

from unshard.core.model import Column, TableId, TableSchema
from unshard.core.sql.keyrange import KeyRange, condition
from unshard.core.sql.literals import INTEGERS
from unshard.core.sql.quoting import identifier, qualified
from unshard.core.structures.tablekeys import UniqueKey, unique_keys

Key = tuple[bytes, ...]


def is_chunked(schema: TableSchema) -> bool:
    """Whether chunks of the table may be read at different times, for a target with the same key."""
    return bool(schema.key) and len(schema.unique_indexes) == 1


def finds_alike(schema: TableSchema, target: TableSchema) -> bool:
    """Whether rows that differ in the shard's key also differ in each unique key of the target, which has a usable one.

    Otherwise chunks that were read at different times may hold two rows with one key of the target, and rows that are
    found by all their values must not come twice.
    """
    own = {name.lower() for name in schema.key}
    return bool(target.key) and all(own <= {name.lower() for name in i.columns} for i in target.unique_indexes)


def may_leave_rows(schema: TableSchema, target: TableSchema) -> bool:
    """Whether two rows of one shard can collide in the target only if one has changed since the dump began.

    This is true if every unique key of the target is also a unique key of the shard: then no two rows of the shard have
    the same value at the same time.
    """
    own = unique_keys(schema)
    return bool(target.key) and all(
        any(_implies(schema, one, target, wanted) for one in own) for wanted in unique_keys(target)
    )


def walked_columns(schema: TableSchema) -> tuple[Column, ...]:
    """Return the columns along which the table can be divided; empty if it must be one chunk."""
    key = (schema.column(name) for name in schema.key)
    return tuple(takewhile(lambda column: column.data_type not in ("enum", "set"), key))


def _implies(schema: TableSchema, own: UniqueKey, target: TableSchema, wanted: UniqueKey) -> bool:
    """Whether rows that differ in a unique key of a shard also differ in a unique key of the target."""
    if (
        own.generated
        or wanted.generated
        or not {*own.expressions} <= {*wanted.expressions}
        or not all(_compares_alike(schema.column(name), target.column(name)) for name in own.read)
    ):
        return False
    lengths = {name.lower(): length for name, length in zip(wanted.columns, wanted.lengths, strict=True)}
    return not any(target.column(name).is_generated for name in wanted.needed) and all(
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
    """Return the name of the index of the key."""
    return next(index.name for index in schema.unique_indexes if index.columns == schema.key)


def next_bound(table: TableId, schema: TableSchema, lower: Key | None, rows: int) -> str:
    """Return the query for the key of the last row of a chunk of `rows` rows that begins after `lower`."""
    columns = walked_columns(schema)
    names = ", ".join(identifier(column.name) for column in columns)
    index = identifier(key_index(schema))
    return (
        f"SELECT {names} FROM {qualified(table.schema, table.name)} FORCE INDEX ({index})"  # noqa: S608
        f" WHERE {condition(columns, KeyRange(lower))} ORDER BY {names} LIMIT 1 OFFSET {rows - 1}"
    )


def ranges_between(bounds: Iterable[Key]) -> tuple[KeyRange, ...]:
    """Return the chunks between the bounds, without gaps; the first and the last one are open-ended."""
    ends = [None, *bounds, None]
    return tuple(map(KeyRange, ends, ends[1:]))


def pack_key(key: Key | None) -> list[str] | None:
    """Return a bound in a form that JSON can store: hexadecimal digits."""
    return None if key is None else [value.hex() for value in key]


def unpack_key(packed: list[str] | None) -> Key | None:
    """Return the bound that `pack_key` has converted."""
    return None if packed is None else tuple(map(bytes.fromhex, packed))
