"""Scenarios of DM's test directories without sharding: at the end the target equals the source, structures included.

docs/dm-tests.md lists the directories. The names of the tests are those of the directories; the statements are our own.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.binlogs import purge
from tests.copytask import Copy, copying
from tests.taskfile import route, task_body
from tests.tidbsettings import is_tidb
from unshard.cli import main
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def copy(tmp_path: Path, source_1: MariaDb, target: MariaDb, unique: str) -> Iterator[Copy]:
    with copying(unique, tmp_path, {"s1": source_1}, target) as made:
        yield made


@dataclasses.dataclass(frozen=True)
class Story:
    """Statements before the load, and statements that the windows follow; `{}` is the name of the schema."""

    before: tuple[str, ...]
    after: tuple[tuple[str, ...], ...]
    session: dict[str, object] = dataclasses.field(default_factory=dict)


ODD_MODE = (
    "SET sql_mode = 'PIPES_AS_CONCAT,IGNORE_SPACE,NO_UNSIGNED_SUBTRACTION,NO_AUTO_VALUE_ON_ZERO,NO_BACKSLASH_ESCAPES,"
    "STRICT_ALL_TABLES,ALLOW_INVALID_DATES,HIGH_NOT_PRECEDENCE,REAL_AS_FLOAT,NO_ENGINE_SUBSTITUTION'"
)
STORIES = {
    "all_mode": Story(
        (
            "SET sql_mode = 'ANSI_QUOTES,NO_AUTO_VALUE_ON_ZERO', time_zone = '+01:00'",
            'CREATE TABLE person (id INT AUTO_INCREMENT PRIMARY KEY, "name" VARCHAR(20), ts TIMESTAMP NULL, d DATE)',
            "INSERT INTO person VALUES (0, 'zero', '2021-05-11 10:01:05', '2021-05-11'), (1, 'one', NULL, NULL)",
            "CREATE TABLE gone (id INT PRIMARY KEY)",
        ),
        (
            (
                "SET sql_mode = 'ANSI_QUOTES,NO_AUTO_VALUE_ON_ZERO', time_zone = '+02:00'",
                "CREATE TABLE IF NOT EXISTS person (c INT)",
                "INSERT INTO person (id, name) VALUES (9, 'nine'), (2, 'two'), (3, 'three')",
                "SET binlog_row_image = 'MINIMAL'",
                "UPDATE person SET name = 'nine again' WHERE id = 9",
                "SET binlog_row_image = 'FULL'",
                "ALTER TABLE person ADD info JSON",
                "ALTER TABLE person ADD number INT AS (JSON_VALUE(info, '$.n'))",
                "ALTER TABLE person ADD INDEX several (id, number, ts)",
                """INSERT INTO person (id, name, info) VALUES (4, 'four', '{"n": 40}'), (5, 'five', '{"n": 50}')""",
                """UPDATE person SET info = '{"n": 20}', ts = '2021-05-11 12:02:05' WHERE id = 2""",
                "ALTER TABLE person ADD UNIQUE KEY by_number (number)",
                "UPDATE person SET name = 'forty' WHERE number = 40",
                "DELETE FROM person WHERE number > 40",
                "CREATE TABLE folded (id INT PRIMARY KEY, v VARCHAR(9), l VARCHAR(9) AS (LOWER(v)) STORED, UNIQUE (l))",
                "REPLACE INTO folded (id, v) VALUES (10, 'Carol')",
                "REPLACE INTO folded (id, v) VALUES (20, 'Carol')",
                "REPLACE INTO folded (id, v) VALUES (30, 'Dave'), (40, 'DAVE')",
                "CREATE VIEW seen AS SELECT * FROM person",
                "DROP TABLE IF EXISTS gone",
                "DROP TABLE IF EXISTS gone",
                "DROP VIEW seen",
            ),
            (
                "ALTER TABLE person ADD lat DECIMAL(9,6) DEFAULT '0.000000', ADD bin BIT(1) DEFAULT NULL",
                "ALTER TABLE person ADD big BIGINT",
                "ALTER TABLE person ADD bigger BIGINT UNSIGNED",
                "INSERT INTO person (id, lat, bin, big, bigger) VALUES (11, '123.123', b'1', -9223372036854775808, 0)",
                "INSERT INTO person (id, bin, big, bigger) VALUES (12, b'0', 9223372036854775807, 9223372036854775808)",
                "SET time_zone = '+07:00'",
                "INSERT INTO person (id, ts) VALUES (13, '2021-05-11 12:02:05')",
            ),
        ),
    ),
    "drop_column_with_index": Story(
        (
            "CREATE TABLE t (id INT PRIMARY KEY, c1 INT, c2 INT, c3 INT, KEY (c1), KEY one (c2, c3), KEY two (c3, c2))",
            "INSERT INTO t VALUES (1, 1, 1, 1), (2, 2, 2, 2)",
        ),
        (
            (
                "ALTER TABLE t DROP COLUMN c1",
                "INSERT INTO t VALUES (3, 3, 3)",
                "CREATE TABLE u (id INT PRIMARY KEY, col INT)",
                "CREATE INDEX by_col ON u (col)",
                "INSERT INTO u VALUES (1, 1)",
                "ALTER TABLE u DROP COLUMN col, DROP INDEX by_col",
                "INSERT INTO u VALUES (2)",
                "ALTER TABLE t DROP COLUMN c2",
                "INSERT INTO t VALUES (4, 4)",
            ),
        ),
    ),
    "downstream_index_order": Story(
        ("CREATE TABLE t (id INT NOT NULL, v INT NOT NULL, w INT)", "INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)"),
        (
            (
                "ALTER TABLE t ADD UNIQUE KEY (v, w)",
                "INSERT INTO t VALUES (3, 3, NULL), (4, 3, NULL)",
                "ALTER TABLE t ADD UNIQUE KEY (v, id)",
                "ALTER TABLE t ADD PRIMARY KEY (id)",
                "UPDATE t SET w = 5 WHERE v = 3 AND id = 4",
                "DELETE FROM t WHERE id = 1",
            ),
        ),
    ),
    "duplicate_event": Story(
        ("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)", "CREATE TABLE k (v INT)"),
        (
            (
                *("BEGIN", "INSERT INTO t (v) VALUES (1)", "INSERT INTO k VALUES (1)", "INSERT INTO t (v) VALUES (2)"),
                *("INSERT INTO k VALUES (1)", "FLUSH STATUS", "INSERT INTO k VALUES (1), (2)", "COMMIT"),
            ),
        ),
    ),
    "fake_rotate_event": Story(
        ("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1)"),
        (
            ("FLUSH BINARY LOGS", "INSERT INTO t VALUES (3, 3)", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS"),
            ("FLUSH BINARY LOGS", "ALTER TABLE t ADD info VARCHAR(9)", "INSERT INTO t VALUES (4, 4, 'x')"),
        ),
    ),
    "foreign_key_multi_worker": Story(
        (
            "CREATE TABLE g (id INT PRIMARY KEY, v VARCHAR(9))",
            "CREATE TABLE p (id INT PRIMARY KEY, g_id INT, FOREIGN KEY (g_id) REFERENCES g (id) ON DELETE CASCADE)",
            "CREATE TABLE c (id INT PRIMARY KEY, p_id INT, v VARCHAR(9), FOREIGN KEY (p_id) REFERENCES p (id))",
            "INSERT INTO g VALUES (1, 'a'), (2, 'b'), (3, 'c')",
            "INSERT INTO p VALUES (10, 1), (20, 2), (30, 3)",
            "INSERT INTO c VALUES (100, 10, 'a'), (101, 10, 'b'), (201, 20, 'c'), (202, 20, 'd'), (301, 30, 'e')",
        ),
        (
            (
                "UPDATE c SET v = 'new' WHERE id = 100",
                "UPDATE c SET p_id = 10 WHERE id IN (201, 202)",
                "DELETE FROM c WHERE id = 301",
                "DELETE FROM g WHERE id = 2",
                "DELETE FROM p WHERE id = 30",
                "INSERT INTO g VALUES (4, 'd')",
                "INSERT INTO p VALUES (40, 4)",
                "INSERT INTO c VALUES (401, 40, 'f')",
                "DELETE FROM c WHERE id = 401",
                "DELETE FROM g WHERE id = 4",
            ),
        ),
        {"foreign_key_checks": 1},
    ),
    "safe_mode_foreign_key_update_cascade": Story(
        (
            "CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(9), UNIQUE (v))",
            "CREATE TABLE c (id INT PRIMARY KEY, p_id INT, FOREIGN KEY (p_id) REFERENCES p (id) ON UPDATE CASCADE)",
            "INSERT INTO p VALUES (1, 'a'), (2, 'b')",
            "INSERT INTO c VALUES (10, 1), (11, 1), (20, 2)",
        ),
        (
            (
                "UPDATE p SET id = 101, v = 'new' WHERE id = 1",
                "UPDATE p SET id = 1 WHERE id = 2",
                "INSERT INTO c VALUES (30, 101)",
            ),
        ),
        {"foreign_key_checks": 1},
    ),
    "gbk": Story(
        (
            "ALTER DATABASE {} CHARACTER SET gbk",
            "CREATE TABLE t1 (id INT PRIMARY KEY, v VARCHAR(20)) CHARACTER SET gbk",
            "CREATE TABLE t2 (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET gbk) CHARACTER SET utf8mb3",
            "CREATE TABLE t3 (id INT PRIMARY KEY, v VARCHAR(20)) CHARACTER SET latin1 COLLATE latin1_bin",
            "INSERT INTO t1 VALUES (1, '一二三'), (2, '四五')",
            "INSERT INTO t2 VALUES (1, '一二三'), (2, '四五')",
            "INSERT INTO t3 VALUES (1, 'Müller')",
        ),
        (
            (
                "UPDATE t1 SET v = '六' WHERE id = 1",
                "DELETE FROM t2 WHERE id = 2",
                "INSERT INTO t3 VALUES (2, 'é')",
                "CREATE TABLE t4 (id INT PRIMARY KEY, v VARCHAR(20)) CHARACTER SET gbk",
                "INSERT INTO t4 VALUES (1, '一'), (2, '二')",
                "CREATE TABLE inherits (v CHAR(20))",
                "INSERT INTO inherits VALUES ('一二三')",
                "CREATE TABLE two (a CHAR(20) CHARACTER SET gbk, b CHAR(20) CHARACTER SET utf8mb4)",
                "CREATE TABLE two_copy LIKE two",
                "INSERT INTO two_copy VALUES ('一二三', '一二三')",
                "CREATE TABLE parts (id INT, a CHAR(20) CHARACTER SET gbk) PARTITION BY HASH (id) PARTITIONS 4",
                "CREATE DATABASE {}_3 CHARACTER SET utf8mb3",
                "ALTER DATABASE {}_3 CHARACTER SET gbk",
                "CREATE TABLE {}_3.t (id INT PRIMARY KEY, v VARCHAR(9))",
                "INSERT INTO {}_3.t VALUES (1, '一')",
                "SET NAMES gbk",
                "CREATE TABLE other_client (c INT PRIMARY KEY COMMENT '你好')",
            ),
        ),
    ),
    "gbk_type_of_a_key": Story(
        ("CREATE TABLE t4 (id INT PRIMARY KEY, v VARCHAR(20)) CHARACTER SET gbk", "INSERT INTO t4 VALUES (1, '一')"),
        (("ALTER TABLE t4 MODIFY id SMALLINT(4) NOT NULL DEFAULT _utf8mb4'0'", "INSERT INTO t4 VALUES (2, '二')"),),
    ),
    "many_tables": Story(
        (
            *("SET time_zone = '+02:00'", "CREATE TABLE t (i INT, j INT UNIQUE)", "CREATE TABLE u LIKE t"),
            *("INSERT INTO t VALUES (1, 1), (1, 2), (1, NULL), (2, NULL)", "INSERT INTO u SELECT * FROM t"),
        ),
        (
            (
                "SET time_zone = '+02:00'",
                "INSERT INTO t VALUES (3, 3), (3, NULL), (3, NULL)",
                "SET timestamp = 1700000000",
                "ALTER TABLE t ADD x DATETIME DEFAULT CURRENT_TIMESTAMP",
                "ALTER TABLE u ADD x TIMESTAMP DEFAULT CURRENT_TIMESTAMP",
                "SET timestamp = DEFAULT",
                "INSERT INTO t (i, j) VALUES (4, 4), (4, NULL)",
                "UPDATE u SET j = 5 WHERE i = 2",
                "DELETE FROM t WHERE i = 3 AND j IS NULL LIMIT 1",
                "UPDATE t SET i = 9 WHERE j IS NULL",
            ),
        ),
        {"time_zone": "+06:00"},
    ),
    "mariadb_compat": Story(
        (
            "ALTER DATABASE {} CHARACTER SET latin1 COLLATE latin1_swedish_ci",
            "CREATE TABLE t (id INT PRIMARY KEY, txt TEXT DEFAULT 'x', v VARCHAR(700), j JSON, CHECK (json_valid(j)),"
            " KEY (txt), KEY (v))",
            """INSERT INTO t VALUES (1, 'a', 'b', '{"a":1}'), (2, DEFAULT, RPAD('v', 690, 'v'), '{"a":2}')""",
        ),
        (
            (
                "CREATE OR REPLACE TABLE r (id INT PRIMARY KEY, note TEXT DEFAULT 'x', KEY (note))",
                "INSERT INTO r (id) VALUES (1)",
                "CREATE OR REPLACE TABLE r (id INT PRIMARY KEY, note TEXT DEFAULT 'y', KEY (note(20)))",
                "INSERT INTO r VALUES (1, 'first'), (2, DEFAULT)",
                "ALTER TABLE r ADD late TEXT DEFAULT 'z'",
                "INSERT INTO r (id) VALUES (3)",
            ),
        ),
    ),
    "sql_mode": Story(
        (
            # With IGNORE_SPACE this would be a call of a function.
            "SET sql_mode = ''",
            "CREATE TABLE count (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(60), dt DATETIME)",
            "INSERT INTO count (dt) VALUES ('0000-06-00'), ('0000-00-01'), ('0000-00-00'), ('0000-06-01')",
            "CREATE TABLE zones (id INT PRIMARY KEY, a TIMESTAMP)",
            *("SET time_zone = '+08:00'", "INSERT INTO zones VALUES (1, '2001-04-15 01:30:12')", ODD_MODE),
            "INSERT INTO `count` (id, name) VALUES (0, 'a' || '\\'), (10, 'b')",
        ),
        (
            (
                *(
                    "SET time_zone = '-07:00'",
                    "INSERT INTO zones VALUES (2, '2001-04-15 01:30:12')",
                    "SET sql_mode = ''",
                ),
                "CREATE TABLE sum (id INT PRIMARY KEY)",
                *("INSERT INTO sum VALUES (1)", ODD_MODE),
                "CREATE TABLE odd (id INT PRIMARY KEY, a VARCHAR(20) DEFAULT 'x\\', b REAL)",
                "INSERT INTO odd (id, b) VALUES (1, 0.1)",
                "INSERT INTO `count` (id, name) VALUES (30, '\\b')",
                "ALTER TABLE `count` ADD l VARCHAR(60) AS (REGEXP_REPLACE(name, '^([a-z]+-?)+\\.[x|X]$', 'a\\b'))",
                "SET sql_mode = 'ANSI_QUOTES'",
                'ALTER TABLE "count" ADD "since" DATE DEFAULT \'2001-01-01\'',
                "SET sql_mode = ''",
                "INSERT INTO count (name) VALUES ('ab-c.x'), (\"quoted\")",
                "ALTER TABLE count ADD never DATE NOT NULL DEFAULT '0000-00-00'",
                "INSERT INTO count (id, dt) VALUES (0, '0000-06-00')",
            ),
        ),
    ),
    "start_task": Story(
        ("CREATE TABLE t (i INT, j INT UNIQUE) ENGINE = MyISAM", "INSERT INTO t VALUES (1, 1), (2, 2), (2, NULL)"),
        (
            (
                "CREATE TABLE u (i INT, j INT UNIQUE) ENGINE = MyISAM",
                *("INSERT INTO t VALUES (99, 99), (98, NULL)", "INSERT INTO u VALUES (99, 99), (98, 98)"),
                *("UPDATE t SET i = 5 WHERE j = 99", "DELETE FROM u WHERE j = 98"),
            ),
        ),
    ),
    "sync_collation": Story(
        (
            "ALTER DATABASE {} CHARACTER SET utf8mb3 COLLATE utf8mb3_unicode_ci",
            "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20)) CHARACTER SET latin1 COLLATE latin1_bin",
            "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(20) COLLATE utf8mb3_bin)",
            "INSERT INTO t VALUES (1, 'Aa'), (2, 'aA')",
        ),
        (
            (
                "CREATE DATABASE {}_1 CHARACTER SET utf8mb3 COLLATE utf8mb3_unicode_ci",
                "CREATE TABLE {}_1.t (id INT PRIMARY KEY, v VARCHAR(20))",
                "CREATE TABLE {}_1.u (v VARCHAR(9) CHARACTER SET utf8mb3) CHARACTER SET latin1 COLLATE latin1_bin",
                "INSERT INTO {}_1.t VALUES (1, 'Aa'), (2, 'aA')",
                "SET collation_server = utf8mb3_polish_ci",
                "CREATE DATABASE {}_2",
                "CREATE TABLE {}_2.t (id INT PRIMARY KEY, v VARCHAR(20))",
                "INSERT INTO {}_2.t VALUES (1, 'Aa'), (2, 'aA')",
            ),
            ("CREATE TABLE {}_2.u (v VARCHAR(20) PRIMARY KEY)", "INSERT INTO {}_2.u VALUES ('l'), ('ł')"),
        ),
    ),
    "validator_basic": Story(
        (
            "CREATE TABLE t (id INT PRIMARY KEY, dt DATETIME, ts TIMESTAMP NULL, f DOUBLE, d DECIMAL(40, 20))",
            "INSERT INTO t VALUES (1, NOW(), NOW(), 123456789123456789, 12345678912345.12345678912345)",
        ),
        (
            (
                "INSERT INTO t VALUES (2, NOW(), NULL, 0.123456789123456789, 0.123456789123456789)",
                "UPDATE t SET f = f * 3 WHERE id = 1",
                "CREATE TABLE by_time (c1 DATETIME PRIMARY KEY, c2 VARCHAR(9))",
                "INSERT INTO by_time VALUES ('2022-01-01', NULL), ('2022-01-01 00:00:01', 'b'), ('2022-01-02', 'c')",
                "UPDATE by_time SET c2 = 'bb' WHERE c1 = '2022-01-01 00:00:01'",
                "DELETE FROM by_time WHERE c1 = '2022-01-01'",
                "CREATE TABLE by_all (c1 DATETIME, c2 TIMESTAMP DEFAULT CURRENT_TIMESTAMP, c3 INT, c4 CHAR(9), c5 INT,"
                " PRIMARY KEY (c1, c2, c3, c4))",
                "INSERT by_all VALUES ('2022-01-01', '2022-01-01', 1, 'a', 1), ('2022-01-01', '2022-01-01', 1, 'b', 2),"
                " ('2022-01-01', '2012-12-01', 1, 'a', 3), ('2012-12-01', '2022-01-01', 1, 'a', 4)",
                "UPDATE by_all SET c5 = 11 WHERE c1 = '2022-01-01'",
                "DELETE FROM by_all WHERE c4 = 'a' AND c5 < 11",
                "CREATE TABLE no_key (c1 INT)",
                "INSERT INTO no_key VALUES (1), (1), (2)",
                "ALTER TABLE no_key ADD c2 INT DEFAULT 1",
                "CREATE TABLE gone (c1 INT PRIMARY KEY)",
                *("INSERT INTO gone VALUES (1)", "DROP TABLE gone"),
            ),
        ),
    ),
}


NOT_ON_TIDB = ("all_mode", "drop_column_with_index", "gbk_type_of_a_key", "mariadb_compat", "sync_collation")


@pytest.mark.parametrize("name", [name for name in STORIES if name not in NOT_ON_TIDB])
def test_target_equals_source(copy: Copy, name: str) -> None:
    follow(copy, name)


@pytest.mark.mariadb_only(
    "TiDB lacks JSON_VALUE, defaults of TEXT, latin1_swedish_ci and utf8mb3_polish_ci. It drops no column that an index"
    " has with others, and changes no type of a clustered key"
)
@pytest.mark.parametrize("name", NOT_ON_TIDB)
def test_target_equals_source_with_what_tidb_lacks(copy: Copy, name: str) -> None:
    follow(copy, name)


def follow(copy: Copy, name: str) -> None:
    """Load, and run a window for each part of the story."""
    story = STORIES[name]
    copy.with_session(**story.session)
    copy.up(*(statement.format(copy.name) if "{}" in statement else statement for statement in story.before))
    copy.go()
    copy.assert_equal()
    for statements in story.after:
        copy.up(*(statement.format(copy.name) if "{}" in statement else statement for statement in statements))
        assert not copy.go().locks
        copy.assert_equal()
    assert all(found.equal for found in copy.verdicts().values())


def test_names_and_sessions_of_full_mode(copy: Copy) -> None:
    """DM's full_mode: names with `/` and `"`, tables without rows, a schema without tables, NO_BACKSLASH_ESCAPES."""
    odd, table = f'{copy.name}/x"y', 'tb/1"\\'
    copy.up(
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES', time_zone = '+01:00'",
        f"CREATE DATABASE `{odd}`",
        f"CREATE DATABASE {copy.name}_without_tables",
        f"CREATE TABLE `{odd}`.`{table}` (id INT PRIMARY KEY, v VARCHAR(9) DEFAULT '\\')",
        f"INSERT INTO `{odd}`.`{table}` VALUES (1, 'a\\b'), (2, DEFAULT)",
        f"CREATE TABLE `{odd}`.without_rows (id INT PRIMARY KEY)",
    )
    copy.go()
    copy.assert_equal()
    copy.up(
        f'ALTER TABLE `{odd}`.`{table}` ADD `c\\"/` INT',
        f"INSERT INTO `{odd}`.`{table}` VALUES (3, '\\\\', 3)",
        f"DELETE FROM `{odd}`.`{table}` WHERE id = 1",
        f"CREATE TABLE {copy.name}_without_tables.t (id INT PRIMARY KEY)",
    )
    copy.go()
    copy.assert_equal()


