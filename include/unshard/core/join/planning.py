"""Decides what is due for a target in optimistic mode, from the state of its shards alone.

The first line that applies is due. When it is done, everything is decided again, so a restart needs no code of its own.

| state                                                         | due                                               |
|---------------------------------------------------------------|---------------------------------------------------|
| a shard has left the group                                    | it leaves the join; its rows stay                 |
| a lock or a filter has resolved DDLs of a shard               | the shard follows them                            |
| a column without an id has a join with the others again       | it gets the id of the others and is read again    |
| someone has given a settled target more: an index, a wider    | it becomes a part of what the target never loses  |
| type                                                          | (`Group.floor`)                                   |
| a new shard                                                   | it joins; the target is expanded first            |
| a shard has reached a DDL that joins                          | the target is expanded, the DDL is accepted       |
| DDLs in conflict that have a join together, or of which the   | the same, for all of them                         |
| target rejects the first and which lead back                  |                                                   |
| the target lacks something (a process has died)               | the target is expanded                            |
| a DDL is a barrier, or in conflict                            | a lock is opened for it, for all shards or for    |
|                                                               | the commands of an operator                       |
| the target has what no shard can need, `contract-delay` is    | the target contracts                              |
| over, and no older row waits                                  |                                                   |
| values of a shard must be read again                          | the columns are reloaded                          |

An expansion that the target has rejected in this run is left out, so that everything else continues.

Contracting steps wait for rows from before the DDL of any shard (`hindering`). Nothing else waits for another shard.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile

from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.ddl.lock import DdlLock, shard_names
from unshard.core.ddl.queue import OperatorDecision, QueueEntry, ShardState, WholeChange
from unshard.core.ddl.sessioneffects import fixed
from unshard.core.join.changekind import ChangeKind
from unshard.core.join.decision import (
    ACCEPTED,
    Change,
    Decided,
    Decision,
    ShardProgress,
    conflicts_of,
    contracting,
    decide_back,
    decide_change,
    decide_group,
    decide_new,
    decide_waiting,
    group_after,
    hindering,
    steps_to_join,
    wanted,
)
from unshard.core.join.difference import (
    ChangeColumn,
    DropColumn,
    DropKey,
    Step,
    Target,
    apply,
    is_equal,
    leads_to,
    moves_as,
    target_with_ids,
)
from unshard.core.join.group import (
    Group,
    Member,
    conversion_text,
    converted,
    fitted_again,
    followed_by,
    joined_by,
    kept_columns,
    left_by,
    left_out,
    moved,
    names_of,
    unread_names,
    without,
)
from unshard.core.join.joined import Accepted, JoinedTarget, ShardStep
from unshard.core.join.jointables import Table, limited
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard.core.shown import one_line
from unshard.core.stages import Stage
from unshard.core.window.plan import StructureChange
from unshard.errors.ddl import DdlUnreadable
from unshard.errors.locks import MismatchedNewShard


class JoinStep(StrEnum):
    """The steps of a target in optimistic mode."""

    FOLLOW_SHARDS = "follow-shards"
    """Store the group after shards have left it, or after a lock has resolved their DDL."""
    EXPAND = "expand"
    """Give the target what its shards need, and accept their DDL."""
    CONTRACT = "contract"
    """Take from the target what no shard needs any more."""
    OPEN_BARRIER = "open-barrier"
    """Open a lock for a DDL that all shards have to run, as in pessimistic mode."""
    WAIT_FOR_ROWS = "wait-for-rows"
    """Wait for windows that apply rows from before the DDL of their shard."""
    RELOAD_COLUMNS = "reload-columns"
    """Read columns of a shard again."""


@dataclass(frozen=True, slots=True)
class Following:
    """The group after its shards, and what becomes of the names of its columns."""

    group: Group
    shard_steps: tuple[ShardStep, ...] = ()
    adopts: bool = False
    """Whether a lock may have changed the target, so that its columns are matched again."""
    resolved: tuple[tuple[Shard, int], ...] = ()
    released: frozenset[int] = frozenset()
    """Columns that become the target's own."""


