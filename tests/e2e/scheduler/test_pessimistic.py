"""The DAGs under a running scheduler: full load, windows that start each other, a DDL lock forced by a clear."""

import contextlib
import importlib.util
import json
import os
import re
import signal
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.browser import Browser
from tests.e2e.merge import Merge
from tests.e2e.scheduler.conftest import LINEAGE
from tests.e2e.scheduler.waiting import (
    SECONDS,
    answer,
    await_equal,
    await_quiet,
    await_wait,
    clear_in_dialog,
    is_added,
    links_to_locks,
    locks_run,
    log_in,
    open_lock,
    state_of,
    steady_load,
    succeed,
)
from tests.e2e.taskinstances import await_run, clear, links, log_of, xcom
from tests.received import Metrics
from unshard_airflow.follow import LATE
from unshard_demo.airflow import Airflow

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration]

ADD = "ALTER TABLE {} ADD COLUMN extra INT NOT NULL DEFAULT 5"
WIDEN = "ALTER TABLE {} MODIFY COLUMN name VARCHAR(80) NOT NULL"
NOTE = "ALTER TABLE {} ADD COLUMN note VARCHAR({})"
RESIZE = "ALTER TABLE {} MODIFY COLUMN name VARCHAR(60) NOT NULL"


def test_full_load_hands_over_to_windows_that_wake_each_other(airflow: Airflow, merge: Merge, metrics: Metrics) -> None:
    full, sync = f"unshard_full__{merge.name}", f"unshard_sync__{merge.name}"
    states = succeed(airflow, full, airflow.trigger(full))
    assert set(states.values()) == {"success"}
    assert {run["bundle_version"] for run in airflow.runs(full)} == {None}

    def is_woken() -> bool:
        return any(run["run_type"] == "asset_triggered" for run in airflow.runs(sync))

    # Before any change: a scheduled run would also apply it, and start the next one.
    airflow.await_true(is_woken, SECONDS, "the hand-over wakes the windows")
    merge.change(1)
    await_equal(airflow, merge)
    assert_told(airflow, merge, metrics)


def assert_told(airflow: Airflow, merge: Merge, metrics: Metrics) -> None:
    """The live run has told of its rows: an asset event, metrics, lineage, a line in the log."""
    sync, name = f"unshard_sync__{merge.name}", merge.table.replace("`", "")

    def events() -> list[dict[str, Any]]:
        found = airflow.api("GET", f"assets/events?source_dag_id={sync}")["asset_events"]
        return [each for each in found if each["uri"].startswith("mysql:")]

    airflow.await_true(lambda: bool(events()), SECONDS, "an event of the changed table")
    event = events()[0]
    assert event["uri"] == f"mysql://127.0.0.1:{merge.target.port}/{name.replace('.', '/')}"
    assert event["extra"]["rows"] > 0 and event["extra"]["lag_seconds"] is not None
    log = log_of(airflow, sync, event["source_run_id"], "follow", map_index=0)
    assert "window done source=north-1" in log and " lag=" in log
    tags = {"task": merge.name, "source": "north-1"}

    def is_sent() -> bool:
        return metrics.of("airflow.unshard.lag_seconds", **tags) == 0

    airflow.await_true(is_sent, SECONDS, "the lag, from the triggerer")
    assert metrics.of("airflow.unshard.load_percent", **tags) == 100
    assert (metrics.of("airflow.unshard.rows_applied", **tags) or 0) > 0
    if importlib.util.find_spec("airflow.providers.openlineage") is None:
        return
    lineage = [json.loads(line) for line in (merge.folder / LINEAGE).read_text().splitlines()]
    outputs = {
        each["job"]["name"]: (output["name"], output["outputFacets"]["outputStatistics"]["rowCount"])
        for each in lineage
        for output in each.get("outputs", ())
        if each["eventType"] == "COMPLETE"
    }
    assert outputs[f"{sync}.follow"][0] == outputs[f"unshard_full__{merge.name}.load"][0] == name


