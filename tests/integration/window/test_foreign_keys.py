"""Tables with foreign keys and `foreign_key_checks: 1` in the target's session: every window respects them.

The first scenarios have the statements of DM's tests safe_mode_foreign_key and foreign_key_route_multi_worker.
"""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.taskfile import TaskFile, endpoint, route, task_body, write_sources
from unshard.units.checks.precheck import precheck
from unshard.units.full.dump import dump
from unshard.units.full.load import handover, load
from unshard.units.full.snapshot import take_snapshot
from unshard.units.work import LIMITS, Limits
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

PARENT = (
    "parent (parent_id INT PRIMARY KEY, payload VARCHAR(100) NOT NULL, note VARCHAR(100) NOT NULL,"
    " UNIQUE KEY uk_payload (payload))"
)
CHILD = (
    "child (child_id INT PRIMARY KEY, parent_id INT NOT NULL, child_data VARCHAR(100) NOT NULL,"
    " CONSTRAINT fk_child_parent FOREIGN KEY (parent_id) REFERENCES parent (parent_id) {})"
)
ROWS = (
    "INSERT INTO parent VALUES (1, 'p1', 'n1'), (2, 'p2', 'n2'), (3, 'p3', 'n3')",
    "INSERT INTO child VALUES (10, 1, 'c10'), (11, 1, 'c11'), (20, 2, 'c20'), (30, 3, 'c30')",
)


@dataclasses.dataclass
class World(TaskFile):
    """A task from the schema `<name>` of each source to `<name>_to`, one target table for each name of table."""

    name: str
    folder: Path
    sources: Mapping[str, MariaDb]
    target: MariaDb
    tables: tuple[str, ...] = ("parent", "child")
    limits: Limits = LIMITS

    @property
    def path(self) -> Path:  # type: ignore[override]
        return self.folder / "task.yaml"

    def write(
        self, *, safe: bool = False, checks: int = 1, suffix: str = "", on_duplicate: str = "error", **keys: Any
    ) -> None:
        routes = {table: route(self.name, f"{table}*", f"{self.name}_to", table + suffix) for table in self.tables}
        units = {"syncer-config-name": "global", "loader-config-name": "global"}
        body = task_body(self.name, self.sources, self.target, routes, units)
        body["target-database"] = {**endpoint(self.target), "session": {"foreign_key_checks": checks}}
        body |= {"syncers": {"global": {"safe-mode": safe}}, "loaders": {"global": {"on-duplicate": on_duplicate}}}
        body |= {"unshard": {"storage-path": str(self.folder / "storage")}}
        self.write_body(body | keys)
        write_sources(self.folder, self.sources)

    def change(self, *statements: str, source: str = "s1") -> None:
        self.sources[source].run(f"USE {self.name}", *statements)

    def rows(self, table: str, suffix: str = "") -> list[tuple[object, ...]]:
        return sorted(self.target.run(f"SELECT * FROM {self.name}_to.{table}{suffix}"), key=repr)

    def assert_same(self, suffix: str = "") -> None:
        """Compare every target table with the union of its tables at the sources."""
        for table in self.tables:
            found = [
                row for server in self.sources.values() for row in server.run(f"SELECT * FROM {self.name}.{table}")
            ]
            assert self.rows(table, suffix) == sorted(found, key=repr), table


@contextlib.contextmanager
def living(name: str, folder: Path, sources: Mapping[str, MariaDb], target: MariaDb, *tables: str) -> Iterator[World]:
    world = World(name, folder, sources, target, tables or ("parent", "child"))
    for server in sources.values():
        server.run(f"CREATE DATABASE {name}")
    try:
        yield world
    finally:
        for server in (*sources.values(), target):
            ends = ("", "_to", "_meta")
            server.run("SET foreign_key_checks = 0", *(f"DROP DATABASE IF EXISTS {name}{end}" for end in ends))


