"""Task instances of a running Airflow: what they have published and logged; clear them, and wait for their run."""

import json
from typing import Any
from urllib.parse import quote

from unshard_demo.airflow import Airflow


def xcom(airflow: Airflow, dag: str, run: str, task: str, key: str) -> Any:
    how = "map_index=-1&deserialize=false&stringify=false"
    return airflow.api("GET", f"{_at(dag, run, task)}/xcomEntries/{key}?{how}")["value"]


def links(airflow: Airflow, dag: str, run: str, task: str, map_index: int = -1) -> dict[str, str | None]:
    found: dict[str, str | None] = airflow.api("GET", f"{_at(dag, run, task)}/links?map_index={map_index}")[
        "extra_links"
    ]
    return found


def log_of(airflow: Airflow, dag: str, run: str, task: str, map_index: int = -1) -> str:
    """Return the log of the first try."""
    return json.dumps(airflow.api("GET", f"{_at(dag, run, task)}/logs/1?map_index={map_index}")["content"], indent=1)


def clear(airflow: Airflow, dag: str, run: str, *tasks: str) -> None:
    """Clear tasks of a run and those after them, as the dialog of the web page does."""
    body = {
        "dag_run_id": run,
        "task_ids": list(tasks),
        "include_downstream": True,
        "dry_run": False,
        "only_failed": False,
        "reset_dag_runs": True,
        "prevent_running_task": True,
    }
    airflow.api("POST", f"dags/{quote(dag, safe='')}/clearTaskInstances", body)


def await_run(airflow: Airflow, dag: str, run: str, seconds: float) -> str:
    """Wait until a run has ended; return its state."""
    ended = ("success", "failed")
    airflow.await_true(lambda: airflow.run(dag, run)["state"] in ended, seconds, f"run {run} of {dag}")
    return str(airflow.run(dag, run)["state"])


def _at(dag: str, run: str, task: str) -> str:
    return "dags/{}/dagRuns/{}/taskInstances/{}".format(*(quote(name, safe="") for name in (dag, run, task)))
