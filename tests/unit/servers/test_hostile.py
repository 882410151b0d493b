"""A hostile server, or someone in between, gets no file and no password, and every answer ends in a coded error.

Each phase of the protocol has a table of answers: greeting, authentication, answers to commands, result sets, requests
for files, binlog dumps.
"""

import contextlib
import random
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pymysql.connections import Connection
from sqlalchemy import text

from tests.certificates import Authority
from tests.suite.portions import examples
from tests.unit.servers.hostile import (
    EOF,
    OK,
    PASSWORD,
    TLS,
    Hostile,
    Talk,
    answering,
    column,
    counted,
    encrypted,
    greeting,
    result,
    serving,
)
from unshard.adapters import binlogstream, mysql, pymysqlprivate, textrows
from unshard.adapters.connectionpool import ping
from unshard.adapters.meta.database import MetaDatabase
from unshard.core.model import Column, Location, Server, Tls, Verify
from unshard.errors import UnshardError
from unshard.errors.relay import DamagedEvent, DumpBroken
from unshard.errors.source import ConnectionLost, FileRequested, PasswordRequested, ProtocolBroken, ServerUnreachable
from unshard.units.relay.pull import begins

SECRET = b"what only this process may read"
ROW = Column("c", "varbinary", "varbinary(255)", True, None, None, None, "")
Use = Callable[[Connection], object]


@pytest.fixture
def secret(tmp_path: Path) -> bytes:
    """Return the request for a file that exists."""
    (tmp_path / "secret").write_bytes(SECRET)
    return b"\xfb" + bytes(tmp_path / "secret")


def load(connection: Connection) -> object:
    with mysql.coded_errors(connection, "LOAD DATA"):
        return pymysqlprivate.load_local(connection, "LOAD DATA LOCAL INFILE 'rows' INTO TABLE t", memoryview(b"1\n"))


def coded(use: Use) -> Use:
    def used(connection: Connection) -> object:
        with mysql.coded_errors(connection, "statement"):
            return use(connection)

    return used


USES: dict[str, Use] = {
    "SET NAMES": lambda one: mysql.query(one, "SET NAMES utf8mb4"),
    "SELECT": lambda one: mysql.query(one, "SELECT 1"),
    "a stream": lambda one: list(mysql.stream(one, "SELECT 1")),
    "an INSERT": lambda one: mysql.change(one, "INSERT INTO t VALUES (%s)", (1,)),
    "COMMIT": mysql.commit,
    "the driver's COMMIT": coded(lambda one: one.commit()),
    "a ping": ping,
    "a statement of many rows": coded(lambda one: pymysqlprivate.run_without_rows(one, "INSERT INTO t VALUES (1)")),
    "a preparation": coded(lambda one: pymysqlprivate.prepare_statement(one, "INSERT INTO t VALUES (?)")),
    "rows in bulk": coded(lambda one: pymysqlprivate.execute_bulk(one, "SAVEPOINT s", 1, 1, memoryview(b"\0\0011"))),
    "a dump of rows": lambda one: list(textrows.read_rows(one, (ROW,), "SELECT c FROM t")),
    "a dump of the binlog": lambda one: list(binlogstream.stream_runs(one, "s1", Location("b.000001", 4), 1)),
}


@contextlib.contextmanager
def connected(answer: bytes | tuple[bytes, ...]) -> Iterator[tuple[Connection, Hostile]]:
    """Connect to a server that gives this answer to all commands after the session is set up."""

    def answers(command: bytes, number: int) -> bytes | tuple[bytes, ...]:
        return answer if b"SQL_MODE" not in command.upper() else OK

    with serving(answering(answers)) as hostile:
        connection = mysql.connect(hostile.server(), "target", local_infile=True)
        yield connection, hostile
        with contextlib.suppress(Exception):
            connection.close()


@pytest.mark.parametrize("use", USES)
def test_no_answer_gets_a_file(use: str, secret: bytes) -> None:
    with connected(secret) as (connection, hostile):
        with pytest.raises(FileRequested) as caught:
            USES[use](connection)
        assert not connection.open
        assert SECRET not in hostile.everything
    assert not caught.value.transient and "file" in str(caught.value)


@pytest.mark.parametrize("number", range(4))
def test_no_statement_of_the_connection_gets_a_file(number: int, secret: bytes) -> None:
    def answers(_: bytes, at: int) -> bytes:
        return secret if at == number else OK

    with serving(answering(answers)) as hostile, pytest.raises(FileRequested):
        for kind in (True, False):
            connection = mysql.connect(hostile.server(), "target", local_infile=kind)
            for _ in range(5):
                mysql.query(connection, "SET @a = 1")
    assert SECRET not in hostile.everything


