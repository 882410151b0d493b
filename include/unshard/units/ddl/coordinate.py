"""Coordinate DDL of shards: read all queues, open and release locks, execute each DDL once. Runs in the driver.

The coordinator is level-triggered: every call reads queues and locks and does what is due now. So any process may call
it, at any time, and several processes at once. core.ddl.lock decides what is due; its docstring has the cases and the
effect of a crash between the steps.

    observe   resolve pending skips, open locks, record the state of each
    execute   one DDL: intent, execute unless the target has it, resolve
    facts     the locks and the state of their shards, without changing anything
    views     the same with the ways out of conflicts, for operators
    planned   the stages that follow for each lock, without changing anything

`observe` and `executed` return the scene after them (units.ddl.scene), so that the next step need not read it again.
Commands of operators are in `operate`.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from unshard.core.ddl.lock import (
    DdlLock,
    LockStage,
    LockStep,
    Outcome,
    execution_stages,
    lock_stages,
    open_stage,
    opening,
    script,
    skip_resolutions,
)
from unshard.core.ddl.queue import QueueEntry, WholeChange, admissions
from unshard.core.model import Server, TableId, TableSchema
from unshard.core.stages import evaluate
from unshard.errors import UnshardError
from unshard.errors.ddl import TargetChanged
from unshard.units.ddl.scene import NO_SCENE, LockFacts, LockView, Scene, V, find, read_scene, scene_of

if TYPE_CHECKING:
    from unshard.adapters.meta import Meta, MetaReader

log = logging.getLogger(__name__)


def observe(meta: "Meta") -> Scene:
    """Do everything that is due for all locks, except executing DDL; return the scene after it. Idempotent."""
    locks = meta.locks.open()
    if not locks and not meta.structures.is_pending():
        return NO_SCENE
    scene = read_scene(meta, locks)
    while _advance(meta, scene):
        scene = read_scene(meta)
    for lock in scene.locks:
        decision = scene.decide(lock)
        meta.locks.note(lock, decision.state, decision.owner)
    return scene


def facts(meta: "MetaReader", resolved: bool = False) -> tuple[LockFacts, ...]:
    """Return the open locks, on request preceded by the newest resolved ones; changes nothing."""
    locks = meta.locks.all() if resolved else meta.locks.open()
    scene = scene_of(meta, locks)
    return tuple(_reloaded(meta, scene.facts(lock)) for lock in locks)


def views(meta: "MetaReader", resolved: bool = False) -> tuple[LockView, ...]:
    """Return the same locks as they are shown to operators; changes nothing."""
    locks = meta.locks.all() if resolved else meta.locks.open()
    scene = scene_of(meta, locks)
    return tuple(_reloaded(meta, scene.view(lock)) for lock in locks)


def facts_of(meta: "MetaReader", lock_id: str, scene: Scene = NO_SCENE) -> LockFacts:
    """Return one lock, resolved or not, from `scene` if it is open there; raises UnknownLock if it does not exist."""
    lock, scene = find(meta, lock_id, scene)
    return _reloaded(meta, scene.facts(lock))


def view(meta: "MetaReader", lock_id: str, scene: Scene = NO_SCENE) -> LockView:
    """Return the same lock as it is shown to operators."""
    lock, scene = find(meta, lock_id, scene)
    return _reloaded(meta, scene.view(lock))


def _reloaded(meta: "MetaReader", found: V) -> V:
    """Return the lock with the shards that are still to be reloaded; after the last one, without a warning."""
    if not found.filled or found.resolved_at is None:
        return found
    due = meta.reloads.due(found.target, found.filled, found.resolved_at)
    return replace(found, to_reload=due, filled=found.filled if due else ())


@dataclass(frozen=True, slots=True)
class LockPlan:
    """What a lock waits for and what follows then."""

    target: TableId
    stages: tuple[LockStage, ...]
    lock: LockView | None = None
    """None: the lock is not open yet."""
    fingerprint: str = ""


def planned(meta: "MetaReader") -> tuple[LockPlan, ...]:
    """Return the stages that follow for each open lock, and the locks that `observe` would open; changes nothing."""
    locks = meta.locks.open()
    if not locks and not meta.structures.is_pending():
        return ()
    scene = read_scene(meta, locks)
    has_lock = {lock.target for lock in locks}
    entries = (
        opening(members, scene.pending_skips, scene.waiting)
        for target, members in scene.groups.items()
        if target not in has_lock and target not in scene.joined
    )
    due = (
        LockPlan(entry.target, (open_stage(entry),), None, entry.fingerprint) for entry in entries if entry is not None
    )
    return (*(_planned(lock, scene) for lock in locks), *due)


def _planned(lock: DdlLock, scene: Scene) -> LockPlan:
    found, decision = scene.view(lock), scene.decide(lock)
    statements = script(scene.members(lock.target), lock, decision.owner)[1]
    suspended = sorted({stop.source for stop in found.stopped})
    stages = lock_stages(lock, decision, statements, found.reason, suspended)
    return LockPlan(lock.target, stages, found, lock.fingerprint)


def execute(
    meta: "Meta", target: Server, lock_id: str, as_source: str | None = None, executor: "LockExecutor | None" = None
) -> LockView:
    """Execute a lock's DDL on the target if it is executable, resolve the lock, and return its state.

    `as_source` has no effect unless it is the owner. If the target refuses the DDL, the lock is failed and keeps the
    target's message; another call retries. Transient errors are raised.
    """
    meta.locks.get(lock_id)
    return view(meta, lock_id, executed(meta, target, lock_id, observe(meta), as_source, executor))


def executed(
    meta: "Meta",
    target: Server,
    lock_id: str,
    scene: Scene,
    as_source: str | None = None,
    executor: "LockExecutor | None" = None,
) -> Scene:
    """Do the same from the scene that `observe` has just returned; return the scene after it."""
    lock = scene.lock(lock_id)
    if lock is None or not _is_due(lock, scene, as_source):
        return scene
    with meta.locks.exclusive(lock_id):
        begun = _begun(meta, lock_id)
        if _is_due(begun.lock, begun.scene, as_source):
            by = executor or LockExecutor(meta, target, lock_id)
            evaluate(begun, lambda found: found.left, lambda stage, found: _run(meta, stage, found, by))
    return observe(meta)


def _advance(meta: "Meta", scene: Scene) -> bool:
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
    locks = {lock.target: lock for lock in scene.locks}
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


def _open_locks(meta: "Meta", scene: Scene, locks: Mapping[TableId, DdlLock]) -> bool:
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
    """The execution of a lock while its stages run (core.ddl.lock), holding the lock's guard."""

    lock: DdlLock
    scene: Scene
    join_version: int = 0
    """The version of a target in optimistic mode, read before the scene: the structure that `intended` reads must stay
    until the intent.
    """
    passed: int = 0
    entry: QueueEntry | None = None
    """The next statement with the structures of its intent."""
    outcome: Outcome = Outcome.EXECUTED
    is_over: bool = False

    @property
    def left(self) -> tuple[LockStage, ...]:
        if self.is_over or not self.lock.is_open:
            return ()
        owner = self.scene.decide(self.lock).owner
        statements = script(self.scene.members(self.lock.target), self.lock, owner)[1]
        return execution_stages(self.lock, statements, owner, self.passed)


