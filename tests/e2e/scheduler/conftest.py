"""One running Airflow with three tasks for all tests of this folder, because its start costs tens of CPU seconds."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.browser import Browser, browsing
from tests.e2e.merge import LIVE, Merge, merging
from tests.e2e.scheduler.waiting import SECONDS
from tests.received import Metrics, receiving
from tests.running import while_up
from unshard_demo.airflow import Airflow, as_variables, start_airflow
from unshard_demo.servers import MariaDb
from unshard_demo.sparkserver import SparkConnect

SPARK = {"spark_connection": LIVE, "bulk_connection": LIVE}
LINEAGE = "lineage.json"
"""File of the events of OpenLineage, in the folder of the first task; only if its provider is installed."""
RARELY = "0 3 * * *"
"""The windows of a task that runs so only follow a trigger, so they take no time of other tests."""
SETTINGS = {
    "UNSHARD_NOTIFIER": "tests.e2e.alerts.ToFile",
    # The demo looks for work more often, and at its task files; both take CPU time of other tests.
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
}


@pytest.fixture(scope="package")
def merge(
    source_1: MariaDb,
    source_2: MariaDb,
    target: MariaDb,
    shared_spark: SparkConnect,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Merge]:
    """A task whose windows continue as long as rows come, and whose locks wait for an hour."""
    folder = tmp_path_factory.mktemp("scheduled")
    sources = {"north-1": source_1, "south-1": source_2}
    with merging("scheduled", folder, sources, target, shared_spark) as merge:
        merge.write_task(**SPARK, schedule="* * * * *", lock_timeout="1h", idle_after="3s")
        yield merge


@pytest.fixture(scope="package")
def hasty(merge: Merge) -> Iterator[Merge]:
    """A second task over the same servers, whose locks time out quickly, with deadlines."""
    yield from _beside(merge, "impatient", "pessimistic", SPARK | {"lock_deadline": "1s", "lag_deadline": "10s"})


@pytest.fixture(scope="package")
def joining(merge: Merge) -> Iterator[Merge]:
    """A task in optimistic mode over the same servers."""
    yield from _beside(merge, "joined", "optimistic", SPARK)


def _beside(merge: Merge, name: str, mode: str, options: dict[str, Any]) -> Iterator[Merge]:
    with merging(name, merge.folder, merge.sources, merge.target, merge.spark) as other:
        other.write_task(mode, **options, schedule=RARELY, lock_timeout="3s")
        yield other


@pytest.fixture(scope="package")
def metrics() -> Iterator[Metrics]:
    with receiving() as metrics:
        yield metrics


@pytest.fixture(scope="package")
def airflow(merge: Merge, hasty: Merge, joining: Merge, metrics: Metrics) -> Iterator[Airflow]:
    """A scheduler that knows the DAGs of all tasks."""
    transport = {"type": "file", "log_file_path": str(merge.folder / LINEAGE), "append": True}
    settings = SETTINGS | metrics.settings | {"UNSHARD_TEST_ALERTS": str(merge.folder / "alerts")}
    settings["AIRFLOW__OPENLINEAGE__TRANSPORT"] = json.dumps(transport)
    with while_up(start_airflow(merge.folder / "airflow", merge.tasks, merge.connections, settings)) as airflow:
        kinds = "full", "sync", "ddl"
        dags = [f"unshard_{kind}__{task.name}" for task in (merge, hasty, joining) for kind in kinds]
        airflow.await_dags(*dags, f"unshard_join__{joining.name}", lag := f"unshard_lag__{hasty.name}")
        airflow.api("PATCH", f"dags/{lag}", {"is_paused": True})  # its runs take CPU time of other tests
        yield airflow


@pytest.fixture(scope="package")
def impatient(airflow: Airflow, hasty: Merge) -> Merge:
    """The second task after its full load."""
    return loaded(hasty)


@pytest.fixture(scope="package")
def joined(airflow: Airflow, joining: Merge) -> Merge:
    """The task in optimistic mode after its full load."""
    return loaded(joining)


def loaded(merge: Merge) -> Merge:
    """Load without Airflow, whose full load the first task shows."""
    command = [sys.executable, "-m", "unshard.cli", "run", str(merge.tasks / f"{merge.name}.yaml")]
    subprocess.run(command, env=os.environ | as_variables(merge.connections), check=True, timeout=SECONDS)
    return merge


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as browser:
        yield browser
