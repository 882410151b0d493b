"""Follow the join of the shards: the coordinator of `shard-mode: optimistic`. Runs in the driver.

`follow_each` is level-triggered, as `units.ddl.coordinate` is: it reads the state, core.join.planning says what is due,
and it does that, until nothing is due. Any process may call it at any time.

A change of the target is an intent with all its statements, the statements, and the completion, which resolves the DDLs
of the shards. Before the intent every statement is tried on an empty table.

| process dies                           | next attempt                                                                |
|----------------------------------------|-----------------------------------------------------------------------------|
| before the intent                      | the same state: decides again                                               |
| after the intent, before a statement   | the target is as before the statement: the change is given up, decided again|
| while the target runs a statement      | waits for the guard of that session, then as below or above                 |
| after a statement, before its record   | the target is as after it: it is recorded, then the rest is decided again   |
| between two statements                 | the change is given up; the rest is decided again from the present target   |
| after the last one, before completion  | nothing is left to execute: the DDL is accepted                             |
| in the completion (one transaction)    | all of it or nothing                                                        |
| after it, before a window              | the next windows release the rows after the DDL                             |
| a slow process wakes up                | finds its change ended under the guard, executes nothing                    |
| during a reload of columns             | the reload continues from its last chunk; the columns are still due         |

A statement that changes no structure (`DROP c, ADD c` of the same type) is executed again. No row after it is in the
target by then, so the result is the same.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from unshard.core.ddl.lock import DdlLock, named
from unshard.core.ddl.queue import QueueEntry, ShardState, groups, is_alone
from unshard.core.join.changekind import ChangeKind
from unshard.core.join.decision import begun_at, begun_names, conflicts_of, steps_to_join, unjoined_columns
from unshard.core.join.difference import (
    AlterPart,
    Step,
    Target,
    alter_parts,
    apply,
    has_same_effect,
    leads_to,
    single_parts,
    taken_names,
    target_of,
)
from unshard.core.join.group import Member, begin, intended, with_member
from unshard.core.join.joined import Completion, JoinedTarget, JoinStatement, OpenChange, with_reloaded
from unshard.core.join.planning import (
    ColumnsOfShard,
    Following,
    JoinPlan,
    JoinScene,
    JoinStage,
    JoinStep,
    TargetChange,
    adopted_names,
    announced,
    digest_of,
    entries_between,
    is_quiet,
    needed_states,
    plan_join,
)
from unshard.core.join.tables import features
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.task.state import Phase
from unshard.core.window.plan import Plan, StructureChange
from unshard.errors import UnshardError
from unshard.errors.ddl import DdlRefused, EffectRefused, TargetChanged
from unshard.errors.locks import (
    JoinNotReached,
    JoinRefused,
    ReloadError,
    ShardModeWaits,
    ShardsWithoutJoin,
    TargetColumnsGone,
    TargetNameTaken,
)

if TYPE_CHECKING:
    from unshard.adapters.meta import Meta, MetaReader
    from unshard.units.ddl.execute import OnTarget

log = logging.getLogger(__name__)

NO_STATEMENT = JoinStatement("", "", "", ())
"""In place of the statements of a change that the trial has rejected."""


def no_columns(shards: Iterable[ShardState]) -> frozenset[str]:
    """Return the columns of column mappings of a task without any."""
    return frozenset()


class ReloadOutcome(StrEnum):
    """Whether columns were read again."""

    DONE = "done"
    WAITS = "waits"
    """The shard must first be followed further, or windows must run."""


def no_reload(shard: Shard, columns: Sequence[str]) -> ReloadOutcome:
    """Reload nothing."""
    return ReloadOutcome.WAITS


@dataclass(frozen=True, slots=True)
class JoinRules:
    """The parts of a task that decide about its targets."""

    mapped: Callable[[Iterable[ShardState]], frozenset[str]] = no_columns
    """Returns the columns of column mappings of the shards, in lower case."""
    contract_delay: float = 0.0
    """Seconds after the last DDL before a target contracts."""
    is_strict: bool = False
    """Whether a DDL waits for an operator if its own text does not lead to the join."""
    reload: Callable[[Shard, Sequence[str]], ReloadOutcome] = no_reload
    """Reads columns of a shard again; raises ReloadError if an operator must do something before."""
    time_zone: str = "+00:00"
    """The task's: the target converts times in it."""


