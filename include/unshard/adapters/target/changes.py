"""What a writer of the target is asked to do, as values."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from unshard.adapters.target.destination import Destination, Mode
from unshard.core.collision import Clash
from unshard.core.model import Column, Shard, TableId
from unshard.core.netting import Collisions
from unshard.core.uniquekeys import UniqueKey


@dataclass(frozen=True, slots=True)
class Patches:
    """Those of some lines that lack values (`\\A`): these are as they were in a row of the target."""

    rows: np.ndarray
    """Numbers of such lines."""
    bases: Sequence[tuple[bytes, ...]]
    """For each of them, the key of the row that it changes."""
    strict: Sequence[bool]
    """Whether that row must be there; without it the line is left out."""
    moves: bool = False
    """Whether one of them takes its values from a row of another key."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows to write into one destination, sorted by key."""

    destination: Destination
    mode: Mode
    lines: pa.Array
    blank: pa.Array
    shards: Sequence[Shard]
    """Where each line comes from."""
    order: pa.Array | None = None
    """The encoded key of each line, ascending; None in a table without a key."""
    patches: Patches | None = None

    def without(self, places: Collection[int]) -> "Lines":
        """Return the lines but for those at some places; lines that lack values cannot be told apart so."""
        assert self.patches is None
        kept = np.delete(np.arange(len(self.lines)), list(places))
        chosen = pa.array(kept, pa.int64())
        order = None if self.order is None else self.order.take(chosen)
        shards = [self.shards[row] for row in kept.tolist()]
        return replace(self, lines=self.lines.take(chosen), blank=self.blank.take(chosen), shards=shards, order=order)


@dataclass(frozen=True, slots=True)
class Awaited:
    """A row that the target lacks until the binlog brings a later change of it."""

    shard: Shard
    key: tuple[bytes | None, ...]
    shown: str


@dataclass(frozen=True, slots=True)
class Writes:
    """All rows that are written into one table together, and what if the key of one is taken."""

    table: TableId
    lines: Sequence[Lines]
    unique: tuple[UniqueKey, ...]
    collisions: Collisions
    met: tuple[Clash, ...] = ()
    """Collisions that are known already; the policy has been followed."""
    diverts: bool = False
    """Whether rows that the table cannot take are put aside."""

    @property
    def left_out(self) -> int:
        """How many rows are not among the lines, because the key of each is another shard's in the same window."""
        return sum(1 + clash.others for clash in self.met) if self.collisions is Collisions.IGNORE else 0


@dataclass(frozen=True, slots=True)
class Removal:
    """A row of a table without a key that has to go a number of times."""

    destination: Destination
    line: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What one window does to one target table."""

    table: TableId
    key: tuple[Column, ...]
    deletes: Sequence[tuple[bytes, ...]]
    removals: Sequence[Removal]
    defaults: tuple[str, ...]
    """All columns of the table that are written: those that a removal does not name have their default."""
    writes: Writes
    order: pa.Array | None = None
    """The encoded keys of `deletes`, ascending; None where the changes cannot be cut by key."""
    left: tuple[Awaited, ...] = ()
    """Rows that are left to a later change: they lack values, and the target lacks the row."""
    awaited: bool = False
    """Whether earlier rows of the table have been left so: one of these changes may be what they wait for."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of the changes."""

    deleted: int = 0
    written: int = 0
    skipped: int = 0
    """New rows that were left out because their key was taken (on-duplicate: ignore)."""
    collided: bool = False
    before: bool = False
    """An earlier run had applied this window already."""

    def __add__(self, other: "Applied") -> "Applied":
        return Applied(self.deleted + other.deleted, self.written + other.written, self.skipped + other.skipped,
                       self.collided or other.collided, self.before or other.before)  # fmt: skip
