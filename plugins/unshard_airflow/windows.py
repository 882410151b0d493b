"""The end of a live run: summary, open locks, and whether another live run is needed.

`report` reads the state of all sources and locks, not only the results of this run, so a later run completes the work
of a killed or cleared one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from unshard.core.masking import refusal
from unshard.core.shown import as_json
from unshard_airflow.differences import DIFFERENCES, raise_transient
from unshard_airflow.follow import LEFT, PROGRESS
from unshard_airflow.links import LockRunLink
from unshard_airflow.operators import TaskOperator, WindowOperator, only_run, opened
from unshard_airflow.outages import ToldOnce

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.units.work import Work

LATE = ".late"
"""Suffix of the run that executes a lock whose shards have come after its wait had failed."""


class Report(WindowOperator):
    """Summarises the live run, updates the locks, and returns the open ones (the XCom value, a list)."""

    def __init__(self, *, groups: Sequence[Sequence[str]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.groups = [list(group) for group in groups]

    def unit(self, work: "Work", context: "Context") -> Any:
        from unshard.units.ddl.coordinate import observe
        from unshard.units.task.opendifferences import open_differences
        from unshard.units.task.optimistic import follow_each
        from unshard_airflow.connections import airflow_connections

        work.meta.pauses.refuse()
        indexes = range(len(self.groups))
        progress = context["ti"].xcom_pull(task_ids="follow", key=PROGRESS, map_indexes=indexes)
        left = context["ti"].xcom_pull(task_ids="follow", key=LEFT, map_indexes=indexes)
        errors = follow_each(work).errors
        raise_transient(errors)
        for target, error in errors.items():
            self.log.error("%s does not follow its shards: %s", target, error)
        # A change that another process is executing ends soon; one that no process can execute needs a person.
        differences = open_differences(work.task, work.meta, airflow_connections)
        shown = [view for view in differences if not view.is_change or view.target in errors]
        context["ti"].xcom_push(key=DIFFERENCES, value=[view.id for view in shown])
        scene = observe(work.meta)
        locks = [view for lock in scene.locks if (view := scene.view(lock)).is_open]
        told = {view.target for view in shown} | {view.target for view in locks}
        summary = {
            "sources": {", ".join(group): told for group, told in zip(self.groups, progress, strict=True)},
            "locks": [as_json(view) for view in locks],
            "errors": [str(error) for error in errors.values()],
            "untold": [str(error) for target, error in errors.items() if target not in told],
            "left": [", ".join(group) for group, has_work in zip(self.groups, left, strict=True) if has_work],
        }
        self.log.info("live run done summary=%s", summary)
        context["ti"].xcom_push(key="summary", value=summary)
        return [view.id for view in locks]


class Again(BaseOperator):
    """Triggers the next live run if there is work left; success emits the asset event."""

    def execute(self, context: "Context") -> Any:
        left = context["ti"].xcom_pull(task_ids="report", key="summary")["left"]
        if not left:
            raise AirflowSkipException("every source is caught up")
        return left


class TargetsFollow(ToldOnce, BaseOperator):
    """Fails if a target does not follow its shards and no lock and no difference has a run that shows it."""

    ui_color = "#fbeeee"

    def execute(self, context: "Context") -> Any:
        untold = context["ti"].xcom_pull(task_ids="report", key="summary")["untold"]
        with self.told_once(context):
            if untold:
                raise AirflowFailException("; ".join(map(refusal, untold)))
        return "every target follows its shards, or a lock or a difference shows why it does not"


class StartLock(TaskOperator):
    """Starts the DAG run of one lock. There is only one such run, however often it is requested.

    If that run has failed and the lock can be executed now, one further run executes it.
    """

    template_fields: Sequence[str] = ("lock",)
    operator_extra_links = (LockRunLink(),)

    def __init__(self, *, dag_of_locks: str, lock: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dag_of_locks = dag_of_locks
        self.lock = lock

    def execute(self, context: "Context") -> Any:
        is_late = self._has_failed(context) and self._is_executable()
        run = self.lock + LATE if is_late else self.lock
        raise only_run(self.dag_of_locks, run, {"lock": self.lock})

    def _has_failed(self, context: "Context") -> bool:
        failed = context["ti"].get_dr_count(self.dag_of_locks, run_ids=[self.lock], states=["failed"])
        return bool(failed)

    def _is_executable(self) -> bool:
        from unshard.units.ddl import coordinate

        with opened(self.task_file) as work:
            return coordinate.facts_of(work.meta, self.lock).is_executable


class SomethingFailed(BaseOperator):
    """Fails the run if a source has failed, after the other sources have completed."""

    ui_color = "#fbeeee"

    def execute(self, context: "Context") -> Any:
        raise AirflowFailException("a source has failed in this run: see its failed task; the others continued")
