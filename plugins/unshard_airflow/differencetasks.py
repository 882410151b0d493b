"""One DAG run per open difference between the shards of a target in optimistic mode: `follow_difference`.

| event | effect |
|---|---|
| the difference is settled | the run succeeds |
| a rollout is slow | the run waits; it never fails for that |
| the difference is a conflict for longer than `lock-timeout` | the run fails, and names both sides |
| it becomes something else (`open`, then `contracting`) | the same run follows it |
| its target cannot follow its shards, and no lock shows why | the run fails with the error |
| another target cannot follow its shards | the run waits |
| the run was cleared or died | it looks again; a conflict has the whole time again |
"""

from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import BaseOperator

from unshard.core.masking import refusal, statement
from unshard.core.shown import as_json, listed, shell
from unshard_airflow.links import DifferenceRunLink, TaskPageLink
from unshard_airflow.operators import TaskOperator, only_run, opened_task
from unshard_airflow.watch import DifferenceTrigger, shown_difference

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.core.model import TableId
    from unshard.errors import UnshardError
    from unshard.units.ddl.differences import DifferenceView
    from unshard.units.work import Work

DIFFERENCES = "differences"
"""XCom key of `report`."""


class ListDifferences(BaseOperator):
    """Returns the ids of the open differences that `report` has found: tasks are mapped over return values only."""

    def execute(self, context: "Context") -> Any:
        return context["ti"].xcom_pull(task_ids="report", key=DIFFERENCES)


class StartDifference(BaseOperator):
    """Starts the DAG run of one difference. There is only one such run, however often it is requested."""

    template_fields: Sequence[str] = ("difference",)
    operator_extra_links = (DifferenceRunLink(),)

    def __init__(self, *, dag_of_differences: str, difference: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dag_of_differences = dag_of_differences
        self.difference = difference

    def execute(self, context: "Context") -> Any:
        raise only_run(self.dag_of_differences, self.difference, {"difference": self.difference})


class FollowDifference(TaskOperator):
    """Waits until a difference is settled; fails if it is a conflict for longer than `lock-timeout`.

    Airflow's triggerer waits, so no process runs meanwhile.
    """

    operator_extra_links = (TaskPageLink(),)

    last: "DifferenceView | None" = None

    def execute(self, context: "Context") -> Any:
        return self._follow(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: "Context") -> Any:
        """Look at the difference, also after a failure of the trigger."""
        return self._follow(context)

    def _follow(self, context: "Context") -> Any:
        run = context["dag_run"]
        wanted = str((run.conf or {}).get("difference") or run.run_id)
        with opened_task(self.task_file) as work:
            found = self._look(work, context, wanted)
            patience = work.task.options.lock_timeout
        if not (seen := shown_difference(found, wanted)):
            self.log.info("difference is settled difference=%s", wanted)
            return
        until = None
        if self.last is not None and self.last.needs_operator:
            until = (max(self.last.since, run.start_date or self.last.since) + patience).isoformat()
        trigger = DifferenceTrigger(task_file=self.task_file, difference=wanted, seen=seen, until=until)
        self.defer(trigger=trigger, method_name="execute")

    def _look(self, work: Any, context: "Context", wanted: str) -> "Sequence[DifferenceView]":
        """Do what is due for the targets, and return the open differences."""
        from unshard.units.task.opendifferences import open_differences
        from unshard.units.task.optimistic import follow_each
        from unshard_airflow.connections import airflow_connections

        errors = follow_each(work).errors if work.meta.pauses.get() is None else {}
        raise_transient(errors)
        found = open_differences(work.task, work.meta, airflow_connections)
        self.last = view = next((each for each in found if each.id == wanted), None)
        if view is not None:
            context["ti"].xcom_push(key="difference", value=as_json(view))
            self.log.info("%s %s: %s; %s", view.target, view.subject, view.progress, statement(view.when))
            if view.target in errors and view.target not in targets_with_lock(work):
                raise errors[view.target]
            fail_if_stuck(view, context["dag_run"].start_date, work.task.options.lock_timeout)
        return found

    def remedies(self) -> Sequence[str]:
        """Return the state of the difference and what ends it."""
        return difference_remedies(self.last, self.task_file) if self.last else ()


def targets_with_lock(work: "Work") -> Set["TableId"]:
    """Return the targets with an open lock, which shows and ends what they wait for."""
    return {lock.target for lock in work.meta.locks.open()}


def raise_transient(errors: Mapping["TableId", "UnshardError"]) -> None:
    """Raise an error that another try may not have."""
    for error in errors.values():
        if error.transient:
            raise error


def difference_remedies(view: "DifferenceView", task_file: str) -> tuple[str, ...]:
    """Return the state of a difference and how it ends, with the commands that help."""
    lines = [f"{view.target} {view.subject} is {view.progress}"]
    lines += [f"the shard ran: {statement(view.ddl)}"] if view.ddl else []
    lines += [f"reason: {refusal(view.reason)}"] if view.reason else []
    lines += [f"{text}: {listed(shards)}" for text, shards in view.forms.items()]
    lines.append(f"it ends {statement(view.when)}")
    lines.append(f"its lock and the commands that end it: unshard locks {shell(task_file)}")
    lines.append("to wait again: clear the task follow_difference of this run")
    return tuple(lines)


def fail_if_stuck(view: "DifferenceView", begun: datetime | None, patience: timedelta) -> None:
    """Raise if an operator was needed for longer than `lock-timeout`, else never; a cleared run begins anew."""
    if view.needs_operator and datetime.now(UTC) - max(view.since, begun or view.since) > patience:
        state = "is in conflict" if view.state == "conflict" else "cannot be read again"
        raise AirflowFailException(f"{view.subject} {state}: {statement(view.reason)}; {view.when}")
