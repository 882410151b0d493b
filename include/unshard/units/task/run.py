"""Runs a task without Airflow (driver): the full load if it is not done, then windows until nothing moves.

In a round every source runs one window, in parallel. Then the DDL locks that are synced are executed, so that the next
round can release their rows. The run ends when a round has moved nothing and every source has passed the position that
its upstream had when the run began (and the end of its dump). Later events are left to the next run, so a run ends
under any load.

A source that fails does not stop the others. A transient error is tried again after a pause. A collision is tried again
after another source has moved, because that source may bring the missing DELETE.

| death | the next run |
|---|---|
| in snapshot, dump or load | goes on with the missing chunks |
| before, in or after a window | finds its persisted plan, or plans again from the checkpoint |
| between executing a lock and its windows | releases the rows |

Two runs at the same time slow each other down but do no harm: beginning a window raises the epoch of its source, and a
writer with an older epoch is refused.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar, assert_never

from unshard.adapters import mysql, tracebacks
from unshard.config import Connections, TaskMode, environment_connections
from unshard.core.checks.alike import summaries
from unshard.core.ddl.lock import LockState
from unshard.core.model import Location
from unshard.core.task.fullstages import DumpRows, FullMode, FullStage, LoadRows, TakeSnapshot, source_stages
from unshard.core.task.state import Phase
from unshard.errors import UnshardError
from unshard.errors.rows import Collision
from unshard.errors.targetchecks import EngineReplaced, IndexesLeftOut, StorageLeftOut
from unshard.errors.task import TaskPaused
from unshard.errors.window import NoProgress
from unshard.units.begun import begun_in
from unshard.units.checks.backups import refuse_older
from unshard.units.checks.precheck import keep, precheck, raise_if_failed
from unshard.units.ddl import coordinate
from unshard.units.ddl.coordinate import LockView
from unshard.units.ddl.differences import DifferenceView
from unshard.units.full.dump import dump
from unshard.units.full.load import handover, load
from unshard.units.full.snapshot import take_snapshot
from unshard.units.relay.tasksource import end_of_source, pull_source
from unshard.units.stages import evaluate
from unshard.units.task.joins import follow_each, open_differences
from unshard.units.window.rules import refusal_of
from unshard.units.window.suspension import error_of, retry
from unshard.units.window.sync import WindowReport, run_window
from unshard.units.work import Work

T = TypeVar("T")

RETRIES = 3
LOCKS, TASK = "locks", "task"
HANDOVER = "handover"
CREATED_UNLIKE = (IndexesLeftOut.code, EngineReplaced.code, StorageLeftOut.code)


class Until(StrEnum):
    """The end of a run."""

    FULL = "full"
    CAUGHT_UP = "caught-up"


@dataclass(frozen=True, slots=True)
class PhaseBegan:
    """A source has begun a step of its full load."""

    source: str
    step: str


@dataclass(frozen=True, slots=True)
class PhaseEnded:
    """A source has finished a step of its full load."""

    source: str
    step: str
    seconds: float


@dataclass(frozen=True, slots=True)
class WindowDone:
    """A window is committed."""

    source: str
    report: WindowReport


@dataclass(frozen=True, slots=True)
class LockTried:
    """The DDL of a lock was executed, or the target refused it."""

    lock: LockView


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error; `again` tells whether the run tries again."""

    place: str
    error: UnshardError
    again: bool


@dataclass(frozen=True, slots=True)
class CreatedUnlike:
    """A target is created without indexes that it refuses, or with InnoDB in place of the engine of its shards."""

    place: str
    message: str


Note = CreatedUnlike | PhaseBegan | PhaseEnded | WindowDone | LockTried | Trouble
Watch = Callable[[Note], None]


