"""Coordinate DDL of shards: read all queues, open and release locks, execute each DDL once. Runs in the driver.

The coordinator is level-triggered: every call reads queues and locks and does what is due now. So any process may call
it, at any time, and several processes at once. core.ddl.lock decides what is due; its docstring has the cases and the
effect of a crash between the steps.

    observe   resolve pending skips, open locks, record the state of each
    execute   one DDL: intent, execute unless the target has it, resolve
    views     the same as observe shows, without changing anything
    planned   the stages that follow for each lock, without changing anything

Commands of operators are in units.ddl.lockcommands.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, assert_never, cast

from unshard.core.ddl.lock import (
    DdlLock,
    LockDecision,
    LockState,
    Outcome,
    PendingSkips,
    decide,
    opening,
    script,
    skip_resolutions,
)
from unshard.core.ddl.members import MemberState, members_of
from unshard.core.ddl.newshards import admissions
from unshard.core.ddl.onetoone import waiting
from unshard.core.ddl.queue import OperatorDecision, QueueEntry, ShardState, WholeChange
from unshard.core.ddl.reconcile import is_contradicted, is_refusal, is_undescribed
from unshard.core.ddl.shardgroup import groups
from unshard.core.ddl.stages import (
    ExecuteStatement,
    Execution,
    LockStage,
    NoteStatement,
    OpenLock,
    ResolveLock,
    WriteIntent,
    execution_stages,
    lock_stages,
)
from unshard.core.ddl.textdifference import differing_words
from unshard.core.ddl.ways import USUAL, Way
from unshard.core.model import Server, Shard, TableId, TableSchema
from unshard.core.rows.reload import filled_columns, own_values
from unshard.core.task.state import Phase
from unshard.core.window.suspension import SuspendedTarget
from unshard.errors import UnshardError
from unshard.errors.ddl import TargetChanged
from unshard.units.ddl import waysout
from unshard.units.ddl.lockstore import Executor, Store, StoreReader
from unshard.units.stages import evaluate

if TYPE_CHECKING:
    from unshard.units.ddl.execute import Intents

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LockView:
    """A lock as it is shown to operators and sensors."""

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
    """Whether `execute` would execute it now; a failed lock is executed only on request, by name."""
    members: Mapping[str, MemberState]
    ready: tuple[Shard, ...]
    missing: tuple[Shard, ...]
    conflicts: tuple[Shard, ...]
    conflicting: tuple[str, ...]
    """The routed DDL of each shard in conflict, in the same order."""
    held_rows: int
    held_bytes: int
    error: str | None
    reason: str = ""
    """Why the effect of the DDL, or of one in conflict with it, is unknown."""
    outcome: Outcome | None = None
    """How it was resolved."""
    verdict: OperatorDecision = OperatorDecision.NONE
    statements: tuple[str, ...] = ()
    """The statements that are executed in place of the DDL."""
    done: int = 0
    """Number of statements that the target has executed."""
    exempted: tuple[Shard, ...] = ()
    """Shards that a command has exempted."""
    differences: tuple[tuple[str, ...], ...] = ()
    """Differences between this DDL and that of each shard in conflict, in the same order."""
    filled: tuple[str, ...] = ()
    """Columns that the DDL adds and that each server fills with its own value in old rows."""
    to_reload: tuple[Shard, ...] = ()
    """The shards from which these columns are not reloaded yet, once the lock is resolved."""
    whole: WholeChange = WholeChange.NONE
    """The effect on a one-to-one target as a whole."""
    stopped: tuple[SuspendedTarget, ...] = ()
    """Sources for which the target is suspended; the lock waits until their held rows are written."""
    ways: tuple[Way, ...] = USUAL
    """Ways out of a conflict that lead the rows of all shards into the target."""
    barred: tuple[tuple[Way, str], ...] = ()
    """The other usual ways out, each with the reason why it fails."""
    extension: tuple[str, ...] = ()
    """The statements of `Way.EXTENDED` or `Way.PLACED`."""
    is_joined: bool = False
    """Whether the target follows the join of its shards: only the shards that have reached the DDL wait."""

    @property
    def is_open(self) -> bool:
        """Whether the lock is not resolved."""
        return self.state is not LockState.RESOLVED

    @property
    def is_refused(self) -> bool:
        """Whether it waits because the target refused the DDL; a retry may succeed."""
        asked = self.state in (LockState.UNDECIDED, LockState.CONFLICT)
        return self.state is LockState.FAILED or (asked and is_refusal(self.reason))

    @property
    def is_contradicted(self) -> bool:
        """Whether it waits because rows of a shard have another structure, which only other statements can explain."""
        return self.state is LockState.UNDECIDED and is_contradicted(self.reason)

    @property
    def lacks_place(self) -> bool:
        """Whether a new shard waits whose rows have no place in the target; `extension` makes one."""
        return Way.PLACED in self.ways

    @property
    def is_undescribed(self) -> bool:
        """Whether it waits for a CREATE TABLE, because a skip has not told the structure of a new shard."""
        return self.state is LockState.UNDECIDED and is_undescribed(self.reason)

    @property
    def removed_rows(self) -> bool:
        """Whether the target lost its rows or its name by it, because its only shard did."""
        is_executed = self.outcome in (Outcome.EXECUTED, Outcome.PRESENT)
        return is_executed and self.whole not in (WholeChange.NONE, WholeChange.CREATE) and not self.statements

    @property
    def warning(self) -> str:
        """The effect of the DDL on the union of the shards, and the remedy; empty without an effect."""
        return own_values(self.filled, self.to_reload)


@dataclass(frozen=True)
class Scene:
    """The state that all decisions of one call are made from, read once."""

    shards: tuple[ShardState, ...]
    pending_skips: PendingSkips
    absent: tuple[str, ...]
    joined: frozenset[TableId] = frozenset()
    """Targets in optimistic mode: units.ddl.joining opens their locks."""
    suspended: tuple[SuspendedTarget, ...] = ()
    schemas_of: Callable[[Iterable[str]], Mapping[str, TableSchema]] = lambda _: {}
    """Returns the structures of digests."""
    structure_of: Callable[[DdlLock], str] = lambda _: ""
    """Returns the structure of a lock's target."""
    error_of: Callable[[DdlLock], str | None] = lambda _: None
    """Returns the message of a joined target that rejects the DDL of a lock."""

    @cached_property
    def groups(self) -> Mapping[TableId, tuple[ShardState, ...]]:
        """The shards by target."""
        return groups(self.shards)

    @cached_property
    def waiting(self) -> frozenset[tuple[Shard, int]]:
        """The heads of queues that wait for a statement about another target."""
        return waiting(self.shards)

    def members(self, target: TableId) -> tuple[ShardState, ...]:
        return self.groups.get(target, ())

    def decide(self, lock: DdlLock) -> LockDecision:
        return decide(self.members(lock.target), lock, self.pending_skips, self.absent)


