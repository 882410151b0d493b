"""`unshard run`: full load and windows, with progress, until caught up, or with `--follow` until a signal."""

import signal
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from math import inf
from typing import TYPE_CHECKING, Any, assert_never

from unshard.cli.console import Answer, Console
from unshard.cli.display import Display
from unshard.cli.life import remove_first
from unshard.config import Task, has_changed, load_task
from unshard.config.kinds import seconds_in
from unshard.config.reading import starting_at
from unshard.core.shown import amount, one_line
from unshard.errors import UnshardError
from unshard.errors.config import UsageWrong
from unshard.errors.meta import TaskPaused
from unshard.operate.documents import difference_document, difference_line, error_document, lock_document, lock_lines
from unshard.units.ddl.coordinate import facts
from unshard.units.full.snapshot import refuse_begun
from unshard.units.task.live import End, Ends, LockTried, RunTally, Trouble, WindowDone
from unshard.units.task.metrics import of_live_run
from unshard.units.task.run import (
    CreatedUnlike,
    Note,
    PauseBegan,
    PauseEnded,
    PhaseBegan,
    PhaseEnded,
    RunOutcome,
    SourceOutcome,
    Until,
    measurements_of,
)
from unshard.units.task.run import run as run_task
from unshard.units.task.status import full_progress, status_in
from unshard.units.window.sync import WindowReport
from unshard.units.work import LIMITS, Work, open_work

if TYPE_CHECKING:
    from unshard.cli.prometheus import Exposition

REST_SECONDS = 0.03
"""The rest of a source after a window, in which more rows come for the next one."""


