"""`unshard migrate`: the meta tables of this version, and nothing else."""

from argparse import Namespace
from pathlib import Path

from unshard.cli.console import Answer, Console
from unshard.config import load_task
from unshard.units.work import open_work


def migrate(options: Namespace, console: Console) -> Answer:
    """Create the meta tables, or bring them to this version; tables that are of it stay untouched."""
    task = load_task(Path(options.task))
    console.warn(task.warnings)
    with open_work(task) as work:
        version = work.meta.version()
    document = {"task": task.name, "warnings": [*task.warnings], "meta_schema": task.meta_schema, "version": version}
    return Answer(document, [f"the meta schema {task.meta_schema} has version {version}, this unshard's own"])
