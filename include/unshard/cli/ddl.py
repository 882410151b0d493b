"""`unshard ddl`: orders about statements of a source's binlog."""

import getpass
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unshard.adapters.meta.statementorders import OrderRecord, OrderState
from unshard.cli.console import Answer, Console, table
from unshard.config import Task, load_task
from unshard.core.ddlorders import Kind
from unshard.errors.config import UsageWrong
from unshard.units import ddlorders
from unshard.units.ddlorders import Asked, Step
from unshard.units.orders import one_line
from unshard.units.status import existing_meta
from unshard.units.work import Work, open_work

HEADER = ("ORDER", "SOURCE", "PLACE", "WHAT", "STATE", "BY", "GIVEN", "STATEMENT")


def ddl(options: Namespace, console: Console) -> Answer:
    """Give an order, take one back, or list all."""
    _require_usage(options)
    task = load_task(Path(options.task))
    console.warn(task.warnings)
    if options.action == "list":
        with existing_meta(task) as meta:
            return _listed(task, meta.statement_orders.all() if meta else ())
    with open_work(task, only_reads=options.dry_run) as work:
        return _given(options, console, task, work)


def _given(options: Namespace, console: Console, task: Task, work: Work) -> Answer:
    steps = _steps(work, options)
    effects = [line for step in steps for line in step.effects]
    if options.dry_run:
        document = {"task": task.name, "dry_run": True, "effects": effects}
        return Answer(document, [*effects, "dry run: nothing was done"])
    for line in effects:
        console.note(line)
    console.confirm(f"ddl {options.action}", options.yes)
    changed = [step.do(getpass.getuser(), "command line", options.reason) for step in steps]
    records = work.meta.statement_orders.all()
    document = {"task": task.name, "dry_run": False, "effects": effects, "changed": any(changed),
                "orders": [_document(each) for each in records]}  # fmt: skip
    said = "done; the next windows go on with it" if any(changed) else "nothing changed: that order was given already"
    waiting = [each for each in records if each.state is OrderState.WAITING]
    return Answer(document, [said, *_table(waiting)])


def _steps(work: Work, options: Namespace) -> tuple[Step, ...]:
    if options.action == "revert":
        if options.order:
            return (ddlorders.revert(work, options.order),)
        (source,) = ddlorders.listed_sources(work, options.source, False)
        return (ddlorders.revert(work, ddlorders.waiting_at(work, source, options.at, options.gtid)),)
    sources = tuple(ddlorders.listed_sources(work, options.source, options.all_sources))
    asked = Asked(Kind(options.action), tuple(options.sql), sources, options.at, options.gtid)
    return ddlorders.steps(work, asked)


def _require_usage(options: Namespace) -> None:
    """Raise UsageWrong where options contradict each other."""
    places = [bool(options.at), bool(options.gtid), options.current, options.order is not None]
    action, wrong = options.action, ""
    if action == "list":
        return
    if sum(places) != 1:
        wrong = "name the statement by one of --at, --gtid" + (", --order" if action == "revert" else ", --current")
    elif (options.order is not None) != (action == "revert" and not (options.at or options.gtid)):
        wrong = (
            "--order and revert belong together"
            if options.order is not None
            else "revert needs --order, --at or --gtid"
        )
    elif options.all_sources and (not options.current or options.source):
        wrong = "--all-sources goes with --current and without --source"
    elif bool(options.sql) != (action in ("replace", "inject")):
        wrong = f"{action} needs --sql" if not options.sql else f"{action} takes no --sql"
    if wrong:
        raise UsageWrong(wrong, "unshard ddl")


def _listed(task: Task, records: Iterable[OrderRecord]) -> Answer:
    found = tuple(records)
    waits = any(each.state is OrderState.WAITING for each in found)
    document = {"task": task.name, "orders": [_document(each) for each in found], "warnings": [*task.warnings]}
    return Answer(document, _table(found) or ["no order about a statement was given"], 3 if waits else 0)


def _table(records: Iterable[OrderRecord]) -> list[str]:
    lines = list(map(_row, records))
    return list(table(HEADER, lines)) if lines else []


def _row(each: OrderRecord) -> tuple[object, ...]:
    order, state = each.order, str(each.state)
    if each.state is OrderState.USED:
        state = f"used by window {each.window}"
    statements = "; ".join(map(one_line, order.statements))
    what = f"{order.kind.value}: {statements}" if statements else order.kind.value
    given = f"{each.given_at:%Y-%m-%d %H:%M:%S}"
    return (order.number, order.place.source, order.place.at or order.place.gtid, what, state, each.who, given,
            one_line(each.text) or "-")  # fmt: skip


def _document(each: OrderRecord) -> dict[str, Any]:
    order = each.order
    return {
        "order": order.number,
        "source": order.place.source,
        "at": str(order.place.at) if order.place.at else None,
        "gtid": order.place.gtid or None,
        "kind": order.kind,
        "statements": [*order.statements],
        "state": each.state,
        "by": each.who,
        "via": each.via,
        "reason": each.reason,
        "given_at": each.given_at.isoformat(),
        "ended_at": each.ended_at.isoformat() if each.ended_at else None,
        "window": each.window,
        "met": str(each.met) if each.met else None,
        "statement": each.text or None,
    }
