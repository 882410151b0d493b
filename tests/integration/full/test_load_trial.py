"""The behaviour of LOAD DATA LOCAL is determined by a trial on the server, never by the server's version."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pymysql.connections import Connection

from unshard.adapters.target import Writer, open_session, session, tried_writer, writetrial
from unshard.core.model import Server
from unshard.core.rows.writepath import LoadData
from unshard.errors.source import ServerUnreachable
from unshard_demo.servers import MariaDb, free_port

pytestmark = pytest.mark.integration
EXPECTED = {
    "mariadb_target": LoadData.TRANSACTIONAL,
    "statements_target": LoadData.REFUSED,
    "tidb_target": LoadData.COMMITS,
}


@pytest.fixture(params=EXPECTED)
def server(request: pytest.FixtureRequest) -> MariaDb:
    found: MariaDb = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def schema(server: MariaDb, unique: str) -> Iterator[str]:
    server.run(f"CREATE DATABASE {unique}")
    yield unique
    server.run(f"DROP DATABASE {unique}")


def left(server: MariaDb, schema: str) -> list[tuple[object, ...]]:
    """Return the rows that trials have left; a server that refuses the statement does not even have the table."""
    there = server.run(f"SHOW TABLES FROM {schema}")
    return server.run(f"SELECT id FROM {schema}.load_data_trial") if there else []


def test_the_server_shows_what_it_does(server: MariaDb, schema: str, request: pytest.FixtureRequest) -> None:
    for _ in range(2):
        found = tried_writer(server.server, schema)
        assert found.load_data is EXPECTED[request.node.callspec.params["server"]]
        assert not left(server, schema)
    with contextlib.closing(open_session(found)) as session:
        assert session.uses_load_data is (found.load_data is LoadData.TRANSACTIONAL)


def test_many_processes_may_try_at_once(server: MariaDb, schema: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: tried_writer(server.server, schema), range(24)))
    assert len(set(found)) == 1
    assert found[0].load_data is not LoadData.UNKNOWN
    assert not left(server, schema)


@pytest.mark.parametrize("privileges", ["SELECT", "SELECT, CREATE", "CREATE, INSERT"])
def test_an_account_that_may_not_try_it_writes_by_statements(server: MariaDb, schema: str, privileges: str) -> None:
    account = f"u{schema}"
    server.run(f"CREATE USER {account} IDENTIFIED BY 'p'", f"GRANT {privileges} ON {schema}.* TO {account}")
    limited = Server("127.0.0.1", server.port, account, "p")
    assert tried_writer(limited, schema).load_data is not LoadData.TRANSACTIONAL
    tried_writer(server.server, schema)
    assert tried_writer(limited, schema).load_data is not LoadData.TRANSACTIONAL
    server.run(f"DROP USER {account}")


def test_another_server_behind_the_address_gets_statements(mariadb_target: MariaDb, unique: str) -> None:
    mariadb_target.run(f"CREATE DATABASE {unique}")
    found = tried_writer(mariadb_target.server, unique)
    mariadb_target.run(f"DROP DATABASE {unique}")
    for writer in (Writer(found.server), replace(found, version="8.0.11-TiDB-v8.5.1")):
        with contextlib.closing(open_session(writer)) as session:
            assert not session.uses_load_data


def test_a_server_that_is_not_there_is_a_coded_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FIRST_PAUSE", 0.001)
    with pytest.raises(ServerUnreachable):
        tried_writer(Server("127.0.0.1", free_port(), "u", "p"), "meta")


def test_a_connection_that_is_lost_after_the_rows_is_tried_again(
    mariadb_target: MariaDb, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadb_target.run(f"CREATE DATABASE {unique}")
    load, lost = writetrial._load, []

    def cut_off(connection: Connection, name: str, row: str) -> int:
        loaded = load(connection, name, row)
        if not lost:
            lost.append(connection.thread_id())
            mariadb_target.run(f"KILL {lost[0]}")
        return loaded

    monkeypatch.setattr(writetrial, "_load", cut_off)
    assert tried_writer(mariadb_target.server, unique).load_data is LoadData.TRANSACTIONAL and lost
    mariadb_target.run(f"DROP DATABASE {unique}")


def test_a_trial_that_died_disturbs_no_other(tidb_target: MariaDb, unique: str) -> None:
    tidb_target.run(f"CREATE DATABASE {unique}")
    tried_writer(tidb_target.server, unique)
    tidb_target.run(f"INSERT INTO {unique}.load_data_trial VALUES (REPEAT('0', 32))")
    assert tried_writer(tidb_target.server, unique).load_data is LoadData.COMMITS
    tidb_target.run(f"DROP DATABASE {unique}")
