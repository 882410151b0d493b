"""One window of one source: the only way in which rows of the binlog reach the target.

    1 plan     a pure decision from checkpoint, relay, queues and structures
    2 begin    the plan is persisted, the epoch raised: from here on a retry runs this very plan
    3 move     one Spark job: held rows to files, released and other rows into the targets
    4 commit   one meta transaction: manifests, queues, structures, checkpoint

| dies            | what happens                                                                         |
|-----------------|--------------------------------------------------------------------------------------|
| in 1            | nothing has happened                                                                 |
| in 2            | begun or not; the next run finds the open window or plans anew                       |
| in 3            | some targets have the window, their fences say so; the same plan runs again           |
| in 3, rows contradict their structure | no target has a row; the next run finds the same and plans again |
| in 4            | all or nothing; after it only files that nothing names are left, until rows are held again   |

A window without rows needs no Spark, and without new binlog there is no window at all.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unshard.adapters.meta.nearby import WAITS
from unshard.adapters.meta.presence import window_of
from unshard.config import Instance
from unshard.core.beside import EVERYTHING, Beside
from unshard.core.model import Location, TableId, TableSchema
from unshard.core.netting import Collisions
from unshard.core.online import named_by
from unshard.core.pace import Pace, next_bytes, remembered
from unshard.core.planning import PlanRules, plan_window, within_window
from unshard.core.progress import BegunWindow, Phase, Standing
from unshard.core.rowerrors import RowErrors
from unshard.core.stops import Stop, TargetRefused
from unshard.core.window import Contradiction, HeldFile, Plan, QueueEntry, ShardState
from unshard.errors import UnshardError
from unshard.errors.relay import RowsContradict
from unshard.errors.target import NoTargetTable, NotInSync
from unshard.units.awaited import refuse_missing
from unshard.units.context import in_context
from unshard.units.effects import DdlEffects
from unshard.units.online import OnlineDdl
from unshard.units.owners import name_owners
from unshard.units.rules import adopt_rules
from unshard.units.settle import settle
from unshard.units.stopping import newest_ddl, still_stopped, stop_targets, stops_of
from unshard.units.targets import create_joined, reshaped_by
from unshard.units.trial import ShadowTrial
from unshard.units.windowjob import WindowJob, dropped_since, parts_of
from unshard.units.windowspark import run_job
from unshard.units.windowtasks import PartReport, TargetReport, held_folder, held_window
from unshard.units.work import Work

log = logging.getLogger(__name__)

Progress = Callable[[str], None]

SWEPT_WINDOWS = 100
"""How often files of dead attempts are looked for even if nothing points to any."""


@dataclass(frozen=True, slots=True)
class WindowReport:
    """What one call did; without a window `number` is None and both locations are the checkpoint."""

    source: str
    window: int | None
    begins: Location
    ends: Location
    rows_applied: int
    """Row changes that are in the target now, released ones among them; not what the next three count."""
    rows_filtered: int
    """Row changes that the task's filters have left out."""
    rows_skipped: int
    """Rows that were left out because another shard owns their key (on-duplicate: ignore), but for those of an attempt
    that has died."""
    rows_diverted: int
    """Rows that were put aside because the target could not take them (row-errors: divert)."""
    rows_held: int
    rows_released: int
    rows_passed: int
    """Row events of shards that an operator has dropped, and of sequences."""
    ddls: tuple[QueueEntry, ...]
    seconds: float
    more: bool
    """Whether another window could move on at once."""
    stopped: tuple[Stop, ...] = ()
    """Targets that have stopped in it: their rows were held."""

    @property
    def moved(self) -> bool:
        """Whether there was a window at all."""
        return self.window is not None


@dataclass(frozen=True, slots=True)
class _Moved:
    """What the rows of a window came to."""

    applied: int = 0
    filtered: int = 0
    skipped: int = 0
    diverted: int = 0
    released: int = 0
    held: tuple[HeldFile, ...] = ()
    stopped: tuple[Stop, ...] = ()
    """Targets whose rows were held, because they could not take them."""
    refused: tuple[TargetRefused, ...] = ()
    """Targets that have found that out just now: they have got nothing yet, nor is anything held for them."""
    tried: Mapping[TableId, TableSchema] = field(default_factory=dict)
    """The structures that the targets had then."""
    contradictions: tuple[Contradiction, ...] = ()
    """Shards whose rows contradict their structure: no target has got any row of the window."""