@dataclass(frozen=True, slots=True)
class TargetChange:
    """An expansion or a contraction of the target."""

    kind: ChangeKind
    intended: Group
    """The group whose ids the statements use."""
    group: Group
    steps: tuple[Step, ...]
    cause: str
    first: tuple[Step, ...] = ()
    shard_steps: tuple[ShardStep, ...] = ()
    resolved: tuple[tuple[Shard, int], ...] = ()
    entry: QueueEntry | None = None
    """The DDL whose own text is executed if it leads to the same structure."""


@dataclass(frozen=True, slots=True)
class ColumnsOfShard:
    """Columns of a shard that are read again."""

    shard: Shard
    columns: tuple[str, ...]


JoinStage = Stage[JoinStep, Following | TargetChange | QueueEntry | ColumnsOfShard | None]


def follow_shards(target: TableId, values: Following, reason: str, gone: Sequence[Shard] = ()) -> JoinStage:
    """Return the stage that stores the group; `gone` are the shards that have left it."""
    shards = (*(step.shard for step in values.shard_steps), *gone)
    after = f" after {shard_names(shards)}" if shards else ""
    what = f"leave columns to {target}" if values.released else f"store the group of {target}{after}"
    return Stage(JoinStep.FOLLOW_SHARDS, f"{what}: {reason}", values)


def change_target(target: TableId, values: TargetChange) -> JoinStage:
    """Return the stage that expands or contracts the target."""
    steps = "; ".join(map(str, (*values.first, *values.steps)))
    if values.kind is ChangeKind.CONTRACT:
        return Stage(JoinStep.CONTRACT, f"contract {target}, because no shard needs it any more: {steps}", values)
    what = f"expand {target}: {steps}" if steps else f"change nothing in {target}"
    shards = tuple(sorted({shard for shard, _ in values.resolved}))
    text = f"{what}, then accept `{one_line(values.cause)}`{f' of {shard_names(shards)}' if shards else ''}"
    return Stage(JoinStep.EXPAND, text, values)


def wait_for_rows(target: TableId, shards: Sequence[Shard], steps: Sequence[Step]) -> JoinStage:
    """Return the stage that waits for older rows of shards before the target contracts."""
    then = "; ".join(map(str, steps))
    text = f"wait for the windows that apply older rows of {shard_names(shards)}, then contract {target}: {then}"
    return Stage(JoinStep.WAIT_FOR_ROWS, text, None)


# --- what is due


MISMATCHED = f"[{MismatchedNewShard.code}]"
STRICT_MODE = "its own statement does not lead to the join (strict-optimistic-shard-mode)"
START = Location("none.0", 0)


@dataclass(frozen=True)
class JoinScene:
    """Everything that decides about one target, read once."""

    joined: JoinedTarget
    present: TableSchema
    shards: tuple[ShardState, ...]
    """Without those that an operator has dropped."""
    schemas: Callable[[str], TableSchema]
    resolved: Mapping[Shard, Sequence[QueueEntry]] = field(default_factory=dict)
    """DDLs that locks have resolved since the shards' last accepted DDLs, oldest first."""
    mapped: frozenset[str] = frozenset()
    """The columns of column mappings, in lower case."""
    lock: DdlLock | None = None
    """The open lock of the target, read after the target."""
    uncommitted: frozenset[Shard] = frozenset()
    """Shards that have joined and whose window is not committed yet."""
    absent: tuple[str, ...] = ()
    """Sources that are not in sync yet and may still add shards."""
    refused: frozenset[str] = frozenset()
    """Contractions that the target has rejected since it was last expanded, for example because rows of a dropped shard
    have values that the narrower type cannot hold."""
    is_delayed: bool = False
    lacks: frozenset[str] = frozenset()
    """The features of tables that the target's server leaves out (core.join.jointables.FEATURES)."""
    rejected: Mapping[Shard | None, str] = field(default_factory=dict)
    """Shards for which the target has rejected an expansion in this run, with its message; None: one for no shard."""
    time_zone: str = "+00:00"
    """That in which the target converts times; a shard that has converted them in another one is read again."""
    own: Callable[[QueueEntry], TableSchema | None] | None = None
    """Returns the target after a shard's own statement, None if the target does not take it; only in strict mode."""

    @property
    def is_executing(self) -> bool:
        return self.lock is not None and self.lock.started_at is not None

    @property
    def group(self) -> Group:
        return self.joined.group

    @property
    def target(self) -> Target:
        return target_with_ids(self.present, self.joined.names, self.lacks)

    @property
    def gone_columns(self) -> tuple[str, ...]:
        """The columns that the target should still have; someone else has dropped or renamed them."""
        return tuple(sorted(name for name in self.joined.names.values() if name not in self.present.by_name))

    def member_state(self, shard: Shard) -> ShardState | None:
        """Return the shard if it is the one that has joined, and not a later one of the same name."""
        uid = self.joined.accepted[shard].shard_uid
        return next((state for state in self.shards if state.shard == shard and state.shard_uid == uid), None)


