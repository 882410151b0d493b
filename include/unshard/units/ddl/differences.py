"""The open differences between the shards of targets in optimistic mode, as operators and sensors see them."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol, cast

from unshard.core.ddl.queue import ShardState
from unshard.core.join.decision import conflicts_of, wanted
from unshard.core.join.planning import JoinPlan, JoinScene, plan_join
from unshard.core.join.stages import WaitForRows
from unshard.core.join.statements import alter_texts
from unshard.core.join.states import History, OpenDifference, State, forms, open_differences, since
from unshard.core.model import Shard, TableId
from unshard.units.ddl.joining import JoinExecutor, JoinRules, scenes
from unshard.units.ddl.lockstore import JoinReader, Store, StoreReader

WAYS_OUT = "when the shards agree, or this shard goes back; its lock has the other ways out"
NOTHING_LEFT = "nothing is left to do: the target holds the rows of all shards"
WHEN = {
    State.CONFLICT: WAYS_OUT,
    State.BARRIER: "when all shards have run it: it has a lock, as in pessimistic mode",
    State.EXPANDING: "now",
    State.RELOAD: "now: the columns are read again",
}
UNREADABLE = "when the cause is removed, or by `unshard reload TASK --shard SHARD --columns COLUMNS --accept`"


class JoinHistory(JoinReader, Protocol):
    """The joined targets with the past of their shards."""

    def steps(self, target: TableId) -> History:
        """Return each shard after each of its accepted DDLs."""


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
    """The shards that are as the target is or will be."""
    lack: tuple[Shard, ...]
    reloads: tuple[Shard, ...]
    """The shards from which the column must be read again."""
    statements: tuple[str, ...]
    """What will run on the target."""
    when: str
    """When it will run, or how the difference ends."""
    forms: Mapping[str, tuple[Shard, ...]]
    """The column or index as shards have it, or nothing, each with its shards."""
    reason: str = ""
    ddl: str = ""
    """The statement of a shard that waits."""
    held_rows: int = 0

    @property
    def shards(self) -> int:
        return len(self.have) + len(self.lack)

    @property
    def progress(self) -> str:
        """The state, with the number of shards that have the change."""
        return f"{self.state} ({len(self.have)} of {self.shards} shards)" if self.state is State.OPEN else self.state

    @property
    def needs_operator(self) -> bool:
        """Whether it does not end by itself: rows of a shard wait for a decision, or a column cannot be read again."""
        return self.state is State.CONFLICT or (self.state is State.RELOAD and bool(self.reason))


def differences(meta: StoreReader, executor: JoinExecutor, rules: JoinRules) -> tuple[DifferenceView, ...]:
    """Return the open differences of all joined targets, the oldest first; changes nothing."""
    found = list[DifferenceView]()
    for target, scene in scenes(cast("Store", meta), executor, rules).items():
        plan = plan_join(scene)
        if not plan.is_settled:
            history = cast("JoinHistory", meta.joins).steps(target)
            found += _of_target(scene, plan, history, meta.joins.reload_errors(target))
    return tuple(sorted(found, key=lambda view: (view.since, view.id)))


def _of_target(
    scene: JoinScene, plan: JoinPlan, history: History, errors: Mapping[Shard, str]
) -> Iterator[DifferenceView]:
    states = {state.shard: state for state in scene.shards}
    if conflicts := conflicts_of(scene.group):
        reason = "; ".join(map(str, conflicts))
        shards = tuple(sorted(scene.group.members))
        found: Sequence[OpenDifference] = [OpenDifference("the shards", State.CONFLICT, lack=shards, reason=reason)]
    else:
        found = open_differences(scene.group, scene.target, plan.waiting)
    for each in found:
        reason = each.reason or "; ".join(dict.fromkeys(errors[shard] for shard in each.reloads if shard in errors))
        yield _view(scene, plan, replace(each, reason=reason), since(each, history), states)


def _view(
    scene: JoinScene,
    plan: JoinPlan,
    found: OpenDifference,
    moment: datetime | None,
    states: dict[Shard, ShardState],
) -> DifferenceView:
    state = states.get(found.about) if isinstance(found.about, Shard) else None
    entry = state.queue[0] if state is not None and state.queue else None
    if entry is not None:
        moment = datetime.fromtimestamp(entry.statement.timestamp, UTC)
    opened = moment or datetime.fromtimestamp(0, UTC)
    number = f"{found.about}.{entry.seq}" if entry is not None else str(found.about)
    return DifferenceView(
        difference_id(scene.joined.target, number, opened),
        scene.joined.target,
        found.subject,
        found.state,
        opened,
        found.have,
        found.lack,
        found.reloads,
        _statements(scene, found),
        _when(scene, plan, found),
        forms(found, scene.group),
        found.reason,
        entry.routed if entry is not None else "",
        sum(file.rows for file in state.held) if state is not None else 0,
    )


def difference_id(target: TableId, about: str, opened: datetime) -> str:
    """Return an id of plain characters, as Airflow needs it for a run."""
    digest = hashlib.sha256(f"{target}\0{about}".encode()).hexdigest()[:12]
    return f"difference-{digest}-{opened:%Y%m%dT%H%M%S}"


def _statements(scene: JoinScene, found: OpenDifference) -> tuple[str, ...]:
    if not found.steps or conflicts_of(scene.group):
        return ()
    names = {**scene.target.names, **wanted(scene.group).names}
    return alter_texts(scene.joined.target, found.steps, names)


def _when(scene: JoinScene, plan: JoinPlan, found: OpenDifference) -> str:
    if found.state is State.RELOAD and found.reason:
        return UNREADABLE
    if found.state in WHEN:
        return WHEN[found.state]
    if found.state is State.OPEN:
        return f"when the other {len(found.lack)} shards have it" if found.steps else NOTHING_LEFT
    late = [stage.describe() for stage in plan.stages if isinstance(stage, WaitForRows)]
    delayed = ["when contract-delay is over"] if scene.is_delayed else []
    absent = [f"when {', '.join(scene.absent)} is loaded"] if scene.absent else []
    return (*late, *delayed, *absent, "now")[0]
