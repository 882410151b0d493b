"""The stages of a target in optimistic mode: the steps that follow from its shards (core.join.planning)."""

from dataclasses import dataclass, field
from typing import ClassVar

from unshard.core.ddl.queue import QueueEntry
from unshard.core.ddl.stages import named, one_line
from unshard.core.join.changekind import ChangeKind
from unshard.core.join.difference import Step
from unshard.core.join.group import Group
from unshard.core.join.joined import ShardStep
from unshard.core.model import Shard, TableId
from unshard.core.stages import Stage


@dataclass(frozen=True, slots=True)
class FollowShards(Stage):
    """Store the group after shards have left it, or after a lock has resolved their DDL."""

    name: ClassVar[str] = "follow-shards"
    target: TableId
    group: Group = field(repr=False)
    shard_steps: tuple[ShardStep, ...] = field(repr=False)
    gone: tuple[Shard, ...]
    reason: str
    adopts: bool = False
    """Whether a lock may have changed the target, so that its columns are matched again."""
    resolved: tuple[tuple[Shard, int], ...] = ()
    released: frozenset[int] = frozenset()
    """Columns that become the target's own."""

    def describe(self) -> str:
        shards = tuple(step.shard for step in self.shard_steps) + self.gone
        if self.released:
            return f"leave columns to {self.target}: {self.reason}"
        after = f" after {named(shards)}" if shards else ""
        return f"store the group of {self.target}{after}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ExpandTarget(Stage):
    """Give the target what its shards need, and accept their DDL."""

    name: ClassVar[str] = "expand"
    kind: ClassVar[ChangeKind] = ChangeKind.EXPAND
    target: TableId
    intended: Group = field(repr=False)
    """The group whose ids the statements use."""
    group: Group = field(repr=False)
    """The group afterwards."""
    first: tuple[Step, ...]
    steps: tuple[Step, ...]
    shard_steps: tuple[ShardStep, ...] = field(repr=False)
    resolved: tuple[tuple[Shard, int], ...]
    cause: str
    entry: QueueEntry | None = field(default=None, repr=False)
    """The DDL whose own text is executed if it leads to the same structure."""

    def describe(self) -> str:
        steps = "; ".join(map(str, (*self.first, *self.steps)))
        what = f"expand {self.target}: {steps}" if steps else f"change nothing in {self.target}"
        shards = tuple(sorted({shard for shard, _ in self.resolved}))
        return f"{what}, then accept `{one_line(self.cause)}`{f' of {named(shards)}' if shards else ''}"


@dataclass(frozen=True, slots=True)
class ContractTarget(Stage):
    """Take from the target what no shard needs any more."""

    name: ClassVar[str] = "contract"
    kind: ClassVar[ChangeKind] = ChangeKind.CONTRACT
    target: TableId
    intended: Group = field(repr=False)
    group: Group = field(repr=False)
    steps: tuple[Step, ...]
    cause: str
    first: tuple[Step, ...] = ()
    shard_steps: tuple[ShardStep, ...] = ()
    resolved: tuple[tuple[Shard, int], ...] = ()
    entry: QueueEntry | None = None

    def describe(self) -> str:
        return f"contract {self.target}, because no shard needs it any more: {'; '.join(map(str, self.steps))}"


@dataclass(frozen=True, slots=True)
class OpenBarrier(Stage):
    """Open a lock for a DDL that all shards have to run, as in pessimistic mode."""

    name: ClassVar[str] = "open-barrier"
    entry: QueueEntry
    reason: str

    def describe(self) -> str:
        text = one_line(self.entry.routed)
        return f"open a lock for `{text}` of {self.entry.shard}, which needs all shards: {one_line(self.reason)}"


@dataclass(frozen=True, slots=True)
class WaitForRows(Stage):
    """Wait for windows that apply rows from before the DDL of their shard."""

    name: ClassVar[str] = "wait-for-rows"
    target: TableId
    shards: tuple[Shard, ...]
    steps: tuple[Step, ...]

    def describe(self) -> str:
        steps = "; ".join(map(str, self.steps))
        return (
            f"wait for the windows that apply older rows of {named(self.shards)}, then contract {self.target}: {steps}"
        )


@dataclass(frozen=True, slots=True)
class ReloadColumns(Stage):
    """Read columns of a shard again."""

    name: ClassVar[str] = "reload-columns"
    shard: Shard
    columns: tuple[str, ...]
    reason: str

    def describe(self) -> str:
        return f"read {', '.join(self.columns)} of {self.shard} again: {self.reason}"


TargetChange = ExpandTarget | ContractTarget
JoinStage = FollowShards | TargetChange | OpenBarrier | WaitForRows | ReloadColumns