@dataclass(frozen=True)
class JoinPlan:
    """What is due for a target, and what waits."""

    stages: tuple[JoinStage, ...]
    """The first one is due now, unless it only waits."""
    waiting: Mapping[Shard, Decided]
    is_settled: bool = False
    """Whether the shards and the target are equal, and no DDL waits."""

    @property
    def is_due(self) -> bool:
        return bool(self.stages) and not _waits(self.stages[0])


def plan_join(scene: JoinScene) -> JoinPlan:
    """Return what is due and what waits."""
    found = next(_of_group(scene), None) or _with_more(scene)
    if found is not None:
        return JoinPlan((found,), {})
    waiting, hindered = dict[Shard, Decided](), list[JoinStage]()
    for stage in _of_ddl(scene, waiting):
        if not _waits(stage):
            return JoinPlan((stage,), waiting)
        hindered.append(stage)
    if conflicts_of(scene.group):
        return JoinPlan(tuple(hindered), waiting)
    rest = _at_rest(scene, tuple(hindered))
    return replace(rest, waiting=waiting, is_settled=rest.is_settled and not waiting)


def is_quiet(joined: JoinedTarget, shards: Sequence[ShardState]) -> bool:
    """Whether the shards are as they were when the target was settled, so that nothing can be due."""
    if joined.settled_version != joined.version or joined.change is not None:
        return False
    if {state.shard for state in shards} != joined.group.members.keys():
        return False
    return all(
        not state.queue
        and state.shard_uid == joined.accepted[state.shard].shard_uid
        and state.last_seq == joined.accepted[state.shard].seq
        and state.structure == joined.group.members[state.shard].structure.digest
        for state in shards
    )


def shards_digest(shards: Sequence[ShardState]) -> str:
    """Return a hash of the states of a target's shards; empty if one has a DDL that is not accepted."""
    if any(state.queue for state in shards):
        return ""
    states = sorted((str(s.shard), s.shard_uid, s.last_seq, s.structure, s.has_left, len(s.held)) for s in shards)
    return hashlib.sha256(repr(states).encode()).hexdigest()[:32]


def entries_between(state: ShardState, after: int) -> range:
    """Return the numbers of a shard's DDLs after `after` that are resolved."""
    end = state.queue[0].seq if state.queue else state.last_seq + 1
    return range(after + 1, end)


def older_rows(scene: JoinScene, upcoming: Iterable[tuple[Shard, int]] = ()) -> tuple[Shard, ...]:
    """Return the shards with rows from before their last accepted DDL, or from before the `upcoming` ones."""
    last = dict(upcoming)
    progress = dict[Shard, ShardProgress]()
    for shard, accepted in scene.joined.accepted.items():
        state = scene.member_state(shard)
        end = max(accepted.seq, last.get(shard, 0))
        is_late = state is not None and any(file.seq < end for file in state.held)
        progress[shard] = ShardProgress(START, None, is_late)
    return hindering(progress)


def needed_states(scene: JoinScene) -> Mapping[Shard, int]:
    """Return the DDL of each shard after which the oldest rows were written that wait to be applied.

    States from before it are not needed any more: rows from the binlog have the newest, held rows that of their DDL.
    """
    found = dict[Shard, int]()
    for shard, accepted in scene.joined.accepted.items():
        state = scene.member_state(shard)
        found[shard] = min([accepted.seq, *(file.seq for file in state.held)] if state is not None else [0])
    return found


def needless_states(numbers: Collection[int], needed: int) -> tuple[int, ...]:
    """Return the states of a shard, by the numbers of their DDLs, that rows after DDL number `needed` do not need."""
    own = max((number for number in numbers if number <= needed), default=needed)
    return tuple(sorted(number for number in numbers if number < own))


