"""The coordinator of shard DDL: looks at all queues, opens locks, lets them go, executes their DDL once.

Level-triggered: every call reads queues and locks and does what is due now, so it may be called by
anyone, as often as wished, and from several processes. What is due is decided in core.ddllock, whose
docstring has the cases and what a death between the steps leads to.

    observe   settle owed skips, open locks, note where each stands
    execute   one DDL: intent, execute unless the target has it, resolve
    views     the same as observe shows, without changing anything

What an operator orders instead is in units.orders.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, cast

from unshard.core.ddllock import (
    DdlLock,
    Debts,
    Decision,
    LockState,
    Outcome,
    decide,
    opening,
    script,
    settlements,
)
from unshard.core.model import Server, Shard, TableId, TableSchema
from unshard.core.newcomers import admissions
from unshard.core.progress import Phase
from unshard.core.shardgroup import groups
from unshard.core.stops import Stop
from unshard.core.window import QueueEntry, ShardState, Verdict
from unshard.core.wording import differing_words
from unshard.errors import UnshardError
from unshard.errors.ddl import TargetChanged
from unshard.units.lockstore import Executor, Store

if TYPE_CHECKING:
    from unshard.units.execute import Intents

log = logging.getLogger(__name__)


MAY_FILL = re.compile(r"\bADD\b.*\b(DEFAULT|AUTO_INCREMENT|SERIAL|TIMESTAMP)\b", re.IGNORECASE | re.DOTALL)
FILLED = (
    "fills old rows with each server's own value of {columns}: the target's differ from the shards', as validate tells,"
    " until an UPDATE on every shard, behind this DDL, sets {columns} to something else; if it is in the table's key,"
    " or the table has none, load the target anew"
)


class MemberState(StrEnum):
    """Where one source stands in a lock."""

    READY = "ready"
    WAITING = "waiting"
    DRAINING = "draining"
    CONFLICT = "conflict"
    ABSENT = "absent"
    """It is not in sync yet, so its shards are not known."""


@dataclass(frozen=True, slots=True)
class LockView:
    """All that a person or a sensor wants to know of a lock."""

    id: str
    target: TableId
    number: int
    ddl: str
    """Routed: as it is executed on the target."""
    state: LockState
    opened_at: datetime
    seen_at: datetime
    resolved_at: datetime | None
    owner: str | None
    is_forced: bool
    is_executable: bool
    """Whether `execute` would execute it now; a failed one is executed when asked for by name."""
    members: Mapping[str, MemberState]
    ready: tuple[Shard, ...]
    missing: tuple[Shard, ...]
    conflicts: tuple[Shard, ...]
    conflicting: tuple[str, ...]
    """What the shards in conflict want to execute instead, routed, in the same order."""
    held_rows: int
    held_bytes: int
    error: str | None
    reason: str = ""
    """What unshard could not find out about the DDL, or about one that is in conflict with it."""
    outcome: Outcome | None = None
    """How it was resolved."""
    verdict: Verdict = Verdict.NONE
    statements: tuple[str, ...] = ()
    """What is executed in place of the DDL."""
    done: int = 0
    """How many of them the target has."""
    excused: tuple[Shard, ...] = ()
    """Shards that an order has let pass."""
    differences: tuple[tuple[str, ...], ...] = ()
    """In which words the DDL of each shard in conflict differs from this one, in the same order."""
    filled: tuple[str, ...] = ()
    """Columns that the DDL adds and whose old rows get each server's own value."""
    stopped: tuple[Stop, ...] = ()
    """Its target for some sources: the lock waits until the rows are through that are held there."""

    @property
    def is_open(self) -> bool:
        """Whether anything waits for it."""
        return self.state is not LockState.RESOLVED

    @property
    def warning(self) -> str:
        """What the DDL does to the union of the shards, and what to do; empty for nothing."""
        return FILLED.format(columns=", ".join(self.filled)) if self.filled else ""


