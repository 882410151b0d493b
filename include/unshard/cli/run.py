"""`unshard run`: full load and windows, with progress, until caught up, or with `--follow` until a signal."""

import signal
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any, assert_never

from unshard.cli.console import Answer, Console, error_document
from unshard.cli.life import remove_first
from unshard.cli.locks import difference_document, difference_line, lock_document, lock_lines
from unshard.cli.progress import Display
from unshard.config import Task, load_task
from unshard.config.kinds import seconds_in
from unshard.config.starting import starting_at
from unshard.core.numbers import amount
from unshard.errors.config import UsageWrong
from unshard.units.ddl.coordinate import facts
from unshard.units.ddl.lockcommands import one_line
from unshard.units.full.starttime import refuse_begun
from unshard.units.task.live import End, Ends, LockTried, Trouble, WindowDone
from unshard.units.task.run import CreatedUnlike, Note, Outcome, PhaseBegan, PhaseEnded, SourceOutcome, Until
from unshard.units.task.run import run as run_task
from unshard.units.task.status import full_progress, status
from unshard.units.window.sync import WindowReport
from unshard.units.work import Work, open_work

REST_SECONDS = 0.03
"""The rest of a source after a window, in which more rows come for the next one."""


class Errors:
    """The errors of a run as lines: each message is printed once, and a hint once for all errors that have it."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def retried(self, trouble: Trouble) -> str:
        """Return the warning before another try."""
        return f"{trouble.place}: {self._text(trouble, 'came again')}, trying again"

    def given_up(self, trouble: Trouble) -> str:
        """Return the note that an error is not tried again; other sources may still continue for long."""
        if _key(trouble) in self._printed:
            return f"{trouble.place}: [{trouble.error.code}] came again, not tried any more"
        return f"{trouble.place}: stopped by [{trouble.error.code}], see its message at the end"

    def final(self, trouble: Trouble) -> str:
        """Return the line at the end of the run."""
        return f"error: {trouble.place}: {self._text(trouble, 'see its message above')}"

    def _text(self, trouble: Trouble, reference: str) -> str:
        error = trouble.error
        if self._is_printed(_key(trouble)):
            return f"[{error.code}] {reference}"
        hint = "" if not error.hint or self._is_printed(error.next_step) else f" ({error.next_step})"
        return f"[{error.code}] {error.message}{hint}"

    def _is_printed(self, text: str) -> bool:
        """Whether the text was printed before; from now on it is."""
        is_printed = text in self._printed
        self._printed.add(text)
        return is_printed


def _key(trouble: Trouble) -> str:
    return f"{trouble.place}: {trouble.error}"


class Following:
    """A run with `--follow`: its end, and a line for each source."""

    def __init__(self, work: Work, seconds: float) -> None:
        self.ends = Ends(seconds=seconds, is_asked=self._is_asked, retries=inf, rest_seconds=REST_SECONDS)
        self._work, self._asked, self._is_heard = work, threading.Event(), False
        self._rows: Counter[str] = Counter()
        self._told = time.monotonic()

    def count(self, source: str, rows: int) -> None:
        """Count rows that are in the target now."""
        self._rows[source] += rows

    def lines(self) -> Mapping[str, str]:
        """Return lag, rows per second since the last call, held rows and open locks of each source."""
        rows, self._rows, before = self._rows, Counter(), self._told
        self._told = time.monotonic()
        locks = [lock for lock in facts(self._work.meta) if lock.is_open]
        found = {}
        for each in status(self._work.task):
            waiting = sum(each.source in lock.members for lock in locks)
            found[each.source] = (
                f"{each.lag} behind, {amount(round(rows[each.source] / (self._told - before)))} rows/s, "
                f"{amount(each.rows_held)} held, {waiting} lock(s) open"
            )
        return found

    def _is_asked(self, _: object) -> bool:
        """Whether a signal asks for the end; from the first call on signals only ask. A second signal kills."""
        if not self._is_heard and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._ask)
        self._is_heard = True
        return self._asked.is_set()

    def _ask(self, number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        self._asked.set()


def run(options: Namespace, console: Console) -> Answer:
    """Run the full load and the windows until the chosen end."""
    seconds = _seconds(options)
    task = load_task(Path(options.task))
    console.warn_of(task, begins=True)
    if options.start_time:
        task = starting_at(task, options.start_time)
    with open_work(task, starting=lambda: console.note("Spark starts"), will_load=True) as work:
        if options.remove_meta:
            remove_first(work, options, console)
        if options.start_time:
            refuse_begun(work)
        return _run(work, options, console, Following(work, seconds) if options.follow else None)


def _seconds(options: Namespace) -> float:
    """Return the seconds of `--for`."""
    found = inf if options.time is None else seconds_in(options.time)
    if not found:
        raise UsageWrong(f"--for: {options.time} is not a time like 10m", "unshard run")
    if not options.follow and options.time is not None:
        raise UsageWrong("--for needs --follow", "unshard run")
    if options.follow and options.until == "full":
        raise UsageWrong("--follow begins after the full load, so it does not go with --until full", "unshard run")
    return found


def _run(work: Work, options: Namespace, console: Console, following: Following | None) -> Answer:
    task, errors = work.task, Errors()

    def watch(note: Note) -> None:
        if following is not None and isinstance(note, WindowDone):
            following.count(note.source, note.report.rows_applied)
            if not note.report.engines:
                return
        _show(note, console, display, errors)

    with Display(console) as display:
        display.follow(lambda: full_progress(work.meta, task.sources))
        if following is not None:
            display.repeat(following.lines)
        ends = following.ends if following else None
        outcome = run_task(work, Until(options.until), watch=watch, following=ends)
    return Answer(_document(task, outcome), _lines(task, options.until, outcome, errors), outcome.exit_code)


def _show(note: Note, console: Console, display: Display, errors: Errors) -> None:
    match note:
        case CreatedUnlike(place, message):
            console.warn([f"{place}: {message}"])
        case PhaseBegan(source, step):
            console.note(f"{source}: {step} begins")
        case PhaseEnded(source, step, seconds):
            console.note(f"{source}: {step} done in {seconds:.1f} s")
        case WindowDone(source, report):
            rows = _moved(report)
            display.tell(f"{source}: window {report.window} to {report.ends}, {rows}")
            console.warn([str(each) for each in report.engines])
        case LockTried(lock):
            what = "; ".join(map(one_line, lock.statements or (lock.ddl,)))
            console.note(f"lock {lock.id}: {'refused' if lock.is_open else 'executed'}: {what}")
        case Trouble() if note.again:
            console.warn([errors.retried(note)])
        case Trouble():
            console.note(errors.given_up(note))
        case _:
            assert_never(note)


def _document(task: Task, outcome: Outcome) -> dict[str, Any]:
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


def _lines(task: Task, until: str, outcome: Outcome, errors: Errors) -> list[str]:
    lines = [
        f"{each.source}: {each.phase}, {amount(each.windows)} windows, {_moved(each)}, "
        f"at {each.checkpoint or 'no checkpoint yet'}"
        for each in outcome.sources
    ]
    lines += [line for lock in outcome.locks for line in lock_lines(task, lock, explains=False)]
    lines += map(difference_line, outcome.differences)
    return [*lines, *map(errors.final, outcome.errors), _end(until, outcome)]


def _moved(rows: WindowReport | SourceOutcome) -> str:
    others = {"filtered": rows.rows_filtered, "skipped": rows.rows_skipped, "diverted": rows.rows_diverted}
    told = "".join(f", {amount(count)} {what}" for what, count in others.items() if count)
    return f"{amount(rows.rows_applied)} rows applied, {amount(rows.rows_held)} held{told}"


def _end(until: str, outcome: Outcome) -> str:
    took = f"in {outcome.seconds:.1f} s"
    if outcome.failures:
        return f"stopped {took} with {len(outcome.errors)} error(s)"
    followed = outcome.end is not None and outcome.end is not End.CAUGHT_UP
    done = f"{'full load done' if until == 'full' else 'followed' if followed else 'caught up'} {took}"
    if outcome.suspended:
        done += f", except for {len(outcome.suspended)} suspended target(s)"
    done += f", {len(outcome.locks)} DDL lock(s) open" if outcome.locks else ""
    return f"{done}, {len(outcome.differences)} difference(s) between shards open" if outcome.differences else done
