"""Names of CHECK constraints and foreign keys, which MySQL keeps unique in a schema and makes from the table's name.

The shards of two targets of one schema lie in different schemas, so they may have the same names.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifetask import LifeTask, living
from tests.oracle import assert_union
from tests.taskfile import endpoint, route
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

NAMES = (
    "SELECT TABLE_NAME, CONSTRAINT_NAME FROM information_schema.TABLE_CONSTRAINTS"
    " WHERE CONSTRAINT_SCHEMA = '{}_to' AND CONSTRAINT_TYPE IN ('CHECK', 'FOREIGN KEY') ORDER BY 1, 2"
)
NUMBERS, GROUPS = (1, 2), "tu"


def names(task: LifeTask) -> dict[str, set[str]]:
    """Return the names of constraints by target table."""
    found: dict[str, set[str]] = {}
    for table, name in task.target.run(NAMES.format(task.name)):
        found.setdefault(str(table), set()).add(str(name))
    return found


def enforced_checks(server: MariaDb, schema: str) -> dict[str, str]:
    sql = "SELECT CONSTRAINT_NAME, ENFORCED FROM information_schema.TABLE_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = '{}'"
    return {str(name): str(value) for name, value in server.run(f"{sql.format(schema)} AND CONSTRAINT_TYPE = 'CHECK'")}


class Twins:
    """Two groups in one target schema, `t` and `u`, each with the parents of its foreign keys, `pt` and `pu`.

    Each shard is in a schema of its own.
    """

    def __init__(self, task: LifeTask, mode: str, into: str) -> None:
        self.task, self.mode, self.into, (self.server,) = task, mode, into, task.sources.values()
        schemas = [f"{task.name}_{group}{number}" for group in GROUPS for number in NUMBERS]
        self.shards = {g: [f"{task.name}_{g}{number}.{g}_{number}" for number in NUMBERS] for g in GROUPS}
        tables = [f"{parent}{group}" for group in GROUPS for parent in ("p", "")]
        task.body["routes"] = {
            table: route(f"{task.name}_??", f"{table}_*", f"{task.name}_to", table) for table in tables
        }
        task.body["mysql-instances"][0]["route-rules"] = tables
        task.body["shard-mode"] = mode
        task.body["target-database"] = {**endpoint(task.target), "session": {"foreign_key_checks": 1}}
        task.body["block-allow-list"] = {"ours": {"do-dbs": schemas}}
        task.write()
        self.server.run("DO 1", *(f"CREATE DATABASE {schema}" for schema in schemas))

    def create(self, definition: str) -> None:
        for group, shards in self.shards.items():
            for number, shard in zip(NUMBERS, shards, strict=True):
                parent = f"{shard.partition('.')[0]}.p{group}_{number}"
                self.server.run(
                    f"CREATE TABLE {parent} (id INT PRIMARY KEY)",
                    f"INSERT INTO {parent} VALUES ({number})",
                    f"CREATE TABLE {shard} ({definition.format(parent=parent)})",
                )

    def run(self, text: str) -> None:
        """Run a statement on each shard, with its name and number, and all that follows from it."""
        if self.into == "mariadb_target":
            text = text.replace("DROP CHECK", "DROP CONSTRAINT")
        for shards in self.shards.values():
            for shard in shards:
                schema, _, name = shard.partition(".")
                self.server.run(f"USE {schema}", text.format(name, name[-1]))
        self.go()

    def alter(self, *specs: str) -> None:
        """Make changes in one statement; on TiDB in one each: it takes foreign keys apart from other changes."""
        for some in [[spec] for spec in specs] if self.into == "tidb_target" else [specs]:
            self.run(f"ALTER TABLE {{0}} {', '.join(some)}")

    def go(self) -> None:
        assert not self.task.go().locks
        for group, shards in self.shards.items():
            assert_union(self.task.sources, {"s1": shards}, self.task.target, f"{self.task.name}_to.{group}")


@pytest.fixture
def twins(mode: str, into: str, request: pytest.FixtureRequest, unique: str, tmp_path: Path) -> Iterator[Twins]:
    """The shards are on a MySQL, or on a MariaDB if the target is one."""
    source: MariaDb = request.getfixturevalue("source_1" if into == "mariadb_target" else "mysql")
    with living(unique, tmp_path, {"s1": source}, request.getfixturevalue(into)) as task:
        yield Twins(task, mode, into)
        task.target.run("SET foreign_key_checks = 0", f"DROP DATABASE IF EXISTS {unique}_to")


INTO = [
    ("pessimistic", "mysql"),
    ("pessimistic", "mariadb_target"),
    ("optimistic", "mariadb_target"),
    ("optimistic", "mysql"),
    pytest.param(
        "pessimistic", "tidb_target", marks=pytest.mark.test_all("half a minute each; MySQL has the same rule")
    ),
]
"""Optimistic mode follows the drop of a foreign key only in a statement that changes more, which TiDB does not take."""


CHOSEN = (
    "id INT PRIMARY KEY, a INT, CONSTRAINT positive CHECK (a > 0),"
    " CONSTRAINT parent FOREIGN KEY (a) REFERENCES {parent} (id)"
)


@pytest.mark.parametrize(("mode", "into"), INTO)
@pytest.mark.sample(reason="the mode and the target do not interact", every=3)
def test_two_targets_of_a_schema_whose_shards_have_the_same_names(twins: Twins) -> None:
    """Each has its constraints, under the name of the shards or with its own name in front; DDL finds them."""
    twins.create(CHOSEN)
    twins.run("INSERT INTO {0} VALUES ({1}, {1})")
    found = names(twins.task)
    if twins.into == "mysql":
        (first,) = (table for table, own in found.items() if own == {"parent", "positive"})
        (other,) = found.keys() - {first}
        assert found[other] == {f"{other}_parent", f"{other}_positive"}
    elif twins.into == "mariadb_target":
        assert sorted(map(len, found.values())) == [2, 2]
        assert all("positive" in own for own in found.values()), "they are unique in a table"
    else:
        assert found == {"t": {"parent"}, "u": {"parent"}}
    twins.run("ALTER TABLE {0} ADD CONSTRAINT `Small One` CHECK (a < 100), ADD CONSTRAINT other CHECK (id > 0)")
    twins.run("ALTER TABLE {0} DROP CHECK positive, DROP CHECK `small one`, ADD b INT")
    twins.run("INSERT INTO {0} VALUES (1{1}, NULL, 1)")
    twins.run("ALTER TABLE {0} DROP CONSTRAINT other, ADD CONSTRAINT positive CHECK (b > 0)")
    if twins.into != "tidb_target":
        left = [sorted(name.rpartition("_")[2] for name in own) for own in names(twins.task).values()]
        assert left == [["parent", "positive"]] * 2
    twins.alter("DROP CONSTRAINT parent", "DROP CONSTRAINT positive")
    assert names(twins.task) == {}


MADE = "id INT PRIMARY KEY, a INT, b INT, CHECK (a > 0), CHECK (b < 100), FOREIGN KEY (a) REFERENCES {parent} (id)"


@pytest.mark.parametrize(("mode", "into"), [each for each in INTO if "mariadb_target" not in each])
@pytest.mark.sample(reason="the mode and the target do not interact", every=2)
def test_names_that_the_server_has_made_from_the_name_of_the_shard(twins: Twins) -> None:
    twins.create(MADE)
    twins.run("INSERT INTO {0} VALUES ({1}, {1}, 1)")
    has_checks = twins.into == "mysql"
    checks = ("chk_1", "chk_2") if has_checks else ()
    assert names(twins.task) == {group: {f"{group}_{end}" for end in (*checks, "ibfk_1")} for group in GROUPS}
    twins.run("ALTER TABLE {0} ALTER CHECK {0}_chk_2 NOT ENFORCED")
    if has_checks and twins.mode == "pessimistic":
        assert enforced_checks(twins.task.target, f"{twins.task.name}_to")["t_chk_2"] == "NO"
    twins.run("ALTER TABLE {0} DROP CHECK {0}_chk_1, ADD c INT, ADD CHECK (c <> 5)")
    twins.alter("DROP CONSTRAINT {0}_chk_2", "DROP CONSTRAINT {0}_ibfk_1")
    assert [len(own) for own in names(twins.task).values()] == [1, 1][: 2 * has_checks]
    twins.run("INSERT INTO {0} VALUES (1{1}, -1, 1000, 6)")
    for group, shards in twins.shards.items():
        new = [shard.replace(f".{group}_", f".{group}_7") for shard in shards]
        twins.server.run("DO 1", *(f"RENAME TABLE {one} TO {other}" for one, other in zip(shards, new, strict=True)))
        twins.shards[group] = new
    twins.go()
    twins.run("ALTER TABLE {0} DROP CHECK {0}_chk_3")
    assert names(twins.task) == {}