@pytest.fixture
def world(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[World]:
    with living(unique, tmp_path, {"s1": source_1}, target) as made:
        yield made


CHANGES_OF_DM = (
    "UPDATE parent SET {} = 'p1_v2' WHERE parent_id = 1",
    "UPDATE parent SET {} = 'p1_v2' WHERE parent_id = 1",
    "UPDATE child SET child_data = 'c20_v2' WHERE child_id = 20",
    "DELETE FROM parent WHERE parent_id = 3",
    "INSERT INTO child VALUES (21, 2, 'c21')",
    "INSERT INTO child VALUES (21, 2, 'c21') ON DUPLICATE KEY UPDATE child_data = VALUES(child_data)",
)


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "plain"])
def test_safe_mode_foreign_key(world: World, safe: bool) -> None:
    world.change(f"CREATE TABLE {PARENT}", f"CREATE TABLE {CHILD.format('ON DELETE CASCADE')}", *ROWS)
    world.write(safe=safe)
    world.go()
    world.assert_same()
    world.change(*(statement.format("payload") for statement in CHANGES_OF_DM))
    world.go()
    assert world.rows("child") == [(10, 1, "c10"), (11, 1, "c11"), (20, 2, "c20_v2"), (21, 2, "c21")]
    world.assert_same()


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "plain"])
def test_foreign_key_route_multi_worker(world: World, safe: bool) -> None:
    world.change(f"CREATE TABLE {PARENT}", f"CREATE TABLE {CHILD.format('ON DELETE CASCADE')}", *ROWS)
    to = f"{world.name}_to"
    child = CHILD.format("ON DELETE CASCADE").replace("child (", f"{to}.child_r (", 1)
    child = child.replace("REFERENCES parent", f"REFERENCES {to}.parent_r")
    world.target.run(
        f"CREATE DATABASE {to}",
        f"CREATE TABLE {to}.{PARENT.replace('parent (', 'parent_r (', 1)}",
        f"CREATE TABLE {child}",
    )
    world.write(safe=safe, suffix="_r")
    world.go()
    world.assert_same("_r")
    world.change(
        *(statement.format("note") for statement in CHANGES_OF_DM),
        # If the parent is deleted before the child has left it, the target deletes the child too.
        "INSERT INTO parent VALUES (5, 'p5', 'n5'), (6, 'p6', 'n6')",
        "INSERT INTO child VALUES (50, 5, 'c50')",
        "UPDATE child SET parent_id = 6, child_data = 'c50_moved' WHERE child_id = 50",
        "DELETE FROM parent WHERE parent_id = 5",
    )
    world.go()
    assert (50, 6, "c50_moved") in world.rows("child", "_r")
    world.assert_same("_r")


PLAIN = "p (id INT PRIMARY KEY, u INT UNIQUE, v VARCHAR(20))"
CHANGES = {
    "a parent is deleted and inserted again": (
        "ON DELETE CASCADE",
        ("DELETE FROM p WHERE id = 1", "INSERT INTO p VALUES (1, 10, 'again')", "INSERT INTO c VALUES (9, 1, 'new')"),
    ),
    "a child comes and its parent goes": (
        "ON DELETE CASCADE",
        ("INSERT INTO c VALUES (9, 1, 'short')", "UPDATE c SET v = 'short' WHERE id = 1", "DELETE FROM p WHERE id = 1"),
    ),
    "references become NULL": (
        "ON DELETE SET NULL",
        ("INSERT INTO c VALUES (9, 1, 'x')", "DELETE FROM p WHERE id = 1", "UPDATE c SET v = 'y' WHERE id = 9"),
    ),
    "children follow a key": (
        "ON UPDATE CASCADE",
        ("UPDATE p SET id = 7 WHERE id = 1", "INSERT INTO c VALUES (9, 7, 'x')", "UPDATE p SET v = 'z' WHERE id = 7"),
    ),
    "children leave a parent that is then deleted": (
        "",
        ("UPDATE c SET p_id = 2", "DELETE FROM p WHERE id = 1", "INSERT INTO p VALUES (3, 10, 'its value')"),
    ),
    "a parent with children changes": ("", ("UPDATE p SET v = 'new', u = 99 WHERE id = 1",)),
    "a parent with children changes, ON DELETE CASCADE": (
        "ON DELETE CASCADE",
        ("UPDATE p SET v = 'new', u = 99 WHERE id = 1", "UPDATE p SET u = 10 WHERE id = 2"),
    ),
    "all rows go": ("", ("DELETE FROM c", "DELETE FROM p", "INSERT INTO p VALUES (1, 1, 'x')")),
    "many rows come": (
        "",
        (
            "INSERT INTO p SELECT seq, seq, 'many' FROM seq_100_to_900",
            "INSERT INTO c SELECT seq, seq, 'many' FROM seq_100_to_900",
            "DELETE FROM c WHERE id BETWEEN 200 AND 700",
            "DELETE FROM p WHERE id BETWEEN 200 AND 700",
        ),
    ),
}