NO_SCENE = Scene((), {}, ())


def observe(meta: Store) -> tuple[LockView, ...]:
    """Do everything that is due for all locks, except executing DDL; return the open locks. Idempotent."""
    locks, scene = _observed(meta)
    return tuple(_view(lock, scene) for lock in locks)


def _observed(meta: Store) -> tuple[tuple[DdlLock, ...], Scene]:
    """Do everything that is due for all locks, except executing DDL; return the open locks and the scene.

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


def views(meta: StoreReader, resolved: bool = False) -> tuple[LockView, ...]:
    """Return the open locks, on request preceded by the newest resolved ones; changes nothing."""
    locks = meta.locks.all() if resolved else meta.locks.open()
    scene = _scene_of(meta, locks)
    return tuple(_reloaded(meta, _view(lock, scene)) for lock in locks)


def _reloaded(meta: StoreReader, view: LockView) -> LockView:
    """Return the lock with the shards that are still to be reloaded; after the last one, without a warning."""
    if not view.filled or view.resolved_at is None:
        return view
    due = meta.reloads.due(view.target, view.filled, view.resolved_at)
    return replace(view, to_reload=due, filled=view.filled if due else ())


@dataclass(frozen=True, slots=True)
class LockPlan:
    """What a lock waits for and what follows then."""

    target: TableId
    stages: tuple[LockStage, ...]
    lock: LockView | None = None
    """None: the lock is not open yet."""
    fingerprint: str = ""
    """Of the DDL that the lock is for."""


def planned(meta: StoreReader) -> tuple[LockPlan, ...]:
    """Return the stages that follow for each open lock, and the locks that `observe` would open; changes nothing."""
    locks = meta.locks.open()
    if not locks and not meta.structures.is_pending():
        return ()
    scene = read_scene(meta)
    has_lock = {lock.target for lock in locks}
    entries = (
        opening(members, scene.pending_skips, scene.waiting)
        for target, members in scene.groups.items()
        if target not in has_lock and target not in scene.joined
    )
    due = (
        LockPlan(entry.target, (OpenLock(entry),), None, entry.fingerprint) for entry in entries if entry is not None
    )
    return (*(_planned(lock, scene) for lock in locks), *due)


def _planned(lock: DdlLock, scene: Scene) -> LockPlan:
    shown, decision = _view(lock, scene), scene.decide(lock)
    statements = script(scene.members(lock.target), lock, decision.owner)[1]
    suspended = sorted({stop.source for stop in shown.stopped})
    stages = lock_stages(lock, decision, statements, shown.reason, suspended)
    return LockPlan(lock.target, stages, shown, lock.fingerprint)


def view(meta: StoreReader, lock_id: str) -> LockView:
    """Return one lock, resolved or not; raises UnknownLock if it does not exist."""
    lock = meta.locks.get(lock_id)
    return _reloaded(meta, _view(lock, _scene_of(meta, (lock,))))


def _scene_of(meta: StoreReader, locks: Sequence[DdlLock]) -> Scene:
    """Return the scene of the locks; empty if all are resolved, because a scene may have thousands of shards."""
    return read_scene(meta) if any(lock.resolved_at is None for lock in locks) else NO_SCENE


def execute(
    meta: Store, target: Server, lock_id: str, as_source: str | None = None, executor: Executor | None = None
) -> LockView:
    """Execute a lock's DDL on the target if it is executable, resolve the lock, and return its state.

    `as_source` has no effect unless it is the owner. If the target refuses the DDL, the lock is failed and keeps the
    target's message; another call retries. Transient errors are raised.
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
            # Only test doubles of the meta store have no schema, and they pass an executor.
            _execute(meta, lock, scene, executor or _OnTarget(cast("Intents", meta), target, lock_id))
    observe(meta)
    return view(meta, lock_id)


