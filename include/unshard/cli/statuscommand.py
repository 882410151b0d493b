"""`unshard status`: one row per source."""

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unshard.adapters.meta.problemrecords import DeletedShard
from unshard.cli.console import Answer, Console, table
from unshard.cli.problems import reload_line
from unshard.config import Task, environment_connections
from unshard.core.ddl.online import OnlineTable
from unshard.core.full.fullprogress import Progress
from unshard.core.rows.writepath import Writing
from unshard.core.shown import amount, lasting, one_line, shell, size
from unshard.core.task.state import Phase
from unshard.operate.documents import difference_line, suspended_lines
from unshard.operate.statusdocument import status_document, write_sessions
from unshard.units.begun import existing_meta
from unshard.units.task.opendifferences import open_differences
from unshard.units.task.status import Remarks, SourceStatus, condition_of_task, lag_of_task, remarks, status_in

if TYPE_CHECKING:
    from unshard.units.ddl.differences import DifferenceView

HEADER = ("SOURCE", "PHASE", "POSITION", "UPSTREAM", "LAG", "BEHIND", "APPLIED", "HELD", "DUMP", "LOAD")


def _writing(task: Task, writing: Writing | None) -> str:
    if writing is None:
        return "the way of writing rows is not known yet"
    most = max(write_sessions(task, writing).values(), default=1)
    return f"{writing.told}; up to {most} session{'s' * (most > 1)} of a source write one table"


def status_command(options: Namespace, console: Console) -> Answer:
    """Show the position and progress of every source."""
    task = console.load(options.task)
    with existing_meta(task) as meta:
        sources = status_in(meta, task)
        told = remarks(meta, task.sources)
        differences = open_differences(task, meta, environment_connections) if meta else ()
    document = status_document(task, sources, told, differences)
    resume = f"unshard resume {shell(options.task)}"
    paused = [f"task {task.name} is {told.pause}; `{resume}` continues it"] if told.pause else []
    head = [*paused, *table(HEADER, map(_row, sources), console.width), _summary(task, sources, told)]
    lines = [_writing(task, told.writing), *_lines(options.task, told, sources, differences)]
    return Answer(document, [*head, *lines], 1 if document["errors"] else 0)


def _lines(
    path: str, told: Remarks, sources: Sequence[SourceStatus], differences: "Sequence[DifferenceView]"
) -> list[str]:
    lines = [f"source {each.source}: {each.error}" for each in sources if each.error]
    lines += [_full(each) for each in sources if each.dump.chunks and each.phase.order < Phase.LOADED.order]
    lines += map(_held, (each for each in sources if each.held_since))
    lines += [_online(*each) for each in told.online]
    lines += [
        f"source {each.source} at {each.passed.location}: ignored, because it cannot be parsed and names no "
        f"shard: {one_line(each.passed.text)}"
        for each in told.passed
    ]
    lines += [f"lock {lock.id}: {lock.warning}" for lock in told.warned]
    lines += map(difference_line, differences)
    lines += [f"{reload_line(each)}; continue it by the same command" for each in told.reloads if not each.is_done]
    lines += [
        f"target {lock.target}: the source ran `{one_line(lock.ddl)}` at {lock.opened_at:%Y-%m-%d %H:%M:%S} UTC"
        for lock in told.removed
    ]
    lines += map(_deleted, told.deleted)
    lines += [line for stop in told.stops for line in suspended_lines(stop, path)]
    lines += [
        f"target {target}: {amount(rows)} rows were diverted; see `unshard row-errors {shell(path)}`"
        for target, rows in told.diverted.items()
    ]
    lines += [
        f"target {target}: {amount(rows)} rows are deferred to a later change, until the end of safe mode"
        for target, rows in told.deferred.items()
    ]
    lines += [_collisions(each, path) for each in sources if each.collisions]
    lines += [f"target {each.target}: {each}" for each in told.proofs]
    return lines


def _summary(task: Task, sources: Sequence[SourceStatus], told: Remarks) -> str:
    lag, state = lag_of_task(sources), condition_of_task(sources, told.pause)
    errors = sum(each.error is not None for each in sources)
    counts = {"error": errors, "suspended target": len({stop.target for stop in told.stops})}
    shown = ", ".join(f"{count} {what}{'s' * (count > 1)}" for what, count in counts.items() if count)
    return f"task {task.name}: {state}, lag {lag}, {shown or 'no errors'}"


def _online(source: str, online_table: OnlineTable) -> str:
    """`source s1: online DDL of shop_1.orders_1 by shop_1._orders_1_new since 2026-01-01 00:00:00 UTC: ALTER …`."""
    since = (
        f"since {online_table.made_at:%Y-%m-%d %H:%M:%S} UTC" if online_table.made_at else "since before the snapshot"
    )
    ran = [one_line(statement.text) for statement in online_table.statements]
    ran += [] if online_table.is_whole else ["(its first statements are not known)"]
    told = "; ".join(ran) or "nothing yet"
    shown = f"{online_table.real} by {online_table.table} ({online_table.seen})"
    return f"source {source}: online DDL of {shown} {since}: {told}"


def _deleted(each: DeletedShard) -> str:
    rows = f"{amount(each.rows)} rows of shard {each.shard} were deleted at {each.at:%Y-%m-%d %H:%M:%S} UTC"
    return f"target {each.target}: {rows}, because the source ran `{one_line(each.statement)}`"


def _row(each: SourceStatus) -> tuple[object, ...]:
    return (
        each.source,
        each.phase,
        each.position,
        each.upstream or ("unreachable" if each.error else None),
        each.lag,
        None if each.lag_bytes is None else size(each.lag_bytes),
        amount(each.rows_applied),
        amount(each.rows_held),
        _done(each.dump),
        _done(each.load),
    )


def _full(each: SourceStatus) -> str:
    """`source s1: dumped 45 %, 120,000 rows, 3.1 MiB, 30,000 rows/s, 1.2 MiB/s, 2 min left`."""
    is_dumped = each.phase.order >= Phase.DUMPED.order
    return f"source {each.source}: {f'loaded {each.load}' if is_dumped else f'dumped {each.dump}'}"


def _held(each: SourceStatus) -> str:
    """`source s1: 120 rows (4.1 kB) are held since 2026-01-01 00:00:00 UTC, the oldest was changed 3 min 20 s ago`."""
    what = f"{amount(each.rows_held)} rows ({size(each.bytes_held)})"
    age = "" if each.held_lag is None else f", the oldest was changed {lasting(each.held_lag)} ago"
    return f"source {each.source}: {what} are held since {each.held_since:%Y-%m-%d %H:%M:%S} UTC{age}"


def _collisions(each: SourceStatus, task: str) -> str:
    told = ", ".join(f"{amount(number)} {state}" for state, number in each.collisions.items())
    return f"source {each.source}: collisions with other shards: {told}; see `unshard collisions {shell(task)} --all`"


def _done(progress: Progress) -> str | None:
    """`37.5 %, 3/8 chunks, 120,000 rows`."""
    if not progress.chunks:
        return None
    return f"{progress.percent:g} %, {progress.done}/{progress.chunks} chunks, {amount(progress.rows)} rows"