@pytest.mark.sample(reason="the change and the way of writing do not interact")
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("safe", [True, False], ids=["safe", "plain"])
def test_changes_have_the_effect_that_they_had_on_the_source(world: World, name: str, safe: bool) -> None:
    action, statements = CHANGES[name]
    child = f"c (id INT PRIMARY KEY, p_id INT, v VARCHAR(20), FOREIGN KEY (p_id) REFERENCES p (id) {action})"
    rows = ("INSERT INTO p VALUES (1, 10, 'a'), (2, 20, 'b')", "INSERT INTO c VALUES (1, 1, 'a'), (2, 2, 'b')")
    world.tables = ("p", "c")
    world.change(f"CREATE TABLE {PLAIN}", f"CREATE TABLE {child}", *rows)
    world.write(safe=safe)
    world.go()
    world.change(*statements)
    world.go()
    world.assert_same()


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "plain"])
def test_a_table_that_references_itself_and_a_cycle(world: World, safe: bool) -> None:
    world.tables = ("node", "a", "b")
    world.change(
        "CREATE TABLE node (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES node (id))",
        "CREATE TABLE a (id INT PRIMARY KEY, b_id INT)",
        "CREATE TABLE b (id INT PRIMARY KEY, a_id INT, FOREIGN KEY (a_id) REFERENCES a (id))",
        "ALTER TABLE a ADD FOREIGN KEY (b_id) REFERENCES b (id)",
    )
    world.write(safe=safe)
    world.go()
    world.change(
        "INSERT INTO node VALUES (1, NULL), (3, 1), (2, 3), (5, 5)",
        "INSERT INTO a VALUES (1, NULL)",
        "INSERT INTO b VALUES (1, 1)",
        "UPDATE a SET b_id = 1",
    )
    world.go()
    world.assert_same()
    world.change(
        "DELETE FROM node WHERE id = 2",
        "DELETE FROM node WHERE id = 3",
        "INSERT INTO node VALUES (9, 1)",
        "UPDATE a SET b_id = NULL",
        "DELETE FROM b",
        "DELETE FROM a",
    )
    world.go()
    world.assert_same()


@pytest.mark.parametrize("action", ["", "ON DELETE CASCADE", "ON DELETE SET NULL"])
def test_a_parent_without_a_key_changes_while_rows_reference_it(world: World, action: str) -> None:
    """Its children stay: the row is neither deleted nor in the way."""
    world.tables = ("p", "c")
    child = f"c (id INT PRIMARY KEY, u INT, FOREIGN KEY (u) REFERENCES p (u) {action} ON UPDATE CASCADE)"
    world.change("CREATE TABLE p (u INT, v VARCHAR(20), UNIQUE KEY (u))", f"CREATE TABLE {child}")
    world.change("INSERT INTO p VALUES (1, 'a'), (2, 'b'), (NULL, 'c'), (NULL, 'c')", "INSERT INTO c VALUES (1, 1)")
    world.write()
    world.go()
    world.change(
        "UPDATE p SET v = 'new' WHERE u = 1",
        "INSERT INTO c VALUES (2, 1), (3, 2)",
        "UPDATE p SET v = 'new' WHERE u IS NULL LIMIT 1",
        "UPDATE p SET u = 11 WHERE u = 1",
        "UPDATE p SET u = 1 WHERE v = 'b'",
        "DELETE FROM c WHERE id = 3",
        "DELETE FROM p WHERE u = 1",
    )
    world.go()
    world.assert_same()
    world.target.run(f"UPDATE {world.name}_to.p SET v = 'by hand' WHERE u = 11")
    world.change("UPDATE p SET v = 'newer' WHERE u = 11")
    assert {error.error.code for error in world.run().errors} == {"US-6008", "US-6072"}


@pytest.mark.parametrize("policy", ["replace", "ignore"])
def test_a_value_that_another_shard_has_in_a_parent_without_a_key(two: World, policy: str) -> None:
    """The changed row becomes a new one, to which the policy applies; no child goes."""
    two.tables = ("p", "c")
    for source in two.sources:
        two.change("DROP TABLE c, p", source=source)
        two.change("CREATE TABLE p (u INT, v VARCHAR(20), UNIQUE KEY (u))", source=source)
        child = "c (id INT PRIMARY KEY, u INT, FOREIGN KEY (u) REFERENCES p (u) ON DELETE CASCADE)"
        two.change(f"CREATE TABLE {child}", source=source)
    two.target.run("SET foreign_key_checks = 0", *(f"DROP DATABASE {two.name}_{end}" for end in ("to", "meta")))
    shutil.rmtree(two.folder / "storage")
    two.write(on_duplicate=policy)
    two.go()
    two.change("INSERT INTO p VALUES (1, 's1')", "INSERT INTO c VALUES (1, 1)", source="s1")
    two.go()
    two.change("INSERT INTO p VALUES (2, 's2')", "UPDATE p SET u = 1", source="s2")
    two.go()
    assert two.rows("p") == [(1, "s2" if policy == "replace" else "s1")] and two.rows("c") == [(1, 1)]


