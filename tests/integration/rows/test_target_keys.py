"""Targets with another key than their shards: surrogate keys, no key, keys that separate the shards."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dying import Died
from tests.oracle import rows, union
from tests.taskfile import TaskFile, route, schemas, task_body, write_sources
from unshard.config.reading import starting_at
from unshard.core.checks.items import Severity
from unshard.units.checks.precheck import check
from unshard.units.full.dump import dump
from unshard.units.full.load import handover, load
from unshard.units.full.snapshot import take_snapshot
from unshard.units.window import sync
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

SHARD = "(id INT PRIMARY KEY, region VARCHAR(9) NOT NULL, v VARCHAR(20), n INT)"
COLUMNS = ("id", "region", "v", "n")


@dataclasses.dataclass
class World(TaskFile):
    """Two sources with two shards each, and a target table that a test creates."""

    name: str
    sources: dict[str, MariaDb]
    target: MariaDb
    path: Path

    @property
    def shards(self) -> dict[str, list[str]]:
        return {source: [f"{self.name}.t_{number}{n}" for n in (1, 2)] for number, source in enumerate(("s1", "s2"), 1)}

    @property
    def table(self) -> str:
        return f"{self.name}_to.t"

    def make(self, table: str, shard: str = SHARD, rule: dict[str, object] | None = None, **keys: object) -> None:
        """Create the shards and the target table, and write the task file."""
        write_sources(self.path.parent, self.sources)
        one = {**route(self.name, "t_*", f"{self.name}_to", "t"), **(rule or {})}
        self.write_body(task_body(self.name, self.sources, self.target, {"r": one}, **{"name": "keys", **keys}))
        for source, names in self.shards.items():
            self.sources[source].run("DO 1", *(f"CREATE TABLE {name} {shard}" for name in names))
        self.target.run(f"CREATE DATABASE {self.name}_to", f"CREATE TABLE {self.table} {table}")

    def each(self, *statements: str) -> None:
        """Run statements on every shard; `{t}` is its name, `{r}` its region, `{k}` a number of its own."""
        for source, names in self.shards.items():
            for n, name in enumerate(names):
                k = 100 * (n + 1) + (1000 if source == "s2" else 0)
                self.sources[source].run("DO 1", *(s.format(t=name, r=f"{source}-{n}", k=k) for s in statements))

    def errors(self) -> dict[str, str]:
        return {item.code: item.message for item in check(self.load()) if item.severity is Severity.ERROR}

    def assert_union(self, *columns: str) -> int:
        """Assert that the columns of the shards in the target are the union of the shards."""
        wanted = columns or COLUMNS
        want, got = union(self.sources, self.shards, wanted), rows(self.target, self.table, wanted)
        assert got == want, (list((want - got).elements())[:3], list((got - want).elements())[:3])
        return sum(got.values())


@pytest.fixture
def world(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[World]:
    with schemas(unique, (source_1, source_2), target):
        yield World(unique, {"s1": source_1, "s2": source_2}, target, tmp_path / "task.yaml")


def dying(step: Callable[..., object]) -> Callable[..., object]:
    """Return a step that dies when it is done."""

    def taken(*given: object) -> object:
        step(*given)
        raise Died

    return taken


SURROGATE = "pk BIGINT AUTO_INCREMENT PRIMARY KEY"
SHARDS_OWN = "id INT NOT NULL, region VARCHAR(9) NOT NULL, v VARCHAR(20), n INT"
EXTRA = "note VARCHAR(9) DEFAULT 'new', at TIMESTAMP DEFAULT CURRENT_TIMESTAMP"
SEPARATED = {
    "surrogate": f"({SURROGATE}, {SHARDS_OWN}, {EXTRA}, KEY (id))",
    "surrogate, index in another order": f"({SURROGATE}, {SHARDS_OWN}, {EXTRA}, KEY (region, id, v))",
    "none": f"({SHARDS_OWN}, KEY (id))",
    "none, more columns": f"({SHARDS_OWN}, {EXTRA}, KEY (id, n))",
    "composite": f"({SHARDS_OWN}, PRIMARY KEY (id, region))",
    "composite of others": f"({SHARDS_OWN}, {EXTRA}, UNIQUE KEY (region, id))",
}
"""Targets that take equal ids of several shards."""
ROWS = "INSERT INTO {t} VALUES (1, '{r}', 'a', 1), (2, '{r}', 'b', NULL), (3, '{r}', NULL, 3), ({k}, '{r}', 'k', 4)"


@pytest.mark.sample(reason="the key and the way of writing do not interact")
@pytest.mark.on_tidb
@pytest.mark.parametrize("table", SEPARATED.values(), ids=SEPARATED)
def test_rows_with_equal_ids_of_several_shards_are_kept_apart(
    world: World, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    world.make(table)
    world.each(ROWS)
    assert not world.errors()
    world.go()
    assert world.assert_union() == 16
    world.each(
        "UPDATE {t} SET v = 'changed' WHERE id = 1",
        "UPDATE {t} SET id = 9, n = n + 1 WHERE id = 3",
        "DELETE FROM {t} WHERE id = 2",
        "INSERT INTO {t} VALUES (4, '{r}', 'in', 4), (5, '{r}', 'out', 5)",
        "DELETE FROM {t} WHERE id = 5",
        "UPDATE {t} SET id = id + 1 WHERE id = {k}",
    )
    world.go()
    assert world.assert_union() == 16
    world.sources["s2"].run(
        f"UPDATE {world.name}.t_21 SET id = 77 WHERE id = 9", f"DELETE FROM {world.name}.t_22 WHERE id < 9"
    )
    with monkeypatch.context() as patch:
        patch.setattr(sync, "_move", dying(sync._move))
        with pytest.raises(Died):
            world.run()
    world.go()
    assert world.assert_union() == 14
    assert {name: found.equal for name, found in world.verdicts().items()} == {"t": True}


@pytest.mark.tidb_only
@pytest.mark.parametrize("index", ["KEY (id)", "UNIQUE KEY (region, id)"])
def test_a_surrogate_key_of_random_numbers(world: World, index: str) -> None:
    world.make(f"(pk BIGINT AUTO_RANDOM PRIMARY KEY, {SHARDS_OWN}, {EXTRA}, {index})")
    world.each(ROWS)
    assert not world.errors()
    world.go()
    assert world.assert_union() == 16
    numbers = rows(world.target, world.table, ("pk", "region", "n"))
    world.each(
        "UPDATE {t} SET v = 'changed'", "INSERT INTO {t} VALUES (4, '{r}', 'in', 9)", "DELETE FROM {t} WHERE n = 9"
    )
    world.go()
    assert world.assert_union() == 16
    assert rows(world.target, world.table, ("pk", "region", "n")) == numbers
    assert {name: found.equal for name, found in world.verdicts().items()} == {"t": True}


@pytest.mark.tidb_only
def test_random_numbers_that_the_shards_fill(world: World) -> None:
    world.make("(id BIGINT AUTO_RANDOM(3) PRIMARY KEY, region VARCHAR(9) NOT NULL, v VARCHAR(20), n INT)")
    world.each("INSERT INTO {t} VALUES ({k}, '{r}', 'k', 4)")
    assert not world.errors()
    world.go()
    world.each("UPDATE {t} SET id = id + 1", "INSERT INTO {t} VALUES ({k}, '{r}', 'new', 5)")
    world.sources["s1"].run(
        "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'", f"INSERT INTO {world.name}.t_11 VALUES (0, '', '', 0)"
    )
    world.go()
    assert world.assert_union() == 9


TOGETHER = {
    "surrogate and the shard's key": f"({SURROGATE}, {SHARDS_OWN}, {EXTRA}, UNIQUE KEY (id))",
    "another key": "(id INT, region VARCHAR(9), v VARCHAR(20) NOT NULL, n INT, note INT, PRIMARY KEY (v), KEY (id))",
}
"""Targets whose keys are unique over all shards."""


@pytest.mark.parametrize("table", TOGETHER.values(), ids=TOGETHER)
def test_rows_are_found_by_the_targets_key(world: World, table: str) -> None:
    world.make(table)
    insert = "INSERT INTO {t} VALUES ({k}, '{r}', 'a{r}', 1), ({k} + 1, '{r}', 'b{r}', 2), ({k} + 2, '{r}', 'c{r}', 3)"
    world.each(insert)
    assert not world.errors()
    world.go()
    assert world.assert_union() == 12
    world.each(
        "UPDATE {t} SET n = 9 WHERE id = {k}",
        "UPDATE {t} SET id = {k} + 50, v = 'z{r}' WHERE id = {k} + 1",
        "DELETE FROM {t} WHERE id = {k} + 2",
        "INSERT INTO {t} VALUES ({k} + 1, '{r}', 'b{r}', 4)",
    )
    world.go()
    assert world.assert_union() == 12
    assert world.verdicts()["t"].equal


@pytest.mark.parametrize("table", [*SEPARATED.values(), *TOGETHER.values()], ids=[*SEPARATED, *TOGETHER])
def test_changes_during_the_load_are_applied_once(world: World, table: str) -> None:
    """Shards whose target has another key are read in one piece, and only later changes count."""
    world.make(table)
    insert = "INSERT INTO {t} VALUES ({k}, '{r}', 'a{r}', 1), ({k} + 1, '{r}', 'b{r}', 2), ({k} + 2, '{r}', 'c{r}', 3)"
    world.each(insert)
    changes = (
        "DELETE FROM {t} WHERE id > {k} + 20",
        "UPDATE {t} SET v = CONCAT('x', v) WHERE id = {k}",
        "UPDATE {t} SET id = id + 10 WHERE id < {k} + 15 AND id > {k} ORDER BY id DESC",
        "INSERT INTO {t} SELECT {k} + 1, '{r}', CONCAT(MAX(id), '{r}'), 2 FROM {t}",
    )
    with world.work() as work:
        for source in world.sources:
            take_snapshot(work, source)
        world.each(*changes)
        for source in world.sources:
            dump(work, source)
        world.each(*changes)
        for source in world.sources:
            load(work, source)
        handover(work)
    world.each(*changes)
    world.go()
    world.assert_union()
    assert world.verdicts()["t"].equal


def test_the_keys_of_the_target_are_compared(world: World) -> None:
    """`key_overlap` was about the shards' own keys."""
    world.make(f"({SHARDS_OWN}, KEY (id))")
    world.each("INSERT INTO {t} VALUES (7, 'all', '{r}', 1), ({k}, '{r}', 'x', 2)")
    assert not world.checked().keys() & {"US-2325", "US-2326"}
    separated, shared = "PRIMARY KEY (id, v)", "PRIMARY KEY (id, region)"
    columns = SHARDS_OWN.replace("(20)", "(20) NOT NULL")
    for keys, found in ((separated, False), (shared, True), (f"{separated}, UNIQUE KEY (n)", False)):
        world.target.run(f"DROP TABLE {world.table}", f"CREATE TABLE {world.table} ({columns}, {keys})")
        assert ("US-2326" in world.checked()) is found, keys
    world.each("ALTER TABLE {t} ADD KEY (n)")
    assert "n = " in world.checked()["US-2326"], "an index of the shards finds the values of a second key"
    world.target.run(f"DROP TABLE {world.table}")
    assert "id = 7" in world.checked()["US-2326"], "it would be created like the shards"


