"""DDL on the target: executed once despite crashes, with the session of the source; creation of target tables."""

import contextlib
import multiprocessing
from dataclasses import replace

import pytest

from unshard.adapters.mysql import connect, query, table_name
from unshard.adapters.structures import read_schema
from unshard.core.ddl.queue import QueueEntry
from unshard.core.ddl.statement import fingerprint, read_ddl, retarget
from unshard.core.model import Location, Server, Shard, TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.structures.comparison import shape_differences
from unshard.errors.ddl import DdlRefused, DdlStillRunning, TargetChanged, TargetLacksColumns
from unshard.units.ddl import execute
from unshard.units.ddl.execute import create_target, execute_ddl
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

SHARD = Shard("s1", TableId("shard_1", "t_1"))


@pytest.fixture
def table(target: MariaDb, unique: str):
    target.run(f"CREATE DATABASE {unique}", f"CREATE DATABASE {unique}_meta")
    name = TableId(unique, "tar`get ü")
    target.run(f"CREATE TABLE {table_name(name)} (id INT PRIMARY KEY, a INT) CHARSET utf8mb4")
    yield name
    target.run(f"DROP DATABASE {unique}", f"DROP DATABASE IF EXISTS {unique}_meta")


def intent(server: Server, meta_schema: str, table: TableId, one: QueueEntry) -> tuple[TableSchema, TableSchema]:
    before, tried = execute.intent(server, meta_schema, table, one)
    assert not tried.is_split
    return before, tried.after


def entry(table: TableId, spec: str, **changes) -> QueueEntry:
    fields = {"sql_mode": 1 << 21, "charset": "utf8mb4", "timestamp": 1_700_000_000, "time_zone": "+00:00", **changes}
    statement = Statement(text=f"ALTER TABLE t_1 {spec}", schema="shard_1", **fields)
    routed = retarget(read_ddl(statement.text, statement.sql_mode, statement.schema), {SHARD.table: table})
    text = fingerprint(routed, statement.sql_mode)
    return QueueEntry(SHARD, table, 1, Location("b.000001", 4), statement, routed, text, "", "")


def rows(server: MariaDb, sql: str):
    return server.run(sql)


SPECS = [
    "ADD c INT DEFAULT 5",
    "DROP a",
    "MODIFY a BIGINT",
    "ADD INDEX (a)",
    "ADD CHECK (a > 0)",
    "COMMENT 'x'",
    "CHANGE a b VARCHAR(20) CHARACTER SET latin1",
    "ENGINE=InnoDB",
]
NOT_ON_TIDB = [
    "ADD UNIQUE (a), ADD INDEX (a)",
    "CONVERT TO CHARACTER SET latin1",
    "ADD c INT AS (a + 1) STORED",
    "DROP a, ADD a INT",
]


@pytest.mark.parametrize("spec", SPECS)
def test_again_and_again(target: MariaDb, table: TableId, spec: str) -> None:
    check_again_and_again(target, table, spec)


@pytest.mark.mariadb_only("TiDB refuses these, or takes them only in steps (test_intent)")
@pytest.mark.parametrize("spec", NOT_ON_TIDB)
def test_again_and_again_as_a_whole(target: MariaDb, table: TableId, spec: str) -> None:
    check_again_and_again(target, table, spec)


def check_again_and_again(target: MariaDb, table: TableId, spec: str) -> None:
    one = entry(table, spec)
    before, wanted = intent(target.server, f"{table.schema}_meta", table, one)
    assert execute_ddl(target.server, table, one, before, wanted)
    with contextlib.closing(connect(target.server)) as connection:
        first = read_schema(connection, table)
        again = [execute_ddl(target.server, table, one, before, wanted) for _ in range(2)]
        assert read_schema(connection, table) == first == wanted
    changes_nothing = before == wanted
    assert again == [changes_nothing] * 2


def test_two_at_once_execute_once(target: MariaDb, table: TableId) -> None:
    one = entry(table, "ADD INDEX (a)")
    before, wanted = intent(target.server, f"{table.schema}_meta", table, one)
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        arguments = [(target.server, table, one, before, wanted)] * 3
        assert sorted(pool.starmap(execute_ddl, arguments)) == [False, False, True]