def test_without_the_setting_the_target_is_written_without_checks(world: World) -> None:
    world.change(f"CREATE TABLE {PARENT}", f"CREATE TABLE {CHILD.format('')}", *ROWS)
    world.write(checks=0)
    world.go()
    world.change("UPDATE child SET parent_id = 2", "DELETE FROM parent WHERE parent_id = 1")
    world.go()
    world.assert_same()
    assert "FOREIGN KEY" not in world.target.run(f"SHOW CREATE TABLE {world.name}_to.child")[0][1]


@pytest.fixture
def two(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[World]:
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target, "p", "c") as made:
        made.write()
        for source in made.sources:
            made.change(f"CREATE TABLE {PLAIN}", f"CREATE TABLE {REFERRING}", source=source)
        made.go()
        yield made


REFERRING = "c (id INT PRIMARY KEY, p_id INT, FOREIGN KEY (p_id) REFERENCES p (id))"


def test_a_child_waits_for_its_parent_of_another_source(two: World) -> None:
    """The row of the child's own source was written there without a parent in the binlog."""
    two.change("SET sql_log_bin = 0", "INSERT INTO p VALUES (1, 1, 'x')", "SET sql_log_bin = 1", source="s2")
    two.change("INSERT INTO c VALUES (5, 1)", "INSERT INTO p VALUES (2, 2, 'y')", source="s2")
    codes = {error.error.code for error in two.run().errors}
    assert codes == {"US-6070", "US-6072"}
    assert two.rows("p") == [] and two.rows("c") == []
    two.change("INSERT INTO p VALUES (1, 1, 'x')", source="s1")
    two.go()
    assert two.rows("p") == [(1, 1, "x"), (2, 2, "y")] and two.rows("c") == [(5, 1)]


def test_a_parent_waits_for_its_children_of_another_source(two: World) -> None:
    two.change("INSERT INTO p VALUES (1, 1, 'x')", source="s1")
    two.go()
    two.change("SET foreign_key_checks = 0", "INSERT INTO c VALUES (5, 1)", source="s2")
    two.go()
    two.change("DELETE FROM p", "INSERT INTO p VALUES (2, 2, 'y')", "INSERT INTO c VALUES (6, 2)", source="s1")
    assert {error.error.code for error in two.run().errors} == {"US-6071", "US-6072"}
    assert two.rows("p") == [(1, 1, "x")] and two.rows("c") == [(5, 1)]
    two.change("DELETE FROM c", source="s2")
    two.go()
    two.assert_same()


def test_tables_that_the_dump_read_at_different_moments(world: World) -> None:
    """The dump has the parents after the changes and the children before them."""
    child = f"{REFERRING[:-1]} ON DELETE CASCADE)"
    rows = ("INSERT INTO p VALUES (1, 1, 'x'), (2, 2, 'y'), (3, 3, 'z')", "INSERT INTO c VALUES (1, 1), (2, 2), (3, 3)")
    world.tables = ("p", "c")
    world.change(f"CREATE TABLE {PLAIN}", f"CREATE TABLE {child}", *rows)
    world.write()
    with world.work() as work:
        take_snapshot(work, "s1")
        world.change("UPDATE c SET p_id = 3 WHERE id = 1", "DELETE FROM p WHERE id IN (1, 2)", "UPDATE p SET u = 9")
        dump(work, "s1")
        load(work, "s1")
        handover(work)
    to = f"{world.name}_to"
    old = (f"DELETE FROM {to}.c", f"INSERT INTO {to}.c VALUES (1, 1), (2, 2), (3, 3)")
    world.target.run("SET foreign_key_checks = 0", *old)
    world.go()
    world.assert_same()
    assert world.rows("c") == [(1, 3), (3, 3)]


@pytest.mark.mariadb_only("check has more warnings about a TiDB target")
def test_check_lists_cascades_and_compares_foreign_keys(world: World) -> None:
    world.tables = ("p", "c")
    cascading = f"{REFERRING[:-1]} ON DELETE CASCADE)"
    world.change(f"CREATE TABLE {PLAIN}", f"CREATE TABLE {cascading}")
    world.write()
    assert codes_of(world) == {("US-2367", "warning")}
    to = f"{world.name}_to"
    plain = "c (id INT PRIMARY KEY, p_id INT, KEY (p_id))"
    world.target.run(f"CREATE DATABASE {to}", f"USE {to}", f"CREATE TABLE {PLAIN}", f"CREATE TABLE {plain}")
    assert codes_of(world) == {("US-2367", "warning"), ("US-2368", "warning")}
    world.target.run(f"ALTER TABLE {to}.c ADD FOREIGN KEY (p_id) REFERENCES {to}.p (id) ON DELETE CASCADE")
    assert codes_of(world) == {("US-2367", "warning")}
    world.target.run(f"ALTER TABLE {to}.p ADD FOREIGN KEY (u) REFERENCES {to}.c (id)")
    assert codes_of(world) == {("US-2367", "warning"), ("US-2369", "error")}
    world.target.run(f"DROP DATABASE {to}")
    world.write(checks=0)
    assert codes_of(world) == {("US-2327", "warning"), ("US-2367", "warning")}


