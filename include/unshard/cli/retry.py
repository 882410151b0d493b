"""`unshard retry`: targets that have stopped go on."""

import getpass
from argparse import Namespace
from pathlib import Path
from typing import Any

from unshard.cli.console import Answer, Console
from unshard.config import load_task
from unshard.core.stops import Stop, preview_retry
from unshard.units.orders import one_line
from unshard.units.stopping import order_retry
from unshard.units.work import open_work


def retry(options: Namespace, console: Console) -> Answer:
    """Let the next windows release what targets have missed."""
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


def stop_lines(stop: Stop, task: str) -> list[str]:
    """Tell a person why a target is stopped, and what helps."""
    return [f"{stop}", "  its rows are held, and released when the table is altered; if something else was mended: "
            f"unshard retry {task}"]  # fmt: skip


def stop_document(stop: Stop) -> dict[str, Any]:
    """Return a target that has stopped as JSON."""
    return {
        "source": stop.source,
        "target": str(stop.target),
        "code": stop.refusal.code,
        "column": stop.refusal.column,
        "key": stop.refusal.key,
        "error": one_line(stop.refusal.words),
        "window": stop.window,
        "times": stop.times,
        "since": stop.since.isoformat(),
    }
