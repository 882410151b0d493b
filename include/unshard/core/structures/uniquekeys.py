"""The unique keys of a table: their columns, prefix lengths and expressions, and when two values are equal in a key."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from unshard.core.model import Column, Index, TableSchema
from unshard.core.sql import charsets
from unshard.core.sql.literals import INTEGERS, TEXTS, literal
from unshard.core.sql.quoting import identifier, quoted_names, replace_names
from unshard.core.structures.generated import generation
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
    """The parts that are expressions."""
    read: tuple[str, ...] = ()
    """The columns that only expressions and generated columns name."""
    generated: tuple[tuple[str, str, bool], ...] = ()
    """The parts that are generated columns: SQL of the part, that of its value from the columns that shards fill, and
    whether case does not count in it.
    """

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns whose values decide whether two rows collide."""
        return self.columns + self.read

    @property
    def computed(self) -> tuple[tuple[str, str, bool], ...]:
        """The parts that the server computes, as in `generated`; the collation of an expression is not known."""
        return (*((text, text, False) for text in self.expressions), *self.generated)

    @property
    def has_array(self) -> bool:
        """Whether it is a multi-valued index: a row has several values."""
        return any(_ARRAY.fullmatch(text) for text in self.expressions)

    def values(self, columns: Sequence[Column], values: Sequence[bytes | None]) -> Iterator[tuple[str, str]]:
        """Yield the SQL of each computed part, and that of its value for these values of `needed`."""
        literals = {column.name.lower(): literal(column, value) for column, value in zip(columns, values, strict=True)}
        for part, value, _ in self.computed:
            yield part, replace_names(value, lambda name: literals[name.lower()])


def unique_keys(schema: TableSchema) -> tuple[UniqueKey, ...]:
    """Return all unique keys of a structure."""
    return tuple(_unique_key(schema, index) for index in schema.unique_indexes)


def conditions(key: UniqueKey, columns: Sequence[Column], values: Sequence[bytes | None]) -> Iterator[str]:
    """Yield the conditions for rows that collide with these values of `key.needed`."""
    for column, value, length in zip(columns, values, key.lengths, strict=False):
        yield equals(column, value, length)
    for own, other in key.values(columns, values):
        both = _ARRAY.fullmatch(own), _ARRAY.fullmatch(other)
        yield f"JSON_OVERLAPS({both[0][1]}, {both[1][1]})" if both[0] and both[1] else f"{own} = {other}"


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
    plain = [name for name in index.columns if name not in expressions]
    found = generation(schema.create_sql)
    made = {name: found[name] for c in schema.columns if c.is_generated and (name := c.name.lower()) in found}
    columns = tuple(name for name in plain if name.lower() not in made)
    generated = tuple(
        _generated(schema.column(name), made, lengths.get(name)) for name in plain if name.lower() in made
    )
    expressions = [_by_filled(text, made) for text in expressions]
    named = {
        name.lower() for text in (*expressions, *(value for _, value, _ in generated)) for name in quoted_names(text)
    }
    read = (column.name for column in schema.columns if column.name.lower() in named and column.name not in columns)
    return UniqueKey(columns, tuple(map(lengths.get, columns)), tuple(expressions), tuple(read), generated)


def _generated(column: Column, made: Mapping[str, str], length: int | None) -> tuple[str, str, bool]:
    """Return a part that is a generated column."""
    value = _by_filled(made[column.name.lower()], made)
    kind = "SIGNED" if column.data_type in INTEGERS and not column.is_unsigned else "UNSIGNED"
    if column.data_type in INTEGERS:
        value = f"CAST({value} AS {kind})"
    elif column.data_type in ("decimal", "date", "datetime", "time"):
        value = f"CAST({value} AS {column.column_type.split(' ')[0]})"
    is_folded = column.data_type in TEXTS and not (column.collation or "").endswith("bin")
    if length is not None:
        return f"LEFT({identifier(column.name)}, {length})", f"LEFT({value}, {length})", is_folded
    return identifier(column.name), value, is_folded


def _by_filled(text: str, made: Mapping[str, str]) -> str:
    """Return an expression with the expressions of the generated columns that it names in their place."""
    return replace_names(
        text, lambda name: _by_filled(made[name.lower()], made) if name.lower() in made else identifier(name)
    )
