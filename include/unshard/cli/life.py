"""`unshard pause`, `resume`, `stop`: orders about a whole task."""

import getpass
from argparse import Namespace
from pathlib import Path
from typing import Any

from unshard.cli.console import Answer, Console
from unshard.config import load_task
from unshard.core.halt import Halt, HaltKind
from unshard.units import life
from unshard.units.work import Work, open_work

VIA = "command line"


def pause(options: Namespace, console: Console) -> Answer:
    """Let nothing more of the task begin."""
    task = load_task(Path(options.task))
    console.warn(task.warnings)
    with open_work(task) as work:
        changed = life.pause(work, getpass.getuser(), VIA, options.reason)
        busy = life.at_work(task, work.meta, work.target)
    lines = [f"task {task.name} is {'' if changed.is_new else 'already '}{changed.halt}",
             *(f"still going on, ends by itself: {each}" for each in busy),
             f"to go on: unshard resume {options.task}"]  # fmt: skip
    return Answer({**_document(task.name, changed), "at_work": [*busy]}, lines)


def resume(options: Namespace, console: Console) -> Answer:
    """Let a task go on."""
    task = load_task(Path(options.task))
    console.warn(task.warnings)
    with open_work(task) as work:
        changed = life.resume(work, getpass.getuser(), VIA, options.reason)
    told = f"is resumed; {life.GOES_ON}" if changed.is_new else "was not halted"
    return Answer(_document(task.name, changed), [f"task {task.name} {told}"])


def stop(options: Namespace, console: Console) -> Answer:
    """Halt a task for good; remove what it has left if asked."""
    task = load_task(Path(options.task))
    console.warn(task.warnings)
    with open_work(task, only_reads=options.dry_run) as work:
        if options.remove_meta:
            return _remove(work, options, console)
        effects = [f"task {task.name} is stopped; nothing of it begins any more", *life.remains(work)]
        if options.dry_run:
            return _dry_run(work, effects)
        changed = life.pause(work, getpass.getuser(), VIA, options.reason, HaltKind.STOPPED)
        lines = [f"task {task.name} is {'' if changed.is_new else 'already '}{changed.halt}; there remain",
                 *(f"  {line}" for line in life.remains(work)),
                 f"to go on: unshard resume {options.task}",
                 f"to remove them all but the target tables: unshard stop {options.task} --remove-meta"]  # fmt: skip
    return Answer({**_document(task.name, changed), "dry_run": False, "remains": effects[1:]}, lines)


def remove_first(work: Work, options: Namespace, console: Console) -> None:
    """Forget a task before it is run from the start."""
    for line in life.preview_removal(work):
        console.note(line)
    console.confirm(f"remove all that is known of task {work.task.name}", options.yes)
    life.remove(work, getpass.getuser(), VIA, "run --remove-meta")


def _remove(work: Work, options: Namespace, console: Console) -> Answer:
    effects = [*life.preview_removal(work)]
    if options.dry_run:
        return _dry_run(work, effects)
    for line in effects:
        console.note(line)
    console.confirm(f"remove all that is known of task {work.task.name}", options.yes)
    rows = life.remove(work, getpass.getuser(), VIA, options.reason)
    document = {"task": work.task.name, "dry_run": False, "effects": effects, "rows_removed": rows}
    return Answer(document, [f"task {work.task.name}: {rows} rows and its files are removed; if it is run again, it "
                             "begins from the start"])  # fmt: skip


def _dry_run(work: Work, effects: list[str]) -> Answer:
    document = {"task": work.task.name, "dry_run": True, "effects": effects}
    return Answer(document, [*effects, "dry run: nothing was done"])


def _document(task: str, changed: life.Changed) -> dict[str, Any]:
    return {"task": task, "changed": changed.is_new, "halted": halt_document(changed.halt)}


def halt_document(halt: Halt | None) -> dict[str, str] | None:
    """Return who has halted a task, as JSON."""
    if halt is None:
        return None
    return {"kind": halt.kind, "by": halt.who, "via": halt.via, "reason": halt.reason, "at": halt.at.isoformat()}
