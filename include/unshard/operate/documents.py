"""Locks, differences, commands and suspended targets as JSON and as text.

The JSON API of the page in Airflow describes its answers by the dataclasses here. The command line prints the same
documents with --json.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from unshard.core.ddl.lock import MemberState
from unshard.core.shown import amount, as_document, as_json, listed, one_line, size
from unshard.core.task.state import PauseState
from unshard.core.window.suspension import SuspendedTarget
from unshard.errors import UnshardError
from unshard.operate.advice import advice_lines, after_correction, barred

if TYPE_CHECKING:
    from unshard.adapters.meta.commandrecords import OperatorAction
    from unshard.units.ddl.differences import DifferenceView
    from unshard.units.ddl.scene import LockView


@dataclass(frozen=True, slots=True)
class ErrorDocument:
    """A coded error."""

    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class PauseDocument:
    """The pause or stop of a task."""

    kind: str
    by: str
    via: str
    reason: str
    at: str


@dataclass(frozen=True, slots=True)
class SuspendedDocument:
    """A suspended target."""

    source: str
    target: str
    code: str
    column: str
    key: str
    error: str
    window: int
    times: int
    since: str


@dataclass(frozen=True, slots=True)
class DifferenceDocument:
    """An open difference of a target in optimistic mode."""

    id: str
    target: str
    subject: str
    state: str
    since: str
    have: list[str]
    lack: list[str]
    forms: dict[str, list[str]]
    to_reload: list[str]
    statements: list[str]
    when: str
    reason: str
    ddl: str
    held_rows: int


@dataclass(frozen=True, slots=True)
class CommandDocument:
    """A command that an operator has given."""

    lock: str
    command: str
    by: str
    via: str
    at: str
    reason: str
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConflictDocument:
    """A shard in conflict with a lock."""

    shard: str
    ddl: str
    differences: list[str]


@dataclass(frozen=True, slots=True)
class LockDocument:
    """A DDL lock with its ways out."""

    id: str
    target: str
    ddl: str
    state: str
    is_forced: bool
    opened_at: str
    resolved_at: str | None
    owner: str | None
    members: dict[str, str]
    ready: list[str]
    missing: list[str]
    conflicts: list[ConflictDocument]
    ways_out: list[str]
    not_offered: list[str]
    exempted: list[str]
    verdict: str
    statements: list[str]
    statements_done: int
    outcome: str | None
    held_rows: int
    held_bytes: int
    held_since: str | None
    error: str | None
    reason: str
    warning: str
    suspended_targets: list[SuspendedDocument]


def error_document(error: UnshardError) -> dict[str, str]:
    """Return an error as JSON."""
    return {"code": error.code, "message": error.message, "hint": error.next_step}


def difference_document(view: "DifferenceView") -> dict[str, Any]:
    """Return an open difference as JSON."""
    return as_document(view, DifferenceDocument, to_reload="reloads")


def command_document(command: "OperatorAction") -> dict[str, Any]:
    """Return an operator's command as JSON."""
    return as_document(command, CommandDocument, command="action", by="who", at="done_at")


def pause_document(pause: PauseState | None) -> dict[str, Any] | None:
    """Return the pause or stop of a task as JSON."""
    return as_document(pause, PauseDocument, by="who") if pause else None


def suspended_document(stop: SuspendedTarget) -> dict[str, Any]:
    """Return a suspended target as JSON."""
    cause = {"code": "refusal.code", "column": "refusal.column", "key": "refusal.key", "error": "refusal.words"}
    found = as_document(stop, SuspendedDocument, **cause)
    return found | {"error": one_line(stop.refusal.words)}


def lock_document(view: "LockView") -> dict[str, Any]:
    """Return a lock as JSON."""
    conflicts = zip(view.conflicts, view.conflicting, view.differences, strict=True)
    known = as_document(view, LockDocument, ways_out="ways", not_offered="barred", statements_done="done")
    return known | {
        "conflicts": [as_json({"shard": shard, "ddl": ddl, "differences": words}) for shard, ddl, words in conflicts],
        "ways_out": as_json(view.ways) if view.conflicts else [],
        "not_offered": [*barred(view)],
        "suspended_targets": [suspended_document(stop) for stop in view.stopped],
    }


