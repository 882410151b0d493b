"""Shards that are created, dropped and renamed while shards differ, in optimistic mode on real servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    columns = "id INT PRIMARY KEY, a INT"
    with joined_task(unique, tmp_path, (source_1, source_2, target), columns, shards=1) as task:
        run(task, FIRST, "INSERT INTO {} VALUES (1, 1)")
        run(task, SECOND, "INSERT INTO {} VALUES (2, 2)")
        task.run()
        yield task


def ids(task: JoinedTask) -> list[int]:
    return [row[0] for row in task.target.run(f"SELECT id FROM {task.table('t')} ORDER BY id")]


@pytest.mark.on_tidb
def test_a_shard_is_created_with_rows_while_shards_differ(task: JoinedTask) -> None:
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7", "INSERT INTO {} VALUES (3, 3, 3)")
    new = f"{task.name}.t_31"
    task.sources["s1"].run(f"CREATE TABLE {new} LIKE {task.name}.t_11", f"INSERT INTO {new} VALUES (4, 4, 4)")
    other = f"{task.name}.t_32"
    task.sources["s2"].run(f"CREATE TABLE {other} LIKE {task.name}.t_21", f"INSERT INTO {other} VALUES (5, 5)")
    task.shards["t"] += [("s1", new), ("s2", other)]
    task.run()
    task.assert_union("t")
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7")
    run(task, ("s2", 32), "ALTER TABLE {} ADD COLUMN c INT DEFAULT 8")
    task.run()
    task.assert_equal("t")


def test_a_shard_is_created_with_a_structure_that_no_other_has(task: JoinedTask) -> None:
    new = f"{task.name}.t_31"
    text = f"CREATE TABLE {new} (id INT PRIMARY KEY, a BIGINT, x VARCHAR(9) NOT NULL)"
    task.sources["s1"].run(text, f"INSERT INTO {new} VALUES (3, 1 << 40, 'x')")
    task.shards["t"].append(("s1", new))
    task.run()
    task.assert_union("t")
    run(task, ("s1", 31), "ALTER TABLE {} DROP COLUMN x", "UPDATE {} SET a = 3", "ALTER TABLE {} MODIFY a INT")
    task.run()
    task.assert_equal("t")


def test_a_shard_is_renamed_while_shards_differ(task: JoinedTask) -> None:
    run(task, FIRST, "ALTER TABLE {} RENAME COLUMN a TO b", "INSERT INTO {} VALUES (3, 3)")
    new = f"{task.name}.t_12"
    run(task, FIRST, f"RENAME TABLE {{}} TO {new}", f"INSERT INTO {new} VALUES (4, 4)")
    run(task, ("s1", 12), "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7", "INSERT INTO {} VALUES (5, 5, 5)")
    task.shards["t"] = [("s1", new), ("s2", f"{task.name}.t_21")]
    task.run()
    task.assert_union("t")
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7, CHANGE a b INT", "INSERT INTO {} VALUES (6, 6, 6)")
    task.run()
    task.assert_equal("t")


def test_a_canary_is_dropped_while_shards_differ(task: JoinedTask) -> None:
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7", "INSERT INTO {} VALUES (3, 3, 3)")
    task.run()
    run(task, FIRST, "INSERT INTO {} VALUES (4, 4, 4)", "DROP TABLE {}")
    run(task, SECOND, "INSERT INTO {} VALUES (5, 5)")
    task.run()
    assert ids(task) == [1, 2, 3, 4, 5], "the rows of a dropped shard stay"
    assert {*task.joined("t")[1].names.values()} == {"id", "a"}


def test_a_shard_is_created_again_under_its_name(task: JoinedTask) -> None:
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7", "INSERT INTO {} VALUES (3, 3, 3)", "DROP TABLE {}")
    run(task, FIRST, "CREATE TABLE {} (id INT PRIMARY KEY, a INT)", "INSERT INTO {} VALUES (4, 4)")
    task.run()
    assert ids(task) == [1, 2, 3, 4]
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN d INT", "INSERT INTO {} VALUES (5, 5, 5)")
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN d INT", "INSERT INTO {} VALUES (6, 6, 6)")
    task.run()
    assert ids(task) == [1, 2, 3, 4, 5, 6]
    assert {*task.joined("t")[1].names.values()} == {"id", "a", "d"}


def test_an_online_ddl_tool_changes_one_shard(task: JoinedTask) -> None:
    """Its cut-over is a DDL of the shard; rows that it copies to its shadow table do not count."""
    old, shadow = f"{task.name}.t_11", f"{task.name}._t_11_gho"
    log, trash = f"{task.name}._t_11_ghc", f"{task.name}._t_11_del"
    statements = (
        f"CREATE /* gh-ost */ TABLE {log} (id BIGINT PRIMARY KEY, hint VARCHAR(64)) COMMENT='gh-ost'",
        f"CREATE /* gh-ost */ TABLE {shadow} LIKE {old}",
        f"ALTER /* gh-ost */ TABLE {shadow} ADD COLUMN c INT DEFAULT 7, RENAME COLUMN a TO b",
        f"REPLACE /* gh-ost */ INTO {shadow} (id, b) SELECT id, a FROM {old}",
        f"RENAME /* gh-ost */ TABLE {old} TO {trash}, {shadow} TO {old}",
        f"INSERT INTO {old} VALUES (3, 3, 3)",
    )
    task.sources["s1"].run("DO 1", *statements)
    task.run()
    task.assert_union("t")
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7, CHANGE a b INT")
    task.run()
    task.assert_equal("t")
