"""The servers of all parts: a source with its binlog, a target that starts each run as a copy, a warm Spark session.

A `Backlog` is the changes of one workload in the source's binlog, with the data folder of a server that has the rows
before these changes. Every run gets a fresh copy of that folder, so that each contestant finds the same rows, the same
empty caches and the same free space.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tests.bench.workloads import SCHEMA, Workload
from tests.localspark import LocalSpark
from tests.taskfile import endpoint, write_sources
from unshard.adapters import mysql, upstream
from unshard.adapters.relay import RelayStore
from unshard.adapters.spark import map_items, open_session
from unshard.adapters.structures import read_schemas
from unshard.config import load_task
from unshard.core.model import Location, Shard, TableId
from unshard.units.ddl.execute import create_target
from unshard.units.relay import pull as relay
from unshard.units.work import Work, open_work
from unshard_demo import servers, spark
from unshard_demo.processes import Program
from unshard_demo.servers import MariaDb

SOURCE = "s1"
ROOMY = ("--innodb-buffer-pool-size=512M", "--innodb-log-file-size=256M", "--innodb-doublewrite=0")


@dataclass(frozen=True)
class Backlog:
    """Changes of a workload between two locations of the source's binlog."""

    workload: Workload
    begins: Location
    gtid: str
    ends: Location
    base: Path
    """Data folder of a server that has the rows before the changes."""
    relay: Path
    """Relay folder with the pulled changes."""
    checksum: int
    """Checksum of the source's table after the changes."""


@dataclass
class Stand:
    """The servers and Spark of one bench run."""

    folder: Path
    source: MariaDb
    stack: contextlib.ExitStack
    backlogs: dict[Workload, Backlog]
    with_spark: bool = True
    """Without it windows run in this process, to try out the bench without a comparison."""
    copies: int = 0

    @cached_property
    def _connect(self) -> tuple[spark.SparkConnect, Any]:
        server = self.stack.enter_context(spark.running_spark(self.folder / "spark", memory="2g"))
        return server, open_session(server.url)

    @property
    def programs(self) -> Mapping[str, Program]:
        """The programs other than the target whose CPU seconds windows use."""
        return {"spark": self._connect[0].program} if self.with_spark else {}

    @property
    def session(self) -> Any:
        return self._connect[1] if self.with_spark else LocalSpark()

    def warm(self) -> None:
        """Start Spark's Python workers and their imports; idle workers end after a minute."""
        if self.with_spark:
            list(map_items(self.session, _import_all, ["1", "2"], 2))

    def backlog(self, workload: Workload) -> Backlog:
        """Return the changes of a workload; the first call writes them."""
        if workload not in self.backlogs:
            self.backlogs[workload] = self._write(workload)
        return self.backlogs[workload]

    def _write(self, workload: Workload) -> Backlog:
        self.source.run(*workload.prepare(), "FLUSH BINARY LOGS")
        self.copies += 1
        base = self.folder / f"base-{self.copies}"
        with servers.running(base, *ROOMY) as server:
            server.run(f"CREATE DATABASE {SCHEMA}")
            copy_table(self.source, server, workload)
        begins, gtid = self._end()
        self.source.run("DO 0", *workload.write())
        ends, _ = self._end()
        folder = self.folder / f"relay-{self.copies}"
        folder.mkdir()
        relay.pull(SOURCE, self.source.server, RelayStore(folder), begins, until=ends)
        return Backlog(workload, begins, gtid, ends, base / "data", folder, checksum(self.source, workload))

    def _end(self) -> tuple[Location, str]:
        with contextlib.closing(mysql.connect(self.source.server)) as connection:
            found = upstream.inspect(connection, SOURCE)
        return found.end, found.gtid

    @contextlib.contextmanager
    def server(self, backlog: Backlog, *options: str) -> Iterator[MariaDb]:
        """Run a server for the block that has the rows before the changes, read once; it is deleted afterwards."""
        self.copies += 1
        folder = self.folder / f"copy-{self.copies}"
        shutil.copytree(backlog.base, folder / "data")
        try:
            with servers.running(folder, *ROOMY, *options) as server:
                server.run(f"CHECKSUM TABLE {backlog.workload.table}")
                yield server
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def work(
        self, backlog: Backlog, target: MariaDb, session: Callable[[], Any] | None = None, **options: object
    ) -> Iterator[Work]:
        """Open a task whose next window begins with the backlog; `options` are the task file's."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            storage = folder / "storage"
            path = write_task(folder, backlog.workload, self.source, target, {"storage-path": str(storage), **options})
            with open_work(load_task(path)) as opened:
                shutil.copytree(backlog.relay, opened.store.folder, copy_function=os.link)
                _hand_over(opened, backlog)
                chosen = session or (lambda: self.session)
                yield replace(opened, spark=chosen, bulk_spark=chosen)

    def check(self, backlog: Backlog, target: MariaDb) -> None:
        """Compare the target with the source as it is after the backlog."""
        found = checksum(target, backlog.workload)
        if found != backlog.checksum:
            raise SystemExit(f"{backlog.workload.table}: checksum {found}, the source has {backlog.checksum}")


@contextlib.contextmanager
def running(with_spark: bool = True) -> Iterator[Stand]:
    """Start the source; Spark starts with the first part that needs it."""
    with tempfile.TemporaryDirectory(prefix="unshard-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        source = stack.enter_context(servers.running(folder / "source", *ROOMY, server_id=1))
        source.run(f"CREATE DATABASE {SCHEMA}")
        yield Stand(folder, source, stack, {}, with_spark)


def write_task(
    folder: Path, workload: Workload, source: MariaDb, target: MariaDb, options: Mapping[str, object]
) -> Path:
    """Write the files of a task that replicates the workload's table under its own name."""
    write_sources(folder, {SOURCE: source})
    path = folder / "bench.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "bench",
                "task-mode": "incremental",
                "shard-mode": "pessimistic",
                "target-database": endpoint(target),
                "mysql-instances": [{"source-id": SOURCE, "route-rules": ["all"], "block-allow-list": "ours"}],
                "routes": {
                    "all": {
                        "schema-pattern": SCHEMA,
                        "table-pattern": workload.name,
                        "target-schema": SCHEMA,
                        "target-table": workload.name,
                    }
                },
                "block-allow-list": {"ours": {"do-tables": [{"db-name": SCHEMA, "tbl-name": workload.name}]}},
                "unshard": dict(options),
            }
        )
    )
    return path


