"""The join on real servers: after random DDL of its shards, the ALTER TABLE statements make the target the join.

Tables have columns of all types. The server decides which DDL is valid and what it leads to. `UNSHARD_EXAMPLES=1000`
plays 1,000 rollouts.
"""

import contextlib
import random
from collections.abc import Iterator

import pytest
from pymysql.connections import Connection

from tests.suite.portions import examples
from unshard.adapters.mysql import connect, query
from unshard.adapters.structures import read_schema
from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.join.decision import Change, Decision, decide, executed, steps_to_join, wanted
from unshard.core.join.difference import Step, Target, alter_parts, apply, is_equal, target_of
from unshard.core.join.group import begin
from unshard.core.model import Shard, TableId, TableSchema
from unshard.errors.base import ServerError
from unshard_demo.servers import MariaDb

pytestmark = [
    pytest.mark.integration,
    pytest.mark.mariadb_only("the random statements are in the dialect of MariaDB"),
]

EXAMPLES = examples(0, 3, 200)
STEPS = 14
TYPES = (
    *("TINYINT", "TINYINT(1)", "SMALLINT UNSIGNED", "MEDIUMINT", "INT", "INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED"),
    *("INT(6) ZEROFILL", "DECIMAL(8,2)", "DECIMAL(10,4) UNSIGNED", "DECIMAL(65,30)", "FLOAT", "DOUBLE", "DOUBLE(9,3)"),
    *(
        "CHAR(5)",
        "VARCHAR(20)",
        "VARCHAR(300) CHARACTER SET latin1",
        "VARCHAR(15000)",
        "VARCHAR(9) COLLATE utf8mb4_bin",
    ),
    *("TINYTEXT", "TEXT", "MEDIUMTEXT CHARACTER SET utf8mb3", "LONGTEXT", "TEXT CHARACTER SET latin1", "JSON"),
    *("BINARY(4)", "BINARY(8)", "VARBINARY(20)", "TINYBLOB", "BLOB", "LONGBLOB", "BIT(5)", "BIT(64)"),
    *("ENUM('a','b')", "ENUM('b','a','c''d')", "ENUM('a','x')", "SET('a','b')", "SET('a','\\\\')", "UUID", "INET6"),
    *("DATE", "YEAR", "DATETIME", "DATETIME(3)", "TIMESTAMP NULL", "TIMESTAMP(6) NULL", "TIME", "TIME(2)"),
    *("GEOMETRY", "POINT", "CHAR(3) CHARACTER SET ucs2", "VARCHAR(9) CHARACTER SET ascii COLLATE ascii_bin"),
)
DEFAULTS = {
    "INT": ("7", "-1", "NULL"),
    "CHAR": ("'x'", "'it''s'", "''"),
    "DATETIME": ("current_timestamp()", "'2024-01-01 00:00:00'"),
    "DECIMAL": ("1.5",),
    "BIT": ("b'101'",),
}
FIRST = "id INT PRIMARY KEY, a INT NOT NULL, b VARCHAR(20), c DECIMAL(8,2) DEFAULT 1.50 COMMENT 'with, (a comment)'"


