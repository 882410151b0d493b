"""Links of task instances. Airflow stores the address when the task has run."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey


class LockRunLink(BaseOperatorLink):
    """Link from a live run's task to the DAG run of the lock."""

    name = "DDL lock"

    def get_link(self, operator: Any, *, ti_key: "TaskInstanceKey") -> str:
        return f"/dags/{quote(operator.dag_of_locks, safe='')}/runs/{quote(operator.lock, safe='')}"


class DifferenceRunLink(BaseOperatorLink):
    """Link from a live run's task to the DAG run of the difference."""

    name = "Difference"

    def get_link(self, operator: Any, *, ti_key: "TaskInstanceKey") -> str:
        dag, run = quote(operator.dag_of_differences, safe=""), quote(operator.difference, safe="")
        return f"/dags/{dag}/runs/{run}"


class TaskPageLink(BaseOperatorLink):
    """Link from a task to the page of the lock whose run it is in, or else to the page of its unshard task."""

    name = "unshard"

    def get_link(self, operator: Any, *, ti_key: "TaskInstanceKey") -> str:
        kind, _, task = ti_key.dag_id.partition("__")
        lock = f"/lock/{quote(ti_key.run_id, safe='')}" if kind == "unshard_ddl" else ""
        return f"/unshard/task/{quote(task, safe='')}{lock}"
