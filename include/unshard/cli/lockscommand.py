"""`unshard locks`: waiting and missing shards of each lock, and the commands that resolve it."""

from argparse import Namespace

from unshard.cli.console import Answer, Console
from unshard.config import environment_connections
from unshard.operate.documents import (
    command_document,
    command_line,
    difference_document,
    difference_lines,
    lock_document,
    lock_lines,
)
from unshard.units.begun import existing_meta
from unshard.units.ddl import coordinate
from unshard.units.task.opendifferences import open_differences


def locks_command(options: Namespace, console: Console) -> Answer:
    """List the locks."""
    task = console.load(options.task)
    with existing_meta(task) as meta:
        views = coordinate.views(meta, resolved=options.all) if meta else ()
        commands = {view.id: meta.locks.actions(view.id) for view in views} if meta else {}
        found = open_differences(task, meta, environment_connections) if meta else ()
    lines = [line for each in found for line in difference_lines(each)]
    for view in views:
        lines += [*lock_lines(view, str(task.path)), *map(command_line, commands[view.id])]
    document = {
        "task": task.name,
        "locks": [lock_document(view) for view in views],
        "differences": [difference_document(each) for each in found],
        "commands": [command_document(command) for view in views for command in commands[view.id]],
        "warnings": [*task.warnings],
    }
    waits = any(view.is_open for view in views) or any(each.needs_operator for each in found)
    return Answer(document, lines or ["no DDL lock is open"], 3 if waits else 0)