class Errors:
    """The errors of a run as lines: each message is printed once, and a hint once for all errors that have it."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def retried(self, trouble: Trouble) -> str:
        return f"{trouble.place}: {self._text(trouble, 'came again')}, trying again"

    def given_up(self, trouble: Trouble) -> str:
        """Return the note that an error is not tried again; other sources may still continue for long."""
        return f"{trouble.place}: {self._text(trouble, 'came again')}, not tried any more"

    def final(self, trouble: Trouble) -> str:
        return f"error: {trouble.place}: {self._text(trouble, 'see its message above')}"

    def _text(self, trouble: Trouble, reference: str) -> str:
        error = trouble.error
        if self._is_printed(f"{trouble.place}: {trouble.error}"):
            return f"[{error.code}] {reference}"
        hint = "" if not error.hint or self._is_printed(error.next_step) else f" ({error.next_step})"
        return f"[{error.code}] {error.message}{hint}"

    def _is_printed(self, text: str) -> bool:
        """Whether the text was printed before; from now on it is."""
        is_printed = text in self._printed
        self._printed.add(text)
        return is_printed


class FollowedRun:
    """A run with `--follow`, over pauses and changes of the task file: its end, and a line for each source."""

    def __init__(self, console: Console, seconds: float, metrics: "Exposition | None" = None) -> None:
        self.tally = RunTally(LIMITS.pause_seconds)
        self.metrics = metrics
        self.ends = Ends(
            deadline=time.monotonic() + seconds, is_asked=self._is_asked, retries=inf, rest_seconds=REST_SECONDS
        )
        self._console, self._asked, self._began = console, threading.Event(), time.monotonic()
        self._task: Task
        self._newer: Task | None = None
        self._refused: str
        """The error of a changed task file that is not valid."""
        self._handlers: dict[int, Any] = {}
        """The handlers of signals before the run listened to them."""
        self._rows: Counter[str] = Counter()
        self._told = time.monotonic()

    @property
    def newer(self) -> Task | None:
        """The changed task with which the run goes on; None if it ends."""
        return None if self._asked.is_set() else self._newer

    def run(self, work: Work, show: Callable[[Note], None]) -> RunOutcome:
        """Follow a task until the end of the run, or until its file changes."""
        self._task, self._newer, self._refused = work.task, None, ""
        if self.metrics is not None:
            self.metrics.task = work.task
            self.metrics.add(of_live_run(work.task.name, work.task.sources))

        def watch(note: Note) -> None:
            if self.metrics is not None:
                self.metrics.add(measurements_of(work.task, note))
            match note:
                case WindowDone(_, report) if not report.engines:
                    pass
                case Trouble(error=TaskPaused()):
                    pass  # the run waits, and says so
                case PauseEnded():
                    self._release_signals()  # a full load may continue
                    show(note)
                case _:
                    show(note)

        try:
            outcome = run_task(work, watch=watch, following=self.ends, tally=self.tally)
        finally:
            self._release_signals()
        return replace(outcome, seconds=time.monotonic() - self._began)

    def lines(self, work: Work) -> Mapping[str, str]:
        """Return lag, rows per second since the last call, held rows, open locks and errors of each source."""
        counts = {source: found["rows_applied"] for source, found in [*self.tally.counts.items()]}
        rows, self._rows, before = Counter(counts) - self._rows, Counter(counts), self._told
        self._told = time.monotonic()
        locks = [lock for lock in facts(work.meta) if lock.is_open]
        troubles, sources, found = [*self.tally.errors.values()], work.task.sources, {}
        for each in status_in(work.meta, work.task):
            waiting = sum(each.source in lock.members for lock in locks)
            errors = [trouble for trouble in troubles if trouble.place == each.source or trouble.place not in sources]
            found[each.source] = (
                f"{each.lag} behind, {amount(round(rows[each.source] / (self._told - before)))} rows/s, "
                f"{amount(each.rows_held)} held, {waiting} lock(s) open"
                + "".join(f", [{trouble.error.code}] {trouble.place}" for trouble in errors)
            )
        return found

    def _release_signals(self) -> None:
        """Let a signal end the process at once, until the run waits or follows again."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()

    def _is_asked(self, _: object) -> bool:
        """Whether a signal asks for the end, or the task file has changed. A second signal kills."""
        if not self._handlers and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._handlers[number] = signal.signal(number, self._ask)
        return self._asked.is_set() or self._is_changed()

    def _ask(self, number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        self._asked.set()

    def _is_changed(self) -> bool:
        """Whether the task file has changed and is valid. The run goes on without a change that is not."""
        if not has_changed(self._task):
            return False
        try:
            self._newer = load_task(self._task.path)
        except UnshardError as error:
            if str(error) != self._refused:
                self._console.warn([f"the changed task file has no effect: {error}"])
            self._refused = str(error)
            return False
        return True


def run_command(options: Namespace, console: Console) -> Answer:
    """Run the full load and the windows until the chosen end."""
    seconds = _seconds(options)
    task = console.load(options.task, begins=True)
    following = FollowedRun(console, seconds, _metrics(options, task)) if options.follow else None
    if options.start_time:
        task = starting_at(task, options.start_time)
    with _opened(task, console) as work:
        if options.remove_meta:
            remove_first(work, options, console)
        if options.start_time:
            refuse_begun(work)
        answer = _run(work, options, console, following)
    while following is not None and (newer := following.newer) is not None:
        task = newer
        console.note(f"{task.path} has changed: the run goes on with it")
        console.warn_of(task, begins=True)
        with _opened(task, console) as work:
            answer = _run(work, options, console, following)
    return answer


def _metrics(options: Namespace, task: Task) -> "Exposition | None":
    if options.metrics_port is None:
        return None
    from unshard.cli.prometheus import Exposition

    metrics = Exposition(task)
    metrics.serve(options.metrics_address, options.metrics_port)
    return metrics


def _opened(task: Task, console: Console) -> AbstractContextManager[Work]:
    return open_work(task, starting=lambda: console.note("Spark starts"), will_load=True)


def _seconds(options: Namespace) -> float:
    found = inf if options.time is None else seconds_in(options.time)
    if not found:
        raise UsageWrong(f"--for: {options.time} is not a time like 10m", "unshard run")
    if not options.follow and options.time is not None:
        raise UsageWrong("--for needs --follow", "unshard run")
    if not options.follow and options.metrics_port is not None:
        raise UsageWrong("--metrics-port needs --follow", "unshard run")
    if options.follow and options.until == "full":
        raise UsageWrong("--follow begins after the full load, so it does not go with --until full", "unshard run")
    return found


def _run(work: Work, options: Namespace, console: Console, following: FollowedRun | None) -> Answer:
    task, errors = work.task, Errors()

    def watch(note: Note) -> None:
        _show(note, console, display, errors)

    with Display(console) as display:
        display.follow(lambda: full_progress(work.meta, task.sources))
        if following is None:
            outcome = run_task(work, Until(options.until), watch=watch)
        else:
            display.repeat(lambda: following.lines(work))
            outcome = following.run(work, watch)
    return Answer(_document(task, outcome), _lines(task, options.until, outcome, errors), outcome.exit_code)


def _show(note: Note, console: Console, display: Display, errors: Errors) -> None:
    match note:
        case CreatedUnlike(place, message):
            console.warn([f"{place}: {message}"])
        case PhaseBegan(source, step):
            console.note(f"{source}: {step} begins")
        case PauseBegan(pause):
            console.note(f"the task is {pause}; the run waits until `unshard resume`")
        case PauseEnded():
            console.note("the task is resumed: the run goes on")
        case PhaseEnded(source, step, seconds):
            console.note(f"{source}: {step} done in {seconds:.1f} s")
        case WindowDone(source, report):
            rows = _moved(report)
            display.tell(f"{source}: window {report.window} to {report.ends}, {rows}")
            console.warn([str(each) for each in report.engines])
        case LockTried(lock):
            what = "; ".join(map(one_line, lock.statements or (lock.ddl,)))
            refusal = f": {one_line(lock.error or '')}" if lock.is_open else ""
            console.note(f"lock {lock.id}: {'refused' if lock.is_open else 'executed'}: {what}{refusal}")
        case Trouble() if note.again:
            console.warn([errors.retried(note)])
        case Trouble():
            console.note(errors.given_up(note))
        case _:
            assert_never(note)


def _document(task: Task, outcome: RunOutcome) -> dict[str, Any]:
    return {
        "task": task.name,
        "exit_code": outcome.exit_code,
        "seconds": round(outcome.seconds, 3),
        "warnings": [*task.warnings],
        "sources": [
            {**asdict(each), "checkpoint": str(each.checkpoint) if each.checkpoint else None}
            for each in outcome.sources
        ],
        "locks": [lock_document(lock) for lock in outcome.locks],
        "differences": [difference_document(each) for each in outcome.differences],
        "errors": [{"place": each.place, **error_document(each.error)} for each in outcome.errors],
    }


def _lines(task: Task, until: str, outcome: RunOutcome, errors: Errors) -> list[str]:
    lines = [
        f"{each.source}: {each.phase}, {amount(each.windows)} windows, {_moved(each)}, "
        f"at {each.checkpoint or 'no checkpoint yet'}"
        for each in outcome.sources
    ]
    lines += [line for lock in outcome.locks for line in lock_lines(lock, str(task.path), explains=False)]
    lines += map(difference_line, outcome.differences)
    return [*lines, *map(errors.final, outcome.errors), _end(until, outcome)]


def _moved(rows: WindowReport | SourceOutcome) -> str:
    others = {"filtered": rows.rows_filtered, "skipped": rows.rows_skipped, "diverted": rows.rows_diverted}
    told = "".join(f", {amount(count)} {what}" for what, count in others.items() if count)
    return f"{amount(rows.rows_applied)} rows applied, {amount(rows.rows_held)} held{told}"


def _end(until: str, outcome: RunOutcome) -> str:
    took = f"in {outcome.seconds:.1f} s"
    if outcome.failures:
        return f"stopped {took} with {len(outcome.errors)} error(s)"
    followed = outcome.end is not None and outcome.end is not End.CAUGHT_UP
    done = f"{'full load done' if until == 'full' else 'followed' if followed else 'caught up'} {took}"
    if outcome.suspended:
        done += f", except for {len(outcome.suspended)} suspended target(s)"
    done += f", {len(outcome.locks)} DDL lock(s) open" if outcome.locks else ""
    return f"{done}, {len(outcome.differences)} difference(s) between shards open" if outcome.differences else done
