"""Shards run the same text in different sessions: they agree only if the effect on structure and rows is the same."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.livetask import LiveTask, living
from tests.versions import MYSQL
from unshard.core.ddl.lock import LockState
from unshard.core.model import Shard, TableId
from unshard.operate.command import Force
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard.units.window.reloading import reload_columns
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

EAST, WEST = "time_zone = '+08:00'", "time_zone = '-05:00'"
ROUND, CUT = "sql_mode = 'TIME_ROUND_FRACTIONAL'", "sql_mode = ''"
KEPT = "sql_mode = ALLOW_INVALID_DATES"
NEW_YEAR, NEXT_YEAR = "timestamp = 1577880000", "timestamp = 1609502400"
EPOCH = "DEFAULT (FROM_UNIXTIME(0))"


class Example(NamedTuple):
    """A DDL and the sessions of two shards that give it different effects."""

    columns: str
    ddl: str
    first: str
    second: str
    value: str = "1"


UNEQUAL = {
    "a default": Example("a INT", "ADD b TIMESTAMP DEFAULT '2019-01-17 14:46:14'", EAST, WEST),
    "a set default": Example("b TIMESTAMP NULL", "ALTER b SET DEFAULT '2019-01-17 14:46:14'", EAST, WEST, "NULL"),
    "to timestamp": Example("b DATETIME", "MODIFY b TIMESTAMP NULL", EAST, WEST, "'2020-01-01 12:00:00'"),
    "from timestamp": Example("b TIMESTAMP NULL", "CHANGE b b VARCHAR(30)", EAST, WEST, "'2020-01-01 12:00:00'"),
    "an expression": Example("a INT", f"ADD b DATETIME {EPOCH}", EAST, WEST),
    "fractions": Example("b DATETIME(6)", "MODIFY b DATETIME", ROUND, CUT, "'2020-01-01 12:00:00.7'"),
    "fractions of a text": Example("b VARCHAR(30)", "MODIFY b DATETIME", ROUND, CUT, "'2020-01-01 12:00:00.7'"),
    "fractions of a number": Example("b DECIMAL(20,6)", "MODIFY b TIME", ROUND, CUT, "101010.7"),
    "a day": Example("b TIME", "MODIFY b DATETIME", NEW_YEAR, NEXT_YEAR, "'10:00:00'"),
    "a day under another name": Example("b TIME", "CHANGE b b DATE", NEW_YEAR, NEXT_YEAR, "'10:00:00'"),
    "a day of a default": Example("a INT", "ADD b DATETIME DEFAULT TIME'10:00:00'", NEW_YEAR, NEXT_YEAR),
    "invalid dates": Example("b DATETIME", "MODIFY b DATETIME(3)", KEPT, CUT, "'2020-02-31 10:00:00'"),
    "zeros in dates": Example("b VARCHAR(20)", "MODIFY b DATE", "sql_mode = NO_ZERO_IN_DATE", CUT, "'2020-00-10'"),
    "backslashes": Example("a INT", r"ADD b VARCHAR(9) DEFAULT 'a\\b'", "sql_mode = NO_BACKSLASH_ESCAPES", CUT),
    "padding": Example("b CHAR(4)", "MODIFY b VARBINARY(9)", "sql_mode = PAD_CHAR_TO_FULL_LENGTH", CUT, "'x'"),
    "a type": Example("a INT", "ADD b REAL DEFAULT 1.1", "sql_mode = 'REAL_AS_FLOAT'", CUT),
    "a language": Example(
        "a INT",
        "ADD b VARCHAR(20) DEFAULT (DATE_FORMAT('2020-05-05', '%W'))",
        "lc_time_names = 'de_DE'",
        "lc_time_names = 'en_US'",
    ),
}
EQUAL = {
    "no time": Example("a INT", "ADD b INT, ADD c VARCHAR(9) DEFAULT 'x'", EAST, WEST),
    "a date": Example("b DATETIME", "MODIFY b DATETIME(3)", EAST, WEST, "'2020-01-01 12:00:00'"),
    "one zone": Example(
        "b DATETIME", "MODIFY b TIMESTAMP NULL", "time_zone = '+00:00'", "time_zone = '-00:00'", "'2020-01-01'"
    ),
    "one moment": Example("a INT", "ADD b TIMESTAMP DEFAULT '2019-01-17 14:46:14'", EAST, "time_zone = '+8:00'"),
    "strictness": Example("b VARCHAR(9)", "MODIFY b VARCHAR(3)", "sql_mode = STRICT_ALL_TABLES", CUT, "'abc'"),
}


OF_MARIADB = ("expression", "fractions", "padding", "type", "language", "day", "dates", "backslashes")
MARIADB_ALONE = [name for name in UNEQUAL if any(word in name for word in OF_MARIADB)]
"""Examples with a default, a conversion or a mode that TiDB does not have."""
EVERYWHERE = [name for name in UNEQUAL if name not in MARIADB_ALONE]


@contextlib.contextmanager
def following(name: str, folder: Path, servers: Sequence[MariaDb], example: Example) -> Iterator[LiveTask]:
    """Return a task whose shards have run the DDL of the example in their sessions, with rows before and after it."""
    columns, numbers = {"t": f"id INT PRIMARY KEY, {example.columns}"}, {("s1", "t"): [1], ("s2", "t"): [2]}
    with living(name, folder, servers, ["t"], columns=columns, numbers=numbers) as task:
        for number in (1, 2):
            value = "'too long'" if "VARCHAR(3)" in example.ddl and number == 2 else example.value
            column = example.columns.split()[0]
            insert = f"INSERT INTO {name}.t_{number} (id, {column}) VALUES ({number}, {value})"
            task.sources[f"s{number}"].run("SET time_zone = '+00:00'", f"SET {KEPT}", insert)
        task.run()
        for number, session in ((1, example.first), (2, example.second)):
            table = f"{name}.t_{number}"
            texts = (f"ALTER TABLE {table} {example.ddl}", f"INSERT INTO {table} (id) VALUES (1{number})")
            task.sources[f"s{number}"].run(f"SET SESSION {session}", *texts)
            task.run()
        yield task


def assert_conflict(task: LiveTask, has_end: bool = True) -> None:
    """Follow the conflict to the union: `unlock`, then read the columns of the other shard again."""
    (view,) = coordinate.views(task.work().meta)
    assert view.state is LockState.CONFLICT and view.differences[0]
    assert task.executed("t") == []
    if not has_end:
        return
    give(task.work().meta, Force(view.id), "operator", "test", "because")
    task.run()
    (view,) = coordinate.views(task.work().meta, resolved=True)
    assert view.filled == ("b",)
    reload_columns(task.work(), Shard("s2", TableId(task.name, "t_2")), ["b"])
    task.assert_settled()


@pytest.mark.on_tidb
@pytest.mark.sample(reason="the parts of a session do not interact")
@pytest.mark.parametrize("name", EVERYWHERE)
def test_equal_text_with_unequal_effect_is_a_conflict(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path, name: str
) -> None:
    with following(unique, tmp_path, (source_1, source_2, target), UNEQUAL[name]) as task:
        assert_conflict(task)


@pytest.mark.sample(reason="the parts of a session do not interact")
@pytest.mark.parametrize("name", MARIADB_ALONE)
def test_every_part_of_a_session_that_decides_counts(
    source_1: MariaDb, source_2: MariaDb, mariadb_target: MariaDb, unique: str, tmp_path: Path, name: str
) -> None:
    with following(unique, tmp_path, (source_1, source_2, mariadb_target), UNEQUAL[name]) as task:
        # Values do not fit into the other shard's type, and a text that differs shows no column to read again.
        assert_conflict(task, has_end=name not in ("a type", "backslashes"))


@pytest.mark.sample(reason="the parts of a session do not interact")
@pytest.mark.parametrize("name", EQUAL)
def test_sessions_with_the_same_effect_agree(
    source_1: MariaDb, source_2: MariaDb, mariadb_target: MariaDb, unique: str, tmp_path: Path, name: str
) -> None:
    with following(unique, tmp_path, (source_1, source_2, mariadb_target), EQUAL[name]) as task:
        assert len(task.executed("t")) == 1
        task.assert_settled()


@pytest.mark.sample(reason="the old types do not interact")
@pytest.mark.parametrize("old", ["b TIMESTAMP NULL", "b DATETIME", "b VARCHAR(30)"])
def test_the_time_that_each_server_gives_to_null_is_read_again(
    source_1: MariaDb, source_2: MariaDb, mariadb_target: MariaDb, unique: str, tmp_path: Path, old: str
) -> None:
    example = Example(old, "MODIFY b TIMESTAMP NOT NULL", f"{NEW_YEAR}, {CUT}", f"{NEXT_YEAR}, {CUT}", "NULL")
    with following(unique, tmp_path, (source_1, source_2, mariadb_target), example) as task:
        (view,) = coordinate.views(task.work().meta, resolved=True)
        assert view.filled == ("b",)
        reload_columns(task.work(), Shard("s2", TableId(task.name, "t_2")), ["b"])
        task.assert_settled()


@pytest.mark.test_all(reason="starts a MySQL; the decision does not depend on the target")
def test_on_mysql(source_1: MariaDb, source_2: MariaDb, unique: str, tmp_path: Path) -> None:
    with MYSQL.running(tmp_path / "mysql") as target:
        for name in ("a default", "to timestamp", "from timestamp"):
            folder = tmp_path / name.replace(" ", "_")
            folder.mkdir()
            with following(unique, folder, (source_1, source_2, target), UNEQUAL[name]) as task:
                assert_conflict(task)


def test_global_zones_count_where_sessions_set_none(
    source_1: MariaDb, source_2: MariaDb, mariadb_target: MariaDb, unique: str, tmp_path: Path
) -> None:
    """An empty shard logs no zone; it agrees with others of its server's zone, and not with those of another."""
    servers, ddl = (source_1, source_2), "MODIFY b TIMESTAMP NULL"
    columns, numbers = {"t": "id INT PRIMARY KEY, b DATETIME"}, {("s1", "t"): [1, 3], ("s2", "t"): [2]}
    try:
        for server, zone in zip(servers, ("+08:00", "-05:00"), strict=True):
            server.run(f"SET GLOBAL time_zone = '{zone}'")
        with living(unique, tmp_path, (*servers, mariadb_target), ["t"], columns=columns, numbers=numbers) as task:
            for number, server in ((1, source_1), (2, source_2)):
                server.run(f"INSERT INTO {unique}.t_{number} VALUES ({number}, '2020-01-01 12:00:00')")
            for number, server in ((1, source_1), (3, source_1), (2, source_2)):
                server.run(f"ALTER TABLE {unique}.t_{number} {ddl}")
            task.run()
            (view,) = coordinate.views(task.work().meta)
            assert [str(shard.table) for shard in view.ready] == [f"{unique}.t_1", f"{unique}.t_3"]
            assert_conflict(task)
    finally:
        for server in servers:
            server.run("SET GLOBAL time_zone = 'SYSTEM'")
