"""One-to-one targets: statements about whole tables are executed on the target once, and in order with rows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.copytask import Copy, copying
from tests.dying import Died, mortal
from unshard.adapters.meta.lockrecords import Locks
from unshard.adapters.meta.windowrecords import Windows
from unshard.units.ddl import execute
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def copy(tmp_path: Path, source_1: MariaDb, target: MariaDb, unique: str) -> Iterator[Copy]:
    with copying(unique, tmp_path, {"s1": source_1}, target) as made:
        yield made


@pytest.fixture
def two(tmp_path: Path, source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str) -> Iterator[Copy]:
    """Two sources with one schema; t is a table of s1, u one of s2."""
    with copying(unique, tmp_path, {"s1": source_1, "s2": source_2}, target) as made:
        for source, table in (("s1", "t"), ("s2", "u")):
            made.up(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)", source=source)
        yield made


def started(copy: Copy, *tables: str) -> None:
    """Load tables with two rows each."""
    for table in tables:
        copy.up(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    copy.go()
    copy.assert_same(*tables)


def test_truncate_and_drop_are_replicated_in_order_with_rows(copy: Copy) -> None:
    started(copy, "t", "d", "other")
    copy.up(
        "INSERT INTO t VALUES (3, 3)",
        "TRUNCATE t",
        "INSERT INTO t VALUES (1, 10), (4, 4)",
        "DROP TABLE d",
        "TRUNCATE TABLE t",
        "INSERT INTO t VALUES (5, 5)",
        "INSERT INTO other VALUES (3, 3)",
    )
    copy.go()
    copy.assert_same("t", "other")
    copy.up("INSERT INTO t VALUES (6, 6)")
    copy.go()
    copy.assert_same("t", "other")


def test_a_table_goes_with_its_shadow_table(copy: Copy) -> None:
    copy.write(**{"online-ddl": True})
    started(copy, "t", "other")
    copy.up("CREATE TABLE _t_new LIKE t", "DROP TABLE t", "DROP TABLE _t_new", "INSERT INTO other VALUES (3, 3)")
    copy.go()
    copy.assert_same("other")


def test_a_table_is_dropped_and_created_again_and_again(copy: Copy) -> None:
    started(copy, "t")
    copy.up(
        "DROP TABLE t",
        "CREATE TABLE t (id INT PRIMARY KEY, w VARCHAR(9))",
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t ADD x INT",
        "INSERT INTO t VALUES (2, 'b', 5)",
        "DROP TABLE t",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (7, 7)",
        "TRUNCATE t",
        "INSERT INTO t VALUES (8, 8)",
    )
    copy.go()
    copy.assert_same("t")
    copy.up("INSERT INTO t VALUES (9, 9)", "ALTER TABLE t ADD y INT", "DROP TABLE t")
    copy.go()
    copy.assert_same()
    copy.up("CREATE TABLE t (id INT PRIMARY KEY, z INT)", "INSERT INTO t VALUES (1, 1)")
    copy.go()
    copy.assert_same("t")


def test_create_or_replace_is_replicated(copy: Copy) -> None:
    started(copy, "t")
    copy.up(
        "INSERT INTO t VALUES (3, 3)",
        "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, w VARCHAR(9))",
        "INSERT INTO t VALUES (1, 'a')",
        "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, w VARCHAR(9))",
        "INSERT INTO t VALUES (2, 'b')",
    )
    copy.go()
    copy.assert_same("t")


def test_drop_database_drops_the_tables(copy: Copy) -> None:
    started(copy, "t", "u")
    copy.up(f"DROP DATABASE {copy.name}", f"CREATE DATABASE {copy.name}", f"CREATE TABLE {copy.name}.u (id INT)")
    copy.up("INSERT INTO u VALUES (1), (1)")
    copy.go()
    copy.assert_same("u")
    copy.up(f"DROP DATABASE {copy.name}")
    copy.go()
    assert copy.name not in [name for (name,) in copy.target.run("SHOW DATABASES")]


def test_a_filter_keeps_the_rows_and_validate_names_the_table(copy: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    rule = {"schema-pattern": "*", "events": ["truncate table", "drop table"], "action": "Ignore"}
    copy.write({"filter-rules": ["keep"]}, filters={"keep": rule})
    started(copy, "t", "d")
    copy.up("TRUNCATE t", "INSERT INTO t VALUES (3, 3)", "DROP TABLE d")
    copy.go()
    assert [row for (row,) in copy.target.run(f"SELECT id FROM {copy.name}.t ORDER BY 1")] == [1, 2, 3]
    assert len(copy.target.run(f"SELECT * FROM {copy.name}.d")) == 2
    copy.up("INSERT INTO t VALUES (1, 1), (2, 2)")
    assert copy.command("validate") == 0
    assert f"{copy.name}.d: no shard feeds it any more" in capsys.readouterr().out


def test_renames_are_replicated_in_order(copy: Copy) -> None:
    started(copy, "r", "t")
    copy.up(
        "INSERT INTO r VALUES (3, 3)",
        "RENAME TABLE r TO r2",
        "INSERT INTO r2 VALUES (4, 4)",
        "CREATE TABLE r (id INT PRIMARY KEY, w VARCHAR(9))",
        "INSERT INTO r VALUES (1, 'a')",
        "CREATE TABLE t_new LIKE t",
        "INSERT INTO t_new SELECT * FROM t WHERE id = 1",
        "RENAME TABLE t TO t_old, t_new TO t",
        "INSERT INTO t VALUES (9, 9)",
        "INSERT INTO t_old VALUES (8, 8)",
    )
    copy.go()
    copy.assert_same("r", "r2", "t", "t_old")
    copy.up("DROP TABLE r2", "ALTER TABLE r RENAME TO r2", "DROP TABLE t_old", "INSERT INTO r2 VALUES (5, 'b')")
    copy.go()
    copy.assert_same("r2", "t")


def test_swaps_and_changes_with_a_rename_are_replicated(copy: Copy) -> None:
    started(copy, "a", "b", "c", "r")
    copy.up("ALTER TABLE b ADD w INT", "UPDATE b SET w = id", "INSERT INTO c VALUES (3, 3)")
    copy.up(
        "INSERT INTO a VALUES (3, 3)",
        "RENAME TABLE a TO x, b TO a, x TO b",
        "INSERT INTO a VALUES (4, 4, 4)",
        "INSERT INTO b VALUES (5, 5)",
        "RENAME TABLE a TO x, b TO a, c TO b, x TO c",
        "INSERT INTO b VALUES (6, 6)",
        "INSERT INTO c VALUES (7, 7, 7)",
        "ALTER TABLE r ADD c INT DEFAULT 9, RENAME TO r2",
        "INSERT INTO r2 VALUES (8, 8, 8)",
        "CREATE TABLE r (id INT PRIMARY KEY)",
        "INSERT INTO r VALUES (1)",
        "RENAME TABLE a TO x, b TO a, x TO b",
        "RENAME TABLE a TO x, b TO a, x TO b",
    )
    copy.go()
    copy.assert_same("a", "b", "c", "r", "r2")
    copy.up("DROP TABLE a", "ALTER TABLE b ADD z INT, RENAME TO a", "INSERT INTO a VALUES (10, 10, 10)")
    copy.go()
    copy.assert_same("a", "c", "r", "r2")
    assert copy.command("validate") == 0


def test_schemas_are_created_altered_and_dropped(copy: Copy) -> None:
    started(copy, "t")
    two, three = f"{copy.name}_2", f"{copy.name}_3"
    copy.up(
        f"CREATE DATABASE {two} CHARACTER SET latin1",
        f"CREATE DATABASE {three}",
        f"ALTER DATABASE {two} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        f"DROP DATABASE {three}",
    )
    copy.go()
    query = "SELECT schema_name, default_collation_name FROM information_schema.schemata WHERE schema_name LIKE"
    assert copy.target.run(f"{query} '{copy.name}\\_%' AND schema_name NOT LIKE '%meta'") == [(two, "utf8mb4_bin")]


def test_statements_about_views_are_counted_and_dropped_tables_are_shown(
    copy: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    started(copy, "t", "d")
    copy.up("CREATE VIEW v AS SELECT * FROM t", "DROP VIEW v", "DROP TABLE d", "INSERT INTO t VALUES (3, 3)")
    copy.go()
    copy.assert_same("t")
    assert copy.command("status") == 0
    assert f"target {copy.name}.d: the source ran `DROP TABLE IF EXISTS `{copy.name}`.`d``" in capsys.readouterr().out


def test_a_process_that_dies_after_each_step_changes_nothing(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    started(copy, "t", "r", "d", "a", "b")
    mortal(monkeypatch, execute, "execute_whole", "create_target")
    mortal(monkeypatch, Locks, "create", "start", "resolve")
    mortal(monkeypatch, Windows, "begin", "commit")
    copy.up(
        "INSERT INTO t VALUES (3, 3)",
        "TRUNCATE t",
        "INSERT INTO t VALUES (1, 10)",
        "RENAME TABLE r TO r2",
        "INSERT INTO r2 VALUES (9, 9)",
        "DELETE FROM a",
        "RENAME TABLE a TO x, b TO a, x TO b",
        "INSERT INTO b VALUES (9, 9)",
        "ALTER TABLE r2 ADD c INT, RENAME TO r3",
        "INSERT INTO r3 VALUES (10, 10, 10)",
        "DROP TABLE d",
        "CREATE TABLE d (id INT PRIMARY KEY, w INT)",
        "INSERT INTO d VALUES (1, 10)",
        "TRUNCATE t",
        "INSERT INTO t VALUES (1, 11)",
        "CREATE OR REPLACE TABLE d (id INT PRIMARY KEY, x INT)",
        "INSERT INTO d VALUES (2, 20)",
    )
    deaths = 0
    while True:
        try:
            copy.go()
            break
        except Died:
            deaths += 1
    assert deaths > 10
    copy.assert_same("t", "r3", "d", "a", "b")


def test_without_a_shard_mode_each_source_copies_its_own_tables(two: Copy) -> None:
    two.write()
    two.go()
    two.up("TRUNCATE t", "INSERT INTO t VALUES (2)")
    two.up("DROP TABLE u", source="s2")
    two.go()
    two.assert_same("t")
    two.up("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (7)", source="s2")
    two.go()
    two.up("TRUNCATE t", source="s1")
    two.up("INSERT INTO t VALUES (8)", source="s2")
    two.go()
    found = two.target.run(f"SELECT id FROM {two.name}.t ORDER BY id")
    assert found == [(2,), (7,), (8,)], "two shards have this target, so the rows stay"


def test_with_a_shard_mode_a_target_that_two_sources_can_feed_keeps_its_rows(two: Copy) -> None:
    two.write(**{"shard-mode": "pessimistic"})
    two.go()
    two.up("TRUNCATE t", "INSERT INTO t VALUES (2)")
    two.up("DROP TABLE u", source="s2")
    two.go()
    assert two.target.run(f"SELECT id FROM {two.name}.t ORDER BY id") == [(1,), (2,)]
    assert two.target.run(f"SELECT id FROM {two.name}.u") == [(1,)]
