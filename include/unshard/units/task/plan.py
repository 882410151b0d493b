"""Plans without doing: the stages left of the full load, of the next window of each source, and of DDL locks (driver).

Nothing is done and no row of the meta schema changes (adapters.meta): no epoch is raised and no binlog is
pulled. A DDL whose effect is not known yet is tried on empty trial tables of the target, which are dropped again. It
needs no Spark, and works beside a process that runs the task, and while the task is paused.

| the source                          | what is planned                                                          |
|-------------------------------------|--------------------------------------------------------------------------|
| is not loaded yet                   | the stages of the full load that are left                                |
| has a window that was begun         | its persisted plan, which the next run repeats                           |
| has stored binlog or rows to release| the window that the next run would begin                                 |
| has neither                         | no stage; rows that stay held are named with their lock                  |
| has changed rules in the task file  | the same by the new rules, or why these cannot be taken                  |
| cannot be planned                   | the coded error; the other sources are planned                           |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from unshard.adapters.meta import PreviewMeta
from unshard.config import Connections, Task, environment_connections
from unshard.core.join.planning import JoinPlan
from unshard.core.model import Location, TableId
from unshard.core.stages import Detail
from unshard.core.task.state import FullStage, PauseState, Phase, SyncState, last_stage, source_stages
from unshard.core.window.suspension import SuspendedTarget
from unshard.core.window.windowstages import Attempt, LockHold, Surroundings, WindowStage, explain, following, kept
from unshard.errors import UnshardError
from unshard.units.begun import opened
from unshard.units.ddl import coordinate
from unshard.units.ddl.coordinate import LockPlan
from unshard.units.ddl.differences import DifferenceView
from unshard.units.task.opendifferences import open_differences
from unshard.units.task.optimistic import plan_joins
from unshard.units.task.run import full_mode
from unshard.units.window.adoptedrules import changes_of
from unshard.units.window.suspending import retry
from unshard.units.window.sync import next_plan
from unshard.units.work import Work, work_with


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A stage with its effects."""

    stage: WindowStage | FullStage
    details: tuple[Detail, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The next window of a source."""

    number: int
    begins: Location
    ends: Location
    is_begun: bool
    is_safe: bool
    has_more: bool
    """The relay has binlog for another window."""


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The next stages of a source."""

    source: str
    phase: Phase = Phase.NEW
    position: Location | None = None
    stages: tuple[PlannedStage, ...] = ()
    window: WindowPlan | None = None
    """None: there is no window to run."""
    held: tuple[Detail, ...] = ()
    """Rows that stay held although no window runs."""
    suspended: tuple[SuspendedTarget, ...] = ()
    """Targets that take no rows of the source."""
    rules: tuple[str, ...] | None = None
    """Effects of changed rules of the task file on its shards; None: the rules of the file are in force."""
    error: UnshardError | None = None


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The next stages of a task."""

    sources: tuple[SourcePlan, ...]
    handover: FullStage | None = None
    """The last stage of the full load; None if it is done."""
    locks: tuple[LockPlan, ...] = ()
    pause: PauseState | None = None
    joins: Mapping[TableId, JoinPlan] = field(default_factory=dict)
    """What is due for targets in optimistic mode."""
    differences: tuple[DifferenceView, ...] = ()
    asked_target: bool = False
    """Trial tables were used to find the effect of a DDL."""


def plan(task: Task, connections: Connections = environment_connections) -> TaskPlan:
    """Return what the task would do next; changes nothing."""
    with opened(PreviewMeta, task, connections) as meta:
        if meta is None:
            return _with_handover(task, tuple(_loading(task, source, Phase.NEW) for source in task.sources))
        with work_with(task, meta, connections) as work:
            locks = coordinate.planned(meta) if task.task_mode.syncs else ()
            sources = tuple(_source(work, source, locks) for source in task.sources)
            planned = _with_handover(task, sources, locks, meta.pauses.get(), work.trial_tables.is_used)
            return replace(planned, joins=plan_joins(work), differences=open_differences(task, meta, connections))


def _with_handover(
    task: Task,
    sources: tuple[SourcePlan, ...],
    locks: tuple[LockPlan, ...] = (),
    pause: PauseState | None = None,
    asked: bool = False,
) -> TaskPlan:
    phases = {each.source: each.phase for each in sources}
    return TaskPlan(sources, last_stage(phases, full_mode(task.task_mode)), locks, pause=pause, asked_target=asked)


def _loading(task: Task, source: str, phase: Phase) -> SourcePlan:
    stages = source_stages(phase, full_mode(task.task_mode))
    return SourcePlan(source, phase, stages=tuple(PlannedStage(stage) for stage in stages))


def _source(work: Work, source: str, locks: tuple[LockPlan, ...]) -> SourcePlan:
    sync_state = work.meta.windows.sync_state(source)
    if sync_state.checkpoint is None or sync_state.phase is not Phase.SYNC or not work.task.task_mode.syncs:
        return _loading(work.task, source, sync_state.phase)
    try:
        return _following(work, sync_state, locks)
    except UnshardError as error:
        return SourcePlan(source, sync_state.phase, sync_state.checkpoint, error=error)


def _following(work: Work, sync_state: SyncState, locks: tuple[LockPlan, ...]) -> SourcePlan:
    source = sync_state.source
    rules = changes_of(work.meta, work.task.instance(source))
    if rules is not None:
        retry(work, work.meta.suspended_targets.all(source))  # in memory, as the window itself does with new rules
    made = sync_state.open or next_plan(work, source)
    stops = work.meta.suspended_targets.all(source)
    around = Surroundings(
        {state.shard: state for state in work.meta.structures.shards(source)},
        _holds(locks),
        {stop.target: str(stop.refusal.error) for stop in stops},
    )
    stages = following(made, Attempt(is_again=sync_state.open is not None))
    planned = tuple(PlannedStage(stage, explain(stage, made, around)) for stage in stages)
    is_begun, has_more = sync_state.open is not None, work.store.links(source).has_more(made.ends)
    window = WindowPlan(made.number, made.begins, made.ends, is_begun, made.safe, has_more)
    return SourcePlan(
        source,
        sync_state.phase,
        sync_state.checkpoint,
        planned,
        None if made.is_empty else window,
        tuple(kept(made, around)) if made.is_empty else (),
        stops,
        rules,
    )


def _holds(locks: tuple[LockPlan, ...]) -> dict[TableId, LockHold]:
    return {
        each.target: LockHold(each.lock.id, each.fingerprint, each.stages[0].text)
        for each in locks
        if each.lock is not None
    }
