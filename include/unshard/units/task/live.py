"""Follows the binlog of a task's sources (driver): windows one after the other, and the DDL locks between them.

Each source has a thread: it pulls what has arrived and runs a window, whatever the other sources do. The thread of the
caller updates the locks after a window with a DDL and once a second, executes those that are due, and ends the run.

`unshard run` ends when nothing moves any more, `unshard run --follow` on a signal, a task in Airflow after some
minutes: they differ in their `Ends` alone.

A source that fails does not stop the others. A transient error is tried again after a pause. A collision is tried again
after another source has moved, because that source may bring the missing DELETE.

| death | the next run |
|---|---|
| before, in or after a window | finds its persisted plan, or plans again from the checkpoint |
| between executing a lock and its windows | releases the rows |

Two runs of a source at the same time do no harm: beginning a window raises the epoch of its source, and a writer with
an older epoch is refused. Then the run that came second leaves the source to the other.
"""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from unshard.adapters import tracebacks
from unshard.adapters.meta.taskrecords import live_run_of
from unshard.core.ddl.lock import LockState
from unshard.core.model import Location, TableId
from unshard.errors import UnshardError
from unshard.errors.meta import FencedOut, FinishedElsewhere, NoProgress, TaskPaused
from unshard.errors.rows import Collision
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockFacts
from unshard.units.relay.tasksource import LiveSource
from unshard.units.task.optimistic import follow_each
from unshard.units.window.sync import WindowReport, run_window
from unshard.units.work import Work

log = logging.getLogger(__name__)

RETRIES = 3
LOCKS, TASK = "locks", "task"
COUNTED = "rows_applied", "rows_filtered", "rows_skipped", "rows_diverted", "rows_held", "rows_released"
"""Fields of a window's report that a run adds up."""
LOOK_SECONDS = 1.0
"""So often a source without new binlog is looked at, and the locks."""
WAIT_SECONDS = 0.2
"""A source waits at most so long for binlog, so that it soon sees what else has happened."""
LONGEST_PAUSE = 60.0


class End(StrEnum):
    """The reason for which a live run has ended."""

    CAUGHT_UP = "caught up"
    TIME_OVER = "its time is over"
    IDLE = "nothing came"
    PAUSED = "the task is paused"
    ASKED = "asked"
    FAILED = "no source can go on"


@dataclass(frozen=True, slots=True)
class WindowDone:
    """A window is committed."""

    source: str
    report: WindowReport


