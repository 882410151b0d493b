"""The ways out of a conflict that lead the rows of all shards into the target, found by simulation.

A conflict ends when every shard's own DDL counts as the lock's DDL, as nothing, or as one that follows. A way out is
good only if every later row has a place in the target. `ways_out` plays each way to its end, with the DDLs that are
queued after the conflict and with the structures that the shards have after each of them:

| step                                   | the way fails if                                                        |
|----------------------------------------|-------------------------------------------------------------------------|
| the target executes a DDL              | it adds a column that the target has, or changes one that it lacks      |
| the rows after a resolved DDL continue | they have a column that the target lacks (US-6003)                      |
| the next DDL is in conflict, too       | no way out of that conflict succeeds                                    |

If a DDL counts as the lock's DDL, its columns have the names that the lock's DDL gives them, also in the DDLs after it
(core.ddl.columnnames).

Only the names of columns are compared. A value that does not fit into a column of the target is found when its row is
written. `is_same_change` also compares types. A shard whose structure after a DDL is unknown cannot be simulated; then
every usual way is returned.

`place` returns the statements that give the rows of a new shard a place in its target: if an operator only skips the
statement that creates it, rows of columns that the target lacks stop (US-6003).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from unshard.core.ddl.columnnames import columns_named, with_target_names
from unshard.core.ddl.lineage import ExecutedDdl, names_after, names_moved, specs_of_alter
from unshard.core.ddl.lock import USUAL_WAYS, DdlLock, PendingSkip, PendingSkips, Way, counted, is_queued, statements_of
from unshard.core.ddl.queue import (
    EntryState,
    HeldFile,
    OperatorDecision,
    QueueEntry,
    ShardState,
    UnnamedShard,
    is_alone,
    releasable,
)
from unshard.core.ddl.sessioneffects import added_columns
from unshard.core.model import Column, Shard, TableId, TableSchema
from unshard.core.sql.quoting import identifier, qualified
from unshard.core.structures.comparison import narrower
from unshard.core.structures.createtext import create_text
from unshard.core.structures.hiddencolumns import unversioned
from unshard.core.structures.parsedtable import create_parts
from unshard.errors.ddl import DdlUnreadable

Names = frozenset[str]
MOST_STEPS = 300
"""Steps of a simulation, after which a way counts as good: it is not known to fail."""


@dataclass(frozen=True, slots=True)
class LockConflict:
    """A lock in conflict, with the structures of its group."""

    members: Sequence[ShardState]
    """The shards of the group, without those that have a lock of their own."""
    lock: DdlLock
    pending_skips: PendingSkips
    conflicts: tuple[Shard, ...]
    schemas: Mapping[str, TableSchema]
    present: str = ""
    """The structure of the target after its newest DDL; empty if it is unknown."""

    def schema(self, digest: str) -> TableSchema | None:
        return self.schemas.get(digest)

    @property
    def heads(self) -> tuple[QueueEntry, ...]:
        found = (state.queue[0] for state in self.members if state.shard in self.conflicts and state.queue)
        return tuple(entry for entry in found if entry.fingerprint != self.lock.fingerprint)


def concerned(members: Iterable[ShardState]) -> tuple[ShardState, ...]:
    """Return the shards that a conflict concerns: those with rows or DDLs to come, and no lock of their own."""
    return tuple(state for state in members if not is_alone(state) and (state.queue or not state.has_left))


def digests(members: Iterable[ShardState], lock: DdlLock) -> set[str]:
    """Return the structures that a simulation needs."""
    found = {digest for state in members for digest in (*_structures(state), lock.entry.before, lock.entry.after)}
    return found - {""}


def _structures(state: ShardState) -> Iterator[str]:
    for entry in state.queue:
        yield from (entry.before, entry.after)
    if not state.queue:
        yield state.structure


def lower_names(schema: TableSchema) -> Names:
    """Return the names of the columns in lower case."""
    return frozenset(name.lower() for name in schema.names)


def is_same_change(conflict: LockConflict, state: ShardState) -> bool:
    """Whether `unlock` counts the DDL of a shard in conflict as the lock's DDL.

    Both must lead to the same columns, or the statements that an operator gave for the lock must lead to all columns
    that the shard's DDL adds. A column that is wider in the shard stays a DDL of its own, unless the target could not
    execute it after the lock's DDL. The lock's DDL must not follow in the shard's queue.
    """
    own, lock = state.queue[0], conflict.lock
    before, after = conflict.schema(own.before), conflict.schema(own.after)
    found = _names_after_lock(conflict)
    if own.reason or before is None or after is None or found is None or is_queued(state, lock.fingerprint):
        return False
    gained = lower_names(after) - lower_names(before)
    if statements_of(lock):
        return bool(gained) and gained <= found
    theirs = conflict.schema(lock.entry.after)
    if lower_names(after) != found or theirs is None:
        return False
    return bool(gained) or not narrower(theirs, after)


def _names_after_lock(conflict: LockConflict) -> Names | None:
    """Return the columns that a shard with the lock's DDL has, or has once it has run the statements instead."""
    entry, statements = conflict.lock.entry, statements_of(conflict.lock)
    before, after = conflict.schema(entry.before), conflict.schema(entry.after)
    if not statements:
        return None if after is None else lower_names(after)
    return None if before is None else _after(lower_names(before), statements, entry.statement.sql_mode)


