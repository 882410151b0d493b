"""`unshard check --decoder`: what two decoders read from the same binlog. Prechecks do not import this."""

from typing import Any

from unshard.cli.console import Answer, error_document
from unshard.config import Task
from unshard.core.shown import amount
from unshard.units.checks.decoderrows import DecoderReport, Limits, check_decoder


def check_decoders(task: Task, size: int, events: int) -> Answer:
    """Compare both decoders for every source, over so many bytes and events; exit code 1 if a value differs."""
    reports = check_decoder(task, Limits(size, events))
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


def _decoder_document(report: DecoderReport) -> dict[str, Any]:
    return {
        "source": report.source,
        "equal": report.is_equal,
        "begins": str(report.begins) if report.begins else None,
        "ends": str(report.ends) if report.ends else None,
        "events": report.events,
        "rows": report.rows,
        "values": report.values,
        "tables": report.tables,
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


def _decoder_lines(report: DecoderReport) -> list[str]:
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
