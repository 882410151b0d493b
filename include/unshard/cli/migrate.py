"""`unshard migrate`: create or migrate the meta tables, and nothing else."""

from argparse import Namespace
from pathlib import Path

from unshard.cli.console import Answer, Console
from unshard.config import load_task
from unshard.units.work import open_work


def migrate(options: Namespace, console: Console) -> Answer:
    """Create the meta tables or migrate them to this version; current tables stay as they are."""
    task = load_task(Path(options.task))
    console.warn_of(task)
    with open_work(task) as work:
        version = work.meta.version()
    document = {"task": task.name, "warnings": [*task.warnings], "meta_schema": task.meta_schema, "version": version}
    return Answer(document, [f"the meta schema {task.meta_schema} has version {version}, the version of this unshard"])
