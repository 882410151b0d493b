"""The DAGs through Airflow's own `dag.test()`: real servers, local Spark, bulk work by spark-submit."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.merge import SUBMIT, Merge, merging
from unshard_airflow.bundle import CHECKED_OUT
from unshard_demo import airflow
from unshard_demo.servers import MariaDb

ALL = pytest.mark.test_all("the scheduler of tests/e2e/scheduler runs the same DAGs")
pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration, ALL]

SECONDS = 1800
LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"
RUN = """
import json, sys
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
bag = DagBag(dag_folder=sys.argv[1])
assert not bag.import_errors, bag.import_errors
run = bag.dags[sys.argv[2]].test(run_conf=json.loads(sys.argv[4]))
from airflow.utils.session import create_session
with create_session() as session:
    states = {f"{t.task_id}[{t.rendered_map_index or t.map_index}]" if t.map_index >= 0 else t.task_id: str(t.state)
              for t in run.get_task_instances(session=session)}
json.dump({"state": str(run.state), "tasks": states}, open(sys.argv[3], "w"))
"""


@pytest.fixture(scope="module")
def merge(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Merge]:
    folder = tmp_path_factory.mktemp("dagtest")
    with merging("dagtest", folder, {"east-1": source_1, "west-1": source_2}, target) as merge:
        merge.write_task(spark_connection="local[2]", bulk_connection=SUBMIT, schedule="0 3 * * *")
        yield merge


def run_dag(merge: Merge, kind: str, state: str = "success", **conf: str) -> dict[str, Any]:
    """Run a DAG of the task by `dag.test()` and require a state; return the states of the run and its tasks."""
    return run_in(CHECKED_OUT, merge, f"unshard_{kind}__{merge.name}", state, conf)


def run_in(folder: Path, merge: Merge, dag: str, state: str, conf: dict[str, str]) -> dict[str, Any]:
    """Run a DAG of the folder and require a state."""
    bundle = {"name": "tests", "classpath": LOCAL_BUNDLE, "kwargs": {"path": str(folder)}}
    env = airflow.prepare_airflow(merge.folder / "airflow", merge.tasks, merge.connections)
    env |= {"AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle])}
    told, log = merge.folder / f"{dag}.json", merge.folder / f"{dag}.log"
    told.unlink(missing_ok=True)
    with log.open("ab") as output:
        command = [sys.executable, "-c", RUN, str(folder), dag, str(told), json.dumps(conf)]
        subprocess.run(command, env=env, check=False, timeout=SECONDS, stdout=output, stderr=output)
    assert told.exists(), log.read_text()[-5000:]
    body: dict[str, Any] = json.loads(told.read_text())
    assert body["state"] == state, f"{body}\n{log.read_text()[-5000:]}"
    return body


def test_windows_before_the_full_load_do_nothing(merge: Merge) -> None:
    tasks = run_dag(merge, "sync")["tasks"]
    assert tasks["follow[east-1]"] == tasks["again"] == "skipped"
    assert tasks["report"] == "success"


def test_a_start_time_that_means_nothing_is_refused_before_anything_begins(merge: Merge) -> None:
    tasks = run_dag(merge, "full", "failed", start_time="2026-01-31T23:59:59")["tasks"]
    assert tasks["precheck"] == "failed"
    told = (merge.folder / f"unshard_full__{merge.name}.log").read_text()
    assert "[US-7305]" in told and "its task-mode is all, so windows begin where the dump ends" in told


def test_full_load_then_windows(merge: Merge) -> None:
    merge.change(1)
    tasks = run_dag(merge, "full")["tasks"]
    assert set(tasks.values()) == {"success"}
    assert {f"dump[{source}]" for source in merge.sources} <= set(tasks)
    assert merge.assert_equal() > 0

    merge.change(2)
    tasks = run_dag(merge, "sync")["tasks"]
    assert tasks["follow[east-1]"] == tasks["follow[west-1]"] == tasks["report"] == "success"
    assert tasks["again"] == tasks["start_lock"] == tasks["failed"] == "skipped"
    merge.assert_equal()


def test_full_load_again_changes_nothing(merge: Merge) -> None:
    rows = merge.assert_equal()
    assert set(run_dag(merge, "full")["tasks"].values()) == {"success"}
    assert merge.assert_equal() == rows