@dataclass(frozen=True, slots=True)
class SourceOutcome:
    """The result of the run for one source."""

    source: str
    phase: Phase
    checkpoint: Location | None
    windows: int
    rows_applied: int
    rows_filtered: int
    rows_skipped: int
    rows_diverted: int
    rows_held: int
    rows_released: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run."""

    sources: tuple[SourceOutcome, ...]
    locks: tuple[LockView, ...]
    """Locks that are open."""
    failures: tuple[Trouble, ...]
    """Errors that stopped a source, or something that concerns all sources."""
    suspended: tuple[Trouble, ...]
    """Errors that suspended one target for one source; everything else went on."""
    seconds: float
    differences: tuple[DifferenceView, ...] = ()
    """Open differences between shards, in optimistic mode."""

    @property
    def errors(self) -> tuple[Trouble, ...]:
        """All errors."""
        return (*self.failures, *self.suspended)

    @property
    def exit_code(self) -> int:
        """0 caught up, 3 waiting at locks, 4 caught up except for suspended targets, 1 another error."""
        if self.failures:
            return 1
        if self.suspended:
            return 4
        return 3 if self.locks else 0


def full_mode(mode: TaskMode) -> FullMode:
    """Return the parts of the full load that a task-mode has."""
    return FullMode(mode.begins, mode.dumps, mode.loads, mode is not TaskMode.DUMP, mode.syncs)


@dataclass(slots=True)
class _Tally:
    """The counts and errors of the run so far."""

    pause_seconds: float
    windows: dict[str, list[WindowReport]] = field(default_factory=dict)
    errors: dict[str, Trouble] = field(default_factory=dict)
    """The last error of each source, or of locks, that is not over."""
    tries: dict[str, int] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    """Locks that were executed or refused: the DDL of a refused lock is tried once in a run."""


def run(
    work: Work,
    until: Until = Until.CAUGHT_UP,
    connections: Connections = environment_connections,
    watch: Watch = lambda _: None,
) -> Outcome:
    """Run the task until nothing more can move."""
    work.meta.pauses.refuse()
    refuse_older(work)
    began = time.monotonic()
    tally = _Tally(work.limits.pause_seconds)
    goals = _goals(work, tally, watch)
    _full(work, list(goals), connections, tally, watch)
    if until is Until.CAUGHT_UP and work.task.task_mode.syncs:
        _follow(work, goals, tally, watch)
    return _outcome(work, connections, tally, time.monotonic() - began)


def _goals(work: Work, tally: _Tally, watch: Watch) -> dict[str, Location]:
    """Read the present end of each upstream's binlog; a source that does not answer is left out of this run."""
    found: dict[str, Location] = {}
    waiting = list(work.sources)
    while waiting:
        for source in waiting:
            _pause(source, tally)
            with _collected(source, tally, watch):
                with contextlib.closing(mysql.connect(work.sources[source], f"source {source}")) as connection:
                    found[source] = end_of_source(work, source, connection)
        waiting = [source for source, trouble in tally.errors.items() if trouble.again]
    return found


def _full(work: Work, sources: Sequence[str], connections: Connections, tally: _Tally, watch: Watch) -> None:
    """Run the rest of the full load; `sources` are those that answer."""
    begun = begun_in(work.meta)
    last = Phase.SYNC if work.task.task_mode is not TaskMode.DUMP else Phase.DUMPED
    if all(begun.phase(source).order >= last.order for source in work.task.sources):
        return
    items = precheck(work.task, connections, begun)
    keep(work.task, connections, items)
    raise_if_failed(items)
    for item in summaries(item for item in items if item.code in CREATED_UNLIKE):
        watch(CreatedUnlike(item.place, item.message))
    _side_by_side(sources, lambda source: _full_of(work, source, tally, watch))
    if work.task.task_mode is not TaskMode.DUMP and begun_in(work.meta).loaded.issuperset(work.task.sources):
        _retried(HANDOVER, lambda: handover(work), tally, watch)


def _full_of(work: Work, source: str, tally: _Tally, watch: Watch) -> None:
    """Run the stages of the full load that a source still has to pass in the task's mode."""
    mode = full_mode(work.task.task_mode)

    def run_stage(stage: FullStage, _: Phase) -> Phase:
        began = time.monotonic()
        watch(PhaseBegan(source, stage.name))
        _run_full_stage(work, stage)
        watch(PhaseEnded(source, stage.name, time.monotonic() - began))
        return _phase(work, source)

    def run_stages() -> None:
        evaluate(_phase(work, source), lambda phase: source_stages(source, phase, mode), run_stage)

    _retried(source, run_stages, tally, watch)


def _run_full_stage(work: Work, stage: FullStage) -> None:
    match stage:
        case TakeSnapshot():
            take_snapshot(work, stage.source)
        case DumpRows():
            dump(work, stage.source)
        case LoadRows():
            load(work, stage.source)
        case _:
            assert_never(stage)


def _follow(work: Work, goals: Mapping[str, Location], tally: _Tally, watch: Watch) -> None:
    """Run rounds of relay, windows and locks until nothing moves and no error may pass by another try."""
    synced = [source for source in goals if source not in tally.errors and _phase(work, source) is Phase.SYNC]
    goals = {source: _goal(work, source, goals[source]) for source in synced}
    # After a death, locks may be left to resolve. Without that, windows would find nothing to do.
    _coordinate(work, tally, watch)
    _retry_stopped(work)
    while active := [source for source in goals if _may_go_on(source, tally)]:
        moved = _side_by_side(active, lambda source: _step(work, source, goals[source], tally, watch))
        if _is_paused(work, tally, watch):
            return
        resolved = _coordinate(work, tally, watch)
        if not any(moved) and not resolved and not any(trouble.again for trouble in tally.errors.values()):
            break
    for source in goals.keys() - tally.errors.keys():
        with _collected(source, tally, watch):
            _check_goal(work, source, goals[source])


def _is_paused(work: Work, tally: _Tally, watch: Watch) -> bool:
    """Whether the task was paused since the run began; reported once, not once for each source."""
    tally.errors = {place: each for place, each in tally.errors.items() if not isinstance(each.error, TaskPaused)}
    with _collected(TASK, tally, watch):
        work.meta.pauses.refuse()
    return TASK in tally.errors


def _goal(work: Work, source: str, noted: Location) -> Location:
    """Return the later of the noted end and P1: before P1 the target may mix the states of two moments."""
    state = work.meta.sources.get(source)
    return max(noted, state.dump_end) if state and state.dump_end else noted


