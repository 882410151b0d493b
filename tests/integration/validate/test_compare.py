"""Comparing target and union on real servers: every type, every kind of difference."""

import contextlib

import pytest

from unshard.adapters import mysql, structures
from unshard.core.model import TableId
from unshard.core.rules.reshaping import Extracted, Reshaping
from unshard.core.sql.keyrange import KeyRange
from unshard.core.validate.checksum import compare_structures
from unshard.core.validate.rowdifferences import DifferenceKind
from unshard.units.validate.ranges import ComparedTable, Sessions, TableCheck, agree, all_checksums, narrow, ranges
from unshard.units.validate.validate import reshaped_place

pytestmark = pytest.mark.integration

TYPES = """(
  id bigint NOT NULL PRIMARY KEY, i tinyint, u bigint unsigned, z int(6) zerofill, d decimal(65,30), f float, g double,
  c char(10), v varchar(50), l varchar(50) CHARACTER SET latin1, t mediumtext, b binary(4), w varbinary(20), o longblob,
  da date, dt datetime(6), ts timestamp(3) NULL, ti time(2), y year, e enum('a','ä','') CHARACTER SET latin1,
  s set('x','y','z'), bi bit(64), j json, uu uuid, ip inet6, p point, gen int AS (i + 1) STORED
)"""
FILL = """
  INSERT INTO {table} (id, i, u, z, d, f, g, c, v, l, t, b, w, o, da, dt, ts, ti, y, e, s, bi, j, uu, ip, p) VALUES
  ({id}, -5, 18446744073709551615, 42, 12345678901234567890.123456789012345678901234567890, 1.1, -0.1e-200,
   'abc', 'trail  ', 'häß', REPEAT('é', 100000), 'a', 'b\\0c', REPEAT(0xFF00, 9999), '0000-00-00',
   '2024-02-29 23:59:59.999999', '2001-02-03 04:05:06.789', '-12:34:56.78', 0, 'ä', 'x,z', 0xFFFFFFFFFFFFFFFF,
   '{{"a": [1, 2]}}', '2cdb0795-e4d1-11f1-a31a-02fc00000001', '::1', POINT(1, 2))"""
RELAXED = "SET SESSION sql_mode = '', time_zone = '+02:00'"
CHANGES = [
    ("i", "6"),
    ("u", "18446744073709551614"),
    ("d", "d + 0.000000000000000000000000000001"),
    ("f", "1.1000001"),
    ("g", "g * 2"),
    ("v", "'trail '"),
    ("v", "'Trail  '"),
    ("v", "''"),
    ("v", "NULL"),
    ("l", "'has'"),
    ("t", "CONCAT(t, 'x')"),
    ("b", "0x61000001"),
    ("w", "0x62006300"),
    ("o", "INSERT(o, 19000, 1, 'z')"),
    ("da", "NULL"),
    ("dt", "'2024-02-29 23:59:59.999998'"),
    ("ts", "ts + INTERVAL 1 SECOND"),
    ("ti", "'12:34:56.78'"),
    ("y", "1970"),
    ("e", "'a'"),
    ("e", "NULL"),
    ("s", "'x'"),
    ("bi", "bi - 1"),
    ("j", "'{{}}'"),
    ("uu", "NULL"),
    ("ip", "'::2'"),
    ("p", "POINT(2, 1)"),
    ("c", "'ABC'"),
    ("c", "' abc'"),
]


class World:
    """Two sources with a shard each and a target, in schemas of their own."""

    def __init__(self, source_1, source_2, target, schema: str) -> None:
        self.databases = {"s1 a": source_1, "s2 b": source_2, "target": target}
        self.tables = {"s1 a": f"{schema}.t_1", "s2 b": f"{schema}.t_2", "target": f"{schema}.t"}
        for database in self.databases.values():
            database.run(f"CREATE DATABASE {schema}")

    def run(self, place: str, *statements: str) -> None:
        table = self.tables[place]
        self.databases[place].run(RELAXED, *(sql.format(table=table, id=1) for sql in statements))

    def everywhere(self, *statements: str) -> None:
        for place in self.databases:
            self.run(place, *statements)

    def check(self) -> TableCheck:
        places = []
        for name, database in self.databases.items():
            table = TableId(*self.tables[name].split("."))
            with contextlib.closing(mysql.connect(database.server)) as connection:
                places.append(ComparedTable(name, database.server, table, structures.read_schema(connection, table)))
        *shards, target = places
        comparison = compare_structures({place.name: place.schema for place in places})
        return TableCheck(target, tuple(shards), comparison)

    def differences(self, limit: int = 20):
        check = self.check()
        with Sessions() as sessions:
            return narrow(sessions, check, KeyRange(), limit)


