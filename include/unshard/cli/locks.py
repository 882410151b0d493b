"""`unshard locks`: waiting and missing shards of each lock, and the commands that resolve it."""

from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshard.adapters.meta.commandrecords import OperatorAction
from unshard.cli.console import Answer, Console
from unshard.cli.stops import suspended_document
from unshard.config import Task, environment_connections, load_task
from unshard.core.ddl.lock import LockState, MemberState
from unshard.core.ddl.lockcommands import Force
from unshard.core.model import Shard
from unshard.core.shown import amount, shell, size
from unshard.units.begun import existing_meta
from unshard.units.ddl import coordinate
from unshard.units.ddl.lockcommands import listed, one_line, shard_argument
from unshard.units.ddl.offers import as_text, barred, offers, with_another
from unshard.units.ddl.scene import LockView
from unshard.units.task.opendifferences import open_differences

if TYPE_CHECKING:
    from unshard.units.ddl.differences import DifferenceView

SHOWN_CONFLICTS = 3


def locks(options: Namespace, console: Console) -> Answer:
    """List the locks."""
    task = load_task(Path(options.task))
    console.warn_of(task)
    with existing_meta(task) as meta:
        views = coordinate.views(meta, resolved=options.all) if meta else ()
        orders = {view.id: meta.locks.actions(view.id) for view in views} if meta else {}
        found = open_differences(task, meta, environment_connections) if meta else ()
    is_open = [view for view in views if view.is_open]
    lines = [line for each in found for line in difference_lines(each)]
    lines += [line for view in views for line in (*lock_lines(task, view), *map(_command_line, orders[view.id]))]
    document = {
        "task": task.name,
        "locks": [lock_document(view) for view in views],
        "differences": [difference_document(each) for each in found],
        "commands": [command_document(order) for view in views for order in orders[view.id]],
        "warnings": [*task.warnings],
    }
    waits = bool(is_open) or any(each.needs_operator for each in found)
    return Answer(document, lines or ["no DDL lock is open"], 3 if waits else 0)


def difference_document(view: "DifferenceView") -> dict[str, Any]:
    """Return an open difference as JSON."""
    return {
        "id": view.id,
        "target": str(view.target),
        "subject": view.subject,
        "state": view.state,
        "since": view.since.isoformat(),
        "have": _names(view.have),
        "lack": _names(view.lack),
        "forms": {text: _names(shards) for text, shards in view.forms.items()},
        "to_reload": _names(view.reloads),
        "statements": [*view.statements],
        "when": view.when,
        "reason": view.reason,
        "ddl": view.ddl,
        "held_rows": view.held_rows,
    }


def difference_lines(view: "DifferenceView") -> list[str]:
    """Return an open difference as text."""
    lines = [f"difference {view.id}: {view.target} {view.subject}: {view.progress}, open for {_age(view.since)}"]
    lines += [f"  ddl      {one_line(view.ddl)}"] if view.ddl else []
    lines += [f"  reason   {one_line(view.reason)}"] if view.reason else []
    lines += [f"  shards   {text}: {listed(shards)}" for text, shards in view.forms.items()]
    lines += [f"  reload   {listed(view.reloads)}"] if view.reloads else []
    lines += [f"  runs     {one_line(text)}" for text in view.statements]
    lines += [f"  when     {view.when}"]
    lines += [f"  held     {amount(view.held_rows)} rows"] if view.held_rows else []
    return lines


def difference_line(view: "DifferenceView") -> str:
    """`target shop.orders: column c is open (1 of 8 shards): settled when 7 more shards have it`."""
    runs = "; ".join(map(one_line, view.statements))
    held = f", {amount(view.held_rows)} rows held" if view.held_rows else ""
    what = f"{view.subject} is {view.progress}{held}"
    return f"target {view.target}: {what}: {f'`{runs}` runs ' if runs else ''}{view.when}"


