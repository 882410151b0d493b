"""Level 2: the lock of one target's next DDL, decided from what the shards have reached.

There is at most one open lock per target. It is opened for the oldest DDL at the head of any shard's
queue, so that every wait is seen from its first second, also inside one source. Nothing here remembers
events: `decide` takes the state of the group and of the lock and says what holds now. Any order
of reports and any repetition therefore give the same answer.

| the members                                          | state of the lock                           |
|------------------------------------------------------|---------------------------------------------|
| the lock was resolved                                | resolved, for ever                          |
| execution was begun (intent row) and not finished    | synced or forced, whatever the members do   |
| an operator skips it                                 | resolved without executing                  |
| no shard has the lock's DDL at its head any more     | withdrawn: resolved without executing       |
| a shard has it with a reason, no operator's verdict  | undecided, whoever else has come            |
| forced, a shard with the DDL has older held rows     | draining                                    |
| forced                                               | forced: may be executed                     |
| a shard has another DDL at its head, or owes a skip  | conflict                                    |
| a shard, or a source not yet in sync, is behind      | waiting                                     |
| all have the DDL, one has older held rows to release | draining (so has one that was dropped)      |
| all have the DDL, nothing before it waits            | synced: may be executed                     |
| … and the target has refused it                      | failed: may be executed again               |

The owner is the first source all of whose shards have the DDL (the smallest name of several) and stays
so while it has shards. A forced lock that has none takes the smallest source that has the DDL at all.

A DDL that concerns one shard only (one that was created unlike its group) has a lock of its own, opened when
no other DDL of the group waits for one. Until it is decided its shard is no member of the group's locks.

The table has the states from top to bottom: the first line that fits. Shards that an operator has dropped, and those
that are excused from a lock, are in none of its lines. What the operator's orders (core.orders) lead to:

| in state           | Force          | Skip      | Replace                 | Skip, one shard | Replace, one shard |
|--------------------|----------------|-----------|-------------------------|-----------------|--------------------|
| waiting            | forced         | resolved  | waits with the new text | excused         | its head counts so |
| draining           | forced, drains | resolved  | drains with it          | excused         | its head counts so |
| conflict           | forced         | resolved  | conflict as before      | its head goes   | may agree then     |
| undecided          | refused        | resolved  | goes on as if decided   | excused         | its head decided   |
| synced, forced     | forced         | resolved  | the new text instead    | excused         | its head counts so |
| begun, not refused | forced         | refused   | refused                 | its head goes   | refused            |
| failed             | tried again    | resolved  | the new text is tried   | excused         | its head counts so |
| resolved           | nothing        | nothing   | nothing                 | nothing         | nothing            |

Skipping for one shard that stands at the lock's DDL, or has reached none, *excuses* it: it owes the open lock a skip,
which is settled once the lock is resolved, so that its rows meet the new structure. If nobody else has the DDL, or if
the shard stands at another one, its head is resolved at once, and in the second case the shard is waited for again.
DropShard takes the shard out of all lines, in every state, also of a resolved lock's group. A lock without a shard
that has its DDL is withdrawn; who owes it a skip and has not come owes nothing then.

An operator's force resolves the lock with the shards that have come. Each other shard *owes a skip*:
when the same DDL comes to its head it is resolved without executing. If another DDL comes to its
head first, the next lock is in conflict and says so, unless the skip was an operator's: then the target has had nothing
that the shard has not, and the shard may as well never bring that DDL.

A lock executes one statement or, replaced, several in order; `done` says how many of them the target has. Dead
between the steps of an order or of executing a lock:

| dies                              | what the next `execute` finds and does                              |
|-----------------------------------|---------------------------------------------------------------------|
| in an order (one transaction)     | all of it with its record, or nothing; again it changes nothing     |
| after it, before what follows     | `observe` does that: resolves what is skipped, withdraws, opens     |
| before the steps are noted        | the target refuses it whole: asks again in which steps it takes it  |
| before the intent row             | the same state: begins anew                                         |
| after it, before the DDL          | the wanted structure is not there: executes                         |
| in the DDL                        | the server ends or undoes it; then as the line before or after      |
| after the DDL, before it is noted | the wanted structure is there: executes nothing, notes it           |
| between two of several statements | begun, `done` counts the ones before: goes on with the next         |
| in `resolve` (one transaction)    | all of it or nothing                                                |
| in `create`, `settle`, an order   | one transaction each: the next `observe` does it, the order is given again |

A refusal ends the intent, and the next try asks anew what the DDL would do. A table that has neither structure of
the intent ends nothing: whether it has had the DDL can be told only once it has one of the two again.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from unshard.core.model import Shard, TableId
from unshard.core.newcomers import is_expected
from unshard.core.shardgroup import agrees, complete_sources, head, is_alone, releasable
from unshard.core.window import QueueEntry, ShardState, Verdict

LONGEST_NAME = 170


class Outcome(StrEnum):
    """How a lock was resolved."""

    EXECUTED = "executed"
    PRESENT = "present"
    """The target had it already: executed before a death, or by hand."""
    SKIPPED = "skipped"
    """By an operator's order."""
    WITHDRAWN = "withdrawn"
    """No shard brought it any more."""