# --- text -------------------------------------------------------------------------------------------------------------


def lock_lines(view: "LockView", task: str, *, explains: bool = True) -> list[str]:
    """Return the state of a lock and the commands that help, as text; `task` is the path of the task file.

    Without `explains` a suspended target is named without its error, which the caller prints.
    """
    ddl, warning = f"  ddl      {one_line(view.ddl)}", [f"  warning  {view.warning}"] if view.warning else []
    if not view.is_open:
        at = f"{view.resolved_at:%Y-%m-%d %H:%M:%S} UTC" if view.resolved_at else "now"
        head = f"lock {view.id}: resolved at {at}, {view.outcome or 'withdrawn'}"
        return [head, ddl, *(f"  instead  {one_line(text)}" for text in view.statements), *warning]
    absent = [source for source, state in view.members.items() if state is MemberState.ABSENT]
    done = ["(done) " if number < view.done else "" for number in range(len(view.statements))]
    return [
        f"lock {view.id}: {view.state}, open for {_age(view.opened_at)}",
        ddl,
        *(f"  instead  {before}{one_line(text)}" for before, text in zip(done, view.statements, strict=True)),
        *warning,
        f"  owner    {view.owner or '-'}",
        f"  ready    {listed(view.ready)}",
        f"  missing  {listed(view.missing)}",
        *_conflict_lines(view),
        *([f"  exempted {listed(view.exempted)}"] if view.exempted else []),
        *([f"  absent   {', '.join(absent)}: not loaded yet"] if absent else []),
        *([f"  reason   {one_line(view.reason)}"] if view.reason else []),
        *([f"  error    {view.error}"] if view.error else []),
        *(f"  waits    {stop if explains else stop.brief}" for stop in view.stopped),
        *([f"  held     {amount(view.held_rows)} rows, {size(view.held_bytes)}"] if view.held_rows else []),
        *(f"  {line}" for line in advice_lines(view, task)),
    ]


def _conflict_lines(view: "LockView") -> list[str]:
    found = []
    for shard, ddl, differences in zip(view.conflicts, view.conflicting, view.differences, strict=True):
        found.append(f"  conflict {shard}: {one_line(ddl)}")
        found += [f"           {difference}" for difference in differences]
    return found


def command_line(command: "OperatorAction") -> str:
    """Return an operator's command to a lock as text."""
    reason = f": {one_line(command.reason)}" if command.reason else ""
    at = f"{command.done_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"  command  {command.action} by {command.who} ({command.via}) at {at}{reason}"


def difference_lines(view: "DifferenceView") -> list[str]:
    """Return an open difference as text."""
    return [
        f"difference {view.id}: {view.target} {view.subject}: {view.progress}, open for {_age(view.since)}",
        *([f"  ddl      {one_line(view.ddl)}"] if view.ddl else []),
        *([f"  reason   {one_line(view.reason)}"] if view.reason else []),
        *(f"  shards   {text}: {listed(shards)}" for text, shards in view.forms.items()),
        *([f"  reload   {listed(view.reloads)}"] if view.reloads else []),
        *(f"  runs     {one_line(text)}" for text in view.statements),
        f"  when     {view.when}",
        *([f"  held     {amount(view.held_rows)} rows"] if view.held_rows else []),
    ]


def difference_line(view: "DifferenceView") -> str:
    """`target shop.orders: column c is open (1 of 8 shards): settled when 7 more shards have it`."""
    runs = "; ".join(map(one_line, view.statements))
    held = f", {amount(view.held_rows)} rows held" if view.held_rows else ""
    what = f"{view.subject} is {view.progress}{held}"
    return f"target {view.target}: {what}: {f'`{runs}` runs ' if runs else ''}{view.when}"


def suspended_lines(stop: SuspendedTarget, task: str) -> list[str]:
    """Return why a target is suspended and what helps, as text."""
    return [f"{stop}", f"  {after_correction(stop, task)}"]


def _age(since: datetime) -> str:
    minutes, seconds = divmod(max(0, int((datetime.now(UTC) - since).total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{seconds} s"
