"""The lock of one target's next DDL, decided from the DDLs that the shards of the target have reached.

There is at most one open lock per target. It is opened for the oldest DDL at the head of any shard's
queue, so that every wait is visible from its first second, also inside one source. No function here keeps
state: `decide` takes the state of the group and of the lock and returns the decision for now. The result
therefore does not depend on the sequence or the repetition of reports.

| the members                                          | state of the lock                           |
|------------------------------------------------------|---------------------------------------------|
| the lock is resolved                                 | resolved, for ever                          |
| execution has begun (intent row) and not finished    | synced or forced, whatever the members do   |
| an operator skips it                                 | resolved without execution                  |
| no shard has the lock's DDL at its head any more     | withdrawn: resolved without execution       |
| a shard has it with a reason, no operator's decision | undecided, whatever the other shards have   |
| forced, a shard with the DDL has older held rows     | draining                                    |
| forced                                               | forced: may be executed                     |
| a shard has another DDL at its head, or has a        | conflict                                    |
| pending skip                                         |                                             |
| a shard has not reached the DDL, or a source is not  | waiting                                     |
| in sync yet                                          |                                             |
| all have the DDL, one has older held rows to release | draining (also if that shard was dropped)   |
| all have the DDL, no older rows are held             | synced: may be executed                     |
| … and the target has refused it                      | failed: may be executed again               |

The first matching line of the table decides. It ignores shards that an operator has dropped and shards that are
exempted from the lock.

The owner is the first source all of whose shards have the DDL (of several, the smallest name). It stays the owner
while it has shards. If a forced lock has no such source, its owner is the smallest source with a shard that has the
DDL.

A DDL that concerns one shard only (a shard that was created with a different structure than its group) has a lock of
its own. That lock is opened when no other DDL of the group needs one. Until the DDL is decided, its shard is not a
member of the group's locks.

The effects of the operator's commands (operate.command):

| in state           | Force          | Skip      | Replace                  | Skip, one shard  | Replace, one shard |
|--------------------|----------------|-----------|--------------------------|------------------|--------------------|
| waiting            | forced         | resolved  | waits with the new text  | exempted         | head replaced      |
| draining           | forced, drains | resolved  | drains with the new text | exempted         | head replaced      |
| conflict           | forced         | resolved  | still conflict           | head resolved    | may agree now      |
| undecided          | rejected       | resolved  | goes on as if decided    | exempted         | head decided       |
| synced, forced     | forced         | resolved  | executes the new text    | exempted         | head replaced      |
| begun, not refused | forced         | rejected  | rejected                 | head resolved    | rejected           |
| failed             | tries again    | resolved  | tries the new text       | exempted         | head replaced      |
| resolved           | no effect      | no effect | no effect                | no effect        | no effect          |

Skipping for one shard *exempts* the shard if it has the lock's DDL at its head or has reached no DDL. The shard gets a
pending skip of the open lock. The pending skip is used when the lock is resolved, so that the shard's rows are written
to the new structure. If no other shard has the DDL, or if the shard has another DDL at its head, its head is resolved
at once. In the second case the lock waits for the shard again. DropShard removes the shard from all lines of the first
table, in every state, also from the group of a resolved lock. A lock is withdrawn when no shard has its DDL; then its
pending skips are waived for all shards that do not have the DDL at their head.

Force resolves the lock with the shards that have its DDL. The DDL of a shard in conflict counts as the lock's DDL if
both lead to the same columns (core.ddl.waysout): it is resolved with the lock, and nothing stays pending. Every other
shard gets a *pending skip*: when the same DDL comes to its head, it is resolved without execution. If another DDL comes
to its head first, the next lock is in conflict and reports this. There is no conflict, because the pending skip does
not bind the shard, in these cases:

| the pending skip                                   | why it does not bind                                            |
|----------------------------------------------------|-----------------------------------------------------------------|
| comes from an operator's skip                      | the target does not have the DDL either                         |
| of a shard that had another DDL at its head        | the operator has unlocked the conflict: that DDL follows        |
| is older than a lock that has resolved a DDL of    | the operator has unlocked that conflict                         |
| the shard                                          |                                                                 |

A lock executes one statement, or several in order if the DDL was replaced; `done` counts the statements that the
target has. If the process dies between the steps of a command or of an execution:

| dies                              | what the next `execute` finds and does                              |
|-----------------------------------|---------------------------------------------------------------------|
| in a command (one transaction)    | the command with its record, or nothing; a repetition has no effect |
| after a command, before its       | `observe` does these: resolves skipped DDL, withdraws and opens     |
| consequences                      | locks                                                               |
| before the steps are recorded     | the target refuses the whole: finds the steps that it accepts again |
| before the intent row             | the same state: begins again                                        |
| after the intent row, before the  | the target has the old structure: executes the DDL                  |
| DDL                               |                                                                     |
| in the DDL                        | the server completes or undoes it; then as the line above or below  |
| after the DDL, before it is       | the target has the new structure: executes nothing, records the DDL |
| recorded                          |                                                                     |
| between two of several statements | execution has begun, `done` counts the finished ones: runs the next |
| in `resolve` (one transaction)    | all of it or nothing                                                |
| in `create`, `settle` or a        | one transaction each: the next `observe` repeats it; the operator   |
| command                           | repeats the command                                                 |

A refusal by the target ends the intent, and the next attempt asks the target again what the DDL does. A table that has
neither structure of the intent does not end it: only when the table has one of the two structures again can unshard
tell whether the DDL was executed.

The stages of an execution, for each statement that the target does not have yet: write the intent, execute the
statement, then note it; the last one resolves the lock.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from unshard.core.ddl.queue import (
    OperatorDecision,
    QueueEntry,
    ShardState,
    WholeChange,
    agrees,
    complete_sources,
    head,
    is_alone,
    is_expected,
    releasable,
)
from unshard.core.model import Shard, TableId
from unshard.core.shown import listed, one_line
from unshard.core.sql.mode import NO_ZERO_IN_DATE, STRICT
from unshard.core.stages import Stage

LONGEST_NAME = 170
COUNTER = re.compile(r"(\bAUTO_INCREMENT\s*=?\s*)(\d+)", re.IGNORECASE)


class Outcome(StrEnum):
    """How a lock was resolved."""

    EXECUTED = "executed"
    PRESENT = "present"
    """The target already had it: executed before the process died, or by hand."""
    SKIPPED = "skipped"
    """By an operator's command."""
    WITHDRAWN = "withdrawn"
    """No shard had it at its head any more."""