@pytest.mark.on_tidb
def test_killed_while_the_target_works(target: MariaDb, table: TableId) -> None:
    """The session of the dead process continues; the next one waits for it instead of adding a second index."""
    doublings = 17 if "TiDB" in str(target.run("SELECT VERSION()")) else 19
    name = table_name(table)
    more = (f"INSERT INTO {name} SELECT id + {2**n}, a + {2**n} FROM {name}" for n in range(doublings))
    target.run(f"INSERT INTO {name} VALUES (1, 1)", *more)
    one = entry(table, "ADD INDEX (a), ALGORITHM=COPY")
    before, wanted = intent(target.server, f"{table.schema}_meta", table, one)
    child = multiprocessing.get_context("spawn").Process(
        target=execute_ddl, args=(target.server, table, one, before, wanted)
    )
    child.start()
    running = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'ALTER%'"
    await_true(lambda: child.exitcode is not None or rows(target, running)[0][0], 900, [target.program], "the DDL runs")
    assert child.exitcode is None, "the DDL was over before it was seen"
    child.kill()
    child.join()
    assert rows(target, running)[0][0], "the DDL was over before the kill"
    assert not execute_ddl(target.server, table, one, before, wanted)
    with contextlib.closing(connect(target.server)) as connection:
        assert read_schema(connection, table) == wanted


def test_guard_held_by_another(target: MariaDb, table: TableId, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "GUARD_SECONDS", 0)
    one = entry(table, "ADD c INT")
    before, wanted = intent(target.server, f"{table.schema}_meta", table, one)
    with contextlib.closing(connect(target.server)) as other, execute.target_guard(other, table):
        with pytest.raises(DdlStillRunning) as caught:
            execute_ddl(target.server, table, one, before, wanted)
    assert caught.value.transient
    assert execute_ddl(target.server, table, one, before, wanted)


def test_target_altered_by_someone_else(target: MariaDb, table: TableId) -> None:
    one = entry(table, "ADD c INT")
    before, wanted = intent(target.server, f"{table.schema}_meta", table, one)
    target.run(f"ALTER TABLE {table_name(table)} ADD other INT")
    with pytest.raises(TargetChanged, match="column other is extra"):
        execute_ddl(target.server, table, one, before, wanted)
    assert "c" not in [row[0] for row in rows(target, f"SHOW COLUMNS FROM {table_name(table)}")]


def test_refusal_of_the_rows(target: MariaDb, table: TableId) -> None:
    target.run(f"INSERT INTO {table_name(table)} VALUES (1, 7), (2, 7)")
    one = entry(table, "ADD UNIQUE u (a)")
    before, wanted = intent(target.server, f"{table.schema}_meta", table, one)
    with pytest.raises(DdlRefused, match="Duplicate entry '7'") as caught:
        execute_ddl(target.server, table, one, before, wanted)
    assert (caught.value.errno, caught.value.transient) == (1062, False)
    target.run(f"DELETE FROM {table_name(table)} WHERE id = 2")
    assert execute_ddl(target.server, table, one, before, wanted)


@pytest.mark.parametrize(
    ("zone", "want"),
    [
        ("+00:00", "2023-11-14 22:13:20"),
        ("-03:30", "2023-11-14 18:43:20"),
        ("Europe/Berlin", "2023-11-14 23:13:20"),
    ],
)
def test_time_of_the_statement(target: MariaDb, table: TableId, zone: str, want: str) -> None:
    target.run(f"INSERT INTO {table_name(table)} VALUES (1, 7)")
    one = entry(table, "ADD d DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP", time_zone=zone)
    assert execute_ddl(target.server, table, one, *intent(target.server, f"{table.schema}_meta", table, one))
    assert str(rows(target, f"SELECT d FROM {table_name(table)}")[0][0]) == want


def test_sql_mode_of_the_statement(target: MariaDb, table: TableId) -> None:
    """The target truncates the value that the source truncated without strict mode."""
    target.run(f"INSERT INTO {table_name(table)} VALUES (1, 300)")
    one = entry(table, "MODIFY a TINYINT", sql_mode=0)
    assert execute_ddl(target.server, table, one, *intent(target.server, f"{table.schema}_meta", table, one))
    assert rows(target, f"SELECT a FROM {table_name(table)}") == [(127,)]


