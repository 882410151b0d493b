"""`unshard validate` has a verdict for each table, also if another table cannot be compared."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifetask import LifeTask, living
from tests.oracle import assert_union
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]
TABLES = ("fine", "gone", "other", "wrong")


@pytest.fixture
def task(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    """Four targets with a shard each; `gone` is dropped, `other` gets other columns, and `wrong` loses a row."""
    where = {"schema-pattern": f"{unique}*", "target-schema": f"{unique}_to"}
    routes = {name: {**where, "table-pattern": f"{name}_*", "target-table": name} for name in TABLES}
    with living(unique, tmp_path, {"s1": source_1}, target, routes=routes) as made:
        made.body["mysql-instances"][0]["route-rules"] = list(routes)
        made.write()
        for name in TABLES:
            source_1.run(
                f"CREATE TABLE {unique}.{name}_1 (id INT PRIMARY KEY)", f"INSERT INTO {unique}.{name}_1 VALUES (1), (2)"
            )
        made.go()
        into = f"{unique}_to"
        target.run(
            f"DROP TABLE {into}.gone",
            f"DROP TABLE {into}.other",
            f"CREATE TABLE {into}.other (nr INT PRIMARY KEY)",
            f"DELETE FROM {into}.wrong WHERE id = 2",
        )
        yield made


def test_tables_that_cannot_be_compared_do_not_hide_the_others(task: LifeTask) -> None:
    found = task.verdicts()
    assert {name: each.error and each.error.code for name, each in found.items()} == {
        "fine": None,
        "gone": "US-6001",
        "other": "US-6810",
        "wrong": None,
    }
    assert {name: (each.equal, each.differs) for name, each in found.items()} == {
        "fine": (True, False),
        "gone": (False, False),
        "other": (False, False),
        "wrong": (False, True),
    }
    assert [each.key for each in found["wrong"].differences] == [("2",)]
    assert_union(task.sources, {"s1": [f"{task.name}.fine_1"]}, task.target, f"{task.name}_to.fine")


def test_the_command_names_them_and_its_exit_status_counts_differences_first(
    task: LifeTask, capsys: pytest.CaptureFixture[str]
) -> None:
    assert task.command("validate", "--json") == 2
    document = json.loads(capsys.readouterr().out)
    assert not document["equal"]
    assert [each["error"] and each["error"]["code"] for each in document["tables"]] == [
        None,
        "US-6001",
        "US-6810",
        None,
    ]
    tables = [f"--table={task.name}_to.{name}" for name in ("fine", "gone")]
    assert task.command("validate", *tables) == 1
    told = capsys.readouterr().out
    assert "fine: equal" in told and "gone: NO VERDICT, [US-6001]" in told and "1 of 2 table(s) have NO VERDICT" in told
    assert task.command("validate", tables[0]) == 0


WIDE = """(
  id BIGINT PRIMARY KEY, i INT UNSIGNED NOT NULL DEFAULT 7, d DECIMAL(20, 5) DEFAULT 1.5,
  v VARCHAR(20) NOT NULL DEFAULT '', l VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin, t TEXT,
  b VARBINARY(9) DEFAULT 'x', y YEAR, e ENUM('a', 'b') DEFAULT 'b', j JSON, g INT AS (id + 1) STORED,
  at DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3), UNIQUE u (v), KEY k (i, d)
)"""


def test_a_structure_that_differs_is_named(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with living(unique, tmp_path, {"s1": source_1}, target) as task:
        source_1.run(
            f"CREATE TABLE {unique}.t_1 {WIDE}",
            f"CREATE TABLE {unique}.t_2 {WIDE}",
            f"INSERT INTO {unique}.t_1 (id, v) VALUES (1, 'one')",
        )
        task.go()
        (found,) = task.verdicts().values()
        assert (found.equal, found.structure) == (True, ())
        target.run(
            f"ALTER TABLE {unique}_to.t MODIFY i INT UNSIGNED NULL DEFAULT 8",
            f"ALTER TABLE {unique}_to.t DROP INDEX k",
            f"ALTER TABLE {unique}_to.t ADD INDEX own (d), ADD COLUMN more INT",
        )
        assert task.command("validate") == 0
        told = capsys.readouterr().out
        column = "column i is int unsigned default 8 in the target and int unsigned not null default 7 in"
        shards = f"s1 {unique}.t_1, s1 {unique}.t_2"
        assert f"structure: {column} {shards}" in told
        assert f"structure: index k (i, d) is not in the target, but in {shards}" in told
        assert "own" not in told


MADE = "(id INT PRIMARY KEY, v INT, s INT AS (v + 1) STORED, w VARCHAR(30) AS (CONCAT(v, 'x')) VIRTUAL)"


@pytest.mark.on_mysql
def test_generated_columns_are_compared_by_value_and_expression(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into, shard = f"{unique}_to.t", f"{unique}.t_1"
    with living(unique, tmp_path, {"s1": source_1}, target) as task:
        source_1.run(
            f"CREATE TABLE {shard} {MADE}",
            f"INSERT INTO {shard} (id, v) VALUES (1, 1), (2, 2), (3, NULL), (4, 4)",
        )
        task.go()
        (found,) = task.verdicts().values()
        assert (found.equal, found.structure, found.left_out) == (True, (), ())
        assert {"s", "w"} < {*found.compared}
        target.run(
            f"CREATE TABLE {into}_2 {MADE.replace('+ 1', '+ v % 2')}",
            f"INSERT INTO {into}_2 (id, v) VALUES (1, 1), (2, 2), (3, NULL), (4, 3)",
            f"DROP TABLE {into}",
            f"RENAME TABLE {into}_2 TO {into}",
        )
        assert task.command("validate") == 2
        told = capsys.readouterr().out
        assert "generated: id=2" in told and "different: id=4" in told and "id=1" not in told
        assert "structure: column s is int generated as v + v " in told
        assert " in the target and int generated as v + 1 in" in told
        assert task.command("repair", "--yes") == 1
        told = capsys.readouterr().out
        assert "1 rows are repaired" in told and "left: id=2 of s1" in told and "only values that" in told
        assert target.run(f"SELECT v FROM {into} ORDER BY id") == [(1,), (2,), (None,), (4,)]


@pytest.mark.on_mysql
def test_a_next_number_that_the_shards_have_passed_is_named(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into, shard = f"{unique}_to.t", f"{unique}.t_1"
    with living(unique, tmp_path, {"s1": source_1}, target) as task:
        source_1.run(
            f"CREATE TABLE {shard} (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
            f"INSERT INTO {shard} (v) VALUES (1), (2)",
        )
        task.go()
        assert task.command("validate") == 0
        assert "AUTO_INCREMENT" not in capsys.readouterr().out
        source_1.run("BEGIN", f"INSERT INTO {shard} VALUES (900000, 1)", "ROLLBACK")
        assert task.command("validate") == 0
        told = capsys.readouterr().out
        mended = f"ALTER TABLE `{unique}_to`.`t` AUTO_INCREMENT = 900001"
        assert f"too small for s1 {shard}: {mended}" in told
        target.run(mended)
        assert task.command("validate") == 0
        assert "AUTO_INCREMENT" not in capsys.readouterr().out
        target.run(f"INSERT INTO {into} (v) VALUES (3)")
        assert target.run(f"SELECT id >= 900001 FROM {into} WHERE v = 3") == [(1,)]
