"""DDL that adds and drops foreign keys: the target follows it with `foreign_key_checks: 1`, and has none without."""

import contextlib

import pytest

from tests.integration.window.test_foreign_keys import PLAIN, World, two, world
from tests.taskfile import route
from unshard.adapters import mysql
from unshard.adapters.structures import read_foreign_keys
from unshard.core.model import TableId

pytestmark = pytest.mark.integration
__all__ = ["two", "world"]
CHILD = "c (id INT PRIMARY KEY, p_id INT)"


def keys_of(world: World) -> set[str]:
    """Return the foreign keys of the target, without the schema of the target."""
    to = f"{world.name}_to"
    with contextlib.closing(mysql.connect(world.target.server)) as connection:
        found = read_foreign_keys(connection, [TableId(to, "any")])
    return {f"{key.name}: {key}".replace(f"{to}.", "") for key in found}


def indexes_of(world: World, table: str) -> set[str]:
    return {str(row[2]) for row in world.target.run(f"SHOW INDEX FROM {world.name}_to.{table}")}


def begun(world: World, *statements: str, suffix: str = "", checks: int = 1) -> None:
    world.change(*statements)
    world.write(suffix=suffix, checks=checks)
    world.go()


@pytest.mark.on_tidb
def test_a_foreign_key_that_is_added_names_the_target_of_its_parent(world: World) -> None:
    world.tables = ("p", "c")
    begun(world, f"CREATE TABLE {PLAIN}", f"CREATE TABLE {CHILD}", suffix="_r")
    world.change(
        "INSERT INTO p VALUES (1, 1, 'x')",
        "ALTER TABLE c ADD CONSTRAINT made FOREIGN KEY (p_id) REFERENCES p (id) ON DELETE CASCADE, ADD w INT",
        "INSERT INTO c VALUES (1, 1, 1)",
        "ALTER TABLE c ADD up INT, ADD CONSTRAINT own FOREIGN KEY (up) REFERENCES c (id)",
        "INSERT INTO c VALUES (2, 1, 1, 1)",
    )
    world.go()
    both = {"made: c_r (p_id) references p_r (id) ON DELETE CASCADE", "own: c_r (up) references c_r (id)"}
    assert keys_of(world) == both
    world.change("UPDATE c SET up = NULL", "DELETE FROM p WHERE id = 1")
    world.go()
    world.assert_same("_r")
    assert world.rows("c", "_r") == []


@pytest.mark.on_tidb
def test_a_foreign_key_that_is_dropped_leaves_the_target(world: World) -> None:
    world.tables = ("p", "c")
    begun(
        world,
        f"CREATE TABLE {PLAIN}",
        f"CREATE TABLE {CHILD[:-1]}, CONSTRAINT made FOREIGN KEY (p_id) REFERENCES p (id))",
    )
    assert keys_of(world) == {"made: c (p_id) references p (id)"}
    world.change(
        "ALTER TABLE c DROP FOREIGN KEY made, DROP INDEX made, ADD w INT",
        "INSERT INTO c VALUES (1, 7, 7)",
        "ALTER TABLE c DROP COLUMN w",
    )
    world.go()
    world.assert_same()
    assert keys_of(world) == set()
    assert "made" not in indexes_of(world, "c")


def test_a_foreign_key_that_only_the_shard_has_is_dropped_there_alone(world: World) -> None:
    world.tables = ("p", "c")
    begun(
        world,
        f"CREATE TABLE {PLAIN}",
        f"CREATE TABLE {CHILD[:-1]}, CONSTRAINT made FOREIGN KEY (p_id) REFERENCES p (id))",
    )
    world.target.run(f"ALTER TABLE {world.name}_to.c DROP FOREIGN KEY made")
    world.change("ALTER TABLE c DROP FOREIGN KEY made", "INSERT INTO c VALUES (1, 7)")
    world.go()
    world.assert_same()