def _begun(meta: "Meta", lock_id: str) -> _Execution:
    lock = meta.locks.get(lock_id)
    version = meta.joins.version(lock.target)
    return _Execution(lock, read_scene(meta, (lock,)), version)


def _run(meta: "Meta", stage: LockStage, found: _Execution, executor: "LockExecutor") -> _Execution:
    lock = found.lock
    match stage.kind:
        case LockStep.INTENT:
            after = _unless_refused(meta, stage, found, lambda: _write_intent(meta, stage, found, executor))
        case LockStep.EXECUTE:
            after = _unless_refused(meta, stage, found, lambda: _execute_statement(meta, stage, found, executor))
        case LockStep.NOTE:
            meta.locks.advance(lock, found.outcome)
            after = _begun(meta, lock.id)
        case LockStep.RESOLVE:
            meta.locks.resolve(lock, found.outcome)
            log.info("execute step 3/3 resolved lock=%s", lock.id)
            after = replace(found, is_over=True)
        case _:
            raise ValueError(f"{stage.kind} is no step of an execution")
    return after


def _unless_refused(meta: "Meta", stage: LockStage, found: _Execution, run: Callable[[], _Execution]) -> _Execution:
    """Run a stage; an error that does not pass by itself fails the lock and ends the execution."""
    try:
        return run()
    except UnshardError as error:
        if error.transient:
            raise
        log.warning("execute refused lock=%s statement=%s error=%s", found.lock.id, stage.values, error.code)
        meta.locks.fail(found.lock, str(error), may_be_done=isinstance(error, TargetChanged))
        return replace(found, is_over=True)


