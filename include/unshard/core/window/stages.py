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
from enum import IntEnum, StrEnum

from unshard.core.model import TableId
from unshard.core.stages import Stage
from unshard.core.window.plan import Contradiction, Plan
from unshard.core.window.suspension import TargetRefused


class WindowStep(StrEnum):
    """The steps of a window."""

    PLAN_AGAIN = "plan-again"
    """Replace the plan by one that holds the rows of shards whose structure they contradict."""
    SUSPEND = "suspend"
    """Suspend targets that refuse their rows; the others go on."""
    BEGIN = "begin"
    """Persist the plan and raise the epoch of the source."""
    CREATE_TARGETS = "create-targets"
    """Create the target tables of shards that are the first of their group."""
    MOVE = "move"
    """Run one Spark job that holds, releases and applies rows."""
    DELETE_ROWS = "delete-rows"
    """Delete the rows of dropped and truncated shards from merged targets."""
    COMMIT = "commit"
    """Write checkpoint, queue entries, structures and held files in one transaction."""
    SWEEP = "sweep"
    """Remove files that the meta tables no longer name."""


WindowStage = Stage[WindowStep, tuple[TableId, ...]]
"""Its values are the targets that it changes apart from rows: those to create or to suspend."""


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
    deleted = f"delete the rows of {len(plan.deletions)} dropped or truncated shards, in bounded transactions"
    stages: tuple[WindowStage, ...] = (
        _begin(attempt),
        _create_targets(plan),
        Stage(WindowStep.MOVE, _moved(plan), ()),
        Stage(WindowStep.DELETE_ROWS, deleted, ()),
        Stage(WindowStep.COMMIT, _committed(plan), ()),
        Stage(WindowStep.SWEEP, "remove files of released and dropped rows, and relay segments before the window", ()),
    )
    left = (stage for stage in stages[attempt.done :] if plan.deletions or stage.kind is not WindowStep.DELETE_ROWS)
    return (*_repair(attempt), *left)


def _repair(attempt: Attempt) -> tuple[WindowStage, ...]:
    if attempt.contradictions:
        shards = ", ".join(sorted({str(each.shard) for each in attempt.contradictions}))
        text = f"plan the window again, because rows of {shards} contradict the tracked structure; no target has rows"
        return (Stage(WindowStep.PLAN_AGAIN, text, ()),)
    if attempt.refused:
        targets = tuple(sorted({each.target for each in attempt.refused}))
        names = ", ".join(sorted(map(str, targets)))
        text = f"suspend {names}, because it refuses rows of the window; its rows are held"
        return (Stage(WindowStep.SUSPEND, text, targets),)
    return ()


def _begin(attempt: Attempt) -> WindowStage:
    text = "persist the plan and raise the epoch, so that a retry runs this plan and older writers are refused"
    if attempt.is_again:
        text = "raise the epoch; the plan is persisted already, and the same plan runs again"
    return Stage(WindowStep.BEGIN, text, ())


def _create_targets(plan: Plan) -> WindowStage:
    targets = tuple(sorted({change.target for change in plan.first_of_group}))
    text = "no target table to create"
    if targets:
        names = ", ".join(map(str, targets))
        text = f"create {names} unless it exists, because a shard is the first of its group"
    elif plan.schemas:
        text = f"follow {len(plan.schemas)} statements about schemas on the target"
    return Stage(WindowStep.CREATE_TARGETS, text, targets)


def _moved(plan: Plan) -> str:
    if not plan.moves_rows:
        return "no rows to move, so no Spark job runs"
    if plan.borders:
        sections = len(plan.borders) + 1
        return f"run one Spark job that applies new rows in {sections} sections, each committed before the next one"
    safe = " in safe mode, because the dump may have seen the rows" if plan.safe else ""
    return f"run one Spark job that applies released and new rows{safe}, and writes held rows to files"


def _committed(plan: Plan) -> str:
    moved = f"the checkpoint at {plan.ends}" if plan.ends != plan.begins else "the checkpoint"
    return f"write {moved}, queue entries, structures and held files in one transaction"
