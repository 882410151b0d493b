"""Runs a task without Airflow (driver): the full load if it is not done, then the binlog (units.task.live).

The run ends when nothing moves any more and every source has passed the position that its upstream had when the run
began (and the end of its dump). Later events are left to the next run, so a run ends under any load. With `following`
it goes on, for some time or until a signal; while the task is paused it waits.

A source that fails does not stop the others; a transient error is tried again after a pause. If the process dies in
snapshot, dump or load, the next run goes on with the missing chunks.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from unshard.config import Connections, Task, TaskMode, environment_connections
from unshard.core.checks.items import summaries
from unshard.core.model import Location
from unshard.core.stages import evaluate
from unshard.core.task.state import FullMode, FullStage, FullStep, PauseKind, PauseState, Phase, source_stages
from unshard.errors.checks import EngineReplaced, IndexesLeftOut, StorageLeftOut
from unshard.errors.meta import TaskPaused
from unshard.units.begun import begun_in
from unshard.units.checks.backups import refuse_older
from unshard.units.checks.precheck import precheck, raise_if_failed, store_items
from unshard.units.ddl import coordinate
from unshard.units.ddl.differences import DifferenceView
from unshard.units.ddl.scene import LockView
from unshard.units.full.dump import dump
from unshard.units.full.load import handover, load
from unshard.units.full.snapshot import take_snapshot
from unshard.units.relay.tasksource import end_of_source
from unshard.units.task import live
from unshard.units.task.live import LOOK_SECONDS, RETRIES, TASK, End, Ends, RunTally, Trouble
from unshard.units.task.metrics import Measurement, of_error, of_live_run, of_window
from unshard.units.task.opendifferences import open_differences
from unshard.units.window.adoptedrules import rules_refusal
from unshard.units.window.suspending import retry
from unshard.units.work import Work, open_ahead

T = TypeVar("T")

RUN: Mapping[FullStep, Callable[[Work, str], object]] = {
    FullStep.SNAPSHOT: take_snapshot,
    FullStep.DUMP: dump,
    FullStep.LOAD: load,
}
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
class CreatedUnlike:
    """A target is created without indexes that it refuses, or with InnoDB in place of the engine of its shards."""

    place: str
    message: str


@dataclass(frozen=True, slots=True)
class PauseBegan:
    """A run that follows waits, because the task is paused."""

    pause: PauseState


@dataclass(frozen=True, slots=True)
class PauseEnded:
    """The task was resumed, and the run goes on."""


Note = CreatedUnlike | PhaseBegan | PhaseEnded | PauseBegan | PauseEnded | live.Note
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
class RunOutcome:
    """The end of a run."""

    sources: tuple[SourceOutcome, ...]
    locks: tuple[LockView, ...]
    failures: tuple[Trouble, ...]
    """Errors that stopped a source, or something that concerns all sources."""
    suspended: tuple[Trouble, ...]
    """Errors that suspended one target for one source; everything else went on."""
    seconds: float
    differences: tuple[DifferenceView, ...] = ()
    end: End | None = None
    """Why the windows have ended; None if there was none."""

    @property
    def errors(self) -> tuple[Trouble, ...]:
        return (*self.failures, *self.suspended)

    @property
    def exit_code(self) -> int:
        """0 caught up, 3 waiting at locks, 4 caught up except for suspended targets, 1 another error."""
        if self.failures:
            return 1
        if self.suspended:
            return 4
        return 3 if self.locks else 0


def measurements_of(task: Task, note: Note) -> Iterable[Measurement]:
    """Return what a note adds to the metrics."""
    match note:
        case live.WindowDone(_, report):
            return of_window(task.name, report)
        case Trouble(place) if place in task.sources:
            return [of_error(task.name, place)]
        case PauseEnded():
            return of_live_run(task.name, task.sources)
        case _:
            return ()


def full_mode(mode: TaskMode) -> FullMode:
    """Return the parts of the full load that a task-mode has."""
    return FullMode(mode.begins, mode.dumps, mode.loads, mode is not TaskMode.DUMP, mode.syncs)


def run(
    work: Work,
    until: Until = Until.CAUGHT_UP,
    connections: Connections = environment_connections,
    watch: Watch = lambda _: None,
    following: Ends | None = None,
    tally: RunTally | None = None,
) -> RunOutcome:
    """Run the task until nothing more can move; with `following` until one of these ends.

    The tally may have counts of an earlier part of the run, with other settings.
    """
    if following is None:
        work.meta.pauses.refuse()
    refuse_older(work)
    began, counted = time.monotonic(), tally or RunTally(work.limits.pause_seconds)

    def part() -> End | None:
        return _run(work, until, connections, counted, watch, following)

    def outcome(end: End | None) -> RunOutcome:
        return _outcome(work, connections, counted, time.monotonic() - began, end)

    if following is None:
        return outcome(part())
    while _is_resumed(work, following, counted, watch):
        end = part()
        if not any(isinstance(each.error, TaskPaused) for each in counted.errors.values()):
            return outcome(end)
    return outcome(End.PAUSED)


def _is_resumed(work: Work, following: Ends, tally: RunTally, watch: Watch) -> bool:
    """Wait while the task is paused; return False if the run ends meanwhile. Raises TaskPaused if it is stopped."""
    tally.begin_again(following.retries)
    is_told = False
    while True:
        pause = None
        with tally.collected(TASK, watch, once=True):
            pause = work.meta.pauses.get()
        if pause is not None and pause.kind is PauseKind.STOPPED:
            raise TaskPaused(work.task.name, str(pause))
        if pause is not None and not is_told:
            watch(PauseBegan(pause))
            is_told = True
        elif pause is None and TASK not in tally.errors:
            if is_told:
                watch(PauseEnded())
            return True
        if time.monotonic() >= following.deadline or following.is_asked(()):
            return False
        time.sleep(LOOK_SECONDS)


def _run(
    work: Work, until: Until, connections: Connections, tally: RunTally, watch: Watch, following: Ends | None
) -> End | None:
    """Run the rest of the full load, then windows; return why the windows have ended."""
    tally.retries = RETRIES
    ends = _ends(work, work.task.sources, tally, watch)
    _full(work, list(ends), connections, tally, watch)
    if until is not Until.CAUGHT_UP or not work.task.task_mode.syncs:
        return None
    synced = [source for source in work.task.sources if _phase(work, source) is Phase.SYNC]
    if following is None:
        synced = [source for source in synced if source in ends and source not in tally.errors]
    elif len(synced) < len(work.task.sources):
        return None  # the next run loads the others
    until_then = following or Ends(goals={source: _goal(work, source, ends[source]) for source in synced})
    tally.retries = until_then.retries
    if any(_is_far(work, source, end) for source, end in ends.items() if source in synced):
        open_ahead(work.spark)
    _retry_stopped(work)
    return live.follow(work, synced, until_then, tally, watch)


def _is_far(work: Work, source: str, end: Location) -> bool:
    """Whether so much binlog waits that its window is not small; an earlier file of the binlog is not counted."""
    checkpoint = work.meta.checkpoints.get(source)
    if checkpoint is None:
        return False
    here = checkpoint.location
    return end.position - (here.position if here.file == end.file else 0) > work.limits.small_bytes


def goals(work: Work, sources: Sequence[str], tally: RunTally, watch: Watch) -> dict[str, Location]:
    """Return where each source that answers is caught up."""
    ends = _ends(work, sources, tally, watch)
    return {source: _goal(work, source, end) for source, end in ends.items()}


def _ends(work: Work, sources: Sequence[str], tally: RunTally, watch: Watch) -> dict[str, Location]:
    """Read the present end of each upstream's binlog; a source that does not answer is left out of this run."""
    found: dict[str, Location] = {}
    waiting = list(sources)
    while waiting:
        for source in waiting:
            _pause(source, tally)
            with tally.collected(source, watch):
                with work.source_connection(source) as connection:
                    found[source] = end_of_source(work, source, connection)
        waiting = [source for source in waiting if source in tally.errors and tally.errors[source].again]
    return found


