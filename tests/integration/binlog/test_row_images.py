"""Sources that log changed columns only (binlog_row_image): the target is still the union."""

# ruff: noqa: E501 - statements are compared in one look

import contextlib
from random import Random

import pytest

from tests.cutting import bound_transactions
from tests.livetask import living
from unshard.adapters.target import fencesteps
from unshard.errors.rows import ChangedRowMissing, MovedRowUnknown

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]
SEEDS = range(1)

COLUMNS = (
    "id INT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(20) NOT NULL DEFAULT 'b''d', c TIMESTAMP NOT NULL DEFAULT"
    " CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, e INT DEFAULT (1+1), u CHAR(36) DEFAULT (UUID()), t TEXT,"
    " bl BLOB DEFAULT 'dd', g INT AS (a*2) STORED, h INT AS (a+1) VIRTUAL, d DECIMAL(9,3) DEFAULT 1.5, f FLOAT DEFAULT 0.1,"
    " dt DATETIME(3) DEFAULT '2020-01-01 01:02:03.5', en ENUM('x','ü') CHARSET latin1 DEFAULT 'ü', bi BIT(10) DEFAULT b'1',"
    " bn BINARY(4) DEFAULT 'ab', z INT(5) ZEROFILL DEFAULT 42, inv INT INVISIBLE DEFAULT 7, iu UUID, p POINT, k INT"
)
UNIQUE = f"{COLUMNS}, UNIQUE KEY (k)"
COMPOSED = (
    "x VARCHAR(9) NOT NULL, y INT NOT NULL, a INT DEFAULT 3, t TEXT, b VARCHAR(20) DEFAULT 'q', PRIMARY KEY (y, x)"
)
KEYLESS = "id INT, a INT DEFAULT 5, b VARCHAR(20), t TEXT"
VALUES = {
    "a": ("NULL", "1", "-5"),
    "b": ("'x'", "'a\\tb\\n'", "'\\\\N'", "'\\\\A'", "''"),
    "t": ("NULL", "'\\\\A'", "REPEAT('ü', 3000)"),
    "bl": ("NULL", "x'00095c0a41'", "''"),
    "e": ("NULL", "9"),
    "d": ("-0.001", "NULL"),
    "f": ("1.1", "NULL", "3e30"),
    "en": ("'x'", "NULL", "'nothing'"),
    "bi": ("b'1000000001'", "0"),
    "bn": ("x'00'", "x'5c41'"),
    "z": ("7", "NULL"),
    "inv": ("NULL", "1"),
    "iu": ("NULL", "UUID()"),
    "p": ("POINT(1,2)", "NULL"),
    "dt": ("'0000-00-00'", "NULL"),
}


def statement(random: Random, table: str, number: int) -> str:
    """Return a change of a table of COLUMNS; keys of shards never collide, because each shard uses its own thousands."""
    ids = [number * 1000 + n for n in range(25)]
    chosen, other = random.choice(ids), random.choice(ids)
    names = random.sample(sorted(VALUES), random.randint(1, 4))
    given = [random.choice(VALUES[name]) for name in names]
    sets = ", ".join(f"{name} = {value}" for name, value in zip(names, given, strict=True))
    where = random.choice([f"id = {chosen}", f"id BETWEEN {chosen} AND {chosen + 3}"])
    return random.choice(
        [
            f"INSERT IGNORE INTO {table} (id, {', '.join(names)}) VALUES ({chosen}, {', '.join(given)})",
            f"INSERT IGNORE INTO {table} (id) VALUES ({chosen}), ({other})",
            f"INSERT INTO {table} (id, a) VALUES ({chosen}, 4) ON DUPLICATE KEY UPDATE {sets}",
            f"UPDATE {table} SET {sets} WHERE {where}",
            f"UPDATE {table} SET {sets} WHERE {where}",
            f"UPDATE IGNORE {table} SET id = {other} WHERE id = {chosen}",
            f"UPDATE IGNORE {table} SET id = {other}, {sets} WHERE id = {chosen}",
            f"UPDATE IGNORE {table} SET k = {other} WHERE id = {chosen}",
            f"DELETE FROM {table} WHERE id = {chosen}",
        ]
    )


def composed(random: Random, table: str, number: int) -> str:
    x, y, other = (
        random.choice(["'a'", "'é'", "'a b'"]),
        number * 100 + random.randint(0, 4),
        number * 100 + random.randint(0, 4),
    )
    return random.choice(
        [
            f"INSERT IGNORE INTO {table} (x, y, a) VALUES ({x}, {y}, {other})",
            f"INSERT IGNORE INTO {table} (x, y) VALUES ({x}, {y})",
            f"UPDATE {table} SET t = REPEAT('t', {other}) WHERE x = {x} AND y = {y}",
            f"UPDATE {table} SET a = a + 1 WHERE y = {y}",
            f"UPDATE IGNORE {table} SET y = {other} WHERE x = {x} AND y = {y}",
            f"DELETE FROM {table} WHERE x = {x} AND y = {y}",
        ]
    )


def keyless(random: Random, table: str, number: int) -> str:
    x = random.randint(0, 5)
    return random.choice(
        [
            f"INSERT INTO {table} (id) VALUES ({x})",
            f"INSERT INTO {table} (id, t) VALUES ({x}, 'tt')",
            f"UPDATE {table} SET a = a + {number} WHERE id = {x}",
            f"UPDATE {table} SET t = NULL WHERE id = {x}",
            f"DELETE FROM {table} WHERE id = {x} LIMIT 2",
        ]
    )