@dataclass(frozen=True, slots=True)
class LockTried:
    """The DDL of a lock was executed, or the target refused it."""

    lock: LockFacts


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error; `again` tells whether the run tries again."""

    place: str
    error: UnshardError
    again: bool


Note = WindowDone | LockTried | Trouble
Watch = Callable[[Note], None]
Locks = tuple[LockFacts, ...]


def nobody_asks(_: Locks) -> bool:
    """Never end the run."""
    return False


@dataclass(frozen=True, slots=True)
class Ends:
    """When a live run ends, besides a pause of the task."""

    goals: Mapping[str, Location] | None = None
    """It ends when each source has passed its goal and nothing moves; later binlog is left to the next run."""
    deadline: float = inf
    idle_seconds: float = inf
    is_asked: Callable[[Locks], bool] = nobody_asks
    """Called at each look, with the open locks."""
    executes: bool = True
    """Whether the run executes the DDL of locks; in Airflow the DAG run of a lock does."""
    retries: float = RETRIES
    """How often an error is tried again: infinity includes errors that an operator must end."""
    rest_seconds: float = 0.0
    """The rest after a window, in which more rows come for the next one."""
    look_seconds: float = LOOK_SECONDS
    """The time between two looks at the locks and the pause state; a DDL is looked at immediately."""


@dataclass(slots=True)
class RunTally:
    """The counts and errors of a run so far."""

    pause_seconds: float
    retries: float = RETRIES
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    """Windows and rows of each source; only the thread of a source changes its counts."""
    errors: dict[str, Trouble] = field(default_factory=dict)
    """The last error of each source, of the locks of all or of one target, and of the task, that is not over."""
    tries: dict[str, int] = field(default_factory=dict)
    worked: set[str] = field(default_factory=set)
    """Places that have worked since their last error."""
    tried: set[str] = field(default_factory=set)
    """Locks that were executed or refused: the DDL of a refused lock is tried once in a run."""

    @contextlib.contextmanager
    def collected(
        self, place: str, watch: Callable[[Trouble], None], *, once: bool = False, recovers: bool = True
    ) -> Iterator[None]:
        """Collect an error instead of stopping the other sources; a success removes an earlier error.

        With `once`, an error that lasts is not told again. Without `recovers`, only `recovered` removes an error.
        """
        try:
            yield
        except Exception as error:
            coded = error if isinstance(error, UnshardError) else tracebacks.with_traceback_file(error)
            tries = self.tries[place] = self.tries.get(place, 0) + 1
            again = (coded.transient and tries <= self.retries) or self.retries == inf
            self.worked.discard(place)
            before, trouble = self.errors.get(place), Trouble(place, coded, again and not isinstance(coded, TaskPaused))
            self.errors[place] = trouble
            if not once or before is None or str(before) != str(trouble):
                watch(trouble)
        else:
            if recovers:
                self.recovered(place)

    def begin_again(self, retries: float) -> None:
        """Forget all errors, before another part of a run; the counts go on."""
        self.retries = retries
        for part in (self.errors, self.tries, self.worked, self.tried):
            part.clear()

    def recovered(self, place: str) -> None:
        self.errors.pop(place, None)
        self.tries.pop(place, None)
        self.worked.add(place)

    def count(self, report: WindowReport) -> None:
        counts = self.counts.setdefault(report.source, Counter())
        counts["windows"] += 1
        counts.update({name: getattr(report, name) for name in COUNTED})

    def pause_of(self, place: str) -> float:
        """Return the seconds to wait before another try, longer each time."""
        if place not in self.errors or not self.errors[place].again:
            return 0.0
        return min(LONGEST_PAUSE, self.pause_seconds * float(2 ** min(self.tries[place] - 1, 16)))


def follow(work: Work, sources: Sequence[str], ends: Ends, tally: RunTally, watch: Watch) -> End:
    """Run windows of these sources, which have a checkpoint, until the run ends."""
    return _LiveRun(work, tuple(sources), ends, tally, watch).run()


class _LiveRun:
    """The threads of one live run. `_changed` guards what they share."""

    def __init__(self, work: Work, sources: tuple[str, ...], ends: Ends, tally: RunTally, watch: Watch) -> None:
        self._work, self._sources, self._ends, self._tally, self._watch = work, sources, ends, tally, watch
        self._changed = threading.Condition()
        self._version = 0
        """Rises when a source or a lock has moved: then a source that waits may have work."""
        self._quiet: dict[str, float] = {}
        """The version at which a source had nothing to do; infinite if it does not go on."""
        self._looked: dict[str, int] = {}
        """The version at which a source has looked and found no work; it looks again every second."""
        self._is_over = self._has_ddl = False
        self._died: BaseException | None = None
        """An exception that is no error and has ended the thread of a source."""
        self._moved_at = time.monotonic()
        self._places: Mapping[str, Location] = {}
        self._lock_places = {LOCKS}
        """Where errors are about locks: also targets that do not follow their shards."""

    def run(self) -> End:
        """Run until the end; the window in progress of each source is finished."""
        self._places = self._elsewhere()
        threads = [
            threading.Thread(target=self._thread, args=(source,), name=f"live {source}", daemon=True)
            for source in self._sources
        ]
        for thread in threads:
            thread.start()
        try:
            end = self._oversee()
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()
        for thread in threads:
            thread.join()
        if self._died is not None:
            raise self._died
        if end is End.CAUGHT_UP:
            self._check_goals()
        return end

    # --- the thread of the caller ------------------------------------------------------------------

    def _oversee(self) -> End:
        """Update the locks until there is a reason to end.

        At the end, every source has looked for work after the locks were updated, and that has changed nothing.
        """
        looked, coordinated = 0.0, -1
        while True:
            with self._changed:
                version, has_ddl, quiet = self._version, self._has_ddl, self._are_quiet
                self._has_ddl = False
            if self._died is not None:
                raise self._died
            # After a death, locks may be left to resolve, so the first look is at once.
            if has_ddl or time.monotonic() - looked >= self._look_seconds or (quiet and coordinated != version):
                looked, is_first = time.monotonic(), coordinated < 0
                locks, resolved = self._coordinate()
                coordinated = version
                if resolved or has_ddl or is_first:
                    self._advance(has_moved=resolved)  # a window may now release rows
                if self._is_paused():
                    return End.PAUSED
                if self._ends.is_asked(locks):
                    return End.ASKED
            if (end := self._end(quiet and coordinated == self._version)) is not None:
                return end
            with self._changed:
                seconds = min(LOOK_SECONDS, max(0.0, self._ends.deadline - time.monotonic()))
                self._changed.wait_for(lambda: self._is_due(version, quiet), seconds)  # noqa: B023

    def _is_due(self, version: int, quiet: bool) -> bool:
        """Whether something has happened that the overseeing thread must look at before its next second."""
        return self._has_ddl or self._died is not None or (self._are_quiet and not (quiet and self._version == version))

    def _end(self, is_settled: bool) -> End | None:
        now = time.monotonic()
        if now >= self._ends.deadline:
            return End.TIME_OVER
        if is_settled and self._sources and all(self._quiet.get(source) == inf for source in self._sources):
            return End.FAILED
        if is_settled and self._ends.goals is not None and not any(each.again for each in self._lock_errors):
            return End.CAUGHT_UP
        if now - self._moved_at >= self._ends.idle_seconds and self._are_idle:
            # All processes of a task end together: new binlog cannot start another one for a single source.
            places, self._places = self._places, self._elsewhere()
            if places == self._places:
                return End.IDLE
            self._moved_at = now
        return None

    def _elsewhere(self) -> Mapping[str, Location]:
        """Return the places of the sources that other processes follow; none while the target does not answer."""
        if len(self._sources) == len(self._work.task.sources):
            return {}
        with contextlib.suppress(UnshardError):
            found = self._work.meta.checkpoints.locations()
            return {source: at for source, at in found.items() if source not in self._sources}
        return {}

    @property
    def _are_quiet(self) -> bool:
        return all(self._quiet.get(source, -1) >= self._version for source in self._sources)

    @property
    def _are_idle(self) -> bool:
        """Whether each source has found no work, or an error, since the last change, and the locks are up to date."""
        with self._changed:
            at = {source: max(self._looked.get(source, -1), self._quiet.get(source, -1)) for source in self._sources}
            busy = {source for source in self._sources if at[source] < self._version} - self._tally.errors.keys()
            return not busy and not self._has_ddl

    @property
    def _lock_errors(self) -> list[Trouble]:
        return [self._tally.errors[place] for place in self._lock_places if place in self._tally.errors]

    @property
    def _look_seconds(self) -> float:
        """The seconds until the next look at the locks: more while the target does not answer."""
        pauses = (self._tally.pause_of(each.place) for each in self._lock_errors if each.error.transient)
        return max([self._ends.look_seconds, *pauses])

    def _is_paused(self) -> bool:
        """Whether the task was paused since the run began; reported once, not once for each source."""
        with self._tally.collected(TASK, self._watch, once=True):
            self._work.meta.pauses.refuse()
        return TASK in self._tally.errors and isinstance(self._tally.errors[TASK].error, TaskPaused)

    def _coordinate(self) -> tuple[Locks, bool]:
        """Open and update locks, and execute those that are due; return them, and whether one was resolved."""
        work, resolved, locks = self._work, False, list[LockFacts]()
        with self._tally.collected(LOCKS, self._watch, once=True):
            followed = follow_each(work)
            resolved = followed.moved
            self._collect(followed.errors)
            scene = coordinate.observe(work.meta)
            for lock in map(scene.facts, scene.locks):
                is_due = lock.is_executable or (lock.state is LockState.FAILED and lock.id not in self._tally.tried)
                if is_due and self._ends.executes:
                    scene = coordinate.executed(work.meta, work.target, lock.id, scene)
                    done = coordinate.facts_of(work.meta, lock.id, scene)
                    self._tally.tried.add(lock.id)
                    self._watch(LockTried(done))
                    resolved = resolved or not done.is_open
                    locks += [done] if done.is_open else []
                else:
                    locks.append(lock)
        return tuple(locks), resolved

    def _collect(self, errors: Mapping[TableId, UnshardError]) -> None:
        """Collect the errors of the targets that do not follow their shards."""
        found = {f"{LOCKS} of {target}": error for target, error in errors.items()}
        self._lock_places |= found.keys()
        for place in self._lock_places - {LOCKS}:
            with self._tally.collected(place, self._watch, once=True):
                if place in found:
                    raise found[place]

    def _check_goals(self) -> None:
        for source, goal in (self._ends.goals or {}).items():
            if source in self._sources and source not in self._tally.errors:
                with self._tally.collected(source, self._watch):
                    checkpoint = self._work.meta.checkpoints.get(source)
                    if checkpoint is not None and checkpoint.location < goal:
                        raise NoProgress(source, str(checkpoint.location), str(goal))

    # --- the thread of a source --------------------------------------------------------------------

    def _thread(self, source: str) -> None:
        try:
            self._guarded(source)
        except BaseException as error:
            with self._changed:
                self._died = error
                self._changed.notify_all()

    def _guarded(self, source: str) -> None:
        """Follow a source until the run is over or the source cannot go on."""
        while not self._is_over and self._quiet.get(source) != inf:
            with self._changed:
                version = self._version
            # It also returns if the run ends before it has asked the source.
            with self._tally.collected(source, self._watch, recovers=False):
                self._follow(source)
            trouble = self._tally.errors.get(source)
            if trouble is None:
                return
            if trouble.again:
                self._pause(self._tally.pause_of(source))
            elif isinstance(trouble.error, Collision):
                self._rest(source, version)
            else:
                if isinstance(trouble.error, TaskPaused):
                    self._tally.recovered(source)
                with self._changed:
                    self._quiet[source] = inf
                self._advance(has_moved=False)

    def _follow(self, source: str) -> None:
        """Pull and run windows over one connection, until the run is over or an error."""
        goal = None if self._ends.goals is None else self._ends.goals[source]
        active = self._work.meta.active_workers.at(live_run_of(source))
        with active as is_first, LiveSource(self._work, source, goal) as live:
            looked, known, has_more, seen = 0.0, -1, True, None
            while not self._is_over:
                with self._changed:
                    version = self._version
                arrived = live.pull(0.0 if has_more else WAIT_SECONDS)
                report = None
                if arrived or has_more or version != known or time.monotonic() - looked >= LOOK_SECONDS:
                    with self._left_to_the_first(is_first):
                        report = run_window(self._work, source)
                    looked, known = time.monotonic(), version
                self._tally.recovered(source)
                has_more = report is not None and report.more
                if report is not None and report.moved:
                    self._tally.count(report)
                    self._watch(WindowDone(source, report))
                    self._advance(bool(report.ddls))
                    if not has_more:
                        self._pause(self._ends.rest_seconds)
                    continue
                if report is not None:
                    self._looked[source] = version
                if goal is not None and not arrived and live.has_reached(goal):
                    checkpoint = self._work.meta.checkpoints.get(source)
                    if checkpoint is not None and seen != checkpoint.location < goal:
                        seen, has_more = checkpoint.location, True  # another run has applied the window
                    else:
                        self._rest(source, version)

    @contextlib.contextmanager
    def _left_to_the_first(self, is_first: bool) -> Iterator[None]:
        """Let the run that came second leave the source; the first one tries again."""
        try:
            yield
        except FencedOut as error:
            if not is_first:
                raise
            raise FinishedElsewhere(error.source, f"window {error.window}", error.message) from error

    def _advance(self, has_ddl: bool = False, has_moved: bool = True) -> None:
        with self._changed:
            self._version += 1
            self._has_ddl |= has_ddl
            if has_moved:
                self._moved_at = time.monotonic()
            self._changed.notify_all()

    def _rest(self, source: str, version: int) -> None:
        """Wait until something has moved after that version."""
        with self._changed:
            self._quiet[source] = version
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_over or self._version != version)

    def _pause(self, seconds: float) -> None:
        """Wait for so long, or until the run is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over, seconds)
