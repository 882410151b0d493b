"""Reads the labels of ENUM and SET from the column type that information_schema prints."""

import re

from unshard.core.model import Column
from unshard.core.sql.charsets import encode
from unshard.errors.rows import UnsupportedColumn

_LABEL = re.compile(r"'((?:[^']|'')*)'(,|\)$)")

_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "Z": "\x1a"}


def read_labels(column_type: str) -> tuple[str, ...]:
    """Return the labels of `enum('a','b')` in order; raises ValueError if the text has another form."""
    labels, offset = [], column_type.index("(") + 1
    while offset < len(column_type):
        found = _LABEL.match(column_type, offset)
        if not found:
            raise ValueError(f"unreadable labels: {column_type}")
        labels.append(_ESCAPED.sub(_meant, found[1]))
        offset = found.end()
    return tuple(labels)


def _meant(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[1], found[1]) if found[1] else "'"


def encoded_labels(column: Column, shard: str) -> tuple[bytes, ...]:
    """Return the labels as bytes in the column's own charset."""
    try:
        return tuple(encode(label, column.charset or "utf8mb4") for label in read_labels(column.column_type))
    except (UnicodeEncodeError, ValueError) as error:
        raise UnsupportedColumn(shard, column.name, f"labels in {column.charset}: {error}") from error
