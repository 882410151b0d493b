"""The DAG file as Airflow's processor sees it: what it builds, and how little it needs for that.

The bag is filled in a process of its own, because what counts is which modules a fresh one loads.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unshard.config import environment_connections, load_task, storage_access
from unshard.core.model import ObjectAccess
from unshard_airflow.links import DifferenceRunLink, LockRunLink, TaskPageLink

ROOT = Path(__file__).parents[3]
HEAVY = {"pyspark", "pymysql", "pymysqlreplication", "pyarrow", "numpy", "pandas", "sqlglot", "requests"}
PROBE = """
import json, os, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, AssetOrTimeSchedule, BaseOperator, BaseSensorOperator, task_group
before = set(sys.modules)  # what any DAG file costs
told = []
for tasks, wanted in json.loads(sys.argv[2]):
    os.environ["UNSHARD_TASKS"] = tasks
    if wanted:
        os.environ["_AIRFLOW_PARSING_CONTEXT_DAG_ID"] = wanted
    bag = DagBag(dag_folder=sys.argv[1])
    dags = {
        name: {
            "edges": {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks},
            "rules": {t.task_id: t.trigger_rule.value for t in dag.tasks},
            "retries": {t.task_id: t.retries for t in dag.tasks},
            "labels": {t.task_id: t.map_index_template for t in dag.tasks if getattr(t, "map_index_template", None)},
            "shown": {t.task_id: t.task_display_name for t in dag.tasks},
            "outlets": {t.task_id: [a.name for a in t.outlets] for t in dag.tasks if t.outlets},
            "runs": dag.max_active_runs, "catchup": dag.catchup, "paused": dag.is_paused_upon_creation,
            "unversioned": dag.disable_bundle_versioning,
            "deadlines": [(type(d.reference).__name__, str(d.interval), d.callback.path) for d in dag.deadline or ()],
            "doc": dag.doc_md, "params": dict(dag.params), "timetable": type(dag.timetable).__name__,
        }
        for name, dag in bag.dags.items()
    }
    told.append({"errors": bag.import_errors, "dags": dags, "loaded": sorted(set(sys.modules) - before)})
json.dump(told, open(sys.argv[3], "w"))
"""
KINDS = ("sync", "full", "ddl", "join", "lag")


def parsed(folder: Path, *cases: tuple[Path, str]) -> list[dict[str, Any]]:
    """Fill a bag per case from our DAG file: the folder of the task files, and the only DAG that is asked for."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "_AIRFLOW"))}
    env = kept | {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "PYTHONPATH": os.pathsep.join((str(ROOT / "include"), str(ROOT / "plugins"))),
    }
    told = folder / "told.json"
    asked = json.dumps([(str(tasks), wanted) for tasks, wanted in cases])
    subprocess.run(
        [sys.executable, "-c", PROBE, str(ROOT / "dags"), asked, str(told)],
        env=env,
        check=True,
        timeout=120,
        capture_output=True,
    )
    bags: list[dict[str, Any]] = json.loads(told.read_text())
    return bags


def task_files(folder: Path) -> Path:
    """The example, another task, a second one of the example's name, and a file that is no task."""
    tasks = folder / "tasks"
    shutil.copytree(ROOT / "include" / "tasks", tasks)
    example = (tasks / "orders_merge.yaml").read_text()
    (tasks / "other.yaml").write_text(example.replace("orders_merge", "other"))
    for mode in ("dump", "load", "incremental"):
        of_mode = example.replace("orders_merge", f"only_{mode}").replace("task-mode: all", f"task-mode: {mode}")
        (tasks / f"{mode}.yaml").write_text(of_mode)
    (tasks / "twin.yaml").write_text(example)
    joined = example.replace("orders_merge", "rollout").replace("shard-mode: pessimistic", "shard-mode: optimistic")
    joined = joined.replace("unshard:\n", "unshard:\n  lock-deadline: 1h\n  lag-deadline: 10m\n")
    (tasks / "rollout.yaml").write_text(joined)
    (tasks / "broken one.yaml").write_text("name: broken\nno-such-key: hunter2\n")
    return tasks


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The bag of all DAGs, then those of processes that Airflow starts for one DAG, and that of files without error."""
    folder = tmp_path_factory.mktemp("airflow")
    tasks = task_files(folder)
    valid = shutil.copytree(tasks, folder / "valid")
    for name in ("twin", "broken one"):
        (valid / f"{name}.yaml").unlink()
    special = valid / "special.yaml"
    special.write_text((tasks / "other.yaml").read_text().replace("name: other", "name: t-Ë!s`t"))
    cases = {"": (tasks, ""), "valid": (valid, "")}  # Those of all DAGs first: the probe asks for the DAG of the last.
    cases |= {"twin": (tasks, "unshard_sync__orders_merge")}
    cases |= {kind: (tasks, f"unshard_{kind}__rollout") for kind in KINDS}
    cases["special"] = valid, f"unshard_ddl__{load_task(special).plain_name}"
    return dict(zip(cases, parsed(folder, *cases.values()), strict=True))


@pytest.fixture(scope="module")
def bag(bags: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return bags[""]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Airflow in this process, with a home that is not the developer's."""
    if "airflow" not in sys.modules:
        os.environ["AIRFLOW_HOME"] = str(tmp_path_factory.mktemp("home"))


