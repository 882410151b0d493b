"""The life of a task on real servers: paused, resumed, stopped, removed and begun anew."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.binlogs import purge
from tests.lifetask import LifeTask, living, task
from tests.localspark import LocalSpark
from unshard.adapters.meta.taskrecords import window_of
from unshard.config import load_task
from unshard.config.reading import starting_at
from unshard.core.checks.items import Severity
from unshard.core.task.state import Phase
from unshard.errors.meta import FencedOut, TaskPaused
from unshard.units.checks.precheck import changed_rules
from unshard.units.full import dump
from unshard.units.relay.tasksource import pull_source
from unshard.units.task import lifecycle
from unshard.units.task.run import run
from unshard.units.window.sync import next_plan
from unshard.units.work import open_work
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
__all__ = ["task"]


def test_paused_task_moves_nothing_until_it_is_resumed(task: LifeTask, capsys: pytest.CaptureFixture[str]) -> None:
    task.go()
    assert task.command("pause", "--reason", "the target moves") == 0
    task.insert("s1", task.shards["s1"][0], 11)
    with pytest.raises(TaskPaused, match=r"paused by \w+ \(command line\) since .* UTC: the target moves"):
        task.run()
    capsys.readouterr()
    assert task.command("pause") == 0 and "already paused" in capsys.readouterr().out
    assert task.command("status") == 0 and "is paused by" in capsys.readouterr().out.splitlines()[0]
    assert task.command("resume") == 0 and "is resumed" in capsys.readouterr().out
    assert task.command("resume") == 0 and "was not paused" in capsys.readouterr().out
    task.go()
    assert task.assert_union() == 4
    with task.work() as work:
        assert [(one.action, one.reason) for one in work.meta.locks.actions()] == [
            ("pause", "the target moves"),
            ("resume", ""),
        ]


def test_first_run_brings_what_changed_during_its_dump(task: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after the end of the dump, not only after the end that the binlog had when the run began."""
    map_items = dump.map_items

    def writing(spark: Any, function: Any, *given: Any) -> Iterator[Any]:
        yield from map_items(spark, function, *given)
        source = function.args[0].source
        task.insert(source, task.shards[source][0], {"s1": 11, "s2": 12}[source])

    monkeypatch.setattr(dump, "map_items", writing)
    task.go()
    assert task.assert_union() == 5


def test_window_that_has_begun_ends_and_none_begins_behind_the_pause(task: LifeTask) -> None:
    task.go()
    task.insert("s1", task.shards["s1"][0], 11)
    with task.work() as work:
        pull_source(work, "s1")
        begun = work.meta.windows.begin("s1", next_plan(work, "s1"))
        lifecycle.pause(work, "me", "test", "")
        work.meta.windows.commit(begun, (), 0)
        task.insert("s1", task.shards["s1"][0], 12)
        with pytest.raises(TaskPaused):
            pull_source(work, "s1")


def test_safe_mode_is_switched_on_a_running_task(task: LifeTask) -> None:
    shard = task.shards["s1"][0]
    task.go()
    for number, (safe, found) in enumerate(((True, set()), (False, {"US-6006"})), 77):
        for instance in task.body["mysql-instances"]:
            instance["syncer"] = {"safe-mode": safe}
        task.write()
        task.target.run(f"INSERT INTO {task.name}_to.t VALUES ({number}, 'there already')")
        task.insert("s1", shard, number)
        assert codes(task) == found
    task.target.run(f"DELETE FROM {task.name}_to.t WHERE id = 78")
    task.go()
    assert task.assert_union() == 5


