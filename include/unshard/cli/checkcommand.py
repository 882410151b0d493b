"""`unshard check`: the prechecks as a table, or the comparison of decoders."""

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from unshard.cli.console import Answer, Console, table
from unshard.config import Task, environment_connections
from unshard.core.checks.items import Item, Severity, summaries
from unshard.core.shown import amount, as_document
from unshard.errors import UnshardError
from unshard.operate.documents import error_document
from unshard.units.checks.precheck import check as check_task
from unshard.units.checks.precheck import store_items

if TYPE_CHECKING:
    from unshard.units.checks.decoderrows import DecoderReport


def check_command(options: Namespace, console: Console) -> Answer:
    """Run every precheck and list the findings."""
    task = console.load(options.task, begins=True)
    if options.decoder:
        return _check_decoders(task, options.decoder_bytes, options.decoder_events)
    items = check_task(task)
    try:
        store_items(task, environment_connections, items)
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
    rows = [(item.severity.upper(), item.place, item.name, item.told) for item in items]
    after = [f"         -> {item.remedy}" if item.remedy else "" for item in items]
    return [*table(("RESULT", "PLACE", "CHECK", "FOUND"), rows, width, after), ""] if items else []


def _passed(counts: Counter[Severity], console: Console) -> list[str]:
    if console.verbose or not counts[Severity.OK]:
        return []
    return [f"{amount(counts[Severity.OK])} checks are OK; `-v` lists them"]


def _summary(task: str, counts: Counter[Severity]) -> str:
    errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
    verdict = "can run" if not errors else "cannot run yet"
    ignored = f", {counts[Severity.IGNORED]} ignored" if counts[Severity.IGNORED] else ""
    return f"task {task} {verdict}: {errors} error(s), {warnings} warning(s), {counts[Severity.OK]} ok{ignored}"


def _check_decoders(task: Task, size: int, events: int) -> Answer:
    """Compare both decoders for every source, over so many bytes and events; exit code 1 if a value differs."""
    from unshard.units.checks.decoderrows import BinlogLimits, check_decoder  # prechecks do not need it

    reports = check_decoder(task, BinlogLimits(size, events))
    equal = all(report.is_equal for report in reports)
    document = {
        "task": task.name,
        "equal": equal,
        "warnings": [*task.warnings],
        "sources": [_decoder_document(report) for report in reports],
    }
    lines = [line for report in reports for line in _decoder_lines(report)]
    verdict = "no value differs" if equal else "the decoders DIFFER, or a source could not be compared"
    return Answer(document, [*lines, "", f"task {task.name}: {verdict}"], 0 if equal else 1)


def _decoder_document(report: "DecoderReport") -> dict[str, Any]:
    return {
        **as_document(report, "source equal begins ends events rows values tables", equal="is_equal"),
        "not_compared": [{"count": count, "what": str(reason)} for reason, count in report.not_compared.items()],
        "details": [*report.details],
        "differences": [
            {
                **error_document(each),
                "shard": each.shard,
                "location": each.location,
                "column": each.column,
                "unshard": each.ours,
                "mysql_replication": each.theirs,
            }
            for each in report.differences
        ],
        "error": error_document(report.error) if report.error else None,
    }


def _decoder_lines(report: "DecoderReport") -> list[str]:
    if report.error:
        return [f"source {report.source}: {report.error}"]
    compared = (
        f"{amount(report.events)} row events, {amount(report.rows)} rows and {amount(report.values)} values"
        f" of {report.tables} tables"
    )
    result = (
        f"{len(report.differences)} columns DIFFER" if report.differences else "equal" if report.rows else "no rows"
    )
    lines = [f"source {report.source}, {report.begins} to {report.ends}: {compared}: {result}"]
    lines += [f"  not compared: {amount(count)} {reason}" for reason, count in report.not_compared.items()]
    lines += [f"    {detail}" for detail in report.details]
    lines += [f"  {difference}" for difference in report.differences]
    if not report.rows:
        lines.append("  write to a shard and run this again, or raise --decoder-bytes and --decoder-events")
    return lines
