"""Following: after any DDL on a source, the structure that we track is the one that the source has.

Random statements of many forms run on a real source, in sessions of several kinds; after each, the structures
that the server itself reports are noted. Then everything is read back from its binlog, as windows read it, and
the structures that follow from the statements alone must be the noted ones, statement by statement.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest

from unshard.adapters import upstream
from unshard.adapters.mysql import connect, query
from unshard.adapters.relayfiles import RelayStore
from unshard.adapters.structures import read_schemas
from unshard.adapters.targetddl import DdlTrialTables
from unshard.core.ddl.effects import Coordinated, Joins, Leaves
from unshard.core.model import TableId, TableSchema
from unshard.core.rules.filters import EventFilter
from unshard.core.rules.reshaping import AS_IT_IS, Reshaping
from unshard.core.sql.quoting import identifier
from unshard.core.structures.comparison import shape_differences
from unshard.units.ddl.effects import DdlEffects
from unshard.units.relay import pull
from unshard_demo.servers import MariaDb

pytestmark = [
    pytest.mark.integration,
    pytest.mark.mariadb_only("the random statements are in the dialect of MariaDB"),
]

SEEDS = (1, 2, 3, 4, 5)
STATEMENTS = 40
MODES = (
    "",
    "STRICT_TRANS_TABLES",
    "ANSI_QUOTES",
    "NO_BACKSLASH_ESCAPES",
    "ANSI_QUOTES,STRICT_ALL_TABLES",
    "TRADITIONAL",
    "NO_ZERO_DATE,ALLOW_INVALID_DATES",
)
CHARSETS = ("utf8mb4", "latin1", "utf8mb3")
TYPES = (
    "INT",
    "BIGINT UNSIGNED NOT NULL DEFAULT 7",
    "VARCHAR(30)",
    "TEXT",
    "DECIMAL(12,3)",
    "JSON",
    "BIT(9)",
    "DOUBLE",
    "REAL",
    "YEAR",
    "DATE",
    "TIME(3)",
    "BOOLEAN DEFAULT TRUE",
    "NATIONAL VARCHAR(10)",
    "INET6",
    "UUID",
    "MEDIUMBLOB",
    "VARCHAR(20) CHARACTER SET latin1 NOT NULL DEFAULT 'x'",
    "DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",
    "ENUM('a','b,c','d''e') DEFAULT 'b,c'",
    "TIMESTAMP NULL",
    "SET('x','y') CHARACTER SET ascii",
    "BINARY(4) DEFAULT x'00FF'",
    "VARCHAR(9) COLLATE utf8mb4_bin COMMENT 'a, (b) ''c'' -- d'",
    "INT INVISIBLE",
    "INT ZEROFILL",
    "TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)",
    "INT DEFAULT (1 + 2)",
    "VARCHAR(5) DEFAULT 'ä'",
    "INT CHECK (1 < 2)",
)
WORDS = ("pla", "select", "sp ace", "back`quote", "ünï", "MiXed", "a.b", "comma,", "'quote", "1st", 'dou"ble', "/*x*/")
PARTITIONS = (
    "PARTITION BY HASH (id) PARTITIONS 4",
    "PARTITION BY KEY (id) PARTITIONS 3",
    "REMOVE PARTITIONING",
    "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)",
    "REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES LESS THAN (9), PARTITION q VALUES LESS THAN MAXVALUE)",
    "TRUNCATE PARTITION p0",
    "DROP PARTITION p0",
    "COALESCE PARTITION 1",
    "ADD PARTITION PARTITIONS 2",
)
OPTIONS = (
    "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "ENGINE = InnoDB",
    "DEFAULT CHARACTER SET latin1",
    "COMMENT = 'REFERENCES x, (y'",
    "COMMENT ''",
    "ROW_FORMAT=DYNAMIC",
    "AUTO_INCREMENT = 1000",
    "FORCE",
    "CHARSET utf8mb3",
    "COLLATE utf8mb4_unicode_ci",
    "STATS_PERSISTENT=0",
    "ORDER BY id",
)

Shape = dict[TableId, TableSchema]


@dataclass
class Writer:
    """Writes random statements about the tables of one schema, made from the structures as they are now."""

    dice: random.Random
    schema: str
    serial: int = 0
    mode: str = ""

    def name(self) -> str:
        self.serial += 1
        return f"{self.dice.choice(WORDS)}{self.serial}"

    def quoted(self, name: str) -> str:
        if "ANSI_QUOTES" in self.mode and self.dice.random() < 0.5:
            return '"' + name.replace('"', '""') + '"'
        return identifier(name)

    def new(self) -> str:
        return self.quoted(self.name())

    def table(self, table: TableId) -> str:
        if self.dice.random() < 0.5:
            return self.quoted(table.name)
        return f"{self.quoted(table.schema)}.{self.quoted(table.name)}"

    def statement(self, shape: Shape) -> str:
        table = self.dice.choice(sorted(shape))
        self.mode = self.dice.choice(MODES)
        kinds: list[tuple[int, Callable[[], str]]] = [
            (12, lambda: self.alter(table, shape[table])),
            (
                1,
                lambda: (
                    f"CREATE {self.dice.choice(('', 'UNIQUE '))}INDEX {self.new()}"
                    f" ON {self.table(table)} ({self.column(shape[table])})"
                ),
            ),
            (1, lambda: f"DROP INDEX {self.index(shape[table])} ON {self.table(table)}"),
            (1, lambda: f"CREATE TABLE {self.table(self.fresh())} ({self.definition()})"),
            (1, lambda: f"CREATE TABLE {self.table(self.fresh())} LIKE {self.table(table)}"),
        ]
        if len(shape) > 2:
            others = ", ".join(self.table(one) for one in self.dice.sample(sorted(shape), 2))
            kinds.append((1, lambda: f"DROP TABLE IF EXISTS {others}"))
        (write,) = self.dice.choices([write for _, write in kinds], [weight for weight, _ in kinds])
        comment = self.dice.choice(("", "", "/* a, b */ ", "-- c (\n", "/*!99999 z */ "))
        return comment + write()

    def fresh(self) -> TableId:
        self.serial += 1
        return TableId(self.schema, f"t {self.dice.choice(('x', 'ü', 'from'))}{self.serial}")

    def definition(self) -> str:
        columns = ", ".join(f"{self.new()} {self.dice.choice(TYPES)}" for _ in range(self.dice.randrange(1, 5)))
        return f"id INT PRIMARY KEY, {columns}"

    def alter(self, table: TableId, schema: TableSchema) -> str:
        specs = [self.spec(schema) for _ in range(self.dice.choice((1, 1, 1, 2, 3)))]
        if self.dice.random() < 0.15:
            specs = [self.dice.choice(PARTITIONS)]
        head = self.dice.choice(
            ("ALTER TABLE", "ALTER TABLE", "alter  table", "ALTER ONLINE TABLE", "ALTER TABLE IF EXISTS")
        )
        wait = self.dice.choice(("", "", "", " WAIT 5", " NOWAIT"))
        text = ", ".join(specs)
        if self.dice.random() < 0.1:
            text = f"/*M!100301 {text} */"
        return f"{head} {self.table(table)}{wait} /* c , d */ {text}"

    def column(self, schema: TableSchema) -> str:
        return self.quoted(self.dice.choice(schema.names))

    def index(self, schema: TableSchema) -> str:
        names = [index.name for index in schema.indexes if index.name != "PRIMARY"]
        return self.quoted(self.dice.choice(names or ["none"]))

    def spec(self, schema: TableSchema) -> str:
        some, other, kind, pick = self.column(schema), self.column(schema), self.dice.choice(TYPES), self.dice.choice
        exists = pick(("", "", "IF EXISTS "))
        absent = pick(("", "", "IF NOT EXISTS "))
        return pick(
            (
                f"ADD COLUMN {absent}{self.new()} {kind}",
                f"ADD {self.new()} {kind} AFTER {some}",
                f"ADD {self.new()} {kind} FIRST",
                f"ADD ({self.new()} INT, {self.new()} {kind})",
                f"ADD COLUMN ({self.new()} {kind})",
                f"MODIFY COLUMN {exists}{some} {kind}",
                f"MODIFY {some} {kind} {pick(('FIRST', f'AFTER {other}'))}",
                f"CHANGE {some} {self.new()} {kind}",
                f"RENAME COLUMN {some} TO {self.new()}",
                f"DROP COLUMN {exists}{some}",
                f"DROP {some}",
                f"DROP {some}, ADD {some} {kind}",
                f"RENAME COLUMN {some} TO {other}, RENAME COLUMN {other} TO {some}",
                f"ADD INDEX {absent}{self.new()} ({some}, {other})",
                f"ADD UNIQUE ({some})",
                f"ADD KEY ({some}(2))",
                f"ADD UNIQUE KEY {self.new()} ({some}, {other}) COMMENT 'x'",
                f"ADD KEY ({some} DESC)",
                f"ALTER {some} SET DEFAULT NULL",
                f"ALTER COLUMN {some} SET DEFAULT 5",
                f"ALTER {some} DROP DEFAULT",
                f"ADD {self.new()} INT AS (length({some})) VIRTUAL",
                f"ADD {self.new()} INT AS (length({some})) STORED",
                f"ADD {self.new()} VARCHAR(99) GENERATED ALWAYS AS (concat({some}, 'x')) PERSISTENT",
                f"ADD PRIMARY KEY ({some})",
                "DROP PRIMARY KEY",
                f"DROP PRIMARY KEY, ADD PRIMARY KEY (id, {some})",
                f"DROP INDEX {self.index(schema)}",
                f"RENAME INDEX {self.index(schema)} TO {self.new()}",
                f"RENAME KEY {self.index(schema)} TO {self.new()}",
                f"ALTER INDEX {self.index(schema)} IGNORED",
                f"ADD CONSTRAINT ck{self.serial} CHECK (id > 0 AND 'a,b' <> ')')",
                f"DROP CONSTRAINT {exists}ck{self.dice.randrange(self.serial + 1)}",
                f"ADD FULLTEXT KEY {self.new()} ({some})",
                pick(OPTIONS),
                pick(OPTIONS),
            )
        )


@dataclass
class Memory:
    """Keeps structures by digest, as the meta store does: one that is there stays."""

    kept: dict[str, TableSchema] = field(default_factory=dict)

    def put(self, schema: TableSchema) -> str:
        self.kept.setdefault(schema.digest, schema)
        return schema.digest

    def get(self, digests: Any) -> dict[str, TableSchema]:
        return {digest: self.kept[digest] for digest in digests}


@dataclass(frozen=True)
class Everything:
    """Routes every table of a schema to itself."""

    schema: str
    events = EventFilter()

    def target_of(self, table: TableId) -> TableId | None:
        return table if table.schema == self.schema else None

    def target_schema_of(self, schema: str) -> str | None:
        return schema if schema == self.schema else None

    def reshaping(self, table: TableId) -> Reshaping:
        return AS_IT_IS


@pytest.fixture
def schema(source_1: MariaDb, target: MariaDb, unique: str) -> Iterator[str]:
    source_1.run(f"CREATE DATABASE {unique} CHARACTER SET utf8mb4")
    yield unique
    source_1.run("SET foreign_key_checks = 0", f"DROP DATABASE {unique}")
    target.run(f"DROP DATABASE IF EXISTS {unique}_meta")


@pytest.mark.parametrize("seed", SEEDS)
def test_tracked_structures_are_those_of_the_server(
    source_1: MariaDb, target: MariaDb, schema: str, seed: int, tmp_path: Path
) -> None:
    writer = Writer(random.Random(seed), schema)
    with contextlib.closing(connect(source_1.server, "source")) as connection:
        for number in (1, 2, 3):
            query(connection, f"CREATE TABLE {schema}.t_{number} (id INT NOT NULL PRIMARY KEY, v VARCHAR(10), KEY (v))")
        begins = upstream.location(connection, "s1")
        noted = list(run_statements(source_1, connection, writer))
        ends = upstream.location(connection, "s1")
    store, memory = RelayStore(tmp_path), Memory()
    pull.pull("s1", source_1.server, store, begins, until=ends)
    logged = [segment.statement for segment in store.segments("s1") if segment.statement is not None]
    of_ours = [statement for statement in logged if schema in (statement.schema, *statement.text.split("`"))]
    assert len(of_ours) == len(noted) - 1 == STATEMENTS
    effects = DdlEffects(DdlTrialTables(target.server, f"{schema}_meta"), memory, Everything(schema))
    present = {table: memory.put(structure) for table, structure in noted[0].items()}
    for statement, want in zip(of_ours, noted[1:], strict=True):
        for effect in effects(statement, present):
            match effect:
                case Coordinated(table, _, _, digest) | Joins(table, digest):
                    present[table] = digest
                case Leaves(table):
                    present.pop(table, None)
                case _:
                    pytest.fail(f"{effect} of {statement.text}")
        found = {table: memory.kept[digest] for table, digest in present.items()}
        assert found.keys() == want.keys(), statement.text
        for table, structure in want.items():
            assert lines(found[table]) == lines(structure), statement.text
            assert shape_differences(found[table], structure) == (), statement.text
            assert found[table].shape == structure.shape, statement.text


def lines(structure: TableSchema) -> list[str]:
    """Return the lines of the text without the order of its indexes, which means nothing."""
    return sorted(line.rstrip(",") for line in structure.create_sql.splitlines())


def run_statements(server: MariaDb, reader: pymysql.Connection, writer: Writer) -> Iterator[Shape]:
    """Yield the structures of the schema's tables at first and after each statement that did something."""
    shape = structures(reader, writer.schema)
    yield shape
    done = 0
    while done < STATEMENTS:
        text = writer.statement(shape)
        charset = writer.dice.choice(CHARSETS)
        with contextlib.closing(server.connect(database=writer.schema)) as session, session.cursor() as cursor:
            session.set_character_set(charset)
            cursor.execute("SET foreign_key_checks = 0, sql_mode = %s", (writer.mode,))
            with contextlib.suppress(pymysql.MySQLError, UnicodeEncodeError):
                cursor.execute(text)
                done += 1
                shape = structures(reader, writer.schema)
                yield shape


def structures(connection: pymysql.Connection, schema: str) -> Shape:
    names = [str(row[0]) for row in query(connection, f"SHOW TABLES FROM {schema}")]
    return read_schemas(connection, [TableId(schema, name) for name in names])
