"""`unshard row-errors`: diverted rows, which a target could not store."""

from argparse import Namespace
from pathlib import Path

from unshard.cli.console import Answer, Console, table
from unshard.config import load_task
from unshard.core.rows.rowerrors import RowError, RowErrorState
from unshard.core.shown import amount, as_document, one_line
from unshard.units.begun import existing_meta

HEADER = ("TARGET", "KEY", "COLUMN", "SHARD", "WINDOW", "STATE", "TIMES", "LAST", "ERROR")
SHOWN = 1000
KEYS = "target key column shard error row window state times first_at last_at"


def row_errors(options: Namespace, console: Console) -> Answer:
    """List diverted rows; those that the target still lacks come first."""
    task = load_task(Path(options.task))
    console.warn_of(task)
    with existing_meta(task) as meta:
        found = meta.row_errors.all(SHOWN, only_open=not options.all) if meta else ()
    is_open = [each for each in found if each.state is RowErrorState.OPEN]
    document = {
        "task": task.name,
        "warnings": [*task.warnings],
        "row_errors": [as_document(each, KEYS, error="words") for each in found],
    }
    lines = table(HEADER, map(_row, found), console.width) if found else ["no row was diverted"]
    if is_open:
        lines.append(
            "the target lacks these rows: correct them in their shards; or alter the target, then update them there"
        )
    return Answer(document, lines, 3 if is_open else 0)


def _row(each: RowError) -> tuple[object, ...]:
    last = f"{each.last_at:%Y-%m-%d %H:%M:%S}"
    return (
        each.target,
        each.key,
        each.column,
        each.shard,
        each.window,
        each.state,
        amount(each.times),
        last,
        one_line(each.words),
    )