@dataclass(frozen=True)
class Scene:
    """Everything that decisions are made from, read once."""

    shards: tuple[ShardState, ...]
    owed: Debts
    absent: tuple[str, ...]
    stops: tuple[Stop, ...] = ()

    @cached_property
    def groups(self) -> Mapping[TableId, tuple[ShardState, ...]]:
        """The shards by target."""
        return groups(self.shards)

    def members(self, target: TableId) -> tuple[ShardState, ...]:
        return self.groups.get(target, ())

    def decide(self, lock: DdlLock) -> Decision:
        return decide(self.members(lock.target), lock, self.owed, self.absent)


NO_SCENE = Scene((), {}, ())


def observe(meta: Store) -> tuple[LockView, ...]:
    """Do what is due to all locks but executing; return the open ones. Idempotent."""
    locks, scene = _observed(meta)
    return tuple(_view(lock, scene) for lock in locks)


def _observed(meta: Store) -> tuple[tuple[DdlLock, ...], Scene]:
    """Do what is due to all locks but executing; return the open ones and the scene they were judged by.

    Locks are read before the scene, so the scene has the queue entries that opened them.
    """
    locks = meta.locks.open()
    if not locks and not meta.structures.is_pending():
        return (), NO_SCENE
    scene = read_scene(meta)
    while _advance(meta, scene, locks):
        locks, scene = meta.locks.open(), read_scene(meta)
    noted = []
    for lock in locks:
        decision = scene.decide(lock)
        meta.locks.note(lock, decision.state, decision.owner)
        noted.append(replace(lock, state=decision.state, owner=decision.owner))
    return tuple(noted), scene


def views(meta: Store, resolved: bool = False) -> tuple[LockView, ...]:
    """Return the open locks, with the newest resolved ones before them if asked; changes nothing."""
    locks = meta.locks.all() if resolved else meta.locks.open()
    scene = _scene_of(meta, locks)
    return tuple(_view(lock, scene) for lock in locks)


def view(meta: Store, lock_id: str) -> LockView:
    """Return one lock, resolved or not; UnknownLock if there is none."""
    lock = meta.locks.get(lock_id)
    return _view(lock, _scene_of(meta, (lock,)))


def _scene_of(meta: Store, locks: Sequence[DdlLock]) -> Scene:
    """Return the scene that the locks need: none if all are resolved, because there may be thousands of shards."""
    return read_scene(meta) if any(lock.resolved_at is None for lock in locks) else NO_SCENE


def execute(meta: Store, target: Server, lock_id: str, as_source: str | None = None,
            executor: Executor | None = None) -> LockView:  # fmt: skip
    """Execute a lock's DDL on the target if it may be, resolve it, and return how it stands.

    `as_source` does nothing unless it is the owner. A refusal by the target leaves the lock failed, with
    the target's words; another call tries again. Errors that may pass by themselves are raised.
    """
    meta.locks.get(lock_id)
    locks, scene = _observed(meta)
    lock = next((lock for lock in locks if lock.id == lock_id), None)
    if lock is None:
        return view(meta, lock_id)
    if not _is_due(lock, scene, as_source):
        return _view(lock, scene)
    with meta.locks.exclusive(lock_id):
        lock, scene = meta.locks.get(lock_id), read_scene(meta)
        if _is_due(lock, scene, as_source):
            # Only stand-ins of the meta store keep no schema, and they come with an executor.
            _execute(meta, lock, scene, executor or _OnTarget(cast("Intents", meta), target))
    observe(meta)
    return view(meta, lock_id)