@pytest.fixture
def world(source_1, source_2, target, unique) -> World:
    return World(source_1, source_2, target, unique)


@pytest.mark.mariadb_only("the table has types that TiDB lacks")
def test_equal_values_of_every_type_are_equal(world: World) -> None:
    world.everywhere(f"CREATE TABLE {{table}} {TYPES}")
    for place, number in (("s1 a", 1), ("s2 b", 2), ("target", 1), ("target", 2)):
        world.run(place, FILL.replace("{id}", str(number)))
    world.run("s1 a", "INSERT INTO {table} (id) VALUES (3)")
    world.run("target", "INSERT INTO {table} (id) VALUES (3)")
    assert world.differences() == []


@pytest.fixture(scope="module")
def typed(source_1, source_2, target):
    world = World(source_1, source_2, target, "compare_typed")
    world.everywhere(f"CREATE TABLE {{table}} {TYPES}")
    world.run("s1 a", FILL)
    yield world
    world.everywhere("DROP TABLE {table}")


@pytest.mark.parametrize(("column", "value"), CHANGES)
@pytest.mark.mariadb_only("the table has types that TiDB lacks")
def test_one_changed_value_is_found(typed: World, column: str, value: str) -> None:
    typed.run("target", "DELETE FROM {table}", FILL, f"UPDATE {{table}} SET {column} = {value}")
    (found,) = typed.differences()
    assert (found.kind, found.key, found.shards) == (DifferenceKind.DIFFERENT, ("1",), ("s1 a",))


@pytest.mark.mariadb_only("the table has types that TiDB lacks")
def test_zero_has_no_sign(typed: World) -> None:
    typed.run("target", "DELETE FROM {table}", FILL, "UPDATE {table} SET g = '-0', f = '-0'")
    typed.run("s1 a", "UPDATE {table} SET g = 0, f = 0")
    assert typed.differences() == []


def test_column_order_charset_and_precision_do_not_matter(world: World) -> None:
    world.run(
        "s1 a",
        "CREATE TABLE {table} (id int PRIMARY KEY, a varchar(9) CHARACTER SET latin1, d decimal(6,2), t datetime)",
        "INSERT INTO {table} VALUES (1, 'ä€', 1.5, '2024-01-01'), (2, NULL, NULL, NULL)",
    )
    world.run(
        "s2 b",
        "CREATE TABLE {table} (id int PRIMARY KEY, t datetime, d decimal(6,2), a varchar(9) CHARACTER SET utf8mb4)",
        "INSERT INTO {table} VALUES (3, '0000-00-00', -0.5, '😀')",
    )
    world.run(
        "target",
        "CREATE TABLE {table} (d decimal(9,4), id bigint PRIMARY KEY, t datetime(3), a text)",
        "INSERT INTO {table} VALUES (1.5, 1, '2024-01-01', 'ä€'), (NULL, 2, NULL, NULL), (-0.5, 3, '0000-00-00', '😀')",
    )
    assert world.differences() == []
    world.run(
        "target", "UPDATE {table} SET d = 1.5001 WHERE id = 1", "UPDATE {table} SET t = '2024-01-01' WHERE id = 3"
    )
    assert [(d.kind, d.key) for d in world.differences()] == [
        (DifferenceKind.DIFFERENT, ("1",)),
        (DifferenceKind.DIFFERENT, ("3",)),
    ]


