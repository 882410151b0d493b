"""What helps with waiting locks and suspended targets, in the messages of Airflow tasks: also the tasks to clear."""

from typing import TYPE_CHECKING

from unshard.core.masking import refusal, statement
from unshard.core.shown import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unshard.core.window.suspension import SuspendedTarget
    from unshard.units.ddl.scene import LockView


def remedies(view: "LockView", task_file: str) -> tuple[str, ...]:
    """Return the state of the lock and the commands that help."""
    from unshard.operate.command import Replace, Skip, typed

    lines = [f"lock {view.id} is {view.state}: {statement(view.ddl)}", *situation(view)]
    lines.append("to wait again: clear the task wait_for_shards of this run")
    lines += advised(view, task_file)
    if not (view.is_joined or view.conflicts):
        lines += [
            f"to continue without {shard} alone: {typed(Skip(view.id, shard), task_file)}" for shard in view.missing[:1]
        ]
    if not view.is_joined:
        run = typed(Replace(view.id, ()), task_file)
        lines.append(f"to execute something else: clear the task replace, or run: {run}")
    return tuple(lines)


def advised(view: "LockView", task_file: str) -> list[str]:
    """Return the commands that help; instead of one that unlocks, a task can be cleared."""
    from unshard.operate.advice import advice_lines

    return [statement(line) for line in advice_lines(view, task_file, "clear the task unlock, or run: ")]


def of_stop(stop: "SuspendedTarget", task_file: str) -> tuple[str, ...]:
    """Return why a target is suspended and how it continues."""
    from unshard.operate.advice import after_correction

    return refusal(str(stop)), after_correction(stop, task_file)


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
