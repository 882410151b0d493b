"""Problems of rows: `collisions` (keys that two shards have), `row-errors` (diverted rows), `reload` (of columns)."""

import getpass
from argparse import Namespace
from typing import Any

from unshard.cli.console import Answer, Console, table
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.rows.columnreload import Reload, continues
from unshard.core.rows.rowerrors import Found, KeyCollision, RecordedCollision, RowError, RowErrorState
from unshard.core.shown import amount, as_document, one_line
from unshard.core.sql.quoting import qualified
from unshard.errors.config import UsageWrong
from unshard.operate.statusdocument import reload_document
from unshard.units.begun import existing_meta

COLLISIONS = ("TARGET", "KEY", "SHARD", "OWNER", "FOUND IN", "STATE", "TIMES", "LAST")
ROW_ERRORS = ("TARGET", "KEY", "COLUMN", "SHARD", "WINDOW", "STATE", "TIMES", "LAST", "ERROR")
KEYS = "target key column shard error row window state times first_at last_at"
SHOWN = 1000


def collisions_command(options: Namespace, console: Console) -> Answer:
    """List collisions, open ones first."""
    task = console.load(options.task)
    with existing_meta(task) as meta:
        found = meta.collisions.all(SHOWN, only_open=not options.all) if meta else ()
    document = {"task": task.name, "warnings": [*task.warnings], "collisions": [_document(each) for each in found]}
    none = f"no collision {'was found' if options.all else 'is open'}"
    lines = table(COLLISIONS, map(_collision_row, found), console.width) if found else [none]
    is_open = [each for each in found if each.is_open]
    if is_open:
        lines += [
            "remove or change the row in one of its two shards, then run the task again to continue;",
            "or set on-duplicate to replace or ignore in the task file",
        ]
    left = (each.collision for each in is_open if each.found is Found.WINDOW and not each.collision.owner)
    lines += [line for collision in left for line in _left(collision)]
    return Answer(document, lines, 3 if is_open else 0)


def _left(collision: KeyCollision) -> tuple[str, ...]:
    """Return the remedy for a row of the target that belongs to no known shard."""
    if not collision.condition:
        return ()
    table = qualified(collision.target.schema, collision.target.name)
    return (
        f"no other shard is known to have {collision.key}: TRUNCATE and DROP leave a shard's rows in the target;"
        " if so, remove the row there:",
        f"  DELETE FROM {table} WHERE {collision.condition}",  # noqa: S608
    )


def _document(each: RecordedCollision) -> dict[str, Any]:
    keys = "target key shard owner found window state times others first_at last_at"
    return as_document(each, keys, **{key: f"collision.{key}" for key in ("target", "key", "shard", "owner", "others")})


def _collision_row(each: RecordedCollision) -> tuple[object, ...]:
    collision = each.collision
    key = f"{collision.key} and {amount(collision.others)} more" if collision.others else collision.key
    place = "load" if each.found is Found.LOAD else f"window {each.window}"
    last = f"{each.last_at:%Y-%m-%d %H:%M:%S}"
    return collision.target, key, collision.shard, collision.owner, place, each.state, amount(each.times), last


def row_errors_command(options: Namespace, console: Console) -> Answer:
    """List diverted rows; those that the target still lacks come first."""
    task = console.load(options.task)
    with existing_meta(task) as meta:
        found = meta.row_errors.all(SHOWN, only_open=not options.all) if meta else ()
    is_open = [each for each in found if each.state is RowErrorState.OPEN]
    documents = [as_document(each, KEYS, error="words") for each in found]
    lines = table(ROW_ERRORS, map(_error_row, found), console.width) if found else ["no row was diverted"]
    if is_open:
        lines.append(
            "the target lacks these rows: correct them in their shards; or alter the target, then update them there"
        )
    document = {"task": task.name, "warnings": [*task.warnings], "row_errors": documents}
    return Answer(document, lines, 3 if is_open else 0)


def _error_row(each: RowError) -> tuple[object, ...]:
    place, last = (each.target, each.key, each.column, each.shard, each.window), f"{each.last_at:%Y-%m-%d %H:%M:%S}"
    return *place, each.state, amount(each.times), last, one_line(each.words)


ACCEPT = "accept-values"


def reload_command(options: Namespace, console: Console) -> Answer:
    """Reload columns of one shard, or continue that."""
    from unshard.units.checks.backups import refuse_older
    from unshard.units.task.optimistic import accept_values
    from unshard.units.window.reloading import RELOAD, plan_reload, reload_columns, shard_named
    from unshard.units.work import open_work

    columns = tuple(dict.fromkeys(name.strip().lower() for name in options.columns.split(",") if name.strip()))
    if not columns:
        raise UsageWrong("--columns names no column", "unshard reload")
    task = console.load(options.task)
    with open_work(task, only_reads=options.dry_run) as work:
        refuse_older(work)
        shard = shard_named(work, options.shard)
        details = {"shard": str(shard), "columns": [*columns]}
        if options.accept:
            accept_values(work, shard, columns, None)
            text = f"end the difference: the values of {', '.join(columns)} of {shard} in the target count as right"
            if not options.dry_run:
                console.confirm(text, options.yes)
                user = getpass.getuser()
                accept_values(
                    work, shard, columns, IssuedCommand(ACCEPT, user, "command line", options.reason, details)
                )
            document = {"task": task.name, "dry_run": options.dry_run, "effects": [text]}
            return Answer(document, [text, "dry run: nothing was done" if options.dry_run else "done"])
        plan = plan_reload(work, shard, columns)
        found = work.meta.reloads.get(shard, columns)
        target, names = plan.state.target, ", ".join(columns)
        effects = [f"read {names} of all rows of {shard} again and update {target}; windows go on meanwhile"]
        if found is not None and continues(found, plan.basis):
            effects.append(f"continue: {reload_line(found)}")
        document = {"task": task.name, "dry_run": options.dry_run, "effects": effects}
        if options.dry_run:
            return Answer(document, [*effects, "dry run: nothing was done"])
        console.confirm(f"reload {names} of {shard}", options.yes, effects)
        command = IssuedCommand(RELOAD, getpass.getuser(), "command line", options.reason, details)
        done = reload_columns(work, shard, columns, command, lambda each: console.note(reload_line(each)))
    return Answer({**document, "reload": reload_document(done)}, [reload_line(done)])


def reload_line(each: Reload) -> str:
    """`reload of c of s1:shop_1.orders_1: reading, 12 chunks, 60,000 rows read, 58,000 changed`."""
    counts = f"{amount(each.chunks)} chunks, {amount(each.rows_read)} rows read, {amount(each.rows_changed)} changed"
    return f"reload of {', '.join(each.columns)} of {each.shard}: {each.state}, {counts}"
