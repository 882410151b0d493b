"""Airflow's deadline alerts of a task: a lock that is open for too long, targets that lag too much.

A deadline is a time by which a DAG run must end. Each lock has a run of its own. For the lag, a run of
`unshard_lag__<task>` begins once per `lag-deadline`, and ends when the targets have all changes from before it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.deadline import (  # type: ignore[attr-defined]  # Airflow 3.1 has them only here
    AsyncCallback,
    DeadlineAlert,
    DeadlineReference,
)
from airflow.triggers.base import TaskSuccessEvent, TriggerEvent

from unshard.core.masking import refusal
from unshard.core.shown import lasting, shell, visible
from unshard_airflow.alerts import Alert, notify
from unshard_airflow.connections import airflow_connections, ask_on_this_loop
from unshard_airflow.operators import TaskOperator
from unshard_airflow.options import task_with_options
from unshard_airflow.outcome import remedies
from unshard_airflow.watch import TaskTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.config import Task
    from unshard.units.work import Work

LOOK_SECONDS = 5.0

log = logging.getLogger(__name__)


class CaughtUp(TaskOperator):
    """Waits in the triggerer until the targets have all changes of handed-over sources from before the run."""

    def execute(self, context: "Context") -> None:
        trigger = LagTrigger(task_file=self.task_file, since=context["dag_run"].run_after.isoformat())
        self.defer(trigger=trigger, method_name="execute")


class LagTrigger(TaskTrigger):
    """Ends its task when the targets have all changes from before the time `since`."""

    look_seconds = LOOK_SECONDS

    def __init__(self, *, task_file: str, since: str) -> None:
        super().__init__(task_file=task_file)
        self.since = since

    @property
    def arguments(self) -> dict[str, Any]:
        return {"task_file": self.task_file, "since": self.since}

    def opened(self, work: "Work", stack: Any) -> Callable[[], bool]:
        since, told = datetime.fromisoformat(self.since), list[str]()

        def is_over() -> bool:
            found = lags(work, since)
            if told != [*found]:
                self.log.info("changes from before %s: %s", self.since, "; ".join(found.values()) or "none is missing")
            told[:] = found
            return not found

        return is_over

    def event(self) -> TriggerEvent:
        return TaskSuccessEvent()


def lags(work: "Work", since: datetime) -> dict[str, str]:
    """Return a line for each handed-over source with changes from before that time which the targets may lack."""
    from unshard.units.task.status import lacking_before

    found = lacking_before(work.meta, work.task, airflow_connections, since.timestamp())
    errors = {each.source: f", {refusal(str(each.error))}" for each in found if each.error}
    return {each.source: f"{each.source}: lag {each.lag}{errors.get(each.source, '')}" for each in found}


def of_lock(task: "Task") -> list[DeadlineAlert]:
    """Return the deadline of the runs of locks."""
    return _deadlines(task, task.options.lock_deadline, lock_is_late)


def of_lag(task: "Task") -> list[DeadlineAlert]:
    """Return the deadline of the runs that wait until the targets have caught up."""
    return _deadlines(task, task.options.lag_deadline, targets_lag)


def _deadlines(task: "Task", limit: timedelta, callback: Any) -> list[DeadlineAlert]:
    if not limit:
        return []
    arguments = {"task_file": str(task.path), "limit": lasting(int(limit.total_seconds()))}
    return [DeadlineAlert(DeadlineReference.DAGRUN_QUEUED_AT, limit, AsyncCallback(callback, arguments))]


async def lock_is_late(task_file: str, limit: str, context: Mapping[str, Any]) -> None:
    """Alert people of a lock that is open for longer than `lock-deadline`."""
    await _tell(task_file, f"is open for longer than {limit}", _with_lock, context)


async def targets_lag(task_file: str, limit: str, context: Mapping[str, Any]) -> None:
    """Alert people of targets that have lacked changes for longer than `lag-deadline`."""
    await _tell(task_file, f"the targets have lacked changes for longer than {limit}", _with_lags, context)


Described = Callable[[Alert, "Work", Mapping[str, Any]], Alert | None]
"""Returns the alert with the present state; None if nothing is late any more."""


async def _tell(task_file: str, missed: str, described: Described, context: Mapping[str, Any]) -> None:
    ask_on_this_loop()
    run = context["dag_run"]
    plain = Alert(run["dag_id"], run["dag_run_id"], "", "", missed=missed)
    alert = await asyncio.to_thread(_described, plain, task_file, described, run)
    if alert is None:
        log.info("not late any more: %s", plain.title)
        return
    for line in alert.text.splitlines():
        log.error("%s", visible(line))
    await asyncio.to_thread(notify, {**context, "alert": alert})


def _described(alert: Alert, task_file: str, described: Described, run: Mapping[str, Any]) -> Alert | None:
    """Return the alert with the present state, or with the reason why it cannot be read."""
    from unshard.units.work import open_work

    try:
        with open_work(task_with_options(Path(task_file)), airflow_connections, only_reads=True) as work:
            return described(alert, work, run)
    except Exception as error:  # people must be told above all if the target is down
        return replace(alert, error=f"the state of the task cannot be read: {refusal(str(error))}")


def _with_lock(alert: Alert, work: "Work", run: Mapping[str, Any]) -> Alert | None:
    from unshard.units.ddl import coordinate

    view = coordinate.view(work.meta, str((run.get("conf") or {}).get("lock") or run["dag_run_id"]))
    if not view.is_open:
        return None
    return replace(alert.about(view), remedies=remedies(view, str(work.task.path)))


def _with_lags(alert: Alert, work: "Work", run: Mapping[str, Any]) -> Alert | None:
    found = lags(work, datetime.fromisoformat(run["run_after"])).values()
    return replace(alert, remedies=(*found, f"unshard status {shell(str(work.task.path))}")) if found else None