@pytest.mark.test_all("a live run of the demo does so, too")
def test_a_live_run_applies_what_comes_and_new_binlog_starts_the_next_one(airflow: Airflow, merge: Merge) -> None:
    """No DAG run without binlog, and one for as long as rows come."""
    sync = f"unshard_sync__{merge.name}"
    await_quiet(airflow, merge)
    before = len(airflow.runs(sync))
    with steady_load(merge):
        for number in range(20, 24):
            merge.change(number)
            brought = f"SELECT COUNT(*) FROM {merge.table} WHERE name = 'new {number}'"
            airflow.await_true(lambda query=brought: merge.target.run(query) == [(4,)], SECONDS, "the rows")
    await_equal(airflow, merge)
    assert airflow.runs(sync)[before]["run_type"] == "asset_triggered"
    assert len(airflow.runs(sync)) <= before + 2, "the wait for equal rows triggers one"


def test_clearing_unlock_forces_the_lock(airflow: Airflow, merge: Merge) -> None:
    dag = f"unshard_ddl__{merge.name}"
    first, *others = [(source, table) for source, tables in merge.shards.items() for table in tables]
    merge.sources[first[0]].run(ADD.format(first[1]))
    lock = open_lock(airflow, merge, 1)
    assert lock.startswith(f"{merge.name}-{merge.table}-")
    await_wait(airflow, dag, lock, "deferred")
    states = airflow.states(dag, lock)
    assert (states["unlock"], states["replace"]) == ("skipped", "skipped"), "nobody has given a command"
    assert xcom(airflow, dag, lock, "wait_for_shards", "missing") == [f"{source} {table}" for source, table in others]
    assert merge.target.run(f"SHOW COLUMNS FROM {merge.table} LIKE 'extra'") == []
    assert f"/dags/{dag}/runs/{lock}" in links_to_locks(airflow, merge)

    clear(airflow, dag, lock, "unlock")
    states = succeed(airflow, dag, lock)
    assert states["unlock"] == states["wait_for_shards"] == states[f"execute_ddl[{first[0]}]"] == "success"
    assert states["execute_ddl[south-1]"] == "skipped"
    assert merge.target.run(f"SHOW COLUMNS FROM {merge.table} LIKE 'extra'") != []
    assert orders_to(merge, lock) == [("unlock", "", "clear")], "no worker is told who it was"
    clear(airflow, dag, lock, "unlock")
    assert succeed(airflow, dag, lock)["unlock"] == "skipped"
    assert orders_to(merge, lock) == [("unlock", "", "clear")], "it is resolved, so this was no order"

    for source, table in others:  # they have a pending skip, so no other lock is opened for it
        merge.sources[source].run(ADD.format(table))
    merge.change(2)
    await_equal(airflow, merge)
    assert [run["dag_run_id"] for run in airflow.runs(dag)] == [lock]


@pytest.mark.test_all("the lock of the demo does so, too")
def test_lock_resolves_when_every_shard_has_come(airflow: Airflow, merge: Merge) -> None:
    dag = f"unshard_ddl__{merge.name}"
    tables = [(source, table) for source, tables in merge.shards.items() for table in tables]
    for source, table in tables[:2]:
        merge.sources[source].run(RESIZE.format(table))
    lock = open_lock(airflow, merge, 2)
    merge.change(3)
    await_wait(airflow, dag, lock, "deferred")
    assert [t["try_number"] for t in airflow.tasks(dag, lock) if t["task_id"] == "wait_for_shards"] == [1]
    for source, table in tables[2:]:
        merge.sources[source].run(RESIZE.format(table))
    airflow.trigger(f"unshard_sync__{merge.name}")
    states = succeed(airflow, dag, lock)
    assert states["execute_ddl[north-1]"] == "success"
    assert states["execute_ddl[south-1]"] == "skipped"
    merge.change(4)
    await_equal(airflow, merge)


@pytest.mark.test_all("a killed window is repeated, too")
def test_cleared_window_does_no_harm(airflow: Airflow, merge: Merge) -> None:
    sync = f"unshard_sync__{merge.name}"
    merge.change(5)
    run = airflow.trigger(sync)
    succeed(airflow, sync, run)
    clear(airflow, sync, run, "follow")
    succeed(airflow, sync, run)
    await_equal(airflow, merge)


