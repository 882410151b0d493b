"""The processes that test_kill.py kills: two sources under load, a target, a Spark server, optionally an object store.

CONTRIBUTING.md lists the environment variables that configure it.
"""

import contextlib
import os
import random
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pymysql
import pytest
import yaml

from tests import s3server
from tests.oracle import assert_union
from tests.s3server import S3
from tests.suite.portions import portion
from tests.taskfile import endpoint, write_source
from unshard_demo import processes, servers
from unshard_demo.servers import MariaDb
from unshard_demo.sparkserver import SparkConnect, start_spark

ROUNDS = int(os.environ.get("UNSHARD_KILLS", portion(0, 2, 10)))
SEED = int(os.environ.get("UNSHARD_SEED", "42"))
IMAGE = os.environ.get("UNSHARD_KILLS_IMAGE", "FULL")
CUT = os.environ.get("UNSHARD_KILLS_CUT", "")
STORE = os.environ.get("UNSHARD_KILLS_STORE", "folder")
TARGET = os.environ.get("UNSHARD_KILLS_TARGET", "")
"""mariadb or tidb; empty: both, on TiDB with fewer kills."""
RUN = (sys.executable, "-c", "import sys; from unshard.cli import main; sys.exit(main())")
CODE_KEY = "" if SEED % 2 else ", UNIQUE KEY (code)"
"""With several keys other code paths run: rows are deleted and written, not replaced, and steps are cut differently."""
ORDERS = f"(id BIGINT NOT NULL PRIMARY KEY, v INT NOT NULL, note VARCHAR(40), code BIGINT{CODE_KEY})"
EVENTS = "(at INT NOT NULL, what VARCHAR(20))"
# Windows of several targets are not cut into slices, nor are those of a table without a key.
TABLES = {"orders": ORDERS} if CUT == "slices" else {"orders": ORDERS, "events": EVENTS}
BULK = 100
ROTATED_EVERY = 30 if CUT == "slices" else 100
"""Number of transactions after which a source begins another binlog file, which ends a part of a window."""
SMALL_WINDOWS = {"window-size": "16KiB"} if CUT == "slices" else {}
"""The windows of a backlog have several sections."""
GONE = pymysql.err.OperationalError, pymysql.err.InterfaceError
AGAIN = {0, 1053, 1205, 1213, 1927}
"""Errors of a server that shuts down, of lock waits and deadlocks; lost connections have numbers above 2000."""
SECONDS = 1800
"""The longest wait for anything; a run that catches up takes an idle machine a minute at most."""
SCHEMAS = {"kill-1": "kill_01", "kill-2": "kill_02"}