def test_rows_that_could_not_be_found_are_rejected_at_the_start(world: World) -> None:
    world.make(f"({SURROGATE}, {SHARDS_OWN}, KEY (region, n), KEY (pk, id))")
    world.each("INSERT INTO {t} VALUES ({k}, '{r}', 'a', 1)")
    assert "(id)" in world.errors()["US-6802"]
    world.target.run(f"ALTER TABLE {world.table} ADD KEY (id)")
    assert not world.errors()
    s1 = world.sources["s1"]
    s1.run("SET GLOBAL binlog_row_image = 'MINIMAL'")
    try:
        assert "s1" in world.errors()["US-2381"]
        world.target.run(f"ALTER TABLE {world.table} ADD UNIQUE KEY both_of (region, id)")
        assert not world.errors()
    finally:
        s1.run("SET GLOBAL binlog_row_image = 'FULL'")
    world.target.run(f"ALTER TABLE {world.table} DROP KEY both_of")
    body = task_body(
        world.name,
        world.sources,
        world.target,
        {"r": route(world.name, "t_*", f"{world.name}_to", "t")},
        {"mydumper-config-name": "d"},
        **{"name": "keys", "mydumpers": {"d": {"where": "id > 0"}}},
    )
    world.write_body(body)
    assert "US-2382" in world.errors()


