"""Kills of a live run, of Airflow's triggerer and scheduler, and of Spark at random moments under load."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.merge import LIVE, Merge, merging
from tests.e2e.scheduler.waiting import SECONDS, await_equal, steady_load, succeed
from tests.running import while_up
from tests.suite.portions import portion
from unshard_demo import processes, sparkserver
from unshard_demo.airflow import Airflow, start_airflow
from unshard_demo.servers import MariaDb

ALL = pytest.mark.test_all("starts an Airflow and a Spark of its own; another test kills a live run")
pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration, ALL]

KILLS = portion(1, 4, 20)
VICTIMS = "live run", "triggerer", "scheduler", "spark"
SETTINGS = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
}
"""A live run that is lost with its machine or its scheduler is found by heartbeats alone; the defaults are minutes."""


class Spark:
    """A Connect server that may be killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server = sparkserver.start_spark(folder)

    def kill(self) -> None:
        processes.kill(self.server.program)
        self.server = sparkserver.start_spark(self._folder, port=self.server.port)


@pytest.fixture
def sparks(tmp_path: Path) -> Iterator[Spark]:
    sparks = Spark(tmp_path / "spark")
    yield sparks
    sparks.server.stop()


@pytest.fixture
def merge(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, sparks: Spark, unique: str, tmp_path: Path
) -> Iterator[Merge]:
    with merging(unique, tmp_path, {"north-1": source_1, "south-1": source_2}, target, sparks.server) as merge:
        merge.write_task(spark_connection=LIVE, bulk_connection=LIVE, schedule="* * * * *", live_run="30s")
        yield merge


def kill_live_run(airflow: Airflow, merge: Merge) -> None:
    sync = f"unshard_sync__{merge.name}"
    running = [run["dag_run_id"] for run in airflow.runs(sync) if run["state"] == "running"]
    for task in [task for run in running for task in airflow.tasks(sync, run)]:
        if task["task_id"] == "follow" and task["state"] == "running" and task["pid"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(task["pid"], signal.SIGKILL)


def test_union_and_live_runs_survive_kills(merge: Merge, sparks: Spark) -> None:
    chance, slowest = random.Random(7), 0.0
    with while_up(start_airflow(merge.folder / "airflow", merge.tasks, merge.connections, SETTINGS)) as airflow:
        full = f"unshard_full__{merge.name}"
        airflow.await_dags(full, f"unshard_sync__{merge.name}")
        succeed(airflow, full, airflow.trigger(full))
        with steady_load(merge):
            for number in range(KILLS):
                victim = VICTIMS[number] if number < len(VICTIMS) else chance.choice(VICTIMS)
                time.sleep(chance.uniform(0, 5))  # the moment of the kill is what varies
                match victim:
                    case "live run":
                        kill_live_run(airflow, merge)
                    case "spark":
                        sparks.kill()
                    case _:
                        airflow.kill(victim)
                began = time.monotonic()
                merge.change(number)
                brought = f"SELECT COUNT(*) FROM {merge.table} WHERE name = 'new {number}'"
                airflow.await_true(lambda query=brought: merge.target.run(query) == [(4,)], SECONDS, f"rows ({victim})")
                slowest = max(slowest, time.monotonic() - began)
                print(f"{victim}: rows after {time.monotonic() - began:.1f} s")
        await_equal(airflow, merge)
    print(f"the slowest of {KILLS}: {slowest:.1f} s")