def test_check_proves_the_target_and_a_person_repairs_a_difference(
    airflow: Airflow, merge: Merge, metrics: Metrics
) -> None:
    dag, schema_and_name = f"unshard_check__{merge.name}", merge.table.replace("`", "").replace(".", "/")
    with steady_load(merge):
        succeed(airflow, dag, airflow.trigger(dag))
    await_equal(airflow, merge)
    states = succeed(airflow, dag, airflow.trigger(dag))
    assert states["list_targets"] == states[f"check[{merge.table}]"] == "success"
    events = airflow.api("GET", f"assets/events?source_dag_id={dag}")["asset_events"]
    uris = {
        f"unshard://{merge.name}/proven/{schema_and_name}",
        f"mysql://127.0.0.1:{merge.target.port}/{schema_and_name}",
    }
    assert {event["uri"] for event in events} == uris
    assert all(event["extra"]["equal"] and event["extra"]["rows"] > 100 for event in events)
    tags = {"task": merge.name, "target": schema_and_name.replace("/", ".")}
    assert metrics.of("airflow.unshard.proven_percent", **tags) == 100
    assert metrics.of("airflow.unshard.differing_ranges", **tags) == 0
    ((key, name),) = merge.target.run(f"SELECT id, name FROM {merge.table} WHERE name NOT LIKE 'new%' LIMIT 1")
    merge.target.run(
        f"UPDATE {merge.table} SET name = 'wrong' WHERE id = {key}",
        f"UPDATE {merge.name}_meta.judged_range SET compared_at = compared_at - INTERVAL 2 DAY",
    )
    run = airflow.trigger(dag)
    assert await_run(airflow, dag, run, SECONDS) == "failed"
    assert f"different: id={key}" in log_of(airflow, dag, run, "check", map_index=0)
    assert metrics.of("airflow.unshard.differing_ranges", **tags) == 1
    asked_to_repair(airflow, merge, (key, name))
    clear(airflow, dag, run, "check")
    succeed(airflow, dag, run)


def asked_to_repair(airflow: Airflow, merge: Merge, row: tuple[Any, Any]) -> None:
    """Answer the question about a row whose name is wrong: first leave it, then repair it."""
    dag, (key, name) = f"unshard_repair__{merge.name}", row
    asked = dag, airflow.trigger(dag), "repair"
    there = f"SELECT name FROM {merge.table} WHERE id = {key}"

    def is_in(state: str) -> bool:
        return state_of(airflow, asked, 0) == state

    airflow.await_true(lambda: is_in("awaiting_input"), SECONDS, "a question")
    body = airflow.api("GET", f"dags/{dag}/dagRuns/{asked[1]}/taskInstances/repair/0/hitlDetails")["body"]
    assert f"| `id={key} of " in body and f"`name` = `wrong` | `name` = `{name}` |" in body and "amount" not in body
    answer(airflow, asked, "Leave them", {}, lambda: is_in("skipped"), 0)
    assert merge.target.run(there) == [("wrong",)]
    succeed(airflow, *asked[:2])  # a run that is about to end forgets what is cleared meanwhile
    clear(airflow, *asked)
    airflow.await_true(lambda: is_in("awaiting_input"), SECONDS, "a question again")
    answer(airflow, asked, "Repair", {}, lambda: is_in("success"), 0)
    assert merge.target.run(there) == [(name,)]
    orders = merge.target.run(f"SELECT who, via FROM {merge.name}_meta.operator_action WHERE action = 'repair'")
    assert orders == [("admin", "required action")]


@pytest.mark.test_all("tests/integration/ddl executes them without Airflow")
def test_statements_about_whole_tables_reach_one_to_one_targets(airflow: Airflow, merge: Merge) -> None:
    source, dag = merge.sources["north-1"], f"unshard_ddl__{merge.name}"

    def await_same(text: str) -> None:
        airflow.trigger(f"unshard_sync__{merge.name}")
        airflow.await_true(lambda: merge.copies(merge.target) == merge.copies(source), SECONDS, text)

    source.run(
        f"CREATE DATABASE {merge.name}_copy",
        f"USE {merge.name}_copy",
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in ("a", "b", "dropped", "renamed")),
        *(f"INSERT INTO {name} VALUES (1), (2)" for name in ("a", "dropped", "renamed")),
    )
    await_same("the tables of one source")
    before = len(locks_run(airflow, dag))
    source.run(
        f"USE {merge.name}_copy",
        "TRUNCATE a",
        "INSERT INTO a VALUES (3)",
        "DROP TABLE dropped",
        "RENAME TABLE renamed TO other",
        "INSERT INTO other VALUES (4)",
        "RENAME TABLE a TO x, b TO a, x TO b",
        "INSERT INTO a VALUES (5)",
    )
    await_same("the statements about whole tables")
    assert sorted(merge.copies(merge.target) or ()) == ["a", "b", "other"]
    locks = locks_run(airflow, dag)[before:]
    assert len(locks) >= 6, "each statement has a lock of its own"
    for lock in locks:
        succeed(airflow, dag, lock)


