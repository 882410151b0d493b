"""The table and columns that rows are written into, the result of writing, and values as messages show them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa

from unshard.adapters.target.rendering.lines import lines_of, values_of
from unshard.adapters.target.rendering.parameters import can_be_parameters, parameters_of, values_in
from unshard.core.model import Column, TableId


class Mode(StrEnum):
    """How to write a row whose key already exists in the table."""

    PLAIN = "plain"
    """The row is skipped and counted."""
    REPLACE = "replace"
    """The row replaces every row that it collides with."""


class Form(StrEnum):
    """The form of lines."""

    TEXT = "text of LOAD DATA"
    PARAMETERS = "parameters of COM_STMT_BULK_EXECUTE"


@dataclass(frozen=True, slots=True)
class Destination:
    """A table and the columns that lines contain, in the order of the line."""

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns that identify a row in messages."""
    form: Form = Form.TEXT

    def only(self, numbers: Sequence[int]) -> "Destination":
        """Return the same table with only some of the columns, by index."""
        return replace(self, columns=tuple(self.columns[number] for number in numbers))

    def in_form(self, form: Form) -> "Destination":
        """Return the same columns with lines of another form; some types have only the form of text."""
        return replace(self, form=form if can_be_parameters(self.columns) else Form.TEXT)

    def lines(self, values: Sequence[pa.Array]) -> pa.BinaryArray:
        """Render one line per row from the values of all columns."""
        return lines_of(values) if self.form is Form.TEXT else parameters_of(values)

    def values(self, line: bytes) -> list[bytes | None]:
        """Return the values of one line."""
        return values_of(line) if self.form is Form.TEXT else values_in(line)


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
    pairs = zip(destination.columns, destination.values(line), strict=True)
    return ", ".join(shown(column, value) for column, value in pairs if column.name in destination.key)


def shown(column: Column, value: bytes | None) -> str:
    """Return a value as a message shows it."""
    text = "NULL" if value is None else value.decode("utf-8", "backslashreplace")[:60]
    return f"{column.name} = {text}"
