"""`unshard ddl`: commands about statements of a source's binlog."""

import getpass
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

from unshard.adapters.meta.commandrecords import CommandRecord, CommandState
from unshard.cli.console import Answer, Console, table
from unshard.config import Task
from unshard.core.ddl.statementcommands import CommandKind
from unshard.core.shown import as_document, one_line
from unshard.errors.config import UsageWrong
from unshard.operate import statementrequests
from unshard.operate.statementrequests import Asked, Step
from unshard.units.begun import existing_meta
from unshard.units.work import Work, open_work

HEADER = ("NUMBER", "SOURCE", "PLACE", "COMMAND", "STATE", "BY", "AT", "STATEMENT")


def ddl_command(options: Namespace, console: Console) -> Answer:
    """Issue a command, revert one, or list all."""
    _require_usage(options)
    task = console.load(options.task)
    if options.action == "list":
        with existing_meta(task) as meta:
            return _listed(task, meta.statement_commands.all() if meta else (), console.width)
    with open_work(task, only_reads=options.dry_run) as work:
        return _issued(options, console, task, work)


def _issued(options: Namespace, console: Console, task: Task, work: Work) -> Answer:
    steps = _steps(work, options)
    effects = [line for step in steps for line in step.effects]
    if options.dry_run:
        document = {"task": task.name, "dry_run": True, "effects": effects}
        return Answer(document, [*effects, "dry run: nothing was done"])
    console.confirm(f"ddl {options.action}", options.yes, effects)
    changed = [step.do(getpass.getuser(), "command line", options.reason) for step in steps]
    records = work.meta.statement_commands.all()
    document = {
        "task": task.name,
        "dry_run": False,
        "effects": effects,
        "changed": any(changed),
        "commands": [_document(each) for each in records],
    }
    message = "done; the next windows use it" if any(changed) else "nothing changed: this command exists already"
    waiting = [each for each in records if each.state is CommandState.WAITING]
    return Answer(document, [message, *_table(waiting, console.width)])


def _steps(work: Work, options: Namespace) -> tuple[Step, ...]:
    if options.action == "revert":
        if options.number:
            return (statementrequests.revert(work, options.number),)
        (source,) = statementrequests.listed_sources(work, options.source, False)
        return (statementrequests.revert(work, statementrequests.waiting_at(work, source, options.at, options.gtid)),)
    sources = tuple(statementrequests.listed_sources(work, options.source, options.all_sources))
    asked = Asked(CommandKind(options.action), tuple(options.sql), sources, options.at, options.gtid)
    return statementrequests.command_steps(work, asked)


def _require_usage(options: Namespace) -> None:
    places = [bool(options.at), bool(options.gtid), options.current, options.number is not None]
    action, wrong = options.action, ""
    if action == "list":
        return
    if sum(places) != 1:
        wrong = "name the statement by one of --at, --gtid" + (", --number" if action == "revert" else ", --current")
    elif (options.number is not None) != (action == "revert" and not (options.at or options.gtid)):
        wrong = (
            "--number and revert belong together"
            if options.number is not None
            else "revert needs --number, --at or --gtid"
        )
    elif options.all_sources and (not options.current or options.source):
        wrong = "--all-sources goes with --current and without --source"
    elif bool(options.sql) != (action in ("replace", "inject")):
        wrong = f"{action} needs --sql" if not options.sql else f"{action} does not accept --sql"
    if wrong:
        raise UsageWrong(wrong, "unshard ddl")


def _listed(task: Task, records: Iterable[CommandRecord], width: int | None) -> Answer:
    found = tuple(records)
    waits = any(each.state is CommandState.WAITING for each in found)
    document = {"task": task.name, "commands": [_document(each) for each in found], "warnings": [*task.warnings]}
    return Answer(document, _table(found, width) or ["there is no command about a statement"], 3 if waits else 0)


def _table(records: Iterable[CommandRecord], width: int | None) -> list[str]:
    lines = list(map(_row, records))
    return table(HEADER, lines, width) if lines else []


def _row(each: CommandRecord) -> tuple[object, ...]:
    command, state = each.command, str(each.state)
    if each.state is CommandState.USED:
        state = f"used by window {each.window}"
    statements = "; ".join(map(one_line, command.statements))
    what = f"{command.kind.value}: {statements}" if statements else command.kind.value
    given = f"{each.given_at:%Y-%m-%d %H:%M:%S}"
    return (
        command.number,
        command.place.source,
        command.place.at or command.place.gtid,
        what,
        state,
        each.who,
        given,
        one_line(each.text) or "-",
    )


def _document(each: CommandRecord) -> dict[str, Any]:
    keys = "number source at gtid kind statements state by via reason given_at ended_at window met statement"
    paths = {key: f"command.{key}" for key in ("number", "kind", "statements")}
    paths |= {key: f"command.place.{key}" for key in ("source", "at", "gtid")}
    found = as_document(each, keys, by="who", statement="text", **paths)
    return found | {key: found[key] or None for key in ("gtid", "statement")}