def test_extracted_columns_and_a_surrogate_key(world: World) -> None:
    """An index may begin with an extracted column."""
    extract = {"extract-table": {"table-regexp": "t_(.*)", "target-column": "shard"}}
    table = f"({SURROGATE}, shard VARCHAR(9) NOT NULL, {SHARDS_OWN}, {EXTRA}, KEY (shard, id))"
    world.make(table, rule=extract)
    world.each("INSERT INTO {t} VALUES (1, 'same', 'same', 1), (2, 'same', 'same', 1)")
    assert not world.errors()
    world.go()
    world.each("DELETE FROM {t} WHERE id = 1")
    world.sources["s1"].run(f"UPDATE {world.name}.t_11 SET id = 3")
    world.go()
    assert world.assert_union() == 4
    found = world.target.run(f"SELECT shard, id FROM {world.table} ORDER BY shard")
    assert [(str(shard), id) for shard, id in found] == [("11", 3), ("12", 2), ("21", 2), ("22", 2)]


def test_ddl_of_the_shards_on_a_target_with_a_surrogate_key(world: World) -> None:
    """Rows before and after a shard DDL are found, also those of a shard that is late."""
    world.make(f"({SURROGATE}, {SHARDS_OWN}, {EXTRA}, KEY (id))")
    world.each(ROWS)
    world.go()
    names = [(source, name) for source, names in world.shards.items() for name in names]
    for number, (source, name) in enumerate(names, 1):
        world.sources[source].run(
            f"ALTER TABLE {name} ADD COLUMN w INT NOT NULL DEFAULT 5", f"UPDATE {name} SET w = 6 WHERE id = 1"
        )
        for other, shard in names[number:]:
            world.sources[other].run(f"UPDATE {shard} SET n = {number} WHERE id = 2")
        world.go()
    assert world.assert_union(*COLUMNS, "w") == 16
    world.each("UPDATE {t} SET w = w + 1, id = id + 5000 WHERE id > 2", "DELETE FROM {t} WHERE id = 2")
    world.go()
    assert world.assert_union(*COLUMNS, "w") == 12