CHANGES = {"plain": statement, "unique": statement, "composed": composed, "keyless": keyless}


def change(task, random: Random, group: str, numbers: dict[tuple[str, str], tuple[int, ...]]) -> None:
    """Run changes in each shard of a group, under any row image."""
    for (source, _), some in ((of, some) for of, some in numbers.items() if of[1] == group):
        for number in some:
            image = random.choice(["MINIMAL", "MINIMAL", "NOBLOB", "FULL"])
            made = [CHANGES[group](random, f"{group}_{number}", number) for _ in range(random.randint(5, 40))]
            session = (f"USE {task.name}", "SET sql_mode = ''", f"SET SESSION binlog_row_image = {image}")
            task.sources[source].run(*session, *made)


@pytest.mark.mariadb_only("the tables have types and defaults that TiDB lacks")
@pytest.mark.parametrize("seed", SEEDS)
def test_union_under_any_row_image(source_1, source_2, target, unique, tmp_path, seed):
    """Windows with many and with few changes of a row; rows that wait for a DDL; keys that change."""
    random = Random(seed)
    groups = {"plain": COLUMNS, "unique": UNIQUE, "composed": COMPOSED, "keyless": KEYLESS}
    numbers = {("s1", group): (1, 2) for group in groups} | {("s2", group): (3,) for group in groups}
    with living(
        unique,
        tmp_path,
        [source_1, source_2, target],
        list(groups),
        columns=groups,
        numbers=numbers,
        window_bytes=200_000,
    ) as task:
        for round_ in range(3):
            for group in groups:
                change(task, random, group, numbers)
            if round_ == 1:
                source_1.run(f"ALTER TABLE {unique}.plain_1 ADD COLUMN late INT DEFAULT 9 AFTER a")
                change(task, random, "plain", numbers)
            task.run()
            for group in groups:
                assert (group, round_) == ("plain", 1) or task.assert_union(group)
            if round_ == 1:
                source_1.run(f"ALTER TABLE {unique}.plain_2 ADD COLUMN late INT DEFAULT 9 AFTER a")
                source_2.run(f"ALTER TABLE {unique}.plain_3 ADD COLUMN late INT DEFAULT 9 AFTER a")
        task.assert_settled()
        assert len(task.executed("plain")) == 1


@contextlib.contextmanager
def one_shard(source, target, unique, folder, **options):
    """Create a keyed shard with three rows that are in the target; after that its session logs changed columns only."""
    with living(
        unique,
        folder,
        [source, target],
        ["t"],
        columns={"t": "id INT PRIMARY KEY, a INT, b TEXT"},
        numbers={("s1", "t"): (1,)},
        **options,
    ) as task:
        source.run(f"INSERT INTO {unique}.t_1 VALUES (1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three')")
        task.run()
        yield task, ("SET SESSION binlog_row_image = MINIMAL", f"USE {unique}")


def test_a_changed_row_that_is_not_in_the_target(source_1, target, unique, tmp_path):
    with one_shard(source_1, target, unique, tmp_path) as (task, session):
        target.run(f"DELETE FROM {task.table('t')} WHERE id = 2")
        source_1.run(*session, "UPDATE t_1 SET a = 5 WHERE id = 1", "UPDATE t_1 SET a = 5 WHERE id = 2")
        task.run()
        error = task.stopped()["s1", "t"]
        assert isinstance(error, ChangedRowMissing) and "id = 2" in str(error) and f"s1 {unique}.t_1" in str(error)
        assert target.run(f"SELECT a FROM {task.table('t')} WHERE id = 1") == [(1,)], "nothing of the window is there"
        target.run(f"INSERT INTO {task.table('t')} VALUES (2, 2, 'two')")
        task.retry()
        task.assert_settled()


def test_changed_rows_in_safe_mode(source_1, target, unique, tmp_path):
    """The dump may have read a row as deleted that the binlog still changes; a row that moved meanwhile is unknown."""
    with one_shard(source_1, target, unique, tmp_path, safe_mode=True) as (task, session):
        target.run(f"DELETE FROM {task.table('t')} WHERE id = 2")
        source_1.run(*session, "UPDATE t_1 SET a = 5", "UPDATE t_1 SET a = 6 WHERE id = 1")
        task.run()
        assert target.run(f"SELECT * FROM {task.table('t')} ORDER BY id") == [(1, 6, "one"), (3, 5, "three")]
        source_1.run(*session, "DELETE FROM t_1 WHERE id = 2", "UPDATE t_1 SET id = 4 WHERE id = 1")
        task.run()
        error = task.stopped()["s1", "t"]
        assert isinstance(error, MovedRowUnknown) and "id = 4" in str(error)


def test_steps_of_rows_that_lack_columns(source_1, target, unique, tmp_path, monkeypatch):
    """If there are more changes than one transaction allows, they are cut by key; if keys move, all are one
    transaction.
    """
    bound_transactions(monkeypatch, fencesteps.Bounds(10, 1 << 20, 1))
    with one_shard(source_1, target, unique, tmp_path, window_bytes=1 << 20) as (task, session):
        source_1.run(f"INSERT INTO {unique}.t_1 SELECT seq, seq, 'x' FROM {unique}.seq_10_to_99")
        task.run()
        for moves in ("UPDATE t_1 SET a = -a", "UPDATE t_1 SET id = id + 1000 ORDER BY id DESC"):
            source_1.run(*session, moves, "UPDATE t_1 SET b = 'y' WHERE id % 3 = 0", "DELETE FROM t_1 WHERE id % 7 = 0")
            task.run()
            task.assert_settled()
