"""Servers of other versions than the installed one, from the folders where `.ci/servers` unpacks them.

They run with their own loader and libraries, so nothing must be installed.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from unshard_demo import servers
from unshard_demo.servers import ADMIN, SOURCE_OPTIONS, MariaDb

FOLDER = Path(__file__).resolve().parents[1] / ".servers"
ACCOUNT = (
    f"CREATE USER IF NOT EXISTS '{ADMIN}'@'%' IDENTIFIED BY 'unshard'",
    f"GRANT ALL ON *.* TO '{ADMIN}'@'%' WITH GRANT OPTION",
)
OF_MYSQL = (
    "--innodb-buffer-pool-size=64M",
    "--innodb-redo-log-capacity=16M",
    "--innodb-flush-log-at-trx-commit=2",
    "--performance-schema=OFF",
    "--skip-name-resolve",
    "--local-infile=1",
    "--secure-file-priv=",
    "--mysqlx=OFF",
    "--bind-address=127.0.0.1",
    "--max-connections=200",
    "--character-set-server=utf8mb4",
    "--collation-server=utf8mb4_general_ci",
)


@dataclass(frozen=True)
class Version:
    """A server that may be unpacked; its name begins with the product."""

    name: str
    server_id: int

    @property
    def root(self) -> Path:
        return FOLDER / self.name / "root"

    @property
    def is_there(self) -> bool:
        return self.root.is_dir()

    def need(self) -> None:
        """Skip the test if the server is missing: a moved archive is not our error."""
        if not self.is_there:
            pytest.skip(f"{self.name} is not unpacked, or could not be had: sh .ci/servers")

    @property
    def is_mysql(self) -> bool:
        return self.name.startswith("mysql")

    @contextlib.contextmanager
    def running(self, folder: Path, *options: str) -> Iterator[MariaDb]:
        """Start a server in a new folder; after the block, stop it and delete its data."""
        self.need()
        self._create(folder)
        usual = OF_MYSQL if self.is_mysql else servers.OPTIONS
        binlog = (*SOURCE_OPTIONS, f"--server-id={self.server_id}")
        account = [f"--init-file={folder / 'account.sql'}"] if self.is_mysql else []
        server = servers.launch_server(folder, [*self._program(), *usual, *binlog, *account], options)
        try:
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder / "data")

    def _program(self) -> list[str]:
        """Return the command that starts the server."""
        (loader,) = self.root.glob("**/*-linux-gnu/ld-linux-*.so.*")
        system = loader.parent.name
        libraries = [self.root / base / system / more for base in ("lib", "usr/lib") for more in ("", "private")]
        return [
            str(loader),
            "--library-path",
            ":".join(map(str, libraries)),
            str(self.root / "usr/sbin" / ("mysqld" if self.is_mysql else "mariadbd")),
            "--no-defaults",
            f"--basedir={self.root / 'usr'}",
            f"--lc-messages-dir={self._share()}",
            f"--plugin-dir={self.root / 'usr/lib/mysql/plugin'}",
        ]

    def _share(self) -> Path:
        (messages,) = self.root.glob("usr/share/*/english/errmsg.sys")
        return messages.parents[1]

    def _create(self, folder: Path) -> None:
        """Create a data directory with the account that tests use."""
        data, owner = folder / "data", ["--user=root"] if os.geteuid() == 0 else []
        command = [*self._program(), *owner, f"--datadir={data}"]
        if self.is_mysql:
            folder.mkdir(parents=True)
            _run([*command, "--initialize-insecure", "--innodb-redo-log-capacity=16M"], "")
            # The server creates no accounts in this mode, so the first start creates them.
            (folder / "account.sql").write_text("".join(f"{one};\n" for one in ("SET sql_log_bin = 0", *ACCOUNT)))
            return
        (data / "mysql").mkdir(parents=True)
        files = [path for kind in ("", "_data") for path in self._share().glob(f"m*_system_tables{kind}.sql")]
        statements = [f"{one};" for one in ("FLUSH PRIVILEGES", *ACCOUNT)]
        _run(
            [*command, "--bootstrap", "--innodb-log-file-size=10M"],
            "\n".join(["USE mysql;", *(file.read_text() for file in files), *statements]),
        )


def _run(command: list[str], text: str) -> None:
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


MARIADB_OLD = Version("mariadb-10.5", 711)
MARIADB_NEW = Version("mariadb-11.8", 712)
MYSQL = Version("mysql-9.7", 713)
VERSIONS = (MARIADB_OLD, MARIADB_NEW, MYSQL)
