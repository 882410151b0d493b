"""The end of a window's DAG run: what was done, which locks are open, whether there is more to do.

`report` looks at the state of all sources and locks, not at what this run has seen, so a run that was
killed or cleared leaves nothing behind that a later one does not find.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DagRunTriggerException

from unshard_airflow.links import LockRunLink
from unshard_airflow.operators import UnitOperator, opened
from unshard_airflow.outcome import as_json

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.units.work import Work

LATE = ".late"
"""Behind a lock's id: the run that executes it when its shards have come after its wait had failed."""
MOVED = ("rows_applied", "rows_filtered", "rows_skipped", "rows_diverted", "rows_held", "rows_released", "ddls")
"""What a window has brought, by the fields of its report."""


class Report(UnitOperator):
    """Sums the windows up, settles locks, and names the locks that are open (the XCom value, a list)."""

    def __init__(self, *, sources: Sequence[str], continuous: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sources = list(sources)
        self.continuous = continuous

    def unit(self, work: "Work", context: "Context") -> Any:
        from unshard.units.coordinate import observe

        work.meta.halts.refuse()
        indexes = range(len(self.sources))
        pulled = context["ti"].xcom_pull(task_ids="relay", map_indexes=indexes)
        applied = context["ti"].xcom_pull(task_ids="apply", map_indexes=indexes)
        locks = [view for view in observe(work.meta) if view.is_open]
        summary = {
            "sources": {
                source: {"relay": relay, "window": window}
                for source, relay, window in zip(self.sources, pulled, applied, strict=True)
            },
            "locks": [as_json(view) for view in locks],
            "left": [s for s, window in zip(self.sources, applied, strict=True)
                     if window and has_work_left(window, self.continuous)],
        }  # fmt: skip
        self.log.info("windows done summary=%s", summary)
        context["ti"].xcom_push(key="summary", value=summary)
        return [view.id for view in locks]


class Again(BaseOperator):
    """Wakes the windows again while a source has work left; the asset is emitted by succeeding."""

    def execute(self, context: "Context") -> Any:
        left = context["ti"].xcom_pull(task_ids="report", key="summary")["left"]
        if not left:
            raise AirflowSkipException("every source is caught up")
        return left


class StartLock(BaseOperator):
    """Starts the DAG run that waits at one lock; it is there only once, whoever asks how often.

    If it has given up, and the lock can be executed after all, another run does that, once.
    """

    template_fields: Sequence[str] = ("lock",)
    operator_extra_links = (LockRunLink(),)

    def __init__(self, *, task_file: str, dag_of_locks: str, lock: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.task_file = task_file
        self.dag_of_locks = dag_of_locks
        self.lock = lock

    def execute(self, context: "Context") -> Any:
        is_late = self._has_given_up(context) and self._is_executable()
        raise DagRunTriggerException(
            trigger_dag_id=self.dag_of_locks, dag_run_id=self.lock + LATE if is_late else self.lock,
            conf={"lock": self.lock}, logical_date=None, reset_dag_run=False, skip_when_already_exists=True,
            wait_for_completion=False, allowed_states=[], failed_states=[], poke_interval=60, deferrable=False,
        )  # fmt: skip

    def _has_given_up(self, context: "Context") -> bool:
        failed = context["ti"].get_dr_count(self.dag_of_locks, run_ids=[self.lock], states=["failed"])
        return bool(failed)

    def _is_executable(self) -> bool:
        from unshard.units import coordinate

        with opened(self.task_file) as work:
            return coordinate.view(work.meta, self.lock).is_executable


class SomethingFailed(BaseOperator):
    """Turns the run red when a source has failed, though the other sources went on to the end."""

    ui_color = "#fbeeee"

    def execute(self, context: "Context") -> Any:
        raise AirflowFailException("a source has failed in this run: see its red task; the others went on")


def has_work_left(window: Mapping[str, Any], continuous: bool) -> bool:
    """Whether a source that has had its window can use another one at once.

    Under steady load each window finds what was written during the last one. A task that is to run all the
    time goes on for that; any other one stops where the relay ended and leaves the rest to its schedule.
    """
    moved = any(window[count] for count in MOVED)
    return bool(window["more"]) or (continuous and moved)