@dataclass
class Load:
    """Writes small transactions into all shards of all sources until it is stopped."""

    servers: dict[str, MariaDb]
    seed: int
    stop: threading.Event = field(default_factory=threading.Event)
    writing: list[Future[None]] = field(default_factory=list)
    pool: ThreadPoolExecutor = field(default_factory=ThreadPoolExecutor)
    next_id: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        self.stop.clear()
        self.writing = [self.pool.submit(self._write, source) for source in self.servers]

    def finish(self) -> None:
        """Stop, and raise the error that ended the load, if any."""
        self.stop.set()
        while self.writing:
            self.writing.pop().result()

    @property
    def is_running(self) -> bool:
        return not any(each.done() for each in self.writing)

    def _write(self, source: str) -> None:
        self.seed += 1
        dice = random.Random(f"{self.seed} {source}")
        while not self.stop.wait(0.005):
            try:
                with contextlib.closing(self.servers[source].connect()) as opened:
                    self._write_until_lost(opened, source, dice)
            except GONE as error:
                # Errors of a killed server are expected, and the last transaction may be committed or not. Others fail
                # the test.
                if not isinstance(error.args[0], int) or not (error.args[0] >= 2000 or error.args[0] in AGAIN):
                    raise

    def _write_until_lost(self, connection: pymysql.connections.Connection, source: str, dice: random.Random) -> None:
        with connection.cursor() as cursor:
            while not self.stop.wait(0.01):
                cursor.execute("BEGIN")
                for _ in range(dice.randint(1, 5)):
                    cursor.execute(*self._change(dice, source, f"{SCHEMAS[source]}.{{}}_{dice.randint(1, 2)}"))
                cursor.execute("COMMIT")
                if not dice.randrange(ROTATED_EVERY):
                    cursor.execute("FLUSH BINARY LOGS")

    def _change(self, dice: random.Random, source: str, table: str) -> tuple[str, tuple[object, ...]]:
        base = 10**9 * (1 + list(SCHEMAS).index(source) * 2 + int(table[-1]) - 1)
        newest = self.next_id.get(table, base)
        orders, events = table.format("orders"), table.format("events")
        match dice.randint(0, 50):
            case 47:  # The tables stay small, because they are compared after each kill.
                return f"DELETE FROM {orders} WHERE id < %s", (newest - 5 * BULK,)
            case 48 if "events" in TABLES:
                return f"DELETE FROM {events} LIMIT %s", (2 * BULK,)
            case 49:
                self.next_id[table] = newest + BULK
                return (
                    f"INSERT INTO {orders} (id, v, note) SELECT {newest} + seq, seq, 'many' FROM"
                    f" {SCHEMAS[source]}.seq_1_to_{BULK}"
                ), ()
            case 50 if "events" in TABLES:
                return (
                    f"INSERT INTO {events} (at, what) SELECT seq %% 10, 'many' FROM {SCHEMAS[source]}.seq_1_to_{BULK}"
                ), ()
            case number:
                return self._small_change(number % (10 if "events" in TABLES else 7), dice, table, (base, newest))

    def _small_change(
        self, kind: int, dice: random.Random, table: str, ids: tuple[int, int]
    ) -> tuple[str, tuple[object, ...]]:
        (base, newest), orders, events = ids, table.format("orders"), table.format("events")
        first = max(base, newest - 5 * BULK)
        old, other = dice.randint(first, newest), dice.randint(first, newest)
        at, then = dice.randint(0, 9), dice.randint(0, 9)
        if kind <= 3:
            newest = self.next_id[table] = newest + 1
        insert = f"INSERT INTO {orders} (id, v, note, code) VALUES (%s, %s, 'new', %s)", (newest, at, newest)
        changes: tuple[tuple[str, tuple[object, ...]], ...] = (
            insert,
            insert,
            insert,
            (f"UPDATE {orders} SET id = %s WHERE id = %s", (newest, old)),
            (f"UPDATE {orders} SET v = v + 1 WHERE id = %s", (old,)),
            (f"DELETE FROM {orders} WHERE id = %s", (old,)),
            # The row may be deleted or have another code by now; then the statement changes nothing.
            (f"UPDATE IGNORE {orders} SET code = %s WHERE id = %s", (dice.choice([other, None]), old)),
            (f"INSERT INTO {events} (at, what) VALUES (%s, 'e'), (%s, 'e')", (at, then)),
            (f"UPDATE {events} SET at = %s WHERE at = %s LIMIT 1", (at, then)),
            (f"DELETE FROM {events} WHERE at = %s LIMIT 1", (at,)),
        )
        return changes[kind]


