"""The table and columns that rows are written into, the result of writing, and values as messages show them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from unshard.adapters.target.rendering.lines import values_of
from unshard.core.model import Column, TableId


class Mode(StrEnum):
    """How to write a row whose key already exists in the table."""

    PLAIN = "plain"
    """The row is skipped and counted."""
    REPLACE = "replace"
    """The row replaces every row that it collides with."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A table and the columns that lines contain, in the order of the line."""

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns that identify a row in messages."""

    def only(self, numbers: Sequence[int]) -> "Destination":
        """Return the same table with only some of the columns, by index."""
        return Destination(self.table, tuple(self.columns[number] for number in numbers), self.key)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Result of sending rows."""

    sent: int = 0
    skipped: int = 0
    """Rows that were not written because their key was taken (plain mode only)."""
    replaced: int = 0
    """Existing rows that were deleted for those sent (replace mode only)."""
    duplicates: tuple[str, ...] = ()
    """The server's messages about the first skipped rows."""

    def __add__(self, other: "Loaded") -> "Loaded":
        return Loaded(
            self.sent + other.sent,
            self.skipped + other.skipped,
            self.replaced + other.replaced,
            (self.duplicates + other.duplicates)[:10],
        )


def is_blankable(column: Column) -> bool:
    """Whether '' in this column can only mean index 0 of an ENUM."""
    labels = re.findall(r"'((?:[^']|'')*)'", column.column_type)
    return column.data_type == "enum" and "" not in labels


def key_of(destination: Destination, line: bytes) -> str:
    """Return the key of a line as a message shows it: `id = 1, region = 'eu'`."""
    pairs = zip(destination.columns, values_of(line), strict=True)
    return ", ".join(shown(column, value) for column, value in pairs if column.name in destination.key)


def shown(column: Column, value: bytes | None) -> str:
    """Return a value as a message shows it."""
    text = "NULL" if value is None else value.decode("utf-8", "backslashreplace")[:60]
    return f"{column.name} = {text}"