def test_six_dags_per_task(bag: dict[str, Any]) -> None:
    expected = {
        f"unshard_{kind}__{task}"
        for kind in ("full", "sync", "ddl", "check", "repair", "cutover")
        for task in ("orders_merge", "other", "only_incremental", "rollout")
    }
    expected |= {"unshard_join__rollout", "unshard_lag__rollout"}
    expected |= {f"unshard_{kind}__only_load" for kind in ("full", "check", "repair")} | {"unshard_full__only_dump"}
    assert set(bag["dags"]) == expected


def test_task_that_only_dumps_or_loads_has_the_steps_of_that(bag: dict[str, Any]) -> None:
    edges = {mode: bag["dags"][f"unshard_full__only_{mode}"]["edges"] for mode in ("dump", "load")}
    assert edges == {
        "dump": {"precheck": ["snapshot"], "snapshot": ["dump"], "dump": []},
        "load": {"precheck": ["load"], "load": ["handover"], "handover": []},
    }


def test_task_without_a_dump_is_asked_for_a_start_time(bag: dict[str, Any]) -> None:
    asked = {name: dag["params"] for name, dag in bag["dags"].items() if dag["params"] and "cutover" not in name}
    assert asked == {"unshard_full__only_incremental": {"start_time": None}}


def test_parsing_loads_nothing_heavy(bag: dict[str, Any]) -> None:
    loaded = {name.partition(".")[0] for name in bag["loaded"]}
    assert not loaded & HEAVY
    ours = {name for name in bag["loaded"] if name.startswith("unshard.")}
    assert ours, "the probe no longer sees what the DAG file loads"
    assert not {name for name in ours if name.startswith(("unshard.units", "unshard.adapters", "unshard.binlog"))}


def test_a_task_in_optimistic_mode_has_a_run_for_each_difference(bag: dict[str, Any]) -> None:
    sync, join = bag["dags"]["unshard_sync__rollout"], bag["dags"]["unshard_join__rollout"]
    assert sync["edges"]["report"] == ["again", "differences", "start_lock", "targets_follow"]
    assert sync["edges"]["differences"] == ["start_difference"]
    assert sync["labels"]["start_difference"] == "{{ task.difference }}"
    assert (join["edges"], join["runs"]) == ({"follow_difference": []}, 100)


def test_only_a_task_with_deadlines_has_deadline_alerts(bag: dict[str, Any]) -> None:
    found = {name: dag["deadlines"] for name, dag in bag["dags"].items() if dag["deadlines"]}
    reference = "DagRunQueuedAtDeadline"
    assert found == {
        "unshard_ddl__rollout": [[reference, "1:00:00", "unshard_airflow.deadlines.lock_is_late"]],
        "unshard_lag__rollout": [[reference, "0:10:00", "unshard_airflow.deadlines.targets_lag"]],
    }
    assert bag["dags"]["unshard_lag__rollout"]["timetable"] == "DeltaTriggerTimetable"


def test_full_goes_from_precheck_to_handover(bag: dict[str, Any]) -> None:
    dag = bag["dags"]["unshard_full__orders_merge"]
    assert dag["edges"] == {
        "precheck": ["snapshot"],
        "snapshot": ["dump"],
        "dump": ["load"],
        "load": ["handover"],
        "handover": [],
    }
    assert dag["outlets"] == {"handover": ["unshard_work__orders_merge"]}
    assert set(dag["labels"]) == {"snapshot", "dump", "load"}