@dataclass
class Plant:
    """Sources, target, task file and the Spark server that the rounds share."""

    sources: dict[str, MariaDb]
    target: MariaDb
    task: Path
    folder: Path
    store: S3 | None
    spark: SparkConnect
    load: Load
    is_tidb: bool = False
    """Whether the target is TiDB."""

    def spawn(self) -> subprocess.Popen[str]:
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(
            [*RUN, "run", str(self.task), "--json"],
            env=env,
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def revive(self, name: str) -> None:
        """Restart a killed server with its data and port."""
        old = self.target if name == "target" else self.sources[name]
        new = start_server(old.folder, old.port, name == "target" and self.is_tidb)
        if name == "target":
            self.target = new
        else:
            self.sources[name] = new  # the load uses the same dictionary

    def end_commits(self) -> None:
        """Wait until TiDB has no commit in progress, while its clients are idle.

        TiDB's embedded store keeps the locks of a transaction in memory. If it is killed while it commits a transaction
        of several batches, it contains a part of the transaction after the restart. TiKV keeps the locks on disk.
        Reading completes the commit of rows that are still locked.
        """
        busy = "SELECT COUNT(*) FROM information_schema.processlist WHERE command <> 'Sleep' AND id <> CONNECTION_ID()"
        processes.await_true(lambda: self.target.run(busy) == [(0,)], SECONDS, [], "TiDB to be idle")
        tables = (
            "SELECT CONCAT(table_schema, '.`', table_name, '`') FROM information_schema.tables"
            " WHERE table_schema IN ('killed', 'unshard_meta')"
        )
        for (name,) in self.target.run(tables):
            self.target.run(f"ADMIN CHECK TABLE {name}")

    def settle(self, *exits: int) -> None:
        """Restart Spark if it is dead, then run until all sources have caught up."""
        if not self.spark.program.is_running or not processes.listens(self.spark.port):
            self.spark.stop()
            self.spark = start_session(self.folder)
            self.write_task()
        process = self.spawn()
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode in (exits or (0,)), f"{out}\n{err}"

    def write_task(self) -> None:
        storage = {"storage-path": str(self.folder / "storage")}
        if self.store:
            storage = {"storage-path": f"s3://{s3server.BUCKET}/kill", "storage-conn-id": "store"}
        body = {
            "name": "kill",
            "task-mode": "all",
            "shard-mode": "pessimistic",
            "target-database": endpoint(self.target),
            "mysql-instances": [
                {"source-id": source, "route-rules": list(TABLES), "block-allow-list": "ours"} for source in SCHEMAS
            ],
            "routes": {
                name: {
                    "schema-pattern": "kill_*",
                    "table-pattern": f"{name}_*",
                    "target-schema": "killed",
                    "target-table": name,
                }
                for name in TABLES
            },
            "block-allow-list": {"ours": {"do-dbs": ["kill_*"]}},
            "unshard": {**storage, **SMALL_WINDOWS, "spark-connection": self.spark.url},
        }
        self.task.write_text(yaml.safe_dump(body))

    def sections(self) -> int:
        """Return the number of sections that windows have had beside the first one of each."""
        ((later,),) = self.target.run("SELECT SUM(`window`) - SUM(windows) FROM unshard_meta.checkpoint")
        return int(str(later))

    def assert_equal(self) -> None:
        for name in TABLES:
            shards = {source: [f"{schema}.{name}_1", f"{schema}.{name}_2"] for source, schema in SCHEMAS.items()}
            assert_union(self.sources, shards, self.target, f"killed.{name}")

    def alter(self, shards: list[tuple[str, str]], change: str) -> None:
        """Run a DDL on shards."""
        for source, shard in shards:
            self.sources[source].run(f"ALTER TABLE {SCHEMAS[source]}.{shard} {change}")

    def standing(self) -> Mapping[str, int]:
        """Count unfinished windows, locks that are open or being executed, and held rows."""
        locks = "SELECT COUNT(*) FROM unshard_meta.ddl_lock WHERE resolved_at IS NULL"
        asked = {
            "windows": "SELECT COUNT(*) FROM unshard_meta.`window` WHERE state = 'planned'",
            "locks": locks,
            "executing": f"{locks} AND started_at IS NOT NULL",
            "held": "SELECT COALESCE(SUM(row_count), 0) FROM unshard_meta.held_rows",
        }
        try:
            (found,) = self.target.run(f"SELECT {', '.join(f'({sql})' for sql in asked.values())}")
        except pymysql.err.ProgrammingError:  # the first run creates the meta schema
            return dict.fromkeys(asked, 0)
        return {name: int(str(count)) for name, count in zip(asked, found, strict=True)}

    def relayed(self) -> set[str]:
        """Return the names of all files of the relay, including those being written."""
        if self.store:
            return {name for name in list(self.store.objects) if "/relay/" in name}
        return {str(path) for path in (self.folder / "storage/kill/relay").glob("*/*")}

    def cut_lines(self) -> list[str]:
        """Return the lines that cutwindows/sitecustomize.py has written."""
        log = self.folder / "cuts"
        return log.read_text().splitlines() if log.exists() else []


@dataclass(frozen=True)
class Cuts:
    """How windows were cut, according to cutwindows/sitecustomize.py."""

    several: Mapping[tuple[str, int], int]
    """Windows that were written in several slices or steps, with their number."""
    broken: int
    """Number of attempts whose process died between the first and the last slice or step of a window."""
    left: int
    """Number of attempts in slices that were given up, so that the window was applied as a whole."""


def cuts_in(lines: Sequence[str]) -> Cuts:
    """Parse these lines."""
    attempts: dict[tuple[str, int, int], list[tuple[str, int]]] = defaultdict(list)
    for line in lines:
        source, window, epoch, number, what = line.split()
        attempts[source, int(window), int(epoch)].append((what, int(number)))
    written: Counter[tuple[str, int]] = Counter()
    stepped: Counter[tuple[str, int]] = Counter()
    for (source, window, _), found in attempts.items():
        steps = sum(what == "step" for what, _ in found)
        written[source, window] += steps + sum(number for what, number in found if what == "applied")
        stepped[source, window] += bool(steps)
    ends = Counter(found[-1][0] for found in attempts.values())
    again = stepped.total() - len(+stepped)
    return Cuts(
        {window: number for window, number in written.items() if number > 1}, ends["made"] + again, ends["left"]
    )


def start_server(folder: Path, port: int | None = None, is_tidb: bool = False) -> MariaDb:
    """Start or restart a server by the name of its folder."""
    if is_tidb:
        return servers.start_tidb(folder, port=port)
    if folder.name not in SCHEMAS:
        return servers.start_server(folder, port=port)
    number = 401 + list(SCHEMAS).index(folder.name)
    return servers.start_server(folder, f"--binlog-row-image={IMAGE}", server_id=number, port=port)


def start_session(folder: Path) -> SparkConnect:
    """Start a Spark server; its Python workers cut windows small if the environment says so."""
    with pytest.MonkeyPatch.context() as environment:
        if CUT:
            environment.setenv("UNSHARD_KILLS_LOG", str(folder / "cuts"))
            path = str(Path(__file__).with_name("cutwindows")), os.environ.get("PYTHONPATH", "")
            environment.setenv("PYTHONPATH", os.pathsep.join(path))
        return start_spark(folder / "spark")


@contextlib.contextmanager
def running(folder: Path, server_folder: Path, is_tidb: bool) -> Iterator[Plant]:
    """Run separate servers, because the servers of other tests must not be killed."""
    with contextlib.ExitStack() as until_end:
        environment = until_end.enter_context(pytest.MonkeyPatch.context())
        store = until_end.enter_context(s3server.running()) if STORE == "s3" else None
        if store:
            environment.setenv("AIRFLOW_CONN_STORE", store.connection)
        servers_folder = server_folder / f"kill-{'tidb' if is_tidb else 'mariadb'}"
        sources = {name: start_server(servers_folder / name) for name in SCHEMAS}
        target = start_server(servers_folder / "kill-target", is_tidb=is_tidb)
        for source, schema in SCHEMAS.items():
            server = sources[source]
            server.run(f"CREATE DATABASE {schema}")
            for name, columns in TABLES.items():
                server.run(f"CREATE TABLE {schema}.{name}_1 {columns}", f"CREATE TABLE {schema}.{name}_2 {columns}")
            write_source(folder, source, endpoint(server))
        load = Load(sources, seed=20261120 + SEED)
        plant = Plant(sources, target, folder / "task.yaml", folder, store, start_session(folder), load, is_tidb)
        plant.write_task()
        try:
            yield plant
        finally:
            plant.spark.stop()
            load.stop.set()
            for server in (*plant.sources.values(), plant.target):
                server.stop()
            load.pool.shutdown()