def _advance(meta: Store, scene: Scene, open_locks: Sequence[DdlLock]) -> bool:
    """Resolve pending skips and skipped locks, open and withdraw locks; return whether anything changed."""
    resolved = skip_resolutions(scene.shards, scene.pending_skips)
    for skip_resolution in resolved:
        log.info(
            "skip resolved lock=%s shard=%s seq=%s", skip_resolution.lock, skip_resolution.shard, skip_resolution.seq
        )
        meta.locks.settle(skip_resolution)
    if resolved:
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
    withdrawn = [lock for lock in locks.values() if scene.decide(lock).is_withdrawn]
    for lock in withdrawn:
        log.info("lock withdrawn lock=%s", lock.id)
        meta.locks.withdraw(lock)
    opened = _open_locks(meta, scene, locks)
    return bool(withdrawn) or opened


def _open_locks(meta: Store, scene: Scene, locks: Mapping[TableId, DdlLock]) -> bool:
    found = False
    for target, members in scene.groups.items():
        is_free = target not in locks and target not in scene.joined
        entry = opening(members, scene.pending_skips, scene.waiting) if is_free else None
        if entry is not None:
            log.info("lock opens target=%s shard=%s seq=%s", target, entry.shard, entry.seq)
            meta.locks.create(target, entry)
            found = True
    return found


def _is_due(lock: DdlLock, scene: Scene, as_source: str | None) -> bool:
    decision = scene.decide(lock)
    return decision.is_executable and as_source in (None, decision.owner)


@dataclass(frozen=True, slots=True)
class _Execution:
    """The execution of a lock while its stages run (core.ddl.stages), holding the lock's guard."""

    lock: DdlLock
    scene: Scene
    passed: int = 0
    """Stages of the next statement that are done."""
    entry: QueueEntry | None = None
    """The next statement with the structures of its intent."""
    outcome: Outcome = Outcome.EXECUTED
    is_over: bool = False

    @property
    def left(self) -> list[Execution]:
        """The stages that are left."""
        if self.is_over or self.lock.resolved_at is not None:
            return []
        owner = self.scene.decide(self.lock).owner
        statements = script(self.scene.members(self.lock.target), self.lock, owner)[1]
        return execution_stages(self.lock, statements, owner, self.passed)


