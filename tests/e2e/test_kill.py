"""Kill -9 of whatever takes part, at random moments under load: the union stays right.

Every round draws its victim and its moment from a seed. Rows are written all the time, into tables
with and without a key, and every few rounds a DDL runs over the shards. After each round the rest is
caught up and the target must hold exactly the union of the shards: nothing lost, nothing twice.
UNSHARD_KILLS asks for another number of rounds, UNSHARD_SEED for other dice.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pymysql
import pytest
import yaml

from tests.oracle import assert_union
from unshard_demo import processes, servers
from unshard_demo.servers import MariaDb
from unshard_demo.spark import SparkConnect
from unshard_demo.spark import start as start_spark

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration]

ROUNDS = int(os.environ.get("UNSHARD_KILLS", "15"))
SEED = int(os.environ.get("UNSHARD_SEED", "42"))
VICTIMS = ("task process", "relay", "spark server", "spark workers", "target", "source")
RUN = (sys.executable, "-c", "import sys; from unshard.cli import main; sys.exit(main())")
TABLES = {
    "orders": "(id BIGINT NOT NULL PRIMARY KEY, v INT NOT NULL, note VARCHAR(40))",
    "events": "(at INT NOT NULL, what VARCHAR(20))",
}
BULK = 300
SCHEMAS = {"kill-1": "kill_01", "kill-2": "kill_02"}


@dataclass
class Load:
    """Writes small transactions into all shards of all sources until it is stopped."""

    servers: dict[str, MariaDb]
    seed: int
    stop: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)
    next_id: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        self.stop.clear()
        self.threads = [threading.Thread(target=self._write, args=(source,)) for source in self.servers]
        for thread in self.threads:
            thread.start()

    def finish(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def _write(self, source: str) -> None:
        self.seed += 1
        dice = random.Random(f"{self.seed} {source}")
        while not self.stop.wait(0.005):
            # The server may be dead: whether it has the last transaction is its own business.
            with contextlib.suppress(pymysql.err.Error), contextlib.closing(self.servers[source].connect()) as opened:
                self._write_until_lost(opened, source, dice)

    def _write_until_lost(self, connection: pymysql.connections.Connection, source: str, dice: random.Random) -> None:
        with connection.cursor() as cursor:
            while not self.stop.wait(0.005):
                cursor.execute("BEGIN")
                for _ in range(dice.randint(1, 5)):
                    cursor.execute(*self._change(dice, source, f"{SCHEMAS[source]}.{{}}_{dice.randint(1, 2)}"))
                cursor.execute("COMMIT")

    def _change(self, dice: random.Random, source: str, table: str) -> tuple[str, tuple[object, ...]]:
        base = 10**9 * (1 + list(SCHEMAS).index(source) * 2 + int(table[-1]) - 1)
        newest = self.next_id.get(table, base)
        orders, events = table.format("orders"), table.format("events")
        match dice.randint(0, 50):
            case 49:
                self.next_id[table] = newest + BULK
                return (f"INSERT INTO {orders} (id, v, note) SELECT {newest} + seq, seq, 'many' FROM"
                        f" {SCHEMAS[source]}.seq_1_to_{BULK}"), ()  # fmt: skip
            case 50:
                return f"INSERT INTO {events} SELECT seq % 10, 'many' FROM {SCHEMAS[source]}.seq_1_to_{BULK}", ()
            case number:
                return self._small_change(number % 8, dice, table, (base, newest))

    def _small_change(
        self, kind: int, dice: random.Random, table: str, ids: tuple[int, int]
    ) -> tuple[str, tuple[object, ...]]:
        (base, newest), orders, events = ids, table.format("orders"), table.format("events")
        old = dice.randint(base, max(base, newest))
        match kind:
            case 0 | 1 | 2:
                self.next_id[table] = newest + 1
                return f"INSERT INTO {orders} (id, v, note) VALUES (%s, %s, 'new')", (newest + 1, dice.randint(0, 99))
            case 3:
                return f"UPDATE {orders} SET v = v + 1 WHERE id = %s", (old,)
            case 4:
                self.next_id[table] = newest + 1
                return f"UPDATE {orders} SET id = %s WHERE id = %s", (newest + 1, old)
            case 5:
                return f"DELETE FROM {orders} WHERE id = %s", (old,)
            case 6:
                return f"INSERT INTO {events} VALUES (%s, 'e'), (%s, 'e')", (dice.randint(0, 9), dice.randint(0, 9))
            case _:
                return f"DELETE FROM {events} WHERE at = %s LIMIT 1", (dice.randint(0, 9),)


@dataclass
class Plant:
    """Sources, target, task file and the Spark server that the rounds share."""

    sources: dict[str, MariaDb]
    target: MariaDb
    task: Path
    folder: Path
    spark: SparkConnect
    load: Load

    def spawn(self) -> subprocess.Popen[str]:
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen([*RUN, "run", str(self.task), "--json"], env=env, text=True, start_new_session=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

    def revive(self, name: str) -> None:
        """Start a killed server again, on its own data and port."""
        old = self.target if name == "target" else self.sources[name]
        number = {"server_id": 401 + list(SCHEMAS).index(name)} if name in SCHEMAS else {}
        new = servers.start(old.folder, port=old.port, **number)
        if name == "target":
            self.target = new
        else:
            self.sources[name] = new  # the load has the same dictionary

    def settle(self) -> None:
        """Bring Spark up again if it is dead, then run until everything is caught up."""
        if not self.spark.program.is_running or not processes.listens(self.spark.port):
            self.spark.stop()
            self.spark = start_spark(self.folder / "spark")
            self.write_task()
        process = self.spawn()
        out, err = process.communicate(timeout=900)
        assert process.returncode == 0, f"{out}\n{err}"
        json.loads(out)

    def write_task(self) -> None:
        body = {
            "name": "kill",
            "task-mode": "all",
            "shard-mode": "pessimistic",
            "target-database": _endpoint(self.target),
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
            "unshard": {"storage-path": str(self.folder / "storage"), "spark-connection": self.spark.url},
        }
        self.task.write_text(yaml.safe_dump(body))

    def assert_equal(self) -> None:
        for name in TABLES:
            shards = {source: [f"{schema}.{name}_1", f"{schema}.{name}_2"] for source, schema in SCHEMAS.items()}
            assert_union(self.sources, shards, self.target, f"killed.{name}")


def _endpoint(server: MariaDb) -> dict[str, object]:
    return {"host": "127.0.0.1", "port": server.port, "user": "admin", "password": server.password}


@pytest.fixture(scope="module")
def plant(server_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    """Servers of its own: those of the other tests must not die."""
    folder = tmp_path_factory.mktemp("kill")
    sources = {name: servers.start(server_folder / name, server_id=401 + n) for n, name in enumerate(SCHEMAS)}
    target = servers.start(server_folder / "kill-target")
    (folder / "sources").mkdir()
    for source, schema in SCHEMAS.items():
        server = sources[source]
        server.run(f"CREATE DATABASE {schema}")
        for name, columns in TABLES.items():
            server.run(f"CREATE TABLE {schema}.{name}_1 {columns}", f"CREATE TABLE {schema}.{name}_2 {columns}")
        body = {"source-id": source, "from": _endpoint(server)}
        (folder / "sources" / f"{source}.yaml").write_text(yaml.safe_dump(body))
    load = Load(sources, seed=20261120 + SEED)
    plant = Plant(sources, target, folder / "task.yaml", folder, start_spark(folder / "spark"), load)
    plant.write_task()
    try:
        yield plant
    finally:
        load.finish()
        plant.spark.stop()
        for server in (*plant.sources.values(), plant.target):
            server.stop()


def test_union_survives_kills_at_random_moments(plant: Plant) -> None:
    dice = random.Random(SEED)
    plant.load.start()
    for number in range(ROUNDS):
        victim, seconds = VICTIMS[number] if number < len(VICTIMS) else dice.choice(VICTIMS), dice.uniform(0.2, 4.0)
        process = plant.spawn()
        await_moment(plant, process, victim, seconds)
        revive = kill(plant, process, victim, dice)
        early = dice.random() < 0.5
        if early:  # the run that goes on meets a server that has just come back
            revive()
        out, _ = process.communicate(timeout=900)
        if not early:
            revive()
        if number % 5 == 4:
            run_ddl(plant, f"ADD COLUMN c{number} INT DEFAULT {number}")
        plant.load.finish()
        plant.settle()
        plant.assert_equal()
        print(f"{number}: {victim} after {seconds:.2f} s, exit {process.returncode}, {codes(out)}", flush=True)
        plant.load.start()
    plant.load.finish()


def codes(out: str) -> list[str]:
    """Return the codes of what a run has complained of."""
    return [each["code"] for each in json.loads(out).get("errors", [])] if out.strip() else []


def await_moment(plant: Plant, process: subprocess.Popen[str], victim: str, seconds: float) -> None:
    """Wait for the moment of death, which is what this test varies."""
    time.sleep(seconds)
    if victim == "relay":
        storage, deadline = plant.folder / "storage", time.monotonic() + 120
        while not list(storage.rglob("relay/**/.tmp-*")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)


def kill(plant: Plant, process: subprocess.Popen[str], victim: str, dice: random.Random) -> Callable[[], None]:
    """Kill and wait for the end; return what brings a server back."""
    match victim:
        case "target":
            plant.target.kill()
            return lambda: plant.revive("target")
        case "source":
            source = dice.choice(list(SCHEMAS))
            plant.sources[source].kill()
            return lambda: plant.revive(source)
        case "task process" | "relay":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        case _:
            kill_spark(plant, workers_only=victim == "spark workers")
    return lambda: None


def kill_spark(plant: Plant, workers_only: bool) -> None:
    """Kill the driver with its workers or the workers alone; a driver that dies slowly must not be taken for alive."""
    pids = plant.spark.program.members()
    if workers_only:
        pids = [pid for pid in pids if b"pyspark.daemon" in _command_line(pid)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    processes.await_true(lambda: not set(pids) & set(plant.spark.program.members()), 120, [], "Spark to die")


def _command_line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def run_ddl(plant: Plant, change: str) -> None:
    for source, schema in SCHEMAS.items():
        for number in (1, 2):
            plant.sources[source].run(f"ALTER TABLE {schema}.orders_{number} {change}")
