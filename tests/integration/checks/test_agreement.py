"""`check` and `run` agree: `check` reports what the steps reject, also with `ignore-checking-items: [all]`."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest

from tests.lifetask import LifeTask, living
from tests.tidbsettings import is_tidb
from unshard.adapters import mysql
from unshard.core.checks.items import Item, Severity
from unshard.errors import UnshardError
from unshard.units.checks.precheck import check
from unshard.units.full.dump import dump
from unshard.units.full.load import handover, load
from unshard.units.full.snapshot import take_snapshot
from unshard.units.relay.tasksource import end_of_source, pull_source
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@dataclasses.dataclass(frozen=True)
class Case:
    """A state that stops the task, made by statements on the source and the target, and changes of the task file."""

    code: str
    """The code with which `check` reports it."""
    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    change: Callable[[LifeTask], None] = lambda task: None
    stops: str = ""
    """The code with which the steps stop, if it is another one."""


def _one_shard(task: LifeTask) -> None:
    task.body["mysql-instances"] = task.body["mysql-instances"][:1]


def _wide(task: LifeTask) -> None:
    _one_shard(task)
    task.body["routes"]["all"]["table-pattern"] = "wide_*"


def _two_routes(task: LifeTask) -> None:
    task.body["routes"]["more"] = {**task.body["routes"]["all"], "target-table": "other"}
    for instance in task.body["mysql-instances"]:
        instance["route-rules"] = ["all", "more"]


def _extract(task: LifeTask) -> None:
    task.body["routes"]["all"]["extract-table"] = {"table-regexp": "t_(.*)", "target-column": "c_table"}


def _map(column: str) -> Callable[[LifeTask], None]:
    def change(task: LifeTask) -> None:
        rule = {
            "schema-pattern": task.name,
            "table-pattern": "t_*",
            "expression": "partition id",
            "source-column": column,
            "target-column": column,
            "arguments": ["", "", "t", "_"],
        }
        task.body["column-mappings"] = {"ids": rule}
        for instance in task.body["mysql-instances"]:
            instance["column-mapping-rules"] = ["ids"]

    return change


def _where(task: LifeTask) -> None:
    task.body["mydumpers"] = {"some": {"where": "no_such_column = 1"}}
    for instance in task.body["mysql-instances"]:
        instance["mydumper-config-name"] = "some"


def _meta_of(file: str, position: int) -> Callable[[LifeTask], None]:
    def change(task: LifeTask) -> None:
        _one_shard(task)
        task.body["task-mode"] = "incremental"
        task.body["mysql-instances"][0]["meta"] = {"binlog-name": file, "binlog-pos": position}

    return change


INTO = "CREATE DATABASE {name}_to"
LIKE_SHARDS = "CREATE TABLE {name}_to.t (id INT PRIMARY KEY, v VARCHAR(20))"
WIDE = ", ".join(["id INT PRIMARY KEY", *(f"c{number} TINYINT" for number in range(1017))])
WIDE_TABLE = f"CREATE TABLE {{name}}.wide_1 ({WIDE}) ENGINE=MyISAM"
CASES = {
    "shards differ": Case("US-2307", ("ALTER TABLE {name}.t_1 ADD w INT",)),
    "two routes": Case("US-1021", change=_two_routes),
    "condition": Case("US-2205", change=_where),
    "prepared": Case(
        "US-2204",
        (
            "SELECT 1",
            "XA START '{name}'",
            "INSERT INTO {name}.t_1 VALUES (99, 'xa')",
            "XA END '{name}'",
            "XA PREPARE '{name}'",
        ),
    ),
    "versioned by transactions": Case(
        "US-2011",
        (
            "CREATE TABLE {name}.t_9 (id INT PRIMARY KEY, v VARCHAR(20), a BIGINT UNSIGNED GENERATED ALWAYS AS ROW"
            " START, b BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (a, b))"
            " WITH SYSTEM VERSIONING",
        ),
    ),
    "not empty": Case(
        "US-6401",
        target=(
            INTO,
            LIKE_SHARDS,
            "INSERT INTO {name}_to.t VALUES (7, '')",
        ),
    ),
    "unfit": Case("US-6802", target=(INTO, "CREATE TABLE {name}_to.t (id INT PRIMARY KEY)"), stops="US-4008"),
    "no transactions": Case(
        "US-6009",
        target=(INTO, "CREATE TABLE {name}_to.t (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE=MyISAM"),
    ),
    "other types": Case("US-6004", target=(INTO, "CREATE TABLE {name}_to.t (id INT PRIMARY KEY, v DATETIME)")),
    "generated there": Case(
        "US-6802", target=(INTO, "CREATE TABLE {name}_to.t (id INT PRIMARY KEY, v VARCHAR(20) AS ('x') STORED)")
    ),
    "no table to extract into": Case("US-6017", change=_extract),
    "no column to extract into": Case("US-6014", target=(INTO, LIKE_SHARDS), change=_extract),
    "no value to extract": Case(
        "US-6016",
        target=(INTO, "CREATE TABLE {name}_to.t (id INT PRIMARY KEY, v VARCHAR(20), c_table DATE NOT NULL)"),
        change=_extract,
    ),
    "mapped column missing": Case("US-6018", change=_map("nothing")),
    "mapped column unfit": Case("US-6019", change=_map("id")),
    "mapped column no key": Case("US-6020", change=_map("v")),
    "too many columns": Case(
        "US-2353", (f"CREATE TABLE {{name}}.wide_1 ({WIDE}) ENGINE=MyISAM",), change=_wide, stops="US-2008"
    ),
    "start is gone": Case("US-2329", change=_meta_of("mysql-bin.999999", 4), stops="US-3005"),
    "not dumped": Case("US-6402", change=lambda task: task.body.update({"task-mode": "load&sync"})),
}


RARE = pytest.mark.test_all("14 CPU seconds; test_target_structures.py has other structures that a target refuses")


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target) as made:
        made.body["ignore-checking-items"] = ["all"]
        made.make_shard("s1", 1, 1, 2)
        made.make_shard("s2", 2, 3)
        yield made
        with contextlib.suppress(pymysql.Error):
            source_1.run(f"XA ROLLBACK '{unique}'")


def rejected(task: LifeTask) -> str:
    """Run the steps of the full load without the prechecks, and pull; return the code of the error that ends them."""
    with task.work() as work:
        steps = (take_snapshot, dump, load) if work.task.task_mode.begins else (load,)
        try:
            for step in steps:
                for source in work.task.sources:
                    step(work, source)
            handover(work)
            for source in work.task.sources:
                with contextlib.closing(mysql.connect(work.sources[source])) as connection:
                    pull_source(work, source, until=end_of_source(work, source, connection))
        except UnshardError as error:
            return error.code
    return ""


def errors(task: LifeTask) -> dict[str, Item]:
    return {item.code: item for item in check(task.load()) if item.severity is Severity.ERROR}


@pytest.mark.sample(reason="each way starts a whole task", every=2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=RARE if name == "too many columns" else ()) for name in CASES]
)
def test_check_reports_what_the_steps_reject_even_if_all_checks_are_ignored(task: LifeTask, name: str) -> None:
    case = CASES[name]
    if case.code == "US-6009" and is_tidb(task.target):
        pytest.skip("TiDB: every table has transactions")
    task.sources["s1"].run("SELECT 1", *(sql.replace("{name}", task.name) for sql in case.source))
    task.target.run("SELECT 1", *(sql.replace("{name}", task.name) for sql in case.target))
    case.change(task)
    task.write()
    found = errors(task)
    assert case.code in found
    assert "`ignore-checking-items` has no effect" in found[case.code].remedy
    assert rejected(task) == (case.stops or case.code)


OWN_KEY = "CREATE TABLE {name}_to.t (id INT, v VARCHAR(20), nr INT DEFAULT 5, PRIMARY KEY (id, nr))"


@pytest.mark.parametrize("table", ["", LIKE_SHARDS, OWN_KEY])
def test_a_task_that_check_accepts_is_not_rejected(task: LifeTask, table: str) -> None:
    if table:
        task.target.run(INTO.replace("{name}", task.name), table.replace("{name}", task.name))
    assert errors(task) == {} and rejected(task) == ""
    assert errors(task) == {}


def test_a_task_file_that_no_longer_fits_the_dump_is_found(task: LifeTask) -> None:
    with task.work() as work:
        for source in work.task.sources:
            take_snapshot(work, source)
        dump(work, "s1")
    task.body["task-mode"] = "incremental"
    task.write()
    assert "US-6406" in errors(task) and rejected(task) == "US-6406"


def test_a_target_that_is_gone_after_the_load_is_found(task: LifeTask) -> None:
    task.go()
    assert errors(task) == {}
    task.target.run(f"DROP TABLE {task.name}_to.t")
    task.insert("s1", task.shards["s1"][0], 8)
    assert [*errors(task)] == ["US-6001"]
    assert [trouble.error.code for trouble in task.run().errors] == ["US-6001"]
