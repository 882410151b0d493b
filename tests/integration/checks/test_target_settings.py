"""Settings of a TiDB target: the damage of each on a real server, and that `check` names it."""

from collections.abc import Callable

import pymysql
import pytest

from tests.integration.checks.test_target_structures import World, world
from unshard.core.checks.items import RULES, Item
from unshard.units.task.run import CreatedUnlike
from unshard_demo.servers import MariaDb

__all__ = ["world"]
ON_TIDB = pytest.mark.parametrize("target", [pytest.param("tidb", marks=pytest.mark.tidb)], indirect=True)
pytestmark = [pytest.mark.integration, ON_TIDB]


def session(target: MariaDb, table: str, *statements: str) -> pymysql.connections.Connection:
    connection = target.connect()
    columns = "id INT PRIMARY KEY, v VARCHAR(9) CHARSET utf8mb4, a VARCHAR(9) CHARSET ascii"
    made = f"CREATE TABLE IF NOT EXISTS {table} ({columns})"
    for statement in ("SET SESSION sql_mode = 'STRICT_ALL_TABLES'", made, *statements):
        connection.query(statement)
    return connection


def repeats_unchecked(target: MariaDb, table: str, name: str) -> bool:
    """Whether a transaction is committed although the row that it found has changed."""
    mine = session(
        target,
        table,
        f"INSERT INTO {table} (id, v) VALUES (1, 'epoch')",
        f"SET SESSION tidb_disable_txn_auto_retry = OFF, {name} = 'optimistic'",
    )
    mine.begin()
    assert mine.query(f"UPDATE {table} SET v = 'mine' WHERE id = 1 AND v = 'epoch'") == 1
    mine.query(f"INSERT INTO {table} (id) VALUES (2)")
    target.run(f"UPDATE {table} SET v = 'other' WHERE id = 1")
    mine.commit()
    return target.run(f"SELECT id, v FROM {table} ORDER BY id") == [(1, "other"), (2, None)]


def finds_keys_late(target: MariaDb, table: str, name: str) -> bool:
    mine = session(target, table, f"INSERT INTO {table} (id) VALUES (1)", f"SET SESSION {name} = OFF")
    mine.begin()
    mine.query(f"INSERT INTO {table} (id) VALUES (1)")
    with pytest.raises(pymysql.err.MySQLError, match=r"Duplicate|assertion: NotExist"):
        mine.commit()
    return True


def reads_old_rows(target: MariaDb, table: str, name: str) -> bool:
    mine = session(target, table)
    mine.begin()
    mine.query(f"SELECT * FROM {table}")
    ((now,),) = rows(mine, "SELECT @@tidb_current_ts")
    mine.rollback()
    target.run(f"SET GLOBAL tidb_external_ts = {now}", f"INSERT INTO {table} (id) VALUES (1)")
    mine.query(f"SET SESSION {name} = ON")
    return rows(mine, f"SELECT * FROM {table}") == []


def refuses_writes(target: MariaDb, table: str, name: str) -> bool:
    mine = session(target, table, f"SET SESSION {name} = ON")
    with pytest.raises(pymysql.err.MySQLError, match="can not execute write statement"):
        mine.query(f"INSERT INTO {table} (id) VALUES (1)")
    return True


def takes_bad_text(target: MariaDb, table: str, name: str) -> bool:
    column = "v" if "utf8" in name else "a"
    mine = session(target, table)
    insert = f"INSERT INTO {table} (id, {column}) VALUES (1, x'ff')"
    with pytest.raises(pymysql.err.MySQLError, match="Incorrect string value"):
        mine.query(insert)
    mine.query(f"SET SESSION {name} = ON")
    return mine.query(insert) == 1