def test_names_that_the_server_has_made_agree_in_all_shards(world: World) -> None:
    """The shards c_1 and c_2 have the foreign keys c_1_ibfk_1 and c_2_ibfk_1, the target c has c_ibfk_1."""
    world.tables = ("p", "c")
    shards = [f"c_{number} (id INT PRIMARY KEY, p_id INT, {{}})" for number in (1, 2)]
    referring = [shard.format("FOREIGN KEY (p_id) REFERENCES p (id)") for shard in shards]
    begun(world, f"CREATE TABLE {PLAIN}", *(f"CREATE TABLE {shard}" for shard in referring))
    assert keys_of(world) == {"c_ibfk_1: c (p_id) references p (id)"}
    world.change(*(f"ALTER TABLE c_{n} DROP FOREIGN KEY c_{n}_ibfk_1" for n in (1, 2)), "INSERT INTO c_1 VALUES (1, 9)")
    world.go()
    assert keys_of(world) == set()
    world.change(
        "DELETE FROM c_1",
        *(f"ALTER TABLE c_{n} ADD FOREIGN KEY (p_id) REFERENCES p (id) ON DELETE SET NULL" for n in (1, 2)),
    )
    world.go()
    ((one,),) = [[key.partition(": ")[2] for key in keys_of(world)]]
    assert one == "c (p_id) references p (id) ON DELETE SET NULL"
    world.change(
        "INSERT INTO p VALUES (1, 1, 'x')",
        "INSERT INTO c_2 VALUES (2, 1)",
        "DELETE FROM p",
        *(f"ALTER TABLE c_{n} DROP FOREIGN KEY c_{n}_ibfk_1" for n in (1, 2)),
        "INSERT INTO c_2 VALUES (3, 9)",
    )
    world.go()
    assert keys_of(world) == set()
    assert world.rows("c") == [(2, None), (3, 9)]


def test_a_shard_that_a_window_creates_has_the_indexes_of_its_group(world: World) -> None:
    world.tables = ("p", "c")
    shards = [f"c_{number} (id INT PRIMARY KEY, p_id INT, FOREIGN KEY (p_id) REFERENCES p (id))" for number in (1, 2)]
    begun(world, f"CREATE TABLE {PLAIN}", f"CREATE TABLE {shards[0]}")
    world.change(f"CREATE TABLE {shards[1]}", "INSERT INTO p VALUES (1, 1, 'x')", "INSERT INTO c_2 VALUES (2, 1)")
    world.go()
    assert world.rows("c") == [(2, 1)]
    world.change(
        *(f"ALTER TABLE c_{n} DROP FOREIGN KEY c_{n}_ibfk_1, DROP INDEX p_id, ADD w INT" for n in (1, 2)),
        "INSERT INTO c_1 VALUES (1, 9, 9)",
    )
    world.go()
    assert world.rows("c") == [(1, 9, 9), (2, 1, None)]
    assert indexes_of(world, "c") == {"PRIMARY"} and keys_of(world) == set()


def test_a_parent_in_another_schema(world: World) -> None:
    world.tables = ("p", "c")
    other = f"{world.name}_b"
    routes = {
        "c": route(world.name, "c", f"{world.name}_to", "c"),
        "p": route(other, "p", f"{world.name}_to", "parents"),
    }
    lists = {"ours": {"do-dbs": [world.name, other]}}
    server = world.sources["s1"]
    server.run(f"CREATE DATABASE {other}", f"CREATE TABLE {other}.{PLAIN}")
    try:
        world.change(f"CREATE TABLE {CHILD}")
        instance = {
            "source-id": "s1",
            "route-rules": ["c", "p"],
            "block-allow-list": "ours",
            "syncer-config-name": "global",
            "loader-config-name": "global",
        }
        keys = {"routes": routes, "block-allow-list": lists, "mysql-instances": [instance]}
        world.write(**keys)
        world.go()
        world.change(
            f"ALTER TABLE c ADD CONSTRAINT made FOREIGN KEY (p_id) REFERENCES {other}.p (id)",
            f"INSERT INTO {other}.p VALUES (1, 1, 'x')",
            "INSERT INTO c VALUES (1, 1)",
            f"CREATE TABLE d (id INT PRIMARY KEY, CONSTRAINT of_d FOREIGN KEY (id) REFERENCES {other}.p (id))",
        )
        world.go()
        assert world.rows("c") == [(1, 1)]
        world.write(**{**keys, "routes": {**routes, "d": route(world.name, "d", f"{world.name}_to", "d_r")}})
        assert keys_of(world) >= {"made: c (p_id) references parents (id)"}
    finally:
        server.run("SET foreign_key_checks = 0", f"DROP DATABASE {other}")


def test_a_parent_that_is_not_in_the_task_leaves_only_the_index(world: World) -> None:
    world.tables = ("c",)
    world.change(f"CREATE TABLE {PLAIN.replace('p (', 'x (', 1)}", f"CREATE TABLE {CHILD}")
    without = {"do-dbs": [world.name], "ignore-tables": [{"db-name": world.name, "tbl-name": "x"}]}
    world.write(**{"block-allow-list": {"ours": without}})
    world.go()
    world.change("ALTER TABLE c ADD CONSTRAINT made FOREIGN KEY (p_id) REFERENCES x (id), ADD w INT")
    world.change("INSERT INTO x VALUES (1, 1, 'x')", "INSERT INTO c VALUES (1, 1, 1)")
    world.go()
    world.assert_same()
    assert keys_of(world) == set() and "made" in indexes_of(world, "c")