def change_of(entry: QueueEntry, scene: JoinScene) -> Change:
    """Return a queued DDL as the join sees it."""
    texts, statement = entry.replacement or (entry.routed,), entry.statement
    zone = "" if fixed(statement.time_zone) == fixed(scene.time_zone) else statement.time_zone
    ran = (ExecutedDdl(text, statement.sql_mode, zone, statement.timestamp) for text in texts)
    return Change(tuple(ran), scene.schemas(entry.after))


# --- the shards of the group


def _of_group(scene: JoinScene) -> Iterator[JoinStage]:
    over = {state.shard: state for state in scene.shards if state.has_left and not state.held}
    gone = {
        shard
        for shard in scene.group.members
        if shard in over or (shard not in scene.uncommitted and scene.member_state(shard) is None)
    }
    is_empty = gone == scene.group.members.keys()  # its columns stay as they are for the next shard
    if (gone or over) and not is_empty:
        group = scene.group
        for shard in sorted(gone):
            group = left_by(group, shard)
        left = tuple((shard, entry.seq) for shard, state in over.items() for entry in state.queue)
        names = tuple(sorted(gone | over.keys()))
        why = "the shard has left its group"
        yield follow_shards(scene.joined.target, Following(group, resolved=left), why, names)
    followed = _followed(scene)
    if followed is not None:
        yield followed
    refitted = scene.group
    for shard in scene.group.members:
        refitted = fitted_again(refitted, shard)
    if refitted != scene.group:
        why = "columns that were left out have a join again"
        yield follow_shards(scene.joined.target, Following(refitted), why)
    for state in scene.shards:
        # Also one that has left, whose rows still wait.
        if state.shard not in scene.group.members and state.shard not in {*scene.rejected, *over}:
            yield from _joining(scene, state)


def announced(
    joined: JoinedTarget,
    change: StructureChange,
    uid: str,
    queued: Sequence[QueueEntry],
    schemas: Callable[[str], TableSchema],
) -> ShardStep | None:
    """Return a shard that a window creates, as it joins before the window writes its rows; None if it cannot yet.

    So the ids of its columns stay the same, however its group goes on.
    """
    own = [entry for entry in queued if entry.shard == change.shard]
    structure = own[0].before if own else change.structure
    is_here = change.shard in joined.group.members and joined.accepted[change.shard].shard_uid == uid
    if not structure or is_here or not change.joins or change.is_mismatched or not joined.group.members:
        return None
    others = left_by(joined.group, change.shard)
    group = joined_by(others, change.shard, schemas(structure))
    member = group.members[change.shard]
    if group.columns.keys() != joined.group.columns.keys() or {*member.ids.values()} - joined.names.keys():
        return None
    return ShardStep(change.shard, Accepted(0, change.location, uid), member)


def _followed(scene: JoinScene) -> JoinStage | None:
    """Return the shards after DDLs that something else has resolved, all together; None without such DDLs."""
    group, accepted = scene.group, dict[Shard, Accepted]()
    for shard in sorted(scene.group.members):
        state = scene.member_state(shard)
        if state is not None:
            group, accepted = _after_resolved(scene, state, group, accepted)
    if not accepted:
        return None
    group = _without_unfit(group, accepted)
    adopts = any(each.seq > scene.joined.accepted[shard].seq for shard, each in accepted.items())
    if adopts:  # the target may have made the conversions of the shards by the same statement
        columns = target_with_ids(scene.present, adopted_names(scene.joined.names, group, scene.present)).table.columns
        group = converted(group, {id: conversion_text(column) for id, column in columns.items() if column is not None})
    steps = tuple(ShardStep(shard, each, group.members[shard]) for shard, each in accepted.items())
    return follow_shards(scene.joined.target, Following(group, steps, adopts), "something else has resolved its DDL")


def _after_resolved(
    scene: JoinScene, state: ShardState, group: Group, accepted: dict[Shard, Accepted]
) -> tuple[Group, dict[Shard, Accepted]]:
    """Return the group and the places of its shards after the resolved DDLs of one shard."""
    shard, found, before = state.shard, scene.joined.accepted[state.shard], group
    due = entries_between(state, found.seq)
    for entry in scene.resolved.get(shard, ()):
        if entry.seq in due and entry.after:
            group, found = _past(group, entry, scene), replace(found, seq=entry.seq, location=entry.location)
    if due:
        found = replace(found, seq=due[-1])
    if not state.queue and state.structure and group.members[shard].structure.digest != state.structure:
        group = followed_by(group, shard, scene.schemas(state.structure), keeps=True)
    is_same = group is before and found == scene.joined.accepted[shard]
    return group, accepted if is_same else {**accepted, shard: found}