def test_killed_window_is_retried(airflow: Airflow, merge: Merge) -> None:
    """SIGKILL hits the process of `follow` at any point; Airflow retries, and the plan is the same."""
    sync = f"unshard_sync__{merge.name}"
    killed: dict[str, Any] = {}
    number = 10

    def hit() -> bool:
        nonlocal number
        running = [run["dag_run_id"] for run in airflow.runs(sync) if run["state"] in ("running", "queued")]
        if not running:
            number += 1
            merge.change(number)
            airflow.trigger(sync)
            return False
        for task in airflow.tasks(sync, running[0]):
            if task["task_id"] == "follow" and task["state"] == "running" and task["pid"]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(task["pid"], signal.SIGKILL)
                    killed.update(task)
                    return True
        return False

    def again() -> dict[str, Any]:
        tasks = airflow.tasks(sync, killed["dag_run_id"])
        (task,) = (t for t in tasks if (t["task_id"], t["map_index"]) == ("follow", killed["map_index"]))
        return task

    def is_hit() -> bool:
        """Whether the kill was in time:

        a process that has reported its end leaves no trace, so the next window is tried.
        """
        airflow.await_true(hit, SECONDS, "a window to kill")
        succeed(airflow, sync, killed["dag_run_id"])
        return again()["try_number"] > 1

    airflow.await_true(is_hit, SECONDS, "a killed window")
    assert again()["state"] == "success"
    await_equal(airflow, merge)


def red(airflow: Airflow, merge: Merge) -> list[str]:
    """Return the live runs in which south-1 has failed."""
    sync = f"unshard_sync__{merge.name}"
    runs = [run["dag_run_id"] for run in airflow.runs(sync)]
    return [run for run in runs if airflow.states(sync, run).get("follow[south-1]") == "failed"]


def test_failed_source_is_red_once_and_stops_no_other(airflow: Airflow, merge: Merge) -> None:
    sync, account = f"unshard_sync__{merge.name}", f"'{merge.name}_user'@'%'"
    alerts = merge.folder / "alerts"

    def told(what: str) -> int:
        return alerts.read_text().count(f"follow of source south-1 {what}") if alerts.exists() else 0

    # The live run of the test before may still have a connection.
    merge.sources["south-1"].run(f"ALTER USER {account} ACCOUNT LOCK", f"KILL USER {account}")
    try:
        merge.change(6)
        airflow.trigger(sync)
        airflow.await_true(lambda: red(airflow, merge), SECONDS, "a red source")
        (run,) = red(airflow, merge)
        assert await_run(airflow, sync, run, SECONDS) == "failed"
        states = airflow.states(sync, run)
        assert (states["follow[south-1]"], states["follow[north-1]"]) == ("failed", "success")
        assert (states["report"], states["failed"]) == ("success", "failed")
        brought = f"SELECT COUNT(*) FROM {merge.table} WHERE name = 'new 6'"
        airflow.await_true(lambda: merge.target.run(brought) == [(2,)], SECONDS, "rows of the other source")
        states = succeed(airflow, sync, airflow.trigger(sync))
        assert (states["follow[south-1]"], states["failed"]) == ("skipped", "skipped"), "it is known"
    finally:
        merge.sources["south-1"].run(f"ALTER USER {account} ACCOUNT UNLOCK")
    await_equal(airflow, merge)
    airflow.await_true(lambda: told("works again") > 0, SECONDS, "the end of the failure to be told")
    assert (told("failed"), told("works again")) == (1, 1)


