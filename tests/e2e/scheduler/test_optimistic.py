"""Optimistic mode under a running scheduler: one DAG run per open difference, from its first window to its end."""

import contextlib
from typing import Any

import pytest

from tests.e2e.browser import Browser
from tests.e2e.merge import Merge
from tests.e2e.scheduler.waiting import SECONDS, await_equal, log_in, succeed
from tests.e2e.taskinstances import await_run, clear, log_of, xcom
from unshard_demo.airflow import Airflow

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration]

FOLLOW = "follow_difference"


@pytest.fixture
def join(joined: Merge) -> str:
    """The DAG of differences."""
    return f"unshard_join__{joined.name}"


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
    browser.click(".tabs a", "Changes")
    return browser.text("table.matrix")


@pytest.mark.test_all(
    "the demo in this mode, which .ci/run runs, waits so; tests/integration/task/test_joined_views.py has the matrix"
)
def test_a_rollout_has_one_run_that_waits_until_it_is_complete(
    airflow: Airflow, joined: Merge, join: str, browser: Browser
) -> None:
    (source, table), *others = tables(joined)
    joined.sources[source].run(f"ALTER TABLE {table} ADD c INT NOT NULL DEFAULT 7")
    window(airflow, joined)
    (run,) = followed(airflow, join, 1)
    await_follow(airflow, join, run, "deferred")
    joined.change(1)
    window(airflow, joined)
    assert [each["state"] for each in airflow.runs(join)] == ["running"]

    def is_told() -> bool:
        with contextlib.suppress(RuntimeError):  # each start of a task removes what it has told
            told = xcom(airflow, join, run, FOLLOW, "difference")
            return (told["state"], len(told["have"]), len(told["lack"])) == ("open", 1, 3)
        return False

    airflow.await_true(is_told, SECONDS, "the progress of the rollout")
    assert "column c" in shown(browser, airflow, joined)
    assert table in browser.text("table.matrix tr:has(td.cell.has)")
    assert others[0][1] in browser.text("table.matrix tr:has(td.cell.lacks)")
    for source, table in others:
        joined.sources[source].run(f"ALTER TABLE {table} ADD c INT NOT NULL DEFAULT 7")
    window(airflow, joined)
    assert succeed(airflow, join, run) == {FOLLOW: "success"}
    joined.change(3)
    await_equal(airflow, joined)
    assert followed(airflow, join, 1) == [run]


@pytest.mark.test_all("each DDL is a difference with one run, as the added column")
def test_a_dropped_column_has_one_run_from_the_first_shard_to_the_target(
    airflow: Airflow, joined: Merge, join: str
) -> None:
    before = followed(airflow, join, 1)
    for source, table in tables(joined):
        joined.sources[source].run(f"ALTER TABLE {table} DROP COLUMN c")
        window(airflow, joined)
    (run,) = followed(airflow, join, len(before) + 1)[len(before) :]
    succeed(airflow, join, run)
    assert joined.target.run(f"SHOW COLUMNS FROM {joined.table} LIKE 'c'") == []
    await_equal(airflow, joined)
    assert followed(airflow, join, 1) == [*before, run]


@pytest.mark.test_all("eight windows; tests/integration/join has conflicts without Airflow")
def test_a_conflict_fails_and_a_clear_continues_it(airflow: Airflow, joined: Merge, join: str) -> None:
    before = followed(airflow, join, 1)
    (first, *others, last) = tables(joined)
    joined.sources[first[0]].run(f"ALTER TABLE {first[1]} ADD d INT")
    window(airflow, joined)
    (rollout,) = followed(airflow, join, len(before) + 1)[len(before) :]
    joined.sources[last[0]].run(f"ALTER TABLE {last[1]} ADD d DATE")
    window(airflow, joined)
    (conflict,) = followed(airflow, join, len(before) + 2)[len(before) + 1 :]
    assert await_run(airflow, join, conflict, SECONDS) == "failed"
    log = log_of(airflow, join, conflict, FOLLOW)
    for told in ("d int(11)", "d date", first[1], last[1]):
        assert told in log
    assert airflow.run(join, rollout)["state"] == "running", "it is only slow"

    joined.change(10)  # the other shards continue
    window(airflow, joined)
    brought = f"SELECT COUNT(*) FROM {joined.table} WHERE name = 'new 10'"
    airflow.await_true(lambda: joined.target.run(brought) == [(3,)], SECONDS, "rows of the other shards")

    clear(airflow, join, conflict, FOLLOW)
    airflow.await_true(
        lambda: len([task for task in airflow.tasks(join, conflict) if task["try_number"] > 1]) == 1, SECONDS, "a try"
    )
    assert await_run(airflow, join, conflict, SECONDS) == "failed", "nobody has changed anything"

    joined.sources[last[0]].run(f"ALTER TABLE {last[1]} DROP d", f"ALTER TABLE {last[1]} ADD d INT")
    for source, table in others:
        joined.sources[source].run(f"ALTER TABLE {table} ADD d INT")
    window(airflow, joined)
    clear(airflow, join, conflict, FOLLOW)
    for run in (conflict, rollout):
        succeed(airflow, join, run)
    await_equal(airflow, joined)
    assert followed(airflow, join, 1) == [*before, rollout, conflict]
