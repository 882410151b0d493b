"""The task `follow` of a live run in Airflow: the reasons for which it ends, and what the next tasks are told."""

import os
import sys
import time
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
    max_tries: int = 0
    others: list[bool] = field(default_factory=list)
    """What the other processes of the live run have published about their ends."""

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
            try_number=1,
            max_tries=self.max_tries,
            xcom_push=lambda key, value: self.published.update({key: value}),
            xcom_pull=lambda task_ids, key: self.others,
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
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Airflow without its database: the failure of which people know."""
    if "airflow" not in sys.modules:
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    from unshard_airflow import follow, outages

    found: dict[str, Any] = {}
    monkeypatch.setattr(outages, "Variable", SimpleNamespace(get=lambda *_, **__: found or None))
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.1)
    return found


@pytest.fixture
def scheduled(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path, known: dict[str, Any]
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


def test_a_failure_ends_a_run_once_and_the_other_source_goes_on(scheduled: Scheduled, known: dict[str, Any]) -> None:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    from unshard_airflow.outages import cause

    task = scheduled.task
    scheduled.options(live_run=LONG, idle_after=SHORT)
    write_source(task.folder, "s2", endpoint(task.sources["s2"], password="wrong"))
    with pytest.raises(AirflowFailException, match="US-2002") as caught:
        scheduled.follow("s1", "s2")
    assert scheduled.end == ("asked", True)
    known |= {"causes": [cause(caught.value)], "since": "yesterday"}
    scheduled.write("s1", 1)
    with pytest.raises(AirflowSkipException, match="it still fails"):
        scheduled.follow("s1", "s2")
    assert (scheduled.rows(), scheduled.end) == ([1], ("nothing came", False))


def test_each_of_two_failures_in_one_process_is_told(scheduled: Scheduled, known: dict[str, Any]) -> None:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    task = scheduled.task
    scheduled.options(live_run=LONG, idle_after=SHORT)
    for source in ("s1", "s2"):
        write_source(task.folder, source, endpoint(task.sources[source], password="wrong"))
    known |= {"causes": ["US-2002 source s1"], "since": "yesterday"}
    with pytest.raises(AirflowFailException, match="source s2"):
        scheduled.follow("s1", "s2")
    known |= {"causes": ["US-2002 source s1", "US-2002 source s2"]}
    with pytest.raises(AirflowSkipException, match="it still fails"):
        scheduled.follow("s1", "s2")


def test_all_processes_of_a_live_run_end_together(scheduled: Scheduled) -> None:
    """Only the next live run works on the sources of a process that has ended, so that their other targets wait."""
    from airflow.sdk.exceptions import AirflowFailException

    scheduled.options(live_run="2m", idle_after=LONG)
    scheduled.task.target.run(f"ALTER TABLE {scheduled.task.table('g')} ADD CHECK (id < 100)")
    scheduled.write("s2", 500)
    with pytest.raises(AirflowFailException, match=r"\[US-\d{4}\]"):
        scheduled.follow("s2")
    assert scheduled.published["over"] is True, "its target is suspended"
    scheduled.others = [scheduled.published["over"]]
    scheduled.follow("s1")
    assert scheduled.end == ("asked", True)


def test_a_process_that_is_tried_again_ends_no_other(scheduled: Scheduled) -> None:
    from unshard.errors import UnshardError

    scheduled.options(live_run=LONG, idle_after=LONG)
    write_source(scheduled.task.folder, "s2", endpoint(scheduled.task.sources["s2"]) | {"port": 1})
    for scheduled.max_tries in (1, 0):
        with pytest.raises(UnshardError, match="US-2001"):
            scheduled.follow("s2")
        assert scheduled.published.pop("over", False) is (scheduled.max_tries == 0)


def test_a_run_that_ends_during_a_retry_has_failed(scheduled: Scheduled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of the source has its next connection, and then finds that the run is over."""
    from unshard.errors import UnshardError
    from unshard.units.task import live

    scheduled.options(live_run="5s", idle_after=LONG)
    write_source(scheduled.task.folder, "s2", endpoint(scheduled.task.sources["s2"]) | {"port": 1})
    entered, tries = live.LiveSource.__enter__, list[float]()

    def slow(source: live.LiveSource) -> live.LiveSource:
        tries.append(time.monotonic())
        if len(tries) > 1:
            time.sleep(5)
        return entered(source)

    monkeypatch.setattr(live.LiveSource, "__enter__", slow)
    with pytest.raises(UnshardError, match="US-2001"):
        scheduled.follow("s2")
    assert len(tries) == 2


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