def test_indexes_that_the_target_gets_later(world: World) -> None:
    """As in DM's test downstream_diff_index: each window uses the keys that the target has at the time."""
    shard = "(c1 INT PRIMARY KEY, c2 INT NOT NULL, c3 VARCHAR(10) NOT NULL)"
    world.make("(c1 INT, c2 INT NOT NULL, c3 VARCHAR(10) NOT NULL, KEY (c1))", shard=shard)
    world.each("INSERT INTO {t} VALUES (1, {k}, '{k}'), (2, {k} + 1, '{k}-2'), (3, {k} + 2, '{k}-3')")
    world.go()
    columns = ("c1", "c2", "c3")
    assert world.assert_union(*columns) == 12
    world.target.run(f"ALTER TABLE {world.table} ADD UNIQUE KEY (c2)")
    world.each("UPDATE {t} SET c3 = '{k}-111' WHERE c1 = 1", "DELETE FROM {t} WHERE c1 = 2")
    world.go()
    assert world.assert_union(*columns) == 8
    world.target.run(f"ALTER TABLE {world.table} DROP KEY c2, ADD PRIMARY KEY (c3)")
    world.each("UPDATE {t} SET c3 = '{k}-333' WHERE c1 = 3", "DELETE FROM {t} WHERE c1 = 1")
    world.go()
    assert world.assert_union(*columns) == 4
    world.each("ALTER TABLE {t} DROP COLUMN c2", "INSERT INTO {t} VALUES (4, '{k}-4')")
    world.each("UPDATE {t} SET c1 = 33 WHERE c1 = 3")
    world.go()
    assert world.assert_union("c1", "c3") == 8


def test_a_target_with_more_columns(world: World) -> None:
    """As in DM's test downstream_more_column: AUTO_INCREMENT in the target, and a column between the shard's."""
    shard = "(c1 INT PRIMARY KEY, c2 INT, c3 INT COMMENT '1;2')"
    world.make("(c INT AUTO_INCREMENT PRIMARY KEY, c1 INT, more INT, c2 INT, c3 INT, KEY (c1))", shard=shard)
    world.each("INSERT INTO {t} VALUES (1, 1, {k}), (2, 2, {k} + 1)")
    assert not world.errors()
    world.go()
    columns = ("c1", "c2", "c3")
    assert world.assert_union(*columns) == 8
    world.target.run(f"UPDATE {world.table} SET more = c3 * 10")
    before = own_values(world, "c3", "c, more")
    world.each("INSERT INTO {t} VALUES (111, 111, 111), (222, 222, 222)", "UPDATE {t} SET c2 = 0 WHERE c1 = 1")
    world.each("DELETE FROM {t} WHERE c1 = 2", "UPDATE {t} SET c1 = 5 WHERE c1 = 1")
    world.go()
    assert world.assert_union(*columns) == 12
    after = own_values(world, "c3", "c, more")
    assert {c3: after[c3] for c3 in (100, 200, 1100, 1200)} == {c3: before[c3] for c3 in (100, 200, 1100, 1200)}
    world.each("UPDATE {t} SET c2 = c2 + 1, c1 = c1 + 1000 ORDER BY c1 DESC", "UPDATE {t} SET c1 = c1 - 1 WHERE c1 > 0")
    world.go()
    assert world.assert_union(*columns) == 12
    assert own_values(world, "c3", "c, more") == after


