"""`unshard reload`: read columns of a shard again and write them into the target."""

import getpass
from argparse import Namespace
from typing import Any

from unshard.cli.console import Answer, Console
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.rows.columnreload import Reload, continues
from unshard.core.shown import amount, as_document
from unshard.errors.config import UsageWrong

ACCEPT = "accept-values"


def reload(options: Namespace, console: Console) -> Answer:
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
        order = IssuedCommand(RELOAD, getpass.getuser(), "command line", options.reason, details)
        done = reload_columns(work, shard, columns, order, lambda each: console.note(reload_line(each)))
    return Answer({**document, "reload": reload_document(done)}, [reload_line(done)])


def reload_document(each: Reload) -> dict[str, Any]:
    """Return a reload as JSON."""
    return as_document(each, "shard target columns state chunks rows_read rows_changed began_at changed_at")


def reload_line(each: Reload) -> str:
    """`reload of c of s1:shop_1.orders_1: reading, 12 chunks, 60,000 rows read, 58,000 changed`."""
    counts = f"{amount(each.chunks)} chunks, {amount(each.rows_read)} rows read, {amount(each.rows_changed)} changed"
    return f"reload of {', '.join(each.columns)} of {each.shard}: {each.state}, {counts}"
