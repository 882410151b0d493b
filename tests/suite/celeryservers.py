"""A Redis and a PostgreSQL on free loopback ports, as broker and metadata database of an Airflow with Celery.

Debian's packages are unpacked into a temporary folder, so nothing is installed and no service of the system starts.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.running import while_up
from unshard_demo import processes
from unshard_demo.processes import Program
from unshard_demo.servers import free_port

DOWNLOAD = ("apt-get", "-y", "-oDebug::NoLocking=1", "-oAPT::Sandbox::User=root", "install", "--download-only")
PACKAGES = ("--no-install-recommends", "redis-server", "postgresql")
INSTALLED = Path("/usr/lib/postgresql")
AS_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
"""PostgreSQL does not run as root."""
USER = "airflow"
START_SECONDS = 60.0


@contextlib.contextmanager
def celery_servers() -> Iterator[dict[str, str]]:
    """Run both for the block; yields the settings of Airflow."""
    with tempfile.TemporaryDirectory(prefix="unshard-celery-") as name, contextlib.ExitStack() as stack:
        folder, password = Path(name), secrets.token_urlsafe(12)
        folder.chmod(0o755)
        unpack(folder / "root")
        database = stack.enter_context(while_up(Postgres(folder, password)))
        broker = stack.enter_context(while_up(Redis(folder, password)))
        yield {
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CELERY__WORKER_CONCURRENCY": "8",
            "AIRFLOW__CELERY__BROKER_URL": f"redis://:{password}@127.0.0.1:{broker.port}/0",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{database.address}",
        }


def unpack(root: Path) -> None:
    """Unpack the packages that this machine lacks, and those that they need."""
    (archives := root / "archives").joinpath("partial").mkdir(parents=True)
    subprocess.run([*DOWNLOAD, f"-oDir::Cache::archives={archives}", *PACKAGES], check=True, capture_output=True)
    for package in archives.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)


class Unpacked:
    """A program of an unpacked package, with the libraries beside it."""

    program: Program

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.port = folder, folder / "root", free_port()
        libraries = ":".join(map(str, self.root.glob("usr/lib/*-linux-gnu")))
        self.environment = os.environ | {"LD_LIBRARY_PATH": libraries}

    def start(self, name: str, command: Sequence[object]) -> None:
        """Start the program, and wait until it listens."""
        log = self.folder / f"{name}.log"
        self.program = processes.start_program(name, [str(word) for word in command], self.environment, log)
        processes.await_true(lambda: processes.listens(self.port), START_SECONDS, [self.program], f"{name} listens")

    def stop(self) -> None:
        processes.stop_program(self.program)


class Redis(Unpacked):
    """A Redis that keeps nothing on disk."""

    def __init__(self, folder: Path, password: str) -> None:
        super().__init__(folder)
        config = folder / "redis.conf"
        config.touch(mode=0o600)
        config.write_text(f'bind 127.0.0.1\nport {self.port}\nrequirepass {password}\nsave ""\ndir {folder}\n')
        program = shutil.which("redis-server", path=f"{self.root / 'usr/bin'}:{os.environ['PATH']}")
        self.start("redis", [program, config])


class Postgres(Unpacked):
    """A PostgreSQL with a new database."""

    def __init__(self, folder: Path, password: str) -> None:
        super().__init__(folder)
        (home := folder / "postgres").mkdir(mode=0o700)
        (secret := home / "password").write_text(password)
        is_root = os.geteuid() == 0
        if is_root:
            shutil.chown(home, "nobody", "nogroup")
            shutil.chown(secret, "nobody", "nogroup")
        prefix, data = AS_NOBODY if is_root else (), home / "data"
        (bin_folder, *_) = (*INSTALLED.glob("*/bin"), *self.root.glob("usr/lib/postgresql/*/bin"))
        access = "--auth=scram-sha-256", f"--pwfile={secret}", f"--username={USER}"
        create = [*prefix, bin_folder / "initdb", "--no-sync", "--encoding=UTF8", *access, data]
        subprocess.run(create, env=self.environment, cwd=home, check=True, capture_output=True)
        options = f"-cport={self.port}", "-clisten_addresses=127.0.0.1", "-cunix_socket_directories=", "-cfsync=off"
        self.start("postgres", [*prefix, bin_folder / "postgres", "-D", data, "-cmax_connections=200", *options])
        self.address = f"{USER}:{password}@127.0.0.1:{self.port}/postgres"
