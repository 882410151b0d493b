"""Changes of rows that MySQL logs as statements, which list the schemas of the tables that they write.

tests/integration/window/test_ignored_statements.py has the same on MariaDB, whose events list nothing.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.window.test_ignored_statements import as_statements, elsewhere, foreign, seen, skip_changes
from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from unshard.core.ddl.lock import LockState
from unshard.operate.command import Skip
from unshard.operate.issuing import give
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def task(mysql: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    """Shards t_1, t_2 and u_1 on a MySQL, t_1 on a MariaDB; a schema on the MySQL does not belong to the task."""
    numbers = {("s1", "t"): (1, 2), ("s1", "u"): (1,), ("s2", "t"): (1,)}
    columns = {"t": "id INT PRIMARY KEY, v INT", "u": "id INT PRIMARY KEY"}
    with living(unique, tmp_path, (mysql, source_2, target), "tu", columns=columns, numbers=numbers) as made:
        mysql.run(f"CREATE DATABASE {foreign(unique)}")
        yield made
        mysql.run(f"DROP DATABASE {foreign(unique)}")


def skip_all(task: LiveTask) -> None:
    while locks := open_locks(task.work().meta):
        give(task.work().meta, Skip(locks[0].id), "operator", "test", "done by hand")
        task.run()


def test_changes_of_other_tables_are_passed_over(task: LiveTask) -> None:
    """MySQL does not list the schemas of tables with foreign keys: the catalog tells of x and y, but not of a view."""
    t = f"{task.name}.t_1"
    elsewhere(
        task,
        "CREATE TABLE x (id INT PRIMARY KEY, v DOUBLE, w BLOB)",
        "CREATE TABLE y (id INT, FOREIGN KEY (id) REFERENCES x (id) ON DELETE CASCADE)",
        "CREATE TABLE q (id INT)",
        "CREATE TABLE z (id INT)",
        "CREATE VIEW w AS SELECT id FROM q",
        "CREATE TRIGGER g AFTER INSERT ON z FOR EACH ROW UPDATE q SET id = 9 WHERE id = NEW.id",
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC BEGIN INSERT INTO q VALUES (6); RETURN 1; END",
        "CREATE PROCEDURE p() INSERT INTO q VALUES (7)",
        f"INSERT INTO {t} VALUES (1, 1)",
        *as_statements(
            "INSERT INTO x VALUES (1, RAND(), _binary 0xFF), (2, 2, 'x''y')",
            f"REPLACE INTO x SELECT id, v, '{t}' FROM {t}",
            "UPDATE x, y SET x.v = 3, y.id = y.id WHERE x.id = y.id",
            "INSERT INTO w VALUES (8)",
            "INSERT INTO y VALUES (1)",
            "INSERT INTO z VALUES (8)",
            "SELECT f()",
            "CALL p()",
            "DELETE FROM x WHERE id = 2",
            "WITH c AS (SELECT 2 AS id) DELETE x FROM x JOIN c ON x.id = c.id",
            "CREATE TEMPORARY TABLE tmp (id INT)",
            "INSERT INTO tmp VALUES (1)",
            "INSERT INTO x SELECT id + 20, 1, '' FROM tmp",
            "DROP TEMPORARY TABLE tmp",
            "BEGIN",
            "INSERT INTO x VALUES (4, 4, '')",
            "SAVEPOINT s",
            "DELETE FROM x WHERE id = 4",
            "ROLLBACK TO s",
            "COMMIT",
            "XA START 'a'",
            "INSERT INTO x VALUES (5, 5, '')",
            "XA END 'a'",
            "XA PREPARE 'a'",
            "XA COMMIT 'a'",
            "SET insert_id = 7",
            "SET timestamp = 1700000000",
            "UPDATE x SET v = UNIX_TIMESTAMP() WHERE id = 1",
        ),
        f"INSERT INTO {t} VALUES (2, 2)",
    )
    task.run()
    task.restart()
    task.assert_settled()
    assert seen(task) == [1, 2] and task.upstream_end("s1") == task.checkpoint("s1")


def test_changes_of_shards_hold_those_shards(task: LiveTask) -> None:
    """A table that is named in another schema, and one of the shards' schema that is no shard, hold nothing."""
    name = task.name
    task.sources["s1"].run(
        f"USE {foreign(name)}",
        *as_statements(
            f"INSERT INTO {name}.t_1 VALUES (1, 1)",
            f"UPDATE {name}.t_1, {name}.t_2 SET {name}.t_2.v = 1",
            f"WITH c AS (SELECT 1 AS id) UPDATE {name}.t_1 JOIN c ON t_1.id = c.id SET v = 2",
        ),
        f"INSERT INTO {name}.t_1 VALUES (5, 5)",
        f"UPDATE {name}.t_1 SET v = 6 WHERE id = 1",
        f"INSERT INTO {name}.u_1 VALUES (3)",
    )
    task.sources["s2"].run(f"INSERT INTO {name}.t_1 VALUES (3, 3)")
    task.run()
    assert seen(task) == [3] and task.assert_union("u") == 1
    assert task.upstream_end("s1") == task.checkpoint("s1")
    task.target.run(f"INSERT INTO {task.table('t')} VALUES (1, 2)")
    skip_changes(task)
    task.assert_settled()
    assert seen(task) == [1, 3, 5]