def test_live_runs_follow_each_other_and_start_by_events_alone(bag: dict[str, Any]) -> None:
    dag = bag["dags"]["unshard_sync__orders_merge"]
    assert sorted(dag["edges"]["follow"]) == ["failed", "report"]
    assert dag["edges"]["report"] == ["again", "start_lock"]
    assert (dag["runs"], dag["catchup"], dag["timetable"]) == (1, False, "AssetTriggeredTimetable")
    assert dag["outlets"] == {"report": ["unshard_changed__orders_merge"], "again": ["unshard_work__orders_merge"]}


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("number", "per_worker", "sizes"),
    [(1, 0, [1]), (4, 0, [1] * 4), (5, 0, [2, 2, 1]), (16, 0, [4] * 4), (5, 3, [3, 2]), (5, 9, [5])],
)
def test_sources_share_few_processes(number: int, per_worker: int, sizes: list[int]) -> None:
    from unshard_airflow.graph import sources_by_process

    task = SimpleNamespace(
        sources=tuple(f"s{n}" for n in range(number)), options=SimpleNamespace(sources_per_worker=per_worker)
    )
    groups = sources_by_process(task)
    assert [len(group) for group in groups] == sizes
    assert [source for group in groups for source in group] == [*task.sources]


def test_failed_source_stops_no_other_and_is_red(bag: dict[str, Any]) -> None:
    rules = bag["dags"]["unshard_sync__orders_merge"]["rules"]
    assert rules["report"] == "all_done"
    assert rules["failed"] == "one_failed"


def test_locks_of_one_task_wait_side_by_side(bag: dict[str, Any]) -> None:
    dag = bag["dags"]["unshard_ddl__orders_merge"]
    assert dag["edges"] == {
        "unlock": ["wait_for_shards"],
        "replace": ["wait_for_shards"],
        "wait_for_shards": ["execute_ddl"],
        "execute_ddl": [],
    }
    assert dag["rules"]["wait_for_shards"] == "all_done", "a question that nobody answers does not end the wait"
    assert dag["runs"] > 1
    assert dag["outlets"] == {"execute_ddl": ["unshard_work__orders_merge"]}


def test_everything_is_active_and_retries(bag: dict[str, Any]) -> None:
    for name, dag in bag["dags"].items():
        assert dag["paused"] is False
        assert dag["unversioned"] is True, "Airflow's scheduler ends at a version without a folder"
        expected = {"failed": 0, "targets_follow": 0, "plan": 0, "cut_over": 0}
        expected |= dict.fromkeys(("wait_for_shards", "replace", "follow_difference", "caught_up"), 10)
        assert all(retries == expected.get(task, 2) for task, retries in dag["retries"].items()), name


def test_invalid_files_are_an_import_error_that_harms_no_other(bag: dict[str, Any]) -> None:
    """Airflow hides the DAGs of a file with an import error, so that one is a file without DAGs."""
    ((path, told),) = bag["errors"].items()
    assert Path(path).name == "unshard_task_files.py"
    for said in ("no-such-key", "[US-1008]", "[US-1001]", "broken one.yaml:1", "'orders_merge' already", "twin.yaml"):
        assert said in told, said
    assert "hunter2" not in told


def test_task_files_without_an_error_are_no_import_error(bags: dict[str, dict[str, Any]]) -> None:
    assert bags["valid"]["errors"] == {}


def test_unlock_and_replace_tell_what_they_are_for(bag: dict[str, Any]) -> None:
    shown = bag["dags"]["unshard_ddl__orders_merge"]["shown"]
    assert (shown["unlock"], shown["replace"]) == (
        "unlock (clear it to force the lock)",
        "replace (clear it to enter other statements)",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_process_of_a_task_builds_only_its_own_dag(kind: str, bags: dict[str, dict[str, Any]]) -> None:
    assert set(bags[kind]["dags"]) == {f"unshard_{kind}__rollout"}


def test_process_of_a_task_finds_the_file_of_two_with_one_name(bags: dict[str, dict[str, Any]]) -> None:
    doc = bags["twin"]["dags"]["unshard_sync__orders_merge"]["doc"]
    assert "orders_merge.yaml" in doc, "and not of its twin"


def test_a_name_with_special_characters_gives_valid_dags(bags: dict[str, dict[str, Any]]) -> None:
    (name,) = bags["special"]["dags"]
    assert re.fullmatch(r"unshard_ddl__[\w.-]+", name, re.ASCII)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("max_tries", "retries", "cleared"), [(2, 2, False), (3, 2, True), (0, 0, False), (1, 0, True), (0, None, False)]
)
def test_only_a_clear_forces(max_tries: int, retries: int | None, cleared: bool) -> None:
    from unshard_airflow.locktasks import was_cleared

    # A task that another scheduler starts anew has a higher try number, and was not cleared.
    instance = SimpleNamespace(max_tries=max_tries, try_number=2)
    assert was_cleared({"ti": instance, "task": SimpleNamespace(retries=retries)}) is cleared