@pytest.mark.test_all("tests/integration/task/test_follow.py has the processes of a live run without Airflow")
@pytest.mark.mariadb_only("TiDB leaves CHECK constraints out")
def test_the_source_of_a_suspended_target_goes_on_while_others_have_rows(airflow: Airflow, merge: Merge) -> None:
    """The live run of the busy source ends, too: only the next one works on both."""
    sync, meta = f"unshard_sync__{merge.name}", f"{merge.name}_meta"
    refused = f"UPDATE {merge.shards['south-1'][0]} SET name = 'refused' WHERE id = 2000200"

    def windows() -> int:
        ((count,),) = merge.target.run(f"SELECT windows FROM {meta}.checkpoint WHERE source = 'south-1'")
        return int(count)

    await_quiet(airflow, merge)
    known = set(red(airflow, merge))
    merge.target.run(f"ALTER TABLE {merge.table} ADD CONSTRAINT unrefused CHECK (name <> 'refused')")
    with steady_load(merge):
        merge.sources["south-1"].run(refused)
        airflow.await_true(lambda: set(red(airflow, merge)) - known, SECONDS, "a red source")
        (run,) = set(red(airflow, merge)) - known
        assert await_run(airflow, sync, run, SECONDS) == "failed"
        assert airflow.states(sync, run)["follow[north-1]"] == "success"
        before = windows()
        airflow.await_true(lambda: windows() > before + 1, SECONDS, "windows of the source with the suspended target")
    merge.target.run(f"ALTER TABLE {merge.table} DROP CONSTRAINT unrefused")
    await_equal(airflow, merge)


@pytest.mark.test_all("the test with the browser has a red lock, and games decide what comes late")
def test_lock_that_waits_too_long_is_red_and_executed_when_the_others_come_after_all(
    airflow: Airflow, impatient: Merge
) -> None:
    dag = f"unshard_ddl__{impatient.name}"
    tables = [(source, table) for source, tables in impatient.shards.items() for table in tables]
    impatient.sources[tables[0][0]].run(ADD.format(tables[0][1]))
    lock = open_lock(airflow, impatient, 1)
    assert await_run(airflow, dag, lock, SECONDS) == "failed"
    states = airflow.states(dag, lock)
    assert (states["unlock"], states["wait_for_shards"]) == ("skipped", "failed")
    log = log_of(airflow, dag, lock, "wait_for_shards")
    for told in (f"unshard unlock {impatient.tasks}/impatient.yaml {lock}", "clear the task unlock", "south-1"):
        assert told in log

    impatient.change(1)  # the other shards continue all the time
    airflow.trigger(f"unshard_sync__{impatient.name}")
    brought = f"SELECT COUNT(*) FROM {impatient.table} WHERE name = 'new 1'"
    airflow.await_true(lambda: impatient.target.run(brought) == [(3,)], SECONDS, "rows of the other shards")

    for source, table in tables[1:]:
        impatient.sources[source].run(ADD.format(table))
    airflow.trigger(f"unshard_sync__{impatient.name}")
    airflow.await_true(lambda: is_added(impatient), SECONDS, "the DDL on the target")
    succeed(airflow, dag, f"{lock}{LATE}")
    await_equal(airflow, impatient)
    assert airflow.run(dag, lock)["state"] == "failed", "what was too late stays to be seen"
    actions = impatient.target.run(f"SELECT COUNT(*) FROM {impatient.name}_meta.operator_action")
    assert actions == [(0,)], "nobody has forced anything"


def red_lock(airflow: Airflow, merge: Merge, ddl: str) -> str:
    """Run a DDL on one shard only, and wait until its lock is red."""
    number = len(locks_run(airflow, f"unshard_ddl__{merge.name}")) + 1
    source, tables = next(iter(merge.shards.items()))
    merge.sources[source].run(ddl.format(tables[0]))
    lock = open_lock(airflow, merge, number)
    assert await_run(airflow, f"unshard_ddl__{merge.name}", lock, SECONDS) == "failed"
    return lock


def let_the_others_come(airflow: Airflow, merge: Merge, ddl: str, number: int) -> None:
    """Run the DDL on the late shards too, write into all, and wait until the target is the union."""
    for source, table in [(source, table) for source, tables in merge.shards.items() for table in tables][1:]:
        merge.sources[source].run(ddl.format(table))
    merge.change(number)
    await_equal(airflow, merge)


def open_on_page(browser: Browser, merge: Merge, lock: str) -> None:
    """Open a lock on the page from Airflow's navigation, as a user does."""
    browser.click("a[href='/plugin/unshard']")
    browser.click("#tasks a", merge.name)
    browser.click("#locks a", lock)


def orders_to(merge: Merge, lock: str) -> list[Any]:
    return merge.target.run(f"SELECT action, who, via FROM {merge.name}_meta.operator_action WHERE lock_id = '{lock}'")