def codes_of(world: World) -> set[tuple[str, str]]:
    return {(item.code, item.severity.value) for item in precheck(world.load()) if item.code.startswith("US-23")}


def test_foreign_keys_that_ddl_adds_and_drops(world: World) -> None:
    """The target keeps a dropped foreign key; rows that respect it go on."""
    world.tables = ("p", "c")
    world.change(f"CREATE TABLE {PLAIN}", "CREATE TABLE c (id INT PRIMARY KEY, p_id INT, KEY (p_id))")
    world.write()
    world.go()
    world.change(
        "INSERT INTO p VALUES (1, 1, 'x')",
        "ALTER TABLE c ADD CONSTRAINT made FOREIGN KEY (p_id) REFERENCES p (id), ADD w INT",
        "INSERT INTO c VALUES (1, 1, 1)",
    )
    world.go()
    world.assert_same()
    world.change("ALTER TABLE c DROP FOREIGN KEY made", "INSERT INTO c VALUES (2, 1, 1)")
    world.go()
    world.assert_same()


def test_a_large_window_with_a_shuffle(world: World) -> None:
    world.limits = dataclasses.replace(LIMITS, alone_bytes=1, small_bytes=1, worker_bytes=1000)
    world.tables = ("p", "c", "other")
    world.change(f"CREATE TABLE {PLAIN}", f"CREATE TABLE {REFERRING}", "CREATE TABLE other (id INT PRIMARY KEY)")
    world.write()
    world.go()
    statements = [
        statement.format(n)
        for n in range(100)
        for statement in (
            "INSERT INTO p VALUES ({0}, {0}, 'x')",
            "INSERT INTO c VALUES ({0}, {0})",
            "INSERT INTO other VALUES ({0})",
        )
    ]
    world.change(*statements, "DELETE FROM c WHERE id < 50", "DELETE FROM p WHERE id < 50", "UPDATE p SET v = 'y'")
    world.go()
    world.assert_same()


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "plain"])
def test_own_columns_of_connected_tables_keep_their_values(world: World, safe: bool) -> None:
    """The statements change rows of `parent` and their keys, and swap two values."""
    to = f"{world.name}_to"
    world.change(f"CREATE TABLE {PARENT}", f"CREATE TABLE {CHILD.format('ON UPDATE CASCADE')}", *ROWS)
    world.target.run(
        f"CREATE DATABASE {to}",
        f"CREATE TABLE {to}.parent (own VARCHAR(9) DEFAULT 'new', parent_id INT NOT NULL,"
        f" payload VARCHAR(100) NOT NULL, note VARCHAR(100) NOT NULL,"
        " PRIMARY KEY (parent_id), UNIQUE KEY (payload))",
        f"CREATE TABLE {to}.child (child_id INT PRIMARY KEY, parent_id INT NOT NULL, child_data VARCHAR(100) NOT NULL,"
        f" FOREIGN KEY (parent_id) REFERENCES {to}.parent (parent_id) ON UPDATE CASCADE)",
    )
    world.write(safe=safe)
    world.go()
    world.target.run(f"UPDATE {to}.parent SET own = note")
    world.change(
        "INSERT INTO parent VALUES (4, 'p4', 'n4')",
        "UPDATE parent SET payload = 'swap' WHERE note = 'n1'",
        "UPDATE parent SET payload = 'p1' WHERE note = 'n2'",
        "UPDATE parent SET payload = 'p2' WHERE note = 'n1'",
        "UPDATE parent SET parent_id = 33 WHERE note = 'n3'",
    )
    world.go()
    found = world.target.run(f"SELECT note, own FROM {to}.parent ORDER BY note")
    assert found == [("n1", "n1"), ("n2", "n2"), ("n3", "n3"), ("n4", "new")]
    for table, columns in (("parent", "parent_id, payload, note"), ("child", "*")):
        both = [
            sorted(server.run(f"SELECT {columns} FROM {schema}.{table}"))
            for server, schema in ((world.sources["s1"], world.name), (world.target, to))
        ]
        assert both[0] == both[1]
