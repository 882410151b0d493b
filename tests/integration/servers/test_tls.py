"""TLS with a real server and our own certificates: which clients and servers are accepted, and that the traffic is
encrypted.
"""

import contextlib
import dataclasses
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.certificates import Authority, Pair
from tests.running import while_up
from tests.tidbsettings import is_tidb
from unshard.adapters import mysql
from unshard.adapters.meta import Meta
from unshard.adapters.relayfiles import RelayStore
from unshard.adapters.target import tried_writer
from unshard.config import environment_connections, load_task, resolve
from unshard.core.model import Location, Server
from unshard.errors import UnshardError
from unshard.errors.config import CertificateInvalid
from unshard.errors.source import AccessDenied, TlsFailed
from unshard.units.relay import pull
from unshard_demo import servers
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@dataclasses.dataclass
class World:
    """A source that requires TLS and authenticates its clients by their certificates."""

    server: MariaDb
    ours: Authority
    theirs: Authority
    client: Pair
    folder: Path

    def resolved(self, **security: object) -> Server:
        """Return the server of a source file with this security block."""
        (self.folder / "sources").mkdir(exist_ok=True)
        endpoint = {"host": "127.0.0.1", "port": self.server.port, "user": "secure", "security": security}
        body = {"source-id": "s1", "from": endpoint}
        (self.folder / "sources/s1.yaml").write_text(yaml.safe_dump(body))
        task = {"name": "t", "task-mode": "all", "target-database": endpoint, "mysql-instances": [{"source-id": "s1"}]}
        (self.folder / "task.yaml").write_text(yaml.safe_dump(task))
        return resolve(load_task(self.folder / "task.yaml").instances[0].source.endpoint, environment_connections)

    def shown(self, **security: object) -> Server:
        """The same, with the client's certificate."""
        return self.resolved(**security, **{"ssl-cert": str(self.client.certificate), "ssl-key": str(self.client.key)})

    @property
    def ca(self) -> str:
        return str(self.ours.path)


@contextlib.contextmanager
def started(make: str, folder: Path, ours: Authority) -> Iterator[MariaDb]:
    """Start a server with the certificate db-1."""
    pair = ours.issue("db-1", "127.0.0.1")
    files = {"ssl-ca": ours.path, "ssl-cert": pair.certificate, "ssl-key": pair.key}
    if make == "mariadb":
        with while_up(
            servers.start_server(folder, *(f"--{name}={path}" for name, path in files.items()), server_id=401)
        ) as server:
            yield server
        return
    if not servers.is_tidb_built():
        pytest.skip("TiDB is not built: sh .ci/tidb/build (needs Go 1.23 or later)")
    server = servers.start_tidb(folder, security="\n".join(f'{name} = "{path}"' for name, path in files.items()))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module", params=["mariadb", pytest.param("tidb", marks=pytest.mark.tidb)])