class LockState(StrEnum):
    """Where a lock stands."""

    WAITING = "waiting"
    DRAINING = "draining"
    CONFLICT = "conflict"
    UNDECIDED = "undecided"
    """What the DDL means is not known: an operator skips or replaces it."""
    SYNCED = "synced"
    FORCED = "forced"
    FAILED = "failed"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class DdlLock:
    """What is recorded of a lock; all else follows from the shards."""

    id: str
    target: TableId
    number: int
    entry: QueueEntry
    """The queued DDL that opened the lock."""
    opened_at: datetime
    """When the shard ran the DDL, by its own time stamp."""
    seen_at: datetime
    """When the coordinator first saw it."""
    state: LockState = LockState.WAITING
    owner: str | None = None
    is_forced: bool = False
    started_at: datetime | None = None
    """When an execution was begun that has neither finished nor been refused."""
    error: str | None = None
    """The target's words when it refused the DDL."""
    resolved_at: datetime | None = None
    verdict: Verdict = Verdict.NONE
    """What an operator has said about the DDL, for all shards that have it or will have it."""
    replacement: tuple[str, ...] = ()
    """The statements that are executed in its place: an operator's, or the steps in which the target takes it."""
    done: int = 0
    """How many of its statements the target has."""
    outcome: Outcome | None = None
    excused: frozenset[Shard] = frozenset()
    """Shards that an order has let pass: an open lock does not look at them."""

    @property
    def agreement(self) -> str:
        """The meaning of the DDL that the shards must bring."""
        return self.entry.agreement

    @property
    def is_begun(self) -> bool:
        """Whether the target may have the DDL: it was begun and has neither ended nor been refused."""
        return self.started_at is not None and self.error is None


@dataclass(frozen=True, slots=True)
class Owed:
    """A skip that a shard owes to a lock that was forced without it."""

    shard: Shard
    lock: str
    number: int
    agreement: str
    is_open: bool = False
    """The shard was excused from a lock that is not resolved yet."""
    is_binding: bool = True
    """The target may have had that DDL, so the next one means something else on a shard that has not."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """A queue entry that is resolved without executing, because its shard owed that skip."""

    shard: Shard
    seq: int
    lock: str
    born: str = ""
    """Tells the shard from another that has come to its name meanwhile."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What holds for a lock now."""

    state: LockState
    owner: str | None
    ready: tuple[Shard, ...] = ()
    missing: tuple[Shard, ...] = ()
    conflicts: tuple[Shard, ...] = ()
    draining: tuple[Shard, ...] = ()
    absent: tuple[str, ...] = ()
    """Sources that are not in sync yet and might still bring shards."""
    is_executable: bool = False
    is_withdrawn: bool = False
    is_skipped: bool = False
    """An operator's skip: it is to be resolved without executing."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What resolving a lock does to the shards of its group."""

    resolved: tuple[tuple[Shard, int], ...]
    owing: tuple[Shard, ...]


Debts = Mapping[Shard, Sequence[Owed]]


