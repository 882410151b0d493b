"""The stages of a DDL lock: what it waits for, and how its statements are executed.

For each statement that the target does not have yet: write the intent, execute the statement, then note it; the last
one resolves the lock. core.ddl.lock has the states of a lock and what a death between the stages leads to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from unshard.core.ddl.lock import DdlLock, LockDecision, LockState
from unshard.core.ddl.queue import QueueEntry
from unshard.core.model import Shard, TableId
from unshard.core.stages import Stage

NAMED = 5


@dataclass(frozen=True, slots=True)
class OpenLock(Stage):
    """Open a lock for the oldest DDL at the head of the group's queues."""

    name: ClassVar[str] = "open-lock"
    entry: QueueEntry

    def describe(self) -> str:
        return f"open a lock for `{one_line(self.entry.routed)}`, the oldest pending DDL (of {self.entry.shard})"


@dataclass(frozen=True, slots=True)
class WaitForShards(Stage):
    """Wait for shards that have not reached the DDL."""

    name: ClassVar[str] = "wait-for-shards"
    missing: tuple[Shard, ...]
    absent: tuple[str, ...] = ()

    def describe(self) -> str:
        missing = [f"{named(self.missing)} to reach the DDL"] if self.missing else []
        absent = [f"source {source} to be loaded" for source in self.absent]
        return f"wait for {' and for '.join((*missing, *absent))}"


@dataclass(frozen=True, slots=True)
class WaitForRows(Stage):
    """Wait for windows that apply rows from before the DDL."""

    name: ClassVar[str] = "wait-for-rows"
    shards: tuple[Shard, ...]
    suspended: tuple[str, ...] = ()
    """Sources for which the lock's target is suspended."""

    def describe(self) -> str:
        why = f"; the target is suspended for source {', '.join(self.suspended)}" if self.suspended else ""
        return f"wait for the windows that apply the rows of {named(self.shards)} from before the DDL{why}"


@dataclass(frozen=True, slots=True)
class WaitForOperator(Stage):
    """Wait for a command of an operator."""

    name: ClassVar[str] = "wait-for-operator"
    reason: str

    def describe(self) -> str:
        return f"wait for an operator: {one_line(self.reason)}"


@dataclass(frozen=True, slots=True)
class WriteIntent(Stage):
    """Write down the target's structure before and after the statement."""

    name: ClassVar[str] = "intent"
    target: TableId
    step: str

    def describe(self) -> str:
        return f"write down the structure of {self.target} before and after statement {self.step}"


@dataclass(frozen=True, slots=True)
class ExecuteStatement(Stage):
    """Execute one statement on the target."""

    name: ClassVar[str] = "execute"
    target: TableId
    step: str
    statement: str
    owner: str | None
    error: str | None = None
    """The target's message when it refused the statement."""

    def describe(self) -> str:
        session = f" in the session settings of source {self.owner}" if self.owner else ""
        again = f"; the target has refused it: {one_line(self.error)}" if self.error else ""
        return f"execute `{one_line(self.statement)}`{session}, unless the target has it already{again}"


@dataclass(frozen=True, slots=True)
class NoteStatement(Stage):
    """Note in the lock that the target has a statement; another one follows."""

    name: ClassVar[str] = "note"
    step: str

    def describe(self) -> str:
        return f"note that the target has statement {self.step}"


@dataclass(frozen=True, slots=True)
class ResolveLock(Stage):
    """Resolve the lock, so that windows release the rows held after the DDL."""

    name: ClassVar[str] = "resolve"
    reason: str = ""

    def describe(self) -> str:
        why = f" without executing its DDL, because {self.reason}" if self.reason else ""
        return f"resolve the lock{why}; the next windows release the rows held after the DDL"


Execution = WriteIntent | ExecuteStatement | NoteStatement | ResolveLock
LockStage = OpenLock | WaitForShards | WaitForRows | WaitForOperator | Execution


def execution_stages(lock: DdlLock, statements: Sequence[str], owner: str | None, passed: int = 0) -> list[Execution]:
    """Return the stages that are left of the execution; `passed` stages of the next statement are done."""
    stages: list[Execution] = []
    for number, text in enumerate(statements[lock.done :], lock.done + 1):
        step = f"{number}/{len(statements)}"
        error = lock.error if number == lock.done + 1 else None
        last = ResolveLock() if number == len(statements) else NoteStatement(step)
        stages += [WriteIntent(lock.target, step), ExecuteStatement(lock.target, step, text, owner, error), last]
    return stages[passed:]


def lock_stages(
    lock: DdlLock, decision: LockDecision, statements: Sequence[str], reason: str = "", suspended: Sequence[str] = ()
) -> tuple[LockStage, ...]:
    """Return what a lock waits for and what follows then; `reason`: why an operator is asked."""
    if decision.is_withdrawn or decision.is_skipped:
        return (ResolveLock("no shard has it any more" if decision.is_withdrawn else "an operator skips it"),)
    execution = execution_stages(lock, statements, decision.owner)
    waits: list[LockStage] = []
    if decision.state is LockState.UNDECIDED:
        return (WaitForOperator(reason or "the effect of the DDL is unknown"),)
    if decision.state is LockState.CONFLICT:
        waits.append(WaitForOperator(f"{named(decision.conflicts)} has another DDL"))
    if decision.state in (LockState.CONFLICT, LockState.WAITING) and (decision.missing or decision.absent):
        waits.append(WaitForShards(decision.missing, decision.absent))
    if decision.draining and not decision.is_executable:
        waits.append(WaitForRows(decision.draining, tuple(suspended)))
    return *waits, *execution


def one_line(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())


def named(shards: Sequence[Shard]) -> str:
    """Name shards, the first of many."""
    shown = ", ".join(map(str, shards[:NAMED]))
    return f"{shown} and {len(shards) - NAMED} more" if len(shards) > NAMED else shown
