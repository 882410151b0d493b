"""Chunks: ranges of a table's key that are dumped, loaded and repeated one by one.

A table is cut along its key only where reading it in pieces at different moments is harmless: when one
usable key identifies a row and no other unique index exists, so that the binlog, applied by that key from
before the first piece on, brings every row to the same end. All other tables are one piece.

Bounds are values found by walking the key, so skewed, composite and text keys give even chunks. The server
compares them in the column's own collation. ENUM and SET sort by number but compare with a literal as
text, so the walk uses only the columns of the key before the first of these.
"""

from collections.abc import Iterable
from itertools import takewhile

from unshard.core.keyrange import KeyRange, condition
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.quoting import identifier, qualified

Key = tuple[bytes, ...]


def is_chunked(schema: TableSchema) -> bool:
    """Whether pieces of the table may be read at different moments."""
    return bool(schema.key) and len(schema.unique_indexes) == 1


def walked_columns(schema: TableSchema) -> tuple[Column, ...]:
    """Return the columns along which the table is cut; none when it stays one piece."""
    if not is_chunked(schema):
        return ()
    key = (schema.column(name) for name in schema.key)
    return tuple(takewhile(lambda column: column.data_type not in ("enum", "set"), key))


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
