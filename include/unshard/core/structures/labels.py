"""Reads the labels of ENUM and SET from the column type that information_schema prints."""

import re

from unshard.core.model import Column, TableSchema
from unshard.core.sql.charsets import encode
from unshard.errors.rows import UnsupportedColumn

_LABEL = re.compile(r"'((?:[^']|'')*)'(,|\)$)")
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "Z": "\x1a"}
_LABELS = re.compile(r"((?:^|\n)  `(?:[^`]|``)*` |^)((?:enum|set)\((?:'(?:[^']|'')*'[,)])+)")
"""The labels in a column type, and in a line of SHOW CREATE TABLE."""
_LITERAL_BACKSLASH = re.compile(r"\\(?![0nr])")
_CONTROL, _BEFORE_LETTER = re.compile(r"\\[0nr]"), re.compile(r"\\\\[0nr]")


def as_escaped(text: str) -> str:
    r"""Return a text that TiDB prints with the escapes of other servers: TiDB prints a backslash in a label as it is.

    It prints zero bytes and ends of lines as `\0`, `\n` and `\r`, so a backslash before these letters is lost.
    """
    return _LABELS.sub(lambda found: found[1] + _LITERAL_BACKSLASH.sub(r"\\\\", found[2]), text)


def is_ambiguous(printed: TableSchema, statements: str) -> bool:
    """Whether a label of a structure that TiDB has printed may have a backslash before one of these letters."""
    labels = (column.column_type for column in printed.columns if column.data_type in ("enum", "set"))
    return any(map(_CONTROL.search, labels)) and bool(_BEFORE_LETTER.search(statements))


def read_labels(column_type: str) -> tuple[str, ...]:
    """Return the labels of `enum('a','b')` in order; raises ValueError if the text has another form."""
    labels, offset = [], column_type.index("(") + 1
    while offset < len(column_type):
        found = _LABEL.match(column_type, offset)
        if not found:
            raise ValueError(f"unreadable labels: {column_type}")
        labels.append(_ESCAPED.sub(lambda each: _ESCAPES.get(each[1], each[1]) if each[1] else "'", found[1]))
        offset = found.end()
    return tuple(labels)


def encoded_labels(column: Column, shard: str) -> tuple[bytes, ...]:
    """Return the labels as bytes in the column's own charset."""
    try:
        return tuple(encode(label, column.charset or "utf8mb4") for label in read_labels(column.column_type))
    except (UnicodeEncodeError, ValueError) as error:
        raise UnsupportedColumn(shard, column.name, f"labels in {column.charset}: {error}") from error
