"""Sessions that a process keeps from one window to the next."""

import contextlib
from collections.abc import Iterator
from math import inf

import pytest
from pymysql.connections import Connection

from unshard.adapters.mysql import query
from unshard.adapters.target import Writer, open_session, session, tried_writer
from unshard.adapters.target.session import kept_session
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_KEPT", {})
    monkeypatch.setattr(session, "KEPT_SECONDS", inf)


@pytest.fixture
def writer(target: MariaDb, unique: str) -> Iterator[Writer]:
    target.run(f"CREATE DATABASE {unique}")
    yield tried_writer(target.server, unique)
    target.run(f"DROP DATABASE {unique}")


def number(connection: Connection) -> int:
    return int(query(connection, "SELECT CONNECTION_ID()")[0][0])


def lent(writer: Writer) -> int:
    with kept_session(writer) as connection:
        return number(connection)


def variables(connection: Connection) -> dict[str, str]:
    changing = {"timestamp", "last_insert_id", "pseudo_thread_id", "tidb_current_ts", "tidb_last_query_info"}
    changing |= {"rand_seed1", "rand_seed2", "error_count", "warning_count", "identity", "in_transaction"}
    changing |= {"tidb_last_txn_info", "tidb_last_ddl_info", "last_gtid", "tidb_last_plan_replayer_token"}
    return {name: value for name, value in query(connection, "SHOW SESSION VARIABLES") if name not in changing}


@pytest.mark.on_tidb
def test_a_kept_session_is_as_a_new_one(writer: Writer) -> None:
    with kept_session(writer) as connection:
        first = number(connection)
        query(connection, "SET SESSION foreign_key_checks = 1, sql_mode = '', time_zone = '+03:00'")
        connection.uses_load_data = not connection.uses_load_data
    with contextlib.closing(open_session(writer)) as new, kept_session(writer) as connection:
        assert number(connection) == first
        assert variables(connection) == variables(new)
        assert connection.uses_load_data == new.uses_load_data


@pytest.mark.on_tidb
def test_a_session_that_is_lost_or_in_a_transaction_or_too_old_is_not_lent(
    writer: Writer, target: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lent(writer)
    assert lent(writer) == first
    target.run(f"KILL {first}")
    second = lent(writer)
    with kept_session(writer) as connection:
        assert number(connection) == second != first
        query(connection, "BEGIN")
    assert lent(writer) != second
    monkeypatch.setattr(session, "_KEPT", {})
    monkeypatch.setattr(session, "KEPT_SECONDS", -1)
    assert lent(writer) != lent(writer)


@pytest.mark.on_tidb
def test_a_process_keeps_as_many_sessions_as_it_may(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "KEPT_SESSIONS", 2)
    first = several(writer, 3)
    assert len(set(first)) == 3
    assert len(set(first) & set(several(writer, 3))) == 2


def several(writer: Writer, count: int) -> list[int]:
    """Return the numbers of sessions that are lent at the same time."""
    with contextlib.ExitStack() as stack:
        return [number(stack.enter_context(kept_session(writer))) for _ in range(count)]