def _execute(meta: Store, lock: DdlLock, scene: Scene, executor: Executor) -> None:
    """Run the steps of the table in core.ddl.lock, statement after statement, holding the lock's guard."""
    evaluate(_Execution(lock, scene), lambda found: found.left, lambda stage, found: _run(meta, stage, found, executor))


def _run(meta: Store, stage: Execution, found: _Execution, executor: Executor) -> _Execution:
    lock = found.lock
    match stage:
        case WriteIntent():
            after = _unless_refused(meta, stage, found, lambda: _write_intent(meta, stage, found, executor))
        case ExecuteStatement():
            after = _unless_refused(meta, stage, found, lambda: _execute_statement(meta, stage, found, executor))
        case NoteStatement():
            meta.locks.advance(lock, found.outcome)
            after = _again(meta, lock)
        case ResolveLock():
            meta.locks.resolve(lock, found.outcome)
            log.info("execute step 3/3 resolved lock=%s", lock.id)
            after = replace(found, is_over=True)
        case _:
            assert_never(stage)
    return after


def _unless_refused(
    meta: Store, stage: WriteIntent | ExecuteStatement, found: _Execution, run: Callable[[], _Execution]
) -> _Execution:
    """Run a stage; an error that does not pass by itself fails the lock and ends the execution."""
    try:
        return run()
    except UnshardError as error:
        if error.transient:
            raise
        log.warning("execute refused lock=%s statement=%s error=%s", found.lock.id, stage.step, error.code)
        meta.locks.fail(found.lock, str(error), may_be_done=isinstance(error, TargetChanged))
        return replace(found, is_over=True)


def _write_intent(meta: Store, stage: WriteIntent, found: _Execution, executor: Executor) -> _Execution:
    """Write the intent; the execution ends if the lock was resolved or got another command meanwhile."""
    lock, members = found.lock, found.scene.members(found.lock.target)
    version = meta.joins.version(lock.target)  # the structure that `intended` reads must stay until the intent
    if version and not lock.done and not read_scene(meta).decide(lock).is_executable:
        return replace(found, is_over=True)  # the coordinator of optimistic mode has accepted the DDL meanwhile
    entry, statements = script(members, lock, found.scene.decide(lock).owner)
    whole = entry.whole if statements == (entry.routed,) else WholeChange.NONE
    entry = executor.intended(lock.id, replace(entry, routed=statements[lock.done], replacement=(), whole=whole))
    if entry.replacement:
        log.info("execute in steps lock=%s statement=%s steps=%s", lock.id, stage.step, len(entry.replacement))
        is_split = meta.locks.split(lock, (*statements[: lock.done], *entry.replacement, *statements[lock.done + 1 :]))
        return _again(meta, lock) if is_split else replace(found, is_over=True)
    meta.structures.get({entry.before, entry.after})
    log.info("execute step 1/3 intent lock=%s source=%s", lock.id, entry.shard.source)
    if not meta.locks.start(lock, entry.shard.source, entry, version):
        log.info("execute ordered otherwise or resolved meanwhile lock=%s", lock.id)
        return replace(found, is_over=True)
    return replace(found, passed=1, entry=entry)


def _execute_statement(meta: Store, stage: ExecuteStatement, found: _Execution, executor: Executor) -> _Execution:
    entry, lock = found.entry, found.lock
    assert entry is not None
    structures = meta.structures.get({entry.before, entry.after})
    is_new = executor.execute(lock.target, entry, structures[entry.before], structures[entry.after])
    outcome = Outcome.EXECUTED if is_new else Outcome.PRESENT
    log.info("execute step 2/3 %s lock=%s statement=%s", outcome, lock.id, stage.step)
    return replace(found, passed=2, outcome=outcome)


def _again(meta: Store, lock: DdlLock) -> _Execution:
    """Return the execution of what is left, from the present state."""
    return _Execution(meta.locks.get(lock.id), read_scene(meta))


