"""`unshard pause`, `resume`, `stop`, `migrate`: commands about a whole task."""

import getpass
from argparse import Namespace
from typing import Any

from unshard.cli.console import Answer, Console
from unshard.core.shown import shell
from unshard.core.task.state import PauseKind
from unshard.operate.documents import pause_document
from unshard.units.task import lifecycle
from unshard.units.work import Work, open_work

VIA = "command line"


def pause(options: Namespace, console: Console) -> Answer:
    """Start no new work of the task."""
    task = console.load(options.task)
    with open_work(task) as work:
        changed = lifecycle.pause(work, getpass.getuser(), VIA, options.reason)
        busy = lifecycle.at_work(task, work.meta, work.target)
    lines = [
        f"task {task.name} is {'' if changed.is_new else 'already '}{changed.pause}",
        *(f"still active, ends normally: {each}" for each in busy),
        f"to continue: unshard resume {shell(options.task)}",
    ]
    return Answer({**_document(task.name, changed), "at_work": [*busy]}, lines)


def resume(options: Namespace, console: Console) -> Answer:
    """Continue a task."""
    task = console.load(options.task)
    with open_work(task) as work:
        changed = lifecycle.resume(work, getpass.getuser(), VIA, options.reason)
    told = f"is resumed; {lifecycle.GOES_ON}" if changed.is_new else "was not paused"
    return Answer(_document(task.name, changed), [f"task {task.name} {told}"])


def stop(options: Namespace, console: Console) -> Answer:
    """Stop a task for good; remove its state with --remove-meta."""
    task = console.load(options.task)
    with open_work(task, only_reads=options.dry_run) as work:
        if options.remove_meta:
            return _remove(work, options, console)
        effects = [f"task {task.name} is stopped; no new work begins", *lifecycle.remains(work)]
        if options.dry_run:
            return _dry_run(work, effects)
        changed = lifecycle.pause(work, getpass.getuser(), VIA, options.reason, PauseKind.STOPPED)
        lines = [
            f"task {task.name} is {'' if changed.is_new else 'already '}{changed.pause}; these remain:",
            *(f"  {line}" for line in lifecycle.remains(work)),
            f"to continue: unshard resume {shell(options.task)}",
            f"to remove all but the target tables: unshard stop {shell(options.task)} --remove-meta",
        ]
    return Answer({**_document(task.name, changed), "dry_run": False, "remains": effects[1:]}, lines)


def remove_first(work: Work, options: Namespace, console: Console) -> None:
    """Remove the state of a task before it runs from the start."""
    console.confirm(f"remove the state of task {work.task.name}", options.yes, lifecycle.preview_removal(work))
    lifecycle.remove(work, getpass.getuser(), VIA, "run --remove-meta")


def _remove(work: Work, options: Namespace, console: Console) -> Answer:
    effects = [*lifecycle.preview_removal(work)]
    if options.dry_run:
        return _dry_run(work, effects)
    console.confirm(f"remove the state of task {work.task.name}", options.yes, effects)
    rows = lifecycle.remove(work, getpass.getuser(), VIA, options.reason)
    document = {"task": work.task.name, "dry_run": False, "effects": effects, "rows_removed": rows}
    return Answer(
        document, [f"task {work.task.name}: {rows} rows and its files are removed; the next run begins from the start"]
    )


def _dry_run(work: Work, effects: list[str]) -> Answer:
    document = {"task": work.task.name, "dry_run": True, "effects": effects}
    return Answer(document, [*effects, "dry run: nothing was done"])


def _document(task: str, changed: lifecycle.Changed) -> dict[str, Any]:
    return {"task": task, "changed": changed.is_new, "pause": pause_document(changed.pause)}


def migrate(options: Namespace, console: Console) -> Answer:
    """Create the meta tables or migrate them to this version; current tables stay as they are."""
    task = console.load(options.task)
    with open_work(task) as work:
        version = work.meta.version()
    document = {"task": task.name, "warnings": [*task.warnings], "meta_schema": task.meta_schema, "version": version}
    return Answer(document, [f"the meta schema {task.meta_schema} has version {version}, the version of this unshard"])