def own_values(world: World, key: str, own: str) -> dict[object, tuple[object, ...]]:
    """Return the values of own columns in the target by the value of a column that does not change."""
    return {row[0]: row[1:] for row in world.target.run(f"SELECT {key}, {own} FROM {world.table}")}


LIFE = "INSERT INTO {t} VALUES " + ", ".join(f"({{k}} + {n}, '{{r}}', '{{r}}{n}', {{k}} + {n})" for n in range(1, 9))
"""`n` is the number of a row for life, so it identifies the row however its key changes."""
SWAP = (
    "UPDATE {t} SET id = {k} + 40 WHERE n = {k} + 3",
    "UPDATE {t} SET id = {k} + 3 WHERE n = {k} + 4",
    "UPDATE {t} SET id = {k} + 4 WHERE n = {k} + 3",
    "UPDATE {t} SET v = '{r}-' WHERE n = {k} + 7",
    "UPDATE {t} SET v = '{r}7' WHERE n = {k} + 8",
    "UPDATE {t} SET v = '{r}8' WHERE n = {k} + 7",
)
CHANGES = (
    "UPDATE {t} SET v = CONCAT('x', v) WHERE n = {k} + 1",
    "UPDATE {t} SET id = {k} + 30 WHERE n = {k} + 2",
    "DELETE FROM {t} WHERE n IN ({k} + 5, {k} + 6)",
    "INSERT INTO {t} VALUES ({k} + 5, '{r}', '{r}new', {k} + 50)",
    "INSERT INTO {t} VALUES ({k} + 60, '{r}', '{r}in', {k} + 60), ({k} + 61, '{r}', '{r}out', {k} + 61)",
    "DELETE FROM {t} WHERE n = {k} + 61",
    "UPDATE {t} SET id = {k} + 80 WHERE n = {k} + 8",
)
KEPT, DELETED, NEW = (1, 2, 3, 4, 7, 8), (5, 6), (50, 60)
V = SHARDS_OWN.replace("(20)", "(20) NOT NULL")
KEEPING = {
    "surrogate": f"({SURROGATE}, {SHARDS_OWN}, {EXTRA}, KEY (id))",
    "none": f"({SHARDS_OWN}, {EXTRA}, KEY (id, n))",
    "composite": f"({EXTRA}, {SHARDS_OWN}, UNIQUE KEY (region, id))",
    "surrogate and the shard's key": f"({SURROGATE}, {SHARDS_OWN}, {EXTRA}, UNIQUE KEY (id))",
    "another key": f"({V}, {EXTRA}, PRIMARY KEY (v), KEY (id))",
    "two keys": f"({SURROGATE}, {V}, {EXTRA}, UNIQUE KEY (id, region), UNIQUE KEY (v))",
}
"""Targets with columns of their own."""
KEYED = {name: table for name, table in KEEPING.items() if "UNIQUE KEY (id" in table or "UNIQUE KEY (region" in table}


def lives(world: World) -> dict[object, tuple[object, ...]]:
    """Return the own columns of each row by its number, the surrogate key among them."""
    columns = [str(row[0]) for row in world.target.run(f"SHOW COLUMNS FROM {world.table}")]
    return own_values(world, "n", ", ".join(name for name in ("note", "at", "pk") if name in columns))


def numbers(*lives: int) -> set[object]:
    return {k + life for k in (100, 200, 1100, 1200) for life in lives}


def begin(world: World, table: str, **keys: object) -> dict[object, tuple[object, ...]]:
    """Load the shards, and give the rows of the target values of its own; return these."""
    world.make(table, **keys)
    world.each(LIFE)
    assert not world.errors()
    world.go()
    world.target.run(f"UPDATE {world.table} SET note = CONCAT('n', n), at = '2001-02-03 04:05:06'")
    return lives(world)


