"""What rows are written into, what became of them, and how messages show them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from unshard.adapters.target.lines import values_of
from unshard.core.model import Column, TableId


class Mode(StrEnum):
    """What happens to a row whose key is in the table already."""

    PLAIN = "plain"
    """It is skipped and counted."""
    REPLACE = "replace"
    """It takes the place of every row that it collides with."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A table and those of its columns that lines hold, in the order of the line."""

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """What identifies a row in messages."""

    def only(self, numbers: Sequence[int]) -> "Destination":
        """Return the same table with only some of the columns."""
        return Destination(self.table, tuple(self.columns[number] for number in numbers), self.key)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What became of the rows sent."""

    sent: int = 0
    skipped: int = 0
    """Rows that were not written, because their key was taken (plain mode only)."""
    replaced: int = 0
    """Rows that had to go for those sent (replace mode only)."""
    duplicates: tuple[str, ...] = ()
    """The server's words for the first of the skipped rows."""

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