def _full(work: Work, sources: Sequence[str], connections: Connections, tally: RunTally, watch: Watch) -> None:
    """Run the rest of the full load; `sources` are those that answer."""
    begun = begun_in(work.meta)
    last = Phase.SYNC if work.task.task_mode is not TaskMode.DUMP else Phase.DUMPED
    if all(begun.phase(source).order >= last.order for source in work.task.sources):
        return
    open_ahead(work.bulk_spark)
    items = precheck(work.task, connections, begun)
    store_items(work.task, connections, items)
    raise_if_failed(items)
    for item in summaries(item for item in items if item.code in CREATED_UNLIKE):
        watch(CreatedUnlike(item.place, item.message))
    _side_by_side(sources, lambda source: _full_of(work, source, tally, watch))
    if work.task.task_mode is not TaskMode.DUMP and begun_in(work.meta).loaded.issuperset(work.task.sources):
        _retried(FullStep.HANDOVER, lambda: handover(work), tally, watch)


def _full_of(work: Work, source: str, tally: RunTally, watch: Watch) -> None:
    """Run the stages of the full load that a source still has to pass in the task's mode."""
    mode = full_mode(work.task.task_mode)

    def run_stage(stage: FullStage, _: Phase) -> Phase:
        began = time.monotonic()
        watch(PhaseBegan(source, stage.kind))
        RUN[stage.kind](work, source)
        watch(PhaseEnded(source, stage.kind, time.monotonic() - began))
        return _phase(work, source)

    def run_stages() -> None:
        evaluate(_phase(work, source), lambda phase: source_stages(phase, mode), run_stage)

    _retried(source, run_stages, tally, watch)


