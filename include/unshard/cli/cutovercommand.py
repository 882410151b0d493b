"""`unshard cutover`: switch the applications from the shards to the target."""

import getpass
import json
from argparse import Namespace
from math import inf
from typing import Any

from unshard.cli.console import Answer, Console
from unshard.cli.display import Display
from unshard.cli.validatecommand import shown_progress
from unshard.config.kinds import seconds_in
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.shown import amount
from unshard.core.validate.cutoverstate import Obstacle, StoredCutover, Who
from unshard.errors.config import UsageWrong
from unshard.units.checks.backups import refuse_older
from unshard.units.task.cutover import (
    ABORT,
    CUTOVER,
    CutoverOptions,
    abort_cutover,
    cutover_document,
    obstacles,
    run_cutover,
)
from unshard.units.work import Work, open_work

HEADINGS = {
    Who.YOU: "before the cutover, by you:",
    Who.RUN: "in the cutover, by unshard:",
    Who.LATER: "not by unshard, if your applications need it:",
}


def cutover_command(options: Namespace, console: Console) -> Answer:
    """Show what is in the way, cut over, or abort a cutover."""
    task = console.load(options.task)
    only_reads = options.action == "plan" or options.dry_run
    with open_work(task, only_reads=only_reads) as work:
        stored = work.meta.cutovers.get()
        if only_reads:
            return _done(work, stored) if stored and stored.is_done else _plan(work, stored)
        refuse_older(work)
        return _abort(work, options) if options.action == "abort" else _run(work, options, console, stored)


def _done(work: Work, stored: StoredCutover) -> Answer:
    return Answer({"task": work.task.name, "cutover": cutover_document(stored)}, _certificate_lines(stored))


def _plan(work: Work, stored: StoredCutover | None) -> Answer:
    document: dict[str, Any] = {"task": work.task.name, "cutover": cutover_document(stored) if stored else None}
    found = obstacles(work)
    document["obstacles"] = [
        {"who": each.who, "about": each.about, "text": each.text, "next_step": each.next_step} for each in found
    ]
    lines = [f"a cutover has begun, its phase is {stored.phase}"] if stored else []
    lines += _lines(found)
    is_free = all(each.who is not Who.YOU for each in found)
    lines.append("nothing is in the way of `unshard cutover run`" if is_free else "`unshard cutover run` refuses")
    return Answer(document, lines, 0 if is_free else 3)


def _lines(found: tuple[Obstacle, ...]) -> list[str]:
    lines: list[str] = []
    for who, heading in HEADINGS.items():
        own = [f"  {each}" for each in found if each.who is who]
        lines += [heading, *own] if own else []
    return lines


def _run(work: Work, options: Namespace, console: Console, stored: StoredCutover | None) -> Answer:
    within, wait = _seconds("--within", options.within), _seconds("--wait", options.wait)
    how = "sets the sources to read-only" if options.read_only else "waits until the sources are read-only"
    if not (stored and stored.is_done):
        question = f"cut over: {how} for at most {within:.0f} s, then pauses the task"
        console.confirm(question, options.yes, _lines(obstacles(work)))
    command = IssuedCommand(CUTOVER, getpass.getuser(), "command line", options.reason)
    with Display(console) as display:
        done = run_cutover(
            work,
            command,
            CutoverOptions(options.read_only, within, wait),
            console.note,
            lambda told: display.tell(shown_progress(told)),
        )
    return _done(work, done)


def _seconds(name: str, text: str | None) -> float:
    found = inf if text is None else seconds_in(text)
    if not found:
        raise UsageWrong(f"{name}: {text} is not a time like 5m", "unshard cutover")
    return found


def _abort(work: Work, options: Namespace) -> Answer:
    command = IssuedCommand(ABORT, getpass.getuser(), "command line", options.reason)
    restored = abort_cutover(work, command)
    document = {"task": work.task.name, "changed": restored is not None, "restored": restored or []}
    if restored is None:
        return Answer(document, ["no cutover has begun"])
    sources = f"{', '.join(restored)} as before" if restored else "unshard had changed no source"
    return Answer(document, [f"the cutover is aborted: {sources}"])


def _certificate_lines(stored: StoredCutover) -> list[str]:
    found = json.loads(stored.certificate)
    lines = [
        f"{each['source']}: read-only at {each['position']}{', GTID ' + each['gtid'] if each['gtid'] else ''}"
        for each in found["sources"]
    ]
    lines += [
        f"{each['target']}: equal, {amount(each['rows'])} rows of {each['shards']} shards, checksum {each['checksum']}"
        for each in found["tables"]
    ]
    lines += [f"target: {statement}" for statement in found["created"]]
    took = f"the sources were read-only for {found['read_only_seconds']} s"
    return [*lines, f"cut over at {found['done_at']}, {took}; the task is paused"]