def _after(names: Names, statements: Sequence[str], sql_mode: int) -> Names:
    ran = [ExecutedDdl(text, sql_mode) for text in statements]
    for each in ran:
        added = {definition[0].name.lower() for spec in specs_of_alter(each) for definition in added_columns(spec)}
        names = frozenset(names_after(names, [each]).values()) | added
    return names


def extension(conflict: LockConflict) -> tuple[str, ...]:
    """Return the statements that also add the columns of the shards in conflict to the target; empty if none."""
    found = _names_after_lock(conflict)
    if found is None:
        return ()
    missing: dict[str, Column] = {}
    for entry in conflict.heads:
        before, after = conflict.schema(entry.before), conflict.schema(entry.after)
        if before is None or after is None:
            return ()
        for column in after.written:
            if column.name.lower() not in found | lower_names(before):
                missing.setdefault(column.name.lower(), column)
    first = statements_of(conflict.lock) or (conflict.lock.entry.routed,)
    return (*first, _adding(conflict.lock.target, missing.values())) if missing else ()


def _adding(target: TableId, columns: Iterable[Column]) -> str:
    specs = (
        f"ADD COLUMN {identifier(c.name)} {c.column_type}" + (f" CHARACTER SET {c.charset}" if c.charset else "")
        for c in columns
    )
    return f"ALTER TABLE {qualified(target.schema, target.name)} {', '.join(specs)}"


@dataclass(frozen=True, slots=True)
class WaysOut:
    """The ways out of a conflict."""

    offered: tuple[Way, ...]
    """Those that lead the rows of all shards into the target, the simplest first; if none does, the lock's DDL alone if
    the target and the rows allow it until a later DDL."""
    barred: tuple[tuple[Way, str], ...] = ()
    """The other usual ways, each with the reason why it fails."""


def ways_out(conflict: LockConflict) -> WaysOut:
    """Return the ways out of a conflict that lead the rows of all shards into the target."""
    group = _group(conflict)
    if group is None:
        return WaysOut(USUAL_WAYS)
    lock, same = _lock_step(conflict), _same_changes(conflict)
    tried = {way: _failure(partial(_decided, group, lock, way, same)) for way in USUAL_WAYS}
    found = tuple(way for way, failure in tried.items() if not failure)
    found = found or _skipped(group, lock) or _extended(conflict)
    # If every way ends at a later DDL, that DDL needs statements, and this one does not.
    if not found and not _failure(partial(_decided, group, lock, Way.UNLOCKED, same), 0):
        found = (Way.UNLOCKED,)
    return WaysOut(found, tuple((way, failure) for way, failure in tried.items() if failure and way not in found))


def _same_changes(conflict: LockConflict) -> set[Shard]:
    return {
        state.shard
        for state in conflict.members
        if state.shard in conflict.conflicts and state.queue and is_same_change(conflict, state)
    }