def test_a_login_gets_no_file(secret: bytes) -> None:
    def script(talk: Talk) -> None:
        talk.send(greeting())
        talk.hear()
        talk.send(secret)
        talk.hear()

    with serving(script) as hostile, pytest.raises(FileRequested):
        mysql.connect(hostile.server(), "source s1")
    assert SECRET not in hostile.everything


def test_the_meta_tables_get_no_file(secret: bytes) -> None:
    with serving(answering(lambda command, _: secret if b"SELECT" in command else OK)) as hostile:
        with pytest.raises(FileRequested), MetaDatabase(hostile.server(), "meta", "task").reading() as db:
            db.execute(text("SELECT 1"))
    assert SECRET not in hostile.everything


def test_a_result_after_another_one_gets_no_file(secret: bytes) -> None:
    more = b"\0\0\0\x0a\0\0\0"
    with connected((more, secret)) as (connection, hostile):
        with pytest.raises(FileRequested):
            mysql.query(connection, "SET @a = 1")
            mysql.query(connection, "SET @a = 2")
        assert SECRET not in hostile.everything


def test_load_data_sends_its_own_lines_only_once(secret: bytes) -> None:
    def script(talk: Talk) -> None:
        talk.log_in()
        while talk.hear()[:5] != b"\3LOAD":
            talk.send(OK)
        for _ in range(2):
            talk.send(secret)
            while talk.hear():
                pass

    with serving(script) as hostile:
        connection = mysql.connect(hostile.server(), "target", local_infile=True)
        with pytest.raises(FileRequested):
            load(connection)
    assert b"1\n" in hostile.heard and SECRET not in hostile.everything


def switching(plugin: bytes, data: bytes = b"12345678901234567890\0") -> Callable[[Talk], None]:
    """Log in with a switch to another plugin, whose further requests the client gets one after the other."""

    def script(talk: Talk) -> None:
        talk.send(greeting())
        talk.hear()
        talk.send(b"\xfe" + plugin + b"\0" + data)
        talk.hear()
        talk.send(OK)
        talk.hear()

    return script


PLUGINS = {
    "mysql_clear_password": b"",
    "dialog": b"\2Password: ",
    "mysql_old_password": b"12345678\0",
    "authentication_pam": b"",
    "sha256_password_of_another_name": b"",
}


def asked(script: Callable[[Talk], None], server: Callable[[Hostile], Server] = Hostile.server) -> Hostile:
    """Connect to a server that must not get the password."""
    with serving(script) as hostile, pytest.raises(PasswordRequested) as caught:
        mysql.connect(server(hostile), "source s1")
    assert PASSWORD not in str(caught.value) and not caught.value.transient
    for part in (PASSWORD, PASSWORD[:-1], PASSWORD[::-1]):
        assert part.encode() not in hostile.everything
    return hostile


@pytest.mark.parametrize("plugin", PLUGINS)
def test_no_plugin_gets_the_password_in_clear(plugin: str) -> None:
    asked(switching(plugin.encode(), PLUGINS[plugin]))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca", "ours")


def over_tls(authority: Authority, script: Callable[[Talk], None], plugin: bytes) -> Callable[[Talk], None]:
    pair = authority.issue("db-1", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)

    def talking(talk: Talk) -> None:
        talk.send(greeting(plugin, capabilities=TLS))
        talk.hear()
        encrypted(talk, context)
        talk.hear()
        script(talk)

    return talking


def full(talk: Talk) -> None:
    """Request the password itself, as caching_sha2_password does."""
    talk.send(b"\1\4")
    talk.hear()
    talk.send(OK)
    talk.hear()


def clear(talk: Talk) -> None:
    talk.send(b"\xfemysql_clear_password\0")
    talk.hear()
    talk.send(OK)
    talk.hear()


def accept(talk: Talk) -> None:
    talk.send(OK)
    talk.hear()


SENDING = {"mysql_clear_password": clear, "caching_sha2_password": full, "sha256_password": accept}


