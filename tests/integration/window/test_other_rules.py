"""Targets that have rules of their own: other collations, a strict sql_mode, foreign keys. Rows arrive as they are."""

import itertools
from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from tests.tidbsettings import is_tidb
from unshard.errors.rows import Collision
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

KEY = "k VARCHAR(9) CHARACTER SET utf8mb4 COLLATE {} NOT NULL PRIMARY KEY, v INT"
EXACT, FOLDING, PADDING = "utf8mb4_nopad_bin", "utf8mb4_general_ci", "utf8mb4_bin"
STRICT = "TRADITIONAL,ANSI_QUOTES"
SAME_ROW = (
    "INSERT INTO t_1 VALUES ('a', 1), ('b ', 2), ('c', 3)",
    "UPDATE t_1 SET k = 'A', v = 4 WHERE k = 'a'",
    "UPDATE t_1 SET k = 'b' WHERE k = 'b '",
    "REPLACE INTO t_1 VALUES ('A', 5)",
    "DELETE FROM t_1 WHERE k = 'A'",
    "INSERT INTO t_1 VALUES ('a ', 6)",
    "UPDATE t_1 SET k = 'á' WHERE k = 'a '",
    "UPDATE t_1 SET v = 7 WHERE k = 'á'",
    "DELETE FROM t_1 WHERE k = 'c'",
    "UPDATE t_1 SET k = CONCAT(UPPER(k), ' ')",
)
"""Keys that are one key for some collations, two for others; never two rows with one key of the target."""


def following(own: str, there: str, task_of: tuple[MariaDb, MariaDb], unique: str, folder: Path):
    source, target = task_of
    target.run(f"CREATE DATABASE {unique}_to", f"CREATE TABLE {unique}_to.t ({KEY.format(there)})")
    made = {"columns": {"t": KEY.format(own)}, "numbers": {("s1", "t"): (1,)}}
    return living(unique, folder, (source, target), ("t",), **made)


def caught_up(task: LiveTask) -> None:
    task.pull("s1")
    while task.window("s1").moved:
        pass
    task.assert_union("t")


@pytest.mark.parametrize(("own", "there"), [*itertools.permutations((EXACT, FOLDING, PADDING), 2)])
def test_keys_that_change_under_another_collation(source_1, target, unique, tmp_path, own, there) -> None:
    """In one window, then in a window for each statement."""
    if there == EXACT and is_tidb(target):
        pytest.skip(f"TiDB has no collation {EXACT}, so the target table cannot be created")
    with following(own, there, (source_1, target), unique, tmp_path) as task:
        for statements in (SAME_ROW, ("DELETE FROM t_1",), *((one,) for one in SAME_ROW)):
            source_1.run(f"USE {unique}", *statements)
            caught_up(task)
        keys = target.run(f"SELECT HEX(k) FROM {unique}_to.t ORDER BY 1")
        assert keys == source_1.run(f"SELECT HEX(k) FROM {unique}.t_1 ORDER BY 1"), "byte for byte"


@pytest.mark.parametrize("at_once", [True, False])
def test_two_keys_that_are_one_for_the_target_are_a_collision(source_1, target, unique, tmp_path, at_once) -> None:
    with following(EXACT, FOLDING, (source_1, target), unique, tmp_path) as task:
        source_1.run(f"INSERT INTO {unique}.t_1 VALUES ('x', 1)")
        if not at_once:
            caught_up(task)
        source_1.run(f"INSERT INTO {unique}.t_1 VALUES ('X', 2)")
        task.run()
        assert isinstance(task.stopped()["s1", "t"], Collision)
        assert target.run(f"SELECT v FROM {unique}_to.t") == [(1,)] * (not at_once)


def test_a_strict_target_with_foreign_keys_takes_what_the_sources_have(source_1, target, unique, tmp_path) -> None:
    """Zero and impossible dates, children before parents, bytes that are half a character elsewhere."""
    child = (
        "id INT PRIMARY KEY, parent INT NOT NULL, d DATE NOT NULL DEFAULT '0000-00-00', at TIMESTAMP NOT NULL"
        " DEFAULT '0000-00-00 00:00:00', g VARCHAR(9) CHARACTER SET gbk, l VARCHAR(9) COLLATE latin1_bin,"
        " KEY (parent)"
    )
    columns, to = {"p": "id INT PRIMARY KEY", "c": child}, f"{unique}_to"
    (mode,) = target.run("SELECT @@GLOBAL.sql_mode")[0]
    refers = f"FOREIGN KEY (parent) REFERENCES {to}.p (id) ON DELETE CASCADE"
    target.run(
        "SET sql_mode = ''",
        f"CREATE DATABASE {to}",
        f"CREATE TABLE {to}.p (id INT PRIMARY KEY)",
        f"CREATE TABLE {to}.c ({child}, {refers})",
        f"SET GLOBAL sql_mode = '{STRICT}'",
    )
    numbers = {("s1", group): (1,) for group in columns}
    try:
        with living(unique, tmp_path, (source_1, target), "pc", columns=columns, numbers=numbers) as task:
            source_1.run(
                "SET sql_mode = 'ALLOW_INVALID_DATES'",
                f"USE {unique}",
                "INSERT INTO c_1 (id, parent) VALUES (1, 1)",
                "INSERT INTO p_1 VALUES (1)",
                "INSERT INTO c_1 VALUES (2, 9, '2020-00-15', '2020-01-01', _gbk x'955C', _latin1 x'81FF5C')",
                "INSERT INTO c_1 VALUES (3, 1, '2021-02-31', 0, _gbk x'815C5C', _latin1 x'5C27')",
                "DELETE FROM p_1",
                "UPDATE c_1 SET d = '0000-00-00' WHERE id = 2",
                "ALTER TABLE c_1 ADD COLUMN e DATETIME NOT NULL DEFAULT '0000-00-00 00:00:00'",
                "INSERT INTO c_1 (id, parent, d) VALUES (4, 4, '2020-02-00')",
            )
            task.run()
            task.assert_settled()
            assert len(task.executed("c")) == 1
            latin = "CONVERT(l USING utf8mb4)" if is_tidb(target) else "l"  # TiDB stores latin1 as UTF-8
            bytes_ = f"SELECT id, HEX(g), HEX({latin}) FROM {{}} ORDER BY id"
            assert target.run(bytes_.format(f"{to}.c")) == source_1.run(bytes_.format(f"{unique}.c_1"))
            target.run("SET foreign_key_checks = 0", f"DROP TABLE {to}.c")
    finally:
        target.run(f"SET GLOBAL sql_mode = '{mode}'")
