"""The matrix of shards and changes: how far a rollout is, at a glance.

| mode | a change is |
|---|---|
| optimistic | an open difference of the target |
| pessimistic | a DDL in the queue of a shard; the first one is that of the lock |
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from unshard.core.join.states import State
from unshard.core.model import Shard, TableId

if TYPE_CHECKING:
    from unshard.core.ddl.lock import DdlLock
    from unshard.units.ddl.differences import DifferenceView
    from unshard.units.ddl.scene import Scene


class Cell(StrEnum):
    """How a shard stands to a change."""

    HAS = "has it"
    LACKS = "not yet"
    RELOADS = "is read again"
    WAITS = "waits"
    EXEMPTED = "exempted"
    """The lock does not wait for the shard."""
    APART = "–"
    """The change is a DDL of another shard."""


@dataclass(frozen=True, slots=True)
class MatrixChange:
    """A column of the matrix."""

    subject: str
    """The statement, or the column that differs."""
    run: str
    """The lock or the difference: the id of its DAG run; empty for a DDL that has no lock yet."""
    state: str
    since: datetime | None
    held_rows: int
    held_since: datetime | None
    is_lock: bool
    cells: Mapping[Shard, Cell]


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """Shards that look alike, with a cell for each change; a target of thousands of shards has a few rows."""

    shards: tuple[Shard, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class TargetMatrix:
    """A target with its changes; the rows have first the shards that are furthest."""

    target: TableId
    changes: tuple[MatrixChange, ...]
    rows: tuple[MatrixRow, ...]

    def searched(self, text: str) -> "TargetMatrix":
        """Return the same with the shards whose name contains a text."""
        some = [(tuple(one for one in row.shards if text.lower() in str(one).lower()), row.cells) for row in self.rows]
        return replace(self, rows=tuple(MatrixRow(shards, cells) for shards, cells in some if shards))


def difference_matrices(views: "Sequence[DifferenceView]") -> tuple[TargetMatrix, ...]:
    """Return a matrix for each target with open differences."""
    of_target: dict[TableId, list[MatrixChange]] = {}
    for view in views:
        of_target.setdefault(view.target, []).append(_of_difference(view))
    return tuple(_matrix(target, of_target[target]) for target in sorted(of_target))


def queue_matrices(scene: "Scene") -> tuple[TargetMatrix, ...]:
    """Return a matrix for each target with an open lock."""
    locks = sorted(scene.locks, key=lambda lock: lock.target)
    return tuple(_matrix(lock.target, _of_queues(scene, lock)) for lock in locks if lock.target not in scene.joined)


def _matrix(target: TableId, changes: Sequence[MatrixChange]) -> TargetMatrix:
    rows: dict[tuple[Cell, ...], list[Shard]] = {}
    for shard in sorted({shard for change in changes for shard in change.cells}):
        rows.setdefault(tuple(change.cells.get(shard, Cell.APART) for change in changes), []).append(shard)
    ordered = sorted(rows.items(), key=lambda item: (-item[0].count(Cell.HAS), item[1]))
    return TargetMatrix(target, tuple(changes), tuple(MatrixRow(tuple(some), cells) for cells, some in ordered))


def _of_difference(view: "DifferenceView") -> MatrixChange:
    lacks = Cell.WAITS if view.state in (State.CONFLICT, State.BARRIER) else Cell.LACKS
    cells = _cells((view.lack, lacks), (view.have, Cell.HAS), (view.reloads, Cell.RELOADS))
    return MatrixChange(view.subject, view.id, view.state, view.since, view.held_rows, None, False, cells)


def _of_queues(scene: "Scene", lock: "DdlLock") -> Sequence[MatrixChange]:
    """Return the DDL of a lock, then the DDL that its shards have queued after it."""
    members, facts = scene.members(lock.target), scene.facts(lock)
    shards = [state.shard for state in members]
    sides = (facts.missing, Cell.LACKS), (facts.exempted, Cell.EXEMPTED), (facts.ready, Cell.HAS)
    first = _cells((shards, Cell.APART), *sides, (facts.conflicts, Cell.WAITS))
    held = facts.held_rows, facts.held_since
    changes = [MatrixChange(lock.entry.routed, lock.id, facts.state, lock.opened_at, *held, True, first)]
    later: dict[str, dict[Shard, str]] = {}
    for state in members:
        for entry in state.queue:
            if entry.fingerprint != lock.fingerprint:
                later.setdefault(entry.fingerprint, {})[state.shard] = entry.routed
    for have in later.values():
        cells = _cells((shards, Cell.LACKS), (have, Cell.HAS))
        changes.append(MatrixChange(next(iter(have.values())), "", "queued", None, 0, None, False, cells))
    return changes


def _cells(*groups: tuple[Iterable[Shard], Cell]) -> dict[Shard, Cell]:
    """Return the cell of each shard: that of the last group that has it."""
    return {shard: cell for shards, cell in groups for shard in shards}