def secured(request: pytest.FixtureRequest, server_folder: Path) -> Iterator[tuple[MariaDb, Authority, Authority]]:
    """A server whose certificate is for 127.0.0.1 and the common name db-1."""
    folder = server_folder / f"secured-{request.param}"
    ours, theirs = (Authority(folder / "certificates", name) for name in ("ours", "theirs"))
    with started(request.param, folder / "server", ours) as server:
        server.run("CREATE USER secure@'%' REQUIRE X509", "GRANT ALL ON *.* TO secure@'%' WITH GRANT OPTION")
        server.run("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        yield server, ours, theirs


@pytest.fixture
def world(secured: tuple[MariaDb, Authority, Authority], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    server, ours, theirs = secured
    monkeypatch.setenv("UNSHARD_SECRET_FOLDERS", str(ours.path.parent))
    return World(server, ours, theirs, ours.issue("unshard"), tmp_path)


def cipher(server: Server) -> str:
    with contextlib.closing(mysql.connect(server, "source s1")) as connection:
        ((_, name),) = mysql.query(connection, "SHOW STATUS LIKE 'Ssl_cipher'")
    return str(name)


def test_rows_are_written_by_parameters_over_tls(world: World) -> None:
    """The capabilities that tell MariaDB so are sent twice: before and after the connection is encrypted."""
    if world.server.run("SELECT VERSION() LIKE '%TiDB%'") == [(1,)]:
        pytest.skip("TiDB has no COM_STMT_BULK_EXECUTE")
    assert tried_writer(world.shown(**{"ssl-ca": world.ca}), "d").bulk


def failure(server: Server) -> UnshardError:
    with pytest.raises(UnshardError) as caught:
        cipher(server)
    return caught.value


def test_a_connection_is_let_in_by_its_certificate(world: World) -> None:
    server = world.shown(**{"ssl-ca": world.ca})
    assert cipher(server)
    travelled = pickle.loads(pickle.dumps(server))
    world.client.key.unlink()
    assert cipher(travelled), "an executor has no files"
    assert isinstance(failure(world.resolved(**{"ssl-ca": world.ca})), AccessDenied)


def test_every_kind_of_connection_is_secured(world: World) -> None:
    server = world.shown(**{"ssl-ca": world.ca, "cert-allowed-cn": ["db-1"]})
    with contextlib.closing(mysql.connect_raw(server)) as connection:
        assert mysql.query(connection, "SELECT 'ok'") == [(b"ok",)]
    meta = Meta(server, "secured_meta", "t")
    meta.create_tables()
    assert meta.sources.all() == ()
    world.server.run("INSERT INTO d.t VALUES (1)")
    if is_tidb(world.server):
        return  # it has no binlog
    store = RelayStore(world.folder / "relay")
    pull.pull("s1", server, store, Location("mysql-bin.000001", 4))
    assert store.segments("s1")


@pytest.mark.sample(reason="the certificate and the client do not interact")
@pytest.mark.parametrize(
    ("security", "works", "words"),
    [
        (lambda w: {"ssl-ca": w.ca}, True, ""),
        (lambda w: {"ssl-ca": str(w.theirs.path)}, False, "certificate verify failed"),
        (lambda w: {"ssl-ca": str(w.theirs.path), "verify": "none"}, True, ""),
        (lambda w: {"ssl-ca": w.ca, "cert-allowed-cn": ["db-2", "db-1"]}, True, ""),
        (lambda w: {"ssl-ca": w.ca, "cert-allowed-cn": ["db-2"]}, False, "common name db-1 is not one of db-2"),
        (lambda w: {"verify": "full"}, False, "certificate verify failed"),
        (lambda w: {}, True, ""),
    ],
)
def test_who_is_trusted(world: World, security: Callable[[World], dict[str, object]], works: bool, words: str) -> None:
    server = world.shown(**security(world))
    if works:
        assert cipher(server)
        return
    error = failure(server)
    assert isinstance(error, TlsFailed) and words in str(error) and "source s1" in str(error)
    assert not error.transient


def test_the_host_must_be_the_certificates_unless_told_otherwise(world: World) -> None:
    elsewhere = dataclasses.replace(world.shown(**{"ssl-ca": world.ca}), host="localhost")
    error = failure(elsewhere)
    assert isinstance(error, TlsFailed) and "localhost" in str(error)
    assert cipher(dataclasses.replace(world.shown(**{"ssl-ca": world.ca, "verify": "ca"}), host="localhost"))


def test_a_server_without_tls_is_refused_when_the_task_asks_for_it(world: World, upstream_server: MariaDb) -> None:
    server = dataclasses.replace(upstream_server.server, tls=world.shown(**{"ssl-ca": world.ca}).tls)
    error = failure(server)
    assert isinstance(error, TlsFailed) and "doesn't support it" in str(error)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (lambda w: {"ssl-key": w.ours.issue("other").key}, "KEY_VALUES_MISMATCH"),
        (lambda w: {"ssl-cert": w.client.key}, ""),
        (lambda w: {"ssl-ca": w.client.key}, ""),
    ],
)
def test_certificates_that_are_none_say_so_and_show_nothing(world: World, changes, words: str) -> None:
    keys = {"ssl-ca": world.ca, "ssl-cert": world.client.certificate, "ssl-key": world.client.key, **changes(world)}
    error = failure(world.resolved(**{key: str(path) for key, path in keys.items()}))
    assert isinstance(error, CertificateInvalid) and words in str(error)
    secret = world.client.key.read_text().splitlines()[1]
    assert secret not in str(error) + repr(error)
