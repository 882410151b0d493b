"""Runs one window of one source (driver): the only way in which rows of the binlog reach the target.

    1 plan     a pure decision from checkpoint, relay, queues and structures
    2 begin    persist the plan and raise the epoch: from here on a retry runs this very plan
    3 move     create missing targets, then one Spark job: held rows to files, other rows into the targets
    4 commit   one meta transaction: held files, queues, structures, checkpoint; then remove files that are not needed

With `drop-shard-rows: delete`, a window with DROP or TRUNCATE of a shard deletes its rows between 3 and 4. After a
death there the same plan runs again and deletes the rest: rows from after the statement are in a later window.

Steps 2 to 4 are stages (core.window.windowstages).

| death           | what happens                                                                         |
|-----------------|--------------------------------------------------------------------------------------|
| in 1            | nothing has happened                                                                 |
| in 2            | the window is begun or not; the next run finds the open window or plans again        |
| in 3            | some targets have the window, as their fences tell; the same plan runs again         |
| in 3, rows contradict their structure | no target has a row; the next run finds the same and plans again |
| in 4            | all or nothing; after it only unnamed files are left, until a later window removes them |

A window without rows needs no Spark. Without new binlog, and with nothing to release or drop, no window runs.

Deferred rows: checks after the end of safe mode that a later change has brought each of them.

The load defers rows that conflict with another row of their shard (units/full/loadchunks.py). Safe mode defers rows
that lack values and are not in the target (adapters.target.partialrows). The binlog up to P1 has a change of each of
them, because both are caused by the different moments at which chunks are dumped. If it has no such change (a key
that only the target compares as equal, a session that logs changed columns only, a change that was not logged), the
target lacks a row. The error is raised whenever windows reach the end of the pulled binlog, until a change has brought
the row: only windows can bring it.

The Spark job of a window: read parts, shuffle their runs by target, apply them. Each target has one applier, and
reading is less work than writing. So a small window runs as one task without a shuffle, because a shuffle would take
longer than the reading. Several targets are read and written in parallel. The code uses only the session of pyspark, so
it is the same for spark-submit, Connect and local.

With a `local` master the executor is on this machine. Then a small window needs no Spark: the driver calls the function
of its single task itself, which takes milliseconds, while the start of a JVM takes seconds.
"""

import contextlib
import logging
import pickle
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, assert_never

from unshard.adapters.meta.shardrecords import WAITS
from unshard.adapters.meta.taskrecords import window_of
from unshard.adapters.spark import collect, columns, numbers
from unshard.adapters.target import Fence
from unshard.adapters.target.shardremoval import delete_rows_of
from unshard.adapters.target.targetrows import LineForm
from unshard.config import Instance, ShardMode
from unshard.core.ddl.online import named_by
from unshard.core.ddl.queue import HeldFile, QueueEntry, ShardState
from unshard.core.join.places import JoinedRows
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard.core.rows.compaction import CollisionPolicy
from unshard.core.rows.rowerrors import RowErrors
from unshard.core.rules.shardrows import ShardRows, rows_of, why_unknown
from unshard.core.stages import evaluate
from unshard.core.structures.hiddencolumns import with_stored_values
from unshard.core.task.state import EVERYTHING, BegunWindow, PendingWork, Phase, SyncState
from unshard.core.window.plan import Contradiction, Deletion, Pace, Plan, next_bytes, next_sections, remembered
from unshard.core.window.shardchanges import PlanRules, within_window
from unshard.core.window.suspension import SuspendedTarget, TargetRefused
from unshard.core.window.windowplanning import plan_window
from unshard.core.window.windowstages import Attempt, Done, WindowStage, WindowStep, following
from unshard.errors import UnshardError
from unshard.errors.base import ConfigError, ServerError
from unshard.errors.checks import EngineKept
from unshard.errors.locks import JoinChanged, ShardRowsUnknown
from unshard.errors.meta import FinishedElsewhere, NotInSync, StoredFileMissing
from unshard.errors.relay import SegmentMissing
from unshard.errors.rows import DeferredRowMissing, NoTargetTable, RowsContradict, ShardRowsNotDeleted
from unshard.units.ddl.ddleffects import DdlEffects
from unshard.units.ddl.joining import announce
from unshard.units.ddl.onlineddl import OnlineDdl
from unshard.units.ddl.reconciling import name_columns, reconcile_structures
from unshard.units.enforcedkeys import enforced_keys
from unshard.units.full.keyowners import name_owners
from unshard.units.full.targets import (
    NOT_JOINED,
    create_joined,
    follow_mode,
    follow_schemas,
    join_before_rows,
    reshaped_by,
)
from unshard.units.rows.joinedrows import joined_rows
from unshard.units.rows.shuffle import PAYLOADS
from unshard.units.rows.windowjob import WindowJob, dropped_since, parts_of
from unshard.units.window.adoptedrules import adopt_rules
from unshard.units.window.statementcontext import ChangedTables, in_context, trial_of
from unshard.units.window.suspending import newest_ddl, refused_names, still_suspended, suspend_targets, suspended_of
from unshard.units.window.tasks import (
    RESULTS,
    AppliedSections,
    ApplyTargets,
    NeedsText,
    PartReport,
    ReadAndApply,
    ReadParts,
    Result,
    TargetReport,
    held_folder,
    held_window,
)
from unshard.units.work import LIMITS, LazySpark, Limits, Work