@dataclass(frozen=True, slots=True)
class ShardDone:
    shard: object
    files: tuple[str, ...]


@pytest.mark.usefixtures("plugin")
def test_reports_become_plain_values() -> None:
    from unshard.core.model import Location, Shard, TableId
    from unshard.core.shown import as_json

    done = ShardDone(Shard("s1", TableId("a", "t")), ())
    report = {"at": Location("bin.000001", 4), "done": (done,), "when": datetime(2026, 1, 1, tzinfo=UTC), "n": None}
    value = as_json(report)
    assert value["done"] == [{"shard": "s1 a.t", "files": []}]
    assert (value["at"], value["n"]) == ("bin.000001:4", None)
    assert json.loads(json.dumps(value)) == value


@pytest.mark.usefixtures("plugin")
def test_coded_error_of_a_submitted_job_is_found() -> None:
    from unshard_airflow.bulk import permanent_error

    output = "Cannot execute: spark-submit. Error code is: {}.\nLast spark-submit output:\nWARN\n[US-6001] no (do)\n"
    assert permanent_error(output.format(1)) == "[US-6001] no (do)"
    assert permanent_error(output.format(75)) is None
    assert permanent_error("Error code is: 1.\nException in thread main") is None


@pytest.mark.usefixtures("plugin")
def test_permanent_errors_are_not_retried() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from unshard.errors import UnshardError
    from unshard_airflow.outcome import failures_told

    class Passing(UnshardError):
        transient = True

    with pytest.raises(Passing), failures_told():
        raise Passing
    with pytest.raises(AirflowFailException, match=r"\[US-0000\]"), failures_told():
        raise UnshardError


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("connection", "submitted"),
    [
        ("local[2]", True),
        ("spark://m:7077", True),
        ("yarn", True),
        ("sc://h:15002", False),
        ("bulk", True),
        ("live", False),
    ],
)
def test_type_of_connection_decides_how_bulk_work_runs(
    connection: str, submitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unshard_airflow.bulk import is_submitted

    monkeypatch.setenv("UNSHARD_SPARK_MASTERS", "local[2] spark://m:7077 yarn sc://h:15002")
    monkeypatch.setenv("AIRFLOW_CONN_BULK", '{"conn_type": "spark", "host": "spark://m", "port": 7077}')
    monkeypatch.setenv("AIRFLOW_CONN_LIVE", '{"conn_type": "spark_connect", "host": "h", "port": 15002}')
    assert is_submitted(connection) is submitted


@pytest.mark.usefixtures("plugin")
def test_a_submitted_job_gets_the_connection_of_the_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unshard_airflow.bulk import submit_environment

    extra = {"region_name": "r", "endpoint_url": "http://h"}
    connection = {"conn_type": "aws", "login": "key", "password": "secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources/s1.yaml").write_text("source-id: s1\nfrom: {host: h, user: u}\n")
    path = tmp_path / "task.yaml"
    path.write_text(
        "name: t\ntask-mode: all\ntarget-database: {host: h, user: u}\n"
        "mysql-instances: [{source-id: s1}]\n"
        "unshard: {storage-path: s3://bucket, storage-conn-id: store}\n"
    )
    task = load_task(path)
    monkeypatch.setenv("AIRFLOW_CONN_STORE", submit_environment(task)["AIRFLOW_CONN_STORE"])
    found = storage_access(task.options, environment_connections)
    assert found == ObjectAccess("key", "secret", region="r", endpoint="http://h")


def test_links_have_the_path_of_the_address_of_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = SimpleNamespace(dag_of_locks="unshard_ddl__a", lock="a-1", dag_of_differences="d", difference="x/y")
    for below in ("", "/airflow"):
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", f"https://data.example{below}/")
        key = SimpleNamespace(dag_id="unshard_ddl__a", run_id="a-1")
        found = [each().get_link(operator, ti_key=key) for each in (LockRunLink, DifferenceRunLink, TaskPageLink)]
        pages = "/dags/unshard_ddl__a/runs/a-1", "/dags/d/runs/x%2Fy", "/unshard/task/a/lock/a-1"
        assert found == [below + page for page in pages]
