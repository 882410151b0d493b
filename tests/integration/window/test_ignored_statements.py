"""Statements that cannot be read, changes of rows as statements, and sequences: none of them stops a whole source.

Servers write an aggregate function in a form that unshard does not read.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from unshard.cli import main
from unshard.core.ddl.lock import LockState
from unshard.core.model import Shard, TableId
from unshard.operate.command import Skip
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard.units.task.status import remarks
from unshard.units.window.reloading import reload_columns
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

GIZMO = "SET STATEMENT max_statement_time = LENGTH(SUBSTRING('ab' FROM 1 FOR 1)) FOR CREATE OR REPLACE USER gizmo@'{}'"
"""A statement that the grammar does not know: it takes the first FOR as the end of the settings."""


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): (1,), ("s2", "u"): (1,)}
    columns = {"t": "id INT PRIMARY KEY, v INT", "u": "id INT PRIMARY KEY"}
    with living(unique, tmp_path, (source_1, source_2, target), "tu", columns=columns, numbers=numbers) as made:
        for source in made.sources.values():
            source.run(f"CREATE DATABASE {foreign(unique)}")
        yield made
        for source in made.sources.values():
            source.run(f"DROP DATABASE {foreign(unique)}")


def foreign(name: str) -> str:
    """Name a schema that is not followed and does not contain `name`; with a digit first, `8e2_t` would be a number."""
    return f"z{name[::-1]}"


def elsewhere(task: LiveTask, *statements: str) -> None:
    task.sources["s1"].run(f"USE {foreign(task.name)}", *statements)


def skip(task: LiveTask) -> None:
    for lock in open_locks(task.work().meta):
        assert lock.state is LockState.UNDECIDED and ("[US-4001]" in lock.reason or "[US-3013]" in lock.reason)
        give(task.work().meta, Skip(lock.id), "operator", "test", "it concerns nobody")
    task.run()


def test_a_statement_that_concerns_no_shard_is_written_down_and_passed_over(task: LiveTask) -> None:
    t = f"{task.name}.t_1"
    elsewhere(
        task,
        f"INSERT INTO {t} VALUES (1, 1)",
        GIZMO.format("with a secret"),
        f"INSERT INTO {t} VALUES (2, 2)",
    )
    task.run()
    task.restart()
    task.assert_settled()
    (passed,) = task.work().meta.ignored.newest()
    assert passed.source == "s1" and "gizmo@'…'" in passed.passed.text and "secret" not in passed.passed.text


def test_what_may_concern_shards_of_a_schema_stops_those_and_is_over_with_a_skip(task: LiveTask) -> None:
    elsewhere(task, GIZMO.format(f"of {task.name}"), f"INSERT INTO {task.name}.t_1 VALUES (1, 1)")
    task.sources["s2"].run(f"INSERT INTO {task.name}.t_1 VALUES (2, 2)", f"INSERT INTO {task.name}.u_1 VALUES (3)")
    task.run()
    assert task.target.run(f"SELECT id FROM {task.table('t')}") == [(2,)]
    assert task.assert_union("u") == 1 and task.upstream_end("s1") == task.checkpoint("s1")
    assert task.work().meta.ignored.newest() == ()
    skip(task)
    task.assert_settled()
    for source, name in task.shards["t"]:
        task.sources[source].run(
            f"ALTER TABLE {name} ADD w INT", f"INSERT INTO {name} VALUES ({source[1]}{name[-1]}, 0, 0)"
        )
    task.run()
    task.assert_settled()
    assert task.assert_union("t") == 5, "nobody else owes a skip that would stand in the way"


def test_a_change_of_rows_that_names_no_table_stops_all_shards_of_its_source(task: LiveTask) -> None:
    t = f"{task.name}.t_1"
    body = f"BEGIN INSERT INTO {t} VALUES (1, 1); RETURN 1; END"
    elsewhere(
        task,
        f"CREATE FUNCTION put() RETURNS INT DETERMINISTIC {body}",
        "SET SESSION binlog_format = STATEMENT",
        "SELECT put()",
        "SET SESSION binlog_format = ROW",
        f"INSERT INTO {t} VALUES (2, 2)",
    )
    task.sources["s2"].run(f"INSERT INTO {t} VALUES (3, 3)")
    task.run()
    assert task.target.run(f"SELECT id FROM {task.table('t')}") == [(3,)]
    skip(task)
    assert task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id") == [(2,), (3,)]


def test_rows_of_sequences_are_left_out_under_every_name(task: LiveTask) -> None:
    task.sources["s1"].run(
        f"USE {task.name}",
        "CREATE SEQUENCE t_7",
        "DO NEXTVAL(t_7)",
        "INSERT INTO t_1 VALUES (NEXTVAL(t_7), 1)",
        "CREATE TABLE t_8 LIKE t_7",
        "DO NEXTVAL(t_8)",
        "RENAME TABLE t_7 TO t_9, t_2 TO t_7",
        "DO SETVAL(t_9, 70)",
        "ALTER TABLE t_9 COMMENT 'a', RENAME TO x",
        "DO NEXTVAL(x)",
        "ALTER SEQUENCE t_8 RESTART 5",
        "DO NEXTVAL(t_8)",
        "INSERT INTO t_7 VALUES (NEXTVAL(x), 2)",
        "CREATE SEQUENCE s",
        "RENAME TABLE s TO u_5",
        "DO NEXTVAL(u_5)",
    )
    task.shards["t"] = [(source, name.replace(".t_2", ".t_7")) for source, name in task.shards["t"]]
    task.pull("s1")
    passed = 0
    while (report := task.window("s1")).moved:
        passed += report.rows_passed
        task.restart()
    assert passed >= 4, "each name has written at least once"
    task.run()
    task.assert_settled()
    assert task.assert_union("t") == 2 and task.executed("t") == []
    there = {TableId(task.name, name) for name in ("t_8", "x", "u_5")}
    assert task.work().meta.ignored.sequences("s1") == there
    task.sources["s1"].run(
        f"USE {task.name}",
        "DROP TABLE t_8",
        "DROP SEQUENCE x, u_5",
        "CREATE TABLE t_8 LIKE t_1",
        "INSERT INTO t_8 VALUES (8, 8)",
    )
    task.shards["t"].append(("s1", f"{task.name}.t_8"))
    task.run()
    task.assert_settled()
    assert task.assert_union("t") == 3 and task.work().meta.ignored.sequences("s1") == frozenset()


@pytest.mark.mariadb_only("TiDB refuses to add a column with the default UUID(): the DDL waits for an operator")
def test_a_column_that_each_server_fills_by_itself_is_told_and_mended_as_it_is_told(task: LiveTask) -> None:
    assert_filled_and_mended(task, "CHAR(36) DEFAULT UUID()")


def test_moments_that_each_server_fills_in_are_told_and_mended_as_it_is_told(task: LiveTask) -> None:
    assert_filled_and_mended(task, "DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)")


def assert_filled_and_mended(task: LiveTask, column: str) -> None:
    for number, (source, name) in enumerate(task.shards["t"]):
        task.sources[source].run(f"INSERT INTO {name} VALUES ({number}, 1)", f"ALTER TABLE {name} ADD c {column}")
        task.run()
    with pytest.raises(AssertionError, match="rows missing"):
        task.assert_union("t")
    (lock,) = coordinate.facts(task.work().meta, resolved=True)
    assert lock.state is LockState.RESOLVED and lock.filled == ("c",)
    assert "unshard reload TASK --shard SHARD --columns c" in lock.warning
    assert remarks(task.work().meta, task.sources).warned == (lock,)
    for source, name in task.shards["t"]:
        reload_columns(task.work(), Shard(source, TableId(*name.split("."))), ("c",))
    task.assert_settled()


# --- changes of rows that are logged as statements ----------------------------------------------------------------


def as_statements(*statements: str, kind: str = "STATEMENT") -> tuple[str, ...]:
    return (f"SET SESSION binlog_format = {kind}", *statements, "SET SESSION binlog_format = ROW")


def seen(task: LiveTask) -> list[int]:
    return [int(str(number)) for (number,) in task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id")]


def skip_changes(task: LiveTask) -> None:
    while locks := open_locks(task.work().meta):
        assert locks[0].state is LockState.UNDECIDED and "[US-3013]" in locks[0].reason
        give(task.work().meta, Skip(locks[0].id), "operator", "test", "done by hand")
        task.run()


def test_changes_of_other_tables_that_are_logged_as_statements_are_passed_over(task: LiveTask) -> None:
    t = f"{task.name}.t_1"
    elsewhere(
        task,
        "CREATE TABLE x (id INT PRIMARY KEY, v DOUBLE, w BLOB)",
        "CREATE TABLE y (id INT, FOREIGN KEY (id) REFERENCES x (id) ON DELETE CASCADE)",
        "CREATE TABLE `a``b.c` (id INT)",
        f"INSERT INTO {t} VALUES (1, 1)",
        *as_statements(
            "INSERT INTO x VALUES (1, RAND(), _binary 0xFF), (2, 2, 'x''y')",
            f"REPLACE INTO x SELECT id, v, '{t}' FROM {t}",
            "UPDATE x SET v = 2 WHERE id = 1",
            "UPDATE x, y SET x.v = 3, y.id = y.id WHERE x.id = y.id",
            "DELETE FROM x LIMIT 1",
            "INSERT INTO `a``b.c` VALUES (1), (2)",
            "SET STATEMENT max_statement_time = 9 FOR INSERT INTO x VALUES (3, 3, '')",
            "CREATE TEMPORARY TABLE tmp (id INT)",
            "INSERT INTO tmp VALUES (1)",
            "DROP TEMPORARY TABLE tmp",
            "BEGIN",
            "INSERT INTO x VALUES (4, 4, '')",
            "SAVEPOINT s",
            "DELETE FROM x WHERE id = 4",
            "ROLLBACK TO s",
            "COMMIT",
            "XA START 'a'",
            "INSERT INTO x VALUES (5, 5, '')",
            "XA END 'a'",
            "XA PREPARE 'a'",
            "XA COMMIT 'a'",
        ),
        f"INSERT INTO {t} VALUES (2, 2)",
    )
    task.run()
    task.restart()
    task.assert_settled()
    assert seen(task) == [1, 2] and task.upstream_end("s1") == task.checkpoint("s1")


def test_a_file_that_is_loaded_into_another_table_is_passed_over(task: LiveTask, tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_text("8\t8\n")
    with contextlib.closing(task.sources["s1"].connect(local_infile=True)) as connection:
        cursor = connection.cursor()
        loads = as_statements(
            f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE x",
            f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {task.name}.t_1",
        )
        for statement in (f"USE {foreign(task.name)}", "CREATE TABLE x (id INT, v INT)", *loads[:2]):
            cursor.execute(statement)
        cursor.execute(f"INSERT INTO {task.name}.t_1 VALUES (1, 1)")
        task.run()
        assert seen(task) == []
        task.target.run(f"INSERT INTO {task.table('t')} VALUES (1, 1)")
        skip_changes(task)
        cursor.execute(loads[2])
    task.run()
    assert len(open_locks(task.work().meta)) == 1
    task.target.run(f"INSERT INTO {task.table('t')} VALUES (8, 8)")
    skip_changes(task)
    task.assert_settled()


def test_rows_before_a_change_that_is_rolled_back_are_rolled_back_too(task: LiveTask) -> None:
    """A temporary table keeps a transaction in the binlog that is rolled back, with the rows of shards before it."""
    t = f"{task.name}.t_1"
    elsewhere(
        task,
        *as_statements(
            "BEGIN",
            f"INSERT INTO {t} VALUES (1, LENGTH(UUID()))",
            "CREATE TEMPORARY TABLE tmp (id INT)",
            "INSERT INTO tmp VALUES (1)",
            "ROLLBACK",
            kind="MIXED",
        ),
        f"INSERT INTO {t} VALUES (2, 2)",
    )
    task.run()
    task.assert_settled()
    assert seen(task) == [2]


def test_a_change_of_shards_that_is_logged_as_a_statement_holds_those_shards(task: LiveTask) -> None:
    t = f"{task.name}.t_1"
    task.sources["s1"].run(
        f"USE {task.name}",
        *as_statements("INSERT INTO t_1 VALUES (1, 1)", "UPDATE t_1 SET v = 2", "UPDATE t_1, t_2 SET t_2.v = 1"),
        "INSERT INTO t_1 VALUES (5, 5)",
        "UPDATE t_1 SET v = 6 WHERE id = 1",
    )
    task.sources["s2"].run(f"INSERT INTO {t} VALUES (3, 3)", f"INSERT INTO {task.name}.u_1 VALUES (3)")
    task.run()
    assert seen(task) == [3] and task.assert_union("u") == 1
    assert task.upstream_end("s1") == task.checkpoint("s1")
    task.target.run(f"INSERT INTO {task.table('t')} VALUES (1, 2)")
    skip_changes(task)
    task.assert_settled()
    assert seen(task) == [1, 3, 5]


HIDDEN = {
    "trigger": (
        "CREATE TRIGGER g AFTER INSERT ON x FOR EACH ROW INSERT INTO {t} VALUES (1, 1)",
        "INSERT INTO x VALUES (1)",
        "DROP TRIGGER g",
    ),
    "view": ("CREATE VIEW w AS SELECT id, v FROM {t}", "INSERT INTO w VALUES (1, 1)", "DROP VIEW w"),
    "function": (
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC BEGIN INSERT INTO {t} VALUES (1, 1); RETURN 1; END",
        "INSERT INTO x VALUES (f())",
        "DROP FUNCTION f",
    ),
    "cascade": (
        "ALTER TABLE {t} ADD CONSTRAINT k FOREIGN KEY (v) REFERENCES {x} (id) ON DELETE CASCADE",
        "DELETE FROM x WHERE id = 7",
        "ALTER TABLE {t} DROP FOREIGN KEY k",
    ),
}


@pytest.mark.sample(reason="the way to the shards, and whether it is dropped later, do not interact", every=2)
@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("way", [*HIDDEN])
def test_a_change_of_shards_by_another_table_is_never_passed_over(task: LiveTask, way: str, is_dropped: bool) -> None:
    """Also if what has led to the shards is dropped before the windows come there."""
    t = f"{task.name}.t_1"
    made, change, drop = (text.format(t=t, x=f"{foreign(task.name)}.x") for text in HIDDEN[way])
    elsewhere(task, "CREATE TABLE x (id INT PRIMARY KEY)", "INSERT INTO x VALUES (7)", made)
    task.sources["s1"].run(f"INSERT INTO {t} VALUES (7, 7)")
    task.run()
    for found in open_locks(task.work().meta):  # the foreign key, which only one shard gets
        give(task.work().meta, Skip(found.id), "operator", "test", "")
        task.run()
    assert task.assert_union("t") == 1
    elsewhere(task, *as_statements(change), *([drop] if is_dropped else []))
    task.run()
    (found, *_) = open_locks(task.work().meta)
    assert found.state is LockState.UNDECIDED and "[US-3013]" in found.reason
    by_hand = "DELETE FROM {} WHERE id = 7" if way == "cascade" else "INSERT INTO {} VALUES (1, 1)"
    task.target.run(by_hand.format(task.table("t")))
    while locks := open_locks(task.work().meta):
        give(task.work().meta, Skip(locks[0].id), "operator", "test", "done by hand")
        task.run()
    task.assert_settled()
    if way == "cascade" and not is_dropped:
        task.sources["s1"].run(drop)  # so that its parent can be dropped


def test_the_present_command_skips_a_change_of_rows(task: LiveTask) -> None:
    changes = as_statements("INSERT INTO t_1 VALUES (1, 1)")
    task.sources["s1"].run(f"USE {task.name}", *changes, "INSERT INTO t_1 VALUES (2, 2)")
    task.run()
    task.target.run(f"INSERT INTO {task.table('t')} VALUES (1, 1)")
    assert main(["ddl", "skip", str(task.path), "--source", "s1", "--current", "--yes"]) == 0
    task.run()
    task.assert_settled()
