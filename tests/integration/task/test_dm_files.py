"""Tasks with the values of DM's files on real servers: exported zeros, a name with special characters, DM's rules."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lifetask import LifeTask, living
from tests.localspark import LocalSpark
from unshard.config import load_task
from unshard.config.reading import starting_at
from unshard.core.checks.items import Severity
from unshard.units.checks.precheck import precheck
from unshard.units.task.run import run
from unshard.units.work import open_work
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
EXPORTED = {
    "name": "t-Ë!s`t",
    "is-sharding": True,
    "shard-mode": "pessimistic",
    "timezone": "",
    "online-ddl": True,
    "shadow-table-rules": [],
    "trash-table-rules": [],
    "online-ddl-scheme": "",
    "black-white-list": {},
    "mydumpers": {"dump-01": {"threads": 0, "rows": 0, "extra-args": "--statement-size=100 -T a.b"}},
    "validators": {"validator-01": {"mode": "full", "worker-count": 4}},
}
OF_INSTANCE = {
    "mydumper-config-name": "dump-01",
    "mydumper": None,
    "mydumper-thread": 0,
    "loader-thread": 0,
    "black-white-list": "",
    "validator-config-name": "validator-01",
}
BY_HAND = (
    "CREATE TABLE {0}_{1} LIKE {2}",
    "ALTER TABLE {0}_{1} ADD COLUMN n INT",
    "INSERT INTO {0}_{1} (id, v) SELECT id, v FROM {2}",
    "RENAME TABLE {2} TO {0}_{3}, {0}_{1} TO {2}",
)
"""An online schema change as DM's tests write it: nothing but the names tells that a tool is at work."""


@pytest.fixture
def exported(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target) as task:
        task.body |= EXPORTED
        for instance in task.body["mysql-instances"]:
            instance.update(OF_INSTANCE)
        task.body["target-database"]["session"] = {"time_zone": "Asia/Shanghai"}
        task.write()
        task.make_shard("s1", 1, 1, 2)
        task.make_shard("s2", 2, 3)
        yield task


def change_by_hand(task: LifeTask, source: str, number: int, shadow: str, trash: str) -> None:
    statements = (each.format(f"_t_{number}", shadow, f"t_{number}", trash) for each in BY_HAND)
    task.sources[source].run(f"USE {task.name}", *statements)


def test_an_exported_task_runs_and_follows_tables_by_their_names(exported: LifeTask) -> None:
    found = load_task(exported.path)
    assert not [item for item in precheck(found) if item.severity is Severity.ERROR]
    exported.go()
    assert exported.assert_union() == 3
    assert [*(exported.folder / "storage").iterdir()] == [Path(found.storage)]
    change_by_hand(exported, "s1", 1, "gho", "del")
    exported.sources["s1"].run(f"INSERT INTO {exported.name}.t_1 VALUES (11, 'new', 7)")
    change_by_hand(exported, "s2", 2, "new", "old")
    exported.sources["s2"].run(f"INSERT INTO {exported.name}.t_2 VALUES (12, 'new', 8)")
    assert not exported.go().locks
    assert exported.assert_union() == 5


def run_at(task: LifeTask, moment: str = "") -> list[str]:
    """Run the task, with a start time if one is given; return the error codes."""
    loaded = load_task(task.path)
    with open_work(starting_at(loaded, moment) if moment else loaded) as work:
        outcome = run(replace(work, spark=LocalSpark, bulk_spark=LocalSpark))
    return [trouble.error.code for trouble in outcome.errors]


def test_a_meta_without_a_position_begins_only_with_a_start_time(
    upstream_server: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    with living(unique, tmp_path, {"s1": upstream_server}, target, **{"task-mode": "incremental"}) as task:
        task.body["mysql-instances"][0]["meta"] = {"binlog-name": "", "binlog-pos": 0, "binlog-gtid": ""}
        task.write()
        shard = task.make_shard("s1", 1)
        upstream_server.run(
            "RESET MASTER",
            *("SET timestamp = 1000000000", f"INSERT INTO {shard} VALUES (1, 'a')"),
            *("SET timestamp = 1100000000", f"INSERT INTO {shard} VALUES (2, 'b')"),
        )
        target.run(f"CREATE DATABASE {unique}_to", f"CREATE TABLE {unique}_to.t (id int PRIMARY KEY, v varchar(20))")
        target.run(f"INSERT INTO {unique}_to.t VALUES (1, 'a')")
        items = [item for item in precheck(load_task(task.path)) if item.name == "meta_position"]
        assert [(item.severity, item.code) for item in items] == [(Severity.WARNING, "US-1031")]
        assert run_at(task) == ["US-1031"]
        assert target.run(f"SELECT id FROM {unique}_to.t") == [(1,)]
        assert run_at(task, "2002-01-01") == []
        assert task.assert_union() == 2
        task.insert("s1", shard, 3)
        assert run_at(task) == [], "a task that has begun needs no start"
        assert task.assert_union() == 3