def rows(connection: pymysql.connections.Connection, sql: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


Effect = Callable[[MariaDb, str, str], bool]
CASES: dict[str, tuple[str, Effect | None]] = {
    "tidb_txn_mode": ("optimistic", repeats_unchecked),
    "tidb_constraint_check_in_place_pessimistic": ("OFF", finds_keys_late),
    "tidb_read_staleness": ("-5", None),  # needs 5 seconds: tried by hand, a row was missing
    "tidb_enable_external_ts_read": ("ON", reads_old_rows),
    "tidb_low_resolution_tso": ("ON", refuses_writes),
    "tidb_skip_utf8_check": ("ON", takes_bad_text),
    "tidb_skip_ascii_check": ("ON", takes_bad_text),
}


def settings(world: World) -> list[Item]:
    return [item for item in world.all_items() if item.name == "target_settings"]


@pytest.mark.parametrize("name", RULES)
def test_a_setting_does_harm_and_check_names_it(world: World, name: str) -> None:
    value, effect = CASES[name]
    world.target.run(f"CREATE DATABASE {world.schema}")
    assert effect is None or effect(world.target, f"{world.schema}.e", name)
    world.create("t", "id INT PRIMARY KEY")
    assert [item.code for item in settings(world)] == [""]
    world.session = {name: value}
    world.task()
    (found,) = settings(world)
    assert (found.code, found.severity) == ("US-2360", "error") and name in found.message + found.remedy


def test_a_target_that_is_read_only_is_refused(world: World) -> None:
    world.create("t", "id INT PRIMARY KEY")
    world.target.run("SET GLOBAL tidb_super_read_only = ON")
    try:
        found = [item for item in world.all_items() if item.severity == "error"]
    finally:
        world.target.run("SET GLOBAL tidb_super_read_only = OFF")
    assert [item.name for item in found] == ["target_structure"] and "read-only" in found[0].message


def test_the_limit_of_connections(world: World) -> None:
    world.create("t", "id INT PRIMARY KEY")
    world.target.run("SET GLOBAL max_connections = 15")  # a loader has 16 threads
    try:
        (found,) = [item for item in world.all_items() if item.name == "conn_number" and item.place == "target"]
    finally:
        world.target.run("SET GLOBAL max_connections = 0")
    assert (found.code, found.severity) == ("US-2328", "warning")


def test_clustered_keys_are_named_and_the_task_chooses(world: World) -> None:
    world.create("t", "id INT PRIMARY KEY, v INT")
    assert [item.code for item in world.all_items() if item.name == "clustered_key"] == ["US-2358"]
    world.options = {"target-primary-key": "clustered"}
    world.task()
    assert [item for item in world.all_items() if item.name == "clustered_key"] == []
    world.options = {"target-primary-key": "nonclustered"}
    world.task()
    assert [item for item in world.all_items() if item.name == "clustered_key"] == []
    world.source.run(f"INSERT INTO {world.schema}_1.t VALUES (1, 2), (2, 3)")
    world.run()
    ((_, made),) = world.target.run(f"SHOW CREATE TABLE {world.schema}.t")
    assert "NONCLUSTERED" in str(made) and world.compare("t") == 2
    world.source.run(
        f"ALTER TABLE {world.schema}_1.t DROP PRIMARY KEY",
        f"ALTER TABLE {world.schema}_1.t ADD PRIMARY KEY (id, v)",
        f"INSERT INTO {world.schema}_1.t VALUES (1, 3)",
    )
    outcome = world.run()
    assert outcome.exit_code == 0 and world.compare("t") == 3


def test_tables_that_exist_are_looked_at_for_their_key(world: World) -> None:
    world.create("t", "id INT PRIMARY KEY")
    world.target.run(
        f"CREATE DATABASE {world.schema}", f"CREATE TABLE {world.schema}.t (id INT PRIMARY KEY NONCLUSTERED)"
    )
    assert [item for item in world.all_items() if item.name == "clustered_key"] == []


def test_indexes_are_left_out_on_request(world: World) -> None:
    world.create("t", "id INT PRIMARY KEY, v INT, w INT, KEY k (v) IGNORED, KEY j (w)")
    world.source.run(f"INSERT INTO {world.schema}_1.t VALUES (1, 2, 3)")
    (refused,) = world.items("t")
    assert (refused.code, refused.severity) == ("US-2353", "error") and "leave-out" in refused.remedy
    world.options = {"unsupported-indexes": "leave-out"}
    world.task()
    (told,) = world.items("t")
    assert (told.code, told.severity) == ("US-2357", "warning") and "k (" in told.message
    _, notes = world.noted()
    assert [note.message for note in notes if isinstance(note, CreatedUnlike)] == [told.message]
    assert {index for _, _, index, *_ in world.target.run(f"SHOW INDEX FROM {world.schema}.t")} == {"PRIMARY", "j"}
    world.source.run(
        f"ALTER TABLE {world.schema}_1.t ADD COLUMN x INT", f"INSERT INTO {world.schema}_1.t VALUES (2, 3, 4, 5)"
    )
    outcome = world.run()
    assert outcome.exit_code == 0 and world.compare("t") == 2