def _advance(meta: Store, scene: Scene, open_locks: Sequence[DdlLock]) -> bool:
    """Settle debts, resolve skipped locks, open and withdraw locks; whether anything was done."""
    settled = settlements(scene.shards, scene.owed)
    for settlement in settled:
        log.info("skip settled lock=%s shard=%s seq=%s", settlement.lock, settlement.shard, settlement.seq)
        meta.locks.settle(settlement)
    if settled:
        return True
    admitted = [found for members in scene.groups.values() for found in admissions(members)]
    for admission in admitted:
        log.info("shard admitted shard=%s seq=%s peer=%s", admission.shard, admission.seq, admission.peer)
        meta.locks.admit(admission)
    if admitted:
        return True
    locks = {lock.target: lock for lock in open_locks}
    skipped = [lock for lock in locks.values() if scene.decide(lock).is_skipped]
    for lock in skipped:
        log.info("lock skipped lock=%s", lock.id)
        meta.locks.resolve(lock, Outcome.SKIPPED)
    if skipped:
        return True
    moot = [lock for lock in locks.values() if scene.decide(lock).is_withdrawn]
    for lock in moot:
        log.info("lock withdrawn lock=%s", lock.id)
        meta.locks.withdraw(lock)
    opened = _open_locks(meta, scene, locks)
    return bool(moot) or opened


def _open_locks(meta: Store, scene: Scene, locks: Mapping[TableId, DdlLock]) -> bool:
    found = False
    for target, members in scene.groups.items():
        entry = opening(members, scene.owed) if target not in locks else None
        if entry is not None:
            log.info("lock opens target=%s shard=%s seq=%s", target, entry.shard, entry.seq)
            meta.locks.create(target, entry)
            found = True
    return found


def _is_due(lock: DdlLock, scene: Scene, as_source: str | None) -> bool:
    decision = scene.decide(lock)
    return decision.is_executable and as_source in (None, decision.owner)


def _execute(meta: Store, lock: DdlLock, scene: Scene, executor: Executor) -> None:
    """Run the steps of the table in core.ddllock, statement after statement, holding the lock's guard."""
    while lock.resolved_at is None and _execute_next(meta, lock, scene, executor):
        lock, scene = meta.locks.get(lock.id), read_scene(meta)


def _execute_next(meta: Store, lock: DdlLock, scene: Scene, executor: Executor) -> bool:
    """Execute the lock's next statement; whether another follows."""
    entry, statements = script(scene.members(lock.target), lock, scene.decide(lock).owner)
    step = f"{lock.done + 1}/{len(statements)}"
    try:
        outcome = _execute_statement(meta, lock, replace(entry, routed=statements[lock.done]), executor)
    except UnshardError as error:
        if error.transient:
            raise
        log.warning("execute refused lock=%s statement=%s error=%s", lock.id, step, error.code)
        meta.locks.fail(lock, str(error), may_be_done=isinstance(error, TargetChanged))
        return False
    if outcome is None:
        log.info("execute ordered otherwise or resolved meanwhile lock=%s", lock.id)
        return False
    log.info("execute step 2/3 %s lock=%s statement=%s", outcome, lock.id, step)
    if lock.done + 1 < len(statements):
        meta.locks.advance(lock, outcome)
        return True
    meta.locks.resolve(lock, outcome)
    log.info("execute step 3/3 resolved lock=%s", lock.id)
    return False


def _execute_statement(meta: Store, lock: DdlLock, entry: QueueEntry, executor: Executor) -> Outcome | None:
    """Write the intent, then execute; None if the lock was resolved or ordered otherwise meanwhile."""
    entry = executor.intended(lock.id, entry)
    structures = meta.structures.get({entry.before, entry.after})
    log.info("execute step 1/3 intent lock=%s source=%s", lock.id, entry.shard.source)
    if not meta.locks.start(lock, entry.shard.source, entry):
        return None
    is_new = executor.execute(lock.target, entry, structures[entry.before], structures[entry.after])
    return Outcome.EXECUTED if is_new else Outcome.PRESENT


@dataclass(frozen=True, slots=True)
class _OnTarget:
    """Executes on the real target."""

    meta: "Intents"
    server: Server

    def intended(self, lock: str, entry: QueueEntry) -> QueueEntry:
        from unshard.units import execute as executing  # brings the tokenizer, which looking at locks does not need

        return executing.intended(self.meta, self.server, lock, entry)

    def execute(self, target: TableId, entry: QueueEntry, before: TableSchema, wanted: TableSchema) -> bool:
        from unshard.units import execute as executing

        return executing.execute_ddl(self.server, target, entry, before, wanted)