def lock_document(view: LockView) -> dict[str, Any]:
    """Return a lock as JSON."""
    return {
        "id": view.id,
        "target": str(view.target),
        "ddl": view.ddl,
        "state": view.state,
        "is_forced": view.is_forced,
        "opened_at": view.opened_at.isoformat(),
        "resolved_at": view.resolved_at.isoformat() if view.resolved_at else None,
        "owner": view.owner,
        "members": {source: str(state) for source, state in view.members.items()},
        "ready": _names(view.ready),
        "missing": _names(view.missing),
        "conflicts": [
            {"shard": str(shard), "ddl": ddl, "differences": [*differences]}
            for shard, ddl, differences in zip(view.conflicts, view.conflicting, view.differences, strict=True)
        ],
        "ways_out": [str(way) for way in view.ways] if view.conflicts else [],
        "not_offered": [*barred(view)],
        "exempted": _names(view.exempted),
        "verdict": view.verdict,
        "statements": [*view.statements],
        "statements_done": view.done,
        "outcome": view.outcome,
        "held_rows": view.held_rows,
        "held_bytes": view.held_bytes,
        "error": view.error,
        "reason": view.reason,
        "warning": view.warning,
        "suspended_targets": [suspended_document(stop) for stop in view.stopped],
    }


def command_document(order: OperatorAction) -> dict[str, Any]:
    """Return an operator's command as JSON."""
    return {
        "lock": order.lock,
        "command": order.action,
        "by": str(order.who),
        "via": order.via,
        "at": order.done_at.isoformat(),
        "reason": order.reason,
        "details": dict(order.details),
    }


def _command_line(order: OperatorAction) -> str:
    reason = f": {one_line(order.reason)}" if order.reason else ""
    return f"  command  {order.action} by {order.who} ({order.via}) at {order.done_at:%Y-%m-%d %H:%M:%S} UTC{reason}"


def lock_lines(task: Task, view: LockView, *, explains: bool = True) -> list[str]:
    """Return the state of a lock and the commands that help, as text.

    Without `explains` a suspended target is named without its error, which the caller prints.
    """
    if not view.is_open:
        at = f"{view.resolved_at:%Y-%m-%d %H:%M:%S} UTC" if view.resolved_at else "now"
        return [
            f"lock {view.id}: resolved at {at}, {view.outcome or 'withdrawn'}",
            f"  ddl      {one_line(view.ddl)}",
            *(f"  instead  {one_line(text)}" for text in view.statements),
            *_warning_lines(view),
        ]
    absent = [source for source, state in view.members.items() if state is MemberState.ABSENT]
    lines = [
        f"lock {view.id}: {view.state}, open for {_age(view.opened_at)}",
        f"  ddl      {one_line(view.ddl)}",
        *(f"  instead  {_step(view, number)}{one_line(text)}" for number, text in enumerate(view.statements)),
        *_warning_lines(view),
        f"  owner    {view.owner or '-'}",
        f"  ready    {listed(view.ready)}",
        f"  missing  {listed(view.missing)}",
        *_conflict_lines(view),
    ]
    if view.exempted:
        lines.append(f"  exempted {listed(view.exempted)}")
    if absent:
        lines.append(f"  absent   {', '.join(absent)}: not loaded yet")
    if view.reason:
        lines.append(f"  reason   {one_line(view.reason)}")
    if view.error:
        lines.append(f"  error    {view.error}")
    lines += [f"  waits    {stop if explains else stop.brief}" for stop in view.stopped]
    if view.held_rows:
        lines.append(f"  held     {amount(view.held_rows)} rows, {size(view.held_bytes)}")
    return [*lines, *(f"  {line}" for line in helping(str(task.path), view))]


def helping(task: str, view: LockView) -> list[str]:
    """Return the commands for an open lock, one per line."""
    at = f"{shell(task)} {shell(view.id)}"
    force = f"unshard unlock {at}"
    if view.is_joined:
        return _of_joined(task, at, view)
    if view.state in (LockState.UNDECIDED, LockState.FAILED):
        return _after_a_refusal(task, at, view)
    if view.conflicts:
        again = [f"if the target may accept it now: {_again(task, view)}"] if view.is_refused else []
        return [*again, *_out_of_conflict(task, view)]
    if view.missing:
        gone = f"unshard drop-shard {at} --shard {shell(shard_argument(view.missing[0]))}"
        return [
            f"run the same DDL on the missing shards, or continue without them: {force}",
            f"  a shard that is gone for good: {gone}",
        ]
    if view.stopped:
        return [f"when the cause is corrected: unshard retry {shell(task)} --table {shell(str(view.target))}"]
    return [f"the next windows continue automatically; to continue without waiting: {force}"]