def test_a_file_that_is_loaded(task: LiveTask, tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_text("8\t8\n")
    elsewhere(task, "CREATE TABLE x (id INT, v INT)")
    with contextlib.closing(task.sources["s1"].connect(local_infile=True)) as connection:
        cursor = connection.cursor()
        for table in (f"{foreign(task.name)}.x", f"{task.name}.t_1"):
            for text in as_statements(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table}"):
                cursor.execute(text)
            task.run()
            assert len(open_locks(task.work().meta)) == (table == f"{task.name}.t_1")
    task.target.run(f"INSERT INTO {task.table('t')} VALUES (8, 8)")
    skip_changes(task)
    task.assert_settled()


HIDDEN = {
    "trigger": (
        "CREATE TRIGGER g AFTER INSERT ON x FOR EACH ROW INSERT INTO {t} VALUES (1, 1)",
        "INSERT INTO x VALUES (1)",
        "DROP TRIGGER g",
    ),
    "view": ("CREATE VIEW w AS SELECT id, v FROM {t}", "INSERT INTO w VALUES (1, 1)", "DROP VIEW w"),
    "function": (
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC BEGIN INSERT INTO {t} VALUES (1, 1); RETURN 1; END",
        "SELECT f()",
        "DROP FUNCTION f",
    ),
    "procedure": ("CREATE PROCEDURE p() INSERT INTO {t} VALUES (1, 1)", "CALL p()", "DROP PROCEDURE p"),
    "several tables": ("DO 1", "UPDATE x, {t} SET {t}.v = 9 WHERE x.id = {t}.id", "DROP TABLE x"),
    "cascade": (
        "ALTER TABLE {t} ADD CONSTRAINT k FOREIGN KEY (v) REFERENCES {x} (id) ON DELETE CASCADE",
        "DELETE FROM x WHERE id = 7",
        "ALTER TABLE {t} DROP FOREIGN KEY k",
    ),
}
BY_HAND = {
    "cascade": "DELETE FROM {} WHERE id = 7",
    "several tables": "UPDATE {} SET v = 9 WHERE id = 7",
}


@pytest.mark.sample(reason="the way to the shards, and whether it is dropped later, do not interact", every=3)
@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("way", [*HIDDEN])
def test_a_change_of_shards_by_another_table_is_never_passed_over(task: LiveTask, way: str, is_dropped: bool) -> None:
    """Also if what has led to the shards is dropped before the windows come there."""
    t = f"{task.name}.t_1"
    made, change, drop = (text.format(t=t, x=f"{foreign(task.name)}.x") for text in HIDDEN[way])
    elsewhere(task, "CREATE TABLE x (id INT PRIMARY KEY)", "INSERT INTO x VALUES (7)", made)
    task.sources["s1"].run(f"INSERT INTO {t} VALUES (7, 7)")
    task.run()
    skip_all(task)  # the foreign key, which only one shard gets
    assert task.assert_union("t") == 1
    elsewhere(task, *as_statements(change), *([drop] if is_dropped else []))
    task.run()
    (found, *_) = open_locks(task.work().meta)
    assert found.state is LockState.UNDECIDED and "[US-3013]" in found.reason
    by_hand = BY_HAND.get(way, "INSERT INTO {} VALUES (1, 1)")
    task.target.run(by_hand.format(task.table("t")))
    skip_all(task)
    task.assert_settled()
    if way == "cascade" and not is_dropped:
        task.sources["s1"].run(drop)  # so that its parent can be dropped


def test_a_statement_that_uses_more_schemas_than_the_event_lists(task: LiveTask) -> None:
    """MySQL lists at most 16 names, else it says that it does not know. Then the text and the catalog decide."""
    t, schemas = f"{task.name}.t_1", [f"{foreign(task.name)}_{number}" for number in range(17)]
    server = task.sources["s1"]
    server.run("DO 1", *(f"CREATE DATABASE {schema}" for schema in schemas))
    server.run("DO 1", *(f"CREATE TABLE {schema}.x (id INT)" for schema in schemas))
    try:
        tables = [f"{schema}.x" for schema in schemas]
        sets = ", ".join(f"{table}.id = 1" for table in tables)
        update = f"UPDATE {', '.join(tables)} SET {sets}"
        server.run(f"INSERT INTO {t} VALUES (1, 1)", *as_statements(update), f"INSERT INTO {t} VALUES (2, 2)")
        task.run()
        task.assert_settled()
        assert seen(task) == [1, 2]
        update = f"UPDATE {', '.join((*tables, t))} SET {sets}, {t}.v = 5"
        server.run(*as_statements(update))
        task.run()
        assert len(open_locks(task.work().meta)) == 1
        skip_changes(task)
    finally:
        server.run("DO 1", *(f"DROP DATABASE {schema}" for schema in schemas))


def test_an_account_that_does_not_see_everything(task: LiveTask) -> None:
    """The list of schemas is in the event; what may concern shards cannot be found out, so all of them wait."""
    account, t = f"a{task.name[-12:]}", f"{task.name}.t_1"
    server = task.sources["s1"]
    server.run(
        f"CREATE USER {account}@'%' IDENTIFIED BY 'x'",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}@'%'",
        f"GRANT SELECT ON {task.name}.* TO {account}@'%'",
        f"CREATE TABLE {task.name}.other (id INT)",
    )
    try:
        file = task.folder / "sources" / "s1.yaml"
        body = yaml.safe_load(file.read_text())
        body["from"] |= {"user": account, "password": "x"}
        file.write_text(yaml.safe_dump(body))
        task.restart()
        elsewhere(task, "CREATE TABLE x (id INT)", *as_statements("INSERT INTO x VALUES (1)"))
        server.run(f"INSERT INTO {t} VALUES (1, 1)")
        task.run()
        task.assert_settled()
        server.run(*as_statements(f"INSERT INTO {task.name}.other VALUES (1)"))
        task.run()
        locks = open_locks(task.work().meta)
        assert {lock.target.name for lock in locks} == {"t", "u", "other"}
        skip_changes(task)
        task.assert_settled()
    finally:
        server.run(f"DROP USER {account}@'%'")