@pytest.mark.mariadb_only("TiDB does not distinguish names of tables by case")
def test_case_sensitive(copy: Copy) -> None:
    """DM's case_sensitive: tables that only differ in case, a route, and a filter that ignores TRUNCATE."""
    name = copy.name
    copy.up(
        "CREATE TABLE Upper_Table (id INT PRIMARY KEY, v VARCHAR(9))",
        "CREATE TABLE upper_table (id INT PRIMARY KEY)",
        "INSERT INTO Upper_Table VALUES (1, 'a')",
        "INSERT INTO upper_table VALUES (2)",
        f"CREATE DATABASE {name}_Upper",
        f"CREATE DATABASE {name}_upper",
        f"CREATE TABLE {name}_Upper.Do_Table (id INT PRIMARY KEY, v VARCHAR(9))",
        f"CREATE TABLE {name}_Upper.do_table (id INT PRIMARY KEY)",
        f"CREATE TABLE {name}_upper.Do_Table (id INT PRIMARY KEY)",
        f"INSERT INTO {name}_Upper.Do_Table VALUES (1, 'a'), (2, 'b')",
    )
    body = task_body(
        name,
        copy.sources,
        copy.target,
        {"r": route(f"{name}_Upper", "Do_Table", f"{name}_ROUTED", "do_table_routed")},
        {"filter-rules": ["f"]},
        **{
            "case-sensitive": True,
            "block-allow-list": {"ours": {"do-dbs": [name, f"{name}_Upper"]}},
            "filters": {"f": {"schema-pattern": "*_Upper", "events": ["truncate table"], "action": "Ignore"}},
            "unshard": {"storage-path": str(copy.path.parent / "storage")},
        },
    )
    copy.write_body(body)
    copy.go()
    copy.up(
        "INSERT INTO Upper_Table VALUES (3, 'c')",
        "DELETE FROM upper_table",
        "TRUNCATE TABLE Upper_Table",
        "INSERT INTO Upper_Table VALUES (4, 'd')",
        f"TRUNCATE TABLE {name}_Upper.Do_Table",
        f"INSERT INTO {name}_Upper.Do_Table VALUES (103, 'new')",
        f"INSERT INTO {name}_Upper.do_table VALUES (5)",
    )
    copy.go()
    copy.assert_same("Upper_Table", "upper_table")
    assert f"{name}_upper" not in copy.schemas(copy.target)
    routed = copy.target.run(f"SELECT id FROM {name}_ROUTED.do_table_routed ORDER BY id")
    assert routed == [(1,), (2,), (103,)], "the TRUNCATE is ignored"
    assert copy.target.run(f"SELECT id FROM {name}_Upper.do_table") == [(5,)]


