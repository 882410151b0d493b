"""The matrix of shards and changes: how far a rollout is, at a glance.

Shards that look alike share a row, so a target of thousands of shards has a few rows.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from unshard.core.join.states import State
from unshard.core.model import Shard


class Cell(StrEnum):
    """How a shard stands to a change."""

    HAS = "has it"
    LACKS = "not yet"
    RELOADS = "is read again"
    WAITS = "waits"
    APART = "–"
    """The change is a DDL of another shard."""


class Change(Protocol):
    """An open difference."""

    @property
    def state(self) -> State:
        """Return its state."""

    @property
    def have(self) -> Collection[Shard]:
        """Return the shards that are as the target is or will be."""

    @property
    def lack(self) -> Collection[Shard]:
        """Return the others."""

    @property
    def reloads(self) -> Collection[Shard]:
        """Return the shards whose values must be read again."""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """Shards that look alike, with a cell for each change."""

    shards: tuple[Shard, ...]
    cells: tuple[Cell, ...]


def matrix(changes: Sequence[Change]) -> tuple[MatrixRow, ...]:
    """Return the rows of the matrix: first the shards that are furthest."""
    shards = sorted({shard for each in changes for shard in (*each.have, *each.lack)})
    rows: dict[tuple[Cell, ...], list[Shard]] = {}
    sets = [(each, {*each.have}, {*each.lack}, {*each.reloads}) for each in changes]
    for shard in shards:
        rows.setdefault(tuple(_cell(shard, *each) for each in sets), []).append(shard)
    ordered = sorted(rows.items(), key=lambda item: (-_count(item[0]), item[1]))
    return tuple(MatrixRow(tuple(some), cells) for cells, some in ordered)


def _cell(shard: Shard, change: Change, have: set[Shard], lack: set[Shard], reloads: set[Shard]) -> Cell:
    if shard in reloads:
        return Cell.RELOADS
    if shard in have:
        return Cell.HAS
    if shard not in lack:
        return Cell.APART
    return Cell.WAITS if change.state in (State.CONFLICT, State.BARRIER) else Cell.LACKS


def _count(cells: Iterable[Cell]) -> int:
    return sum(cell is Cell.HAS for cell in cells)