def run_window(work: Work, source: str, progress: Progress | None = None) -> WindowReport:
    """Run the open window of a source or, if there is none, the next one; idempotent at every point."""
    began = time.monotonic()
    standing = work.meta.windows.standing(source)
    if adopt_rules(work, standing):
        standing = work.meta.windows.standing(source)
    say = _steps(source, progress)
    plan = standing.open or _plan(work, standing)
    if plan.is_empty:
        report = _report(plan, None, _Moved(), began, more=False)
    else:
        say(1, "plan", plan)
        with work.meta.presence.at(window_of(source)):
            report = _run(work, plan, standing, began, say)
    if not report.more and (plan.safe or Beside.AWAITED in standing.beside):
        refuse_missing(work, standing, report.ends)
    return report


def _run(work: Work, plan: Plan, standing: Standing, began: float,
         say: Callable[[int, str, Plan], None]) -> WindowReport:  # fmt: skip
    source, is_again = plan.source, standing.open is not None
    begun = work.meta.windows.begin(source, plan)
    say(2, "begin", begun.plan)
    moved = _move(work, begun)
    while moved.refused or moved.contradictions:
        if moved.contradictions:
            _plan_again(work, begun, moved.contradictions)
        elif refused := _refused_still(work, moved):
            stop_targets(work, begun, refused)
        # Another epoch: whatever of the attempt before is still under way cannot write any more.
        begun, is_again = work.meta.windows.begin(source, plan), True
        moved = _move(work, begun)
    say(3, "move", begun.plan)
    # How long a window took that an earlier run has begun, nobody knows.
    paces = () if is_again else _paces(work, standing.paces, begun.plan, moved, began)
    work.meta.windows.commit(begun, moved.held, moved.applied, paces, moved.stopped)
    say(4, "commit", begun.plan)
    _sweep(work, begun.plan, moved.stopped, again=is_again)
    return _report(begun.plan, begun.plan.number, moved, began, more=_more(work, begun, moved))


def _refused_still(work: Work, moved: _Moved) -> tuple[TargetRefused, ...]:
    """Leave out targets that were altered meanwhile, by a forced lock for one: they are tried again as they are."""
    present = {target: schema.digest for target, schema in work.present({r.target for r in moved.refused}).items()}
    tried = {target: schema.digest for target, schema in moved.tried.items()}
    return tuple(each for each in moved.refused if present.get(each.target) == tried.get(each.target))


def _paces(work: Work, known: Sequence[Pace], plan: Plan, moved: _Moved, began: float) -> tuple[Pace, ...]:
    rows = moved.applied + moved.filtered + moved.skipped + moved.diverted + sum(file.rows for file in moved.held)
    pace = Pace(plan.bytes, rows, int(1000 * (time.monotonic() - began)))
    return remembered(known, pace, work.task.options.window)


def _plan_again(work: Work, begun: BegunWindow, found: Sequence[Contradiction]) -> None:
    """Replace the plan of a window that no target has any row of by one that holds the contradicting rows."""
    found = sorted(found, key=lambda each: each.part)
    for each in found:
        log.warning("rows contradict their structure shard=%s location=%s", each.shard, each.location)
    standing = work.meta.windows.standing(begun.plan.source)
    plan = _plan(work, standing, (*begun.plan.contradictions, *found))
    if plan.queued == begun.plan.queued or not work.meta.windows.plan_again(begun, plan):
        raise RowsContradict(str(found[0].shard), str(found[0].location), found[0].words)


def next_plan(work: Work, source: str) -> Plan:
    """Plan the window after the checkpoint; nothing is changed but for structures that have become known."""
    return _plan(work, work.meta.windows.standing(source))


