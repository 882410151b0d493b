"""Links of task instances. Airflow stores the address when the task has run."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey


def at(*names: str) -> str:
    """Return the path of a page: Airflow adds that of its own address to no link."""
    below = urlsplit(conf.get("api", "base_url", fallback="/")).path.rstrip("/")
    return "/".join((below, *(quote(name, safe="") for name in names)))


class LockRunLink(BaseOperatorLink):
    """Link from a live run's task to the DAG run of the lock."""

    name = "DDL lock"

    def get_link(self, operator: Any, *, ti_key: "TaskInstanceKey") -> str:
        return at("dags", operator.dag_of_locks, "runs", operator.lock)


class DifferenceRunLink(BaseOperatorLink):
    """Link from a live run's task to the DAG run of the difference."""

    name = "Difference"

    def get_link(self, operator: Any, *, ti_key: "TaskInstanceKey") -> str:
        return at("dags", operator.dag_of_differences, "runs", operator.difference)


class TaskPageLink(BaseOperatorLink):
    """Link from a task to the page of the lock whose run it is in, or else to the page of its unshard task."""

    name = "unshard"

    def get_link(self, operator: Any, *, ti_key: "TaskInstanceKey") -> str:
        kind, _, task = ti_key.dag_id.partition("__")
        return at("unshard", "task", task, *(("lock", ti_key.run_id) if kind == "unshard_ddl" else ()))
