"""Optimistic mode under a running scheduler: one DAG run per open difference, from its first window to its end."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.browser import Browser, browsing
from tests.e2e.merge import LIVE, Merge, merging
from tests.e2e.scheduled import SECONDS, await_equal, log_in, succeed
from unshard_demo.airflow import Airflow, running_airflow
from unshard_demo.servers import MariaDb
from unshard_demo.spark import SparkConnect

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration]

FOLLOW = "follow_difference"


@pytest.fixture(scope="module")
def merge(
    source_1: MariaDb,
    source_2: MariaDb,
    target: MariaDb,
    shared_spark: SparkConnect,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Merge]:
    folder = tmp_path_factory.mktemp("joined")
    sources = {"east-1": source_1, "west-1": source_2}
    with merging("joined", folder, sources, target, shared_spark) as made:
        live = {"spark_connection": LIVE, "bulk_connection": LIVE}
        made.write_task("optimistic", **live, schedule="* * * * *", lock_timeout="3s")
        yield made


@pytest.fixture(scope="module")
def airflow(merge: Merge) -> Iterator[Airflow]:
    """A scheduler that has loaded the task."""
    with running_airflow(merge.folder / "airflow", merge.tasks, merge.connections) as airflow:
        airflow.await_dags(*(f"unshard_{kind}__{merge.name}" for kind in ("full", "sync", "ddl", "join")))
        full = f"unshard_full__{merge.name}"
        succeed(airflow, full, airflow.trigger(full))
        yield airflow


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def join(merge: Merge) -> str:
    """The DAG of differences."""
    return f"unshard_join__{merge.name}"


def tables(merge: Merge) -> list[tuple[str, str]]:
    return [(source, table) for source, tables in merge.shards.items() for table in tables]


def window(airflow: Airflow, merge: Merge) -> dict[str, Any]:
    """Run a window of every source; return the states of its tasks."""
    sync = f"unshard_sync__{merge.name}"
    return succeed(airflow, sync, airflow.trigger(sync))


def followed(airflow: Airflow, join: str, number: int) -> list[str]:
    """Wait until there are that many runs for differences; return their ids."""
    airflow.await_true(lambda: len(airflow.runs(join)) >= number, SECONDS, f"{number} runs for differences")
    return [str(run["dag_run_id"]) for run in airflow.runs(join)]


def await_follow(airflow: Airflow, join: str, run: str, state: str) -> None:
    airflow.await_true(lambda: airflow.states(join, run)[FOLLOW] == state, SECONDS, f"{FOLLOW} {state}")


def shown(browser: Browser, airflow: Airflow, merge: Merge) -> str:
    """Return the matrix of shards and changes as an operator sees it inside Airflow's frame."""
    log_in(browser, airflow, "viewer")
    browser.click("a[href='/plugin/unshard']")
    browser.click("#tasks a", merge.name)
    return browser.text("table.matrix")


def test_a_rollout_has_one_run_that_waits_until_it_is_complete(
    airflow: Airflow, merge: Merge, join: str, browser: Browser
) -> None:
    (source, table), *others = tables(merge)
    merge.sources[source].run(f"ALTER TABLE {table} ADD c INT NOT NULL DEFAULT 7")
    window(airflow, merge)
    (run,) = followed(airflow, join, 1)
    for number in (1, 2):  # each look takes longer than lock-timeout
        merge.change(number)
        window(airflow, merge)
        await_follow(airflow, join, run, "running")
        await_follow(airflow, join, run, "up_for_reschedule")
    assert [each["state"] for each in airflow.runs(join)] == ["running"]

    def is_told() -> bool:
        with contextlib.suppress(RuntimeError):  # each start of a task removes what it has told
            told = airflow.xcom(join, run, FOLLOW, "difference")
            return (told["state"], len(told["have"]), len(told["lack"])) == ("open", 1, 3)
        return False

    airflow.await_true(is_told, SECONDS, "the progress of the rollout")
    assert "column c" in shown(browser, airflow, merge)
    assert table in browser.text("table.matrix tr:has(td.cell.has)")
    assert others[0][1] in browser.text("table.matrix tr:has(td.cell.lacks)")
    for source, table in others:
        merge.sources[source].run(f"ALTER TABLE {table} ADD c INT NOT NULL DEFAULT 7")
    window(airflow, merge)
    assert succeed(airflow, join, run) == {FOLLOW: "success"}
    merge.change(3)
    await_equal(airflow, merge)
    assert followed(airflow, join, 1) == [run]


def test_a_dropped_column_has_one_run_from_the_first_shard_to_the_target(
    airflow: Airflow, merge: Merge, join: str
) -> None:
    before = followed(airflow, join, 1)
    for source, table in tables(merge):
        merge.sources[source].run(f"ALTER TABLE {table} DROP COLUMN c")
        window(airflow, merge)
    (run,) = followed(airflow, join, len(before) + 1)[len(before) :]
    succeed(airflow, join, run)
    assert merge.target.run(f"SHOW COLUMNS FROM {merge.table} LIKE 'c'") == []
    await_equal(airflow, merge)
    assert followed(airflow, join, 1) == [*before, run]


def test_a_conflict_fails_and_a_clear_continues_it(airflow: Airflow, merge: Merge, join: str) -> None:
    before = followed(airflow, join, 1)
    (first, *others, last) = tables(merge)
    merge.sources[first[0]].run(f"ALTER TABLE {first[1]} ADD d INT")
    window(airflow, merge)
    (rollout,) = followed(airflow, join, len(before) + 1)[len(before) :]
    merge.sources[last[0]].run(f"ALTER TABLE {last[1]} ADD d DATE")
    window(airflow, merge)
    (conflict,) = followed(airflow, join, len(before) + 2)[len(before) + 1 :]
    assert airflow.await_run(join, conflict, SECONDS) == "failed"
    log = airflow.log(join, conflict, FOLLOW)
    for told in ("d int(11)", "d date", first[1], last[1]):
        assert told in log
    assert airflow.run(join, rollout)["state"] == "running", "it is only slow"

    merge.change(10)  # the other shards continue
    window(airflow, merge)
    brought = f"SELECT COUNT(*) FROM {merge.table} WHERE name = 'new 10'"
    airflow.await_true(lambda: merge.target.run(brought) == [(3,)], SECONDS, "rows of the other shards")

    airflow.clear(join, conflict, FOLLOW)
    airflow.await_true(
        lambda: len([task for task in airflow.tasks(join, conflict) if task["try_number"] > 1]) == 1, SECONDS, "a try"
    )
    assert airflow.await_run(join, conflict, SECONDS) == "failed", "nobody has changed anything"

    merge.sources[last[0]].run(f"ALTER TABLE {last[1]} DROP d", f"ALTER TABLE {last[1]} ADD d INT")
    for source, table in others:
        merge.sources[source].run(f"ALTER TABLE {table} ADD d INT")
    window(airflow, merge)
    airflow.clear(join, conflict, FOLLOW)
    for run in (conflict, rollout):
        succeed(airflow, join, run)
    await_equal(airflow, merge)
    assert followed(airflow, join, 1) == [*before, rollout, conflict]