@dataclass(frozen=True, slots=True)
class _OnTarget:
    """Executes on the real target."""

    meta: "Intents"
    server: Server
    lock: str

    def intended(self, lock: str, entry: QueueEntry) -> QueueEntry:
        from unshard.units.ddl import execute as executing  # brings the tokenizer, which reading locks does not need

        return executing.intended(self.meta, self.server, lock, entry)

    def execute(self, target: TableId, entry: QueueEntry, before: TableSchema, wanted: TableSchema) -> bool:
        from unshard.units.ddl import execute as executing

        if executing.is_whole(entry):
            is_new = executing.execute_whole(
                self.server,
                target,
                entry,
                lambda: self._is_open(entry),
                lambda connection: executing.drop_schema(self.meta, connection, target, entry),
            )
        else:
            is_new = executing.execute_ddl(self.server, target, entry, before, wanted)
        executing.record_write(self.meta, self.server, target)
        return is_new

    def _is_open(self, entry: QueueEntry) -> bool:
        """Whether the intent of a statement is still open: no other process has resolved the lock meanwhile."""
        executions = self.meta.locks.executions(self.lock)
        return any(each.done_at is None and each.ddl == entry.routed for each in executions)


def _structure_of_target(meta: StoreReader, lock: DdlLock) -> str:
    """Return the structure of the target after its newest DDL: that of the shards if it has had none.

    It is empty if a new shard had the first lock.
    """
    name = lock.id.rpartition("-")[0]
    for number in range(lock.number, 0, -1):
        for run in reversed(meta.locks.executions(f"{name}-{number}")):
            if run.outcome in (Outcome.EXECUTED, Outcome.PRESENT):
                return run.wanted
    first = meta.locks.get(f"{name}-1").entry
    return "" if first.is_alone else first.before


def read_scene(meta: StoreReader) -> Scene:
    """Read all shards, their pending skips, and the sources that are not in sync yet."""
    absent = tuple(state.source for state in meta.sources.all() if state.phase is Phase.NEW)
    pending_skips, joined = meta.locks.pending_skips(), meta.joins.targets()
    while True:
        shards = meta.structures.shards()
        # A rename between the two reads would separate a shard from its pending skips.
        before, pending_skips = pending_skips, meta.locks.pending_skips() if pending_skips else pending_skips
        if pending_skips == before:
            suspended = meta.suspended_targets.all()
            return Scene(
                shards,
                pending_skips,
                absent,
                joined,
                suspended,
                meta.structures.get,
                lambda lock: _structure_of_target(meta, lock),
                lambda lock: meta.joins.last_error(lock.target, lock.entry.routed) or None,
            )


def _view(lock: DdlLock, scene: Scene) -> LockView:
    decision = scene.decide(lock)
    members = scene.members(lock.target) if lock.resolved_at is None else ()
    held = [file for state in members for file in state.held]
    heads = {state.shard: state.queue[0] for state in members if state.queue}
    ways = waysout.ways_of(scene, lock, decision)
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
        members=members_of(members, decision),
        ready=decision.ready,
        missing=decision.missing,
        conflicts=decision.conflicts,
        conflicting=tuple(heads[shard].routed for shard in decision.conflicts),
        held_rows=sum(file.rows for file in held),
        held_bytes=sum(file.bytes for file in held),
        error=lock.error or scene.error_of(lock),
        reason=_reason(heads, decision),
        outcome=lock.outcome,
        verdict=lock.verdict,
        statements=lock.replacement,
        done=lock.done,
        exempted=tuple(sorted(lock.exempted)),
        differences=tuple(_difference(heads[shard], lock, scene.pending_skips) for shard in decision.conflicts),
        filled=filled_columns(lock),
        whole=lock.entry.whole,
        stopped=tuple(each for each in scene.suspended if lock.resolved_at is None and each.target == lock.target),
        is_joined=lock.target in scene.joined,
        **ways,
    )


def _reason(heads: Mapping[Shard, QueueEntry], decision: LockDecision) -> str:
    return next((heads[shard].reason for shard in (*decision.ready, *decision.conflicts) if heads[shard].reason), "")


def _difference(entry: QueueEntry, lock: DdlLock, pending_skips: PendingSkips) -> tuple[str, ...]:
    found = differing_words(lock.fingerprint, entry.fingerprint)
    first = next((pending_skip for pending_skip in pending_skips.get(entry.shard, ()) if pending_skip.is_binding), None)
    if first is not None:
        return (*found, f"it must first skip `{first.fingerprint}` of lock {first.lock}")
    return found
