"""A migration in a DAG of a user, with the public operators of `airflow.provider.unshard`, by `dag.test()`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.merge import Merge, merging
from tests.e2e.test_airflow_dag import run_in
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration]
DAGS = """
from datetime import datetime
from airflow.sdk import DAG
from airflow.provider.unshard import UnshardUnlock, migration

with DAG("own", schedule=None, start_date=datetime(2026, 1, 1)):
    migration("{task}", retries=0)

with DAG("unlock", schedule=None, start_date=datetime(2026, 1, 1)):
    UnshardUnlock(task_id="unlock", task_file="{task}", lock="{{{{ dag_run.conf['lock'] }}}}", reason="a test")
"""
STEPS = [f"migration.{step}" for step in ("full_load", "follow", "check")]


@pytest.fixture(scope="module")
def merge(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Merge]:
    folder = tmp_path_factory.mktemp("owndag")
    with merging("owndag", folder, {"east-1": source_1, "west-1": source_2}, target) as merge:
        merge.write_task(spark_connection="local[2]", bulk_connection="local[2]")
        (folder / "dags").mkdir()
        (folder / "dags" / "own.py").write_text(DAGS.format(task=merge.tasks / "owndag.yaml"))
        yield merge


def run_own(merge: Merge, dag: str, state: str = "success", **conf: str) -> dict[str, str]:
    tasks: dict[str, str] = run_in(Path(merge.folder / "dags"), merge, dag, state, conf)["tasks"]
    return tasks


def test_a_migration_is_a_part_of_a_dag(merge: Merge) -> None:
    """It loads, follows, proves; it waits at a DDL lock, goes on after an unlock, and finds a wrong row."""
    assert run_own(merge, "own") == dict.fromkeys(STEPS, "success")
    assert merge.assert_equal() > 0

    first, *others = [(source, table) for source, tables in merge.shards.items() for table in tables]
    merge.change(1)
    merge.sources[first[0]].run(f"ALTER TABLE {first[1]} ADD COLUMN note VARCHAR(9)")
    merge.sources[first[0]].run(f"UPDATE {first[1]} SET note = 'x' WHERE id < 20")
    tasks = run_own(merge, "own", "failed")
    assert (tasks["migration.full_load"], tasks["migration.follow"]) == ("success", "failed")
    ((lock,),) = merge.target.run(f"SELECT lock_id FROM {merge.name}_meta.ddl_lock")
    run_own(merge, "unlock", lock=lock)
    for source, table in others:
        merge.sources[source].run(f"ALTER TABLE {table} ADD COLUMN note VARCHAR(9)")
    assert set(run_own(merge, "own").values()) == {"success"}
    merge.assert_equal()

    merge.target.run(f"UPDATE {merge.table} SET name = 'wrong' WHERE id = 7")
    merge.target.run(f"DELETE FROM {merge.name}_meta.judged_range")
    assert run_own(merge, "own", "failed")["migration.check"] == "failed"
