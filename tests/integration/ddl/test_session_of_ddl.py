"""DDL has the same meaning on the target as in its session: run on a source, read from its binlog."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.binlogs import SOURCE, end_of, schema_of
from unshard.adapters.meta import Meta
from unshard.adapters.mysql import connect, query
from unshard.adapters.relayfiles import RelayStore
from unshard.adapters.structures import read_defaults
from unshard.adapters.targetddl import DdlTrialTables
from unshard.core.ddl.queue import QueueEntry
from unshard.core.ddl.statement import read_ddl, retarget
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard.core.relay.segment import Segment, Statement, chain
from unshard.units.ddl.execute import create_target, execute_ddl
from unshard.units.relay.pull import pull
from unshard.units.window.statementcontext import in_context, in_zone
from unshard_demo.servers import MariaDb

Rows = list[tuple[object, ...]]

pytestmark = pytest.mark.integration

BASE = "id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET latin1, at TIMESTAMP NULL"


class Field:
    """A source and a target with a schema each; statements of the source are read back from its binlog."""

    def __init__(self, source: MariaDb, target: MariaDb, name: str, folder: Path) -> None:
        self.source, self.target, self.name, self.folder = source, target, name, folder
        self.trial_tables = DdlTrialTables(target.server, f"{name}_meta")
        self.table = TableId(name, "t")

    def ran(self, *sessions: tuple[str, ...]) -> list[Segment]:
        """Run the statements of each session; return the segments of all that are in the binlog."""
        begins = end_of(self.source)
        for statements in sessions:
            self.source.run(f"USE `{self.name}`", *statements)
        store = RelayStore(self.folder / str(begins))
        pull(SOURCE, self.source.server, store, begins)
        return [segment for segment in chain(store.segments(SOURCE), begins) if segment.statement]

    def executed(self, table: TableId, event: Statement, before: TableSchema, after: TableSchema) -> Rows:
        """Execute the statement on a target table with one row; return its rows."""
        with contextlib.closing(connect(self.target.server)) as connection:
            create_target(connection, table, before)
        self.target.run(f"INSERT INTO {table} (id) VALUES (1)")
        routed = retarget(read_ddl(event.text, event.sql_mode, event.schema), {})
        entry = QueueEntry(Shard(SOURCE, table), table, 1, Location("b.1", 4), event, routed, "", "", "")
        assert execute_ddl(self.target.server, table, entry, before, after)
        return self.target.run(f"SELECT * FROM {table}")


def zoned(segment: Segment) -> Statement:
    found = in_zone(segment, "+00:00").statement
    assert found is not None
    return found


@pytest.fixture
def field(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[Field]:
    source_1.run(f"CREATE DATABASE {unique} CHARACTER SET latin2 COLLATE latin2_bin")
    target.run(f"CREATE DATABASE {unique}")
    yield Field(source_1, target, unique, tmp_path)
    source_1.run(f"DROP DATABASE {unique}")
    target.run(f"DROP DATABASE {unique}", f"DROP DATABASE IF EXISTS {unique}_meta")


SESSIONS = [
    ("SET explicit_defaults_for_timestamp = 0", "ADD b TIMESTAMP, ADD c TIMESTAMP"),
    ("SET explicit_defaults_for_timestamp = 1", "ADD b TIMESTAMP, ADD c TIMESTAMP NULL"),
    ("SET time_zone = '-03:30'", "ADD b TIMESTAMP NULL DEFAULT '2020-02-02 02:02:02'"),
    ("SET time_zone = 'SYSTEM'", "ADD b TIMESTAMP NULL DEFAULT '2020-02-02 02:02:02'"),
    ("SET sql_mode = ''", "ADD b DATE DEFAULT '0000-00-00', ADD c DATETIME NOT NULL DEFAULT '2020-00-00'"),
    ("SET sql_mode = 'ALLOW_INVALID_DATES'", "ADD b DATE DEFAULT '2020-02-31'"),
    ("SET sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT'", "ADD \"b c\" VARCHAR(9) AS (v || 'x')"),
    ("SET sql_mode = 'NO_BACKSLASH_ESCAPES'", "ADD b VARCHAR(9) DEFAULT 'a\\n'"),
    ("SET sql_mode = 'REAL_AS_FLOAT'", "ADD b REAL"),
    ("SET check_constraint_checks = 0", "ADD CHECK (id < 0)"),
    ("SET collation_connection = latin1_general_cs", "ADD b VARCHAR(9) AS (concat(v, 'ä')), ADD CHECK (v <> 'ö')"),
    ("SET NAMES latin1", "ADD b VARCHAR(30) CHARACTER SET latin1 DEFAULT 'ä€', CHARSET latin1, ADD c ENUM('ß', 'ö')"),
    ("SET NAMES utf8mb4 COLLATE utf8mb4_bin", "ADD b VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT '列', COMMENT 'ж'"),
    ("SET lc_time_names = 'de_DE'", "ADD b VARCHAR(20) DEFAULT (DATE_FORMAT('2020-05-05', '%W'))"),
    ("SET default_storage_engine = Aria", "ADD b INT"),
]


@pytest.mark.mariadb_only("the shards have the character set latin2, which TiDB lacks")
def test_session_decides_the_effect_and_the_execution(field: Field) -> None:
    tables = [TableId(field.name, f"t{number}") for number in range(len(SESSIONS))]
    for table in tables:
        field.source.run(f"CREATE TABLE {table} ({BASE})", f"INSERT INTO {table} (id) VALUES (1)")
    structures = {table: schema_of(field.source, table) for table in tables}
    found = field.ran(
        *((setting, f"ALTER TABLE {table} {specs}") for table, (setting, specs) in zip(tables, SESSIONS, strict=True))
    )
    for table, segment, session in zip(tables, found, SESSIONS, strict=True):
        event, before, after = zoned(segment), structures[table], schema_of(field.source, table)
        assert field.trial_tables.effect(before, event, table) == after, session
        assert field.executed(table, event, before, after) == field.source.run(f"SELECT * FROM {table}"), session
        assert schema_of(field.target, table) == after, session


@pytest.mark.mariadb_only("TiDB has no DATE_FORMAT in a default, and no language of dates")
def test_moment_of_the_statement_is_the_sources_to_the_microsecond(field: Field) -> None:
    field.source.run(f"CREATE TABLE {field.table} ({BASE})", f"INSERT INTO {field.table} (id) VALUES (1)")
    before = schema_of(field.source, field.table)
    settings = "SET timestamp = 1700000000.123456, time_zone = '+05:00', lc_time_names = 'de_DE'"
    specs = "ADD b DATETIME(6) DEFAULT NOW(6), ADD c TIMESTAMP(6) DEFAULT NOW(6), ADD d VARCHAR(20) DEFAULT "
    (segment,) = field.ran((settings, f"ALTER TABLE t {specs} (DATE_FORMAT(NOW(), '%W'))"))
    got = field.executed(field.table, zoned(segment), before, schema_of(field.source, field.table))
    assert got == field.source.run(f"SELECT * FROM {field.table}")
    assert str(got[0][3]) == "2023-11-15 03:13:20.123456" and got[0][5] == "Mittwoch"


@pytest.mark.mariadb_only("explicit_defaults_for_timestamp cannot be set on TiDB")
def test_structures_are_created_as_they_are_whatever_the_target_prefers(field: Field) -> None:
    """A TIMESTAMP NOT NULL without a default must not get one, as old sessions add it."""
    field.source.run(f"CREATE TABLE {field.name}.t (a TIMESTAMP NOT NULL, b TIMESTAMP NULL, c TIMESTAMP NOT NULL)")
    shard = schema_of(field.source, field.table)
    with contextlib.closing(connect(field.target.server)) as connection:
        query(connection, "SET SESSION explicit_defaults_for_timestamp = 0")
        assert create_target(connection, field.table, shard) == shard


CREATED = [
    "CREATE TABLE t (a VARCHAR(9), b VARCHAR(9) CHARACTER SET utf8mb4)",
    "CREATE TABLE t (a TEXT) CHARSET DEFAULT",
    "CREATE TABLE t (a CHAR(3)) ENGINE=InnoDB COMMENT 'x' PARTITION BY KEY (a)",
    "CREATE TABLE t (a TEXT) COLLATE DEFAULT",
    "CREATE TABLE t (a VARCHAR(9)) COLLATE utf8mb4_bin",
    "CREATE TABLE t (a ENUM('x')) CHARSET=DEFAULT, COMMENT=''",
    "CREATE TABLE t (a VARCHAR(9)) CHARSET utf8mb3",
]
CHANGES = [
    (),
    ("ALTER DATABASE {d} CHARACTER SET latin1 COLLATE latin1_bin",),
    ("ALTER DATABASE {d} CHARACTER SET latin1",),
    ("DROP DATABASE {d}", "CREATE DATABASE {d}"),
    ("DROP DATABASE {d}", "SET collation_server = latin1_general_cs", "CREATE DATABASE {d}"),
    ("SET collation_server = latin1_bin", "CREATE DATABASE IF NOT EXISTS {d} CHARSET utf8mb4"),
    ("SET collation_server = latin1_bin", "ALTER DATABASE {d} CHARACTER SET DEFAULT"),
    ("ALTER DATABASE {d} COLLATE latin1_bin", "ALTER DATABASE {d} COMMENT 'x'"),
    ("CREATE OR REPLACE DATABASE {d} COLLATE utf8mb3_bin",),
]


@pytest.fixture
def meta(field: Field) -> Iterator[Meta]:
    made = Meta(field.target.server, f"{field.name}_meta", "orders")
    made.create_tables()
    yield made
    made.close()


def work_of(field: Field, meta: Meta) -> Any:
    """Return the parts of a task's work that `in_context` uses."""
    return SimpleNamespace(
        task=SimpleNamespace(timezone="+00:00"),
        meta=meta,
        trial_tables=field.trial_tables,
        sources={SOURCE: field.source.server},
        source_connection=lambda source: contextlib.closing(connect(field.source.server, f"source {source}")),
    )