def assert_deadlines_told(airflow: Airflow, merge: Merge, lock: str) -> None:
    """A run has missed the deadline of the lock; another one misses that of the lag, then ends with the lag."""
    dag, alerts = f"unshard_lag__{merge.name}", merge.folder / "alerts"
    late = f"DDL lock {lock}: is open for longer than 1 s"
    airflow.await_true(lambda: late in alerts.read_text(), SECONDS, "the alert of the lock")
    assert f"shards that have not reached it: north-1 {merge.name}_a.orders_2" in alerts.read_text().partition(late)[2]
    airflow.api("PATCH", f"dags/{dag}", {"is_paused": False})
    lacking = f"unshard: {dag}, run .*: the targets have lacked changes for longer than 10 s\nnorth-1: lag [1-9]"
    airflow.await_true(lambda: re.search(lacking, alerts.read_text()), SECONDS, "the alert of the lag")
    airflow.api("PATCH", f"dags/{dag}", {"is_paused": True})


def test_red_lock_is_unlocked_by_a_clear_in_the_browser(
    airflow: Airflow, merge: Merge, impatient: Merge, browser: Browser
) -> None:
    dag, task = f"unshard_ddl__{impatient.name}", f"{impatient.tasks}/impatient.yaml"
    lock = red_lock(airflow, impatient, RESIZE)
    told = (impatient.folder / "alerts").read_text().partition(f"DDL lock {lock}: wait_for_shards failed")[2]
    for help_ in ("shards that have not reached it: north-1 impatient_a.orders_2", f"unshard unlock {task} {lock}"):
        assert help_ in told, "the notifier was told"
    assert_deadlines_told(airflow, impatient, lock)

    log_in(browser, airflow, "viewer")
    clear = json.dumps({"dag_run_id": lock, "task_ids": ["unlock"], "only_failed": False, "dry_run": False})
    assert browser.send_json(f"/api/v2/dags/{dag}/clearTaskInstances", clear) == 403, "noted, but refused"
    browser.go(f"{airflow.url}/unshard/task/{merge.name}")
    assert "\tadmin\tclear\t" in browser.text("#orders"), "who cleared is found out afterwards"
    browser.await_element("h2", "Prechecks")
    assert links(airflow, dag, lock, "unlock")["unshard"] == f"/unshard/task/{impatient.name}/lock/{lock}"
    browser.go(f"{airflow.url}/plugin/unshard")
    browser.click("#tasks a", impatient.name)
    browser.click("#step a")
    assert "wait_for_shards is failed" in browser.text("#run") and "lock-timeout 3 s" in browser.text("#timeout")
    browser.click("#run a")
    browser.page.wait_for_url(f"{airflow.url}/dags/{dag}/runs/{lock}**", timeout=SECONDS * 1000)
    command = json.dumps({"action": "unlock", "lock": lock, "dry_run": False})
    api = f"/unshard/api/tasks/{impatient.name}"
    assert browser.send_json(f"{api}/commands", command) == 403
    browser.go(f"{airflow.url}{api}/locks/{lock}")
    assert json.loads(browser.text("body"))["wait"] == "failed"
    told = json.loads(airflow._call("POST", f"{api}/commands", {"action": "unlock", "lock": lock}, airflow._token))
    assert "executes on impatient.orders" in "\n".join(told["effects"]) and not told["is_given"], "a token of Airflow"
    browser.forget()
    browser.go(f"{airflow.url}{api}")
    assert "Not authenticated" in browser.text("body")

    log_in(browser, airflow, "operator")
    clear_in_dialog(browser, f"{airflow.url}/dags/{dag}/runs/{lock}/tasks/unlock")
    succeed(airflow, dag, lock)
    browser.go(f"{airflow.url}/unshard/task/{impatient.name}/lock/{lock}")
    assert "\toperator\tclear\t" in browser.text("#orders")
    assert orders_to(impatient, lock) == [("unlock", "operator", "clear")]
    let_the_others_come(airflow, impatient, RESIZE, 2)
    assert locks_run(airflow, dag)[-1] == lock, "the late shards have skipped the DDL"


