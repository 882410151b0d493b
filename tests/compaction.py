"""Compaction change by change (core.rows.compaction): the reference for the vectors of units.rows.batchruns."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from unshard.core.rows.compaction import Op

Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Run(Generic[Row]):
    """A run of changes of one key of one shard."""

    existed: bool
    exists: bool
    row: Row | None
    """The row after the run, None if it does not exist then."""


def run_of(op: Op, row: Row) -> Run[Row]:
    """Return the run of a single change."""
    return Run(not op.adds, op.adds, row if op.adds else None)


def follows(first: Run[Row], second: Run[Row]) -> bool:
    """Whether `second` can directly follow `first`: it begins with the row that `first` left."""
    return first.exists == second.existed


def combine(first: Run[Row], second: Run[Row]) -> Run[Row]:
    """Return the run of both, one after the other; associative."""
    return Run(first.existed, second.exists, second.row)


def compact(changes: Iterable[tuple[Key, Op, Row]]) -> dict[Key, Run[Row]]:
    """Return the run of every key."""
    runs: dict[Key, Run[Row]] = {}
    for key, op, row in changes:
        run = run_of(op, row)
        runs[key] = combine(runs[key], run) if key in runs else run
    return runs


def compact_multiset(changes: Iterable[tuple[Op, Key]]) -> dict[Key, int]:
    """Return the count of added (positive) or removed (negative) rows; rows with count 0 are left out."""
    counts: dict[Key, int] = {}
    for op, row in changes:
        counts[row] = counts.get(row, 0) + (1 if op.adds else -1)
    return {row: count for row, count in counts.items() if count}