INCOMPATIBLE = (
    "ALTER TABLE t MODIFY n SMALLINT",
    "ALTER TABLE t MODIFY d DECIMAL(7, 1)",
    "ALTER TABLE t MODIFY n VARCHAR(10)",
    "ALTER TABLE t DROP COLUMN j",
    "ALTER TABLE t MODIFY id INT",
    "ALTER TABLE t DROP PRIMARY KEY",
    "ALTER TABLE t ADD UNIQUE KEY u (n2)",
    "ALTER TABLE t RENAME KEY u TO w",
    "ALTER TABLE t DROP KEY w",
    "ALTER TABLE t ALTER n2 SET DEFAULT 1",
    "ALTER TABLE t MODIFY d DECIMAL(7, 1) AFTER id",
    "ALTER TABLE t MODIFY c CHAR(4) CHARACTER SET latin1",
    "ALTER TABLE t MODIFY c CHAR(4) CHARACTER SET latin1 COLLATE latin1_bin",
    "ALTER TABLE t ENGINE = Aria",
    "ALTER TABLE p REORGANIZE PARTITION p0 INTO (PARTITION a VALUES LESS THAN (5), PARTITION b VALUES LESS THAN (100))",
    "ALTER TABLE p REBUILD PARTITION a, b",
    "ALTER TABLE p TRUNCATE PARTITION a",
    "ALTER TABLE p DROP PARTITION b",
    "ALTER TABLE h COALESCE PARTITION 2",
    "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE x",
    "ALTER TABLE x RENAME COLUMN id TO k",
    "TRUNCATE TABLE h",
    "RENAME TABLE x TO y",
    "DROP TABLE y",
)