def refuse_missing(work: Work, sync_state: SyncState, reached: Location) -> None:
    """Raise DeferredRowMissing if a row is missing although all changes up to the end of safe mode are applied."""
    if sync_state.dump_end is None or reached < sync_state.dump_end:
        return
    missing = work.meta.deferred.missing(sync_state.source)
    if missing is not None:
        raise DeferredRowMissing(str(missing.target), str(missing.shard), missing.key, missing.count)


# --- the rows of dropped and truncated shards


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IdentifiedRows:
    """Finds the values that name the rows of a shard; implements `PlanRules.rows_of`."""

    work: Work

    def __call__(self, state: ShardState, group: Sequence[Shard]) -> ShardRows | str:
        """Return the values, or the error that explains why they also fit rows of another shard."""
        rows = self._rows(state.shard, self._structure(state))
        # Shards that have left count, because rows of them may still be in the target.
        others = {other: self._rows(other) for other in {*group, *self.work.meta.structures.fed(state.target)}}
        if why := why_unknown(state.shard, rows, others):
            return str(ShardRowsUnknown(str(state.shard), str(state.target), why))
        return rows

    def _structure(self, state: ShardState) -> TableSchema:
        # Without a structure, a mapped column counts as missing.
        found = self.work.structures({state.structure}) if state.structure else {}
        return found.get(state.structure, TableSchema((), (), ""))

    def _rows(self, shard: Shard, structure: TableSchema | None = None) -> ShardRows:
        if shard.source not in self.work.task.sources:
            return ShardRows()
        try:
            return rows_of(self.work.task.instance(shard.source).routing.reshaping(shard.table), structure)
        except ConfigError:
            return ShardRows()  # the rules of the file do not fit a shard that has left


def _delete_rows(work: Work, begun: BegunWindow, deletion: Deletion) -> int:
    plan, shard, target = begun.plan, deletion.shard, deletion.target
    fence = Fence(work.meta.schema, work.task.name, plan.source, target, plan.number, begun.epoch)
    try:
        schema = work.target_schema(target)
        found = delete_rows_of(work.writer(), fence, shard, deletion.rows, schema, work.limits.deleted_rows)
    except (ServerError, NoTargetTable) as error:
        if error.transient:
            raise
        raise ShardRowsNotDeleted(str(shard), str(target), deletion.text, error.message) from error
    log.info("rows of shard deleted shard=%s target=%s rows=%s", shard, target, found)
    return found


# --- one window


Progress = Callable[[str], None]

SWEPT_WINDOWS = 100
"""Files of dead attempts are looked for at least every so many windows."""