@dataclass(frozen=True, slots=True)
class Followed:
    """The result for all targets: an error of one does not stop the others."""

    moved: bool = False
    errors: Mapping[TableId, UnshardError] = field(default_factory=dict)

    def raised(self) -> bool:
        for error in self.errors.values():
            raise error
        return self.moved


def follow_each(meta: "Meta", executor: "OnTarget", rules: JoinRules = JoinRules()) -> Followed:
    """Do everything that is due for all targets; return the errors instead of raising them."""
    moved, errors = False, dict[TableId, UnshardError]()
    resting = meta.joins.resting()
    for target, shards in groups(meta.structures.shards()).items():
        if resting.get(target) and resting[target] == digest_of(shards):
            continue
        try:
            moved = _Follower(meta, executor, rules, target).run() or moved
        except UnshardError as error:
            errors[target] = error
    return Followed(moved, errors)


def planned(meta: "Meta", executor: "OnTarget", rules: JoinRules = JoinRules()) -> Mapping[TableId, JoinPlan]:
    """Return what is due and what waits for each joined target; changes nothing."""
    return {target: plan_join(scene) for target, scene in scenes(meta, executor, rules).items()}


def scenes(meta: "Meta", executor: "OnTarget", rules: JoinRules = JoinRules()) -> Mapping[TableId, JoinScene]:
    """Return the state of each target for which something may be due; changes nothing."""
    found = ((target, scene_of(meta, executor, rules, target)) for target in restless(meta))
    return {target: scene for target, scene in found if scene is not None}


def restless(meta: "MetaReader") -> Iterator[TableId]:
    """Yield the joined targets for which something may be due."""
    for target, shards in groups(meta.structures.shards()).items():
        joined = meta.joins.get(target)
        if joined is not None and not is_quiet(joined, shards):
            yield target


def scene_of(meta: "Meta", executor: "OnTarget", rules: JoinRules, target: TableId) -> JoinScene | None:
    """Return the state of a joined target; None if it has not joined or does not exist."""
    return _Follower(meta, executor, rules, target).scene()


def announce(meta: "Meta", plan: Plan) -> None:
    """Let the shards that a window creates join their groups before the window writes their rows; idempotent."""
    for change in plan.structures:
        while change.joins and not _announce(meta, plan, change):
            pass  # another process has changed the target meanwhile


def _announce(meta: "Meta", plan: Plan, change: StructureChange) -> bool:
    """Let one shard join if it can; return False if the target has changed since it was read."""
    joined = meta.joins.get(change.target)
    if joined is None or joined.change is not None:
        return True
    uid = meta.structures.uid_of(change)
    step = announced(joined, change, uid, plan.queued, lambda digest: meta.structures.get({digest})[digest])
    if step is None:
        return True
    group = with_member(joined.group, step.shard, step.member)
    is_done = meta.joins.complete(joined, Completion(group, joined.names, (step,)))
    log.info("join announced target=%s shard=%s done=%s", change.target, change.shard, is_done)
    return is_done


def follow_decisions(meta: "Meta", executor: "OnTarget", rules: JoinRules, targets: Iterable[TableId]) -> None:
    """Let shards follow DDLs that something else has resolved, before the rows after these are written."""
    for target in targets:
        while _Follower(meta, executor, rules, target).catches_up():
            pass


