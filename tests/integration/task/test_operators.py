"""The public operators, called as Airflow calls them; tests/e2e/test_own_dag.py has them in a DAG."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk import DAG

from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from unshard.core.model import TableId
from unshard.units.ddl import coordinate
from unshard.units.task.metrics import Measurement
from unshard_airflow.api import UnshardCheck, UnshardFollow, UnshardFullLoad, UnshardUnlock, migration
from unshard_airflow.follow import Report
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
CONTEXT: Any = {"dag_run": SimpleNamespace(run_id="run"), "ti": SimpleNamespace(id="1")}


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    columns, numbers = {"t": "id INT PRIMARY KEY, v INT"}, {("s1", "t"): (1,), ("s2", "t"): (2,)}
    with living(unique, tmp_path, (source_1, source_2, target), "t", columns=columns, numbers=numbers) as task:
        yield task


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """The measurements of the checks."""
    found = list[dict[str, float]]()

    def send(measurements: Iterable[Measurement]) -> None:
        found.append({each.metric.name: each.value for each in measurements})

    monkeypatch.setattr("unshard_airflow.checktasks.send", send)
    return found


def executed(kind: type[Any], task: LiveTask, **arguments: Any) -> Any:
    return kind(task_id="x", task_file=str(task.path), **arguments).execute(CONTEXT)


def change(task: LiveTask, source: str, *statements: str) -> None:
    task.sources[source].run(f"USE {task.name}", *statements)


def test_the_operators_follow_wait_unlock_and_prove(task: LiveTask, sent: list[dict[str, float]]) -> None:
    change(task, "s1", "INSERT INTO t_1 VALUES (1, 1)")
    assert {each["source"] for each in executed(UnshardFullLoad, task)} == {"s1", "s2"}
    assert sum(each["rows_applied"] for each in executed(UnshardFollow, task)) == 1
    assert executed(UnshardCheck, task) == [task.table("t")]
    assert sent[-1]["proven_percent"] == 100

    change(task, "s1", "ALTER TABLE t_1 ADD COLUMN c INT", "INSERT INTO t_1 VALUES (2, 2, 2)")
    with pytest.raises(AirflowException, match=r"rows wait at DDL locks: .* ADD COLUMN c INT") as error:
        executed(UnshardFollow, task)
    assert not isinstance(error.value, AirflowFailException), "Airflow tries it again"
    (lock,) = open_locks(task.work().meta)
    assert executed(UnshardUnlock, task, lock=lock.id, reason="a test")["id"] == lock.id
    change(task, "s2", "ALTER TABLE t_2 ADD COLUMN c INT")
    executed(UnshardFollow, task)
    with pytest.raises(AirflowSkipException, match="resolved"):
        executed(UnshardUnlock, task, lock=lock.id, reason="a test")
    (action,) = task.work().meta.locks.actions(lock.id, None)
    assert (action.via, action.reason) == ("operator", "a test")

    assert executed(UnshardCheck, task, tables=[task.table("t")]) == [task.table("t")]
    task.target.run(f"UPDATE {task.table('t')} SET v = 9 WHERE id = 2")
    task.target.run(f"DELETE FROM {task.work().meta.schema}.judged_range")  # no range is compared twice within a day
    check = UnshardCheck(task_id="x", task_file=str(task.path))
    with pytest.raises(AirflowFailException, match=r"different: id=2"):
        check.execute(CONTEXT)
    assert sent[-1]["differing_ranges"] == 1
    assert dict(check.verdicts) == {TableId(*task.table("t").split(".")): False}


def test_a_target_that_cannot_take_a_row_fails_the_follow_task(task: LiveTask) -> None:
    task.target.run(f"ALTER TABLE {task.table('t')} MODIFY v TINYINT")
    change(task, "s1", "INSERT INTO t_1 VALUES (1, 500)")
    with pytest.raises(AirflowFailException, match=r"\[US-\d{4}\]"):
        executed(UnshardFollow, task)


def test_rows_released_after_the_end_of_their_process_start_another_live_run(task: LiveTask) -> None:
    """Each source has a process of its own: the DDL of the second one releases the rows of the first one."""
    given = {"task_file": str(task.path)}
    report = Report(task_id="report", groups=[["s1"], ["s2"]], **given)
    told = {"progress": [{"errors": []}, {"errors": []}], "left": [False, False], "changed": [{}, {}]}
    pulled = SimpleNamespace(
        xcom_pull=lambda key, **_: told[key], xcom_push=lambda **each: pushed.update({each["key"]: each["value"]})
    )
    pushed: dict[str, Any] = {}

    def left() -> list[str]:
        report.execute({"ti": pulled})
        return list(pushed["summary"]["left"])

    for source in ("s1", "s2"):
        number = source[1]
        change(task, source, f"ALTER TABLE t_{number} ADD c INT", f"INSERT INTO t_{number} VALUES ({number}, 1, 1)")
        task.pull(source)
        task.window(source)
        assert left() == []
    (lock,) = open_locks(task.work().meta)
    coordinate.execute(task.work().meta, task.work().target, lock.id)
    assert left() == ["s1", "s2"]
    told["progress"][0]["errors"] = ["s1 US-7001"]
    assert left() == ["s2"], "a source that has failed is tried when its failure is over"
    task.run()
    assert left() == []
    task.assert_settled()


def test_a_migration_is_a_group_of_three_tasks() -> None:
    with DAG("own") as dag:
        migration("/etc/unshard/orders.yaml", retries=7)
    edges = {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}
    assert edges == {
        "migration.full_load": ["migration.follow"],
        "migration.follow": ["migration.check"],
        "migration.check": [],
    }
    assert {task.retries for task in dag.tasks} == {7}