def _plan(work: Work, standing: Standing, contradictions: tuple[Contradiction, ...] = ()) -> Plan:
    source, checkpoint, beside = standing.source, standing.checkpoint, standing.beside
    if checkpoint is None or standing.phase is not Phase.SYNC:
        raise NotInSync(source, standing.phase.value)
    instance = work.task.instance(source)
    rules = PlanRules(
        target_of=instance.routing.target_of,
        effects=DdlEffects(work.shadow, work.meta.structures, instance.routing),
        window_bytes=next_bytes(standing.paces, work.task.options.window),
        safe_until=standing.dump_end,
        force_safe=instance.sync.safe_mode,
        sequences=work.meta.aside.sequences(source) if Beside.SEQUENCES in beside else frozenset(),
        orders=work.meta.statement_orders.waiting(source) if Beside.ORDERS in beside else (),
        ordered=DdlEffects(work.shadow, work.meta.structures, instance.routing, filters=False),
        history=standing.gtid,
        stopped=still_stopped(work, source) if Beside.STOPS in beside else frozenset(),
        retried=work.meta.stops.lifted(source) if Beside.STOPS in beside else (),
        together=work.task.options.window,
        ghosts=work.meta.online.of(source) if Beside.GHOSTS in beside else (),
        online=online_ddl(work, instance),
        contradictions=contradictions,
    )
    if Beside.UNKNOWNS in beside:
        beside = EVERYTHING  # what was resolved may be asked again
        settle(work.meta.structures, source, ShadowTrial(work.shadow, work.storage))
    found = work.store.links(source).following(checkpoint)
    segments = in_context(work, source, checkpoint, within_window(found, rules))
    shards: tuple[ShardState, ...] = ()
    if segments or beside & WAITS:
        shards = work.meta.structures.nearby(source, named_by(segments, rules.ghosts), beside)
    return plan_window(source, standing.window + 1, checkpoint, segments, shards, rules)


def online_ddl(work: Work, instance: Instance) -> OnlineDdl | None:
    """Return how the tools of a source are followed; None if the task does not ask for it."""
    if instance.online is None:
        return None
    return OnlineDdl(instance.online, work.shadow, work.meta.structures, instance.routing)


def window_job(work: Work, begun: BegunWindow, stops: Mapping[TableId, Stop],
               schemas: Mapping[TableId, TableSchema]) -> WindowJob | tuple[TargetRefused, ...]:  # fmt: skip
    """Return what the executors need, or which targets cannot take the window, as can be told before a row is read.

    `schemas` were read before: what the target has had and its shards have not is asked here, behind them.
    """
    plan = begun.plan
    targets = tuple(sorted(plan.targets - stops.keys()))
    shards = {d.shard for read in plan.reads for d in read.dispositions} | {release.shard for release in plan.releases}
    if missing := [target for target in targets if target not in schemas]:
        return tuple(TargetRefused(target, NoTargetTable(str(target))) for target in missing)
    job = WindowJob(
        task=work.task.name,
        meta_schema=work.task.meta_schema,
        begun=begun,
        writer=replace(work.writer(), sessions=work.task.instance(plan.source).sync.workers),
        storage=work.storage,
        relay=work.store,
        collisions=Collisions(work.task.instance(plan.source).load.on_duplicate.value),
        targets=targets,
        schemas=tuple(schemas[target] for target in targets),
        shards=tuple(sorted(shards)),
        structures=work.structures(_digests(plan)),
        behind=work.meta.locks.behind(shards, plan.structures),
        parts=parts_of(
            plan,
            dropped_since(work.meta.structures.dropped(shards), plan) if Beside.DROPPED in begun.beside else (),
            stops,
            newest_ddl(work, plan) if stops else {},
        ),
        awaited=work.meta.awaited.targets(plan.source) if Beside.AWAITED in begun.beside else frozenset(),
        partial=frozenset(target for target, stop in stops.items() if stop.is_partial),
        diverts=work.task.options.row_errors is RowErrors.DIVERT,
        time_zone=work.task.timezone,
        reshapings=reshaped_by(work, plan.source, shards),
    )
    return job.refusals() or job


def _digests(plan: Plan) -> set[str]:
    read = {d.structure for read in plan.reads for d in read.dispositions if d.structure}
    return read | {file.structure for release in plan.releases for file in release.files}


