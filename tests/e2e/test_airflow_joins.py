"""The DAGs of a task in optimistic mode through Airflow's own `dag.test()`: a canary, then the rollout."""

from collections.abc import Iterator

import pytest

from tests.e2e.merge import SUBMIT, Merge, merging
from tests.e2e.test_airflow_dag import run_dag
from unshard.config import load_task
from unshard.units.begun import existing_meta
from unshard.units.ddl.differences import DifferenceView
from unshard.units.task.joins import open_differences
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration]


@pytest.fixture
def merge(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Merge]:
    folder = tmp_path_factory.mktemp("joins")
    with merging("joinsdag", folder, {"east-1": source_1, "west-1": source_2}, target) as made:
        made.write_task("optimistic", spark_connection="local[2]", bulk_connection=SUBMIT, schedule="0 3 * * *")
        yield made


def differences(merge: Merge) -> tuple[DifferenceView, ...]:
    task = load_task(merge.tasks / f"{merge.name}.yaml")
    connections = merge.connections.__getitem__
    with existing_meta(task, connections) as meta:
        return open_differences(task, meta, connections)


def test_a_canary_and_the_rollout(merge: Merge) -> None:
    run_dag(merge, "full")
    (first, *others) = [(source, table) for source, tables in merge.shards.items() for table in tables]
    merge.sources[first[0]].run(f"ALTER TABLE {first[1]} ADD c INT NOT NULL DEFAULT 7")
    tasks = run_dag(merge, "sync")["tasks"]
    assert (tasks["report"], tasks["differences"]) == ("success", "success")
    (view,) = differences(merge)
    assert view.progress == "open (1 of 4 shards)"
    merge.change(1)
    for source, table in others:
        merge.sources[source].run(f"ALTER TABLE {table} ADD c INT NOT NULL DEFAULT 7")
    for _ in range(2):  # the second run releases the rows after the DDL
        tasks = run_dag(merge, "sync")["tasks"]
    assert tasks["start_difference"] == "skipped"
    assert run_dag(merge, "join", difference=view.id)["tasks"] == {"follow_difference": "success"}
    assert merge.assert_equal() > 0