def _failure(decided: "Callable[[], _SimulatedGroup]", steps: int = MOST_STEPS) -> str:
    try:
        _finish(decided(), iter(range(steps)))
    except _NoWay as error:
        return str(error)
    return ""


def _skipped(group: "_SimulatedGroup", lock: "_Step") -> tuple[Way, ...]:
    return () if _failure(lambda: group.without(lock)) else (Way.SKIPPED,)


def _extended(conflict: LockConflict) -> tuple[Way, ...]:
    """The lock's DDL is replaced, then unlocked."""
    statements = extension(conflict)
    if not statements:
        return ()
    lock = replace(conflict.lock, verdict=OperatorDecision.REPLACE, replacement=statements)
    conflict = replace(conflict, lock=lock)
    group, same = _group(conflict), _same_changes(conflict)
    if group is None or _failure(partial(_decided, group, _lock_step(conflict), Way.UNLOCKED, same)):
        return ()
    return (Way.EXTENDED,)


class _NoWay(Exception):
    """A step of a way out that the target or the rows do not allow; the text says why."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A queued DDL: its effect on the names of the columns."""

    fingerprint: str
    added: Names
    removed: Names
    changed: Names
    """The columns that its text names and that the shard has before it, thus also `removed`."""
    after: Names
    is_written: bool
    """Whether the shard has, or will have, rows with this structure."""
    order: tuple[int, Shard, int]


@dataclass(frozen=True, slots=True)
class _Member:
    """A shard of the group."""

    shard: Shard
    names: Names
    """The columns of its rows that are written now; empty if it writes no row before its next DDL."""
    moved: Mapping[str, str | None]
    """The target's names of columns that a DDL which the shard has not run has renamed there; None: dropped."""
    steps: tuple[_Step, ...]
    missing: tuple[_Step, ...] = ()
    skips: Names = frozenset()
    counted: "tuple[_Step, ...]" = ()
    """The steps if the first of them counts as the lock's DDL."""

    def agrees(self, step: _Step) -> bool:
        """Whether its next DDL is this one."""
        return bool(self.steps) and self.steps[0].fingerprint == step.fingerprint

    def popped(self, target: Names) -> "_Member":
        """Return the shard after its first DDL.

        If the target keeps a column that the DDL renames, its new name is another column of the target.
        """
        first, *rest = self.steps
        if first.added - first.removed and (kept := (first.removed - first.added) & target):
            raise _NoWay(f"{_told(kept)} of {self.shard} would be two columns of the target")
        left = tuple(step for step in self.missing if step.fingerprint != first.fingerprint)
        names = first.after if first.is_written else frozenset()
        skips = self.skips - {first.fingerprint}
        return replace(self, names=names, steps=tuple(rest), missing=left, skips=skips)

    def require_place(self, target: Names) -> None:
        """Raise unless the target has a place for the columns of its rows."""
        found = {name: new for name in self.names if (new := self.moved.get(name, name))}
        for step in self.missing:
            is_rename = len(step.removed) == len(step.added) == 1
            new = next(iter(step.added)) if is_rename else None
            found = names_moved(found, dict.fromkeys(step.removed, new))
        if lost := frozenset(name for name, new in found.items() if new not in target):
            raise _NoWay(f"rows of {self.shard} have {_told(lost)}, which the target would not have")
        if twice := frozenset(name for name, count in Counter(found.values()).items() if count > 1):
            raise _NoWay(f"rows of {self.shard} would have two values for {_told(twice)}")


