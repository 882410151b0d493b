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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import yaml

from tests.bench.settings import PLAIN, Reported, Settings, reported
from tests.bench.workloads import SCHEMA, Workload
from tests.localspark import LocalSpark
from tests.running import while_up
from tests.taskfile import endpoint, write_sources
from unshard.adapters import mysql, upstream
from unshard.adapters.relayfiles import RelayStore
from unshard.adapters.spark import map_items, open_spark_session
from unshard.adapters.structures import read_schemas
from unshard.config import load_task
from unshard.core.model import Location, Shard, TableId
from unshard.units.ddl.execute import create_target
from unshard.units.relay import pull as relay
from unshard.units.work import Work, open_work
from unshard_demo import servers, sparkserver
from unshard_demo.processes import Program
from unshard_demo.servers import MariaDb

SOURCE = "s1"
KEPT_CHANGES = 1_000_000
"""A larger backlog is deleted after its part, because it fills the disk."""


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
    settings: Settings = PLAIN
    reported: dict[str, Reported] = field(default_factory=dict)
    """The settings of the servers of this part, by the role of a server."""
    conditions: list[str] = field(default_factory=list)
    """What this part has measured with: for the page."""
    notes: list[str] = field(default_factory=list)
    """What the page says below the figures of this part."""
    ends: float = inf
    """When this part shall have ended, on the monotonic clock."""
    ran: list[int] = field(default_factory=list)
    """How many rounds each comparison of this part has had."""

    def begin_part(self, seconds: float) -> None:
        """Forget what the part before has noted."""
        self.ends = time.monotonic() + seconds
        self.ran.clear()
        self.reported.clear()
        self.conditions.clear()
        self.notes.clear()

    def rounds(self, wanted: int) -> Iterator[int]:
        """Yield the numbers of the rounds; after the first one, none that would end later than the part shall end."""
        self.ran.append(0)
        while self.ran[-1] < wanted:
            began = time.monotonic()
            yield self.ran[-1]
            self.ran[-1] += 1
            if (now := time.monotonic()) + (now - began) > self.ends:
                return

    def note_settings(self, role: str, server: MariaDb) -> None:
        self.reported[role] = reported(server)

    @cached_property
    def _connect(self) -> tuple[sparkserver.SparkConnect, Any]:
        server = self.stack.enter_context(while_up(sparkserver.start_spark(self.folder / "spark", memory="2g")))
        return server, open_spark_session(server.url)

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
            list(map_items(self.session, import_all, ["1", "2"], 2))

    def backlog(self, workload: Workload) -> Backlog:
        """Return the changes of a workload; the first call writes them."""
        if workload not in self.backlogs:
            self.backlogs[workload] = self._write(workload)
        return self.backlogs[workload]

    def _write(self, workload: Workload) -> Backlog:
        self.settings.write_fast(self.source)
        self.source.run(*workload.prepare(), "FLUSH BINARY LOGS")
        self.copies += 1
        base = self.folder / f"base-{self.copies}"
        with while_up(servers.start_server(base, *self.settings.roomy)) as server:
            server.run(f"CREATE DATABASE {SCHEMA}")
            copy_table(self.source, server, workload)
        begins, gtid = self._end()
        return self._written(workload, 0, begins, gtid, base / "data")

    def _written(self, workload: Workload, done: int, begins: Location, gtid: str, base: Path) -> Backlog:
        """Make the changes after the first `done` ones, and pull all."""
        self.settings.write_fast(self.source)
        self.source.run("DO 0", *workload.write(done))
        self.settings.write_as_measured(self.source)
        ends, _ = self._end()
        self.copies += 1
        folder = self.folder / f"relay-{self.copies}"
        folder.mkdir()
        relay.pull(SOURCE, self.source.server, RelayStore(folder), begins, until=ends)
        return Backlog(workload, begins, gtid, ends, base, folder, checksum(self.source, workload))

    def longer(self, backlog: Backlog, changes: int) -> Backlog:
        """Return a backlog that begins with this one, which is gone then, and has so many changes."""
        workload = replace(backlog.workload, changes=changes)
        found = self._written(workload, backlog.workload.changes, backlog.begins, backlog.gtid, backlog.base)
        shutil.rmtree(backlog.relay)
        self.backlogs.pop(backlog.workload, None)
        self.backlogs[workload] = found
        return found

    def release(self, backlog: Backlog) -> None:
        """Delete a large backlog."""
        if backlog.workload.changes <= KEPT_CHANGES:
            return
        self.backlogs.pop(backlog.workload, None)
        shutil.rmtree(backlog.relay)
        shutil.rmtree(backlog.base.parent)
        self.source.run(f"DROP TABLE IF EXISTS {backlog.workload.table}", "FLUSH BINARY LOGS")
        if not self.backlogs:
            self.source.run(f"PURGE BINARY LOGS TO '{self._end()[0].file}'")

    def describe(self, backlog: Backlog) -> None:
        """Note the size of a backlog."""
        size = sum(last - first for _, first, last in binlog_parts(self.source, backlog))
        self.conditions.append(f"{backlog.workload.changes:,} changes in {size / 1e6:,.0f} MB of binlog")
        self.note_settings("source", self.source)

    def _end(self) -> tuple[Location, str]:
        with contextlib.closing(mysql.connect(self.source.server)) as connection:
            found = upstream.inspect(connection, SOURCE)
        return found.end, found.gtid

    @contextlib.contextmanager
    def server(self, backlog: Backlog, *options: str, role: str = "target") -> Iterator[MariaDb]:
        """Run a server for the block that has the rows before the changes, read once; it is deleted afterwards."""
        self.copies += 1
        folder = self.folder / f"copy-{self.copies}"
        shutil.copytree(backlog.base, folder / "data")
        try:
            with while_up(servers.start_server(folder, *self.settings.target, *options)) as server:
                server.run(f"CHECKSUM TABLE {backlog.workload.table}")
                self.note_settings(role, server)
                yield server
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def work(
        self,
        backlog: Backlog,
        target: MariaDb,
        session: Callable[[], Any] | None = None,
        syncer: Mapping[str, object] | None = None,
        **options: object,
    ) -> Iterator[Work]:
        """Open a task whose next window begins with the backlog; `syncer` and `options` are the task file's."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            storage = folder / "storage"
            units = {"syncer": dict(syncer)} if syncer else {}
            options = {"storage-path": str(storage), **options}
            path = write_task(folder, backlog.workload, self.source, target, options, units)
            with open_work(load_task(path)) as opened:
                shutil.copytree(backlog.relay, opened.store.folder, copy_function=os.link)
                table = TableId(SCHEMA, backlog.workload.name)
                hand_over(opened, SOURCE, {table: table}, backlog.begins, backlog.gtid)
                chosen = session or (lambda: self.session)
                yield replace(opened, spark=chosen, bulk_spark=chosen)

    def check(self, backlog: Backlog, target: MariaDb) -> None:
        """Compare the target with the source as it is after the backlog."""
        found = checksum(target, backlog.workload)
        if found != backlog.checksum:
            raise SystemExit(f"{backlog.workload.table}: checksum {found}, the source has {backlog.checksum}")


def binlog_parts(source: MariaDb, backlog: Backlog) -> list[tuple[str, int, int]]:
    """Return the binlog files of a backlog, with the bytes where it begins and ends in each."""
    begins, ends, found = backlog.begins, backlog.ends, list[tuple[str, int, int]]()
    for row in source.run("SHOW BINARY LOGS"):
        name, size = str(row[0]), int(str(row[1]))
        if Location(begins.file, 0) <= Location(name, 0) <= Location(ends.file, 0):
            first = begins.position if name == begins.file else 0
            found.append((name, first, ends.position if name == ends.file else size))
    return found


@contextlib.contextmanager
def running(with_spark: bool = True, settings: Settings = PLAIN) -> Iterator[Stand]:
    """Start the source; Spark starts with the first part that needs it."""
    with tempfile.TemporaryDirectory(prefix="unshard-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        source = stack.enter_context(while_up(servers.start_server(folder / "source", *settings.roomy, server_id=1)))
        source.run(f"CREATE DATABASE {SCHEMA}")
        yield Stand(folder, source, stack, {}, with_spark, settings=settings)


def write_task(
    folder: Path,
    workload: Workload,
    source: MariaDb,
    target: MariaDb,
    options: Mapping[str, object],
    units: Mapping[str, object],
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
                "mysql-instances": [{"source-id": SOURCE, "route-rules": ["all"], "block-allow-list": "ours", **units}],
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


def hand_over(work: Work, source: str, shards: Mapping[TableId, TableId], begins: Location, gtid: str) -> None:
    """Create the state that full load and handover leave when the windows begin; `shards` with their targets."""
    with contextlib.closing(mysql.connect(work.sources[source])) as connection:
        about = upstream.inspect(connection, source)
        schemas = read_schemas(connection, shards)
    work.meta.sources.add(source, about.identity, about.flavor)
    with contextlib.closing(mysql.connect(work.target)) as connection:
        for shard, target in shards.items():
            create_target(connection, target, schemas[shard])
    for schema in {schema.digest: schema for schema in schemas.values()}.values():
        work.meta.structures.put(schema)
    for shard, target in shards.items():
        work.meta.structures.record(Shard(source, shard), target, begins, schemas[shard].digest)
    work.meta.checkpoints.start(source, begins, gtid)


def import_all(_: str) -> tuple[str, ...]:
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


def sums(server: MariaDb, table: str) -> tuple[int, ...]:
    """Return how many rows a table has, and the sum of 64 bits of each row's MD5."""
    names = [str(row[0]) for row in server.run(f"SHOW COLUMNS FROM {table}")]
    digest = f"CAST(CONV(LEFT(MD5(CONCAT_WS('|', {', '.join(names)})), 16), 16, 10) AS UNSIGNED)"
    (counted,) = server.run(f"SELECT COUNT(*), SUM({digest}) FROM {table}")
    return tuple(int(str(value)) for value in counted)


def compare_union(target: MariaDb, merged: str, shards: Iterable[tuple[MariaDb, str]]) -> None:
    """Compare a merged table with all of its shards."""
    wanted = tuple(map(sum, zip(*(sums(server, table) for server, table in shards), strict=True)))
    if (found := sums(target, merged)) != wanted:
        raise SystemExit(f"{merged}: rows and sum of their hashes are {found}, the shards have {wanted}")


def login(server: MariaDb) -> list[str]:
    return ["--no-defaults", "--host=127.0.0.1", f"--port={server.port}", f"--user={server.server.user}"]


def password(server: MariaDb) -> dict[str, str]:
    return os.environ | {"MYSQL_PWD": server.password}