def _retry_stopped(work: Work) -> None:
    """Let suspended targets go on, because the operator may have removed the cause before running the task again.

    If the changed rules of a source are refused, its targets stay suspended: no window would run, and nothing would
    show why rows are held.
    """
    stops = work.meta.suspended_targets.all()
    asked = {stop.source for stop in stops}.intersection(work.task.sources)
    resting = {source for source in asked if rules_refusal(work.meta, work.task.instance(source)) is not None}
    retry(work, [stop for stop in stops if stop.source not in resting])


def _goal(work: Work, source: str, noted: Location) -> Location:
    """Return the later of the noted end and P1: before P1 the target may mix the states of two moments."""
    state = work.meta.sources.get(source)
    return max(noted, state.dump_end) if state and state.dump_end else noted


def _pause(place: str, tally: RunTally) -> None:
    """Wait before another try, longer each time."""
    time.sleep(tally.pause_of(place))


def _retried(place: str, step: Callable[[], object], tally: RunTally, watch: Watch) -> None:
    """Run a step of the full load until it succeeds or its error is final."""
    is_done = False
    while not is_done:
        _pause(place, tally)
        with tally.collected(place, watch):
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


def _outcome(work: Work, connections: Connections, tally: RunTally, seconds: float, end: End | None) -> RunOutcome:
    sources = tuple(_source_outcome(work, source, tally.counts.get(source, Counter())) for source in work.task.sources)
    locks = coordinate.views(work.meta) if work.task.task_mode.syncs else ()
    suspended = (
        Trouble(f"{stop.source}, {stop.target}", stop.refusal.error, False)
        for stop in work.meta.suspended_targets.all()
    )
    differences = open_differences(work.task, work.meta, connections)
    return RunOutcome(sources, locks, tuple(tally.errors.values()), tuple(suspended), seconds, differences, end)


def _source_outcome(work: Work, source: str, counts: Mapping[str, int]) -> SourceOutcome:
    checkpoint = work.meta.checkpoints.get(source)
    return SourceOutcome(
        source=source,
        phase=_phase(work, source),
        checkpoint=checkpoint.location if checkpoint else None,
        windows=counts.get("windows", 0),
        **{name: counts.get(name, 0) for name in live.COUNTED},
    )