@pytest.mark.mariadb_only("the shards have the character set latin2, which TiDB lacks")
@pytest.mark.parametrize("changes", CHANGES)
def test_tables_get_their_source_schemas_default(field: Field, meta: Meta, changes: tuple[str, ...]) -> None:
    origin = end_of(field.source)
    with contextlib.closing(connect(field.source.server)) as connection:
        meta.schema_defaults.begin(SOURCE, origin, read_defaults(connection))
    changed = field.ran(tuple(change.format(d=field.name) for change in changes))
    tables = [TableId(field.name, f"t{number}") for number in range(len(CREATED))]
    texts = [text.replace(" t ", f" {table} ", 1) for text, table in zip(CREATED, tables, strict=True)]
    found = field.ran((), *((text,) for text in texts))
    wanted = {table: schema_of(field.source, table) for table in tables}
    altered = field.ran((f"ALTER TABLE {tables[-1]} CONVERT TO CHARACTER SET DEFAULT",))
    # A plan sees the changes; a later window's plan begins with the changes that the first has recorded.
    for begins, segments in ((origin, changed + found), (found[0].begins, found)):
        created = [in_zone(s, "+00:00").statement for s in in_context(work_of(field, meta), SOURCE, begins, segments)]
        for table, statement in zip(tables, created[-len(tables) :], strict=True):
            assert statement and field.trial_tables.effect(None, statement, table) == wanted[table], statement
    (event,) = in_context(work_of(field, meta), SOURCE, altered[0].begins, altered)
    assert event.statement
    after = field.trial_tables.effect(wanted[tables[-1]], event.statement, tables[-1])
    assert after == schema_of(field.source, tables[-1])


@pytest.mark.mariadb_only("the shards have the character set latin2, which TiDB lacks")
def test_default_that_was_never_seen_is_asked_of_the_source(field: Field, meta: Meta) -> None:
    begins = end_of(field.source)
    (created,) = in_context(work_of(field, meta), SOURCE, begins, field.ran(("CREATE TABLE t (a TEXT)",)))
    assert created.statement
    assert field.trial_tables.effect(None, created.statement, field.table).collation == "latin2_bin"