def _hand_over(work: Work, backlog: Backlog) -> None:
    """Create the state that full load and handover leave when the windows begin."""
    table = TableId(SCHEMA, backlog.workload.name)
    with contextlib.closing(mysql.connect(work.sources[SOURCE])) as connection:
        about = upstream.inspect(connection, SOURCE)
        schema = read_schemas(connection, [table])[table]
    work.meta.sources.add(SOURCE, about.identity, about.flavor)
    with contextlib.closing(mysql.connect(work.target)) as connection:
        create_target(connection, table, schema)
    work.meta.structures.put(schema)
    work.meta.structures.record(Shard(SOURCE, table), table, backlog.begins, schema.digest)
    work.meta.checkpoints.start(SOURCE, backlog.begins, backlog.gtid)


def _import_all(_: str) -> tuple[str, ...]:
    import unshard.units.window.tasks

    return (unshard.units.window.tasks.__name__,)


def copy_table(source: MariaDb, target: MariaDb, workload: Workload) -> None:
    """Copy a table with its rows by `mariadb-dump | mariadb`."""
    pipe(
        ["mariadb-dump", *login(source), "--single-transaction", SCHEMA, workload.name],
        ["mariadb", *login(target), SCHEMA],
        source,
        target,
    )


def pipe(writer: list[str], reader: list[str], source: MariaDb, target: MariaDb) -> None:
    """Run two clients, with the output of the first as the input of the second."""
    with (
        subprocess.Popen(writer, stdout=subprocess.PIPE, env=password(source)) as writing,
        subprocess.Popen(reader, stdin=writing.stdout, env=password(target)) as reading,
    ):
        writing.stdout.close()  # close our end, so that the writer notices when its reader has ended
    if writing.returncode or reading.returncode:
        raise SystemExit(f"{writer[0]} | {reader[0]} failed")


def checksum(server: MariaDb, workload: Workload) -> int:
    """Return the server's own checksum of the table's rows."""
    ((_, value),) = server.run(f"CHECKSUM TABLE {workload.table}")
    return int(str(value))


def login(server: MariaDb) -> list[str]:
    return ["--no-defaults", "--host=127.0.0.1", f"--port={server.port}", f"--user={server.server.user}"]


def password(server: MariaDb) -> dict[str, str]:
    return os.environ | {"MYSQL_PWD": server.password}