def _past(group: Group, entry: QueueEntry, scene: JoinScene) -> Group:
    change, shard = change_of(entry, scene), entry.shard
    try:
        if unread_names(group, shard, change.statements, change.after):
            return followed_by(group, shard, change.after)
        after, name_conflicts = moved(group, shard, change.statements, change.after)
    except DdlUnreadable:
        return followed_by(group, shard, change.after)
    if entry.verdict is OperatorDecision.SKIP:  # what only this DDL adds stays out of the target
        new = after.columns.keys() - group.columns.keys()
        after = without(left_out(after, shard, new), new)
    return followed_by(group, shard, change.after) if name_conflicts else after


def _without_unfit(group: Group, shards: Collection[Shard]) -> Group:
    """Return the group in which columns of these shards that have no join with the others, or no name, have no id."""
    unfit = {id for id, column in group.table.columns.items() if column is None}
    unfit |= {*names_of(group, group.held)[1]}
    for shard in shards if unfit else ():
        group = left_out(group, shard, unfit)
    return group


def _joining(scene: JoinScene, state: ShardState) -> Iterator[JoinStage]:
    """Yield a new shard that has a join with the others, at once or after some of its queued DDLs."""
    queue, structure = state.queue, state.structure
    resolved: tuple[tuple[Shard, int], ...] = ()
    number = queue[0].seq - 1 if queue else state.last_seq
    if queue and queue[0].is_alone:
        first, queue = queue[0], queue[1:]
        if not first.reason.startswith(MISMATCHED) or not first.after:
            return
        structure, number, resolved = first.after, first.seq, ((state.shard, first.seq),)
    elif queue:
        structure = queue[0].before
    if not structure:
        return
    steps = [Accepted(number, None, state.shard_uid)]
    decided = decide_group(scene.group, joined_by(scene.group, state.shard, scene.schemas(structure)), scene.target)
    if decided.decision not in ACCEPTED:
        own = [*takewhile(lambda entry: not _unjoinable(entry), queue)]
        changes = [change_of(entry, scene) for entry in own]
        later = decide_new(scene.group, scene.target, state.shard, scene.schemas(structure), changes, scene.mapped)
        if later is None:
            return
        decided, own = later, own[: len(later.accepted[state.shard])]
        steps += [Accepted(entry.seq, entry.location, state.shard_uid) for entry in own]
        resolved += tuple((state.shard, entry.seq) for entry in own)
    if decided.first and older_rows(scene):
        return
    members = (*decided.accepted.get(state.shard, ()), decided.group.members[state.shard])
    shard_steps = tuple(ShardStep(state.shard, *each) for each in zip(steps, members, strict=True))
    yield _expanding(scene, decided, shard_steps, resolved, f"shard {state.shard} has joined")


def _with_more(scene: JoinScene) -> JoinStage | None:
    """Return the group that keeps what someone has given a settled target: indexes and wider types; None without."""
    if scene.joined.settled_version != scene.joined.version or scene.lock is not None:
        return None
    group, target = scene.group, scene.target
    steps = steps_to_join(group, target).contracting
    more = {step.id for step in steps if isinstance(step, ChangeColumn)}
    more = more.union(*(step.key.columns for step in steps if isinstance(step, DropKey)))
    kept = more.union(group.floor.ids.values() if group.floor is not None else ())
    floor = Member(scene.present, {name: id for id, name in target.names.items() if id in kept})
    with_floor = replace(group, floor=floor)
    if not more or len(steps_to_join(with_floor, target).contracting) == len(steps):
        return None
    why = "someone has given the target more, which it keeps"
    return follow_shards(scene.joined.target, Following(with_floor), why)


# --- the DDLs of the shards