class LockState(StrEnum):
    """The state of a lock, see the table above."""

    WAITING = "waiting"
    DRAINING = "draining"
    CONFLICT = "conflict"
    UNDECIDED = "undecided"
    """The effect of the DDL is unknown: an operator skips or replaces it."""
    SYNCED = "synced"
    FORCED = "forced"
    FAILED = "failed"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class DdlLock:
    """The stored part of a lock; everything else follows from the state of the shards."""

    id: str
    target: TableId
    number: int
    entry: QueueEntry
    """The queued DDL that opened the lock."""
    opened_at: datetime
    """When the shard ran the DDL, by the time stamp of its statement."""
    seen_at: datetime
    """When the coordinator first saw it."""
    state: LockState = LockState.WAITING
    owner: str | None = None
    is_forced: bool = False
    started_at: datetime | None = None
    """When the current execution began; None before it, and after it has finished or was refused."""
    error: str | None = None
    """The target's message when it refused the DDL."""
    resolved_at: datetime | None = None
    verdict: OperatorDecision = OperatorDecision.NONE
    """An operator's decision about the DDL, for all shards that have it or will have it."""
    replacement: tuple[str, ...] = ()
    """The statements to execute instead: an operator's, or the steps of the DDL that the target accepts one by one."""
    done: int = 0
    """The number of its statements that the target has."""
    outcome: Outcome | None = None
    exempted: frozenset[Shard] = frozenset()
    """Shards that an operator's command has exempted: the open lock ignores them."""

    @property
    def fingerprint(self) -> str:
        return self.entry.fingerprint

    @property
    def is_open(self) -> bool:
        """Whether the lock is not resolved. Its own row tells: no shard has to be read."""
        return self.resolved_at is None

    @property
    def is_begun(self) -> bool:
        """Whether the target may have the DDL: its execution has begun and was not refused."""
        return self.started_at is not None and self.error is None


