"""Column mapping from the first dumped row to `validate`: load, windows, held rows, DDL, shards that would collide."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.taskfile import TaskFile, route, task_body, tidied, write_sources
from tests.tidbsettings import CHOSEN_KEY, is_tidb, settings_of
from unshard.config import load_task
from unshard.errors.rows import RowRefused
from unshard.operate.command import Replace
from unshard.operate.issuing import give
from unshard.units.checks.precheck import precheck
from unshard.units.work import open_work
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@dataclasses.dataclass
class World(TaskFile):
    """Two sources, a target, and a task with column mappings."""

    name: str
    sources: tuple[MariaDb, MariaDb]
    target: MariaDb
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "task.yaml"

    def write(self, **mappings: Mapping[str, Any]) -> None:
        """Write the task; a mapping's name ends in the number of its source."""
        write_sources(self.folder, {f"s{number}": server for number, server in enumerate(self.sources, 1)})
        body = task_body(
            self.name,
            ("s1", "s2"),
            self.target,
            {table: route(f"{self.name}_*", f"{table}_*", self.name, table) for table in ("orders", "items")},
            **{
                "name": "mapped",
                "column-mappings": mappings,
                "block-allow-list": {"ours": {"do-dbs": [f"~^{self.name}_[0-9]+$"]}},
                "unshard": dict(CHOSEN_KEY) if is_tidb(self.target) else {},
            },
        )
        for number, instance in enumerate(body["mysql-instances"], 1):
            instance["column-mapping-rules"] = [name for name in mappings if name.endswith(str(number))]
        self.write_body(body)

    def rule(self, instance: int, table: str, column: str, **others: object) -> dict[str, object]:
        return {
            "schema-pattern": f"{self.name}_*",
            "table-pattern": f"{table}_*",
            "expression": "partition id",
            "target-column": column,
            "arguments": [str(instance), self.name, table, "_"],
            **others,
        }

    def codes(self) -> set[str]:
        return {item.code for item in precheck(load_task(self.path)) if item.code}

    def equal(self) -> dict[str, bool]:
        return {target: verdict.equal for target, verdict in self.verdicts().items()}


