"""The input and output of a target writer as values: table and columns, rows to write, changes, and results."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar, overload

import numpy as np
import pyarrow as pa

from unshard.adapters.target.rendering import can_be_parameters, lines_of, parameters_of, values_in, values_of
from unshard.core.model import Column, Shard, TableId, TableSchema
from unshard.core.rows.compaction import CollisionPolicy
from unshard.core.rows.rowerrors import KeyCollision
from unshard.core.structures.tablekeys import UniqueKey

# --- where rows are written ---


class Mode(StrEnum):
    """How to write a row whose key already exists in the table."""

    PLAIN = "plain"
    """The row is skipped and counted."""
    REPLACE = "replace"
    """The row replaces every row that it collides with."""


class LineForm(StrEnum):
    """The form of lines."""

    TEXT = "text of LOAD DATA"
    PARAMETERS = "parameters of COM_STMT_BULK_EXECUTE"


@dataclass(frozen=True, slots=True)
class Destination:
    """A table and the columns that lines contain, in the order of the line."""

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    form: LineForm = LineForm.TEXT

    def only(self, numbers: Sequence[int]) -> "Destination":
        return replace(self, columns=tuple(self.columns[number] for number in numbers))

    def in_form(self, form: LineForm) -> "Destination":
        """Return the same columns with lines of another form; some types have only the form of text."""
        return replace(self, form=form if can_be_parameters(self.columns) else LineForm.TEXT)

    def lines(self, values: Sequence[pa.Array]) -> pa.BinaryArray:
        return lines_of(values) if self.form is LineForm.TEXT else parameters_of(values)

    def values(self, line: bytes) -> list[bytes | None]:
        return values_of(line) if self.form is LineForm.TEXT else values_in(line)


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
    return ", ".join(shown_value(column, value) for column, value in pairs if column.name in destination.key)


def shown_value(column: Column, value: bytes | None) -> str:
    """Return a value as a message shows it."""
    text = "NULL" if value is None else value.decode("utf-8", "backslashreplace")[:60]
    return f"{column.name} = {text}"


# --- what is written ---

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Selected(Sequence[T]):
    """Some items of another sequence, taken from it on access."""

    items: Sequence[T]
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[T]: ...

    def __getitem__(self, place: int | slice) -> T | Sequence[T]:
        if isinstance(place, int):
            return self.items[int(self.places[place])]
        return [self.items[number] for number in self.places[place].tolist()]


@dataclass(frozen=True, slots=True)
class Patches:
    r"""Lines with missing values (`\A`). These values are the ones that the target's row has now."""

    rows: np.ndarray
    bases: Sequence[tuple[bytes, ...]]
    """For each such line, the key of the row that it changes."""
    strict: Sequence[bool]
    """Whether the changed row must exist. If it need not and does not exist, the line is left out."""
    moves: bool = False
    """Whether a line takes its missing values from a row with another key."""


@dataclass(frozen=True, slots=True)
class Origins:
    """The rows of the target that lines change; they keep the values of columns that only the target has."""

    keys: tuple[Sequence[tuple[bytes, ...] | None], ...] = ()
    """Of each line the keys of that row in the order of preference; None: the row is new."""
    removals: Sequence["RowRemoval"] = ()
    """In a table without a key: the row that each line changes."""
    moves: bool = False

    def part(self, first: int, last: int) -> "Origins":
        return replace(self, keys=tuple(keys[first:last] for keys in self.keys), removals=self.removals[first:last])

    def of(self, rows: Sequence[int]) -> "Origins":
        keys = tuple([some[row] for row in rows] for some in self.keys)
        return replace(self, keys=keys, removals=[self.removals[row] for row in rows if self.removals])


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows to write into one destination, sorted by key."""

    destination: Destination
    mode: Mode
    lines: pa.Array
    blank: pa.Array
    shards: Sequence[Shard]
    order: pa.Array | None = None
    """The encoded key of each line, ascending; None in a table without a key."""
    patches: Patches | None = None
    origins: Origins | None = None
    """None: the table has no columns of its own, or the rows are new."""

    def without(self, indexes: Collection[int]) -> "Lines":
        assert self.patches is None
        remaining = np.delete(np.arange(len(self.lines)), list(indexes))
        chosen = pa.array(remaining, pa.int64())
        order = None if self.order is None else self.order.take(chosen)
        shards = [self.shards[row] for row in remaining.tolist()]
        origins = None if self.origins is None else self.origins.of(remaining.tolist())
        lines, blank = self.lines.take(chosen), self.blank.take(chosen)
        return replace(self, lines=lines, blank=blank, shards=shards, order=order, origins=origins)


@dataclass(frozen=True, slots=True)
class DeferredRow:
    """A row that the target does not have until a later change in the binlog provides it."""

    shard: Shard
    key: tuple[bytes | None, ...]
    shown: str


@dataclass(frozen=True, slots=True)
class Writes:
    """All rows that are written into one table together, and the policy for keys that are already taken."""

    table: TableId
    lines: Sequence[Lines]
    unique: tuple[UniqueKey, ...]
    collisions: CollisionPolicy
    known_collisions: tuple[KeyCollision, ...] = ()
    """Collisions between rows of this window; the policy has already been applied to them."""
    diverts: bool = False
    """Whether rows that the table cannot store go to `row_error` instead."""

    @property
    def left_out(self) -> int:
        """Number of rows that `lines` lacks because another shard has the key in the same window."""
        return (
            sum(1 + collision.others for collision in self.known_collisions)
            if self.collisions is CollisionPolicy.IGNORE
            else 0
        )


@dataclass(frozen=True, slots=True)
class RowRemoval:
    """A row of a table without a key, and how many copies of it must be deleted."""

    destination: Destination
    line: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one window to one target table."""

    table: TableId
    key: tuple[Column, ...]
    deletes: Sequence[tuple[bytes, ...]]
    removals: Sequence[RowRemoval]
    schema: TableSchema
    """The structure of the table, with the columns that a removal does not list."""
    writes: Writes
    order: pa.Array | None = None
    """The encoded keys of `deletes`, ascending; None if the changes cannot be cut by key."""
    newly_deferred: tuple[DeferredRow, ...] = ()
    """Rows without all values that the target does not have; a later change provides them."""
    has_deferred: bool = False
    """Whether the table has deferred rows; these changes may provide some of them."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying changes: row counts and flags."""

    deleted: int = 0
    written: int = 0
    skipped: int = 0
    """New rows that were left out because their key was taken (on-duplicate: ignore)."""
    collided: bool = False
    before: bool = False
    """An earlier run had already applied this window."""

    def __add__(self, other: "Applied") -> "Applied":
        return Applied(
            self.deleted + other.deleted,
            self.written + other.written,
            self.skipped + other.skipped,
            self.collided or other.collided,
            self.before or other.before,
        )