@dataclass(frozen=True, slots=True)
class _SimulatedGroup:
    """The columns of the target, and its shards."""

    target: Names
    members: tuple[_Member, ...]

    def popped(self, which: Sequence[Shard]) -> "_SimulatedGroup":
        members = tuple(member.popped(self.target) if member.shard in which else member for member in self.members)
        for member in members:
            if member.shard in which:
                member.require_place(self.target)
        return replace(self, members=members)

    def settled(self) -> "_SimulatedGroup":
        group = self
        while due := [m.shard for m in group.members if m.steps and m.steps[0].fingerprint in m.skips]:
            group = group.popped(due)
        return group

    def without(self, step: _Step) -> "_SimulatedGroup":
        """Return the group after a DDL is skipped for all shards, also for those that reach it later."""
        ready = [m.shard for m in self.members if m.agrees(step)]
        members = (m if m.agrees(step) else replace(m, skips=m.skips | {step.fingerprint}) for m in self.members)
        return replace(self, members=tuple(members)).popped(ready)

    def executed(self, step: _Step) -> "_SimulatedGroup":
        if there := step.added & self.target:
            raise _NoWay(f"the target has {_told(there)} already, which the DDL of {step.order[1]} adds")
        if lost := step.changed - self.target:
            raise _NoWay(f"the target would not have {_told(lost)} any more, which the DDL of {step.order[1]} changes")
        target = (self.target - step.removed) | step.added
        members = tuple(
            member.popped(target)
            if member.agrees(step)
            else replace(member, missing=(*member.missing, step), skips=member.skips | {step.fingerprint})
            for member in self.members
        )
        for member in members:
            member.require_place(target)
        return _SimulatedGroup(target, members)


def _told(names: Names) -> str:
    return f"column{'s' * (len(names) > 1)} {', '.join(sorted(names))}"


def _group(conflict: LockConflict) -> _SimulatedGroup | None:
    unknown = any(conflict.schema(digest) is None for state in conflict.members for digest in _structures(state))
    if unknown or conflict.schema(conflict.lock.entry.after) is None:
        return None
    first = {state.shard: _first(state, conflict) for state in conflict.members}
    present = conflict.schema(conflict.present)
    target = lower_names(present) if present else frozenset[str]().union(*first.values())
    alike: dict[object, ShardState] = {}  # of thousands of shards, most have the same structures and DDLs
    for state in conflict.members:
        alike.setdefault(_key(state, conflict), state)
    members = (
        _Member(
            state.shard,
            frozenset() if state.queue and not releasable(state) else first[state.shard],
            _moved(first[state.shard], conflict.pending_skips.get(state.shard, ())),
            tuple(_step(entry, conflict, state.held, entry == state.queue[-1]) for entry in state.queue),
            skips=_skips(state, conflict),
            counted=_as_lock(state, conflict),
        )
        for state in alike.values()
    )
    return _SimulatedGroup(target, tuple(members))


def _key(state: ShardState, conflict: LockConflict) -> object:
    """Return a value that is equal for shards with which a simulation does the same."""
    queue = [(e.fingerprint, e.before, e.after, any(file.seq == e.seq for file in state.held)) for e in state.queue]
    return tuple(queue), state.structure, _skips(state, conflict), bool(releasable(state))


def _skips(state: ShardState, conflict: LockConflict) -> Names:
    return frozenset(skip.fingerprint for skip in conflict.pending_skips.get(state.shard, ()))


def ways_of_waiting(
    entry: QueueEntry, schemas: Mapping[str, TableSchema], skips: Sequence[PendingSkip], target: Names
) -> WaysOut:
    """Return the ways out of a waiting lock that cannot be unlocked; empty if it can.

    `entry` is the DDL of a ready shard with these pending skips, `target` the columns that the other shards have there.
    """
    before, after = (lower_names(schemas[digest]) for digest in (entry.before, entry.after))
    others, mode = _moved(before, skips), entry.statement.sql_mode
    other = {name: others[name] for name in _changed(before, before - after, (entry.routed,), mode) if name in others}
    if other:
        names = (f"column {name} of {entry.shard} is {new or 'dropped'} in the target" for name, new in other.items())
        return WaysOut((), ((Way.UNLOCKED, f"{', '.join(names)}, and must stay so"),))
    there = (after - before) & target
    if not there:
        return WaysOut(())
    why = f"the target has {', '.join(sorted(there))} already, which the DDL of {entry.shard} adds"
    # If it counts as nothing, a column that it renames has no place, and two columns must not have the same one.
    is_nothing = before <= after and there.isdisjoint(others.values())
    return WaysOut((Way.SKIPPED,) if is_nothing else (), ((Way.UNLOCKED, why),))