@dataclass(frozen=True, slots=True)
class WindowReport:
    """The result of one call; if no window ran, `window` is None and both locations are the checkpoint."""

    source: str
    window: int | None
    begins: Location
    ends: Location
    rows_applied: int
    """Row changes that are in the target now, including released ones, without those of the next three counts."""
    rows_filtered: int
    """Row changes that the task's filters left out."""
    rows_skipped: int
    """Rows that were left out because another shard owns their key (on-duplicate: ignore), without those of an attempt
    that died."""
    rows_diverted: int
    """Rows that were diverted because the target refused them (row-errors: divert)."""
    rows_held: int
    rows_released: int
    rows_passed: int
    """Row events of shards that an operator has dropped, and of sequences."""
    ddls: tuple[QueueEntry, ...]
    seconds: float
    more: bool
    """Whether another window could run at once."""
    bytes: int = 0
    """Of binlog and of held rows that were read."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """The seconds of each stage, of all attempts; `plan` is everything before the first one."""
    written: Mapping[TableId, int] = field(default_factory=dict)
    """The number of rows that were written to or deleted from each target; 0 if an attempt before has written them."""
    lag: int | None = None
    """The age of its last event when it was done, in seconds; None if it is unknown."""
    stopped: tuple[SuspendedTarget, ...] = ()
    """Targets that were suspended in it: their rows were held."""
    engines: tuple[EngineKept, ...] = ()
    """Shards whose engine the target does not get."""

    @property
    def moved(self) -> bool:
        return self.window is not None

    def __str__(self) -> str:
        """One line for the log."""
        return (
            f"window done source={self.source} window={self.window} location={self.ends} rows={self.rows_applied} "
            f"held={self.rows_held} released={self.rows_released} filtered={self.rows_filtered} "
            f"skipped={self.rows_skipped} diverted={self.rows_diverted} bytes={self.bytes} "
            f"seconds={self.seconds:.3f} lag={self.lag}"
        )


@dataclass(frozen=True, slots=True)
class _Moved:
    applied: int = 0
    filtered: int = 0
    skipped: int = 0
    diverted: int = 0
    released: int = 0
    written: Mapping[TableId, int] = field(default_factory=dict)
    held: tuple[HeldFile, ...] = ()
    stopped: tuple[SuspendedTarget, ...] = ()
    """Targets whose rows were held, because they are suspended."""
    refused: tuple[TargetRefused, ...] = ()
    """Targets that refused their rows in this attempt: they got no rows, and no rows are held for them yet."""
    tried: Mapping[TableId, TableSchema] = field(default_factory=dict)
    contradictions: tuple[Contradiction, ...] = ()
    """Shards whose rows contradict their structure: no target has any row of the window."""
    is_outdated: bool = False
    """A target was changed while rows for it were converted: the same plan runs again."""
    sections: AppliedSections | None = None
    """The sections that the target has, if something is wrong in the next one."""


NOTHING_MOVED = _Moved()


@dataclass(frozen=True, slots=True)
class _Window:
    begun: BegunWindow
    attempt: Attempt
    stops: Mapping[TableId, SuspendedTarget] = field(default_factory=dict)
    moved: _Moved = NOTHING_MOVED
    deleted: tuple[int, ...] = ()
    """The number of rows of each dropped or truncated shard that were deleted."""


def run_window(work: Work, source: str, progress: Progress | None = None) -> WindowReport:
    """Run the open window of a source, else the next one; idempotent at every point."""
    began = time.monotonic()
    sync_state = work.meta.windows.sync_state(source)
    if adopt_rules(work, sync_state):
        sync_state = work.meta.windows.sync_state(source)
    follow_mode(work, PendingWork.JOINED in sync_state.pending)
    with _or_finished_elsewhere(work, sync_state):
        plan = sync_state.open or _plan(work, sync_state)
        if plan.is_empty:
            report = _report(plan, None, NOTHING_MOVED, began, more=False)
        else:
            with work.meta.active_workers.at(window_of(source)):
                report = _WindowRun(work, sync_state, began, progress).run(plan)
    if not report.more and (plan.safe or PendingWork.DEFERRED in sync_state.pending):
        refuse_missing(work, sync_state, report.ends)
    return report


@contextlib.contextmanager
def _or_finished_elsewhere(work: Work, before: SyncState) -> Iterator[None]:
    """Tell a file that another run has removed after its window from a file that is lost."""
    try:
        yield
    except (SegmentMissing, StoredFileMissing) as error:
        if work.meta.windows.sync_state(before.source).window > before.window:
            raise FinishedElsewhere(before.source, f"window {before.window + 1}", error.message) from error
        raise


@dataclass(frozen=True, slots=True)
class _WindowRun:
    """Runs the stages of one window (core.window.windowstages)."""

    work: Work
    sync_state: SyncState
    began: float
    progress: Progress | None
    stages: dict[str, float] = field(default_factory=dict)

    def run(self, plan: Plan) -> WindowReport:
        self.stages["plan"] = time.monotonic() - self.began
        self._say(1, "plan", plan)
        first = _Window(BegunWindow(plan, self.sync_state.epoch), Attempt(is_again=self.sync_state.open is not None))
        done = evaluate(first, lambda window: following(window.begun.plan, window.attempt), self._timed)
        plan, more = done.begun.plan, _more(self.work, done.begun, done.moved)
        report = _report(plan, plan.number, done.moved, self.began, more=more, deleted=done.deleted)
        report = replace(report, stages=self.stages, engines=_kept_engines(self.work, plan))
        log.info("%s", report)
        return report

    def _timed(self, stage: WindowStage, window: _Window) -> _Window:
        began = time.monotonic()
        after = self._stage(stage, window)
        self.stages[stage.kind] = self.stages.get(stage.kind, 0.0) + time.monotonic() - began
        return after

    def _stage(self, stage: WindowStage, window: _Window) -> _Window:
        begun, is_again = window.begun, window.attempt.is_again
        match stage.kind:
            case WindowStep.BEGIN:
                after = self._begin(window)
            case WindowStep.CREATE_TARGETS:
                after = self._create(window)
            case WindowStep.MOVE:
                after = self._found(window, _move(self.work, begun, window.stops, is_again))
            case WindowStep.PLAN_AGAIN:
                _plan_again(self.work, begun, window.attempt.contradictions)
                after = replace(window, attempt=Attempt(is_again=True))
            case WindowStep.SUSPEND:
                suspend_targets(self.work, begun, window.attempt.refused)
                after = replace(window, attempt=Attempt(is_again=True))
            case WindowStep.DELETE_ROWS:
                deleted = tuple(_delete_rows(self.work, begun, deletion) for deletion in begun.plan.deletions)
                after = replace(window, deleted=deleted, attempt=Attempt(Done.DELETED, is_again))
            case WindowStep.COMMIT:
                after = self._commit(window)
            case WindowStep.SWEEP:
                _sweep(self.work, begun.plan, window.moved.stopped, again=is_again)
                after = replace(window, attempt=Attempt(Done.SWEPT, is_again))
            case _:
                assert_never(stage.kind)
        return after

    def _begin(self, window: _Window) -> _Window:
        """Begin the window; in another attempt the new epoch stops every writer of the attempt before."""
        begun = self.work.meta.windows.begin(window.begun.plan.source, window.begun.plan)
        self._say(2, "begin", begun.plan)
        return _Window(begun, Attempt(Done.BEGUN, window.attempt.is_again))

    def _create(self, window: _Window) -> _Window:
        plan = window.begun.plan
        stops = suspended_of(self.work, plan) if PendingWork.SUSPENDED in window.begun.pending else {}
        follow_schemas(self.work, plan)
        join_before_rows(self.work, plan.targets, releases=bool(plan.releases))
        again = refused_names(self.work, plan) if PendingWork.SUSPENDED in window.begun.pending else ()
        if refused := create_joined(self.work, plan, stops, again):
            tried = self.work.present({each.target for each in refused})
            return self._found(window, _Moved(refused=refused, tried=tried))
        return replace(window, stops=stops, attempt=Attempt(Done.CREATED, window.attempt.is_again))

    def _found(self, window: _Window, moved: _Moved) -> _Window:
        """Return the window with its moved rows, or with the reason for another attempt."""
        if moved.contradictions:
            return replace(window, attempt=Attempt(is_again=True, contradictions=moved.contradictions))
        if moved.is_outdated:
            return replace(window, attempt=Attempt(is_again=True))
        if moved.refused:
            return replace(window, attempt=Attempt(is_again=True, refused=_refused_still(self.work, moved)))
        begun = window.begun if moved.sections is None else _shortened(self.work, window.begun, moved.sections)
        self._say(3, "move", begun.plan)
        return replace(window, begun=begun, moved=moved, attempt=Attempt(Done.MOVED, window.attempt.is_again))

    def _commit(self, window: _Window) -> _Window:
        begun, moved = window.begun, window.moved
        # The time that a window took is unknown if an earlier run began it.
        known = self.sync_state.paces
        paces = () if window.attempt.is_again else _paces(self.work, known, begun.plan, moved, self.began)
        self.work.meta.windows.commit(begun, moved.held, moved.applied, paces, moved.stopped, window.deleted)
        self._say(4, "commit", begun.plan)
        return replace(window, attempt=Attempt(Done.COMMITTED, window.attempt.is_again))

    def _say(self, step: int, name: str, plan: Plan) -> None:
        log.debug("sync step %s/4 %s source=%s window=%s location=%s", step, name, plan.source, plan.number, plan.ends)
        if self.progress is not None:
            self.progress(name)


def _refused_still(work: Work, moved: _Moved) -> tuple[TargetRefused, ...]:
    """Return the refused targets that were not altered since; others (after a forced lock, say) are tried again."""
    present = {target: schema.digest for target, schema in work.present({r.target for r in moved.refused}).items()}
    tried = {target: schema.digest for target, schema in moved.tried.items()}
    return tuple(each for each in moved.refused if present.get(each.target) == tried.get(each.target))


def _paces(work: Work, known: Sequence[Pace], plan: Plan, moved: _Moved, began: float) -> tuple[Pace, ...]:
    rows = moved.applied + moved.filtered + moved.skipped + moved.diverted + sum(file.rows for file in moved.held)
    pace = Pace(plan.bytes, rows, int(1000 * (time.monotonic() - began)))
    return remembered(known, pace, work.task.options.window)


def _shortened(work: Work, begun: BegunWindow, sections: AppliedSections) -> BegunWindow:
    """Let the window end before the section that cannot be applied; raises its error if the target has a part of it."""
    plan = begun.plan.until(sections.number)
    log.warning("the window ends early source=%s location=%s because: %s", plan.source, plan.ends, sections.error)
    shorter = work.meta.windows.shorten(begun, plan)
    if shorter is None:
        raise sections.error
    return shorter


def _plan_again(work: Work, begun: BegunWindow, found: Sequence[Contradiction]) -> None:
    """Replace the plan by one that holds the contradicting rows; no target has any row of the window yet."""
    found = sorted(found, key=lambda each: each.part)
    for each in found:
        log.warning("rows contradict their structure shard=%s location=%s", each.shard, each.location)
    sync_state = work.meta.windows.sync_state(begun.plan.source)
    plan = _plan(work, sync_state, (*begun.plan.contradictions, *found))
    if plan.queued == begun.plan.queued or not work.meta.windows.plan_again(begun, plan):
        raise RowsContradict(str(found[0].shard), str(found[0].location), found[0].words)


def next_plan(work: Work, source: str) -> Plan:
    """Plan the window after the checkpoint; pulls nothing, and stores only structures and schema defaults that it
    finds.
    """
    return _plan(work, work.meta.windows.sync_state(source), asks_source=False)


def _plan(
    work: Work, sync_state: SyncState, contradictions: tuple[Contradiction, ...] = (), *, asks_source: bool = True
) -> Plan:
    """Plan a window; `asks_source`: it may ask the source for what the binlog does not tell, and pull its relay."""
    source, checkpoint, pending = sync_state.source, sync_state.checkpoint, sync_state.pending
    if checkpoint is None or sync_state.phase is not Phase.SYNC:
        raise NotInSync(source, sync_state.phase.value)
    instance = work.task.instance(source)
    feeds, foreign_keys = work.task.feeds, work.task.checks_foreign_keys
    paces, limits = sync_state.paces, work.task.options.window
    window_bytes = next_bytes(paces, limits)
    can_be_one_task = not foreign_keys and window_bytes <= work.limits.alone_bytes
    changed = ChangedTables(work, source, pulls=asks_source)
    effects = partial(DdlEffects, work.trial_tables, work.meta.structures, instance.routing, changed=changed)
    rules = PlanRules(
        target_of=instance.routing.target_of,
        effects=effects(feeds=feeds, foreign_keys=foreign_keys),
        window_bytes=window_bytes,
        sections=next_sections(paces, limits) if can_be_one_task else 1,
        safe_until=sync_state.dump_end,
        force_safe=instance.sync.safe_mode,
        sequences=work.meta.ignored.sequences(source) if PendingWork.SEQUENCES in pending else frozenset(),
        commands=work.meta.statement_commands.waiting(source) if PendingWork.STATEMENT_COMMANDS in pending else (),
        ordered=effects(filters=False, foreign_keys=foreign_keys),
        history=sync_state.gtid,
        stopped=still_suspended(work, source) if PendingWork.SUSPENDED in pending else frozenset(),
        retried=work.meta.suspended_targets.lifted(source) if PendingWork.SUSPENDED in pending else (),
        together=work.task.options.window,
        online_tables=work.meta.online.of(source) if PendingWork.ONLINE_TABLES in pending else (),
        online=online_ddl(work, instance),
        contradictions=contradictions,
        is_joined=work.task.shard_mode is ShardMode.OPTIMISTIC,
        rows_of=IdentifiedRows(work),
    )
    if PendingWork.UNNAMED in pending:
        name_columns(work.meta.structures, source)
    if PendingWork.UNKNOWNS in pending:
        pending = EVERYTHING  # the function may ask again about DDL that was resolved
        reconcile_structures(work.meta.structures, source, trial_of(work, asks_source=asks_source))
    found = work.store.links(source).following(checkpoint)
    segments = in_context(work, source, checkpoint, within_window(found, rules))
    changed.expect(segments)
    shards: tuple[ShardState, ...] = ()
    if segments or pending & WAITS:
        planned = partial(work.meta.structures.planned_shards, source, named_by(segments, rules.online_tables), pending)
        shards = planned()
        # Another process may have resolved a lock since `pending` was read.
        if PendingWork.QUEUES in pending and name_columns(work.meta.structures, source):
            shards = planned()
    return plan_window(source, sync_state.window + 1, checkpoint, segments, shards, rules)


def online_ddl(work: Work, instance: Instance) -> OnlineDdl | None:
    """Return the follower of online DDL tools; None if the task does not follow them."""
    if instance.online is None:
        return None
    return OnlineDdl(instance.online, work.trial_tables, work.meta.structures, instance.routing, work.task.feeds)


def window_job(
    work: Work,
    begun: BegunWindow,
    stops: Mapping[TableId, SuspendedTarget],
    schemas: Mapping[TableId, TableSchema],
    *,
    joined: Mapping[TableId, JoinedRows] = NOT_JOINED,
    is_again: bool = False,
) -> WindowJob | tuple[TargetRefused, ...]:
    """Return the job for the executors, or the targets that refuse the window before a row is read.

    `schemas` must have been read before the call: the missing DDL of the shards is read here, after them. `joined` must
    have been read before `schemas`.
    """
    plan = begun.plan
    targets = tuple(sorted(plan.targets - stops.keys()))
    shards = _shards(plan)
    if missing := [target for target in targets if target not in schemas]:
        return tuple(TargetRefused(target, NoTargetTable(str(target))) for target in missing)
    job = WindowJob(
        task=work.task.name,
        meta_schema=work.task.meta_schema,
        begun=begun,
        writer=replace(work.writer(), sessions=work.task.instance(plan.source).sync.workers),
        storage=work.storage,
        relay=work.store,
        collisions=CollisionPolicy(work.task.instance(plan.source).load.on_duplicate.value),
        targets=targets,
        schemas=tuple(schemas[target] for target in targets),
        shards=tuple(sorted(shards)),
        structures=_structures(work, plan, joined),
        behind=work.meta.locks.behind(shards, plan.structures),
        parts=parts_of(
            plan,
            dropped_since(work.meta.structures.dropped(shards), plan) if PendingWork.DROPPED in begun.pending else (),
            stops,
            newest_ddl(work, plan) if stops else {},
        ),
        joined=joined,
        deferred=work.meta.deferred.targets(plan.source) if PendingWork.DEFERRED in begun.pending else frozenset(),
        partial=frozenset(target for target, stop in stops.items() if stop.is_partial),
        diverts=work.task.options.row_errors is RowErrors.DIVERT,
        time_zone=work.task.timezone,
        reshapings=reshaped_by(work, plan.source, shards),
        foreign_keys=enforced_keys(work, targets),
        together=work.meta.windows.in_order(plan.source, plan.number) if is_again else (),
        is_unsure=_is_unsure(work, plan),
    ).by_filled_keys()
    return job.refusals() or job


def _is_unsure(work: Work, plan: Plan) -> bool:
    """Whether the dump may have read tables at moments between the changes of a window."""
    state = work.meta.sources.get(plan.source) if plan.safe and work.task.checks_foreign_keys else None
    return state is not None and state.dump_end is not None and plan.begins < state.dump_end


def _shards(plan: Plan) -> frozenset[Shard]:
    read = (d.shard for read in plan.reads for d in read.dispositions)
    return frozenset((*read, *(release.shard for release in plan.releases)))


def _structures(work: Work, plan: Plan, joined: Mapping[TableId, JoinedRows]) -> dict[str, TableSchema]:
    """Return the structures of the rows; a column that is generated in some shards may be plain in their join.

    Rows that a window only holds have the same columns as when another window releases them.
    """
    read = {d.structure for read in plan.reads for d in read.dispositions if d.structure}
    found = work.structures(read | {file.structure for release in plan.releases for file in release.files})
    if not joined and not _holds_joined(work, plan):
        return found
    return {digest: with_stored_values(structure) for digest, structure in found.items()}


def _holds_joined(work: Work, plan: Plan) -> bool:
    held = {d.target for read in plan.reads for d in read.dispositions if d.hold is not None}
    return (
        bool(held) and work.task.shard_mode is ShardMode.OPTIMISTIC and not held.isdisjoint(work.meta.joins.targets())
    )


def _move(work: Work, begun: BegunWindow, stops: Mapping[TableId, SuspendedTarget], is_again: bool) -> _Moved:
    plan, stopped = begun.plan, tuple(stops.values())
    if not plan.moves_rows:
        return _Moved(stopped=stopped)
    written = {*plan.targets} - stops.keys()
    if work.task.shard_mode is ShardMode.OPTIMISTIC:
        announce(work.meta, plan)
    joined = joined_rows(work, written, _shards(plan), plan)
    schemas = work.present(written)
    job = window_job(work, begun, stops, schemas, joined=joined, is_again=is_again)
    if not isinstance(job, WindowJob):
        return _Moved(refused=job, tried=schemas)
    results = run_job(work.spark, job, work.limits) if job.parts else ()
    sections = next((result for result in results if isinstance(result, AppliedSections)), None)
    if contradictions := tuple(result for result in results if isinstance(result, Contradiction)):
        return _Moved(contradictions=contradictions)
    if any(isinstance(result, JoinChanged) for result in results):
        return _Moved(is_outdated=True)
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
    # Recorded together with the rows, because an earlier attempt may have diverted some of them.
    diverted = work.meta.row_errors.of_window(plan.source, plan.number, plan.last_number) if job.diverts else 0
    return _Moved(
        applied=sum(part.applied for part in parts) - skipped - diverted,
        filtered=sum(part.filtered for part in parts),
        skipped=skipped,
        diverted=diverted,
        released=sum(part.released for part in parts),
        written=_written(targets),
        held=tuple(held),
        stopped=stopped,
        sections=sections,
    )


def _written(targets: Sequence[TargetReport]) -> Mapping[TableId, int]:
    """Return the rows of each target that has changed."""
    rows: Counter[TableId] = Counter()
    for each in targets:
        if (found := each.applied.deleted + each.applied.written) or each.applied.before:
            rows[each.target] += found
    return rows


def _sweep(work: Work, plan: Plan, stopped: Collection[SuspendedTarget], again: bool) -> None:
    """Remove files that are not needed any more: of released and dropped rows, and segments before the window.

    The window's own segments stay, because the next pull goes on from them. Files that a death has left are not looked
    for in every window, because that reads the names of all held files: only after a window that ran again, when the
    first rows are held or the last are released, and every SWEPT_WINDOWS windows.
    """
    kept = {stop.target for stop in stopped}
    gone = [file for release in plan.releases if release.target not in kept for file in release.files]
    gone += [file for drop in plan.drops for file in drop.files]
    for file in gone:
        work.storage.delete(file.path)
    holds = any(d.hold is not None for read in plan.reads for d in read.dispositions)
    is_first_or_last = (holds or bool(gone)) and not work.meta.structures.holds(plan.source, plan.number)
    if again or is_first_or_last or plan.deletions or plan.reaches_multiple(SWEPT_WINDOWS):
        _sweep_orphans(work, plan)
    work.store.purge(plan.source, plan.begins)


def _sweep_orphans(work: Work, plan: Plan) -> None:
    named = work.meta.structures.held_paths(plan.source)
    for path in work.storage.list(held_folder(plan.source)):
        # Another process may run a later window already, whose files are not committed yet.
        if path not in named and held_window(path) <= plan.number:
            work.storage.delete(path)


def _report(
    plan: Plan, window: int | None, moved: _Moved, began: float, *, more: bool, deleted: Sequence[int] = ()
) -> WindowReport:
    written = Counter(moved.written)
    for deletion, rows in zip(plan.deletions if deleted else (), deleted, strict=True):
        written.update({deletion.target: rows} if rows else {})
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
        bytes=plan.bytes,
        written=written,
        lag=max(0, int(time.time()) - plan.last_time) if plan.last_time else None,
        stopped=moved.stopped,
    )


def _kept_engines(work: Work, plan: Plan) -> tuple[EngineKept, ...]:
    """Return a warning for each shard that has an engine without transactions after a DDL of the window."""
    changes = [each for each in plan.structures if each.structure and not each.joins]
    schemas = work.structures({each.structure for each in changes if each.structure})
    engines = [(each, schemas[each.structure].lacks_transactions) for each in changes if each.structure]
    found = tuple(EngineKept(str(each.target), str(each.shard), engine) for each, engine in engines if engine)
    for warning in found:
        log.warning("%s", warning.message)
    return found


def _more(work: Work, begun: BegunWindow, moved: _Moved) -> bool:
    """Return whether another window could run at once; only windows of the source add to its held rows."""
    source = begun.plan.source
    if work.store.links(source).has_more(begun.plan.ends):
        return True
    if not begun.pending & (PendingWork.HELD | PendingWork.DROPPED) and not moved.held:
        return False
    return may_release(work, source)


def may_release(work: Work, source: str) -> bool:
    """Whether held rows of a source wait for no DDL any more, so that a window applies them without new binlog."""
    stopped = {stop.target for stop in work.meta.suspended_targets.all(source)}
    target_of = work.task.instance(source).routing.target_of
    return any(target_of(shard.table) not in stopped for shard in work.meta.structures.waiting(source))


# --- the Spark job of a window


MOST_APPLIERS = 8


def run_job(opened: Callable[[], Any], job: WindowJob, limits: Limits = LIMITS) -> tuple[Result, ...]:
    """Run the window and return its results; coded errors are returned as results. `opened` returns the session."""
    workers = workers_for(job, limits)
    if workers == 1 and job.bytes <= limits.small_bytes and isinstance(opened, LazySpark) and opened.is_local:
        return tuple(ReadAndApply(job).results())
    spark = opened()
    if workers == 1:
        return _results(spark, lambda: numbers(spark, 1).mapInArrow(ReadAndApply(job), columns(RESULTS)))
    results = _results(spark, lambda: _two_stages(spark, replace(job, form=job.writer.form), workers))
    if any(isinstance(result, NeedsText) for result in results):
        return _results(spark, lambda: _two_stages(spark, replace(job, form=LineForm.TEXT), workers))
    return results


def _results(spark: Any, frame: Callable[[], Any]) -> tuple[Result, ...]:
    bodies = collect(spark, frame).column("body").to_pylist()
    return tuple(pickle.loads(body) for body in bodies)  # noqa: S301  written by our own executors


def _two_stages(spark: Any, job: WindowJob, workers: int) -> Any:
    tasks = numbers(spark, workers)
    slots = min(max(len(job.targets), 1), MOST_APPLIERS)
    payloads = tasks.mapInArrow(ReadParts(job, workers, slots), columns(PAYLOADS)).repartitionById(slots, "slot")
    return payloads.mapInArrow(ApplyTargets(job), columns(RESULTS))


def workers_for(job: WindowJob, limits: Limits) -> int:
    """Return the number of tasks that read."""
    if len(job.targets) == 1 and job.plan.borders:
        return 1
    if job.bytes <= (limits.alone_bytes if len(job.targets) == 1 else limits.small_bytes):
        return 1
    return max(1, min(len(job.parts), -(-job.bytes // limits.worker_bytes), limits.most_workers))
