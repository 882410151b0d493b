"""The keys of tables: which keys of a target find the rows of its shards, and which rows collide in a unique key.

A shard's row can be found by a unique key of the target only if the shards fill all its columns. A column of its own (a
surrogate key by AUTO_INCREMENT, for example) gets its value from the target.

| the target has                                  | a row is found by                                             |
|-------------------------------------------------|---------------------------------------------------------------|
| a usable key that the shards fill               | this key                                                      |
| no such key, an index with the shard's key      | all its values; the index makes this fast                     |
| neither                                         | all its values, in a scan of the table: rejected at the start |

A changed row keeps the values of the target's own columns (adapters/target/completing.py).
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from unshard.core.model import Column, Index, Shard, TableSchema
from unshard.core.sql import charsets
from unshard.core.sql.literals import INTEGERS, TEXTS, literal
from unshard.core.sql.quoting import identifier, quoted_names, replace_names
from unshard.core.structures.parsedtable import generation, index_parts

_ARRAY = re.compile(r"\(?cast\((.*) as .+ array\)\)?", re.IGNORECASE | re.DOTALL)
"""A part of a multi-valued index: rows collide if their arrays have a common value."""


def as_filled(target: TableSchema, filled: Collection[str]) -> TableSchema:
    """Return the structure with its own columns marked; `filled` are the others, in lower case."""
    columns = target.by_name.items()
    return replace(target, own=tuple(name for name, each in columns if not each.is_generated and name not in filled))


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


@dataclass(frozen=True, slots=True)
class SharedKey:
    """Columns of a unique key of the target, and shards whose rows collide if they have equal values in them."""

    columns: tuple[str, ...]
    """Without the columns that routes extract: they have equal values for all these shards."""
    shards: tuple[Shard, ...]


def shared_keys(
    target: TableSchema,
    shards: Mapping[Shard, TableSchema],
    constants: Mapping[Shard, Mapping[str, str]],
    mapped: Collection[str],
) -> tuple[SharedKey, ...]:
    """Return the keys to compare, each with at least two shards that have an index for it.

    `constants` are the extracted values by lower-case column. Keys with a `mapped` column are left out: their values
    are not those of the shards.
    """
    filled = {name for schema in shards.values() for name in schema.by_name}
    filled |= {name for values in constants.values() for name in values}
    groups: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], list[Shard]] = {}
    for index in as_filled(target, filled).unique_indexes:
        names = [name.lower() for name in index.columns]
        for shard, schema in shards.items():
            values = constants.get(shard, {})
            columns = tuple(name for name in names if name not in values)
            if not {*names} & {*mapped} and leading_index(schema, columns) is not None:
                same = tuple((name, values[name]) for name in names if name in values)
                groups.setdefault((columns, same), []).append(shard)
    return tuple(SharedKey(columns, tuple(some)) for (columns, _), some in groups.items() if len(some) > 1)


def leading_index(schema: TableSchema, columns: Collection[str]) -> Index | None:
    """Return an index of the shard that begins with one of the columns; None if the shard lacks one of them."""
    if not columns or not schema.by_name.keys() >= {*columns}:
        return None
    found = [index for index in schema.indexes if index.columns[0].lower() in columns and not index.prefixed]
    return min(found, key=lambda index: (not index.unique, index.name != "PRIMARY"), default=None)


def may_share_key(target: TableSchema, key: Collection[str]) -> bool:
    """Whether a unique key of the target consists of these columns only, so that no other column separates shards."""
    own = {name.lower() for name in key}
    return any(own.issuperset(name.lower() for name in index.columns) for index in target.unique_indexes)


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A unique index."""

    columns: tuple[str, ...]
    lengths: tuple[int | None, ...]
    """Their prefix lengths in characters or bytes; None: the whole value."""
    expressions: tuple[str, ...] = ()
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
        name, text = identifier(column.name), literal(column, value)
        yield f"{name} = {text}" if length is None else f"LEFT({name}, {length}) = LEFT({text}, {length})"
    for own, other in key.values(columns, values):
        array = array_of(own)
        yield f"JSON_OVERLAPS({array}, {array_of(other)})" if array else f"{own} = {other}"


def array_of(text: str) -> str:
    """Return the JSON array whose elements a part of a multi-valued index has; empty for another part."""
    found = _ARRAY.fullmatch(text)
    return found[1] if found else ""


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
    made = {name: found[name] for name, each in schema.by_name.items() if each.is_generated and name in found}
    columns = tuple(name for name in plain if name.lower() not in made)
    generated = tuple(
        _generated(schema.column(name), made, lengths.get(name)) for name in plain if name.lower() in made
    )
    expressions = [_by_filled(text, made) for text in expressions]
    named = {
        name.lower() for text in (*expressions, *(value for _, value, _ in generated)) for name in quoted_names(text)
    }
    read = (each.name for name, each in schema.by_name.items() if name in named and each.name not in columns)
    return UniqueKey(columns, tuple(map(lengths.get, columns)), tuple(expressions), tuple(read), generated)


def _generated(column: Column, made: Mapping[str, str], length: int | None) -> tuple[str, str, bool]:
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