def test_a_table_that_a_window_creates_gets_each_foreign_key_once(world: World) -> None:
    """The window reads the foreign keys of its shard when all these statements are done at the source."""
    world.tables = ("p", "c")
    begun(world, f"CREATE TABLE {PLAIN}")
    world.change(
        f"CREATE TABLE {CHILD}",
        "INSERT INTO p VALUES (1, 1, 'x')",
        "ALTER TABLE c ADD CONSTRAINT made FOREIGN KEY (p_id) REFERENCES p (id)",
        "ALTER TABLE c ADD q_id INT, ADD CONSTRAINT later FOREIGN KEY (q_id) REFERENCES p (id)",
        "ALTER TABLE c ADD CONSTRAINT own FOREIGN KEY (q_id) REFERENCES c (id)",
        "INSERT INTO c VALUES (1, 1, 1)",
    )
    world.go()
    world.assert_same()
    assert {key.partition(":")[0] for key in keys_of(world)} == {"made", "later", "own"}


@pytest.mark.parametrize(
    "added",
    [
        "ADD CONSTRAINT made FOREIGN KEY (p_id) REFERENCES p (id)",
        "ADD INDEX made (p_id), ADD FOREIGN KEY (p_id) REFERENCES p (id)",
    ],
    ids=["with its index", "with an index of its own"],
)
def test_without_the_setting_the_target_gets_only_the_index(world: World, added: str) -> None:
    world.tables = ("p", "c")
    begun(world, f"CREATE TABLE {PLAIN}", f"CREATE TABLE {CHILD}", checks=0)
    world.change(
        "INSERT INTO p VALUES (1, 1, 'x')", f"ALTER TABLE c {added}, ADD w INT", "INSERT INTO c VALUES (1, 1, 1)"
    )
    world.go()
    world.assert_same()
    assert keys_of(world) == set()
    assert indexes_of(world, "c") == {"PRIMARY", "made"}


@pytest.mark.parametrize(
    ("added", "made"),
    [
        ("ADD CONSTRAINT made FOREIGN KEY (p_id) REFERENCES p (id)", {"made"}),
        ("ADD INDEX made (p_id), ADD FOREIGN KEY (p_id) REFERENCES p (id)", {"made"}),
        ("ADD q INT, ADD FOREIGN KEY (q) REFERENCES p (id), ADD FOREIGN KEY i (p_id) REFERENCES p (id)", {"q", "i"}),
    ],
    ids=["named", "with an index of its own", "unnamed"],
)
def test_the_target_has_the_indexes_of_the_shard(world: World, added: str, made: set[str]) -> None:
    world.tables = ("p", "c")
    begun(world, f"CREATE TABLE {PLAIN}", f"CREATE TABLE {CHILD}")
    world.change("INSERT INTO p VALUES (1, 1, 'x')", f"ALTER TABLE c {added}, ADD w INT")
    world.go()
    assert indexes_of(world, "c") == {"PRIMARY", *made}
    assert len(keys_of(world)) == added.count("FOREIGN")
    world.change("INSERT INTO c (id, p_id, w) VALUES (1, 1, 1)")
    world.go()
    world.assert_same()


def test_without_the_setting_the_target_keeps_a_foreign_key_of_its_own(world: World) -> None:
    world.tables = ("p", "c")
    begun(
        world,
        f"CREATE TABLE {PLAIN}",
        f"CREATE TABLE {CHILD[:-1]}, CONSTRAINT made FOREIGN KEY (p_id) REFERENCES p (id))",
        checks=0,
    )
    to = f"{world.name}_to"
    world.target.run(f"ALTER TABLE {to}.c ADD CONSTRAINT made FOREIGN KEY (p_id) REFERENCES {to}.p (id)")
    world.change("ALTER TABLE c DROP FOREIGN KEY made", "INSERT INTO c VALUES (1, 7)")
    world.go()
    world.assert_same()
    assert keys_of(world) == {"made: c (p_id) references p (id)"}


@pytest.mark.mariadb_only("TiDB takes REFERENCES in the definition of a column and does nothing")
@pytest.mark.parametrize("checks", [0, 1])
def test_a_reference_in_the_definition_of_a_column(world: World, checks: int) -> None:
    world.tables = ("p", "c")
    begun(world, f"CREATE TABLE {PLAIN}", f"CREATE TABLE {CHILD}", suffix="_r", checks=checks)
    world.change(
        "INSERT INTO p VALUES (1, 1, 'x')",
        "ALTER TABLE c ADD q INT REFERENCES p (id) ON DELETE SET NULL, ADD w INT",
        "INSERT INTO c VALUES (1, 1, 1, 1)",
    )
    world.go()
    world.assert_same("_r")
    found = {key.partition(": ")[2] for key in keys_of(world)}
    assert found == ({"c_r (q) references p_r (id) ON DELETE SET NULL"} if checks else set())