@pytest.mark.parametrize("verify", [None, Verify.NONE, Verify.CA])
@pytest.mark.parametrize("plugin", SENDING)
def test_tls_without_a_verified_certificate_is_not_enough(
    plugin: str, verify: Verify | None, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verify.CA without ssl-ca accepts the certificate of anybody; here it does not even accept that."""
    monkeypatch.setattr(pymysqlprivate, "_is_loopback", lambda host: False)  # the server of this test is on loopback
    script = over_tls(authority, SENDING[plugin], plugin.encode())
    tls = Tls(verify) if verify else None
    if verify is Verify.CA:
        assert not mysql.tls_context(Tls(verify)).authenticates
        return
    asked(script, lambda hostile: hostile.server(tls=tls))


@pytest.mark.parametrize("tls", [Verify.FULL, Verify.CA])
@pytest.mark.parametrize("plugin", SENDING)
def test_a_verified_server_gets_the_password(plugin: str, tls: Verify, authority: Authority) -> None:
    with serving(over_tls(authority, SENDING[plugin], plugin.encode())) as hostile:
        server = hostile.server(tls=Tls(tls, ca=authority.path.read_text()))
        with pytest.raises(ConnectionLost):  # the script ends after the login
            mysql.connect(server, "source s1")
    assert PASSWORD.encode() in hostile.everything


@pytest.mark.parametrize("plugin", ["caching_sha2_password", "sha256_password"])
@pytest.mark.parametrize("begins_with_it", [True, False])
def test_a_key_of_the_server_protects_the_password_on_loopback_only(
    plugin: str, begins_with_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sends the key reads the password."""
    monkeypatch.setattr(pymysqlprivate, "_is_loopback", lambda host: False)

    def script(talk: Talk) -> None:
        talk.send(greeting(plugin.encode() if begins_with_it else b"mysql_native_password"))
        talk.hear()
        if not begins_with_it:
            talk.send(b"\xfe" + plugin.encode() + b"\0" + b"1" * 20 + b"\0")
            talk.hear()
        full(talk)

    hostile = asked(script)
    assert b"\1" not in hostile.heard and b"\2" not in hostile.heard, "no key was requested"


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")),
        *((host, False) for host in ("10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "0.0.0.0", "128.0.0.1")),
    ],
)
def test_addresses_of_this_machine(host: str, is_local: bool) -> None:
    assert pymysqlprivate._is_loopback(host) is is_local


def test_an_account_without_a_password_has_nothing_to_lose() -> None:
    with serving(switching(b"mysql_clear_password")) as hostile, pytest.raises(ConnectionLost):
        mysql.connect(hostile.server(""), "source s1")


GREETINGS = {
    "nothing": b"",
    "one byte": b"\x0a",
    "cut in the version": b"\x0a8.0",
    "cut in the salt": greeting()[:20],
    "cut in the capabilities": greeting()[:24],
    "no version": greeting(version=b""),
    "a version of letters": greeting(version=b"x.y"),
    "a plugin that is no text": greeting(b"\xff\xfe"),
    "an error": b"\xff\x15\x04#08004Too many",
    "a short error": b"\xff\x15",
    "a plugin beyond ASCII": greeting("ü".encode()),
    "OK": OK,
    "another protocol": b"SSH-2.0-OpenSSH_9.2",
}


@pytest.mark.parametrize("first", GREETINGS)
def test_greetings(first: str) -> None:
    def script(talk: Talk) -> None:
        talk.send(GREETINGS[first])
        talk.hear()
        talk.send(b"\xff\x15\x04#28000no")

    with serving(script) as hostile, pytest.raises(UnshardError) as caught:
        mysql.connect(hostile.server(), "source s1")
    assert caught.value.code.startswith("US-20")


LOGINS = {
    "nothing": (b"",),
    "a result set": result((b"1",)),
    "end of file": (EOF,),
    "a switch without a name": (b"\xfe",),
    "a switch without an end": (b"\xfemysql_native_password",),
    "a name beyond ASCII": (b"\xfe\xff\xff\0",),
    "two switches": (b"\xfemysql_native_password\0" + b"1" * 20, b"\xfemysql_native_password\0" + b"1" * 20),
    "more data without a plugin": (b"\1\3",),
    "one byte of more data": (b"\xfecaching_sha2_password\0" + b"1" * 20, b"\1"),
    "an unknown state": (b"\xfecaching_sha2_password\0" + b"1" * 20, b"\1\7"),
    "no challenge": (b"\xfecaching_sha2_password\0", b"\1\4", b"\1-----BEGIN PUBLIC KEY-----"),
    "a key that is none": (b"\xfesha256_password\0" + b"1" * 20, b"\1no key"),
    "an empty key": (b"\xfesha256_password\0" + b"1" * 20, b"\1"),
    "an error without a number": (b"\xff",),
    "an error with text that is no UTF-8": (b"\xff\x01\x04#00000\xff\xff",),
}


@pytest.mark.parametrize("answers", LOGINS)
def test_logins(answers: str) -> None:
    def script(talk: Talk) -> None:
        talk.send(greeting())
        for answer in LOGINS[answers]:
            talk.hear()
            talk.send(answer)
        talk.hear()

    with serving(script) as hostile, pytest.raises(UnshardError) as caught:
        mysql.connect(hostile.server(), "source s1")
    assert caught.value.code.startswith("US-20")
    assert PASSWORD.encode() not in hostile.everything


def test_a_login_of_single_bytes_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes within the limit of one answer."""
    monkeypatch.setattr(mysql, "CONNECT_SECONDS", 1.0)
    ended = threading.Event()

    def script(talk: Talk) -> None:
        for byte in struct.pack("<I", 1 << 20) + bytes(1 << 20):
            if not ended.wait(0.1):
                talk.raw(bytes((byte,)))

    with serving(script) as hostile, pytest.raises(ConnectionLost, match="too long"):
        mysql.connect(hostile.server(), "source s1")
    ended.set()


MORE_RESULTS = b"\x0a\0"
FOLLOWED: dict[str, tuple[bytes, ...]] = {
    "an OK": (b"\0\0\0" + MORE_RESULTS + b"\0\0",),
    "a result set": (b"\1", column(), EOF, counted(b"1"), b"\xfe\0\0" + MORE_RESULTS),
}


@pytest.mark.parametrize("answer", FOLLOWED)
@pytest.mark.parametrize("statement", ["SET @a = 1", "INSERT INTO t VALUES (1)", "SELECT 1"])
def test_results_that_never_end(statement: str, answer: str) -> None:
    def script(talk: Talk) -> None:
        talk.log_in()
        while b"SQL_MODE" in (command := talk.hear()).upper() or b"AUTOCOMMIT" in command.upper():
            talk.send(OK)
        while True:
            talk.send(*FOLLOWED[answer])

    for use in (mysql.query, lambda one, sql: list(mysql.stream(one, sql))):
        with serving(script) as hostile:
            connection = mysql.connect(hostile.server(), "target")
            with pytest.raises(ProtocolBroken):
                use(connection, statement)
            assert not connection.open


ENDLESS = b"\xff\xff\xff\0" + bytes(16)


def test_a_login_has_no_packets_of_16_mib() -> None:
    with serving(lambda talk: talk.raw(ENDLESS)) as hostile, pytest.raises(ProtocolBroken):
        mysql.connect(hostile.server(), "source s1")


ANSWERS: dict[str, tuple[bytes, ...]] = {
    "nothing": (b"",),
    "a byte of OK": (b"\0",),
    "OK that is cut off": (b"\0\xfe\1\2\3\4\5",),
    "OK with NULL": (b"\0\xfb\xfb\2\0\0\0",),
    "OK with a message": (OK + b"\xff\xff",),
    "end of file": (EOF,),
    "an error without a number": (b"\xff",),
    "an error of another kind": (b"\xff\xff\xff#HY000\xff",),
    "an error of number 0": (b"\xff\0\0#00000?",),
    "0 columns": (b"\xfc\0\0", EOF, EOF),
    "2^64 - 1 columns": (b"\xfe" + b"\xff" * 8,),
    "5000 columns": (b"\xfc\x88\x13", column()),
    "a count that is cut off": (b"\xfc\1",),
    "an impossible count": (b"\xff\1\1\1",),
    "a column of nothing": (b"\1", b"", EOF, EOF),
    "a column that is cut off": (b"\1", column()[:9], EOF, EOF),
    "a column of NULL": (b"\1", b"\xfb" * 30, EOF, EOF),
    "a name beyond UTF-8": (b"\1", column(b"\xff\xfe"), EOF, EOF),
    "more columns than announced": (b"\1", column(), column(), EOF, EOF),
    "fewer columns than announced": (b"\2", column(), EOF, EOF),
    "a row of too few values": (b"\2", column(), column(), EOF, counted(b"1"), EOF),
    "a row without values": (b"\1", column(), EOF, b"", EOF),
    "a value that is cut off": (b"\1", column(), EOF, b"\x09abc", EOF),
    "a value of 2^63 bytes": (b"\1", column(), EOF, b"\xfe" + b"\0" * 7 + b"\x80", EOF),
    "a value of 2^64 - 1 bytes": (b"\1", column(), EOF, b"\xfe" + b"\xff" * 8 + b"\0", EOF),
    "a value of 16 MiB that is not there": (b"\1", column(), EOF, b"\xfd\xff\xff\xff", EOF),
    "an error inside a row": (b"\1", column(), EOF, b"\xff", EOF),
}
ALL_OF_A_ROW = (b"\1", column(), EOF, counted(b"1") + b"rest", EOF)


PARSED = ("SELECT", "a stream", "a ping", "a statement of many rows", "a preparation", "rows in bulk", "a dump of rows")


@pytest.mark.parametrize("use", PARSED)
@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_to_commands(use: str, answer: str) -> None:
    def gone(talk: Talk) -> None:
        """Answer once, and close the connection."""
        talk.log_in()
        while b"SQL_MODE" in (command := talk.hear()).upper() or b"AUTOCOMMIT" in command.upper():
            talk.send(OK)
        talk.send(*ANSWERS[answer])

    with serving(gone) as hostile:
        connection = mysql.connect(hostile.server(), "target", local_infile=True)
        try:
            USES[use](connection)
        except UnshardError as error:
            assert error.code[:5] in ("US-20", "US-30")
        if connection.open:
            connection.close()


def test_a_row_of_a_dump_fills_its_packet() -> None:
    with connected(ALL_OF_A_ROW) as (connection, _), pytest.raises(ProtocolBroken, match="more values"):
        list(textrows.read_rows(connection, (ROW,), "SELECT c FROM t"))


def test_a_select_has_a_result_set() -> None:
    for use in (lambda one: mysql.query(one, "SELECT 1"), lambda one: list(mysql.stream(one, "SHOW TABLES"))):
        with connected(OK) as (connection, _), pytest.raises(ProtocolBroken, match="no result set"):
            use(connection)


@pytest.mark.parametrize("seed", range(examples(3, 10, 300)))
def test_random_answers(seed: int) -> None:
    """Bytes of whole answers are changed; a packet's length and number, too."""
    chance = random.Random(seed)
    packets = result((b"1",), (b"22",)) if seed % 2 else (OK,)
    raw = bytearray(b"".join(struct.pack("<I", len(one) | at + 1 << 24) + one for at, one in enumerate(packets)))
    for _ in range(chance.choice((1, 2, 5))):
        raw[chance.randrange(len(raw))] = chance.randrange(256)

    def script(talk: Talk) -> None:
        talk.log_in()
        while b"SQL_MODE" in (command := talk.hear()).upper() or b"AUTOCOMMIT" in command.upper():
            talk.send(OK)
        talk.raw(bytes(raw))

    for use in ("SELECT", "a stream", "an INSERT", "a preparation", "a dump of rows", "a dump of the binlog"):
        with serving(script) as hostile:
            connection = mysql.connect(hostile.server(), "target", local_infile=True)
            with contextlib.suppress(UnshardError):
                USES[use](connection)
            if connection.open:
                connection.close()


DUMPS = {
    "an event without a header": (b"\0" + b"1" * 10,),
    "an event of another size": (b"\0" + bytes(9) + b"\xff\0\0\0" + bytes(6),),
    "an empty event": (b"\0",),
    "nothing": (b"",),
    "a request for a file": (b"\xfb/etc/passwd",),
    "an error that is cut off": (b"\xff\1",),
}


def dumping(*packets: bytes) -> Callable[[Talk], None]:
    def script(talk: Talk) -> None:
        talk.log_in()
        while talk.hear()[:1] != b"\x12":
            talk.send(OK)
        talk.send(*packets)

    return script


@pytest.mark.parametrize("packets", DUMPS)
def test_dumps(packets: str) -> None:
    with serving(dumping(*DUMPS[packets])) as hostile:
        connection = mysql.connect(hostile.server(), "source s1")
        with pytest.raises(UnshardError) as caught:
            runs = binlogstream.stream_runs(connection, "s1", Location("b.000001", 4), 1)
            list(begins(event for run in runs for event in run.events()))
        assert caught.value.code.startswith("US-30")
        connection.close()


def test_packets_of_16_mib_end_with_their_event() -> None:
    """An event of 100 bytes does not continue in the next packet, however many the server sends."""
    head = b"\0" + struct.pack("<IBIIIH", 1, 16, 1, 100, 200, 0)

    def script(talk: Talk) -> None:
        dumping()(talk)
        for number in range(1, 1 << 16):
            talk.raw(b"\xff\xff\xff" + bytes((number % 256,)) + head + bytes(0xFFFFFF - len(head)))

    with serving(script) as hostile:
        connection = mysql.connect(hostile.server(), "source s1")
        with pytest.raises((DamagedEvent, DumpBroken), match="100"):
            list(binlogstream.stream_runs(connection, "s1", Location("b.000001", 4), 1))
        connection.close()


def test_nobody_listens() -> None:
    with serving(lambda talk: None) as hostile, pytest.raises((ServerUnreachable, ConnectionLost)):
        mysql.connect(hostile.server(), "source s1")