def decide(members: Sequence[ShardState], lock: DdlLock, owed: Debts, absent: Iterable[str] = ()) -> Decision:
    """Say where a lock stands, given all shards of its target and the sources that are not in sync yet."""
    if lock.resolved_at is not None:
        return Decision(LockState.RESOLVED, lock.owner)
    if lock.verdict is Verdict.NONE and any(is_expected(members, s) for s in _concerned(members, lock)):
        return Decision(LockState.RESOLVED, lock.owner, is_withdrawn=True)
    is_skipped = lock.verdict is Verdict.SKIP and lock.started_at is None
    members, absent = _concerned(members, lock), () if lock.entry.is_alone else absent
    ready = [state for state in members if _has(state, lock, owed)]
    conflicts = [state for state in members if _conflicts(state, lock, owed)]
    has = {state.shard for state in ready}
    reached = has | {state.shard for state in conflicts}
    behind = [state for state in members if not state.has_left and state.shard not in reached]
    draining = [state for state in members if (state.shard in has or state.has_left) and _drains(state)]
    waiting = tuple(sorted(set(absent)))
    group = _Group(bool(ready), bool(conflicts), bool(behind or waiting), bool(draining), _is_undecided(lock, ready))
    state, executable = _state(lock, group)
    return Decision(state, _owner(members, lock, ready), _names(ready), _names(behind), _names(conflicts),
                    _names(draining), waiting, executable and not is_skipped,
                    state is LockState.RESOLVED and not is_skipped, is_skipped)  # fmt: skip


def _concerned(members: Sequence[ShardState], lock: DdlLock) -> Sequence[ShardState]:
    """Return the shards that the lock looks at: one that stands at a DDL of its own has nothing to do with others."""
    members = [state for state in members if not state.is_dropped and state.shard not in lock.excused]
    if lock.entry.is_alone:
        return [state for state in members if is_alone(state) and agrees(state, lock.agreement)]
    return [state for state in members if not is_alone(state)]


class _Group(NamedTuple):
    """What there is among the members."""

    ready: bool
    conflict: bool
    behind: bool
    draining: bool
    undecided: bool


def _is_undecided(lock: DdlLock, ready: Iterable[ShardState]) -> bool:
    heads = (state.queue[0] for state in ready)
    return lock.verdict is Verdict.NONE and any(head.reason and head.verdict is Verdict.NONE for head in heads)


def _state(lock: DdlLock, group: _Group) -> tuple[LockState, bool]:
    """Return the state and whether the DDL may be executed in it."""
    begun = lock.started_at is not None
    if not group.ready and not begun:
        return LockState.RESOLVED, False
    if not begun and group.undecided:
        return LockState.UNDECIDED, False
    if not begun and not lock.is_forced and (group.conflict or group.behind):
        return (LockState.CONFLICT if group.conflict else LockState.WAITING), False
    if not begun and group.draining:
        return LockState.DRAINING, False
    if lock.error is not None:
        return LockState.FAILED, True
    return (LockState.FORCED if lock.is_forced else LockState.SYNCED), True


def _has(state: ShardState, lock: DdlLock, owed: Debts) -> bool:
    """Whether the shard brings the lock's DDL, and not as the skip that it owes to an earlier lock."""
    return agrees(state, lock.agreement) and _due(state, owed) is None


def _drains(state: ShardState) -> bool:
    """Whether older rows must be applied first, or the structure at the head be found by the shard's next window."""
    first = head(state)
    return bool(releasable(state)) or (first is not None and not (first.after or first.reason))


def _conflicts(state: ShardState, lock: DdlLock, owed: Debts) -> bool:
    """Whether the shard brings another DDL, or this one while it owes the skip of another."""
    first = head(state)
    if first is None:
        return False
    is_bound = any(debt.is_binding for debt in owed.get(state.shard, ()))
    return first.agreement != lock.agreement or (is_bound and _due(state, owed) is None)


def _due(state: ShardState, owed: Debts) -> Owed | None:
    """Return the debt that the shard's DDL settles: the oldest one, besides those of which the target had nothing."""
    first = head(state)
    for debt in owed.get(state.shard, ()) if first else ():
        if first and debt.agreement == first.agreement:
            return debt
        if debt.is_binding:
            return None
    return None


