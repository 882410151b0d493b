"""`unshard validate`: is the target the union of its shards?"""

import time
from argparse import Namespace
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from unshard.cli.console import Answer, Console
from unshard.cli.display import Display
from unshard.config.kinds import seconds_in
from unshard.core.model import TableId
from unshard.core.shown import amount
from unshard.core.validate.rowdifferences import Because, NotYetInTarget, RowDifference
from unshard.errors.config import UsageWrong
from unshard.operate.documents import error_document
from unshard.units.validate.validate import Chunked, KeysPending, Settings, TableResult, Yielding, unfed
from unshard.units.validate.validate import validate as compare
from unshard.units.work import open_work

REASONS = {
    Because.DIVERTED: "was diverted",
    Because.SUSPENDED: "rows of its shard are held: the target is suspended",
    Because.HELD: "rows of its shard are held until a DDL is resolved",
}


def validate_command(options: Namespace, console: Console) -> Answer:
    """Compare and report; exit code 2 if a table differs, 1 if none differs but one has no verdict yet."""
    task = console.load(options.task)
    settings = Settings(
        options.threads,
        options.chunk_rows,
        limit=options.limit,
        wait=options.wait,
        resumes=options.resume,
        older_than=_age(options.older_than),
        rate=options.rate,
        until=_until(options.until, datetime.now().astimezone()),
    )
    began = time.monotonic()
    with open_work(task, only_reads=True) as work, Display(console) as display:
        verdicts = compare(
            work,
            [table_named(name) for name in options.table],
            settings,
            lambda told: display.tell(shown_progress(told)),
        )
        left = () if options.table else unfed(work)
    seconds = time.monotonic() - began
    equal = all(verdict.equal for verdict in verdicts)
    differ = any(verdict.differs for verdict in verdicts)
    document = {
        "task": task.name,
        "equal": equal,
        "rows": sum(verdict.rows_target for verdict in verdicts),
        "seconds": round(seconds, 3),
        "warnings": [*task.warnings],
        "unfed": [str(target) for target in left],
        "tables": [_document(verdict, settings.limit) for verdict in verdicts],
    }
    lines = [line for verdict in verdicts for line in _lines(verdict, settings.limit)]
    lines += [f"{target}: no shard feeds it any more; its rows are of dropped shards" for target in left]
    return Answer(document, [*lines, _summary(verdicts, equal, seconds)], 2 if differ else 0 if equal else 1)


def table_named(name: str) -> TableId:
    """Return the target that `--table` names; raises UsageWrong."""
    schema, dot, table = name.partition(".")
    if not (schema and dot and table):
        raise UsageWrong(f"--table {name}: write it as schema.table", "unshard validate")
    return TableId(schema, table)


def shown_progress(told: Chunked | KeysPending | Yielding) -> str:
    """Return a line about a comparison in progress."""
    if isinstance(told, KeysPending):
        return f"comparing {told.target}: {amount(told.keys)} keys have changed meanwhile and wait for windows"
    if isinstance(told, Yielding):
        return f"comparing {told.target}: waits for windows, the lag of {', '.join(told.sources)} has grown"
    rate = told.rows / told.seconds if told.seconds else 0.0
    line = f"comparing {told.target}: {told.chunks} chunks, {amount(told.rows)} rows, {amount(round(rate))} rows/s"
    if told.of_rows and rate:
        left = max(0.0, told.of_rows - told.rows) / rate
        line += f", {min(99, 100 * told.rows // told.of_rows)} %, {left:.0f} s left"
    return line


def _age(text: str | None) -> timedelta | None:
    seconds = None if text is None else seconds_in(text)
    if text is not None and seconds is None:
        raise UsageWrong(f"--older-than: {text} is not a time like 24h", "unshard validate")
    return None if seconds is None else timedelta(seconds=seconds)


def _until(text: str | None, now: datetime) -> datetime | None:
    """Return the next moment at which a clock here shows that time."""
    if text is None:
        return None
    try:
        clock = time.strptime(text, "%H:%M")
    except ValueError as error:
        raise UsageWrong(f"--until: {text} is not a time of day like 02:00", "unshard validate") from error
    found = now.replace(hour=clock.tm_hour, minute=clock.tm_min, second=0, microsecond=0)
    return found if found > now else found + timedelta(days=1)


def _document(verdict: TableResult, limit: int) -> dict[str, Any]:
    return {
        "target": str(verdict.target),
        "equal": verdict.equal,
        "shards": verdict.shards,
        "rows_target": verdict.rows_target,
        "rows_shards": verdict.rows_union,
        "chunks": verdict.chunks,
        "differing_chunks": verdict.differing_chunks,
        "chunks_left_out": verdict.left_out_chunks,
        "rows_left_out": verdict.left_out_rows,
        "unfinished": verdict.is_cut,
        "seconds": round(verdict.seconds, 3),
        "compared": [*verdict.compared],
        "left_out": [
            {"column": each.column, "reason": each.reason, "places": [*each.places]} for each in verdict.left_out
        ],
        "lost_columns": [*verdict.lost_columns],
        "structure": [*verdict.structure],
        "reloads": [*verdict.reloads],
        "unseen": [*verdict.unseen],
        "error": error_document(verdict.error) if verdict.error else None,
        "where": {"condition": verdict.through.condition, "not_looked_through": verdict.through.why_not},
        "differences": [{**_named(verdict, each), "because": each.because} for each in verdict.differences[:limit]],
        "more_differences": _has_more(verdict, limit),
        "pending": {
            "rows": len(verdict.pending),
            "columns": [*verdict.coming_columns],
            "because": verdict.why_pending or None,
        },
        "waiting": {
            "locks": [*verdict.waiting.locks],
            "held_rows": verdict.waiting.held_rows,
            "shards": [*verdict.waiting.shards],
            "suspended_for": [stop.source for stop in verdict.waiting.suspended],
            "diverted": len(verdict.waiting.diverted),
        },
    }


