"""Targets with another key than their shards: surrogate keys, no key, keys that separate the shards."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dying import Died
from tests.oracle import rows, union
from tests.taskfile import TaskFile, route, schemas, task_body, write_sources
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


def test_a_target_with_more_columns(world: World) -> None:
    """As in DM's test downstream_more_column: AUTO_INCREMENT in the target, and a column between the shard's."""
    shard = "(c1 INT PRIMARY KEY, c2 INT, c3 INT COMMENT '1;2')"
    world.make("(c INT AUTO_INCREMENT PRIMARY KEY, c1 INT, more INT, c2 INT, c3 INT, KEY (c1))", shard=shard)
    world.each("INSERT INTO {t} VALUES (1, 1, 1), (2, 2, 2)")
    assert not world.errors()
    world.go()
    columns = ("c1", "c2", "c3")
    assert world.assert_union(*columns) == 8
    world.target.run(f"UPDATE {world.table} SET more = c")
    world.each("INSERT INTO {t} VALUES (111, 111, 111), (222, 222, 222)", "UPDATE {t} SET c2 = 0 WHERE c1 = 1")
    world.each("DELETE FROM {t} WHERE c1 = 2")
    world.go()
    assert world.assert_union(*columns) == 12
