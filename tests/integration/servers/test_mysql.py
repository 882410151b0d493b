"""Connections to real servers: the session, the errors with their remedies, names of any kind."""

import contextlib
import pickle
import socket

import pytest
from sqlalchemy import text

from tests.tidbsettings import is_tidb
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.mysql import change, connect, connect_raw, query, stream, table_name
from unshard.adapters.pymysqlprivate import KEEPALIVE, socket_of
from unshard.adapters.target import Writer, open_session
from unshard.core.model import Server, TableId
from unshard.errors import UnshardError
from unshard.errors import source as errors
from unshard_demo.servers import MariaDb, free_port

pytestmark = pytest.mark.integration
NUMBERS = "WITH RECURSIVE s AS (SELECT 1 AS seq UNION ALL SELECT seq + 1 FROM s WHERE seq < 25) SELECT seq FROM s"


def test_every_read_has_a_limit(target: MariaDb) -> None:
    with contextlib.closing(connect(target.server)) as connection:
        query(connection, "SELECT 1")
        sock = socket_of(connection, 7.0)
        assert sock.gettimeout() == 7.0
        assert {option: sock.getsockopt(socket.IPPROTO_TCP, option) for option in KEEPALIVE} == KEEPALIVE
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


@pytest.mark.mariadb_only("TiDB has no read-only sessions")
def test_a_read_only_server_and_session_are_named(target: MariaDb, unique: str) -> None:
    target.run(f"CREATE DATABASE {unique}", f"CREATE TABLE {unique}.t (a INT)")
    with contextlib.closing(connect(target.server, "target")) as connection:
        query(connection, "SET SESSION TRANSACTION READ ONLY")
        with pytest.raises(errors.ServerReadOnly) as caught:
            query(connection, f"INSERT INTO {unique}.t VALUES (1)")
    assert caught.value.transient and "flavor" not in str(caught.value)
    target.run(f"DROP DATABASE {unique}")


def altered(server: MariaDb, **changes) -> Server:
    good = server.server
    fields = {"host": good.host, "port": good.port, "user": good.user, "password": good.password, "session": ()}
    return Server(**{**fields, **changes})


def failing(server: Server, sql: str = "SELECT 1", **options) -> UnshardError:
    with pytest.raises(UnshardError) as caught:
        with contextlib.closing(connect(server, "source s1", **options)) as connection:
            query(connection, sql)
    return caught.value


def test_session_is_the_same_everywhere(target: MariaDb) -> None:
    odd = (("sql_mode", "ANSI_QUOTES"), ("sql_select_limit", "1"), ("sql_quote_show_create", "0"))
    variables = (*odd, ("lock_wait_timeout", "7"), ("long_query_time", "1.5"))
    server = altered(target, session=variables)
    with contextlib.closing(connect(server)) as connection:
        row = query(
            connection,
            "SELECT @@time_zone, @@character_set_client, @@autocommit, @@sql_mode, "
            "@@sql_quote_show_create, @@lock_wait_timeout, @@long_query_time",
        )
        assert len(query(connection, "SELECT 1 UNION ALL SELECT 2")) == 2
    numbers = ("7", "1.5") if is_tidb(target) else (7, 1.5)
    assert row == [("+00:00", "utf8mb4", 1, "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION", 1, *numbers)], "ours come last"
    meta = MetaDatabase(server, "mysql", "task")
    with meta.transaction() as transaction:
        (told,) = transaction.execute(text("SELECT @@time_zone, @@lock_wait_timeout, @@sql_mode")).all()
    assert tuple(told) == ("+00:00", numbers[0], "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"), "ours come last"


def test_session_that_writes_rows(target: MariaDb) -> None:
    names = (
        "sql_mode",
        "foreign_key_checks",
        "unique_checks",
        "sql_notes",
        "max_error_count",
        "tx_isolation",
        "time_zone",
        "sql_select_limit",
        "lock_wait_timeout",
    )
    isolation = "REPEATABLE-READ" if is_tidb(target) else "SERIALIZABLE"
    others = ("ANSI_QUOTES", "1", "0", "0", "1", isolation, "+02:00", "1", "7")
    writer = Writer(altered(target, session=tuple(zip(names, others, strict=True))))
    with contextlib.closing(open_session(writer)) as session:
        ((mode, *rest),) = query(session, f"SELECT {', '.join(f'@@{name}' for name in names)}")
    assert {*mode.split(",")} == {"NO_AUTO_VALUE_ON_ZERO", "STRICT_ALL_TABLES", "ALLOW_INVALID_DATES"}
    wanted = [0, 1, 1, 65535, "READ-COMMITTED", "+00:00", 18446744073709551615, 7]
    assert [*map(str, rest)] == [*map(str, wanted)], "TiDB gives some numbers as text"


def test_wrong_password_names_account_and_remedy(target: MariaDb) -> None:
    error = failing(altered(target, password="sesame"))
    assert isinstance(error, errors.AccessDenied)
    assert not error.transient
    assert f"admin@127.0.0.1:{target.port}" in str(error)
    assert "source s1" in str(error)
    assert "sesame" not in str(error) + repr(error) + repr(error.__cause__)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_unreachable_is_transient() -> None:
    error = failing(Server("127.0.0.1", free_port(), "u", "p"))
    assert isinstance(error, errors.ServerUnreachable)
    assert error.transient


