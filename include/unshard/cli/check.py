"""`unshard check`: the prechecks as a table, or the comparison of decoders."""

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from unshard.cli.console import Answer, Console, table
from unshard.config import environment_connections, load_task
from unshard.core.checks.items import Item, Severity, summaries
from unshard.core.shown import amount
from unshard.errors import UnshardError
from unshard.units.checks.precheck import check as check_task
from unshard.units.checks.precheck import keep


def check(options: Namespace, console: Console) -> Answer:
    """Run every precheck and list the findings."""
    task = load_task(Path(options.task))
    console.warn_of(task, begins=True)
    if options.decoder:
        from unshard.cli.decodercheck import check_decoders

        return check_decoders(task, options.decoder_bytes, options.decoder_events)
    items = check_task(task)
    try:
        keep(task, environment_connections, items)
    except UnshardError as error:
        console.warn([f"the page still shows the previous prechecks: {error}"])
    counts = Counter(item.severity for item in items)
    document = {
        "task": task.name,
        "ok": not counts[Severity.ERROR],
        "errors": counts[Severity.ERROR],
        "warnings": [*task.warnings],
        "items": [asdict(item) for item in items],
    }
    shown = items if console.verbose else summaries(item for item in items if item.severity is not Severity.OK)
    return Answer(
        document,
        [*_lines(shown, console.width), *_passed(counts, console), _summary(task.name, counts)],
        1 if counts[Severity.ERROR] else 0,
    )


def _lines(items: Sequence[Item], width: int | None) -> list[str]:
    """Return the table, with the remedy below each problem."""
    rows = [(item.severity.upper(), item.place, item.name, item.told) for item in items]
    after = [f"         -> {item.remedy}" if item.remedy else "" for item in items]
    return [*table(("RESULT", "PLACE", "CHECK", "FOUND"), rows, width, after), ""] if items else []


def _passed(counts: Counter[Severity], console: Console) -> list[str]:
    """Return one line for all checks without a problem."""
    if console.verbose or not counts[Severity.OK]:
        return []
    return [f"{amount(counts[Severity.OK])} checks are OK; `-v` lists them"]


def _summary(task: str, counts: Counter[Severity]) -> str:
    errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
    verdict = "can run" if not errors else "cannot run yet"
    ignored = f", {counts[Severity.IGNORED]} ignored" if counts[Severity.IGNORED] else ""
    return f"task {task} {verdict}: {errors} error(s), {warnings} warning(s), {counts[Severity.OK]} ok{ignored}"
