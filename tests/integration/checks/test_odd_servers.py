"""Servers and sessions with unusual settings: the meaning of our statements does not depend on them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifetask import LifeTask, living
from tests.running import while_up
from tests.taskfile import endpoint
from unshard.core.checks.items import Severity
from unshard.errors.checks import TargetNamesAlike
from unshard.units.checks.precheck import check
from unshard.units.full.snapshot import retake_snapshot
from unshard_demo import servers
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
ODD = {
    "sql_mode": "'ORACLE,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES'",
    "sql_select_limit": "3",
    "sql_quote_show_create": "0",
    "time_zone": "'-11:00'",
    "autocommit": "0",
    "completion_type": "CHAIN",
    "tx_isolation": "'SERIALIZABLE'",
    "max_error_count": "0",
    "sql_notes": "0",
    "sql_safe_updates": "1",
    "group_concat_max_len": "4",
    "character_set_server": "utf16",
    "collation_server": "utf16_bin",
    "lc_messages": "de_DE",
}
"""Global variables and values that change the meaning of statements, the text form of values, or the number of rows."""


@pytest.fixture(scope="module")
def odd(server_folder: Path) -> Iterator[tuple[MariaDb, MariaDb, MariaDb]]:
    with contextlib.ExitStack() as stack:
        numbers = {"odd-1": 701, "odd-2": 702, "odd-target": None}
        yield tuple(  # type: ignore[misc]
            stack.enter_context(while_up(servers.start_server(server_folder / name, server_id=number)))
            for name, number in numbers.items()
        )


@pytest.fixture
def task(odd: tuple[MariaDb, MariaDb, MariaDb], unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    *sources, target = odd
    with living(unique, tmp_path, {"s1": sources[0], "s2": sources[1]}, target) as made:
        for source, number, rows in (("s1", 1, range(10)), ("s2", 2, range(10, 20))):
            name = made.make_shard(source, number, *rows)
            made.sources[source].run(
                f"ALTER TABLE {name} ADD c CHAR(9) DEFAULT 'a', ADD at TIMESTAMP NOT NULL DEFAULT '2026-03-29 02:30'",
                f"UPDATE {name} SET v = 'a\\\\b', c = 'x ' WHERE id % 5 = 0",
            )
        yield made


@contextlib.contextmanager
def set_oddly(*all_servers: MariaDb) -> Iterator[None]:
    """Let new connections begin with the unusual values."""
    for server in all_servers:
        server.run(*(f"SET GLOBAL {name} = {value}" for name, value in ODD.items()))
    try:
        yield
    finally:
        for server in all_servers:
            server.run(*(f"SET GLOBAL {name} = DEFAULT" for name in ODD))


def test_rows_are_right_whatever_the_servers_are_set_to(task: LifeTask, odd: tuple[MariaDb, MariaDb, MariaDb]) -> None:
    with set_oddly(*odd):
        assert task.command("check") == 0
        task.go()
    assert task.assert_union() == 20
    for source, (shard,) in task.shards.items():
        task.sources[source].run(
            f"UPDATE {shard} SET c = 'y ', v = '\\\\' WHERE id % 5 = 1",
            f"DELETE FROM {shard} WHERE id % 5 = 2",
            "SET SESSION sql_mode = 'ORACLE'",
            f"ALTER TABLE {shard} ADD d VARCHAR2(9) DEFAULT 'a\\b'",
            "SET SESSION sql_mode = ''",
            f"UPDATE {shard} SET d = 'c' WHERE id % 5 = 3",
        )
    with set_oddly(*odd):
        task.go()
        assert task.command("status") == 0
        assert task.command("validate") == 0
    assert task.assert_union() == 16


def test_a_row_that_does_not_fit_is_named_whatever_language_the_server_speaks(
    task: LifeTask, odd: tuple[MariaDb, MariaDb, MariaDb]
) -> None:
    task.go()
    task.target.run(f"ALTER TABLE {task.name}_to.t MODIFY v VARCHAR(6)")
    task.sources["s1"].run(f"UPDATE {task.shards['s1'][0]} SET v = 'too long for it' WHERE id = 7")
    with set_oddly(*odd):
        (trouble,) = task.run().errors
    assert trouble.error.code == "US-6002" and "column 'v', row id = 7" in str(trouble.error)


@pytest.mark.parametrize("mode", ["ANSI_QUOTES", "ORACLE", "PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES"])
def test_sql_mode_of_the_task_changes_nothing(task: LifeTask, capsys: pytest.CaptureFixture[str], mode: str) -> None:
    task.body["target-database"]["session"] = {"sql_mode": mode}
    task.write()
    for source in task.sources:
        task.write_source(source, **{"from": {**endpoint(task.sources[source]), "session": {"sql_mode": mode}}})
    assert task.command("check", "-v") == 0
    assert "'sql_mode' has no effect here" in capsys.readouterr().err
    task.go()
    assert task.assert_union() == 20


def test_targets_whose_names_differ_only_in_case_are_refused_where_they_would_be_one_table(
    odd: tuple[MariaDb, MariaDb, MariaDb], server_folder: Path, unique: str, tmp_path: Path
) -> None:
    columns = "(id INT PRIMARY KEY)"
    with (
        while_up(servers.start_server(server_folder / "no-case", "--lower-case-table-names=1")) as target,
        living(unique, tmp_path, {"s1": odd[0], "s2": odd[1]}, target) as task,
    ):
        del task.body["routes"]
        for instance in task.body["mysql-instances"]:
            instance.pop("route-rules")
        task.write()
        odd[0].run(f"CREATE TABLE {unique}.Orders {columns}", f"INSERT INTO {unique}.Orders VALUES (1)")
        task.go()
        odd[1].run(f"CREATE TABLE {unique}.orders {columns}", f"INSERT INTO {unique}.orders VALUES (2)")
        assert [trouble.error.code for trouble in task.run().errors] == ["US-2391"]
        odd[0].run(f"INSERT INTO {unique}.Orders VALUES (3)")
        task.run()
        assert target.run(f"SELECT id FROM {unique}.orders ORDER BY id") == [(1,), (3,)]
        assert task.command("stop", "--remove-meta", "--yes") == 0
        target.run(f"DROP TABLE {unique}.orders")
        assert [item.code for item in check(task.load()) if item.severity is Severity.ERROR] == ["US-2391"]
        with task.work() as work:
            retake_snapshot(work, "s1")
            with pytest.raises(TargetNamesAlike):
                retake_snapshot(work, "s2")