def test_unknown_host() -> None:
    assert isinstance(failing(Server("no-such-host.invalid", 3306, "u", "p")), errors.ServerUnreachable)


def test_unknown_database(target: MariaDb) -> None:
    assert isinstance(failing(target.server, database="nowhere"), errors.UnknownDatabase)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT * FROM mysql.nothing", errors.TableMissing),
        ("SELEKT 1", errors.StatementRefused),
        ("KILL CONNECTION_ID()", errors.ConnectionLost),
    ],
)
def test_error_of_statement(target: MariaDb, sql: str, error: type[UnshardError]) -> None:
    if sql.startswith("KILL") and is_tidb(target):
        error = errors.StatementRefused  # 1317: another session ended this one's statement
    assert isinstance(failing(target.server, sql), error)


def test_missing_privilege(target: MariaDb, unique: str) -> None:
    target.run(f"CREATE USER {unique} IDENTIFIED BY 'p'")
    poor = altered(target, user=unique, password="p")
    assert isinstance(failing(poor, "SELECT * FROM mysql.global_priv"), errors.MissingPrivilege)
    assert isinstance(failing(poor, "CREATE DATABASE x9"), errors.MissingPrivilege)
    if not is_tidb(target):  # it has no binlog
        assert isinstance(failing(poor, "SHOW BINLOG STATUS"), errors.MissingPrivilege)
    target.run(f"DROP USER {unique}")


@pytest.mark.parametrize("session", [("no_such_variable", "1"), ("sql_mode", "NONSENSE"), ("x = 1; --", "1")])
def test_bad_session_variable_is_named(target: MariaDb, session: tuple[str, str]) -> None:
    error = failing(altered(target, session=(session,)))
    assert isinstance(error, errors.SessionVariableRefused)
    assert session[0] in str(error)


def test_lock_wait_is_transient(target: MariaDb, unique: str) -> None:
    target.run(
        f"CREATE DATABASE {unique}",
        f"CREATE TABLE {unique}.t (a INT PRIMARY KEY)",
        f"INSERT INTO {unique}.t VALUES (1)",
    )
    with contextlib.closing(target.connect()) as holder, holder.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"UPDATE {unique}.t SET a = 2")
        server = altered(target, session=(("innodb_lock_wait_timeout", "1"),))
        error = failing(server, f"UPDATE {unique}.t SET a = 3")
    assert isinstance(error, errors.ServerBusy)
    assert error.transient


def test_raw_bytes(target: MariaDb, unique: str) -> None:
    table = TableId(unique, "ta`ble ä中")
    target.run(
        f"CREATE DATABASE {unique}",
        f"CREATE TABLE {table_name(table)} (`cölumn` VARCHAR(9) CHARACTER SET latin1, i INT)",
        f"INSERT INTO {table_name(table)} VALUES ('ä', 7)",
    )
    with contextlib.closing(connect_raw(target.server)) as connection:
        rows = query(connection, f"SELECT `cölumn`, i, NULL FROM {table_name(table)} WHERE i = %s", (7,))
    stored = "ä".encode() if is_tidb(target) else b"\xe4"  # TiDB stores latin1 as UTF-8
    assert rows == [(stored, b"7", None)]


def test_stream_yields_all_and_can_be_left(target: MariaDb) -> None:
    with contextlib.closing(connect(target.server, database="mysql")) as connection:
        batches = list(stream(connection, NUMBERS, size=10))
        assert [len(batch) for batch in batches] == [10, 10, 5]
        rows = stream(connection, NUMBERS, size=10)
        next(rows)
        rows.close()
        assert query(connection, "SELECT 1") == [(1,)]


@pytest.mark.parametrize("password", ["", "sp ace'\"\\%s", "pässwörd", "密码"])
def test_any_password(target: MariaDb, unique: str, password: str) -> None:
    with contextlib.closing(connect(target.server)) as connection:
        query(connection, f"CREATE USER {unique} IDENTIFIED BY %s", (password,))
        with contextlib.closing(connect(altered(target, user=unique, password=password))) as other:
            assert query(other, "SELECT 1") == [(1,)]
        query(connection, f"DROP USER {unique}")


def test_names_with_what_the_driver_takes_for_a_place(target: MariaDb, unique: str) -> None:
    table = TableId(f"{unique} 100%s", "a`%d%")
    with contextlib.closing(connect(target.server)) as connection:
        query(connection, f"CREATE DATABASE `{table.schema}`")
        try:
            query(connection, f"CREATE TABLE {table_name(table)} (`%s` INT, v VARCHAR(9))")
            query(connection, f"INSERT INTO {table_name(table)} (`%s`, v) VALUES (%s, %s)", (1, "`%s`"))
            assert change(connection, f"UPDATE {table_name(table)} SET v = CONCAT(v, %s) WHERE `%s` = 1", ("%",)) == 1
            assert query(connection, f"SELECT v FROM {table_name(table)} WHERE `%s` = %s", (1,)) == [("`%s`%",)]
            assert [*stream(connection, f"SELECT `%s` FROM {table_name(table)} LIMIT %s", (1,))] == [[(1,)]]
        finally:
            query(connection, f"DROP DATABASE `{table.schema}`")
