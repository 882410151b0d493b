"""The stages of a DDL lock: what it waits for, and how its statements are executed.

For each statement that the target does not have yet: write the intent, execute the statement, then note it; the last
one resolves the lock. core.ddl.lock has the states of a lock and what a death between the stages leads to.
"""

from collections.abc import Sequence
from enum import StrEnum

from unshard.core.ddl.lock import DdlLock, LockDecision, LockState
from unshard.core.ddl.queue import QueueEntry
from unshard.core.model import Shard
from unshard.core.shown import listed, one_line
from unshard.core.stages import Stage

NAMED = 5


class LockStep(StrEnum):
    """The steps of a lock: one opens it, three are waits, the others execute its statements."""

    OPEN_LOCK = "open-lock"
    """Open a lock for the oldest DDL at the head of the group's queues."""
    WAIT_FOR_SHARDS = "wait-for-shards"
    """Wait for shards that have not reached the DDL."""
    WAIT_FOR_ROWS = "wait-for-rows"
    """Wait for windows that apply rows from before the DDL."""
    WAIT_FOR_OPERATOR = "wait-for-operator"
    INTENT = "intent"
    """Write down the target's structure before and after a statement."""
    EXECUTE = "execute"
    """Execute one statement on the target."""
    NOTE = "note"
    """Note in the lock that the target has a statement; another one follows."""
    RESOLVE = "resolve"
    """Resolve the lock, so that windows release the rows held after the DDL."""


LockStage = Stage[LockStep, str]
"""Its value is the number of its statement and the number of statements, such as `1/2`."""


def open_stage(entry: QueueEntry) -> LockStage:
    """Return the stage that opens a lock for a DDL."""
    text = f"open a lock for `{one_line(entry.routed)}`, the oldest pending DDL (of {entry.shard})"
    return Stage(LockStep.OPEN_LOCK, text, "")


def execution_stages(
    lock: DdlLock, statements: Sequence[str], owner: str | None, passed: int = 0
) -> tuple[LockStage, ...]:
    """Return the stages that are left of the execution; `passed` stages of the next statement are done."""
    stages: list[LockStage] = []
    session = f" in the session settings of source {owner}" if owner else ""
    for number, statement in enumerate(statements[lock.done :], lock.done + 1):
        step = f"{number}/{len(statements)}"
        is_next = number == lock.done + 1
        refused = f"; the target has refused it: {one_line(lock.error)}" if lock.error and is_next else ""
        intent = f"write down the structure of {lock.target} before and after statement {step}"
        executed = f"execute `{one_line(statement)}`{session}, unless the target has it already{refused}"
        stages += [Stage(LockStep.INTENT, intent, step), Stage(LockStep.EXECUTE, executed, step)]
        if number < len(statements):
            stages.append(Stage(LockStep.NOTE, f"note that the target has statement {step}", step))
        else:
            stages.append(_resolve())
    return tuple(stages[passed:])


def lock_stages(
    lock: DdlLock, decision: LockDecision, statements: Sequence[str], reason: str = "", suspended: Sequence[str] = ()
) -> tuple[LockStage, ...]:
    """Return what a lock waits for and what follows then; `reason`: why an operator is asked.

    `suspended` are the sources for which the lock's target is suspended.
    """
    if decision.is_withdrawn or decision.is_skipped:
        return (_resolve("no shard has it any more" if decision.is_withdrawn else "an operator skips it"),)
    waits: list[LockStage] = []
    if decision.state is LockState.UNDECIDED:
        return (_operator(reason or "the effect of the DDL is unknown"),)
    if decision.state is LockState.CONFLICT:
        waits.append(_operator(f"{named(decision.conflicts)} has another DDL"))
    if decision.state in (LockState.CONFLICT, LockState.WAITING) and (decision.missing or decision.absent):
        missing = [f"{named(decision.missing)} to reach the DDL"] if decision.missing else []
        absent = [f"source {source} to be loaded" for source in decision.absent]
        waits.append(Stage(LockStep.WAIT_FOR_SHARDS, f"wait for {' and for '.join((*missing, *absent))}", ""))
    if decision.draining and not decision.is_executable:
        why = f"; the target is suspended for source {', '.join(suspended)}" if suspended else ""
        text = f"wait for the windows that apply the rows of {named(decision.draining)} from before the DDL{why}"
        waits.append(Stage(LockStep.WAIT_FOR_ROWS, text, ""))
    return (*waits, *execution_stages(lock, statements, decision.owner))


def _operator(reason: str) -> LockStage:
    return Stage(LockStep.WAIT_FOR_OPERATOR, f"wait for an operator: {one_line(reason)}", "")


def _resolve(reason: str = "") -> LockStage:
    why = f" without executing its DDL, because {reason}" if reason else ""
    return Stage(LockStep.RESOLVE, f"resolve the lock{why}; the next windows release the rows held after the DDL", "")


def named(shards: Sequence[Shard]) -> str:
    """Name shards, the first of many."""
    return listed(shards, NAMED) if shards else ""
