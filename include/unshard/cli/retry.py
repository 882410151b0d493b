"""`unshard retry`: targets that have stopped go on."""

import getpass
from argparse import Namespace
from pathlib import Path

from unshard.cli.console import Answer, Console
from unshard.cli.orders import ask_again
from unshard.cli.stops import stop_document
from unshard.config import load_task
from unshard.core.stops import preview_retry
from unshard.errors.config import UsageWrong
from unshard.units.stopping import order_retry
from unshard.units.work import open_work


def retry(options: Namespace, console: Console) -> Answer:
    """Let the next windows release what targets have missed, or ask the target again about a DDL."""
    if options.lock:
        if options.table:
            raise UsageWrong("--lock and --table are two different orders: give one of them", "unshard retry")
        return ask_again(options, console)
    task = load_task(Path(options.task))
    console.warn(task.warnings)
    with open_work(task, only_reads=options.dry_run) as work:
        stops = [s for s in work.meta.stops.all() if not options.table or str(s.target) in options.table]
        effects = [*map(preview_retry, stops)]
        document = {"task": task.name, "dry_run": options.dry_run, "effects": effects,
                    "stopped_targets": [stop_document(stop) for stop in stops]}  # fmt: skip
        if not stops:
            return Answer(document, ["no target is stopped"])
        if options.dry_run:
            return Answer(document, [*effects, "dry run: nothing was done"])
        for line in effects:
            console.note(line)
        console.confirm("retry", options.yes)
        order_retry(work, stops, getpass.getuser(), "command line", options.reason)
    return Answer(document, ["done; the next windows go on with it"])
