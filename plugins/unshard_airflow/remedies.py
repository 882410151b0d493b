"""What a person can do about a lock or a target that does not go on by itself, as sentences with commands to copy."""

import shlex
from typing import TYPE_CHECKING

from unshard_airflow.masking import refusal, statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unshard.core.stops import Stop
    from unshard.units.coordinate import LockView


def remedies(view: "LockView", task_file: str) -> tuple[str, ...]:
    """Say where the lock stands and what helps in that state."""
    command = f"{shlex.quote(task_file)} {shlex.quote(view.id)}"
    told = [f"lock {view.id} is {view.state} with: {statement(view.ddl)}", *standing(view)]
    told.append("to wait again: clear the task wait_for_shards of this run")
    if view.is_refused:
        told.append(f"to ask the target again: unshard retry {shlex.quote(task_file)} --lock {shlex.quote(view.id)}")
    if view.state != "undecided":
        told.append(f"to go on without them: clear the task unlock, or run: unshard unlock {command}")
    told.append(f"to execute something else: clear the task replace, or run: unshard replace {command} --sql '...'")
    told.append(f"to execute nothing: clear the task replace, or run: unshard skip {command}")
    return (*told, *_for_one(view, command))


def of_stop(stop: "Stop", task_file: str) -> tuple[str, ...]:
    """Say why a target is stopped and how it goes on."""
    return (
        refusal(str(stop)),
        "its rows are held, everything else goes on; it does so by itself when the table is altered, else when what"
        f" is wrong is mended, with: unshard retry {shlex.quote(task_file)} --table {shlex.quote(str(stop.target))}",
    )


def standing(view: "LockView") -> "Iterable[str]":
    """Say what the lock waits for and why it cannot go on by itself."""
    if view.reason:
        yield f"unshard cannot tell what it means: {refusal(view.reason)}"
    if view.error:
        yield f"the target has refused it: {refusal(view.error)}"
    for stop in view.stopped:
        yield f"it waits behind held rows: {refusal(str(stop))}"
    yield f"shards that have reached it: {listed(view.ready)}"
    yield f"shards that have not reached it: {listed(view.missing)}"
    for shard, ddl, words in zip(view.conflicts, view.conflicting, view.differences, strict=True):
        yield f"in conflict: {shard} wants {statement(ddl)} ({'; '.join(words)})"


def _for_one(view: "LockView", command: str) -> "Iterable[str]":
    """Name the orders to one shard: one in conflict, or else one that is missing."""
    for shard in (*view.conflicts, *view.missing)[:1]:
        name = shlex.quote(f"{shard.source}/{shard.table}")
        yield f"to go on without {shard} alone: unshard skip {command} --shard {name}"
        yield f"or, if it will never come: unshard drop-shard {command} --shard {name}"


def listed(shards: "Iterable[object]") -> str:
    """Name shards in one line."""
    return ", ".join(map(str, shards)) or "none"
