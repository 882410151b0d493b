"""The open differences between the shards of targets in optimistic mode, as operators and sensors see them."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from unshard.core.ddl.queue import ShardState
from unshard.core.join.changekind import ChangeKind
from unshard.core.join.decision import conflicts_of, wanted
from unshard.core.join.difference import alter_parts
from unshard.core.join.joined import OpenChange
from unshard.core.join.planning import JoinPlan, JoinScene, JoinStep, plan_join
from unshard.core.join.states import History, OpenDifference, Past, State, forms, group_differences, past_of
from unshard.core.model import Shard, TableId
from unshard.units.ddl.joining import JoinRules, join_scene, restless

if TYPE_CHECKING:
    from unshard.adapters.meta import Meta, MetaReader
    from unshard.units.ddl.execute import OnTarget

WAYS_OUT = "when the shards agree, or this shard goes back; its lock has the other ways out"
WHEN = {
    State.CONFLICT: WAYS_OUT,
    State.BARRIER: "when all shards have run it: it has a lock, as in pessimistic mode",
    State.EXPANDING: "now",
    State.RELOAD: "now: the columns are read again",
}
UNREADABLE = "when the cause is removed, or by `unshard reload TASK --shard SHARD --columns COLUMNS --accept`"
UNDER_WAY = "now: it runs, or its process has died and the next look ends it"
REJECTED = "not before the next DDL of a shard: the target has rejected it, and keeps what it has"
GONE = "the target was altered by someone else: it lacks the column"
ADDED_AGAIN = "when someone has added it to the target again; then read its values with `unshard reload`"
ATTEMPTS = 5
"""How often the state is read until no process has changed it meanwhile."""
BY_SHARDS = frozenset({State.CONFLICT, State.BARRIER, State.OPEN, State.RELOAD})
"""States that do not depend on the target, which is between two structures during a change."""


@dataclass(frozen=True, slots=True)
class DifferenceView:
    """An open difference of a target."""

    id: str
    """Distinct from every other difference of the task, also from a later one of the same column."""
    target: TableId
    subject: str
    state: State
    since: datetime
    have: tuple[Shard, ...]
    lack: tuple[Shard, ...]
    reloads: tuple[Shard, ...]
    """The shards from which the column must be read again."""
    statements: tuple[str, ...]
    when: str
    """When it will run, or how the difference ends."""
    forms: Mapping[str, tuple[Shard, ...]]
    """The column or index as shards have it, or nothing, each with its shards."""
    reason: str = ""
    ddl: str = ""
    """The statement of a shard that waits."""
    held_rows: int = 0
    is_change: bool = False
    """Whether it is a change of the target that is under way, not a difference between shards."""

    @property
    def shards(self) -> int:
        return len(self.have) + len(self.lack)

    @property
    def progress(self) -> str:
        return f"{self.state} ({len(self.have)} of {self.shards} shards)" if self.state is State.OPEN else self.state

    @property
    def needs_operator(self) -> bool:
        """Whether it does not end by itself: rows of a shard wait for a decision, or a column cannot be read again."""
        return self.state is State.CONFLICT or (self.state is State.RELOAD and bool(self.reason))


def differences(meta: "MetaReader", executor: "OnTarget", rules: JoinRules) -> tuple[DifferenceView, ...]:
    """Return the open differences of all joined targets, the oldest first; changes nothing."""
    found = list[DifferenceView]()
    for target in restless(meta):
        scene, history = _at_one_moment(meta, executor, rules, target)
        if scene is not None:
            errors = meta.joins.reload_errors(target)
            found += _of_target(scene, history, meta.joins.last_error(target), errors)
    return tuple(sorted(found, key=lambda view: (view.since, view.id)))


def _at_one_moment(
    meta: "MetaReader", executor: "OnTarget", rules: JoinRules, target: TableId
) -> tuple[JoinScene | None, History]:
    """Read a target again while another process changes it: its table and its group belong together."""
    scene, history = None, cast("History", {})
    for _ in range(ATTEMPTS):
        scene = join_scene(cast("Meta", meta), executor, rules, target)
        history = meta.joins.steps(target)
        if scene is None or meta.joins.version(target) in (0, scene.joined.version):
            break
    return scene, history


def _of_target(
    scene: JoinScene, history: History, error: str, unreadable: Mapping[Shard, str]
) -> Iterator[DifferenceView]:
    plan, change = plan_join(scene), scene.joined.change
    if plan.is_settled and change is None:
        return
    if change is not None:
        yield _under_way(scene, change, history)
    states = {state.shard: state for state in scene.shards}
    if conflicts := conflicts_of(scene.group):
        reason = "; ".join(map(str, conflicts))
        shards = tuple(sorted(scene.group.members))
        found: Sequence[OpenDifference] = [OpenDifference("the shards", State.CONFLICT, lack=shards, reason=reason)]
    else:
        found = group_differences(scene.group, scene.target, plan.waiting)
    for each in found:
        if change is None or each.state in BY_SHARDS:
            reasons = dict.fromkeys(unreadable[shard] for shard in each.reloads if shard in unreadable)
            about = replace(each, reason=each.reason or "; ".join(reasons))
            view = _view(scene, plan, about, past_of(each, history), states)
            if _is_rejected(scene, plan, each):
                view = replace(view, reason=error, when=REJECTED)
            elif (
                each.state is State.EXPANDING
                and scene.joined.names.get(each.about if isinstance(each.about, int) else 0) in scene.gone_columns
            ):
                view = replace(view, reason=GONE, when=ADDED_AGAIN, statements=())
            yield view


def _under_way(scene: JoinScene, change: OpenChange, history: History) -> DifferenceView:
    """Return a change of the target whose statements have begun and are not recorded as done."""
    target = scene.joined.target
    moments = [moment for steps in history.values() for moment, _ in steps]
    opened = max(moments, default=datetime.fromtimestamp(0, UTC))
    state = State.EXPANDING if change.kind is ChangeKind.EXPAND else State.CONTRACTING
    texts = tuple(statement.text for statement in change.statements[change.done :] if statement.text)
    return DifferenceView(
        id=difference_id(target, f"change {change.id}", opened),
        target=target,
        subject=f"change {change.id}",
        state=state,
        since=opened,
        have=tuple(sorted(scene.group.members)),
        lack=(),
        reloads=(),
        statements=texts,
        when=UNDER_WAY,
        forms={},
        reason=change.error,
        is_change=True,
    )


def _is_rejected(scene: JoinScene, plan: JoinPlan, found: OpenDifference) -> bool:
    is_due = any(stage.kind in (JoinStep.CONTRACT, JoinStep.WAIT_FOR_ROWS) for stage in plan.stages)
    return found.state in (State.CONTRACTING, State.REVERSED) and bool(scene.refused) and not is_due


def _view(
    scene: JoinScene, plan: JoinPlan, found: OpenDifference, past: Past, states: dict[Shard, ShardState]
) -> DifferenceView:
    state = states.get(found.about) if isinstance(found.about, Shard) else None
    entry = state.queue[0] if state is not None and state.queue else None
    moment = past.begun
    if entry is not None:
        moment = datetime.fromtimestamp(entry.statement.timestamp, UTC)
    opened = moment or datetime.fromtimestamp(0, UTC)
    number = f"{found.about}.{entry.seq}" if entry is not None else str(found.about)
    return DifferenceView(
        difference_id(scene.joined.target, number, opened),
        scene.joined.target,
        f"drop of {found.subject}" if past.is_removal else found.subject,
        found.state,
        opened,
        *_sides(found, past),
        found.reloads,
        _statements(scene, found),
        _when(scene, plan, found, past),
        forms(found, scene.group),
        found.reason,
        entry.routed if entry is not None else "",
        sum(file.rows for file in state.held) if state is not None else 0,
    )


def _sides(found: OpenDifference, past: Past) -> tuple[tuple[Shard, ...], tuple[Shard, ...]]:
    """Return the shards that have a change and the others, also for a change that the target follows last."""
    every = tuple(sorted((*found.have, *found.lack)))
    if found.state is State.CONTRACTING:
        return every, ()
    if found.state is not State.OPEN or past.changed.issuperset(every) or past.changed.isdisjoint(every):
        return found.have, found.lack
    changed = tuple(shard for shard in every if shard in past.changed)
    return changed, tuple(shard for shard in every if shard not in past.changed)


def difference_id(target: TableId, about: str, opened: datetime) -> str:
    """Return an id of plain characters, as Airflow needs it for a run."""
    digest = hashlib.sha256(f"{target}\0{about}".encode()).hexdigest()[:12]
    return f"difference-{digest}-{opened:%Y%m%dT%H%M%S}"


def _statements(scene: JoinScene, found: OpenDifference) -> tuple[str, ...]:
    if not found.steps or conflicts_of(scene.group):
        return ()
    names = {**scene.target.names, **wanted(scene.group).names}
    return tuple(part.text for part in alter_parts(scene.joined.target, found.steps, names))


def _when(scene: JoinScene, plan: JoinPlan, found: OpenDifference, past: Past) -> str:
    if found.state is State.RELOAD and found.reason:
        return UNREADABLE
    if found.state in WHEN:
        return WHEN[found.state]
    if found.state is State.OPEN:
        return _when_settled(found, past)
    late = [stage.text for stage in plan.stages if stage.kind is JoinStep.WAIT_FOR_ROWS]
    delayed = ["when contract-delay is over"] if scene.is_delayed else []
    absent = [f"when {', '.join(scene.absent)} is loaded"] if scene.absent else []
    return (*late, *delayed, *absent, "now")[0]


def _when_settled(found: OpenDifference, past: Past) -> str:
    """Return what a rollout waits for; the target holds the rows of all shards meanwhile."""
    have, lack = _sides(found, past)
    others = "1 more shard has" if len(lack) == 1 else f"{len(lack)} more shards have"
    if past.is_removal:
        return f"the target drops it when {others} dropped it"
    is_last = bool(found.steps) or not {*have} & {*found.have}
    return f"the target follows when {others} it" if is_last else f"the target has it already; settled when {others} it"
