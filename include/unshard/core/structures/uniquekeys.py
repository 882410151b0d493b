"""The unique keys of a table: their columns and prefix lengths, and when two values are equal in a key."""

import re
import unicodedata
from dataclasses import dataclass
from itertools import zip_longest

from unshard.core.model import Column, Index, TableSchema
from unshard.core.sql import charsets
from unshard.core.sql.literals import TEXTS, literal
from unshard.core.sql.quoting import identifier

_PART = re.compile(r"`(?:[^`]|``)+`(?:\((\d+)\))?")


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A unique index; `lengths` are the prefix lengths of the columns in characters or bytes, None: the whole value."""

    columns: tuple[str, ...]
    lengths: tuple[int | None, ...]


def unique_keys(schema: TableSchema) -> tuple[UniqueKey, ...]:
    """Return all unique keys of a structure."""
    return tuple(UniqueKey(index.columns, _lengths(schema, index)) for index in schema.unique_indexes)


def equals(column: Column, value: bytes, length: int | None) -> str:
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


def _lengths(schema: TableSchema, index: Index) -> tuple[int | None, ...]:
    if not index.prefixed:
        return (None,) * len(index.columns)
    head = "PRIMARY KEY" if index.name == "PRIMARY" else f"UNIQUE KEY {identifier(index.name)}"
    line = next((each for each in schema.create_sql.splitlines() if each.strip().startswith(head)), "")
    found = [int(digits) if digits else None for digits in _PART.findall(line.strip().removeprefix(head))]
    return tuple(length for _, length in zip_longest(index.columns, found[: len(index.columns)]))