def _of_joined(task: str, at: str, view: LockView) -> list[str]:
    """Return the ways out for a DDL of a shard whose target follows the join: only this shard waits."""
    shard = shell(shard_argument(view.ready[0])) if view.ready else "SHARD"
    gone = f"  take it out of its group for good: unshard drop-shard {at} --shard {shard}"
    skip = f"  its rows without the columns that have no place: unshard skip {at} --shard {shard}"
    if view.state is LockState.UNDECIDED:
        return [
            "only the rows of the ready shards wait until you decide what the DDL means for the target:",
            *([f"  if the target may accept it now: {_again(task, view)}"] if view.is_refused else ()),
            f"  it counts as other statements: unshard replace {at} --shard {shard} --sql …",
            *(() if view.is_contradicted else (skip,)),
            gone,
        ]
    again = [f"correct the cause of the error; the next windows, or `unshard run {shell(task)}`, try it again"]
    return [
        *(again if view.error else ()),
        "only the rows of the ready shards wait. It ends when the shards agree, or when this shard goes back; else:",
        skip,
        gone,
    ]


def _after_a_refusal(task: str, at: str, view: LockView) -> list[str]:
    """Return the commands for a DDL whose effect is unknown or that the target has refused."""
    shard = shell(shard_argument(view.ready[0])) if view.ready else "SHARD"
    if view.is_undescribed:
        return [f"describe the shard: unshard replace {at} --shard {shard} --sql 'CREATE TABLE …'"]
    if view.lacks_place:
        (offer,) = offers(view)
        return [
            "decide what the DDL means for the target:",
            f"  {offer.text}: {as_text(offer.commands[0], task)}",
            *(f"  not {why}" for why in barred(view)),
            f"  take it out of its group for good: unshard drop-shard {at} --shard {shard}",
        ]
    ways = [f"without executing anything: unshard skip {at}", f"other statements instead: unshard replace {at} --sql …"]
    if view.is_refused:
        ways = [f"if the target may accept it now: {_again(task, view)}", *ways]
    if view.state is LockState.FAILED:
        return [f"correct the cause of the error, then: unshard run {shell(task)}", *(f"  {way}" for way in ways)]
    ways.append(f"as the DDL of one shard, to join its group: unshard replace {at} --shard {shard} --sql …")
    return ["decide what the DDL means for the target:", *(f"  {way}" for way in ways)]


def _again(task: str, view: LockView) -> str:
    return f"unshard retry {shell(task)} --lock {shell(view.id)}"


def _out_of_conflict(task: str, view: LockView) -> list[str]:
    """Return the ways out of a conflict that lead the rows of all shards into the target, and why others do not."""
    found = offers(view, SHOWN_CONFLICTS)
    if found and not with_another(view):
        return [f"{found[0].text}: {as_text(found[0].commands[0], task)}"]
    lines = []
    for offer in found:
        first, *then = (as_text(command, task) for command in offer.commands)
        lines += [f"  {offer.text}: {first}", *(f"  then: {text}" for text in then)]
    head = ["decide what the DDL of the shards in conflict counts as; the rows of all shards reach the target:", *lines]
    if not lines:
        head = [
            "no usual command gives every column of the shards a place in the target: replace the DDL with statements"
            f" that do: unshard replace {shell(task)} {shell(view.id)} --sql …",
            f"  then: {as_text(Force(view.id), task)}",
        ]
    return [*head, *(f"  not {why}" for why in barred(view))]


def _step(view: LockView, number: int) -> str:
    return "(done) " if number < view.done else ""


def _warning_lines(view: LockView) -> list[str]:
    return [f"  warning  {view.warning}"] if view.warning else []


def _conflict_lines(view: LockView) -> list[str]:
    lines = []
    for shard, ddl, differences in zip(view.conflicts, view.conflicting, view.differences, strict=True):
        lines.append(f"  conflict {shard}: {one_line(ddl)}")
        lines += [f"           {difference}" for difference in differences]
    return lines


def _names(shards: Sequence[Shard]) -> list[str]:
    return [str(shard) for shard in shards]


def _age(since: datetime) -> str:
    """`3 min`, `2 h 5 min`."""
    minutes, seconds = divmod(max(0, int((datetime.now(UTC) - since).total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{seconds} s"