def _of_ddl(scene: JoinScene, waiting: dict[Shard, Decided]) -> Iterator[JoinStage]:
    """Yield what is due for the heads of the queues; adds those that wait to `waiting`."""
    queued = [state for state in scene.shards if state.queue and state.shard in scene.group.members]
    heads = sorted(queued, key=lambda state: (state.queue[0].statement.timestamp, state.shard))
    for state in heads:
        entry = state.queue[0]
        if reason := _unjoinable(entry) or scene.rejected.get(state.shard, ""):
            waiting[state.shard] = Decided(Decision.BARRIER, scene.group, reason=reason)
            continue
        decided = decide_change(scene.group, scene.target, state.shard, change_of(entry, scene), scene.mapped)
        if decided.decision not in ACCEPTED:
            waiting[state.shard] = decided
        elif _is_against_strict_mode(scene, entry, decided):
            waiting[state.shard] = Decided(Decision.BARRIER, scene.group, reason=f"{STRICT_MODE}: {decided}")
        elif decided.first and (late := older_rows(scene, [(state.shard, entry.seq)])):
            yield wait_for_rows(scene.joined.target, late, decided.first)
        else:
            step = _accepted(decided.group.members[state.shard], entry, state)
            yield _expanding(scene, decided, (step,), ((state.shard, entry.seq),), entry.routed, entry)
    states = {state.shard: state for state in heads}
    yield from _together(scene, states, waiting)
    yield from _back(scene, states)
    for state in heads if scene.lock is None else ():
        if (waits := waiting.get(state.shard)) is not None:
            entry, reason = state.queue[0], "; ".join(filter(None, (*map(str, waits.conflicts), waits.reason)))
            text = f"open a lock for `{one_line(entry.routed)}` of {entry.shard}, which needs all shards: "
            yield Stage(JoinStep.OPEN_BARRIER, text + one_line(reason), entry)
            return


def _is_against_strict_mode(scene: JoinScene, entry: QueueEntry, decided: Decided) -> bool:
    """Whether the target would be changed by another statement than the shard's own or an operator's."""
    if scene.own is None or entry.replacement or not (decided.steps or decided.first):
        return False
    found, expected = scene.own(entry), apply(decided.steps, apply(decided.first, scene.target))
    return found is None or not (leads_to(found, expected) and moves_as(entry, scene.target, expected))


def _together(
    scene: JoinScene, states: Mapping[Shard, ShardState], waiting: Mapping[Shard, Decided]
) -> Iterator[JoinStage]:
    conflicts = (shard for shard, decided in waiting.items() if decided.decision is Decision.CONFLICT)
    changes = {shard: _changes(scene, states[shard]) for shard in conflicts}
    decided = decide_waiting(scene.group, scene.target, changes, scene.mapped) if changes else None
    if decided is not None:
        yield from _all_accepted(scene, states, decided)


def _back(scene: JoinScene, states: Mapping[Shard, ShardState]) -> Iterator[JoinStage]:
    """Yield the DDLs of a shard that lead back, if the target rejects the first of them."""
    for shard in states.keys() & scene.rejected.keys():
        changes = _changes(scene, states[shard])
        decided = decide_back(scene.group, scene.target, shard, changes, scene.mapped)
        if decided is not None:
            yield from _all_accepted(scene, states, decided)


def _changes(scene: JoinScene, state: ShardState) -> list[Change]:
    return [change_of(entry, scene) for entry in takewhile(lambda entry: not _unjoinable(entry), state.queue)]


def _all_accepted(scene: JoinScene, states: Mapping[Shard, ShardState], decided: Decided) -> Iterator[JoinStage]:
    steps, resolved = list[ShardStep](), list[tuple[Shard, int]]()
    for shard, between in decided.accepted.items():
        members = (*between, decided.group.members[shard])
        for entry, member in zip(states[shard].queue, members, strict=False):
            steps.append(_accepted(member, entry, states[shard]))
            resolved.append((shard, entry.seq))
    if decided.first and (late := older_rows(scene, [(each, states[each].queue[0].seq) for each in decided.accepted])):
        yield wait_for_rows(scene.joined.target, late, decided.first)
        return
    yield _expanding(scene, decided, tuple(steps), tuple(resolved), "DDLs of several shards that have a join together")


def _unjoinable(entry: QueueEntry) -> str:
    """Return why a DDL has no effect that the join can read; empty if it has one."""
    if entry.reason:
        return entry.reason
    if not entry.after or not entry.before:
        return "the structure after it is unknown"
    return "it concerns the whole table" if entry.whole is not WholeChange.NONE or entry.is_alone else ""


def _accepted(member: Member, entry: QueueEntry, state: ShardState) -> ShardStep:
    return ShardStep(state.shard, Accepted(entry.seq, entry.location, state.shard_uid), member)


