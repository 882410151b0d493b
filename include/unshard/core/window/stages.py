"""The stages of a window: derived from its plan, and from what an attempt at it has found out.

| an attempt                                            | the stages that are left                                     |
|-------------------------------------------------------|--------------------------------------------------------------|
| has not begun                                         | begin, create targets, move rows, commit, sweep              |
| found rows that contradict the structure of a shard   | plan again, begin, create targets, move rows, commit, sweep  |
| found targets that refuse their rows                  | suspend, begin, create targets, move rows, commit, sweep     |
| the same, and all these targets were altered since    | begin, create targets, move rows, commit, sweep              |
| has moved all rows                                    | commit, sweep                                                |

A window with a statement that deletes the rows of a shard (`drop-shard-rows: delete`) does so before `commit`.

`begin` is repeated in each attempt because it raises the epoch: a writer of the attempt before can then write nothing.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from unshard.core.model import TableId
from unshard.core.stages import Stage
from unshard.core.window.plan import Contradiction, Plan
from unshard.core.window.suspension import TargetRefused


@dataclass(frozen=True, slots=True)
class BeginWindow(Stage):
    """Persist the plan and raise the epoch of the source."""

    name: ClassVar[str] = "begin"
    plan: Plan
    is_again: bool = False

    def describe(self) -> str:
        if self.is_again:
            return "raise the epoch; the plan is persisted already, and the same plan runs again"
        return "persist the plan and raise the epoch, so that a retry runs this plan and older writers are refused"


@dataclass(frozen=True, slots=True)
class CreateTargets(Stage):
    """Create the target tables of shards that are the first of their group."""

    name: ClassVar[str] = "create-targets"
    plan: Plan

    @property
    def targets(self) -> tuple[TableId, ...]:
        """The targets that are created unless they exist."""
        return tuple(sorted({change.target for change in self.plan.first_of_group}))

    def describe(self) -> str:
        names = ", ".join(map(str, self.targets))
        if not names and self.plan.schemas:
            return f"follow {len(self.plan.schemas)} statements about schemas on the target"
        if not names:
            return "no target table to create"
        return f"create {names} unless it exists, because a shard is the first of its group"


@dataclass(frozen=True, slots=True)
class MoveRows(Stage):
    """Run one Spark job that holds, releases and applies rows."""

    name: ClassVar[str] = "move"
    plan: Plan

    def describe(self) -> str:
        if not self.plan.moves_rows:
            return "no rows to move, so no Spark job runs"
        if self.plan.borders:
            sections = len(self.plan.borders) + 1
            return f"run one Spark job that applies new rows in {sections} sections, each committed before the next one"
        safe = " in safe mode, because the dump may have seen the rows" if self.plan.safe else ""
        return f"run one Spark job that applies released and new rows{safe}, and writes held rows to files"


@dataclass(frozen=True, slots=True)
class PlanAgain(Stage):
    """Replace the plan by one that holds the rows of shards whose structure they contradict."""

    name: ClassVar[str] = "plan-again"
    plan: Plan
    found: tuple[Contradiction, ...]

    def describe(self) -> str:
        shards = ", ".join(sorted({str(each.shard) for each in self.found}))
        return f"plan the window again, because rows of {shards} contradict the tracked structure; no target has rows"


@dataclass(frozen=True, slots=True)
class SuspendTargets(Stage):
    """Suspend targets that refuse their rows; the others go on."""

    name: ClassVar[str] = "suspend"
    refused: tuple[TargetRefused, ...]

    def describe(self) -> str:
        names = ", ".join(sorted({str(each.target) for each in self.refused}))
        return f"suspend {names}, because it refuses rows of the window; its rows are held"


@dataclass(frozen=True, slots=True)
class DeleteRows(Stage):
    """Delete the rows of dropped and truncated shards from merged targets."""

    name: ClassVar[str] = "delete-rows"
    plan: Plan

    def describe(self) -> str:
        return f"delete the rows of {len(self.plan.deletions)} dropped or truncated shards, in bounded transactions"


@dataclass(frozen=True, slots=True)
class CommitWindow(Stage):
    """Write checkpoint, queue entries, structures and held files in one transaction."""

    name: ClassVar[str] = "commit"
    plan: Plan

    def describe(self) -> str:
        moved = f"the checkpoint at {self.plan.ends}" if self.plan.ends != self.plan.begins else "the checkpoint"
        return f"write {moved}, queue entries, structures and held files in one transaction"


@dataclass(frozen=True, slots=True)
class SweepFiles(Stage):
    """Remove files that the meta tables no longer name."""

    name: ClassVar[str] = "sweep"
    plan: Plan

    def describe(self) -> str:
        return "remove files of released and dropped rows, and relay segments before the window"


WindowStage = (
    BeginWindow | CreateTargets | MoveRows | PlanAgain | SuspendTargets | DeleteRows | CommitWindow | SweepFiles
)


class Done(IntEnum):
    """The last stage that an attempt at a window has finished."""

    NOTHING = 0
    BEGUN = 1
    CREATED = 2
    MOVED = 3
    DELETED = 4
    COMMITTED = 5
    SWEPT = 6


@dataclass(frozen=True, slots=True)
class Attempt:
    """How far an attempt at a window has come, and what has stopped the attempt before it."""

    done: Done = Done.NOTHING
    is_again: bool = False
    """The plan was persisted before this attempt."""
    contradictions: tuple[Contradiction, ...] = ()
    refused: tuple[TargetRefused, ...] = ()
    """Targets that refuse their rows and have not been altered since."""


FIRST = Attempt()


def following(plan: Plan, attempt: Attempt = FIRST) -> tuple[WindowStage, ...]:
    """Return the stages that are left, by the table of the module; none for an empty plan."""
    if plan.is_empty:
        return ()
    repair: tuple[WindowStage, ...] = ()
    if attempt.contradictions:
        repair = (PlanAgain(plan, attempt.contradictions),)
    elif attempt.refused:
        repair = (SuspendTargets(attempt.refused),)
    stages = (
        BeginWindow(plan, attempt.is_again),
        CreateTargets(plan),
        MoveRows(plan),
        DeleteRows(plan),
        CommitWindow(plan),
        SweepFiles(plan),
    )
    left = (stage for stage in stages[attempt.done :] if plan.deletions or not isinstance(stage, DeleteRows))
    return (*repair, *left)