def _named(verdict: TableResult, difference: RowDifference) -> dict[str, Any]:
    return {
        "kind": difference.kind,
        "key": dict(zip(verdict.named_by, difference.key, strict=True)),
        "shards": [*difference.shards],
        "rows": difference.count,
    }


def _has_more(verdict: TableResult, limit: int) -> bool:
    return len(verdict.differences) >= limit


def _lines(verdict: TableResult, limit: int) -> list[str]:
    target, rows = verdict.target, f"{amount(verdict.rows_target)} rows"
    if verdict.error:
        lines = [f"{target}: NO VERDICT, {verdict.error}"]
    elif verdict.equal:
        lines = [f"{target}: equal, {rows} of {verdict.shards} shards in {verdict.seconds:.1f} s"]
    elif verdict.is_cut and not (verdict.differs or verdict.pending):
        lines = [f"{target}: NOT FINISHED, {rows} in {verdict.chunks} chunks are equal; go on with --resume"]
    elif not verdict.differs:
        lines = [f"{target}: no difference is proven, {rows} of {verdict.shards} shards in {verdict.seconds:.1f} s"]
    else:
        lines = [
            f"{target}: DIFFERS, {rows} in the target, {amount(verdict.rows_union)} in {verdict.shards} shards, "
            f"{verdict.differing_chunks} of {verdict.chunks} chunks"
        ]
    if verdict.left_out_chunks:
        left_out = f"{amount(verdict.left_out_rows)} rows in {verdict.left_out_chunks} chunks"
        lines.append(f"  proven earlier: {left_out} are equal, and were not compared again")
    lines += [f"  not compared: column {each.column}, {each.reason}" + _where(each.places) for each in verdict.left_out]
    lines += [
        f"  lost: column {column} is in no target column and no DDL lock is open" for column in verdict.lost_columns
    ]
    lines += [f"  pending: column {column}, which is on its way to the target" for column in verdict.coming_columns]
    lines += [f"  structure: {each}" for each in verdict.structure]
    lines += [f"  perhaps because {each}" for each in verdict.reloads]
    lines += verdict.through.told
    lines += [
        f"  not seen: {shard}, dropped or renamed after the last window, or the account may not read it"
        for shard in verdict.unseen
    ]
    lines += [f"  {_told(verdict, each)}" for each in verdict.differences[:limit]]
    if _has_more(verdict, limit):
        lines.append(f"  … and perhaps more; use --limit to list more than {limit}")
    if verdict.pending:
        why = f": {verdict.why_pending}" if verdict.why_pending else ""
        lines.append(f"  pending: {amount(len(verdict.pending))} keys, whose changes may be on their way{why}")
    return [*lines, *_waiting(verdict.waiting)]


def _waiting(waiting: NotYetInTarget) -> Iterator[str]:
    if waiting.shards or waiting.locks:
        stopped = (
            f"the target is suspended for {', '.join(stop.source for stop in waiting.suspended)}"
            if waiting.suspended
            else ""
        )
        after = f"they are after {', '.join(waiting.locks) or 'a DDL'}" if waiting.locks or not stopped else ""
        yield (
            f"  waiting: {amount(waiting.held_rows)} rows of {len(waiting.shards)} shards are held: "
            f"{' and '.join(filter(None, (stopped, after)))}"
        )
    if waiting.diverted:
        yield f"  diverted: {amount(len(waiting.diverted))} rows, see `unshard row-errors`"


def _where(places: tuple[str, ...]) -> str:
    if not places:
        return ""
    shown = ", ".join(places[:3])
    return f" (not in {shown}{f' and {len(places) - 3} more' if len(places) > 3 else ''})"


def _told(verdict: TableResult, difference: RowDifference) -> str:
    key = difference.named(verdict.named_by)
    shards = f" [{', '.join(difference.shards)}]" if difference.shards else ""
    times = f" x{difference.count}" if difference.count > 1 else ""
    because = f", {REASONS[difference.because]}" if difference.because else ""
    return f"{difference.kind}{times}: {key}{shards}{because}"


def _summary(verdicts: tuple[TableResult, ...], equal: bool, seconds: float) -> str:
    rows = f"{amount(sum(verdict.rows_target for verdict in verdicts))} rows compared in {seconds:.1f} s"
    if equal:
        return f"target and union of the shards are equal: {len(verdicts)} table(s), {rows}"
    different = sum(each.differs for each in verdicts)
    unknown = sum(not (each.equal or each.differs) for each in verdicts)
    told = [f"target and union of the shards DIFFER in {different} of {len(verdicts)} table(s)"] if different else []
    told += [f"{unknown} of {len(verdicts)} table(s) have NO VERDICT"] if unknown else []
    return ", ".join([*told, rows])