@pytest.mark.sample(reason="the key and the way of writing do not interact")
@pytest.mark.on_tidb
@pytest.mark.on_statements
@pytest.mark.parametrize("table", KEEPING.values(), ids=KEEPING)
def test_a_row_keeps_the_values_of_the_targets_own_columns_for_life(
    world: World, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    before = begin(world, table)
    world.each(*CHANGES, *SWAP)
    with monkeypatch.context() as patch:
        patch.setattr(sync, "_move", dying(sync._move))
        with pytest.raises(Died):
            world.run()
    world.go()
    world.assert_union()
    after = lives(world)
    assert {n: after[n] for n in numbers(*KEPT)} == {n: before[n] for n in numbers(*KEPT)}
    assert {after[n][0] for n in numbers(*NEW)} == {"new"}, "a row that is deleted and inserted again is a new one"
    assert after.keys() == numbers(*KEPT, *NEW)
    world.each("UPDATE {t} SET id = id + 5000 ORDER BY id DESC", *SWAP)
    world.go()
    world.assert_union()
    assert lives(world) == after


@pytest.mark.parametrize("table", KEYED.values(), ids=KEYED)
def test_own_columns_in_safe_mode(world: World, table: str) -> None:
    """A row that the target has under its new key keeps the values of that row: it may be there already."""
    world.make(table)
    body = task_body(
        world.name,
        world.sources,
        world.target,
        {"r": route(world.name, "t_*", f"{world.name}_to", "t")},
        {"syncer-config-name": "s"},
        **{"name": "keys", "syncers": {"s": {"safe-mode": True}}},
    )
    world.write_body(body)
    world.each(LIFE)
    world.go()
    world.target.run(f"UPDATE {world.table} SET note = CONCAT('n', n), at = '2001-02-03 04:05:06'")
    before = lives(world)
    world.each(*CHANGES)
    world.go()
    world.assert_union()
    after = lives(world)
    assert {n: after[n] for n in numbers(*KEPT)} == {n: before[n] for n in numbers(*KEPT)}
    assert {after[n][0] for n in numbers(60)} == {"new"}


@pytest.mark.parametrize("keys", ["PRIMARY KEY (id)", "PRIMARY KEY (id), UNIQUE KEY (v)"])
def test_own_columns_if_only_changed_columns_are_logged(world: World, keys: str) -> None:
    before = begin(world, f"({SHARDS_OWN}, {EXTRA}, {keys})")
    for source in world.sources.values():
        source.run("SET GLOBAL binlog_row_image = 'MINIMAL'")
    try:
        world.each(*CHANGES, *SWAP)
    finally:
        for source in world.sources.values():
            source.run("SET GLOBAL binlog_row_image = 'FULL'")
    world.go()
    world.assert_union()
    after = lives(world)
    assert {n: after[n] for n in numbers(*KEPT)} == {n: before[n] for n in numbers(*KEPT)}
    assert {after[n][0] for n in numbers(*NEW)} == {"new"}


OWN_TYPES = {
    "t_dec": ("DECIMAL(20,5)", "-12345.67891"),
    "t_dbl": ("DOUBLE", "0.1e-300"),
    "t_flt": ("FLOAT", "16777217.3"),
    "t_bit": ("BIT(9)", "b'101010101'"),
    "t_blob": ("BLOB", "x'00FF090A5C'"),
    "t_text": ("TEXT CHARACTER SET latin1", "_latin1 x'E4096E5C0A'"),
    "t_long": ("TEXT CHARACTER SET latin1", "REPEAT(_latin1 x'E4', 3000)"),
    "t_lat": ("VARCHAR(9) CHARACTER SET latin1", "'ä'"),
    "t_gbk": ("VARCHAR(9) CHARACTER SET gbk", "'中a'"),
    "t_utf": ("VARCHAR(9) CHARACTER SET utf8mb4", "_utf8mb4 x'F09F9880'"),
    "t_json": ("JSON", """'{"a": [1, "\\\\n"]}'"""),
    "t_enum": ("ENUM('a','b')", "0"),
    "t_set": ("SET('a','b')", "3"),
    "t_time": ("TIME(6)", "'-12:34:56.789012'"),
    "t_date": ("DATE", "'0000-00-00'"),
    "t_dt": ("DATETIME(3)", "'1001-02-03 04:05:06.789'"),
    "t_year": ("YEAR", "1999"),
    "t_null": ("INT", "NULL"),
}


@pytest.mark.on_statements
@pytest.mark.parametrize("key", ["PRIMARY KEY (region, id)", "KEY (id)"])
def test_own_columns_of_each_type(world: World, key: str) -> None:
    own = ", ".join(f"{name} {kind}" for name, (kind, _) in OWN_TYPES.items())
    world.make(f"(made INT AS (n + 1) STORED, {own}, {SHARDS_OWN}, touched DATETIME(2) NOT NULL DEFAULT '2000-01-01'"
               f" ON UPDATE CURRENT_TIMESTAMP(2), {key})")  # fmt: skip
    world.each(LIFE)
    world.go()
    values = ", ".join(f"{name} = {value}" for name, (_, value) in OWN_TYPES.items())
    world.target.run("SET SESSION sql_mode = ''", f"UPDATE {world.table} SET {values}, touched = '2000-01-01'")
    shown = ", ".join(f"HEX({name} + 0)" if name == "t_bit" else f"HEX({name})" for name in OWN_TYPES)
    before = own_values(world, "n", shown)
    world.each("UPDATE {t} SET id = id + 50 WHERE n = {k} + 1", "UPDATE {t} SET v = 'x' WHERE n <= {k} + 2")
    world.go()
    world.assert_union()
    assert own_values(world, "n", shown) == before
    touched = own_values(world, "n", "touched > '2000-01-01', made = n + 1")
    assert {n for n, found in touched.items() if found == (1, 1)} == numbers(1, 2)
    assert {found[1] for found in touched.values()} == {1}


@pytest.mark.parametrize(
    "table", [KEEPING["surrogate"], KEEPING["none"], KEEPING["composite"]], ids=["pk", "none", "key"]
)
def test_a_start_that_could_repeat_changes_needs_a_key(world: World, table: str) -> None:
    """Without a key a row that the target already has cannot be recognized."""
    world.make(table)
    routes = {"r": route(world.name, "t_*", f"{world.name}_to", "t")}
    ((file, position, *_),) = world.sources["s1"].run("SHOW MASTER STATUS")
    starts = {"s1": {"meta": {"binlog-name": file, "binlog-pos": position}}, "s2": {"meta": {"binlog-name": ""}}}
    body = task_body(world.name, world.sources, world.target, routes, **{"name": "keys", "task-mode": "incremental"})
    for instance in body["mysql-instances"]:
        instance.update(starts[instance["source-id"]])
    world.write_body(body)
    codes = {"US-2376", "US-2377"}
    assert not world.checked().keys() & codes, "an empty table has no change yet"
    world.target.run(f"INSERT INTO {world.table} (id, region) VALUES (1, 'x')")
    found = world.checked()
    if table == KEEPING["composite"]:
        assert not found.keys() & codes
    else:
        assert "s2" in found["US-2376"] and "s1" in found["US-2377"] and f"{file}:{position}" in found["US-2377"]
        assert world.errors().keys() & codes == {"US-2376"}
    moment = "2001-01-01T00:00:00"
    by_time = {item.code for item in check(starting_at(world.load(), moment)) if item.severity is Severity.ERROR}
    assert ("US-2376" in by_time) is (table != KEEPING["composite"])


@pytest.mark.parametrize("table", [KEEPING["surrogate"], KEEPING["none"]], ids=["pk", "none"])
def test_a_row_of_a_target_without_a_key_is_never_diverted(world: World, table: str) -> None:
    """Nothing could find it later, so it suspends the target, in the load and in windows."""
    world.make(table.replace("v VARCHAR(20)", "v VARCHAR(9)"), unshard={"row-errors": "divert"})
    longer, wider = "UPDATE {t} SET v = 'longer than nine'", f"ALTER TABLE {world.table} MODIFY v VARCHAR(20)"
    world.each(ROWS)
    world.sources["s1"].run(longer.format(t=f"{world.name}.t_11"))
    assert world.run().errors
    world.target.run(wider)
    world.go()
    assert world.assert_union() == 16
    world.each("UPDATE {t} SET v = 'short'")
    world.go()
    world.target.run(wider.replace("(20)", "(9)"))
    world.each(longer + " WHERE id = 1")
    assert len(world.run().suspended) == 2
    world.target.run(wider)
    world.go()
    assert world.assert_union() == 16
