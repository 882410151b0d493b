"""The lag on real servers: SET timestamp makes changes as old as a test needs, so nothing waits."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.task.test_lock_page import browse
from tests.livetask import LiveTask, living
from unshard.cli import main
from unshard.config import environment_connections
from unshard.core.task.state import Phase
from unshard.units.task.status import lacking_before
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
SLACK = 300
"""A machine may be that slow, in seconds; all ages differ by more."""
USER = "CREATE USER `{0}` IDENTIFIED BY 'unshard'"


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): (1,), ("s1", "u"): (1,)}
    columns = dict.fromkeys("tu", "id INT PRIMARY KEY, v INT")
    with living(unique, tmp_path, (source_1, source_2, target), "tu", columns=columns, numbers=numbers) as made:
        yield made


def change(task: LiveTask, source: str, age: int, sql: str) -> None:
    task.sources[source].run(f"USE {task.name}", f"SET timestamp = UNIX_TIMESTAMP() - {age}", sql)


def status(task: LiveTask, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    main(["status", str(task.path), "--json"])
    return json.loads(capsys.readouterr().out)


def lag(task: LiveTask, capsys: pytest.CaptureFixture[str]) -> int:
    found = status(task, capsys)
    assert not found["lag_is_least"] and found["errors"] == []
    assert found["lag_seconds"] == max(each["lag_seconds"] for each in found["sources"])
    return int(found["lag_seconds"])


@pytest.mark.on_tidb
def test_idle_time_does_not_count(task: LiveTask, capsys) -> None:
    assert lag(task, capsys) == 0
    change(task, "s1", 9000, "INSERT INTO t_1 VALUES (1, 1)")
    assert 9000 <= lag(task, capsys) < 9000 + SLACK
    task.run()
    assert lag(task, capsys) == 0
    assert status(task, capsys)["sources"][0]["last_event_at"] is not None
    change(task, "s1", 60, "INSERT INTO t_1 SELECT seq, 1 FROM mysql.seq_2_to_500")
    change(task, "s1", 30, "INSERT INTO t_2 VALUES (1001, 1)")
    found = status(task, capsys)["sources"][0]
    assert 60 <= found["lag_seconds"] < 60 + SLACK and found["lag_bytes"] > 0, "the last event before is 9,000 s old"
    change(task, "s2", 4000, "INSERT INTO t_1 VALUES (2001, 1)")
    assert 4000 <= lag(task, capsys) < 4000 + SLACK, "the slowest source counts"
    task.run()
    assert lag(task, capsys) == 0
    task.assert_settled()


def test_changes_from_before_a_moment(task: LiveTask) -> None:
    """A run of `unshard_lag__<task>` waits for these."""

    def lacking(age: int) -> list[str]:
        work = task.work()
        found = lacking_before(work.meta, work.task, environment_connections, time.time() - age)
        return [each.source for each in found]

    assert lacking(0) == []
    change(task, "s1", 5000, "INSERT INTO t_1 VALUES (1, 1)")
    change(task, "s2", 2000, "INSERT INTO t_1 VALUES (2001, 1)")
    assert (lacking(1000), lacking(4000), lacking(6000)) == (["s1", "s2"], ["s1"], [])
    main(["stop", str(task.path)])
    assert lacking(1000) == []
    main(["resume", str(task.path)])
    task.run()
    assert lacking(0) == []


def test_a_new_file_of_the_binlog_is_no_change(task: LiveTask, capsys) -> None:
    change(task, "s1", 5000, "INSERT INTO t_1 VALUES (1, 1)")
    task.run()
    task.sources["s1"].run("FLUSH BINARY LOGS")
    found = status(task, capsys)["sources"][0]
    assert found["lag_bytes"] > 0 and found["lag_seconds"] == 0
    change(task, "s1", 700, "INSERT INTO t_1 VALUES (2, 1)")
    assert 700 <= lag(task, capsys) < 700 + SLACK
    task.run()
    task.assert_settled()


@pytest.mark.on_tidb
def test_rows_and_ddl_at_a_lock_count_with_their_age(task: LiveTask, capsys) -> None:
    change(task, "s1", 9000, "INSERT INTO t_1 VALUES (1, 1)")
    change(task, "s1", 5000, "ALTER TABLE t_1 ADD COLUMN c INT")
    task.run()
    assert 5000 <= lag(task, capsys) < 5000 + SLACK, "no row waits, but the DDL does"
    change(task, "s1", 3000, "INSERT INTO t_1 VALUES (2, 1, 1)")
    change(task, "s1", 10, "INSERT INTO u_1 VALUES (1, 1)")
    task.run()
    found = status(task, capsys)["sources"][0]
    assert 5000 <= found["lag_seconds"] < 5000 + SLACK and found["lag_bytes"] == 0
    assert 3000 <= found["held_lag_seconds"] < 3000 + SLACK and found["rows_held"] == 1
    assert main(["status", str(task.path)]) == 0
    said = capsys.readouterr().out
    assert "the oldest was changed 5" in said and "task live: sync, lag 1 h 2" in said and ", no errors" in said
    for source, shard in (("s1", "t_2"), ("s2", "t_1")):
        change(task, source, 100, f"ALTER TABLE {shard} ADD COLUMN c INT")
    task.run()
    found = status(task, capsys)["sources"][0]
    assert (found["lag_seconds"], found["held_lag_seconds"]) == (0, None)
    task.assert_settled()


@pytest.mark.on_tidb
def test_held_rows_of_a_suspended_target_count(task: LiveTask, capsys) -> None:
    task.target.run(f"ALTER TABLE {task.table('t')} MODIFY v TINYINT")
    change(task, "s1", 9000, "INSERT INTO u_1 VALUES (1, 1)")
    change(task, "s1", 4000, "INSERT INTO t_1 VALUES (1, 500)")
    task.run()
    assert [each["target"] for each in status(task, capsys)["suspended_targets"]] == [task.table("t")]
    assert 4000 <= lag(task, capsys) < 9000 + SLACK, "a part of the binlog begins with its first event"
    task.target.run(f"ALTER TABLE {task.table('t')} MODIFY v INT")
    task.retry()
    assert lag(task, capsys) == 0
    task.assert_settled()


def test_a_source_that_does_not_answer(task: LiveTask, capsys, monkeypatch, tmp_path: Path) -> None:
    change(task, "s1", 5000, "ALTER TABLE t_1 ADD COLUMN c INT")
    task.run()
    assert 5000 <= lag(task, capsys) < 5000 + SLACK
    for down, least in (("s2", True), ("s1", True)):
        file = task.folder / f"sources/{down}.yaml"
        file.write_text(file.read_text().replace(f"port: {task.sources[down].port}", "port: 1"))
        found = status(task, capsys)
        assert (found["state"], found["lag_is_least"]) == ("sync", least)
        assert 5000 <= found["lag_seconds"] < 5000 + SLACK, "what is known to wait still counts"
        assert found["errors"][0]["code"] == "US-2001"
    assert [each["lag_seconds"] is None for each in found["sources"]] == [False, True]
    assert main(["status", str(task.path)]) == 1
    assert "task live: sync, lag at least 1 h 23 min, 2 errors" in capsys.readouterr().out
    monkeypatch.setenv("UNSHARD_TASKS", str(task.folder))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    (overview,) = browse(("GET", "/", {}))
    assert "at least 1 h 23 min" in overview and "source s1:" in overview and overview.count("US-2001") == 2
    assert "<td>sync</td>" in overview


def test_an_account_that_may_not_read_the_binlog_leaves_the_lag_open(task: LiveTask, capsys, unique: str) -> None:
    for server in task.sources.values():
        server.run(USER.format(unique), f"GRANT BINLOG MONITOR ON *.* TO `{unique}`")
    task.run()
    try:
        for source in task.sources:
            file = task.folder / f"sources/{source}.yaml"
            file.write_text(file.read_text().replace("user: admin", f"user: {unique}"))
        assert lag(task, capsys) == 0, "the end of the binlog is enough to know this"
        change(task, "s1", 5000, "INSERT INTO t_1 VALUES (1, 1)")
        found = status(task, capsys)
        assert (found["lag_seconds"], found["lag_is_least"], found["errors"]) == (0, True, [])
        first = found["sources"][0]
        assert (first["lag_seconds"], first["error"]) == (None, None) and first["lag_bytes"] > 0
    finally:
        for server in task.sources.values():
            server.run(f"DROP USER `{unique}`")


@pytest.mark.on_tidb
@pytest.mark.parametrize("phase", [Phase.SNAPSHOT, Phase.DUMPED])
def test_the_full_load_has_a_lag(task: LiveTask, capsys, phase: Phase) -> None:
    schema = task.meta_schema
    task.target.run(
        f"DELETE FROM {schema}.checkpoint WHERE source = 's1'",
        f"UPDATE {schema}.source SET phase = '{phase}', added_at = added_at - INTERVAL 2 HOUR WHERE source = 's1'",
    )
    found = status(task, capsys)
    first = found["sources"][0]
    assert found["state"] == "full load" and first["lag_is_least"] and 7200 <= first["lag_seconds"] < 7200 + SLACK


def test_what_waits_counts_from_its_entry_if_nothing_older_is_known(task: LiveTask, capsys) -> None:
    change(task, "s1", 5000, "ALTER TABLE t_1 ADD COLUMN c INT")
    change(task, "s1", 4000, "INSERT INTO t_1 VALUES (1, 1, 1)")
    task.run()
    task.target.run(
        f"UPDATE {task.meta_schema}.shard_ddl SET executed_at = 0, seen_at = seen_at - INTERVAL 1 HOUR",
        f"UPDATE {task.meta_schema}.held_rows SET first_time = 0, held_at = held_at - INTERVAL 20 MINUTE",
    )
    first = status(task, capsys)["sources"][0]
    # Entries have fractions of a second; the clock of a source has none.
    assert 3599 <= first["lag_seconds"] < 3600 + SLACK and 1199 <= first["held_lag_seconds"] < 1200 + SLACK
    task.target.run(
        f"INSERT INTO {task.meta_schema}.deferred_row SELECT 'live', 's1', 'x', 't', 'd', 'x', 't_1', 'id=1',"
        " UTC_TIMESTAMP(6) - INTERVAL 2 HOUR"
    )
    assert 7200 <= lag(task, capsys) < 7200 + SLACK
