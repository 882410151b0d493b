"""`unshard retry`: continue suspended targets."""

import getpass
from argparse import Namespace
from pathlib import Path

from unshard.cli.console import Answer, Console
from unshard.cli.orders import ask_again, ask_all_again
from unshard.cli.stops import suspended_document
from unshard.config import load_task
from unshard.core.window.suspension import preview_retry
from unshard.errors.config import UsageWrong
from unshard.units.window.suspending import command_retry
from unshard.units.work import open_work


def retry(options: Namespace, console: Console) -> Answer:
    """Let the next windows release held rows, or try a DDL again."""
    if sum(map(bool, (options.lock, options.all_locks, options.table))) > 1:
        raise UsageWrong("--lock, --all-locks and --table are different commands: use one of them", "unshard retry")
    if options.lock or options.all_locks:
        return ask_again(options, console) if options.lock else ask_all_again(options, console)
    task = load_task(Path(options.task))
    console.warn_of(task)
    with open_work(task, only_reads=options.dry_run) as work:
        stops = [s for s in work.meta.suspended_targets.all() if not options.table or str(s.target) in options.table]
        effects = [*map(preview_retry, stops)]
        document = {
            "task": task.name,
            "dry_run": options.dry_run,
            "effects": effects,
            "suspended_targets": [suspended_document(stop) for stop in stops],
        }
        if not stops:
            return Answer(document, ["no target is suspended"])
        if options.dry_run:
            return Answer(document, [*effects, "dry run: nothing was done"])
        for line in effects:
            console.note(line)
        console.confirm("retry", options.yes)
        command_retry(work, stops, getpass.getuser(), "command line", options.reason)
    return Answer(document, ["done; the next windows use it"])
