"""`unshard run`: full load and windows, with progress, until caught up."""

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any, assert_never

from unshard.cli.console import Answer, Console, error_document
from unshard.cli.life import remove_first
from unshard.cli.locks import difference_document, difference_line, lock_document, lock_lines
from unshard.cli.progress import Display
from unshard.config import Task, load_task
from unshard.config.starting import starting_at
from unshard.core.numbers import amount
from unshard.units.ddl.lockcommands import one_line
from unshard.units.full.starttime import refuse_begun
from unshard.units.task.run import (
    CreatedUnlike,
    LockTried,
    Note,
    Outcome,
    PhaseBegan,
    PhaseEnded,
    SourceOutcome,
    Trouble,
    Until,
    WindowDone,
)
from unshard.units.task.run import run as run_task
from unshard.units.task.status import full_progress
from unshard.units.window.sync import WindowReport
from unshard.units.work import Work, open_work


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


def run(options: Namespace, console: Console) -> Answer:
    """Run the full load and the windows until the chosen end."""
    task = load_task(Path(options.task))
    console.warn_of(task, begins=True)
    if options.start_time:
        task = starting_at(task, options.start_time)
    with open_work(task, starting=lambda: console.note("Spark starts")) as work:
        if options.remove_meta:
            remove_first(work, options, console)
        if options.start_time:
            refuse_begun(work)
        return _run(work, options, console)


def _run(work: Work, options: Namespace, console: Console) -> Answer:
    task, errors = work.task, Errors()
    with Display(console) as display:
        display.follow(lambda: full_progress(work.meta, task.sources))
        outcome = run_task(work, Until(options.until), watch=lambda note: _show(note, console, display, errors))
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
    done = f"{'full load done' if until == 'full' else 'caught up'} {took}"
    if outcome.suspended:
        done += f", except for {len(outcome.suspended)} suspended target(s)"
    done += f", {len(outcome.locks)} DDL lock(s) open" if outcome.locks else ""
    return f"{done}, {len(outcome.differences)} difference(s) between shards open" if outcome.differences else done