@dataclass(frozen=True, slots=True)
class PendingSkip:
    """A DDL that a shard will skip, because the lock of that DDL was forced without the shard or exempted it."""

    shard: Shard
    lock: str
    number: int
    fingerprint: str
    is_open: bool = False
    """The shard is exempted from a lock that is not resolved yet."""
    is_binding: bool = True
    """The target may have that DDL. Until the shard has it too, another DDL has a different effect on the shard."""


@dataclass(frozen=True, slots=True)
class SkipResolution:
    """A queue entry that is resolved without execution by a pending skip of its shard."""

    shard: Shard
    seq: int
    lock: str
    shard_uid: str = ""
    """Identifies the shard if another shard has its name by now."""


@dataclass(frozen=True, slots=True)
class LockDecision:
    """The state of a lock and the next step for it, as of now."""

    state: LockState
    owner: str | None
    ready: tuple[Shard, ...] = ()
    missing: tuple[Shard, ...] = ()
    conflicts: tuple[Shard, ...] = ()
    draining: tuple[Shard, ...] = ()
    absent: tuple[str, ...] = ()
    """Sources that are not in sync yet and may still add shards."""
    is_executable: bool = False
    is_withdrawn: bool = False
    is_skipped: bool = False
    """An operator skips the DDL: the lock must be resolved without execution."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """The effects of resolving a lock on the shards of its group."""

    resolved: tuple[tuple[Shard, int], ...]
    skipping: tuple[Shard, ...]
    parted: tuple[Shard, ...] = ()
    """Those of `skipping` that have another DDL at their heads: that DDL is the next one, and no conflict any more."""


PendingSkips = Mapping[Shard, Sequence[PendingSkip]]


def decide(
    members: Sequence[ShardState], lock: DdlLock, pending_skips: PendingSkips, absent: Iterable[str] = ()
) -> LockDecision:
    """Decide the state of a lock from all shards of its target; `absent` are the sources that are not in sync yet."""
    if not lock.is_open:
        return LockDecision(LockState.RESOLVED, lock.owner)
    if lock.verdict is OperatorDecision.NONE and any(is_expected(members, s) for s in _concerned(members, lock)):
        return LockDecision(LockState.RESOLVED, lock.owner, is_withdrawn=True)
    is_skipped = lock.verdict is OperatorDecision.SKIP and lock.started_at is None
    members, absent = _concerned(members, lock), () if lock.entry.is_alone else absent
    ready = [state for state in members if _has(state, lock, pending_skips)]
    conflicts = [state for state in members if _conflicts(state, lock, pending_skips)]
    has = {state.shard for state in ready}
    reached = has | {state.shard for state in conflicts}
    missing = [state for state in members if not state.has_left and state.shard not in reached]
    draining = [state for state in members if (state.shard in has or state.has_left) and _drains(state)]
    waiting = tuple(sorted(set(absent)))
    lacks, is_undecided = bool(missing or waiting), _is_undecided(lock, ready)
    state, executable = _state(lock, bool(ready), bool(conflicts), lacks, bool(draining), is_undecided)
    return LockDecision(
        state,
        _owner(members, lock, ready),
        _names(ready),
        _names(missing),
        _names(conflicts),
        _names(draining),
        waiting,
        executable and not is_skipped,
        state is LockState.RESOLVED and not is_skipped,
        is_skipped,
    )


def _concerned(members: Sequence[ShardState], lock: DdlLock) -> Sequence[ShardState]:
    """Return the shards that the lock considers; a shard with a DDL of its own at its head has its own lock."""
    members = [state for state in members if not state.is_dropped and state.shard not in lock.exempted]
    if lock.entry.is_alone:
        return [state for state in members if is_alone(state) and agrees(state, lock.fingerprint)]
    return [state for state in members if not is_alone(state)]


def _is_undecided(lock: DdlLock, ready: Iterable[ShardState]) -> bool:
    heads = (state.queue[0] for state in ready)
    return lock.verdict is OperatorDecision.NONE and any(
        head.reason and head.verdict is OperatorDecision.NONE for head in heads
    )


def _state(
    lock: DdlLock, has_ready: bool, has_conflict: bool, has_missing: bool, drains: bool, is_undecided: bool
) -> tuple[LockState, bool]:
    """Return the state of a lock whose members include such shards, and whether it may be executed."""
    begun = lock.started_at is not None
    if not has_ready and not begun:
        return LockState.RESOLVED, False
    if not begun and is_undecided:
        return LockState.UNDECIDED, False
    if not begun and not lock.is_forced and (has_conflict or has_missing):
        return (LockState.CONFLICT if has_conflict else LockState.WAITING), False
    if not begun and drains:
        return LockState.DRAINING, False
    if lock.error is not None:
        return LockState.FAILED, True
    return (LockState.FORCED if lock.is_forced else LockState.SYNCED), True


def _has(state: ShardState, lock: DdlLock, pending_skips: PendingSkips) -> bool:
    """Whether the shard has the lock's DDL at its head, and not as the pending skip of an earlier lock."""
    return agrees(state, lock.fingerprint) and _due(state, pending_skips) is None


