"""The facets that OpenLineage's provider gets from the tasks of Airflow, written by its transport into a file."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.task.test_follow import known
from tests.lifetask import LifeTask, living
from unshard_demo.servers import MariaDb

__all__ = ["known"]

pytestmark = [pytest.mark.integration, pytest.mark.mariadb_only("lineage does not depend on the target")]


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    """Two shards whose source table goes into a column of the target."""
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target) as task:
        rule = task.body["routes"]["all"]
        rule["extract-table"] = {"table-regexp": "(.*)", "target-column": "origin"}
        task.write()
        target.run(
            f"CREATE DATABASE {unique}_to",
            f"CREATE TABLE {unique}_to.t (id int, v varchar(20), origin varchar(20), PRIMARY KEY (id, origin))",
        )
        task.make_shard("s1", 1, 1, 2)
        task.make_shard("s2", 2, 3)
        yield task


def followed(task: LifeTask) -> Any:
    from unshard_airflow.follow import Follow

    follow = Follow(
        task_id="follow", task_file=str(task.path), sources=["s1", "s2"], is_continuous=False, dag_of_locks="locks"
    )
    calls = {"xcom_push": lambda **_: None, "get_dr_count": lambda *_, **__: 1}
    instance = SimpleNamespace(dag_id="sync", task_id="follow", **calls)
    follow.execute({"ti": instance, "task": follow})  # type: ignore[arg-type]
    return follow


def test_without_the_provider_nothing_is_collected(task: LifeTask, known: dict[str, str], monkeypatch: Any) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "openlineage" in name else found(name))
    task.go()
    task.insert("s1", f"{task.name}.t_1", 10)
    assert followed(task).lineage == ()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: dict[str, str]) -> Path:
    """The file into which the transport of OpenLineage's provider writes."""
    pytest.importorskip("airflow.providers.openlineage")
    from airflow.providers.openlineage import conf

    transport = {"type": "file", "log_file_path": str(tmp_path / "lineage.json"), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    for each in vars(conf).values():
        if hasattr(each, "cache_clear"):
            each.cache_clear()
    return tmp_path / "lineage.json"


def emitted(operator: Any, file: Path) -> dict[str, Any]:
    """Let the provider send the end of a task, as its listener does; return the event."""
    from airflow.providers.openlineage.extractors.manager import ExtractorManager
    from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
    from airflow.utils.state import TaskInstanceState

    run = SimpleNamespace(run_id="run")
    found = ExtractorManager().extract_metadata(run, operator, TaskInstanceState.SUCCESS, SimpleNamespace())
    OpenLineageAdapter().complete_task(
        str(uuid4()), "task", "2026-01-01T00:00:00Z", found, None, None, None, None, None
    )
    (event,) = map(json.loads, file.read_text().splitlines())
    return event


def test_a_check_asserts_that_a_target_is_right(task: LifeTask, file: Path) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from unshard_airflow.checktasks import CheckTarget

    task.go()
    task.target.run(f"UPDATE {task.name}_to.t SET v = 'wrong' WHERE id = 1")
    check = CheckTarget(task_id="check", task_file=str(task.path), target=f"{task.name}_to.t")
    with pytest.raises(AirflowFailException, match="differs"):
        check.execute({})  # type: ignore[typeddict-item]
    (dataset,) = emitted(check, file)["inputs"]
    assert (dataset["namespace"], dataset["name"]) == (f"mysql://127.0.0.1:{task.target.port}", f"{task.name}_to.t")
    (assertion,) = dataset["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert not assertion["success"]


def test_shards_targets_columns_and_rows(task: LifeTask, file: Path) -> None:
    task.go()
    task.insert("s1", f"{task.name}.t_1", 10, 11)
    event = emitted(followed(task), file)
    first, second = (
        {"namespace": f"mysql://127.0.0.1:{task.sources[source].port}", "name": f"{task.name}.t_{number}"}
        for source, number in (("s1", 1), ("s2", 2))
    )
    inputs = {each["name"]: each for each in event["inputs"]}
    assert {name: each["namespace"] for name, each in inputs.items()} == {
        each["name"]: each["namespace"] for each in (first, second)
    }
    assert [each["name"] for each in inputs[first["name"]]["facets"]["schema"]["fields"]] == ["id", "v"]
    (output,) = event["outputs"]
    assert (output["namespace"], output["name"]) == (f"mysql://127.0.0.1:{task.target.port}", f"{task.name}_to.t")
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert [each["name"] for each in output["facets"]["schema"]["fields"]] == ["id", "v", "origin"]
    columns = output["facets"]["columnLineage"]["fields"]
    assert columns.keys() == {"id", "v"}, "an extracted column comes from no column"
    origins = [{name: each[name] for name in ("namespace", "name", "field")} for each in columns["v"]["inputFields"]]
    assert origins == [{**first, "field": "v"}, {**second, "field": "v"}]
    assert "password" not in file.read_text()
