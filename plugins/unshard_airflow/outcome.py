"""Convert coded errors to retries or failures of Airflow, and tell them with what helps: commands, tasks to clear."""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from unshard.core.masking import refusal, statement
from unshard.core.shown import listed, visible
from unshard.errors import UnshardError
from unshard.errors.meta import TaskPaused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unshard.core.window.suspension import SuspendedTarget
    from unshard.units.ddl.scene import LockView

log = logging.getLogger(__name__)


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """Raise AirflowFailException for permanent errors; Airflow retries transient ones.

    A paused task is not a failure: the Airflow task is skipped with a message.
    """
    try:
        yield
    except TaskPaused as error:
        raise AirflowSkipException(str(error)) from error
    except UnshardError as error:
        if error.transient:
            raise
        raise AirflowFailException(visible(statement(str(error)))) from error


def tell_failure(context: Mapping[str, Any]) -> None:
    """Log the failure and the commands that help; `on_failure_callback` of every task."""
    task, instance = context["task"], context["ti"]
    log.error(
        "task failed dag=%s run=%s task=%s error=%s",
        instance.dag_id,
        instance.run_id,
        instance.task_id,
        visible(statement(str(context.get("exception")))),
    )
    for line in getattr(task, "remedies", lambda: ())():
        log.error("%s", visible(line))


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