def _step(work: Work, source: str, goal: Location, tally: _Tally, watch: Watch) -> bool:
    """Pull the missing binlog up to the goal and run one window; return whether a window ran."""
    _pause(source, tally)
    with _collected(source, tally, watch):
        pull_source(work, source, until=goal)
        report = run_window(work, source)
        if report.window is not None:
            tally.windows.setdefault(source, []).append(report)
            watch(WindowDone(source, report))
        return report.window is not None
    return False


def _retry_stopped(work: Work) -> None:
    """Let suspended targets go on, because the operator may have removed the cause before running the task again.

    If the changed rules of a source are refused, its targets stay suspended: no window would run, and nothing would
    show why rows are held.
    """
    stops = work.meta.suspended_targets.all()
    asked = {stop.source for stop in stops}.intersection(work.task.sources)
    resting = {source for source in asked if refusal_of(work.meta, work.task.instance(source)) is not None}
    retry(work, [stop for stop in stops if stop.source not in resting])


def _coordinate(work: Work, tally: _Tally, watch: Watch) -> bool:
    """Open and update locks and execute those that are due; return whether a lock was resolved."""
    _pause(LOCKS, tally)
    resolved = False
    with _collected(LOCKS, tally, watch):
        followed = follow_each(work)
        resolved = followed.moved
        for view in coordinate.observe(work.meta):
            if view.is_executable or (view.state is LockState.FAILED and view.id not in tally.tried):
                done = coordinate.execute(work.meta, work.target, view.id)
                tally.tried.add(view.id)
                watch(LockTried(done))
                resolved = resolved or not done.is_open
        followed.raised()
    return resolved


def _check_goal(work: Work, source: str, goal: Location) -> None:
    checkpoint = work.meta.checkpoints.get(source)
    if checkpoint is not None and checkpoint.location < goal:
        raise NoProgress(source, str(checkpoint.location), str(goal))


def _may_go_on(source: str, tally: _Tally) -> bool:
    """Whether a source takes part in the next round: it has no error, or one that may have passed by then."""
    trouble = tally.errors.get(source)
    return trouble is None or trouble.again or isinstance(trouble.error, Collision)


def _pause(place: str, tally: _Tally) -> None:
    """Wait before another try, longer each time."""
    if place in tally.errors and tally.errors[place].again:
        time.sleep(tally.pause_seconds * 2 ** (tally.tries[place] - 1))


@contextlib.contextmanager
def _collected(place: str, tally: _Tally, watch: Watch) -> Iterator[None]:
    """Collect an error instead of stopping the other sources; a success removes an earlier error."""
    try:
        yield
    except Exception as error:
        coded = error if isinstance(error, UnshardError) else tracebacks.coded(error)
        tries = tally.tries[place] = tally.tries.get(place, 0) + 1
        trouble = Trouble(place, coded, coded.transient and tries <= RETRIES)
        tally.errors[place] = trouble
        watch(trouble)
    else:
        tally.errors.pop(place, None)
        tally.tries.pop(place, None)


def _retried(place: str, step: Callable[[], object], tally: _Tally, watch: Watch) -> None:
    """Run a step of the full load until it succeeds or its error is final."""
    is_done = False
    while not is_done:
        _pause(place, tally)
        with _collected(place, tally, watch):
            step()
        is_done = place not in tally.errors or not tally.errors[place].again


def _side_by_side(sources: Sequence[str], step: Callable[[str], T]) -> list[T]:
    """Call the step for all sources in threads; an interruption does not wait for the threads."""
    if not sources:
        return []
    pool = ThreadPoolExecutor(max_workers=len(sources), thread_name_prefix="run")
    try:
        return list(pool.map(step, sources))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _phase(work: Work, source: str) -> Phase:
    state = work.meta.sources.get(source)
    return state.phase if state else Phase.NEW


def _outcome(work: Work, connections: Connections, tally: _Tally, seconds: float) -> Outcome:
    sources = tuple(_source_outcome(work, source, tally.windows.get(source, [])) for source in work.task.sources)
    locks = coordinate.views(work.meta) if work.task.task_mode.syncs else ()
    suspended = (
        Trouble(f"{stop.source}, {stop.target}", error_of(stop), False) for stop in work.meta.suspended_targets.all()
    )
    differences = open_differences(work.task, work.meta, connections)
    return Outcome(sources, locks, tuple(tally.errors.values()), tuple(suspended), seconds, differences)


def _source_outcome(work: Work, source: str, windows: Sequence[WindowReport]) -> SourceOutcome:
    checkpoint = work.meta.checkpoints.get(source)
    return SourceOutcome(
        source=source,
        phase=_phase(work, source),
        checkpoint=checkpoint.location if checkpoint else None,
        windows=len(windows),
        rows_applied=sum(report.rows_applied for report in windows),
        rows_filtered=sum(report.rows_filtered for report in windows),
        rows_skipped=sum(report.rows_skipped for report in windows),
        rows_diverted=sum(report.rows_diverted for report in windows),
        rows_held=sum(report.rows_held for report in windows),
        rows_released=sum(report.rows_released for report in windows),
    )