@pytest.mark.test_all("scenarios in memory and a part of DM's cases take the same paths")
def test_incompatible_ddl_changes(copy: Copy) -> None:
    """DM's incompatible_ddl_changes: a rule with the action Error stops each such DDL, and the operator skips it."""
    rule = {"schema-pattern": "*", "table-pattern": "*", "events": ["incompatible ddl changes"], "action": "Error"}
    copy.write({"filter-rules": ["f"]}, filters={"f": rule})
    copy.up(
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, n MEDIUMINT, n2 INT, d DECIMAL(7, 2), j JSON, c CHAR(4))",
        "INSERT INTO t VALUES (1, 1, 1, 1.25, '{}', 'ab')",
        "CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (1000))",
        "CREATE TABLE h (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 6",
        "CREATE TABLE x (id INT PRIMARY KEY)",
        "INSERT INTO h VALUES (1)",
        "INSERT INTO x VALUES (2)",
    )
    copy.go()
    structure = copy.tables(copy.target)
    # TiDB does not convert text to latin1, so the structure after such a DDL would be unknown there.
    changes = [each for each in INCOMPATIBLE if "latin1" not in each or not is_tidb(copy.target)]
    for number, change in enumerate(changes, 2):
        copy.up(change, f"INSERT INTO t (id) VALUES ({number})")
        found = copy.run().errors
        assert [trouble.error.code for trouble in found] == ["US-4009"], (change, [str(each.error) for each in found])
        said = ["ddl", "skip", str(copy.path), "--current", "--yes", "--reason", "the target stays"]
        assert main(said) == 0, change
    copy.go()
    assert copy.tables(copy.target) == structure
    ids = "SELECT id FROM {}.t ORDER BY id"
    assert copy.target.run(ids.format(copy.name)) == copy.sources["s1"].run(ids.format(copy.name))
    kept = copy.target.run(f"SELECT id FROM {copy.name}.h UNION ALL SELECT id FROM {copy.name}.x")
    assert sorted(kept) == [(1,), (2,)]


