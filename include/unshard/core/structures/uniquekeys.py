"""The unique keys of a table: their columns, prefix lengths and expressions, and when two values are equal in a key."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unshard.core.model import Column, Index, TableSchema
from unshard.core.sql import charsets
from unshard.core.sql.literals import TEXTS, literal
from unshard.core.sql.quoting import identifier, quoted_names, replace_names
from unshard.core.structures.indexparts import index_parts

_ARRAY = re.compile(r"\(?cast\((.*) as .+ array\)\)?", re.IGNORECASE | re.DOTALL)
"""A part of a multi-valued index: rows collide if their arrays have a common value."""


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A unique index."""

    columns: tuple[str, ...]
    """The parts that are columns."""
    lengths: tuple[int | None, ...]
    """Their prefix lengths in characters or bytes; None: the whole value."""
    expressions: tuple[str, ...] = ()
    """The other parts."""
    read: tuple[str, ...] = ()
    """The columns that only the expressions name."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns whose values decide whether two rows collide."""
        return self.columns + self.read


def unique_keys(schema: TableSchema) -> tuple[UniqueKey, ...]:
    """Return all unique keys of a structure."""
    return tuple(_unique_key(schema, index) for index in schema.unique_indexes)


def conditions(key: UniqueKey, columns: Sequence[Column], values: Sequence[bytes | None]) -> Iterator[str]:
    """Yield the conditions for rows that collide with these values of `key.needed`."""
    literals = {column.name.lower(): literal(column, value) for column, value in zip(columns, values, strict=True)}
    for column, value, length in zip(columns, values, key.lengths, strict=False):
        yield equals(column, value, length)
    for expression in key.expressions:
        array = _ARRAY.fullmatch(expression)
        own = array[1] if array else expression
        other = replace_names(own, lambda name: literals[name.lower()])
        yield f"JSON_OVERLAPS({own}, {other})" if array else f"{own} = {other}"


def equals(column: Column, value: bytes | None, length: int | None) -> str:
    """Return the condition for rows that have this value in a key column."""
    name, text = identifier(column.name), literal(column, value)
    return f"{name} = {text}" if length is None else f"LEFT({name}, {length}) = LEFT({text}, {length})"


def alike(column: Column, value: bytes, length: int | None) -> str | bytes:
    """Return a key that is equal for values that are equal in an index; approximate: only servers know collations."""
    charset = column.encoding
    if column.data_type not in TEXTS or not charset or charset == "binary":
        return value[:length]
    try:
        text = charsets.decode(value, charset)[:length]
    except UnicodeError:
        return value[:length]
    collation = column.collation or ""
    if not collation.endswith("_bin"):
        plain = unicodedata.normalize("NFKD", text.casefold())
        text = "".join(character for character in plain if not unicodedata.combining(character))
    return text if "nopad" in collation else text.rstrip(" ")


def _unique_key(schema: TableSchema, index: Index) -> UniqueKey:
    parts = index_parts(schema.create_sql, index.name) if index.prefixed else ()
    lengths, expressions = {part.text: part.length for part in parts}, [p.text for p in parts if p.is_expression]
    columns = tuple(name for name in index.columns if name not in expressions)
    named = {name.lower() for text in expressions for name in quoted_names(text)}
    read = (column.name for column in schema.columns if column.name.lower() in named and column.name not in columns)
    return UniqueKey(columns, tuple(map(lengths.get, columns)), tuple(expressions), tuple(read))