def names_in_target(schema: TableSchema, skips: Sequence[PendingSkip]) -> Names:
    """Return the names that the columns of a shard have in the target after its pending skips."""
    names = lower_names(schema)
    others = _moved(names, skips)
    return frozenset(new for name in names if (new := others.get(name, name)))


def _moved(names: Names, skips: Sequence[PendingSkip]) -> dict[str, str | None]:
    """Return the target's names of columns that pending skips of a shard rename; None: dropped there."""
    try:
        found = names_after(names, [ExecutedDdl(skip.fingerprint, 0) for skip in skips])
    except DdlUnreadable:
        return dict.fromkeys(names)
    return {name: found.get(name) for name in names if found.get(name) != name}


def _first(state: ShardState, conflict: LockConflict) -> Names:
    return lower_names(conflict.schemas[state.queue[0].before if state.queue else state.structure])


def _lock_step(conflict: LockConflict) -> _Step:
    entry = conflict.lock.entry
    step, statements = _step(entry, conflict, ()), statements_of(conflict.lock)
    if not statements:
        return step
    return _replaced(step, conflict.schemas[entry.before], statements, entry.statement.sql_mode)


def _step(entry: QueueEntry, conflict: LockConflict, held: Sequence[HeldFile], is_last: bool = True) -> _Step:
    before, after = lower_names(conflict.schemas[entry.before]), lower_names(conflict.schemas[entry.after])
    is_written = is_last or any(file.seq == entry.seq for file in held)
    order = entry.statement.timestamp, entry.shard, entry.seq
    changed = _changed(before, before - after, (entry.routed,), entry.statement.sql_mode)
    return _Step(entry.fingerprint, after - before, before - after, changed, after, is_written, order)


def _changed(before: Names, removed: Names, statements: Iterable[str], sql_mode: int) -> Names:
    found: set[str] = set()
    for text in statements:
        try:
            found |= columns_named(text, sql_mode)
        except DdlUnreadable:
            continue
    return removed | (before & found)


def _replaced(step: _Step, before: TableSchema, statements: Sequence[str], sql_mode: int) -> _Step:
    old = lower_names(before)
    new = _after(old, statements, sql_mode)
    changed = _changed(old, old - new, statements, sql_mode)
    return replace(step, added=new - old, removed=old - new, changed=changed)


def _decided(group: _SimulatedGroup, lock: _Step, way: Way, same: Collection[Shard]) -> _SimulatedGroup:
    others = [m for m in group.members if m.steps and not m.agrees(lock)]
    group = replace(group, members=tuple(_counted(m, lock) if m.agrees(lock) else m for m in group.members))
    if way is Way.NOTHING:
        after = group.popped([member.shard for member in others]).settled().executed(lock)
    else:
        counted = {member.shard for member in others} if way is Way.SAME else same
        if way is Way.SAME:
            _refuse_joining(others, lock)
        members = tuple(_counted(member, lock) if member.shard in counted else member for member in group.members)
        after = replace(group, members=members).executed(lock)
    # `counted` is valid for this lock only.
    return replace(after, members=tuple(replace(member, counted=()) for member in after.members))


def _refuse_joining(members: Iterable[_Member], lock: _Step) -> None:
    for member in members:
        own = member.steps[0]
        if own.added and lock.added - own.added and not own.removed | lock.removed:
            raise _NoWay(f"{_told(own.added)} of {member.shard} would be {_told(lock.added)} of the target")


def _counted(member: _Member, lock: _Step) -> _Member:
    first, *rest = member.counted or _with_name_of(lock, member.steps)
    return replace(member, steps=(replace(first, fingerprint=lock.fingerprint), *rest))


