"""`unshard repair`: make the rows whose difference is proven those of their shards."""

import getpass
import json
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unshard.adapters.privatefiles import create
from unshard.adapters.target.session import OWN_SESSION
from unshard.cli.console import Answer, Console
from unshard.cli.display import Display
from unshard.cli.validatecommand import shown_progress, table_named
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.model import TableId
from unshard.core.shown import amount
from unshard.core.validate.rowdifferences import DifferenceKind, FoldedKey, RowDifference, folded_key
from unshard.errors.config import UsageWrong
from unshard.units.checks.backups import refuse_older
from unshard.units.validate.repairing import (
    REPAIR,
    Chosen,
    TableRepair,
    every_key,
    plan_repair,
    repair,
    repair_document,
)
from unshard.units.validate.validate import Settings
from unshard.units.work import Work, open_work

SHOWN = 20
VERBS = {
    DifferenceKind.MISSING: "insert",
    DifferenceKind.EXTRA: "delete",
    DifferenceKind.DIFFERENT: "update",
}


def repair_command(options: Namespace, console: Console) -> Answer:
    """Compare, show what a repair would do, and do it; exit code 1 if a difference is left."""
    task = console.load(options.task)
    tables = [table_named(name) for name in options.table]
    chosen = _chosen(Path(options.keys)) if options.keys else every_key
    settings = Settings(wait=options.wait)
    with open_work(task, only_reads=options.dry_run) as work:
        refuse_older(work)
        with Display(console) as display:
            plans = plan_repair(work, tables, settings, lambda told: display.tell(shown_progress(told)), chosen)
        effects = [line for plan in plans for line in _effects(plan)]
        document: dict[str, Any] = {"task": task.name, "dry_run": options.dry_run}
        if options.dry_run or not any(plan.planned for plan in plans):
            done = plans
            told = "dry run: nothing was done" if options.dry_run else "nothing to repair"
        elif options.sql:
            done, told = _written(Path(options.sql), work, plans, settings)
            effects = [line for plan in done for line in _effects(plan)]
        else:
            keys = sum(len(plan.planned) for plan in plans)
            console.confirm(f"repair {amount(keys)} rows of the target", options.yes, effects)
            command = IssuedCommand(REPAIR, getpass.getuser(), "command line", options.reason)
            with Display(console) as display:
                done = repair(work, plans, command, settings, lambda *told: display.tell(_progress(*told)))
            effects = [line for plan in done for line in _results(plan)]
            told = f"{amount(sum(len(each.repaired) for each in done))} rows are repaired"
    document["tables"] = [repair_document(each) for each in done]
    return Answer(document, [*effects, told], 0 if all(each.is_done for each in done) or options.dry_run else 1)


def _written(
    path: Path, work: Work, plans: Sequence[TableRepair], settings: Settings
) -> tuple[tuple[TableRepair, ...], str]:
    """Write the statements of a repair into a new file that only its owner may read, and execute none."""
    statements: list[str] = []
    found = repair(work, plans, IssuedCommand(REPAIR, "", "", ""), settings, tell=statements.append)
    lines = ("SET NAMES utf8mb4", OWN_SESSION[0], "BEGIN", *statements, "COMMIT")
    try:
        with open(create(path), "w", encoding="utf-8") as file:
            file.writelines(f"{each};\n" for each in lines)
    except OSError as error:
        raise UsageWrong(f"--sql {path}: {error.strerror}", "unshard repair") from error
    told = f"{amount(len(statements))} statements are in {path}; nothing was done"
    return tuple(replace(each, repaired=()) for each in found), told


def _progress(target: TableId, keys: int) -> str:
    return f"repairing {target}: {amount(keys)} rows"


def _chosen(path: Path) -> Chosen:
    """Read the keys of a file that `unshard validate --json` or `unshard repair --dry-run --json` has written."""
    try:
        tables = json.loads(path.read_text())["tables"]
        keys: set[tuple[str, FoldedKey]] = {
            (table["target"], folded_key(tuple(each["key"].values())))
            for table in tables
            for each in [*table.get("differences", ()), *table.get("to_repair", ())]
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = f"--keys {path}: write the output of `unshard validate --json` into it ({type(error).__name__})"
        raise UsageWrong(said, "unshard repair") from error
    return lambda target, key: (str(target), key) in keys


def _effects(plan: TableRepair) -> list[str]:
    """Say what a repair would do to a table."""
    if plan.result.error:
        return [f"{plan.target}: cannot be compared, {plan.result.error}"]
    counts = Counter(VERBS[each.kind] for each in plan.planned)
    what = ", ".join(f"{verb} {amount(count)}" for verb, count in sorted(counts.items())) or "nothing to repair"
    return [f"{plan.target}: {what}", *_named(plan, plan.planned), *_left(plan)]


def _results(plan: TableRepair) -> list[str]:
    return [f"{plan.target}: {amount(len(plan.repaired))} rows are repaired", *_left(plan)]


def _left(plan: TableRepair) -> list[str]:
    lines = [f"  left: {_key(plan, each.difference)}: {each.why}" for each in plan.left[:SHOWN]]
    if len(plan.left) > SHOWN:
        lines.append(f"  left: {amount(len(plan.left) - SHOWN)} more")
    if plan.result.pending:
        lines.append(f"  pending: {amount(len(plan.result.pending))} keys, whose changes may be on their way")
    return lines


def _named(plan: TableRepair, differences: Sequence[RowDifference]) -> list[str]:
    lines = [f"  {VERBS[each.kind]} {_key(plan, each)}" for each in differences[:SHOWN]]
    return [*lines, f"  and {amount(len(differences) - SHOWN)} more"] if len(differences) > SHOWN else lines


def _key(plan: TableRepair, difference: RowDifference) -> str:
    shards = f" of {', '.join(difference.shards)}" if difference.shards else ""
    return difference.named(plan.result.named_by) + shards
