"""How many answers of the target a window waits for: a remote target makes each of them cost milliseconds."""

import contextlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.livetask import LiveTask, living
from tests.slowlink import SlowLink, linked
from unshard.adapters import mysql
from unshard.adapters.meta.database import MetaDatabase
from unshard.core.relay.segment import Statement
from unshard.errors.source import ConnectionLost
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]

IDLE_PULL, IDLE_WINDOW = 1, 1
ONE_ROW_WINDOW = 27
SESSION_OF_DDL = {"mariadb": 1, "tidb": 3}
"""TiDB refuses the collations by number, is asked for their names, and takes these."""
SETTINGS = """SELECT @@sql_mode, @@foreign_key_checks, @@character_set_connection, @@collation_connection,
@@collation_server, @@timestamp, @@time_zone"""
COLUMNS = "id BIGINT PRIMARY KEY, v INT NOT NULL, note VARCHAR(40)"


@pytest.fixture
def link(target: MariaDb) -> Iterator[tuple[MariaDb, SlowLink]]:
    with linked(target) as through:
        yield through


@pytest.fixture
def task(link: tuple[MariaDb, SlowLink], source_1: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    """A task that has moved a row before, so that its connections and structures are there."""
    shards = {"columns": {"t": COLUMNS}, "numbers": {("s1", "t"): (1, 2)}}
    with living(unique, tmp_path, (source_1, link[0]), ("t",), **shards) as made:
        insert(made, 1)
        made.run()
        yield made


def insert(task: LiveTask, row: int) -> None:
    task.sources["s1"].run(f"INSERT INTO {task.name}.t_1 VALUES ({row}, 1, 'x')")


def test_nothing_new_costs_one_round_trip_to_look_and_one_to_plan(
    task: LiveTask, link: tuple[MariaDb, SlowLink]
) -> None:
    counted = link[1]
    counted.reset()
    task.pull("s1")
    assert (counted.trips, counted.connections) == (IDLE_PULL, 0), counted.statements
    counted.reset()
    assert not task.window("s1").moved
    assert (counted.trips, counted.connections) == (IDLE_WINDOW, 0), counted.statements


def test_a_window_of_one_row(task: LiveTask, link: tuple[MariaDb, SlowLink]) -> None:
    counted = link[1]
    insert(task, 2)
    task.pull("s1")
    counted.reset()
    assert task.window("s1").rows_applied == 1
    assert (counted.trips <= ONE_ROW_WINDOW, counted.connections) == (True, 0), counted.statements
    task.assert_union("t")


def test_a_connection_that_is_lost_in_the_pool_is_replaced_by_the_first_statement(
    target: MariaDb, task: LiveTask
) -> None:
    database = MetaDatabase(target.server, task.meta_schema, "live")
    for use in (database.reading, database.snapshot, database.transaction):
        with use() as db:
            first = db.connection.scalar(text("SELECT CONNECTION_ID()"))
        target.run(f"KILL {first}")
        with use() as db:
            assert db.connection.scalar(text("SELECT CONNECTION_ID()")) != first
            settings = "SELECT @@autocommit, @@time_zone, @@sql_mode LIKE 'STRICT_ALL%'"
            assert tuple(db.execute(text(settings)).one()) == (1, "+00:00", 1)
    database.close()


def test_a_connection_that_is_lost_in_a_transaction_loses_the_transaction(target: MariaDb, task: LiveTask) -> None:
    database = MetaDatabase(target.server, task.meta_schema, "live")
    change = text("UPDATE source SET flavor = 'lost'")
    with pytest.raises(ConnectionLost), database.transaction() as db:
        db.execute(change)
        target.run(f"KILL {db.connection.scalar(text('SELECT CONNECTION_ID()'))}")
        db.execute(change)
    ((flavor,),) = target.run(f"SELECT flavor FROM {task.meta_schema}.source")
    assert flavor == "mariadb"
    database.close()


def test_the_session_of_a_ddl(target: MariaDb, request: pytest.FixtureRequest) -> None:
    session = (("collation_connection", 33), ("collation_server", 45))
    statement = Statement(
        "ALTER TABLE t ADD a INT", "s", 1 << 22, "utf8mb3", 1_700_000_000, "+02:00", 250_000, session=session
    )
    found = []
    for assume in (mysql.assume_session, mysql._assume_each):
        with linked(target) as (server, counted), contextlib.closing(mysql.connect(server.server)) as connection:
            assume(connection, statement)  # TiDB is asked for its modes once
            counted.reset()
            assume(connection, statement)
            trips = counted.trips
            found.append(mysql.query(connection, SETTINGS))
            if assume is mysql.assume_session:
                assert trips == SESSION_OF_DDL[request.node.callspec.id], counted.statements
    assert found[0] == found[1], "one SET does what one for each variable does"
    moment, zone = found[0][0][-2:]
    assert (Decimal(str(moment)), zone) == (Decimal("1700000000.25"), "+02:00"), "TiDB shows the moment as text"