def _owner(members: Sequence[ShardState], lock: DdlLock, ready: Sequence[ShardState]) -> str | None:
    present = {state.shard.source for state in members}
    if lock.owner is not None and (lock.owner in present or lock.started_at is not None):
        return lock.owner
    complete = complete_sources(members, {state.shard for state in ready})
    if complete:
        return complete[0]
    return min((state.shard.source for state in ready), default=None) if lock.is_forced else None


def _names(states: Iterable[ShardState]) -> tuple[Shard, ...]:
    return tuple(sorted(state.shard for state in states))


def resolution(members: Sequence[ShardState], lock: DdlLock, owed: Debts) -> Resolution:
    """Say which queue heads a finished lock resolves and which shards owe it a skip from now on."""
    concerned = _concerned(members, lock)
    having = {state.shard: state.queue[0].seq for state in concerned if _has(state, lock, owed)}
    # A shard that has left owes too while DDL of it waits: it may have this one behind another.
    owing = {s.shard for s in concerned if (not s.has_left or s.queue) and s.shard not in having}
    # A shard that stands at a DDL of its own has this one, too, if it waits behind that.
    owing |= {state.shard for state in members if is_alone(state) and _is_queued(state, lock.agreement)}
    return Resolution(tuple(sorted(having.items())), tuple(sorted(owing - having.keys())))


def _is_queued(state: ShardState, agreement: str) -> bool:
    return any(entry.agreement == agreement for entry in state.queue[1:])


def void(members: Iterable[ShardState], lock: DdlLock, owed: Debts) -> tuple[Shard, ...]:
    """Return the shards that owe nothing any more when the lock is withdrawn: they do not stand at its DDL."""
    owing = {shard for shard, debts in owed.items() if any(debt.lock == lock.id for debt in debts)}
    return tuple(sorted(owing - {state.shard for state in members if agrees(state, lock.agreement)}))


def script(members: Sequence[ShardState], lock: DdlLock, owner: str | None) -> tuple[QueueEntry, tuple[str, ...]]:
    """Return the statements that the lock executes, and the entry whose session's time stamp and sql_mode they get.

    That is the owner's own DDL; what an operator has put in the place of all was read as the one that opened the lock.
    """
    own = [state.queue[0] for state in members if state.shard.source == owner and agrees(state, lock.agreement)]
    entry = min(own, key=lambda entry: entry.shard, default=lock.entry)
    if lock.replacement and lock.verdict is Verdict.REPLACE:
        statement = replace(lock.entry.statement, timestamp=entry.statement.timestamp)
        return replace(entry, statement=statement), lock.replacement
    return entry, lock.replacement or entry.replacement or (entry.routed,)


def settlements(shards: Iterable[ShardState], owed: Debts) -> tuple[Settlement, ...]:
    """Return the queue heads that are the skips which their shards owe."""
    found = []
    for state in sorted(shards, key=lambda state: state.shard):
        due = _due(state, owed)
        if due is not None and not due.is_open:
            found.append(Settlement(state.shard, state.queue[0].seq, due.lock, state.born))
    return tuple(found)


def opening(members: Sequence[ShardState], owed: Debts) -> QueueEntry | None:
    """Return the DDL that a new lock of this group is for: the oldest at the head of any queue."""
    passed = {(state.shard, state.queue[0].seq) for state in members if is_expected(members, state)}
    passed |= {(settlement.shard, settlement.seq) for settlement in settlements(members, owed)}
    heads = [state.queue[0] for state in members if state.queue and (state.shard, state.queue[0].seq) not in passed]
    return min(heads, key=lambda e: (e.is_alone, e.statement.timestamp, e.shard, e.seq), default=None)


def lock_id(task: str, target: TableId, number: int) -> str:
    """Return the name of a target's lock: unique in the task, fit for an Airflow run id (at most 200 characters)."""
    name = f"{_plain(task, '.-')}-{_plain(target.schema, '-')}.{_plain(target.name, '-')}"
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return f"{name}-{number}"


def _plain(name: str, also: str) -> str:
    """Write what a run id does not take, and what separates the parts of ours, as hexadecimal bytes."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "_+" + also else _hexadecimal(c) for c in name)


def _hexadecimal(character: str) -> str:
    return "".join(f"~{byte:02X}" for byte in character.encode())