def test_stopped_task_says_what_remains_and_is_removed(task: LifeTask, capsys: pytest.CaptureFixture[str]) -> None:
    task.go()
    capsys.readouterr()
    assert task.command("stop", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pause"]["kind"] == "stopped" and f"the target tables: {task.name}_to.t" in told["remains"]
    assert task.command("stop", "--remove-meta", "--dry-run") == 0 and task.rows_of_meta() > 5
    assert task.command("stop", "--remove-meta", "--json") == 1, "nobody has confirmed it"
    assert task.rows_of_meta() > 5
    assert task.command("stop", "--remove-meta", "--yes") == 0
    assert task.rows_of_meta() == 0 and not [*(task.folder / "storage").rglob("*.*")]
    assert task.command("stop", "--remove-meta", "--yes") == 0, "again is nothing more"
    task.target.run(f"TRUNCATE TABLE {task.name}_to.t")
    assert task.command("resume") == 0
    task.go()
    assert task.assert_union() == 3


def test_task_at_work_is_not_removed_and_a_late_writer_of_it_writes_nothing(task: LifeTask) -> None:
    task.go()
    task.insert("s1", task.shards["s1"][0], 11)
    with task.work() as work:
        pull_source(work, "s1")
        with work.meta.active_workers.at(window_of("s1")):
            late = work.meta.windows.begin("s1", next_plan(work, "s1"))
            assert task.command("stop", "--remove-meta", "--yes") == 1
            assert task.rows_of_meta() > 5, "nothing is removed while a window is going on"
        lifecycle.remove(work, "me", "test", "")
    task.target.run(f"TRUNCATE TABLE {task.name}_to.t")
    task.go()
    with task.work() as work, pytest.raises(FencedOut):
        work.meta.windows.commit(late, (), 0)
    assert task.assert_union() == 4


def test_dump_and_load_are_tasks_of_their_own(task: LifeTask) -> None:
    task.body |= {"task-mode": "load&sync", "clean-dump-file": False}
    task.write()
    assert {str(each.error.code) for each in task.run().errors} == {"US-6402"}, "nothing is dumped yet"
    task.body["task-mode"] = "dump"
    task.write()
    assert {each.phase for each in task.go().sources} == {Phase.DUMPED}
    assert task.target.run(f"SELECT COUNT(*) FROM {task.name}_to.t") == [(0,)]
    task.insert("s1", task.shards["s1"][0], 11)
    task.body["task-mode"] = "incremental"
    task.write()
    assert codes(task) == {"US-6406"}, "it would never load them"
    task.body["task-mode"] = "load"
    task.write()
    assert {each.phase for each in task.go().sources} == {Phase.LOADED}
    assert task.target.run(f"SELECT id FROM {task.name}_to.t ORDER BY id") == [(1,), (2,), (3,)]
    assert [*(task.folder / "storage").rglob("dump/**/*.parquet")], "clean-dump-file is off"
    task.body |= {"task-mode": "load&sync", "clean-dump-file": True}
    task.write()
    task.go()
    assert task.assert_union() == 4
    assert not [*(task.folder / "storage").rglob("dump/**/*.parquet")]


def run_from(task: LifeTask, time: str) -> tuple[str, ...]:
    """Begin the task at a time; return the error codes."""
    with open_work(starting_at(load_task(task.path), time)) as work:
        outcome = run(replace(work, spark=LocalSpark, bulk_spark=LocalSpark))
    return tuple(trouble.error.code for trouble in outcome.errors)


def test_task_begins_at_a_gtid_or_at_a_time(
    upstream_server: MariaDb, target: MariaDb, unique: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both ways begin after the rows that the target has; rows that it has from later are written once more."""
    there = [(1, "a"), (2, "b"), (3, "d")]
    with living(unique, tmp_path, {"s1": upstream_server}, target, **{"task-mode": "incremental"}) as task:
        shard, (instance,) = task.make_shard("s1", 1), task.body["mysql-instances"]
        upstream_server.run(
            "RESET MASTER", "SET timestamp = 1000000000", f"INSERT INTO {shard} VALUES (1,'a'), (2,'b')"
        )
        ((before,),) = upstream_server.run("SELECT @@gtid_binlog_pos")
        upstream_server.run(
            "SET timestamp = 1100000000",
            f"UPDATE {shard} SET v = 'c' WHERE id = 2",
            "SET timestamp = 1100000001",
            f"INSERT INTO {shard} VALUES (3, 'd')",
        )
        target.run(f"CREATE DATABASE {unique}_to", f"CREATE TABLE {unique}_to.t (id int PRIMARY KEY, v varchar(20))")
        target.run("DO 1", *(f"INSERT INTO {unique}_to.t VALUES {row}" for row in there[:2]))
        instance["meta"] = {"binlog-gtid": before}
        task.write()
        (by_gtid,) = task.go().sources
        assert (by_gtid.rows_applied, task.assert_union()) == (2, 3)

        assert task.command("run", "--start-time", "2002-01-01") == 1
        assert "US-7305" in capsys.readouterr().err, "it has begun already"
        with task.work() as work:
            lifecycle.remove(work, "me", "test", "")
        assert run_from(task, "2040-01-01") == ("US-7304",)
        target.run(f"UPDATE {unique}_to.t SET v = 'b' WHERE id = 2")
        assert run_from(task, "2002-01-01T00:00:00") == ()
        assert task.assert_union() == 3

        upstream_server.run("FLUSH BINARY LOGS")
        purge(upstream_server)
        with task.work() as work:
            lifecycle.remove(work, "me", "test", "")
        assert run_from(task, "2002-01-01") == ("US-7303",)


def codes(task: LifeTask) -> set[str]:
    return {trouble.error.code for trouble in task.run().errors}


def checked(task: LifeTask) -> set[str]:
    """Return the error codes of `unshard check`."""
    with task.work() as work:
        items = changed_rules(work.meta, work.task)
    return {item.code for item in items if item.severity is Severity.ERROR}


def test_tables_schemas_and_sources_are_added_to_a_running_task(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    """Tables that the list adds are loaded with their existing rows, while the other tables go on."""
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target, "s1") as task:
        first = task.make_shard("s1", 1, 1, 2)
        task.shards["s2"] = []
        ours = task.body["block-allow-list"]["ours"]
        ours |= {"do-dbs": [unique], "ignore-tables": [{"db-name": unique, "tbl-name": "t_9"}]}
        task.write()
        task.go()
        left_out = task.make_shard("s1", 9, 91, 92)
        source_1.run(
            f"CREATE DATABASE {unique}_more", f"CREATE TABLE {unique}_more.t_1 (id int PRIMARY KEY, v varchar(20))"
        )
        task.shards["s1"].append(f"{unique}_more.t_1")
        task.insert("s1", f"{unique}_more.t_1", 101)
        task.insert("s1", first, 11)
        task.go()
        assert target.run(f"SELECT id FROM {unique}_to.t ORDER BY id") == [(1,), (2,), (11,)]

        ours |= {"do-dbs": [f"{unique}*"], "ignore-tables": []}
        task.write()
        task.insert("s1", left_out, 93)
        source_1.run(f"UPDATE {first} SET v = 'changed' WHERE id = 1", f"DELETE FROM {left_out} WHERE id = 91")
        late = task.make_shard("s1", 12, 121)
        task.insert("s1", left_out, 11)
        assert codes(task) == {"US-6405"}, "both have 11: its load has begun and not ended"
        source_1.run(f"DELETE FROM {left_out} WHERE id = 11")
        with task.work() as work:
            former = work.meta.windows.sync_state("s1").rules, work.meta.rules.get("s1")
            at = work.meta.checkpoints.get("s1")
        task.go()
        with task.work() as work:
            assert former[0] and at and work.meta.windows.sync_state("s1").rules != former[0]
            work.meta.rules.put("s1", *former, at.location)
        task.go()
        assert task.assert_union() == 7, "a table that is made meanwhile joins by its CREATE TABLE"
        source_1.run(f"UPDATE {left_out} SET v = 'changed'", f"DELETE FROM {late}")
        task.go()
        assert task.assert_union() == 6

        task.make_shard("s2", 5, 51, 52)
        task.body["mysql-instances"].append({**task.body["mysql-instances"][0], "source-id": "s2"})
        task.write()
        task.insert("s1", first, 13)
        task.go()
        assert task.assert_union() == 9
        with task.work() as work:
            (action, told), *_ = [(one.action, one.reason) for one in work.meta.locks.actions()]
        assert action == "rules" and f"s1 {unique}.t_9 joins {unique}_to.t" in told and "on: " in told


def test_a_filter_lets_a_target_go_on_whoever_runs_the_task(task: LifeTask) -> None:
    """A run lets suspended targets go on before it compares the rules: these must still count as suspended."""
    rule = {"schema-pattern": f"{task.name}*", "table-pattern": "t_*", "events": ["delete"], "action": "Error"}
    task.body["filters"] = {"no-delete": rule}
    for instance in task.body["mysql-instances"]:
        instance["filter-rules"] = ["no-delete"]
    task.write()
    task.go()
    shard = task.shards["s1"][0]
    task.sources["s1"].run(f"DELETE FROM {shard} WHERE id = 1")
    assert codes(task) == {"US-6023"}
    rule["action"] = "Ignore"
    task.write()
    assert not checked(task), "the other source has the same filter, and nothing of its own waits"
    task.go()

    # TiDB stores latin1 as UTF-8, and changes no column to ascii.
    task.target.run(f"USE {task.name}_to", "ALTER TABLE t DROP v", "ALTER TABLE t ADD v varchar(5) CHARACTER SET ascii")
    task.sources["s1"].run(f"INSERT INTO {shard} VALUES (7, '漢'), (8, 'fits')", f"DELETE FROM {shard} WHERE id = 7")
    assert codes(task) == {"US-6002"}, "the value cannot even be converted, so its deletion does not help"
    task.body["expression-filter"] = {
        "odd": {"schema": task.name, "table": "t_1", "insert-value-expr": "id = 7"},
    }
    task.body["mysql-instances"][0]["expression-filters"] = ["odd"]
    task.write()
    task.go()
    rows = task.target.run(f"SELECT id FROM {task.name}_to.t ORDER BY id")
    assert rows == [(1,), (2,), (3,), (8,)]

    task.target.run(f"ALTER TABLE {task.name}_to.t DROP COLUMN v")
    task.insert("s1", shard, 9)
    assert codes(task) == {"US-6003"}
    task.body["expression-filter"]["odd"]["insert-value-expr"] = "id = 9"
    task.write()
    (trouble, *stopped) = task.run().errors
    assert trouble.error.code == "US-7307" and "because it could not take them" in str(trouble.error)
    assert [each.error.code for each in stopped] == ["US-6003"], "it is still said why its rows are held"


def test_rules_are_changed_between_and_not_inside_shard_ddl(task: LifeTask) -> None:
    """Refused with the reason: rules that would move rows, and rules for a group with a waiting DDL."""
    task.go()
    route, ours = task.body["routes"]["all"], task.body["block-allow-list"]["ours"]
    first = task.shards["s1"][0]
    route["target-table"] = "elsewhere"
    task.write()
    assert codes(task) == checked(task) == {"US-7306"}
    route["target-table"] = "t"
    task.sources["s1"].run(f"ALTER TABLE {first} ADD COLUMN w int")
    task.write()
    assert task.go().locks, "s2 has not brought it"
    task.body["filters"] = {"no-delete": {"schema-pattern": f"{task.name}*", "events": ["delete"], "action": "Ignore"}}
    for instance in task.body["mysql-instances"]:
        instance["filter-rules"] = ["no-delete"]
    task.write()
    (trouble, *_) = task.run().errors
    assert trouble.error.code == "US-7307" and "ADD COLUMN w int" in str(trouble.error)
    assert checked(task) == {"US-7307"}
    filters = task.body.pop("filters")
    for instance in task.body["mysql-instances"]:
        instance["filter-rules"] = []
    task.write()
    task.sources["s2"].run(f"ALTER TABLE {task.shards['s2'][0]} ADD COLUMN w int")
    assert not task.go().locks

    task.body["filters"] = filters
    for instance in task.body["mysql-instances"]:
        instance["filter-rules"] = ["no-delete"]
    task.write()
    task.go()
    task.sources["s1"].run(f"DELETE FROM {first} WHERE id = 1")
    ours["ignore-tables"] = [{"db-name": task.name, "tbl-name": "t_2"}]
    task.body["mysql-instances"][1]["filter-rules"] = []
    task.write()
    task.insert("s2", task.shards["s2"][0])
    task.sources["s2"].run(f"DELETE FROM {task.shards['s2'][0]}")
    task.go()
    rows = task.target.run(f"SELECT id FROM {task.name}_to.t ORDER BY id")
    assert rows == [(1,), (2,), (3,)], "the deletes are left out by the filter and by the list"
    ours["ignore-tables"] = []
    task.write()
    assert codes(task) == {"US-7306"}, "a shard that was left out cannot come back: what has it missed?"