def _move(work: Work, begun: BegunWindow) -> _Moved:
    plan = begun.plan
    stops = stops_of(work, plan) if Beside.STOPS in begun.beside else {}
    stopped = tuple(stops.values())
    if refused := create_joined(work, plan, stops):
        return _Moved(refused=refused)
    if not plan.moves_rows:
        return _Moved(stopped=stopped)
    schemas = work.present({*plan.targets} - stops.keys())
    job = window_job(work, begun, stops, schemas)
    if not isinstance(job, WindowJob):
        return _Moved(refused=job, tried=schemas)
    results = run_job(work.spark(), job) if job.parts else ()
    if contradictions := tuple(result for result in results if isinstance(result, Contradiction)):
        return _Moved(contradictions=contradictions)
    if error := next((result for result in results if isinstance(result, UnshardError)), None):
        raise error
    if refused := tuple(result for result in results if isinstance(result, TargetRefused)):
        return _Moved(refused=refused, tried=schemas)
    parts = [result for result in results if isinstance(result, PartReport)]
    targets = [result for result in results if isinstance(result, TargetReport)]
    if any(target.applied.collided or target.applied.before for target in targets):
        name_owners(work, plan.source)
    held = sorted((file for part in parts for file in part.held), key=lambda file: (file.shard, file.seq, file.part))
    skipped = sum(target.applied.skipped for target in targets)
    # As recorded with the rows: what an attempt before has put aside, nobody else knows.
    diverted = work.meta.row_errors.of_window(plan.source, plan.number) if job.diverts else 0
    return _Moved(
        applied=sum(part.applied for part in parts) - skipped - diverted,
        filtered=sum(part.filtered for part in parts),
        skipped=skipped,
        diverted=diverted,
        released=sum(part.released for part in parts),
        held=tuple(held),
        stopped=stopped,
    )


def _sweep(work: Work, plan: Plan, stopped: Collection[Stop], again: bool) -> None:
    """Remove what nothing names any more: released and dropped files, and segments before the window.

    The window's own segments stay for the next pull to go on from. Files that a death left behind are looked for
    where there may be some, because that reads all that is held: after a window that was run again, when the first rows
    are held and the last are released, and now and then.
    """
    kept = {stop.target for stop in stopped}
    gone = [file for release in plan.releases if release.target not in kept for file in release.files]
    gone += [file for drop in plan.drops for file in drop.files]
    for file in gone:
        work.storage.delete(file.path)
    holds = any(d.hold is not None for read in plan.reads for d in read.dispositions)
    is_first_or_last = (holds or bool(gone)) and not work.meta.structures.holds(plan.source, plan.number)
    if again or is_first_or_last or plan.number % SWEPT_WINDOWS == 0:
        _sweep_orphans(work, plan)
    work.store.purge(plan.source, plan.begins)


def _sweep_orphans(work: Work, plan: Plan) -> None:
    named = {file.path for state in work.meta.structures.shards(plan.source) for file in state.held}
    for path in work.storage.list(held_folder(plan.source)):
        # Another process may be at a later window already, whose files nothing names yet.
        if path not in named and held_window(path) <= plan.number:
            work.storage.delete(path)


def _report(plan: Plan, window: int | None, moved: _Moved, began: float, *, more: bool) -> WindowReport:
    return WindowReport(
        source=plan.source,
        window=window,
        begins=plan.begins,
        ends=plan.ends,
        rows_applied=moved.applied,
        rows_filtered=moved.filtered,
        rows_skipped=moved.skipped,
        rows_diverted=moved.diverted,
        rows_held=sum(file.rows for file in moved.held),
        rows_released=moved.released,
        rows_passed=plan.passed,
        ddls=plan.queued,
        seconds=time.monotonic() - began,
        more=more,
        stopped=moved.stopped,
    )


def _more(work: Work, begun: BegunWindow, moved: _Moved) -> bool:
    """Return whether another window could move on; only windows of the source add to its held rows."""
    source = begun.plan.source
    if work.store.links(source).has_more(begun.plan.ends):
        return True
    if not begun.beside & (Beside.HELD | Beside.DROPPED) and not moved.held:
        return False
    stopped = {stop.target for stop in work.meta.stops.all(source)}
    target_of = work.task.instance(source).routing.target_of
    return any(target_of(shard.table) not in stopped for shard in work.meta.structures.waiting(source))


def _steps(source: str, progress: Progress | None) -> Callable[[int, str, Plan], None]:
    def say(step: int, name: str, plan: Plan) -> None:
        log.info("sync step %s/4 %s source=%s window=%s location=%s", step, name, source, plan.number, plan.ends)
        if progress is not None:
            progress(name)

    return say
