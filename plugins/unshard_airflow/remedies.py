"""Remedies for waiting locks and suspended targets, as sentences with commands to copy."""

from typing import TYPE_CHECKING

from unshard.core.shown import shell
from unshard_airflow.masking import refusal, statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unshard.core.window.suspension import SuspendedTarget
    from unshard.units.ddl.scene import LockView


def remedies(view: "LockView", task_file: str) -> tuple[str, ...]:
    """Return the state of the lock and the commands that help."""
    command = f"{shell(task_file)} {shell(view.id)}"
    lines = [f"lock {view.id} is {view.state}: {statement(view.ddl)}", *situation(view)]
    lines.append("to wait again: clear the task wait_for_shards of this run")
    if view.is_refused:
        lines.append(f"to try the DDL again: unshard retry {shell(task_file)} --lock {shell(view.id)}")
    if view.is_joined:
        return (*lines, *_of_joined(view, command))
    is_conflict = bool(view.conflicts) and view.state != "undecided"
    lines += ways_out(view, task_file) if is_conflict or view.lacks_place else _usual(view, command)
    lines.append(f"to execute something else: clear the task replace, or run: unshard replace {command} --sql '...'")
    return (*lines, *_for_one(view, command, is_conflict))


def _of_joined(view: "LockView", command: str) -> "Iterable[str]":
    """Return the ways out if the target follows the join of its shards: only the shards that have reached it wait."""
    yield "it ends when the shards agree, or when the shard that waits goes back; the other shards go on meanwhile"
    for shard in view.ready[:1]:
        name = shell(f"{shard.source}/{shard.table}")
        if view.state == "undecided":
            yield f"to count it as other statements: unshard replace {command} --shard {name} --sql '...'"
        if not view.is_contradicted:
            yield f"its rows without the columns that have no place: unshard skip {command} --shard {name}"
        yield f"to take it out of its group: unshard drop-shard {command} --shard {name}"


def _usual(view: "LockView", command: str) -> "Iterable[str]":
    if view.state != "undecided":
        yield f"to continue without them: clear the task unlock, or run: unshard unlock {command}"
    yield f"to execute nothing: clear the task replace, or run: unshard skip {command}"


def ways_out(view: "LockView", task_file: str) -> "Iterable[str]":
    """Return the ways out that lead the rows of all shards into the target, and why others do not."""
    from unshard.units.ddl.offers import as_text, barred, offers

    for offer in offers(view, 1):
        for command in offer.commands:
            yield f"to count it {offer.text}: {statement(as_text(command, task_file))}"
    for why in barred(view):
        yield f"not offered, {why}"


def of_stop(stop: "SuspendedTarget", task_file: str) -> tuple[str, ...]:
    """Return why a target is suspended and how it continues."""
    return (
        refusal(str(stop)),
        "its rows are held, everything else continues. It continues automatically when the table is altered; after"
        f" another correction use: unshard retry {shell(task_file)} --table {shell(str(stop.target))}",
    )


def situation(view: "LockView") -> "Iterable[str]":
    """Return what the lock waits for and why it does not continue automatically."""
    if view.reason:
        yield f"the effect of the DDL is unknown: {refusal(view.reason)}"
    if view.error:
        yield f"the target has refused it: {refusal(view.error)}"
    for stop in view.stopped:
        yield f"it waits for held rows: {refusal(str(stop))}"
    yield f"shards that have reached it: {listed(view.ready)}"
    yield f"shards that have not reached it: {listed(view.missing)}"
    for shard, ddl, differences in zip(view.conflicts, view.conflicting, view.differences, strict=True):
        yield f"in conflict: {shard} ran {statement(ddl)} ({'; '.join(differences)})"


def _for_one(view: "LockView", command: str, is_conflict: bool) -> "Iterable[str]":
    """Return the commands for one shard: one in conflict, or else a missing one."""
    for shard in (*view.conflicts, *view.missing)[:1]:
        name = shell(f"{shard.source}/{shard.table}")
        if not is_conflict:
            yield f"to continue without {shard} alone: unshard skip {command} --shard {name}"
        yield f"or, if it will never run the DDL: unshard drop-shard {command} --shard {name}"


def listed(shards: "Iterable[object]") -> str:
    """Return the names of shards in one line."""
    return ", ".join(map(str, shards)) or "none"