def _drains(state: ShardState) -> bool:
    """Whether older rows must be applied first, or the shard's next window must find the structure at the head."""
    first = head(state)
    return bool(releasable(state)) or (first is not None and not (first.after or first.reason))


def _conflicts(state: ShardState, lock: DdlLock, pending_skips: PendingSkips) -> bool:
    """Whether the shard has another DDL at its head, or has this one but still a pending skip of another one."""
    first = head(state)
    if first is None:
        return False
    is_bound = any(pending_skip.is_binding for pending_skip in pending_skips.get(state.shard, ()))
    return first.fingerprint != lock.fingerprint or (is_bound and _due(state, pending_skips) is None)


def _due(state: ShardState, pending_skips: PendingSkips) -> PendingSkip | None:
    """Return the first pending skip of the DDL at the head; None if a binding one of another DDL precedes it."""
    first = head(state)
    for pending_skip in pending_skips.get(state.shard, ()) if first else ():
        if first and pending_skip.fingerprint == first.fingerprint:
            return pending_skip
        if pending_skip.is_binding:
            return None
    return None


def _owner(members: Sequence[ShardState], lock: DdlLock, ready: Sequence[ShardState]) -> str | None:
    present = {state.shard.source for state in members}
    if lock.owner is not None and (lock.owner in present or lock.started_at is not None):
        return lock.owner
    complete = complete_sources(members, {state.shard for state in ready})
    if complete:
        return complete[0]
    is_free = lock.is_forced or all(state.has_left for state in members)
    return min((state.shard.source for state in ready), default=None) if is_free else None


def _names(states: Iterable[ShardState]) -> tuple[Shard, ...]:
    return tuple(sorted(state.shard for state in states))


def resolution(members: Sequence[ShardState], lock: DdlLock, pending_skips: PendingSkips) -> Resolution:
    """Return which queue heads a finished lock resolves, and which shards get a pending skip."""
    concerned = _concerned(members, lock)
    having = {state.shard: state.queue[0].seq for state in concerned if _has(state, lock, pending_skips)}
    # A dropped shard with a queue gets a pending skip, too: this DDL may be in its queue after another one.
    skipping = {s.shard for s in concerned if (not s.has_left or s.queue) and s.shard not in having}
    # So does a shard with a DDL of its own at its head if this DDL is in its queue.
    skipping |= {state.shard for state in members if is_alone(state) and is_queued(state, lock.fingerprint)}
    skipping -= having.keys()
    parted = {s.shard for s in concerned if s.queue and not agrees(s, lock.fingerprint)} & skipping
    return Resolution(tuple(sorted(having.items())), tuple(sorted(skipping)), tuple(sorted(parted)))


def is_queued(state: ShardState, fingerprint: str) -> bool:
    """Whether the shard has this DDL in its queue, after another one."""
    return any(entry.fingerprint == fingerprint for entry in state.queue[1:])


def statements_of(lock: DdlLock) -> tuple[str, ...]:
    """Return the statements with which an operator has replaced the lock's DDL."""
    return (lock.replacement if lock.verdict is OperatorDecision.REPLACE else ()) or lock.entry.replacement


