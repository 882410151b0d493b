"""The state that all decisions about locks are made from. One call reads it once; after a change it is read again."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from unshard.core.ddl.lock import (
    USUAL_WAYS,
    DdlLock,
    LockDecision,
    LockState,
    MemberState,
    Outcome,
    PendingSkips,
    Way,
    decide,
    members_of,
)
from unshard.core.ddl.onetoone import waiting
from unshard.core.ddl.queue import OperatorDecision, QueueEntry, ShardState, WholeChange, groups, structure_chain
from unshard.core.ddl.reconcile import is_contradicted, is_refusal, is_undescribed
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.rows.columnreload import filled_columns, own_values
from unshard.core.shown import differing_words
from unshard.core.task.state import Phase
from unshard.core.window.suspension import SuspendedTarget

if TYPE_CHECKING:
    from unshard.adapters.meta import MetaReader
    from unshard.core.ddl.waysout import LockConflict


@dataclass(frozen=True, slots=True)
class LockFacts:
    """A lock with the state of its shards."""

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
    verdict: OperatorDecision = OperatorDecision.NONE
    statements: tuple[str, ...] = ()
    """The statements that are executed in place of the DDL."""
    done: int = 0
    exempted: tuple[Shard, ...] = ()
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
    is_joined: bool = False
    """Whether the target follows the join of its shards: only the shards that have reached the DDL wait."""
    held_since: datetime | None = None
    """A time before which none of the held rows was changed; None: unknown, or no rows are held."""

    @property
    def is_open(self) -> bool:
        return self.state is not LockState.RESOLVED

    @property
    def others(self) -> tuple[Shard, ...]:
        """The shards in conflict at another DDL; the rest of them have a pending skip of an earlier lock."""
        return tuple(shard for shard in self.conflicts if shard not in self.ready)

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
    def is_undescribed(self) -> bool:
        """Whether it waits for a CREATE TABLE, because nothing tells the structure after the DDL."""
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


@dataclass(frozen=True, slots=True)
class LockView(LockFacts):
    """A lock as it is shown to operators: with the ways out of a conflict, which core.ddl.waysout simulates."""

    ways: tuple[Way, ...] = USUAL_WAYS
    """Ways out of a conflict that lead the rows of all shards into the target."""
    barred: tuple[tuple[Way, str], ...] = ()
    """The other usual ways out, each with the reason why it fails."""
    extension: tuple[str, ...] = ()
    """The statements of `Way.EXTENDED` or `Way.PLACED`."""

    @property
    def lacks_place(self) -> bool:
        """Whether a new shard waits whose rows have no place in the target; `extension` makes one."""
        return Way.PLACED in self.ways


V = TypeVar("V", bound=LockFacts)


@dataclass(frozen=True)
class Scene:
    """The open locks and everything that decides about them, read once."""

    locks: tuple[DdlLock, ...]
    shards: tuple[ShardState, ...]
    pending_skips: PendingSkips
    absent: tuple[str, ...]
    joined: frozenset[TableId] = frozenset()
    """Targets in optimistic mode: units.ddl.joining opens their locks."""
    suspended: tuple[SuspendedTarget, ...] = ()
    schemas_of: Callable[[Iterable[str]], Mapping[str, TableSchema]] = lambda _: {}
    structure_of: Callable[[DdlLock], str] = lambda _: ""
    error_of: Callable[[DdlLock], str | None] = lambda _: None
    """Returns the message of a joined target that rejects the DDL of a lock."""

    @cached_property
    def groups(self) -> Mapping[TableId, tuple[ShardState, ...]]:
        return groups(self.shards)

    @cached_property
    def waiting(self) -> frozenset[tuple[Shard, int]]:
        """The heads of queues that wait for a statement about another target."""
        return waiting(self.shards)

    def lock(self, lock_id: str) -> DdlLock | None:
        """Return an open lock; None if it is resolved, or was opened after the scene was read."""
        return next((lock for lock in self.locks if lock.id == lock_id), None)

    def members(self, target: TableId) -> tuple[ShardState, ...]:
        return self.groups.get(target, ())

    def decide(self, lock: DdlLock) -> LockDecision:
        return decide(self.members(lock.target), lock, self.pending_skips, self.absent)

    def facts(self, lock: DdlLock) -> LockFacts:
        return self._facts_as(LockFacts, lock, self.decide(lock))

    def view(self, lock: DdlLock) -> LockView:
        decision = self.decide(lock)
        return self._facts_as(LockView, lock, decision, **_ways_of(self, lock, decision))

    def conflict_of(self, lock: DdlLock, decision: LockDecision) -> "LockConflict | None":
        """Return the conflict of a lock with the structures of its group; None if it has none."""
        if not decision.conflicts:
            return None
        from unshard.core.ddl import waysout  # brings the tokenizer

        members = waysout.concerned(self.members(lock.target))
        present = self.structure_of(lock)
        schemas = self.schemas_of({*waysout.digests(members, lock), *filter(None, [present])})
        return waysout.LockConflict(members, lock, self.pending_skips, decision.conflicts, schemas, present)

    def _facts_as(self, kind: type[V], lock: DdlLock, decision: LockDecision, **more: Any) -> V:
        """Return the same as an object of this class; `more` are the fields that `LockFacts` lacks."""
        members = self.members(lock.target) if lock.is_open else ()
        held = [file for state in members for file in state.held]
        heads = {state.shard: state.queue[0] for state in members if state.queue}
        return kind(
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
            held_since=_earliest(file.first_time for file in held),
            error=lock.error or self.error_of(lock),
            reason=next(filter(None, (heads[shard].reason for shard in (*decision.ready, *decision.conflicts))), ""),
            outcome=lock.outcome,
            verdict=lock.verdict,
            statements=lock.replacement,
            done=lock.done,
            exempted=tuple(sorted(lock.exempted)),
            differences=tuple(_difference(heads[shard], lock, self.pending_skips) for shard in decision.conflicts),
            filled=filled_columns(lock),
            whole=lock.entry.whole,
            stopped=tuple(each for each in self.suspended if lock.is_open and each.target == lock.target),
            is_joined=lock.target in self.joined,
            **more,
        )


def _earliest(times: Iterable[int]) -> datetime | None:
    first = min(filter(None, times), default=0)
    return datetime.fromtimestamp(first, UTC) if first else None


NO_SCENE = Scene((), (), {}, ())


def _ways_of(scene: Scene, lock: DdlLock, decision: LockDecision) -> dict[str, Any]:
    """Return the fields `ways`, `barred` and `extension` of a `LockView`, if they are not the usual ones."""
    if decision.state is LockState.CONFLICT:
        return _of_conflict(scene.conflict_of(lock, decision))
    if decision.state is LockState.UNDECIDED and lock.target not in scene.joined:
        return _of_new_shard(scene, lock, decision)
    if decision.state is LockState.WAITING:
        return _of_waiting(scene, lock, decision)
    return {}


def _of_waiting(scene: Scene, lock: DdlLock, decision: LockDecision) -> dict[str, Any]:
    """A shard that has the columns already, by a DDL that counted as another one, can never run this one."""
    members, missing = scene.members(lock.target), {*decision.missing}
    # The entry of the lock may be older than the names of the columns.
    entry = next((state.queue[0] for state in members if state.shard in decision.ready), lock.entry)
    skips = scene.pending_skips
    changed = (state for state in members if state.shard in missing and state.structure not in ("", entry.before))
    found = ((state.structure, skips.get(state.shard, ())) for state in changed)
    # Of thousands of shards, most have the same structure and pending skips.
    others = {(digest, *(skip.fingerprint for skip in own)): (digest, own) for digest, own in found}
    if not (others and entry.before and entry.after) or lock.replacement:
        return {}
    from unshard.core.ddl.waysout import names_in_target, ways_of_waiting  # brings the tokenizer

    schemas = scene.schemas_of({entry.before, entry.after, *(digest for digest, _ in others.values())})
    target = (names_in_target(schemas[digest], own) for digest, own in others.values())
    ways = ways_of_waiting(entry, schemas, skips.get(entry.shard, ()), frozenset[str]().union(*target))
    return {"ways": ways.offered, "barred": ways.barred}


def _of_conflict(conflict: "LockConflict | None") -> dict[str, Any]:
    if conflict is None:
        return {}
    from unshard.core.ddl import waysout

    found = waysout.ways_out(conflict)
    extension = waysout.extension(conflict) if Way.EXTENDED in found.offered else ()
    return {"ways": found.offered, "barred": found.barred, "extension": extension}


def _of_new_shard(scene: Scene, lock: DdlLock, decision: LockDecision) -> dict[str, Any]:
    group = scene.members(lock.target)
    new = next((state for state in group if state.shard in decision.ready), None)
    if new is None or not new.queue[0].is_alone or not new.queue[0].after:
        return {}
    from unshard.core.ddl.waysout import place  # brings the tokenizer

    entry, present = new.queue[0], scene.structure_of(lock)
    # Each shard is at the structure before its first queued DDL, and the target has its columns.
    shown = (
        {present}
        if present
        else {entry.before, *(structure_chain(state)[0] for state in group if state is not new)} - {""}
    )
    schemas = scene.schemas_of({entry.after, *shown})
    statements = place(lock.target, schemas[entry.after], [schemas[digest] for digest in shown])
    if not statements:
        return {}
    barred = (Way.NOTHING, f"rows of {new.shard} would have no place in {lock.target}")
    return {"ways": (Way.PLACED,), "barred": (barred,), "extension": statements}


def _difference(entry: QueueEntry, lock: DdlLock, pending_skips: PendingSkips) -> tuple[str, ...]:
    found = differing_words(lock.fingerprint, entry.fingerprint)
    first = next((pending_skip for pending_skip in pending_skips.get(entry.shard, ()) if pending_skip.is_binding), None)
    if first is not None:
        return (*found, f"it must first skip `{first.fingerprint}` of lock {first.lock}")
    return found


def read_scene(meta: "MetaReader", locks: Sequence[DdlLock] | None = None) -> Scene:
    """Read the open locks, unless the caller has read them, then all shards, their pending skips and the sources.

    Locks are read first, so the scene has the queue entries that opened them.
    """
    locks = meta.locks.open() if locks is None else locks
    absent = tuple(state.source for state in meta.sources.all() if state.phase is Phase.NEW)
    pending_skips, joined = meta.locks.pending_skips(), meta.joins.targets()
    while True:
        shards = meta.structures.shards()
        # A rename between the two reads would separate a shard from its pending skips.
        before, pending_skips = pending_skips, meta.locks.pending_skips() if pending_skips else pending_skips
        if pending_skips == before:
            suspended = meta.suspended_targets.all()
            return Scene(
                tuple(lock for lock in locks if lock.is_open),
                shards,
                pending_skips,
                absent,
                joined,
                suspended,
                meta.structures.get,
                lambda lock: _structure_of_target(meta, lock),
                _errors_of(meta, joined),
            )


def scene_of(meta: "MetaReader", locks: Sequence[DdlLock]) -> Scene:
    """Return the scene of these locks; empty if all are resolved, because a scene may have thousands of shards."""
    return read_scene(meta, locks) if any(lock.is_open for lock in locks) else NO_SCENE


def find(
    meta: "MetaReader",
    lock_id: str,
    scene: Scene = NO_SCENE,
    read: Callable[["MetaReader", Sequence[DdlLock]], Scene] = scene_of,
) -> tuple[DdlLock, Scene]:
    """Return a lock from the scene with the scene, else read both; raises UnknownLock if the lock does not exist."""
    lock = scene.lock(lock_id)
    if lock is not None:
        return lock, scene
    lock = meta.locks.get(lock_id)
    return lock, read(meta, (lock,))


def _errors_of(meta: "MetaReader", joined: frozenset[TableId]) -> Callable[[DdlLock], str | None]:
    """Return the function that tells the message of a target; the first call reads those of all targets."""
    if not joined:
        return lambda _: None
    errors = cache(meta.joins.last_errors)
    return lambda lock: errors().get((lock.target, lock.entry.routed)) if lock.target in joined else None


def _structure_of_target(meta: "MetaReader", lock: DdlLock) -> str:
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