def test_unreachable_target_is_transient(target: MariaDb, table: TableId) -> None:
    one = entry(table, "ADD c INT")
    before, wanted = intent(target.server, f"{table.schema}_meta", table, one)
    nowhere = Server("127.0.0.1", 1, "u", "p")
    with pytest.raises(Exception, match="US-2001") as caught:
        execute_ddl(nowhere, table, one, before, wanted)
    assert caught.value.transient


ORDERS = """CREATE TABLE {name} (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, parent BIGINT UNSIGNED,
    v VARCHAR(20) DEFAULT 'x', g INT AS (id + 1), b VARBINARY(3) DEFAULT x'FF00',
    CONSTRAINT f FOREIGN KEY (parent) REFERENCES {name} (id), CHECK (v <> ''))
    AUTO_INCREMENT=50 CHARSET=latin1"""


@pytest.mark.mariadb_only("TiDB stores a default that is no UTF-8 as other bytes")
def test_create_target_from_a_shard(source_1: MariaDb, target: MariaDb, unique: str) -> None:
    made = TableId(f"{unique}_new", "mer`ged ü")
    source_1.run(f"CREATE DATABASE {unique}", ORDERS.format(name=f"{unique}.orders"))
    with contextlib.closing(connect(source_1.server)) as source:
        shard = read_schema(source, TableId(unique, "orders"))
    with contextlib.closing(connect(target.server)) as connection:
        for _ in range(2):
            assert create_target(connection, made, shard) == shard
        assert query(
            connection,
            "SELECT COUNT(*) FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = %s",
            (made.schema,),
        ) == [(0,)]
        query(connection, f"INSERT INTO {table_name(made)} (v) VALUES ('y')")
        assert query(connection, f"SELECT id FROM {table_name(made)}") == [(1,)]
    target.run(f"DROP DATABASE {made.schema}")
    source_1.run(f"DROP DATABASE {unique}")


@pytest.mark.mariadb_only("TiDB refuses an ENUM that names a value twice")
def test_create_target_takes_what_a_lenient_source_has(source_1: MariaDb, target: MariaDb, table: TableId) -> None:
    made = TableId(table.schema, "made")
    source_1.run(
        f"CREATE DATABASE {table.schema}",
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        f"CREATE TABLE {table.schema}.shard (e ENUM('a','a'), d DATE DEFAULT '2020-02-31')",
    )
    with contextlib.closing(connect(source_1.server)) as source:
        shard = read_schema(source, TableId(table.schema, "shard"))
    with contextlib.closing(connect(target.server)) as connection:
        assert create_target(connection, made, shard) == shard
    source_1.run(f"DROP DATABASE {table.schema}")


def test_create_target_leaves_a_table_with_more_alone(target: MariaDb, table: TableId) -> None:
    with contextlib.closing(connect(target.server)) as connection:
        query(connection, f"CREATE TABLE {table.schema}.shard (A INT)")
        shard = read_schema(connection, TableId(table.schema, "shard"))
        before = read_schema(connection, table)
        assert create_target(connection, table, shard) == before


def test_create_target_names_missing_columns(target: MariaDb, table: TableId) -> None:
    with contextlib.closing(connect(target.server)) as connection:
        query(connection, f"CREATE TABLE {table.schema}.shard (a INT, b INT, c INT, g INT AS (a))")
        shard = read_schema(connection, TableId(table.schema, "shard"))
        with pytest.raises(TargetLacksColumns, match=r": b, c \("):
            create_target(connection, table, shard)


@pytest.mark.mariadb_only("the statement changes a column and adds a key on it, which TiDB takes only in steps")
def test_differences_are_told(target: MariaDb, table: TableId) -> None:
    with contextlib.closing(connect(target.server)) as connection:
        one = read_schema(connection, table)
        specs = "MODIFY a BIGINT NOT NULL FIRST, ADD b INT, ADD UNIQUE u (a)"
        query(connection, f"ALTER TABLE {table_name(table)} {specs}")
        other = read_schema(connection, table)
    assert shape_differences(one, one) == ()
    assert shape_differences(one, other) == (
        "column b is extra",
        "column a is bigint(20) not null instead of int(11) null default NULL",
        "index u is extra",
    )
    assert shape_differences(one, replace(one, columns=one.columns[::-1])) == (
        "columns come as a, id instead of id, a",
    )