@pytest.mark.test_all("tests/integration/task/test_lock_page.py replaces without Airflow")
def test_person_is_asked_for_statements_to_execute_instead(airflow: Airflow, impatient: Merge) -> None:
    dag = f"unshard_ddl__{impatient.name}"
    lock = red_lock(airflow, impatient, NOTE.format("{}", 20))
    for source, table in [(source, table) for source, tables in impatient.shards.items() for table in tables][1:]:
        impatient.sources[source].run(NOTE.format(table, 20))
    pending = f"SELECT COUNT(*) FROM {impatient.name}_meta.shard_ddl WHERE state = 'pending'"
    airflow.trigger(f"unshard_sync__{impatient.name}")
    airflow.await_true(lambda: impatient.target.run(pending) == [(4,)], SECONDS, "all shards have the DDL")

    clear(airflow, dag, lock, "replace")
    fields = {"statements": NOTE.format(impatient.table, 40) + ";", "shard": "", "reason": "room for more"}
    answer(airflow, (dag, lock, "replace"), "Replace", fields, lambda: bool(orders_to(impatient, lock)))
    succeed(airflow, dag, lock)
    assert orders_to(impatient, lock) == [("replace", "admin", "required action")]
    ((_, kind, *_),) = impatient.target.run(f"SHOW COLUMNS FROM {impatient.table} LIKE 'note'")
    assert kind == "varchar(40)"
    impatient.change(4)
    await_equal(airflow, impatient)


@pytest.mark.test_all("another test opens the page; tests/integration/task/test_lock_page.py gives its commands")
def test_page_shows_a_lock_to_viewers_and_lets_operators_unlock_it(
    airflow: Airflow, impatient: Merge, browser: Browser
) -> None:
    dag = f"unshard_ddl__{impatient.name}"
    lock = red_lock(airflow, impatient, WIDEN)
    browser.forget()
    browser.go(f"{airflow.url}/unshard/")
    assert browser.text("#failure") == "Not authenticated"

    log_in(browser, airflow, "viewer")
    open_on_page(browser, impatient, lock)
    assert "north-1 impatient_a.orders_2" in browser.text("#missing")
    assert browser.count(".orders") == 0, "a viewer has no button"
    refused = browser.post(f"/unshard/task/{impatient.name}/lock/{lock}/give", {"action": "unlock"})
    assert refused[0] == 403 and "not change it" in refused[1]
    assert orders_to(impatient, lock) == []

    log_in(browser, airflow, "operator")
    open_on_page(browser, impatient, lock)
    browser.fill("#unlock [name=reason]", "nobody else will come")
    browser.click("#unlock button")
    effects = browser.text("#effects")
    assert "executes on impatient.orders" in effects and "the same DDL is skipped when" in effects
    assert orders_to(impatient, lock) == [], "a dry run does nothing"
    browser.click("#confirm button")
    assert "its wait was cleared" in browser.text("#told")
    assert "nobody else will come" in browser.text("#orders")
    succeed(airflow, dag, lock)
    assert orders_to(impatient, lock) == [("unlock", "operator", "page")]
    assert {urlsplit(url).hostname for url in browser.requested if url.startswith("http")} == {"127.0.0.1"}
    let_the_others_come(airflow, impatient, WIDEN, 3)
    assert locks_run(airflow, dag)[-1] == lock, "the late shards have skipped the DDL"


@pytest.mark.test_all("tests/integration/validate/test_cutover.py cuts over without Airflow")
def test_a_dag_switches_to_the_target_and_can_be_asked_again(airflow: Airflow, impatient: Merge) -> None:
    """The last test: it pauses the task."""
    dag = f"unshard_cutover__{impatient.name}"
    impatient.change(5)
    try:
        run = airflow.trigger(dag, {"read_only": True, "reason": "now"})
        succeed(airflow, dag, run)
        read_only = [server.run("SELECT @@read_only") for server in impatient.sources.values()]
        certificate = xcom(airflow, dag, run, "cut_over", "return_value")["certificate"]
    finally:
        for server in impatient.sources.values():
            server.run("SET GLOBAL read_only = OFF")
    assert all(value == [(1,)] for value in read_only)
    assert (certificate["by"], certificate["reason"]) == ("admin", "now")
    impatient.assert_equal()
    ((rows,),) = impatient.target.run(f"SELECT COUNT(*) FROM {impatient.table}")
    assert rows in [each["rows"] for each in certificate["tables"]]

    again = airflow.trigger(dag, {"action": "abort"})
    assert await_run(airflow, dag, again, SECONDS) == "failed", "it is done"
    assert "US-7313" in log_of(airflow, dag, again, "cut_over")
