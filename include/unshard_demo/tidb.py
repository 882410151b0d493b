"""Private TiDB servers on free loopback ports: one process each, with an embedded store.

`.ci/tidb/build` builds the program; without it TiDB is not available.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pymysql

from unshard_demo import processes
from unshard_demo.servers import ADMIN, START_SECONDS, MariaDb, free_port

PROGRAM = Path(__file__).resolve().parents[2] / ".servers" / "tidb" / "tidb-server"
NOT_BUILT = "TiDB is not built: sh .ci/tidb/build (needs Go 1.23 or later)"
CONFIG = """\
temp-dir = "{folder}/temp"
tmp-storage-path = "{folder}/temp-storage"
enable-telemetry = false
[log]
level = "warn"
slow-query-file = "{folder}/slow.log"
[log.file]
filename = "{folder}/tidb.log"
[status]
report-status = false
[security]
{security}
"""


def is_built() -> bool:
    """Whether the program exists."""
    return PROGRAM.exists()


def start(folder: Path, *, port: int | None = None, password: str = "unshard", security: str = "") -> MariaDb:
    """Start a server in `folder`, which keeps its data; `security` is that section of its configuration."""
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "tidb.toml"
    config.write_text(CONFIG.format(folder=folder, security=security))
    command = [
        str(PROGRAM),
        f"--config={config}",
        "--store=unistore",
        f"--path={folder / 'data'}",
        "--host=127.0.0.1",
        "-P",
        str(port),
        f"--socket={folder / 'm.sock'}",
    ]
    started = processes.start(f"TiDB in {folder}", command, {**os.environ, "TZ": "UTC"}, folder / "server.log")
    server = MariaDb(folder, port, started, password)
    processes.await_true(lambda: _answers(server), START_SECONDS, [started], "TiDB answers")
    return server


@contextlib.contextmanager
def running(folder: Path) -> Iterator[MariaDb]:
    """Start a server and stop it at the end of the block."""
    server = start(folder)
    try:
        yield server
    finally:
        server.stop()


def _answers(server: MariaDb) -> bool:
    """Whether the account of tests and demo can connect; in a new server the account is created first."""
    try:
        server.connect().close()
    except pymysql.err.OperationalError:
        with contextlib.suppress(pymysql.err.OperationalError):
            _create_account(server)
        return False
    return True


def _create_account(server: MariaDb) -> None:
    """Create the account, and set the same password for root, which has none in a new TiDB."""
    options = {"host": "127.0.0.1", "port": server.port, "user": "root", "ssl_disabled": True}
    with contextlib.closing(pymysql.connect(**options)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE USER IF NOT EXISTS %s@'%%' IDENTIFIED BY %s", (ADMIN, server.password))
        cursor.execute("GRANT ALL ON *.* TO %s@'%%' WITH GRANT OPTION", (ADMIN,))
        cursor.execute("ALTER USER root IDENTIFIED BY %s", (server.password,))