def test_tracker_ignored_ddl(copy: Copy) -> None:
    """DM's tracker_ignored_ddl: an ignored ALTER, then rows with its column; the operator adds it to the target."""
    rule = {"schema-pattern": "*", "table-pattern": "*", "events": ["alter table"], "action": "Ignore"}
    copy.write({"filter-rules": ["f"]}, filters={"f": rule})
    copy.up("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    copy.go()
    copy.up("ALTER TABLE t ADD COLUMN ignored INT", "INSERT INTO t VALUES (2, 2, 2)")
    copy.run()
    assert "ignored" not in copy.tables(copy.target)[f"`{copy.name}`.`t`"]
    copy.target.run(f"ALTER TABLE {copy.name}.t ADD COLUMN ignored INT")
    copy.up("INSERT INTO t VALUES (3, 3, 3)", "UPDATE t SET ignored = 4 WHERE id = 2")
    copy.go()
    copy.assert_same("t")


def test_a_rename_to_a_name_that_the_target_has(copy: Copy) -> None:
    """DM's DM_022 (shardddl1_1) ends in an error; here the operator frees the name, and the next run goes on."""
    copy.up("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    copy.go()
    copy.target.run(f"CREATE TABLE {copy.name}.u (id INT)", f"INSERT INTO {copy.name}.u VALUES (7)")
    copy.up("RENAME TABLE t TO u", "INSERT INTO u VALUES (2)")
    assert len(copy.run().locks) == 1
    copy.target.run(f"DROP TABLE {copy.name}.u")
    copy.up("INSERT INTO u VALUES (3)")
    assert not copy.go().locks
    copy.assert_same("u")


def test_a_unique_key_that_the_targets_rows_violate(copy: Copy) -> None:
    """As in DM's gbk and handle_error: the target has a row too many, so it refuses ADD UNIQUE until that is gone."""
    copy.up("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    copy.go()
    copy.target.run(f"INSERT INTO {copy.name}.t VALUES (9, 2)")
    copy.up("ALTER TABLE t ADD UNIQUE (v)", "INSERT INTO t VALUES (3, 3)")
    (lock,) = copy.run().locks
    assert "Duplicate entry" in str(lock.error)
    copy.target.run(f"DELETE FROM {copy.name}.t WHERE id = 9")
    assert not copy.go().locks
    copy.assert_same("t")
    copy.assert_equal()


def test_gtid(tmp_path: Path, upstream_server: MariaDb, target: MariaDb, unique: str) -> None:
    """DM's gtid and only_dml: a gap in the GTIDs, rotated and purged binlogs; a purge of missing ones is an error."""
    with copying(unique, tmp_path, {"s1": upstream_server}, target) as copy:
        copy.up("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
        copy.go()
        copy.up("SET gtid_seq_no = 1000", "INSERT INTO t VALUES (3)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (4)")
        copy.go()
        copy.up("SET gtid_domain_id = 7", "INSERT INTO t VALUES (5)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (6)")
        copy.go()
        copy.assert_equal()
        purge(upstream_server)
        copy.up("INSERT INTO t VALUES (7)")
        copy.go()
        copy.assert_equal()
        copy.up("INSERT INTO t VALUES (8)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (9)")
        purge(upstream_server)
        (trouble,) = copy.run().errors
        assert trouble.error.code.startswith("US-3"), str(trouble.error)