def counted(entry: QueueEntry, lock: DdlLock) -> QueueEntry:
    """Return a shard's DDL as one that counts as the lock's DDL; its structures stay those of the shard."""
    return replace(
        entry,
        routed=lock.entry.routed,
        fingerprint=lock.fingerprint,
        verdict=OperatorDecision.REPLACE,
        replacement=statements_of(lock) or (lock.entry.routed,),
        reason="",
    )


def void(members: Iterable[ShardState], lock: DdlLock, pending_skips: PendingSkips) -> tuple[Shard, ...]:
    """Return the shards whose pending skip is waived when the lock is withdrawn: its DDL is not at their head."""
    skipping = {
        shard
        for shard, skips_of_shard in pending_skips.items()
        if any(pending_skip.lock == lock.id for pending_skip in skips_of_shard)
    }
    return tuple(sorted(skipping - {state.shard for state in members if agrees(state, lock.fingerprint)}))


def script(members: Sequence[ShardState], lock: DdlLock, owner: str | None) -> tuple[QueueEntry, tuple[str, ...]]:
    """Return the entry whose time stamp and sql_mode the execution uses, and the statements that the lock executes.

    The entry is the owner's own DDL. If an operator has replaced the DDL for all shards, the sql_mode is that of the
    entry that opened the lock, because the replacement was read in it. The mode is strict only if all shards have run
    the DDL in a strict one: a strict mode rejects what the others change (core.ddl.sessioneffects). Without it, an
    entry of a strict mode must keep the zeros in dates that the others have kept.
    Of different next AUTO_INCREMENT values the target takes the largest.
    """
    heads = [state.queue[0] for state in members if agrees(state, lock.fingerprint)]
    own = (head for head in heads if head.shard.source == owner)
    entry = min(own, key=lambda entry: (bool(entry.verdict), entry.shard), default=lock.entry)
    largest = _with_largest(entry.routed, (head.routed for head in heads))
    statement, statements = entry.statement, lock.replacement or entry.replacement or (largest,)
    if lock.replacement and lock.verdict is OperatorDecision.REPLACE:
        statement, statements = replace(lock.entry.statement, timestamp=statement.timestamp), lock.replacement
    if statement.sql_mode & STRICT and not all(head.statement.sql_mode & STRICT for head in heads):
        statement = replace(statement, sql_mode=statement.sql_mode & ~(STRICT | NO_ZERO_IN_DATE))
    return replace(entry, statement=statement), statements


def _with_largest(text: str, others: Iterable[str]) -> str:
    """Return a statement with the largest AUTO_INCREMENT = n of all statements that are otherwise equal."""
    if not COUNTER.search(text):
        return text
    numbers = [[int(number) for _, number in COUNTER.findall(each)] for each in (text, *others)]
    largest = iter([max(some) for some in zip(*numbers, strict=False)])
    return COUNTER.sub(lambda found: f"{found[1]}{next(largest, found[2])}", text)


def skip_resolutions(shards: Iterable[ShardState], pending_skips: PendingSkips) -> tuple[SkipResolution, ...]:
    """Return the queue heads to resolve because of pending skips of their shards."""
    found = []
    for state in sorted(shards, key=lambda state: state.shard):
        due = _due(state, pending_skips)
        if due is not None and not due.is_open:
            found.append(SkipResolution(state.shard, state.queue[0].seq, due.lock, state.shard_uid))
    return tuple(found)


def opening(
    members: Sequence[ShardState], pending_skips: PendingSkips, waiting: Collection[tuple[Shard, int]] = ()
) -> QueueEntry | None:
    """Return the DDL for which a new lock of this group is opened: the oldest at the head of any queue.

    Heads that are `waiting` for another target (core.ddl.onetoone) need no lock yet.
    """
    lockless = {(state.shard, state.queue[0].seq) for state in members if is_expected(members, state)}
    lockless |= {
        (skip_resolution.shard, skip_resolution.seq) for skip_resolution in skip_resolutions(members, pending_skips)
    }
    lockless |= {(state.shard, state.queue[0].seq) for state in members if _follows_another(members, state)}
    lockless |= set(waiting)
    heads = [state.queue[0] for state in members if state.queue and (state.shard, state.queue[0].seq) not in lockless]
    return min(heads, key=lambda e: (e.is_alone, e.statement.timestamp, e.shard, e.seq), default=None)