def _expanding(
    scene: JoinScene,
    decided: Decided,
    shard_steps: tuple[ShardStep, ...],
    resolved: tuple[tuple[Shard, int], ...],
    cause: str,
    entry: QueueEntry | None = None,
) -> JoinStage:
    after = group_after(decided.group, decided.first)
    members = {step.shard: after.members[step.shard] for step in shard_steps}
    last = {step.shard: number for number, step in enumerate(shard_steps)}
    shard_steps = tuple(
        replace(step, member=members[step.shard]) if last[step.shard] == number else step
        for number, step in enumerate(shard_steps)
    )
    change = TargetChange(
        ChangeKind.EXPAND, decided.group, after, decided.steps, cause, decided.first, shard_steps, resolved, entry
    )
    return change_target(scene.joined.target, change)


# --- no DDL is due


def _at_rest(scene: JoinScene, hindered: tuple[JoinStage, ...]) -> JoinPlan:
    """Return what is due when no DDL can be accepted: leftovers of a death, a contraction, reloads."""
    group, target, late = scene.group, scene.target, older_rows(scene)
    left = steps_to_join(group, target)
    if (left.expanding or left.first) and not (left.first and late) and None not in scene.rejected:
        decided = Decided(Decision.EXPAND, group, left.expanding, left.first)
        return JoinPlan((_expanding(scene, decided, (), (), "the target lacks what its shards have"),), {})
    released = {id for id in kept_columns(group) if id in target.names}
    if released and not late:
        after, why = without(group, released), "filters ignore the DDL that drops a column, so the target keeps it"
        leaves = Following(after, released=frozenset(released))
        return JoinPlan((follow_shards(scene.joined.target, leaves, why),), {})
    steps = tuple(s for s in contracting(group, target) if not (isinstance(s, DropColumn) and s.id in released))
    stages = list[JoinStage](hindered)
    if steps and late:
        stages.append(wait_for_rows(scene.joined.target, late, steps))
    elif steps and not scene.is_delayed and not scene.absent:
        stages += _contraction(scene, steps)
    stages += [*_reloads(scene)]
    is_equal_now = len(_tables(group, scene.lacks)) == 1 and is_equal(target, wanted(group))
    owes = any(member.reloads for member in group.members.values())
    is_settled = not (stages or steps or owes) and is_equal_now
    return JoinPlan(tuple(sorted(stages, key=_waits)), {}, is_settled)


def _contraction(scene: JoinScene, steps: tuple[Step, ...]) -> list[JoinStage]:
    """Return the contraction; if the target has rejected it, that of the first single step that it has not rejected."""
    for some in (steps, *((step,) for step in steps)):
        cause = "; ".join(map(str, some))
        if cause not in scene.refused:
            change = TargetChange(ChangeKind.CONTRACT, scene.group, group_after(scene.group, some), some, cause)
            return [change_target(scene.joined.target, change)]
    return []


def _waits(stage: JoinStage) -> bool:
    return stage.kind is JoinStep.WAIT_FOR_ROWS


def _tables(group: Group, lacks: Collection[str]) -> list[Table]:
    found = list[Table]()
    for member in group.members.values():
        table = limited(member.table, lacks)
        if table not in found:
            found.append(table)
    return found


def _reloads(scene: JoinScene) -> Iterator[JoinStage]:
    for shard, member in sorted(scene.group.members.items()):
        state = scene.member_state(shard)
        if not member.reloads or state is None or state.queue or state.held or state.has_left:
            continue
        names = member.names
        columns = tuple(sorted({names[reload.column] for reload in member.reloads if reload.column in names}))
        if columns:
            reasons = "; ".join(sorted({reload.reason.value for reload in member.reloads}))
            text = f"read {', '.join(columns)} of {shard} again: {reasons}"
            yield Stage(JoinStep.RELOAD_COLUMNS, text, ColumnsOfShard(shard, columns))


def adopted_names(names: Mapping[int, str], group: Group, present: TableSchema) -> Mapping[int, str]:
    """Return the ids of the target's columns after a lock has changed it: those of the names that it should have."""
    kept = {id: name for id, name in names.items() if name in present.by_name}
    asked = wanted(group).names
    free = present.by_name.keys() - {*kept.values()}
    return {**kept, **{id: name for id, name in asked.items() if id not in kept and name in free}}
