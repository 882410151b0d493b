"""The stages of a target in optimistic mode: the steps that follow from its shards (core.join.planning)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.ddl.lockstages import named
from unshard.core.ddl.queue import QueueEntry
from unshard.core.join.changekind import ChangeKind
from unshard.core.join.difference import Step
from unshard.core.join.group import Group
from unshard.core.join.joined import ShardStep
from unshard.core.model import Shard, TableId
from unshard.core.shown import one_line
from unshard.core.stages import Stage


class JoinStep(StrEnum):
    """The steps of a target in optimistic mode."""

    FOLLOW_SHARDS = "follow-shards"
    """Store the group after shards have left it, or after a lock has resolved their DDL."""
    EXPAND = "expand"
    """Give the target what its shards need, and accept their DDL."""
    CONTRACT = "contract"
    """Take from the target what no shard needs any more."""
    OPEN_BARRIER = "open-barrier"
    """Open a lock for a DDL that all shards have to run, as in pessimistic mode."""
    WAIT_FOR_ROWS = "wait-for-rows"
    """Wait for windows that apply rows from before the DDL of their shard."""
    RELOAD_COLUMNS = "reload-columns"
    """Read columns of a shard again."""


@dataclass(frozen=True, slots=True)
class Following:
    """The group after its shards, and what becomes of the names of its columns."""

    group: Group
    shard_steps: tuple[ShardStep, ...] = ()
    adopts: bool = False
    """Whether a lock may have changed the target, so that its columns are matched again."""
    resolved: tuple[tuple[Shard, int], ...] = ()
    released: frozenset[int] = frozenset()
    """Columns that become the target's own."""


@dataclass(frozen=True, slots=True)
class TargetChange:
    """An expansion or a contraction of the target."""

    kind: ChangeKind
    intended: Group
    """The group whose ids the statements use."""
    group: Group
    """The group afterwards."""
    steps: tuple[Step, ...]
    cause: str
    first: tuple[Step, ...] = ()
    shard_steps: tuple[ShardStep, ...] = ()
    resolved: tuple[tuple[Shard, int], ...] = ()
    entry: QueueEntry | None = None
    """The DDL whose own text is executed if it leads to the same structure."""


@dataclass(frozen=True, slots=True)
class ColumnsOfShard:
    """Columns of a shard that are read again."""

    shard: Shard
    columns: tuple[str, ...]


JoinStage = Stage[JoinStep, Following | TargetChange | QueueEntry | ColumnsOfShard | None]


def follow_shards(target: TableId, values: Following, reason: str, gone: Sequence[Shard] = ()) -> JoinStage:
    """Return the stage that stores the group; `gone` are the shards that have left it."""
    shards = (*(step.shard for step in values.shard_steps), *gone)
    after = f" after {named(shards)}" if shards else ""
    what = f"leave columns to {target}" if values.released else f"store the group of {target}{after}"
    return Stage(JoinStep.FOLLOW_SHARDS, f"{what}: {reason}", values)


def change_target(target: TableId, values: TargetChange) -> JoinStage:
    """Return the stage that expands or contracts the target."""
    steps = "; ".join(map(str, (*values.first, *values.steps)))
    if values.kind is ChangeKind.CONTRACT:
        return Stage(JoinStep.CONTRACT, f"contract {target}, because no shard needs it any more: {steps}", values)
    what = f"expand {target}: {steps}" if steps else f"change nothing in {target}"
    shards = tuple(sorted({shard for shard, _ in values.resolved}))
    text = f"{what}, then accept `{one_line(values.cause)}`{f' of {named(shards)}' if shards else ''}"
    return Stage(JoinStep.EXPAND, text, values)


def open_barrier(entry: QueueEntry, reason: str) -> JoinStage:
    """Return the stage that opens a lock for a DDL."""
    text = f"open a lock for `{one_line(entry.routed)}` of {entry.shard}, which needs all shards: {one_line(reason)}"
    return Stage(JoinStep.OPEN_BARRIER, text, entry)


def wait_for_rows(target: TableId, shards: Sequence[Shard], steps: Sequence[Step]) -> JoinStage:
    """Return the stage that waits for older rows of shards before the target contracts."""
    then = "; ".join(map(str, steps))
    text = f"wait for the windows that apply older rows of {named(shards)}, then contract {target}: {then}"
    return Stage(JoinStep.WAIT_FOR_ROWS, text, None)


def reload_columns(shard: Shard, columns: tuple[str, ...], reason: str) -> JoinStage:
    """Return the stage that reads columns of a shard again."""
    text = f"read {', '.join(columns)} of {shard} again: {reason}"
    return Stage(JoinStep.RELOAD_COLUMNS, text, ColumnsOfShard(shard, columns))