def _follows_another(members: Sequence[ShardState], state: ShardState) -> bool:
    """Whether the shard was created again after a table whose own DDL is not resolved yet."""
    first = head(state)
    if first is None or first.whole is not WholeChange.CREATE:
        return False
    others = (
        head(other) for other in members if other.shard != state.shard and other.shard.source == first.shard.source
    )
    return any(other is not None and other.location < first.location for other in others)


def lock_id(task: str, target: TableId, number: int) -> str:
    """Return the id of a target's lock: unique in the task and valid as an Airflow run id (at most 200 characters)."""
    name = f"{_plain(task, '.-')}-{_plain(target.schema, '-')}.{_plain(target.name, '-')}"
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return f"{name}-{number}"


def _plain(name: str, also: str) -> str:
    """Escape the characters that a run id does not allow or that separate the parts of a lock id, in hexadecimal."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "_+" + also else _hexadecimal(c) for c in name)


def _hexadecimal(character: str) -> str:
    return "".join(f"~{byte:02X}" for byte in character.encode())


# --- the state of each source in a lock


class MemberState(StrEnum):
    """State of one source in a lock."""

    READY = "ready"
    WAITING = "waiting"
    DRAINING = "draining"
    CONFLICT = "conflict"
    ABSENT = "absent"
    """The source is not in sync yet, so its shards are not known."""


def members_of(members: Sequence[ShardState], decision: LockDecision) -> dict[str, MemberState]:
    """Return the state of each source: the worst state of its shards."""
    ranks = (
        (decision.conflicts, MemberState.CONFLICT),
        (decision.missing, MemberState.WAITING),
        (decision.draining, MemberState.DRAINING),
    )
    found = dict.fromkeys(decision.absent, MemberState.ABSENT)
    for source in sorted({state.shard.source for state in members}):
        worst = (state for shards, state in ranks if any(shard.source == source for shard in shards))
        found[source] = next(worst, MemberState.READY)
    return found


# --- the ways out of a conflict (core.ddl.waysout finds out which of them succeed)


class Way(StrEnum):
    """A way out of a conflict."""

    SAME = "as this one"
    NOTHING = "as nothing"
    UNLOCKED = "unlocked"
    """As this one if both DDLs lead to the same columns, else as one of its own that follows."""
    SKIPPED = "this one as nothing"
    """The lock's own DDL is skipped for all shards: the target has its effect already."""
    EXTENDED = "as this one, with the columns of both"
    """The target gets the lock's DDL and the columns that only the DDLs of the shards in conflict add."""

    PLACED = "with a place for its rows"
    """The target gets what the rows of a new shard need."""


USUAL_WAYS = (Way.UNLOCKED, Way.SAME, Way.NOTHING)


# --- the stages of a lock: what it waits for, and how its statements are executed


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
        waits.append(_operator(f"{shard_names(decision.conflicts)} has another DDL"))
    if decision.state in (LockState.CONFLICT, LockState.WAITING) and (decision.missing or decision.absent):
        missing = [f"{shard_names(decision.missing)} to reach the DDL"] if decision.missing else []
        absent = [f"source {source} to be loaded" for source in decision.absent]
        waits.append(Stage(LockStep.WAIT_FOR_SHARDS, f"wait for {' and for '.join((*missing, *absent))}", ""))
    if decision.draining and not decision.is_executable:
        why = f"; the target is suspended for source {', '.join(suspended)}" if suspended else ""
        text = f"wait for the windows that apply the rows of {shard_names(decision.draining)} from before the DDL{why}"
        waits.append(Stage(LockStep.WAIT_FOR_ROWS, text, ""))
    return (*waits, *execution_stages(lock, statements, decision.owner))


def _operator(reason: str) -> LockStage:
    return Stage(LockStep.WAIT_FOR_OPERATOR, f"wait for an operator: {one_line(reason)}", "")


def _resolve(reason: str = "") -> LockStage:
    why = f" without executing its DDL, because {reason}" if reason else ""
    return Stage(LockStep.RESOLVE, f"resolve the lock{why}; the next windows release the rows held after the DDL", "")


def shard_names(shards: Sequence[Shard]) -> str:
    """Name shards, the first of many."""
    return listed(shards, NAMED) if shards else ""