@pytest.mark.mariadb_only("the rows come from tables of MariaDB's engine SEQUENCE")
def test_every_kind_is_narrowed_to_its_key_and_shard(world: World) -> None:
    world.everywhere("CREATE TABLE {table} (id int PRIMARY KEY, v varchar(9))")
    for place, first in (("s1 a", 0), ("s2 b", 30_000), ("target", 0), ("target", 30_000)):
        schema = world.tables[place].split(".")[0]
        world.run(place, f"INSERT INTO {{table}} SELECT seq, seq FROM {schema}.seq_{first + 1}_to_{first + 30_000}")
    assert world.differences() == []
    world.run(
        "target",
        "DELETE FROM {table} WHERE id IN (7, 31000)",
        "UPDATE {table} SET v = 'x' WHERE id = 59999",
        "INSERT INTO {table} VALUES (-1, '')",
    )
    world.run("s2 b", "INSERT INTO {table} VALUES (5, '5')")
    assert [(d.kind, d.key, d.shards) for d in world.differences()] == [
        (DifferenceKind.EXTRA, ("-1",), ()),
        (DifferenceKind.COLLISION, ("5",), ("s1 a", "s2 b")),
        (DifferenceKind.MISSING, ("7",), ("s1 a",)),
        (DifferenceKind.MISSING, ("31000",), ("s2 b",)),
        (DifferenceKind.DIFFERENT, ("59999",), ("s2 b",)),
    ]
    assert 2 <= len(world.differences(limit=2)) < 5


@pytest.mark.parametrize(
    "key",
    [
        "a varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "a varbinary(9)",
        "a decimal(9,3)",
        "a datetime(2)",
    ],
)
@pytest.mark.mariadb_only("the rows come from tables of MariaDB's engine SEQUENCE")
def test_ranges_of_any_key_cover_every_row_once(world: World, key: str) -> None:
    values = {
        "varc": "CONCAT(CHAR(64 + seq % 60), seq)",
        "varb": "CONCAT(CHAR(200 + seq % 50), seq)",
        "deci": "seq / 7",
        "date": "'2024-01-01' + INTERVAL seq * 7 SECOND",
    }[key.split()[1][:4]]
    world.everywhere(f"CREATE TABLE {{table}} ({key}, b int, PRIMARY KEY (a, b))")
    schema = world.tables["s1 a"].split(".")[0]
    rows = f"INSERT INTO {{table}} SELECT {values}, seq % 3 FROM {schema}.seq_1_to_500"
    world.run("s1 a", rows)
    world.run("target", rows)
    check = world.check()
    with Sessions() as sessions:
        spans = list(ranges(sessions, check, lambda: 37))
        sums = [all_checksums(sessions, check, span) for span in spans]
    assert len(spans) == 500 // 37 + 1
    assert sum(each["target"].rows for each in sums) == 500
    assert all(map(agree, sums))


def test_rows_without_a_key_are_counted(world: World) -> None:
    world.everywhere("CREATE TABLE {table} (a int, b varchar(9))")
    world.run("s1 a", "INSERT INTO {table} VALUES (1, 'x'), (1, 'x'), (2, NULL)")
    world.run("s2 b", "INSERT INTO {table} VALUES (1, 'x'), (2, '')")
    world.run("target", "INSERT INTO {table} VALUES (1, 'x'), (1, 'x'), (1, 'x'), (2, NULL), (2, '')")
    assert world.differences() == []
    world.run("target", "DELETE FROM {table} WHERE a = 1 LIMIT 2", "INSERT INTO {table} VALUES (2, 'n')")
    found = {(d.kind, d.key, d.shards, d.count) for d in world.differences()}
    assert found == {
        (DifferenceKind.MISSING, ("1", "x"), ("s1 a", "s2 b"), 2),
        (DifferenceKind.EXTRA, ("2", "n"), (), 1),
    }


def test_two_equal_rows_too_many_do_not_cancel_out(world: World) -> None:
    world.everywhere("CREATE TABLE {table} (a int)")
    world.run("target", "INSERT INTO {table} VALUES (1), (1)")
    assert [(d.kind, d.count) for d in world.differences()] == [(DifferenceKind.EXTRA, 2)]


def test_key_that_is_ordered_differently_is_still_narrowed(world: World) -> None:
    world.everywhere("CREATE TABLE {table} (e enum('b','a') PRIMARY KEY, v int)")
    world.run("s1 a", "INSERT INTO {table} VALUES ('a', 1)")
    world.run("s2 b", "INSERT INTO {table} VALUES ('b', 1)")
    world.run("target", "INSERT INTO {table} VALUES ('a', 1), ('b', 2)")
    assert [(d.kind, d.key, d.shards) for d in world.differences()] == [(DifferenceKind.DIFFERENT, ("b",), ("s2 b",))]


