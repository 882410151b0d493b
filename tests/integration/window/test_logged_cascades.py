"""MySQL logs the changes that a foreign key makes from 9.6 on, before the change of the parent and without checks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.window.test_foreign_keys import PLAIN, World, living
from tests.versions import Version
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def mysql(server_folder: Path) -> Iterator[MariaDb]:
    with Version("mysql-9.7", 431).running(server_folder / "cascades") as server:
        yield server


@pytest.fixture
def world(mysql: MariaDb, mariadb_target: MariaDb, unique: str, tmp_path: Path) -> Iterator[World]:
    with living(unique, tmp_path, {"s1": mysql}, mariadb_target, "p", "c", "k", "n") as made:
        yield made


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
@pytest.mark.parametrize("safe", [True, False], ids=["safe", "plain"])
def test_changes_of_cascades_in_the_binlog(world: World, action: str, safe: bool) -> None:
    key = f"FOREIGN KEY (p_id) REFERENCES p (id) ON DELETE {action} ON UPDATE CASCADE"
    unique = "PRIMARY KEY" if action == "CASCADE" else "UNIQUE"
    world.change(
        f"CREATE TABLE {PLAIN}",
        f"CREATE TABLE c (id INT PRIMARY KEY, p_id INT, v VARCHAR(9), {key})",
        f"CREATE TABLE k (p_id INT {unique}, v VARCHAR(9), {key})",
        f"CREATE TABLE n (p_id INT, v VARCHAR(9), {key})",
        "INSERT INTO p VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
        "INSERT INTO c VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 2, 'd')",
        "INSERT INTO k VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "INSERT INTO n VALUES (1, 'a'), (2, 'b'), (2, 'b'), (3, 'c')",
    )
    world.write(safe=safe)
    assert "US-2367" not in world.checked()
    world.go()
    world.assert_same()
    world.change("UPDATE p SET v = 'x' WHERE id = 1", "DELETE FROM p WHERE id = 2")
    world.go()
    world.assert_same()
    world.change(
        "UPDATE p SET id = 11, v = 'y' WHERE id = 1",
        "UPDATE p SET id = 33 WHERE id = 3",
        "INSERT INTO c VALUES (9, 33, 'z')",
        "DELETE FROM p WHERE id = 33",
    )
    world.go()
    world.assert_same()
