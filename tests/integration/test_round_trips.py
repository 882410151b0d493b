"""How many answers of the target a window waits for: a remote target makes each of them cost milliseconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.livetask import LiveTask, living
from tests.slowlink import SlowLink, linked
from unshard.adapters.meta.database import MetaDatabase
from unshard.errors.source import ConnectionLost
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]

IDLE_PULL, IDLE_WINDOW = 1, 1
ONE_ROW_WINDOW = 30
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
    assert counted.trips <= ONE_ROW_WINDOW, counted.statements
    task.assert_union("t")


def test_a_connection_that_is_lost_in_the_pool_is_replaced_by_the_first_statement(
    target: MariaDb, task: LiveTask
) -> None:
    database = MetaDatabase(target.server, task.meta_schema, "live")
    for use in (database.reading, database.snapshot, database.transaction):
        with use() as connection:
            first = connection.scalar(text("SELECT CONNECTION_ID()"))
        target.run(f"KILL {first}")
        with use() as connection:
            assert connection.scalar(text("SELECT CONNECTION_ID()")) != first
            settings = "SELECT @@autocommit, @@time_zone, @@sql_mode LIKE 'STRICT_ALL%'"
            assert tuple(connection.execute(text(settings)).one()) == (1, "+00:00", 1)
    database.close()


def test_a_connection_that_is_lost_in_a_transaction_loses_the_transaction(target: MariaDb, task: LiveTask) -> None:
    database = MetaDatabase(target.server, task.meta_schema, "live")
    change = text("UPDATE source SET flavor = 'lost'")
    with pytest.raises(ConnectionLost), database.transaction() as connection:
        connection.execute(change)
        target.run(f"KILL {connection.scalar(text('SELECT CONNECTION_ID()'))}")
        connection.execute(change)
    ((flavor,),) = target.run(f"SELECT flavor FROM {task.meta_schema}.source")
    assert flavor == "mariadb"
    database.close()