@pytest.mark.mariadb_only("TiDB cannot add a column of the name that the same ALTER drops")
def test_generated_columns_are_compared_by_value(world: World) -> None:
    plain = "id int PRIMARY KEY, i int, g int AS ({}) STORED, v varchar(9) AS (concat('x', `i`)) VIRTUAL"
    for place, expression in (("s1 a", "i + 1"), ("s2 b", "1 + i"), ("target", "i + 1")):
        world.run(place, f"CREATE TABLE {{table}} ({plain.format(expression)})")
    world.run("s1 a", "INSERT INTO {table} (id, i) VALUES (1, 1), (2, NULL)")
    world.run("s2 b", "INSERT INTO {table} (id, i) VALUES (3, 1)")
    world.run("target", "INSERT INTO {table} (id, i) VALUES (1, 1), (2, NULL), (3, 1)")
    assert world.differences() == []
    world.run("target", "ALTER TABLE {table} DROP COLUMN g, ADD COLUMN g int AS (i + 2) STORED")
    assert [(each.kind, each.key) for each in world.differences()] == [
        (DifferenceKind.GENERATED, ("1",)),
        (DifferenceKind.GENERATED, ("3",)),
    ]
    assert not world.check().comparison.left_out


EXTRA = (Extracted("c_table", "ä'1"), Extracted("number", "7"))


@pytest.mark.parametrize("key", ["id, c_table", "c_table, id", "number, id, c_table"])
@pytest.mark.mariadb_only("the table has an INVISIBLE column, which TiDB lacks")
def test_extracted_columns_are_compared_as_if_the_shards_had_them(world: World, key: str) -> None:
    columns = "id int NOT NULL, hidden int INVISIBLE DEFAULT 5, v varchar(9)"
    extra = "c_table varchar(9) COLLATE utf8mb4_general_ci NOT NULL, number smallint NOT NULL"
    world.run("s1 a", f"CREATE TABLE {{table}} ({columns}, PRIMARY KEY (id))", *rows(1, 2, 3))
    world.run("s2 b", f"CREATE TABLE {{table}} ({columns}, PRIMARY KEY (id))", *rows(1, 2))
    world.run("target", f"CREATE TABLE {{table}} ({columns}, {extra}, PRIMARY KEY ({key}))")
    values = [f"({id}, 'v{id}', 'ä''1', 7)" for id in (1, 2, 3)] + [f"({id}, 'v{id}', 'b', 7)" for id in (1, 2)]
    world.run("target", f"INSERT INTO {{table}} (id, v, c_table, number) VALUES {', '.join(values)}")
    extracted = {"s1 a": EXTRA, "s2 b": (Extracted("c_table", "b"), EXTRA[1])}
    check = with_extracted(world.check(), extracted)
    assert check.comparison.ranged and {"hidden", "c_table", "number"} <= {f.column for f in check.comparison.forms}
    with Sessions() as sessions:
        spans = list(ranges(sessions, check, lambda: 2))
        assert len(spans) == 3
        assert [narrow(sessions, check, span, 9) for span in spans] == [[]] * 3
        world.run("target", "UPDATE {table} SET c_table = 'c' WHERE c_table = 'b' AND id = 2")
        found = [each for span in spans for each in narrow(sessions, check, span, 9)]
    names = check.comparison.key
    assert {(dict(zip(names, each.key, strict=True))["c_table"], each.kind) for each in found} == {
        ("b", DifferenceKind.MISSING),
        ("c", DifferenceKind.EXTRA),
    }


def rows(*ids: int) -> list[str]:
    return [f"INSERT INTO {{table}} (id, v) VALUES ({number}, 'v{number}')" for number in ids]


def with_extracted(check: TableCheck, extracted: dict[str, tuple[Extracted, ...]]) -> TableCheck:
    target = check.target
    shards = [reshaped_place(shard, target, Reshaping(extracted[shard.name])) for shard in check.shards]
    comparison = compare_structures({place.name: place.schema for place in (target, *shards)})
    return TableCheck(target, tuple(shards), comparison)
