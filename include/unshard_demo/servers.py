"""Private MariaDB and TiDB servers on free loopback ports, each in its own folder.

MariaDB never touches the system's server: it has its own data directory, socket and port, and no defaults file. A data
directory is created once and then copied, which takes 0.03 s instead of 1 s.

TiDB is one process each, with an embedded store.

`.ci/tidb/build` builds the program; without it TiDB is not available.
"""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom

import pymysql

from unshard.core.model import Server
from unshard_demo import processes
from unshard_demo.processes import Program

INSTALL = (
    "mariadb-install-db",
    "--no-defaults",
    "--auth-root-authentication-method=normal",
    "--skip-test-db",
    "--skip-name-resolve",
    "--innodb-log-file-size=10M",
)
OPTIONS = (
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=10M",
    "--innodb-flush-log-at-trx-commit=2",
    "--aria-pagecache-buffer-size=1M",
    "--key-buffer-size=1M",
    "--performance-schema=OFF",
    "--skip-name-resolve",
    "--local-infile=1",
    "--bind-address=127.0.0.1",
    "--max-connections=200",
    "--character-set-server=utf8mb4",
    "--collation-server=utf8mb4_general_ci",
)
SOURCE_OPTIONS = ("--log-bin=mysql-bin", "--binlog-format=ROW", "--binlog-row-image=FULL", "--sync-binlog=0")
PORTS = (15_000, 32_000)
START_SECONDS = 300.0
STOP_SECONDS = 60.0
ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class MariaDb:
    """A running private server."""

    folder: Path
    port: int
    program: Program
    password: str = field(repr=False)

    @property
    def server(self) -> Server:
        return Server("127.0.0.1", self.port, ADMIN, self.password)

    def connect(self, **options: object) -> pymysql.connections.Connection:
        # Without TLS: loading the system's certificates takes longer than the rest of the connection.
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=ADMIN,
            password=self.password,
            ssl_disabled=True,
            charset="utf8mb4",
            autocommit=True,
            **options,
        )

    def run(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements in order; return the rows of the last one."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def stop(self) -> None:
        processes.stop_program(self.program, STOP_SECONDS)

    def kill(self) -> None:
        """Kill the server, like a power failure."""
        processes.kill(self.program)


def free_port() -> int:
    """Return an unused loopback port.

    It is below the range that the kernel uses for outgoing connections, which could take the port before the server
    does.
    """
    while True:
        port = SystemRandom().randrange(*PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def start_server(
    folder: Path, *options: str, server_id: int | None = None, port: int | None = None, password: str = "unshard"
) -> MariaDb:
    """Start a server in `folder`, which is created on first use; with a `server_id` it is a source."""
    data = folder / "data"
    if not data.is_dir():
        _create(data, folder.parent / "template", password)
    binlog = (*SOURCE_OPTIONS, f"--server-id={server_id}") if server_id else ()
    return launch_server(folder, ["mariadbd", "--no-defaults", *OPTIONS, *binlog], options, port, password)


def launch_server(
    folder: Path,
    program: Sequence[str],
    options: Sequence[str] = (),
    port: int | None = None,
    password: str = "unshard",
) -> MariaDb:
    """Start a program with its options in a folder that contains its `data`."""
    port, data = port or free_port(), folder / "data"
    user = ("--user=root",) if os.geteuid() == 0 else ()
    command = [
        *program,
        *user,
        f"--datadir={data}",
        f"--port={port}",
        f"--socket={folder / 'm.sock'}",
        f"--pid-file={folder / 'pid'}",
        # A server that starts deletes the temporary tables in /tmp, including those of other servers.
        f"--tmpdir={data}",
        *options,
    ]
    # A fixed time zone, because `unshard check` compares the machine's clock with the task's.
    started = processes.start_program(
        f"server in {folder}", command, {**os.environ, "TZ": "UTC"}, folder / "server.log"
    )
    server = MariaDb(folder, port, started, password)
    processes.await_true(lambda: _answers(server), START_SECONDS, [started], "the server answers")
    return server


def _create(data: Path, template: Path, password: str) -> None:
    if not (template / "ready").exists():
        shutil.rmtree(template, ignore_errors=True)
        template.parent.mkdir(parents=True, exist_ok=True)
        owner = ("--user=root",) if os.geteuid() == 0 else ()
        # A separate folder for temporary tables, for the same reason as in `start`.
        alone = {**os.environ, "TMPDIR": str(template.parent)}
        subprocess.run([*INSTALL, *owner, f"--datadir={template}"], check=True, capture_output=True, env=alone)
        account = (
            "FLUSH PRIVILEGES;\n"
            f"CREATE USER '{ADMIN}'@'%' IDENTIFIED BY '{password}';\n"
            f"GRANT ALL ON *.* TO '{ADMIN}'@'%' WITH GRANT OPTION;\n"
        )
        subprocess.run(
            ["mariadbd", "--no-defaults", "--bootstrap", *owner, f"--datadir={template}"],
            input=account.encode(),
            check=True,
            capture_output=True,
            env=alone,
        )
        (template / "ready").touch()
    data.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(template, data)


def _answers(server: MariaDb) -> bool:
    try:
        server.connect().close()
    except pymysql.err.OperationalError:
        return False
    return True


# --- TiDB ---

TIDB = Path(__file__).resolve().parents[2] / ".servers" / "tidb" / "tidb-server"
TIDB_NOT_BUILT = "TiDB is not built: sh .ci/tidb/build (needs Go 1.23 or later)"
TIDB_CONFIG = """\
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


def is_tidb_built() -> bool:
    """Whether the program exists."""
    return TIDB.exists()


def start_tidb(folder: Path, *, port: int | None = None, password: str = "unshard", security: str = "") -> MariaDb:
    """Start a server in `folder`, which keeps its data; `security` is that section of its configuration."""
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "tidb.toml"
    config.write_text(TIDB_CONFIG.format(folder=folder, security=security))
    command = [
        str(TIDB),
        f"--config={config}",
        "--store=unistore",
        f"--path={folder / 'data'}",
        "--host=127.0.0.1",
        "-P",
        str(port),
        f"--socket={folder / 'm.sock'}",
    ]
    started = processes.start_program(f"TiDB in {folder}", command, {**os.environ, "TZ": "UTC"}, folder / "server.log")
    server = MariaDb(folder, port, started, password)
    processes.await_true(lambda: _tidb_answers(server), START_SECONDS, [started], "TiDB answers")
    return server


def _tidb_answers(server: MariaDb) -> bool:
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