class Rollout:
    """Two or three tables that are altered at random, and a target that follows."""

    def __init__(self, connection: Connection, schema: str, dice: random.Random) -> None:
        self.connection, self.schema, self.dice = connection, schema, dice
        self.shards = [Shard("s1", TableId(schema, f"t{number}")) for number in range(1, dice.randrange(3, 5))]
        self.id = TableId(schema, "target")
        for table in (*(shard.table for shard in self.shards), self.id):
            query(connection, f"CREATE TABLE {table} ({FIRST}) CHARSET utf8mb4")
        self.group = begin({shard: read_schema(connection, shard.table) for shard in self.shards})
        self.target = wanted(self.group)
        self.serial, self.executed = 0, list[str]()

    def shard_step(self) -> None:
        shard = self.dice.choice(self.shards)
        own = read_schema(self.connection, shard.table)
        sql = f"ALTER TABLE {shard.table} {self.clause(own)}"
        before = query(self.connection, f"SHOW CREATE TABLE {shard.table}")[0][1]
        try:
            query(self.connection, sql)
        except ServerError:
            return
        after = read_schema(self.connection, shard.table)
        decided = decide(self.group, self.target, shard, Change((ExecutedDdl(sql, 0),), after))
        self.executed.append(f"{sql} -> {decided}")
        if decided.decision in (Decision.CONFLICT, Decision.BARRIER):
            query(self.connection, f"DROP TABLE {shard.table}")
            query(self.connection, str(before).replace("CREATE TABLE `", f"CREATE TABLE {self.schema}.`", 1))
            return
        self.run(decided.first)
        self.group = executed(decided.group, decided.first)
        self.run(decided.steps)

    def contract(self) -> None:
        steps = steps_to_join(self.group, self.target).contracting
        self.run(steps)
        self.group = executed(self.group, steps)
        assert is_equal(self.target, wanted(self.group)), self.executed

    def run(self, steps: tuple[Step, ...]) -> None:
        """Execute steps; then the target on the server is what the core expects."""
        expected = apply(steps, self.target)
        for text in (part.text for part in alter_parts(self.id, steps, expected.names)):
            self.executed.append(text)
            try:
                query(self.connection, text)
            except ServerError as error:
                raise AssertionError("\n".join([*self.executed, str(error)])) from error
        found = read_schema(self.connection, self.id)
        present = target_of(found, expected.names)
        assert len(found.columns) == len(expected.names), self.executed
        assert is_equal(present, expected), "\n".join([*self.executed, found.create_sql, *differing(present, expected)])
        assert dict(present.table.keys) == dict(expected.table.keys), self.executed
        self.target = present

    def clause(self, own: TableSchema) -> str:
        pick = self.dice.choice
        names = [name for name in own.names if name != "id"] or ["id"]
        some, new = pick(names), self.name("n")
        key, prefix = pick(("k", "k2", self.name("k"))), pick(("", "(3)"))
        return pick(
            (
                lambda: f"ADD COLUMN {new} {self.definition()}{pick(('', ' FIRST', ' AFTER id'))}",
                lambda: f"ADD COLUMN {new} {self.definition()}",
                lambda: f"ADD COLUMN {pick(('n1', 'n2', 'n3', 'n4', 'a', 'b', 'c'))} {self.definition()}",
                lambda: f"DROP COLUMN {some}",
                lambda: f"MODIFY {some} {self.definition()}",
                lambda: f"MODIFY {some} {self.definition()}",
                lambda: f"CHANGE {some} {new} {self.definition()}",
                lambda: f"RENAME COLUMN {some} TO {pick((new, 'a', 'b', 'c'))}",
                lambda: f"RENAME COLUMN {some} TO {names[0]}, RENAME COLUMN {names[0]} TO {some}",
                lambda: f"DROP COLUMN {some}, ADD COLUMN {some} {self.definition()}",
                lambda: f"ADD {pick(('', 'UNIQUE '))}KEY {key} ({some}{prefix}, id)",
                lambda: f"ADD KEY {self.name('k')} ({pick(names)}, {some})",
                lambda: f"ADD FULLTEXT KEY {self.name('f')} ({some})",
                lambda: f"ADD SPATIAL KEY {self.name('s')} ({some})",
                lambda: f"DROP KEY {pick([index.name for index in own.indexes])}",
                lambda: f"ADD CONSTRAINT {self.name('c')} CHECK ({some} IS NOT NULL)",
                lambda: f"ADD COLUMN {new} INT AS (id + {self.dice.randrange(2)}) {pick(('STORED', 'VIRTUAL'))}",
                lambda: f"ALTER {some} SET DEFAULT {pick(('1', 'NULL'))}",
                lambda: f"ADD COLUMN {new} INT CHECK ({new} > 0)",
                lambda: f"ADD COLUMN {new} INT INVISIBLE DEFAULT 3 COMMENT 'x'",
                lambda: f"CONVERT TO CHARACTER SET {pick(('utf8mb4', 'latin1'))}",
                lambda: "ENGINE=InnoDB, COMMENT 'another'",
            )
        )()

    def definition(self) -> str:
        kind = self.dice.choice(TYPES)
        found = next((values for word, values in DEFAULTS.items() if word in kind and "UNSIGNED" not in kind), ())
        default = f" DEFAULT {self.dice.choice(found)}" if found and self.dice.random() < 0.4 else ""
        nullable = "" if "NULL" in kind or "NULL" in default else self.dice.choice(("", "", " NOT NULL"))
        return f"{kind}{nullable}{default}"

    def name(self, letter: str) -> str:
        self.serial += 1
        return f"{letter}{self.serial}"


def differing(present: Target, expected: Target) -> Iterator[str]:
    for id in {*present.table.columns, *expected.table.columns}:
        one, two = present.table.columns.get(id), expected.table.columns.get(id)
        if one != two:
            yield f"{id}:\n  {one}\n  {two}"
    yield str([str(key) for key in {*present.table.keys} ^ {*expected.table.keys}])
    yield str([str(check) for check in {*present.table.checks} ^ {*expected.table.checks}])


def played(server: MariaDb, schema: str, number: int) -> None:
    server.run(f"DROP DATABASE IF EXISTS {schema}", f"CREATE DATABASE {schema} CHARSET utf8mb4")
    with contextlib.closing(connect(server.server)) as connection:
        rollout = Rollout(connection, schema, random.Random(number))
        for _ in range(STEPS):
            rollout.shard_step()
            if rollout.dice.random() < 0.3:
                rollout.contract()
        rollout.contract()
    server.run(f"DROP DATABASE {schema}")


def test_the_target_becomes_the_join(mariadb_target: MariaDb, unique: str) -> None:
    for number in range(EXAMPLES):
        played(mariadb_target, unique, number)