def _with_name_of(lock: _Step, steps: tuple[_Step, ...]) -> tuple[_Step, ...]:
    """Return the steps of a shard if the first counts as the lock's DDL, and one of them renames or adds a column.

    This is the rule of core.ddl.columnnames for the locks of a simulation, which know no statements.
    """
    first, *rest = steps
    old = first.removed | lock.removed
    if len(old) > 1 or not old <= first.removed | first.after:
        return steps
    here, there = (step.added if old <= step.removed else old for step in (first, lock))
    if len(here) != 1 or len(there) != 1 or here <= lock.added | there:
        return steps

    def swapped(names: Names) -> Names:
        return names - here | there if here <= names and not there <= names else names

    found = [replace(first, added=swapped(first.added), after=swapped(first.after))]
    for place, step in enumerate(rest):
        if there <= step.added:
            if not here <= step.removed:
                break
            found[-1] = replace(found[-1], is_written=found[-1].is_written or step.is_written)
            return (*found, *rest[place + 1 :])
        found.append(_swapped(step, swapped))
        if here <= step.removed:
            break
    return (*found, *rest[len(found) - 1 :])


def _swapped(step: _Step, swapped: Callable[[Names], Names]) -> _Step:
    changed = swapped(step.changed)
    fingerprint = step.fingerprint if changed == step.changed else f"{step.fingerprint} of {', '.join(sorted(changed))}"
    return replace(
        step, fingerprint=fingerprint, removed=swapped(step.removed), changed=changed, after=swapped(step.after)
    )


def _as_lock(state: ShardState, conflict: LockConflict) -> tuple[_Step, ...]:
    """Return the steps of a shard if its first DDL counts as the lock's DDL."""
    if state.shard not in conflict.conflicts or not state.queue:
        return ()
    head = counted(state.queue[0], conflict.lock)
    shard = UnnamedShard(state.shard, (head, *state.queue[1:]), (), "", state.shard_uid)
    found, schemas = with_target_names(shard, conflict.schemas)
    known = replace(conflict, schemas={**conflict.schemas, **{schema.digest: schema for schema in schemas}})
    steps: list[_Step] = []
    for entry in found.entries:
        step = _step(entry, known, state.held, entry.seq == state.queue[-1].seq)
        if entry.state is EntryState.PENDING:
            steps.append(step)
        else:
            steps[-1] = replace(steps[-1], is_written=steps[-1].is_written or step.is_written)
    return tuple(steps)


def _finish(group: _SimulatedGroup, budget: Iterator[int]) -> None:
    """Resolve the DDLs that are left so that the rows of all shards are in the target; raises if no way does so.

    `budget` yields an item for each step that the simulation may take.
    """
    settled = group.settled()
    heads = [member.steps[0] for member in settled.members if member.steps]
    if not heads or next(budget, None) is None:
        return
    lock = min(heads, key=lambda step: step.order)
    failures = []
    for after in _next(settled, lock):
        try:
            return _finish(after(), budget)
        except _NoWay as error:
            failures.append(error)
    raise failures[0]


def _next(group: _SimulatedGroup, lock: _Step) -> "Iterator[Callable[[], _SimulatedGroup]]":
    alike = {m.shard for m in group.members if m.steps and m.steps[0].after == lock.after}
    is_conflict = any(m.steps and not m.agrees(lock) for m in group.members)
    for way in USUAL_WAYS if is_conflict else (Way.UNLOCKED,):
        yield partial(_decided, group, lock, way, alike)
    if is_conflict or (lock.added and lock.added <= group.target and not lock.changed):
        # The target refuses to add columns that it has; the lock then waits for an operator, who skips it.
        yield partial(group.without, lock)


# --- the statements that give the rows of a new shard a place in its target


def place(target: TableId, shard: TableSchema, present: Sequence[TableSchema]) -> tuple[str, ...]:
    """Return the statements that the target lacks for the rows of a new shard; empty if it lacks none.

    `present` are the structures whose columns the target has; it is empty if no shard has ever had this target.
    """
    if not present:
        return (create_text(unversioned(shard.create_sql), target, if_not_exists=True),)
    there = {name.lower() for schema in present for name in schema.names}
    missing = {column.name.lower() for column in shard.written} - there
    texts = [part.bare for part in create_parts(shard.create_sql).columns if part.name.lower() in missing]
    if not texts:
        return ()
    added = ", ".join(f"ADD COLUMN {text}" for text in texts)
    return (f"ALTER TABLE {qualified(target.schema, target.name)} {added}",)