def leave(meta: "Meta") -> None:
    """End the joins of a task that is not in optimistic mode any more; raises ShardModeWaits while shards differ."""
    states = groups(meta.structures.shards())
    for target in sorted(meta.joins.targets()):
        joined = meta.joins.get(target)
        if joined is None:
            continue
        if not is_quiet(joined, states.get(target, ())):
            raise ShardModeWaits(str(target), "pessimistic", "its shards differ, or a DDL or rows of them wait")
        meta.joins.remove(joined)
        log.info("join ends target=%s", target)


@dataclass(frozen=True, slots=True)
class _Follower:
    meta: "Meta"
    executor: "OnTarget"
    rules: JoinRules
    target: TableId
    rejected: dict[Shard | None, str] = field(default_factory=dict)
    errors: list[UnshardError] = field(default_factory=list)
    """Of statements that the target has rejected; nothing else waits for them."""

    def run(self) -> bool:
        moved = False
        while self._step():
            moved = True
        if self.errors:
            raise self.errors[0]
        return moved

    def _step(self) -> bool:
        """Do the next thing; return whether this or another process did something, so that more may be due."""
        joined = self.meta.joins.get(self.target)
        if joined is None:
            return self._begin()
        if joined.change is not None:
            self._resume(joined.change)
            return True
        scene = self._scene(joined)
        if scene is None or scene.is_executing:
            return False
        plan = plan_join(scene)
        if not plan.stages:
            if plan.is_settled and (digest := digest_of(scene.shards)):
                self.meta.joins.note_settled(joined, digest, needed_states(scene))
            return False
        return any(self._run(stage, scene) for stage in plan.stages if stage.kind is not JoinStep.WAIT_FOR_ROWS)

    def catches_up(self) -> bool:
        """Follow DDLs that something else has resolved; return whether there were any."""
        scene = self.scene()
        if scene is None or scene.joined.change is not None or scene.is_executing:
            return False
        stage = next(iter(plan_join(scene).stages), None)
        return stage is not None and stage.kind is JoinStep.FOLLOW_SHARDS and self._run(stage, scene)

    def scene(self) -> JoinScene | None:
        """Read everything that decides about the target; None if it has not joined or does not exist."""
        joined = self.meta.joins.get(self.target)
        return self._scene(joined) if joined is not None else None

    def _scene(self, joined: JoinedTarget) -> JoinScene | None:
        """Read the rest after the group; None if the target does not exist."""
        meta = self.meta
        shards = tuple(state for state in meta.structures.shards() if self._is_member(state))
        resolved = {
            state.shard: meta.joins.resolved(state.shard, joined.accepted[state.shard].seq)
            for state in shards
            if state.shard in joined.accepted and entries_between(state, joined.accepted[state.shard].seq)
        }
        # Last: it has what every lock that is resolved has executed.
        present = self.executor.present(self.target)
        if present is None:
            return None
        members = [member.structure for member in joined.group.members.values()]
        structures = meta.structures.get({state.structure for state in shards if state.structure}).values()
        is_delayed = self.rules.contract_delay > 0 and meta.joins.idle_seconds(self.target) < self.rules.contract_delay
        return JoinScene(
            joined,
            present,
            shards,
            lambda digest: meta.structures.get({digest})[digest],
            resolved,
            self.rules.mapped(shards),
            self._lock(),
            self._uncommitted(joined),
            tuple(state.source for state in meta.sources.all() if state.phase is Phase.NEW),
            meta.joins.refused(self.target),
            is_delayed,
            self._lacks([*structures, *members], present),
            self.rejected,
            self.rules.time_zone,
            (lambda entry: self.executor.own(entry, present, in_steps=True)) if self.rules.is_strict else None,
        )

    def _lacks(self, structures: Iterable[TableSchema], present: TableSchema) -> frozenset[str]:
        asked = frozenset[str]().union(*(features(each.create_sql) for each in structures))
        asked -= features(present.create_sql)
        return self.executor.lacks(asked) if asked else frozenset()

    def _uncommitted(self, joined: JoinedTarget) -> frozenset[Shard]:
        new = {shard: each.location for shard, each in joined.accepted.items() if not each.seq and each.location}
        checkpoints = {source: self.meta.checkpoints.get(source) for source in {shard.source for shard in new}}
        reached = {source: checkpoint.location for source, checkpoint in checkpoints.items() if checkpoint is not None}
        return frozenset(
            shard for shard, location in new.items() if shard.source in reached and reached[shard.source] < location
        )

    def _is_member(self, state: ShardState) -> bool:
        return state.target == self.target and not state.is_dropped

    def _lock(self) -> DdlLock | None:
        return next((lock for lock in self.meta.locks.open() if lock.target == self.target), None)

    def _begin(self) -> bool:
        """Store the first group of the target; its present structure stays its floor if it has more than the shards."""
        present = self.executor.present(self.target)
        shards = [state for state in self.meta.structures.shards() if self._is_member(state) and not state.has_left]
        first = {state.shard: state.queue[0].before if state.queue else state.structure for state in shards}
        known = [state for state in shards if first[state.shard] and not is_alone(state)]
        if present is None or not known:
            return False
        self._refuse_locked(shards)
        schemas = self.meta.structures.get({first[state.shard] for state in known})
        group, accepted = begun_at([(state, schemas[first[state.shard]]) for state in known], begin)
        if conflicts := conflicts_of(group):
            raise ShardsWithoutJoin(str(self.target), "; ".join(map(str, conflicts)))
        for error in unjoined_columns(self.target, group, present):
            raise error
        names = begun_names(group, present)
        there = target_of(present, names, self._lacks(schemas.values(), present))
        has_more = bool(steps_to_join(group, there).contracting)
        if has_more:
            self.meta.structures.put(present)
            group = replace(group, floor=Member(present, {name: id for id, name in names.items()}))
        self.meta.joins.begin(JoinedTarget(self.target, group, names, accepted=accepted))
        log.info("join begins target=%s shards=%s floor=%s", self.target, len(known), has_more)
        return True

    def _refuse_locked(self, shards: Sequence[ShardState]) -> None:
        """Raise if a lock of pessimistic mode is open, or a shard has not run the DDL of one."""
        lock, skips = self._lock(), self.meta.locks.pending_skips()
        late = [state.shard for state in shards if state.shard in skips]
        if self.meta.joins.get(self.target) is not None:
            return  # another process has begun, and the lock is a barrier of optimistic mode
        if lock is not None and not lock.entry.is_alone:
            raise ShardModeWaits(str(self.target), "optimistic", f"lock {lock.id} is open")
        if late:
            raise ShardModeWaits(str(self.target), "optimistic", f"{named(late)} lacks a DDL of its group")

    def _run(self, stage: JoinStage, scene: JoinScene) -> bool:
        log.info("join %s: %s", stage.kind, stage.text)
        match stage.values:
            case Following() as after:
                names = scene.joined.names
                if after.adopts and not conflicts_of(after.group):
                    names = adopted_names(names, after.group, scene.present)
                names = {id: name for id, name in names.items() if id not in after.released}
                self.meta.structures.put(scene.present)  # it may be the new floor
                done = Completion(after.group, names, after.shard_steps, after.resolved)
                self.meta.joins.complete(scene.joined, done)
                return True
            case TargetChange() as change:
                self._change(change, scene)
                return True
            case ColumnsOfShard(shard, columns):
                return self._reload(shard, columns)
            case None:
                return False
            case entry:
                self.meta.locks.create(self.target, entry)
                return False

    # --- a change of the target

    def _change(self, due: TargetChange, scene: JoinScene) -> None:
        """Change the target and complete, unless another process does it.

        If the target rejects it, everything else continues. The next run tries an expansion again, and a lock shows the
        DDL of the shard to an operator. A contraction is tried again after the next expansion. A trial counts only if
        no other process has changed the target while its state was read.
        """
        try:
            self._changed(due, scene)
        except (JoinRefused, DdlRefused, JoinNotReached, TargetNameTaken) as error:
            is_tried = not isinstance(error, DdlRefused)
            if is_tried and not self._is_unchanged(scene):
                return
            log.warning("join rejected target=%s error=%s", self.target, error)
            self.errors.append(error)
            if due.kind is ChangeKind.EXPAND:
                self._note_rejection(due, scene, error)
                shards: list[Shard | None] = [step.shard for step in due.shard_steps]
                self.rejected.update(dict.fromkeys(shards or [None], str(error)))
            elif is_tried:
                change = self.meta.joins.intend(scene.joined, scene.group, due.kind, due.cause, (NO_STATEMENT,))
                if change is not None:
                    self.meta.joins.fail(self.target, change, str(error))

    def _is_unchanged(self, scene: JoinScene) -> bool:
        """Whether no process has changed the target, or executed a lock of it, since the scene was read."""
        again = self.scene()
        if again is None or again.is_executing:
            return False
        return (again.joined, again.present, again.shards) == (scene.joined, scene.present, scene.shards)

    def _note_rejection(self, due: TargetChange, scene: JoinScene, error: UnshardError) -> None:
        """Store the message for the lock of a shard's DDL, once."""
        is_new = due.entry is not None and self.meta.joins.last_error(self.target, due.cause) != str(error)
        if is_new and not isinstance(error, DdlRefused):
            change = self.meta.joins.intend(scene.joined, scene.group, due.kind, due.cause, (NO_STATEMENT,))
            if change is not None:
                self.meta.joins.fail(self.target, change, str(error))

    def _changed(self, due: TargetChange, scene: JoinScene) -> None:
        joined, names = scene.joined, scene.joined.names
        if gone := scene.gone_columns:
            if self._is_unchanged(scene):
                raise TargetColumnsGone(str(self.target), ", ".join(gone))
            return  # another process has renamed or dropped them
        if taken := taken_names(scene.present, names, (*due.first, *due.steps)):
            raise TargetNameTaken(str(self.target), ", ".join(taken))
        statements, own = self._statements(due, scene) if due.first or due.steps else ((), None)
        if statements:
            for text in statements:
                log.info("join intent target=%s statement=%s", self.target, text.text)
            known = intended(joined.group, due.intended)
            change = self.meta.joins.intend(joined, known, due.kind, due.cause, statements)
            if change is None or not self._execute(change, own):
                return
            names = {id: name for name, id in statements[-1].names}
            found = self.meta.joins.get(self.target)
            if found is None or found.change is None or found.change.id != change.id:
                return
            if found.accepted != joined.accepted:  # a window has renamed a shard: what is left is decided again
                return
            joined = found
        self.meta.joins.complete(joined, Completion(due.group, names, due.shard_steps, due.resolved))

    def _statements(self, due: TargetChange, scene: JoinScene) -> tuple[tuple[JoinStatement, ...], QueueEntry | None]:
        """Return the statements with their structures, and the DDL if the only one is its own text."""
        middle = apply(due.first, scene.target)
        expected = apply(due.steps, middle)
        # A column that must be dropped first and one that is added may look alike.
        entry = due.entry if not due.first else None
        if entry is not None and has_same_effect(entry, scene.target, expected):
            own = self.executor.own(entry, scene.present)
            if own is not None and leads_to(own, expected):
                self.meta.structures.put(scene.present)
                after = self.meta.structures.put(own)
                return (JoinStatement(entry.routed, scene.present.digest, after, _named(expected)),), entry
        parts = (*self._parts(due.first, middle), *self._parts(due.steps, expected))
        found, before, target = list[JoinStatement](), scene.present, scene.target
        self.meta.structures.put(before)
        for part, after_part in self._tried(parts, before):
            target = apply(part.steps, target)
            digest = self.meta.structures.put(after_part)
            found.append(JoinStatement(part.text, before.digest, digest, _named(target)))
            before = after_part
        if not leads_to(before, expected):
            raise JoinNotReached(str(self.target), "; ".join(part.text for part in parts))
        return tuple(found), None

    def _tried(self, parts: Sequence[AlterPart], before: TableSchema) -> Iterator[tuple[AlterPart, TableSchema]]:
        """Yield the statements with the structures after them; one that the target rejects in its single changes."""
        for part in parts:
            pieces = single_parts(self.target, part)
            try:
                after = self.executor.tried(self.target, part.text, before)
            except EffectRefused as error:
                if len(pieces) == 1:
                    raise JoinRefused(str(self.target), error.errno, error.server_message, part.text) from error
                after = None
            if after is None and len(pieces) == 1:
                raise JoinNotReached(str(self.target), part.text)
            found = [(part, after)] if after is not None else [*self._tried(pieces, before)]
            yield from found
            before = found[-1][1]

    def _parts(self, steps: Sequence[Step], after: Target) -> tuple[AlterPart, ...]:
        return alter_parts(self.target, steps, after.names) if steps else ()

    def _execute(self, change: OpenChange, own: QueueEntry | None) -> bool:
        for number, statement in enumerate(change.statements):
            present = replace(change, done=number)
            try:
                is_done = self.executor.execute(self.target, statement, own, lambda: self._is_open(present))  # noqa: B023
            except UnshardError as error:
                if not error.transient and not isinstance(error, TargetChanged):
                    self.meta.joins.fail(self.target, present, str(error))
                raise
            if not is_done:
                return False
            self.meta.joins.advance(self.target, present)
            log.info("join executed target=%s statement=%s", self.target, number + 1)
        return True

    def _is_open(self, change: OpenChange) -> bool:
        found = self.meta.joins.get(self.target)
        present = found.change if found is not None else None
        return present is not None and (present.id, present.done) == (change.id, change.done)

    def _resume(self, change: OpenChange) -> None:
        """End a change whose process has died; what is left of it is decided again."""
        with self.executor.at_rest(self.target) as present:
            if not self._is_open(change):
                return
            if change.done < len(change.statements) and change.statements[change.done] != NO_STATEMENT:
                statement = change.statements[change.done]
                if statement.is_after(present):
                    self.meta.joins.advance(self.target, change)
                elif not statement.is_before(present):
                    raise TargetChanged(str(self.target), f"it is now {present.create_sql}", statement.text)
            log.info("join given up target=%s done=%s", self.target, change.done)
            self.meta.joins.give_up(self.target, change)

    # --- reloads

    def _reload(self, shard: Shard, columns: Sequence[str]) -> bool:
        before = self.meta.joins.get(self.target)
        if before is None or not self._is_read_again(shard, columns):
            return False
        joined = self.meta.joins.get(self.target)
        if joined is None or joined.change is not None:
            return True
        if joined.group.members.get(shard) == before.group.members[shard]:
            self.meta.joins.complete(joined, with_reloaded(joined, shard, columns))
        return True

    def _is_read_again(self, shard: Shard, columns: Sequence[str]) -> bool:
        """Read columns again; note the reason if an operator must do something before."""
        known = self.meta.joins.reload_errors(self.target).get(shard)
        try:
            outcome, error = self.rules.reload(shard, columns), None
        except ReloadError as refusal:
            log.warning("reload is not possible shard=%s columns=%s error=%s", shard, ",".join(columns), refusal)
            outcome, error = ReloadOutcome.WAITS, str(refusal)
        if error != known:
            self.meta.joins.note_reload(self.target, shard, error)
        return outcome is ReloadOutcome.DONE


def _named(target: Target) -> tuple[tuple[str, int], ...]:
    return tuple((name, id) for id, name in sorted(target.names.items()))
