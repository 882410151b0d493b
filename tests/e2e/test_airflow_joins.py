"""The DAGs of a task in optimistic mode through Airflow's own `dag.test()`: a canary, then the rollout."""

from collections.abc import Iterator

import pytest

from tests.e2e.merge import LIVE, Merge, merging
from tests.e2e.test_airflow_dag import ALL, run_dag
from unshard.config import load_task
from unshard.units.begun import existing_meta
from unshard.units.ddl.differences import DifferenceView
from unshard.units.task.opendifferences import open_differences
from unshard_demo.servers import MariaDb
from unshard_demo.spark import SparkConnect

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration, ALL]


@pytest.fixture
def merge(
    source_1: MariaDb,
    source_2: MariaDb,
    target: MariaDb,
    shared_spark: SparkConnect,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Merge]:
    folder = tmp_path_factory.mktemp("joins")
    with merging("joinsdag", folder, {"east-1": source_1, "west-1": source_2}, target, shared_spark) as made:
        made.write_task("optimistic", spark_connection=LIVE, bulk_connection=LIVE, schedule="0 3 * * *")
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


def test_an_error_of_one_target_stops_no_other_and_is_red(merge: Merge) -> None:
    """Someone else drops a column from the target: its difference is red until the column is there again."""
    ((first, table), *_) = [(source, table) for source, tables in merge.shards.items() for table in tables]
    copy = f"{merge.name}_copy.b"
    merge.sources[first].run(f"CREATE DATABASE {merge.name}_copy", f"CREATE TABLE {copy} (id INT PRIMARY KEY)")
    run_dag(merge, "full")
    merge.target.run(f"ALTER TABLE {merge.table} DROP amount")
    merge.sources[first].run(
        f"ALTER TABLE {table} ADD c INT", f"ALTER TABLE {copy} ADD c INT", f"INSERT INTO {copy} VALUES (1, 5)"
    )
    for _ in range(2):  # the second run releases the rows after the DDL
        tasks = run_dag(merge, "sync")["tasks"]
        assert (tasks["report"], tasks["differences"]) == ("success", "success")
    assert tasks["targets_follow"] == "success", "the run of the difference tells it"
    assert merge.target.run(f"SELECT * FROM {copy}") == [(1, 5)]
    (view,) = [view for view in differences(merge) if view.subject == "column amount"]
    assert run_dag(merge, "join", "failed", difference=view.id)["tasks"] == {"follow_difference": "failed"}
    assert "[US-5180]" in (merge.folder / "join.log").read_text()
    merge.target.run(f"ALTER TABLE {merge.table} ADD amount DECIMAL(10,2) AFTER name")
    assert run_dag(merge, "join", difference=view.id)["tasks"] == {"follow_difference": "success"}
    for source, tables in merge.shards.items():  # the values are lost: they are written again
        for each in tables:
            merge.sources[source].run(f"UPDATE {each} SET amount = amount + 1")
    for _ in range(2):
        run_dag(merge, "sync")
    for source, tables in merge.shards.items():
        for each in tables:
            if (source, each) != (first, table):
                merge.sources[source].run(f"ALTER TABLE {each} ADD c INT")
    for _ in range(2):
        run_dag(merge, "sync")
    assert merge.assert_equal() > 0
