"""The task `follow` of a live run in Airflow: the reasons for which it ends, and what the next tasks are told."""

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.livetask import LiveTask, living
from tests.taskfile import endpoint, write_source
from unshard.units.ddl import coordinate
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb

pytestmark = [
    pytest.mark.integration,
    pytest.mark.mariadb_only("what ends a live run does not depend on the target"),
]

SECONDS = 300
SHORT, LONG = "1s", "1h"
ADD = "ALTER TABLE {} ADD w INT"


@dataclass
class Scheduled:
    """A task as Airflow runs it: with the runs of its other DAGs, and the values that it publishes."""

    task: LiveTask
    runs: dict[str, str] = field(default_factory=dict)
    """The state of each DAG run of a lock."""
    published: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> tuple[str, bool]:
        """Why the last live run has ended, and whether it has left work to the next one."""
        return self.published["progress"]["state"], self.published["left"]

    def options(self, **values: str) -> None:
        """Change the options of the task file, and open the task again."""
        body = yaml.safe_load(self.task.path.read_text())
        body["unshard"] |= {name.replace("_", "-"): value for name, value in values.items()}
        self.task.path.write_text(yaml.safe_dump(body))
        self.task.restart()

    def count(self, dag: str, run_ids: Sequence[str], states: Sequence[str] = ()) -> int:
        assert dag == "locks"
        return sum(run in self.runs and (not states or self.runs[run] in states) for run in run_ids)

    def follow(self, *sources: str) -> None:
        """Execute the task for some sources."""
        from unshard_airflow.follow import Follow

        made = Follow(
            task_id="follow",
            task_file=str(self.task.path),
            sources=sources,
            is_continuous=True,
            dag_of_locks="locks",
        )
        instance = SimpleNamespace(
            dag_id="sync",
            task_id="follow",
            xcom_push=lambda key, value: self.published.update({key: value}),
            get_dr_count=self.count,
        )
        made.execute({"ti": instance, "task": made})  # type: ignore[arg-type]

    def write(self, source: str, number: int) -> None:
        self.task.sources[source].run(f"INSERT INTO {self.task.name}.g_{source[-1]} (id) VALUES ({number})")

    def rows(self) -> list[Any]:
        return [number for (number,) in self.task.target.run(f"SELECT id FROM {self.task.table('g')} ORDER BY id")]

    def await_row(self, number: int) -> None:
        await_true(lambda: number in self.rows(), SECONDS, [], "a row")


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Airflow without its database: the failure of which people know."""
    if "airflow" not in sys.modules:
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    from unshard_airflow import follow, outages

    found: dict[str, str] = {}
    monkeypatch.setattr(outages, "Variable", SimpleNamespace(get=lambda *_, **__: found or None))
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.1)
    return found


@pytest.fixture
def scheduled(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path, known: dict[str, str]
) -> Iterator[Scheduled]:
    made = {"columns": {"g": "id INT PRIMARY KEY"}, "numbers": {("s1", "g"): (1,), ("s2", "g"): (2,)}}
    with living(unique, tmp_path, (source_1, source_2, target), "g", **made) as task:
        yield Scheduled(task)


def test_a_run_whose_time_is_over_leaves_work_and_an_idle_one_does_not(scheduled: Scheduled) -> None:
    scheduled.options(live_run=SHORT, idle_after=LONG)
    scheduled.write("s1", 1)
    scheduled.follow("s1")
    assert (scheduled.rows(), scheduled.end) == ([1], ("its time is over", True))
    scheduled.options(live_run=LONG, idle_after=SHORT)
    scheduled.write("s1", 2)
    scheduled.follow("s1")
    assert (scheduled.rows(), scheduled.end) == ([1, 2], ("nothing came", False))


def test_a_lock_ends_a_run_until_it_has_a_dag_run(scheduled: Scheduled) -> None:
    """The second run of a lock, which executes it, is needed if the first has failed before all shards had the DDL."""
    from unshard_airflow.follow import LATE

    task = scheduled.task
    scheduled.options(live_run=LONG, idle_after=SHORT)
    task.sources["s1"].run(ADD.format(f"{task.name}.g_1"))
    scheduled.follow("s1", "s2")
    assert scheduled.end == ("asked", True)
    (lock,) = (view.id for view in coordinate.views(task.work().meta))
    scheduled.runs[lock] = "failed"
    scheduled.follow("s1", "s2")
    assert scheduled.end == ("nothing came", False), "the lock waits for the other shard"
    task.sources["s2"].run(ADD.format(f"{task.name}.g_2"))
    scheduled.follow("s1", "s2")
    assert scheduled.end == ("asked", True)
    scheduled.runs[lock + LATE] = "running"
    scheduled.follow("s1", "s2")
    assert scheduled.end == ("nothing came", False)


def test_a_failure_ends_a_run_once_and_the_other_source_goes_on(scheduled: Scheduled, known: dict[str, str]) -> None:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    from unshard_airflow.outages import cause

    task = scheduled.task
    scheduled.options(live_run=LONG, idle_after=SHORT)
    write_source(task.folder, "s2", endpoint(task.sources["s2"], password="wrong"))
    with pytest.raises(AirflowFailException, match="US-2002") as caught:
        scheduled.follow("s1", "s2")
    assert scheduled.end == ("asked", True)
    known |= {"cause": cause(caught.value), "since": "yesterday"}
    scheduled.write("s1", 1)
    with pytest.raises(AirflowSkipException, match="it still fails"):
        scheduled.follow("s1", "s2")
    assert (scheduled.rows(), scheduled.end) == ([1], ("nothing came", False))


def test_a_changed_file_ends_a_run(scheduled: Scheduled) -> None:
    scheduled.options(live_run=LONG, idle_after=LONG)
    for number, name in enumerate(("task.yaml", "sources/s1.yaml"), 1):
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(scheduled.follow, "s1")
            scheduled.write("s1", number)
            scheduled.await_row(number)
            os.utime(scheduled.task.folder / name, (number, number))
            running.result(SECONDS)
        assert scheduled.end == ("asked", True), name