@pytest.fixture
def world(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[World]:
    with tidied(source_1, source_2, target), settings_of(source_1, target):
        yield World(unique, (source_1, source_2), target, tmp_path)


def bits(instance: int, schema: int, table: int) -> int:
    return instance << 59 | schema << 52 | table << 44


def test_a_column_that_only_one_source_maps_is_too_narrow_for_the_other(world: World) -> None:
    """Their shards have one structure; the mapping itself checks the columns that it changes."""
    name = world.name
    for server in world.sources:
        server.run(f"CREATE DATABASE {name}_2", f"CREATE TABLE {name}_2.orders_3 (id BIGINT UNSIGNED PRIMARY KEY)")
    world.target.run(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.orders (id BIGINT PRIMARY KEY)")
    one, other = ({f"o{n}": world.rule(n, "orders", "id")} for n in (1, 2))
    for rules, is_narrow in ((one, True), (other, True), (one | other, False)):
        world.write(**rules)
        assert ("US-2343" in world.codes()) is is_narrow


def test_shards_that_all_count_from_one_are_merged(world: World) -> None:
    name, (s1, s2), target = world.name, world.sources, world.target
    orders = "(id INT UNSIGNED PRIMARY KEY AUTO_INCREMENT, v VARCHAR(9), parent SMALLINT)"
    items = "(order_id SMALLINT UNSIGNED, n TINYINT, PRIMARY KEY (order_id, n))"
    for server in world.sources:
        server.run(
            f"CREATE DATABASE {name}_2",
            f"CREATE TABLE {name}_2.orders_3 {orders}",
            f"CREATE TABLE {name}_2.orders_4 {orders}",
            f"CREATE TABLE {name}_2.items_3 {items}",
            f"INSERT INTO {name}_2.orders_3 VALUES (123, 'old', NULL), (1, 'a', 123)",
            f"INSERT INTO {name}_2.orders_4 VALUES (123, 'other', 123)",
            f"INSERT INTO {name}_2.items_3 VALUES (123, 1), (123, 2)",
        )
    rules: dict[str, Mapping[str, Any]] = {}
    for n in (1, 2):
        rules[f"o{n}"] = world.rule(n, "orders", "id", **{"referencing-columns": ["parent"]})
        rules[f"i{n}"] = world.rule(n, "items", "order_id")
    world.write(**rules)
    assert world.codes() == {"US-6019"}, "the target would be made like the shards, too narrow"
    target.run(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.orders (id BIGINT PRIMARY KEY, v VARCHAR(9), parent BIGINT)",
        f"CREATE TABLE {name}.items (order_id BIGINT, n TINYINT, PRIMARY KEY (order_id, n))",
    )
    assert world.codes() == set()
    world.go()
    found = target.run(f"SELECT id, v, parent FROM {name}.orders ORDER BY id LIMIT 3")
    high = bits(1, 2, 3)
    other = bits(1, 2, 4) + 123
    assert found == [(high + 1, "a", high + 123), (high + 123, "old", None), (other, "other", other)]
    assert target.run(f"SELECT order_id FROM {name}.items WHERE n = 2") == [(high + 123,), (bits(2, 2, 3) + 123,)]
    assert world.equal() == {"orders": True, "items": True}

    # Windows: rows are found again by their mapped keys; rows after a DDL are held and mapped when they are released.
    s1.run(
        f"USE {name}_2",
        "UPDATE orders_3 SET v = 'new', id = 124 WHERE id = 123",
        "DELETE FROM orders_4",
        "ALTER TABLE orders_3 ADD n INT",
        "INSERT INTO orders_3 VALUES (7, 'held', 1, 5)",
    )
    assert len(world.go().locks) == 1
    assert target.run(f"SELECT v FROM {name}.orders WHERE id IN ({high + 123}, {high + 124}, {high + 7})") == [("new",)]
    s1.run(f"ALTER TABLE {name}_2.orders_4 ADD n INT")
    s2.run(f"ALTER TABLE {name}_2.orders_3 ADD n INT", f"ALTER TABLE {name}_2.orders_4 ADD n INT")
    assert world.go().locks == ()
    assert target.run(f"SELECT v, parent, n FROM {name}.orders WHERE id = {high + 7}") == [("held", high + 1, 5)]
    assert world.equal() == {"orders": True, "items": True}
    target.run(f"UPDATE {name}.orders SET id = id - 1 WHERE id = {high + 7}")
    assert world.equal() == {"orders": False, "items": True}
    target.run(f"UPDATE {name}.orders SET id = id + 1 WHERE id = {high + 6}")

    # A DDL that touches the mapped column waits for an operator, who corrects the rule and gives the target's
    # statement.
    renamed = "CHANGE id nr INT UNSIGNED AUTO_INCREMENT"
    for server in world.sources:
        server.run(
            f"USE {name}_2",
            *(f"ALTER TABLE orders_{n} {renamed}" for n in (3, 4)),
            "INSERT INTO orders_3 VALUES (8, 'renamed', NULL, NULL)",
        )
    (lock,) = world.go().locks
    assert "column mapping 'o" in lock.reason
    for n in (1, 2):
        rules[f"o{n}"] = {**rules[f"o{n}"], "target-column": "nr"}
    world.write(**rules)
    with open_work(load_task(world.path)) as work:
        statement = f"ALTER TABLE {name}.orders CHANGE id nr BIGINT"
        give(work.meta, Replace(lock.id, (statement,)), "me", "test", "renamed")
    assert world.go().locks == ()
    assert target.run(f"SELECT v FROM {name}.orders WHERE nr = {high + 8}") == [("renamed",)]
    assert world.equal() == {"orders": True, "items": True}


def test_shards_that_would_meet_and_ids_that_do_not_fit_are_refused(world: World) -> None:
    name, (s1, s2), target = world.name, world.sources, world.target
    orders = "(id BIGINT PRIMARY KEY)"
    s1.run(
        f"CREATE DATABASE {name}_1",
        f"CREATE TABLE {name}_1.orders_7 {orders}",
        f"CREATE TABLE {name}_1.orders_007 {orders}",
    )
    s2.run(
        f"CREATE DATABASE {name}_1",
        f"CREATE TABLE {name}_1.orders_7 {orders}",
        f"INSERT INTO {name}_1.orders_7 VALUES ({1 << 44})",
    )
    world.write(o1=world.rule(1, "orders", "id"), o2=world.rule(2, "orders", "id"))
    assert world.codes() - {"US-2312"} == {"US-6021", "US-6022"}
    s1.run(f"DROP TABLE {name}_1.orders_007")
    s2.run(f"DELETE FROM {name}_1.orders_7")
    assert world.codes() - {"US-2312"} == set()
    world.go()

    # Later: a table whose bits are in use waits for an operator; an id that does not fit is an error with its key.
    s1.run(
        f"CREATE TABLE {name}_1.orders_07 {orders}",
        f"INSERT INTO {name}_1.orders_07 VALUES (1)",
        f"INSERT INTO {name}_1.orders_7 VALUES (1)",
    )
    (lock,) = world.go().locks
    assert "US-6022" in lock.reason
    assert target.run(f"SELECT id FROM {name}.orders") == [(bits(1, 1, 7) + 1,)]
    s2.run(f"INSERT INTO {name}_1.orders_7 VALUES (5), (-6)")
    (trouble,) = world.run().errors
    assert isinstance(trouble.error, RowRefused) and "id = -6" in str(trouble.error) and "'o2'" in str(trouble.error)
