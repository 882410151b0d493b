"""DDL that event filters leave out, whole or in part, in optimistic mode: the target follows the rest alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard.units.ddl import coordinate
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

COLUMNS = "id INT PRIMARY KEY, a INT, old INT"
RULE = {"schema-pattern": "*", "action": "Ignore", "sql-pattern": ["(?i)secret", "(?i)drop\\s+column\\s+old"]}


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    with joined_task(unique, tmp_path, (source_1, source_2, target), COLUMNS, shards=1) as task:
        body = yaml.safe_load(task.path.read_text())
        body["filters"] = {"f": RULE}
        for instance in body["mysql-instances"]:
            instance["filter-rules"] = ["f"]
        task.path.write_text(yaml.safe_dump(body))
        task.restart()
        run(task, FIRST, "INSERT INTO {} VALUES (1, 1, 1)")
        run(task, SECOND, "INSERT INTO {} VALUES (2, 2, 2)")
        task.run()
        yield task


def rows(task: JoinedTask) -> list[tuple[object, ...]]:
    return task.target.run(f"SELECT * FROM {task.table('t')} ORDER BY id")


def columns(task: JoinedTask) -> list[str]:
    return [row[0] for row in task.target.run(f"SHOW COLUMNS FROM {task.table('t')}")]


def test_a_part_of_a_statement(task: JoinedTask) -> None:
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7, ADD COLUMN secret INT DEFAULT 1")
    run(task, FIRST, "INSERT INTO {} VALUES (3, 3, 3, 3, 99)", "UPDATE {} SET secret = 5, a = 9 WHERE id = 1")
    task.run()
    assert columns(task) == ["id", "a", "old", "c"]
    assert rows(task) == [(1, 9, 1, 7), (2, 2, 2, 7), (3, 3, 3, 3)]
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN d INT", "INSERT INTO {} VALUES (4, 4, 4, 4, 99, 4)")
    for clause in ("ADD COLUMN secret INT, ADD COLUMN c INT DEFAULT 7", "ADD COLUMN d INT"):
        run(task, SECOND, f"ALTER TABLE {{}} {clause}")
    task.run()
    assert columns(task) == ["id", "a", "old", "c", "d"]
    assert rows(task)[3] == (4, 4, 4, 4, 4)
    assert coordinate.views(task.work().meta) == ()
    task.assert_equal("t")


def test_a_whole_statement(task: JoinedTask) -> None:
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN secret INT", "INSERT INTO {} VALUES (3, 3, 3, 99)")
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT", "INSERT INTO {} VALUES (4, 4, 4, 99, 4)")
    task.run()
    assert columns(task) == ["id", "a", "old", "c"]
    assert rows(task)[2:] == [(3, 3, 3, None), (4, 4, 4, 4)]
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN secret INT", "ALTER TABLE {} ADD COLUMN c INT")
    task.run()
    task.assert_equal("t")


def test_a_column_whose_drop_is_ignored_stays(task: JoinedTask) -> None:
    run(task, FIRST, "ALTER TABLE {} DROP COLUMN old", "INSERT INTO {} VALUES (3, 3)")
    task.run()
    run(task, SECOND, "ALTER TABLE {} DROP COLUMN old", "INSERT INTO {} VALUES (4, 4)", "UPDATE {} SET a = 5")
    task.run()
    assert columns(task) == ["id", "a", "old"]
    assert [row[:2] for row in rows(task)] == [(1, 1), (2, 5), (3, 3), (4, 5)]
    assert rows(task)[0] == (1, 1, 1)
    task.assert_union("t")
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT", "INSERT INTO {} VALUES (5, 5, 5)")
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN c INT")
    task.run()
    assert columns(task) == ["id", "a", "old", "c"]
    task.assert_equal("t")


def test_a_shard_that_is_created_before_an_ignored_statement_of_one_window(task: JoinedTask) -> None:
    task.shards["t"].append(("s1", f"{task.name}.t_12"))
    run(task, ("s1", 12), f"CREATE TABLE {{}} ({COLUMNS})", "INSERT INTO {} VALUES (5, 5, 5)")
    run(task, ("s1", 12), "ALTER TABLE {} ADD COLUMN secret INT", "INSERT INTO {} VALUES (6, 6, 6, 99)")
    task.run()
    assert task.stopped() == {} and rows(task)[2:] == [(5, 5, 5), (6, 6, 6)]
    run(task, ("s1", 12), "ALTER TABLE {} ADD COLUMN c INT", "UPDATE {} SET c = 7 WHERE id = 5")
    for shard in (FIRST, SECOND):
        run(task, shard, "ALTER TABLE {} ADD COLUMN c INT")
    task.run()
    assert rows(task)[2:] == [(5, 5, 5, 7), (6, 6, 6, None)]