def read_scene(meta: Store) -> Scene:
    """Read all shards, what they owe, and which sources are not in sync yet."""
    absent = tuple(state.source for state in meta.sources.all() if state.phase is Phase.NEW)
    owed = meta.locks.owed()
    while True:
        shards = meta.structures.shards()
        # A rename between the two would part a shard from what it owes.
        before, owed = owed, meta.locks.owed() if owed else owed
        if owed == before:
            return Scene(shards, owed, absent, meta.stops.all())


def _view(lock: DdlLock, scene: Scene) -> LockView:
    decision = scene.decide(lock)
    members = scene.members(lock.target) if lock.resolved_at is None else ()
    held = [file for state in members for file in state.held]
    heads = {state.shard: state.queue[0] for state in members if state.queue}
    return LockView(
        id=lock.id,
        target=lock.target,
        number=lock.number,
        ddl=lock.entry.routed,
        state=decision.state,
        opened_at=lock.opened_at,
        seen_at=lock.seen_at,
        resolved_at=lock.resolved_at,
        owner=decision.owner,
        is_forced=lock.is_forced,
        is_executable=decision.is_executable and decision.state is not LockState.FAILED,
        members=_members(members, decision),
        ready=decision.ready,
        missing=decision.missing,
        conflicts=decision.conflicts,
        conflicting=tuple(heads[shard].routed for shard in decision.conflicts),
        held_rows=sum(file.rows for file in held),
        held_bytes=sum(file.bytes for file in held),
        error=lock.error,
        reason=_reason(heads, decision),
        outcome=lock.outcome,
        verdict=lock.verdict,
        statements=lock.replacement,
        done=lock.done,
        excused=tuple(sorted(lock.excused)),
        differences=tuple(_difference(heads[shard], lock, scene.owed) for shard in decision.conflicts),
        filled=_filled(lock),
        stopped=tuple(stop for stop in scene.stops if lock.resolved_at is None and stop.target == lock.target),
    )


def _reason(heads: Mapping[Shard, QueueEntry], decision: Decision) -> str:
    return next((heads[shard].reason for shard in (*decision.ready, *decision.conflicts) if heads[shard].reason), "")


def _filled(lock: DdlLock) -> tuple[str, ...]:
    """Return the columns whose old rows differ from server to server once the target has the lock's DDL."""
    texts = lock.replacement or lock.entry.replacement or (lock.entry.routed,)
    is_none = lock.verdict is Verdict.SKIP or lock.outcome in (Outcome.SKIPPED, Outcome.WITHDRAWN)
    if is_none or not any(map(MAY_FILL.search, texts)):
        return ()
    from unshard.core.lineage import Ran  # these bring the tokenizer
    from unshard.core.moments import filled_by_each

    statement = lock.entry.statement
    explicit = bool(dict(statement.session).get("explicit_defaults_for_timestamp", 1))
    return tuple(name for text in texts for name in filled_by_each(Ran(text, statement.sql_mode), explicit))


def _difference(entry: QueueEntry, lock: DdlLock, owed: Debts) -> tuple[str, ...]:
    found = differing_words(lock.agreement, entry.agreement)
    first = next((debt for debt in owed.get(entry.shard, ()) if debt.is_binding), None)
    if first is not None:
        return (*found, f"it owes lock {first.lock} a skip of `{first.agreement}` first")
    return found


def _members(members: Sequence[ShardState], decision: Decision) -> dict[str, MemberState]:
    """Return where each source stands: as the worst of its shards."""
    ranks = ((decision.conflicts, MemberState.CONFLICT), (decision.missing, MemberState.WAITING),
             (decision.draining, MemberState.DRAINING))  # fmt: skip
    found = dict.fromkeys(decision.absent, MemberState.ABSENT)
    for source in sorted({state.shard.source for state in members}):
        worst = (state for shards, state in ranks if any(shard.source == source for shard in shards))
        found[source] = next(worst, MemberState.READY)
    return found