def _write_intent(meta: "Meta", stage: LockStage, found: _Execution, executor: "LockExecutor") -> _Execution:
    """Write the intent; the execution ends if the lock was resolved or got another command meanwhile."""
    lock, members, version = found.lock, found.scene.members(found.lock.target), found.join_version
    if version and not lock.done and not found.scene.decide(lock).is_executable:
        return replace(found, is_over=True)  # the coordinator of optimistic mode has accepted the DDL meanwhile
    entry, statements = script(members, lock, found.scene.decide(lock).owner)
    whole = entry.whole if statements == (entry.routed,) else WholeChange.NONE
    entry = executor.intended(lock.id, replace(entry, routed=statements[lock.done], replacement=(), whole=whole))
    if entry.replacement:
        log.info("execute in steps lock=%s statement=%s steps=%s", lock.id, stage.values, len(entry.replacement))
        is_split = meta.locks.split(lock, (*statements[: lock.done], *entry.replacement, *statements[lock.done + 1 :]))
        return _begun(meta, lock.id) if is_split else replace(found, is_over=True)
    meta.structures.get({entry.before, entry.after})
    log.info("execute step 1/3 intent lock=%s source=%s", lock.id, entry.shard.source)
    if not meta.locks.start(lock, entry.shard.source, entry, version):
        log.info("execute ordered otherwise or resolved meanwhile lock=%s", lock.id)
        return replace(found, is_over=True)
    return replace(found, passed=1, entry=entry)


def _execute_statement(meta: "Meta", stage: LockStage, found: _Execution, executor: "LockExecutor") -> _Execution:
    entry, lock = found.entry, found.lock
    assert entry is not None
    structures = meta.structures.get({entry.before, entry.after})
    is_new = executor.execute(lock.target, entry, structures[entry.before], structures[entry.after])
    outcome = Outcome.EXECUTED if is_new else Outcome.PRESENT
    log.info("execute step 2/3 %s lock=%s statement=%s", outcome, lock.id, stage.values)
    return replace(found, passed=2, outcome=outcome)


@dataclass(frozen=True, slots=True)
class LockExecutor:
    """Executes the DDL of locks on the target, each exactly once."""

    meta: "Meta"
    server: Server
    lock: str

    def intended(self, lock: str, entry: QueueEntry) -> QueueEntry:
        from unshard.units.ddl import execute as executing  # brings the tokenizer, which reading locks does not need

        return executing.intended(self.meta, self.server, lock, entry)

    def execute(self, target: TableId, entry: QueueEntry, before: TableSchema, wanted: TableSchema) -> bool:
        """Execute `entry` unless the target has the wanted structure; return whether it was executed.

        Raises a coded error with the target's message if the target refuses.
        """
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
