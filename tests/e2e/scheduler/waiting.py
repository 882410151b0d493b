"""Helpers for tests with a running scheduler: wait for runs, for locks, and until the target is correct."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from playwright.sync_api import Request

from tests.e2e.browser import Browser
from tests.e2e.merge import Merge
from tests.e2e.taskinstances import await_run, links
from unshard_airflow.follow import LATE
from unshard_demo.airflow import Airflow

SECONDS = 1800.0


def succeed(airflow: Airflow, dag: str, run: str) -> dict[str, Any]:
    """Wait for a run to succeed; return the states of its tasks."""
    state = await_run(airflow, dag, run, SECONDS)
    states = airflow.states(dag, run)
    assert state == "success", states
    return states


def clear_in_dialog(browser: Browser, page: str) -> None:
    """Clear a task on its page until the server does it: an Airflow whose SQLite is busy answers 500."""

    def clears(request: Request) -> bool:
        return "clearTaskInstances" in request.url and request.post_data_json["dry_run"] is False

    while True:
        browser.go(page)
        browser.click("button[aria-label='Press shift+c to clear']")
        status = browser.send("[role=dialog] button", "Confirm", clears)
        if status == HTTPStatus.OK:
            return
        assert status == HTTPStatus.INTERNAL_SERVER_ERROR


def is_equal(merge: Merge) -> bool:
    try:
        merge.assert_equal()
    except AssertionError:
        return False
    return True


def await_equal(airflow: Airflow, merge: Merge) -> None:
    """Wait until the windows have made the target equal to the union; a timeout reports the differences."""
    airflow.trigger(f"unshard_sync__{merge.name}")
    try:
        airflow.await_true(lambda: is_equal(merge), SECONDS, "target equals union")
    finally:
        merge.assert_equal()


def await_quiet(airflow: Airflow, merge: Merge) -> None:
    """Wait until no live run is at work."""
    sync = f"unshard_sync__{merge.name}"
    airflow.await_true(lambda: all(run["end_date"] for run in airflow.runs(sync)), SECONDS, "a quiet task")


@contextlib.contextmanager
def steady_load(merge: Merge) -> Iterator[None]:
    """Write into all sources ten times per second for the duration of the block."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.wait(0.1):
            number += 1
            for source, tables in merge.shards.items():
                merge.sources[source].run(f"UPDATE {tables[0]} SET amount = {number} WHERE id % 10 = {number % 10}")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def open_lock(airflow: Airflow, merge: Merge, number: int) -> str:
    """Wait for the run of lock number `number`; return its id."""
    dag = f"unshard_ddl__{merge.name}"
    airflow.trigger(f"unshard_sync__{merge.name}")
    airflow.await_true(lambda: len(locks_run(airflow, dag)) >= number, SECONDS, "a run for the lock")
    return locks_run(airflow, dag)[number - 1]


def locks_run(airflow: Airflow, dag: str) -> list[str]:
    """Return the locks that have a run, the oldest first."""
    return [str(run["dag_run_id"]) for run in airflow.runs(dag) if not str(run["dag_run_id"]).endswith(LATE)]


def await_wait(airflow: Airflow, dag: str, lock: str, state: str) -> None:
    """Wait until the coordinator of a lock is in that state."""
    airflow.await_true(lambda: airflow.states(dag, lock)["wait_for_shards"] == state, SECONDS, f"a wait {state}")


def links_to_locks(airflow: Airflow, merge: Merge) -> set[str | None]:
    """Return the link targets of the windows' tasks `start_lock`."""
    sync = f"unshard_sync__{merge.name}"
    runs = [run["dag_run_id"] for run in airflow.runs(sync)]
    started = [
        (run, task["map_index"])
        for run in runs
        for task in airflow.tasks(sync, run)
        if task["task_id"] == "start_lock" and task["map_index"] >= 0 and task["state"] == "success"
    ]
    return {links(airflow, sync, run, "start_lock", index)["DDL lock"] for run, index in started}


def is_added(merge: Merge) -> bool:
    """Whether the target has the new column."""
    return bool(merge.target.run(f"SHOW COLUMNS FROM {merge.table} LIKE 'extra'"))


def log_in(browser: Browser, airflow: Airflow, user: str) -> None:
    """Log in to the web page as one of the private Airflow's users."""
    browser.forget()
    browser.go(airflow.url)
    browser.fill("input[name=username]", user)
    browser.fill("input[name=password]", airflow.password)
    browser.click("button[type=submit]")
    browser.await_element("a[href='/plugin/unshard']")


def answer(
    airflow: Airflow,
    asked: tuple[str, str, str],
    choice: str,
    fields: dict[str, str],
    done: Callable[[], bool],
    index: int = -1,
) -> None:
    """Answer the question of a task (DAG, run, task) each time it asks, until the answer takes effect."""
    dag, run, task = asked
    at = f"dags/{dag}/dagRuns/{run}/taskInstances/{task}/{index}/hitlDetails"

    def is_asking() -> bool:
        return state_of(airflow, asked, index) == "awaiting_input"

    def is_done() -> bool:
        if not done() and is_asking():
            # A person answers only after the scheduler has noticed the end of the asking process. Wait for that, too.
            await_rounds(airflow)
            with contextlib.suppress(RuntimeError):  # the question was withdrawn
                airflow.api("PATCH", at, {"chosen_options": [choice], "params_input": fields})
                airflow.await_true(lambda: not is_asking(), SECONDS, "the answer is taken")
        return done()

    airflow.await_true(is_done, SECONDS, f"an answer to {task}")


def state_of(airflow: Airflow, task: tuple[str, str, str], index: int = -1) -> str | None:
    """Return the state of a task (DAG, run, task); a mapped one that has asked need not have its name yet."""
    dag, run, name = task
    found = (each for each in airflow.tasks(dag, run) if (each["task_id"], each["map_index"]) == (name, index))
    return next((each["state"] for each in found), None)


def await_rounds(airflow: Airflow) -> None:
    """Wait until the scheduler has completed a full round from now on."""
    beats: set[str] = set()

    def has_beaten() -> bool:
        with contextlib.suppress(OSError):  # SQLite was busy
            beats.add(airflow.health()["scheduler"]["latest_scheduler_heartbeat"])
        return len(beats) > 2

    airflow.await_true(has_beaten, SECONDS, "two heartbeats of the scheduler")
