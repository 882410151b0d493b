"""`make bench`: what a window and a full load cost here, the load beside `mariadb-dump | mariadb`.

Every figure is the median of some rounds with its smallest and largest value. The result of every round
is compared with the union of the shards. The table goes to the terminal, the same to build/bench.json.
"""

import contextlib
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from tests.oracle import assert_union
from unshard.config import load_task
from unshard.units.run import Outcome, Until, run
from unshard.units.work import open_work
from unshard_demo import servers, shop, spark, stage
from unshard_demo.servers import MariaDb

ROUNDS = 3
ROWS_PER_SHARD = 25_000
CHANGES = 20_000
CYCLES = 20
TARGET = "shop.orders"
SHARDS = {source: [s.table for s in shop.SHARDS if s.source == source] for source in shop.SOURCES}


@dataclass
class Figures:
    """Measured values by name, each with its unit."""

    values: dict[str, list[float]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: float, unit: str) -> None:
        self.values.setdefault(name, []).append(value)
        self.units[name] = unit

    def lines(self) -> Iterator[str]:
        for name, values in self.values.items():
            low, middle, high = min(values), statistics.median(values), max(values)
            yield f"{name:<52} {middle:>12,.2f} {self.units[name]:<7} ({low:,.2f} to {high:,.2f}, n={len(values)})"


@dataclass
class Bench:
    """Two sources, a target, and a Spark Connect server that is warm after the first job."""

    folder: Path
    sources: dict[str, MariaDb]
    target: MariaDb
    task: Path
    connect: Any
    figures: Figures = field(default_factory=Figures)

    def run(self, until: Until = Until.CAUGHT_UP) -> Outcome:
        with open_work(load_task(self.task)) as work:
            outcome = run(replace(work, spark=lambda: self.connect, bulk_spark=lambda: self.connect), until)
        if outcome.exit_code:
            raise SystemExit(f"a run ended with {outcome.exit_code}: {[str(t.error) for t in outcome.errors]}")
        return outcome

    def check(self) -> None:
        assert_union(self.sources, SHARDS, self.target, TARGET)

    def forget(self) -> None:
        """Take away what the task has written, so that it begins anew."""
        self.target.run("DROP DATABASE IF EXISTS shop", "DROP DATABASE IF EXISTS unshard_meta")

    def full_load(self) -> None:
        self.forget()
        seconds = timed(lambda: self.run(Until.FULL))
        self.check()
        self.figures.add("full load: unshard, checks and handover included", self.rows() / seconds, "rows/s")

    def dump_and_pipe(self) -> None:
        """The peer: mariadb-dump | mariadb, shard by shard, into one table; one process at a time, as it works."""
        self.target.run("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop", shop.CREATE.format(table=TARGET))
        seconds = timed(lambda: [self._pipe(source, table) for source, tables in SHARDS.items() for table in tables])
        self.check()
        self.figures.add("full load: mariadb-dump | mariadb", self.rows() / seconds, "rows/s")

    def _pipe(self, source: str, table: str) -> None:
        schema, _, name = table.partition(".")
        dump = ["mariadb-dump", *login(self.sources[source]), "--no-create-info", "--single-transaction",
                "--skip-add-locks", schema, name]  # fmt: skip
        rename = ["sed", f"s/`{name}`/`orders`/"]
        load = ["mariadb", *login(self.target), "shop"]
        with (
            subprocess.Popen(dump, stdout=subprocess.PIPE, env=password(self.sources[source])) as reading,
            subprocess.Popen(rename, stdin=reading.stdout, stdout=subprocess.PIPE) as renaming,
            subprocess.Popen(load, stdin=renaming.stdout, env=password(self.target)) as loading,
        ):
            for stage in (reading, renaming):
                stage.stdout.close()  # ours: a stage whose reader has ended must hear of it
        if reading.returncode or renaming.returncode or loading.returncode:
            raise SystemExit(f"mariadb-dump | mariadb failed for {table}")

    def rows(self) -> int:
        ((count,),) = self.target.run(f"SELECT COUNT(*) FROM {TARGET}")
        return int(str(count))

    def idle(self) -> None:
        self.figures.add("run over idle sources, session warm", timed(self.run), "s")

    def small_window(self) -> None:
        shard = shop.SHARDS[0]
        self.sources[shard.source].run(f"UPDATE {shard.table} SET amount = amount + 1 WHERE id = {shard.first_id + 7}")
        self.figures.add("run with one changed row, session warm", timed(self.run), "s")
        self.check()

    def large_window(self) -> None:
        for number, shard in enumerate(shop.SHARDS):
            first = shard.first_id + number
            self.sources[shard.source].run(
                f"UPDATE {shard.table} SET amount = amount + 1 WHERE id BETWEEN {first} AND {first + CHANGES // 8 - 1}"
            )
        seconds = timed(self.run)
        self.check()
        self.figures.add(f"run with {CHANGES:,} changed rows, session warm", CHANGES / seconds, "rows/s")


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="unshard-bench-") as name, contextlib.ExitStack() as stack:
        bench = set_up(Path(name), stack)
        for _ in range(ROUNDS):
            bench.dump_and_pipe()
            bench.full_load()
        bench.run()
        for _ in range(ROUNDS + 2):
            bench.idle()
            bench.small_window()
        for _ in range(ROUNDS):
            bench.large_window()
    with tempfile.TemporaryDirectory(prefix="unshard-bench-") as name:
        airflow_cycles(Path(name) / "demo", bench.figures)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"\n{machine}, {len(shop.SHARDS)} shards of {ROWS_PER_SHARD:,} rows")
    print("\n".join(bench.figures.lines()))
    Path("build").mkdir(exist_ok=True)
    report = {"machine": machine, "values": bench.figures.values, "units": bench.figures.units}
    Path("build/bench.json").write_text(json.dumps(report, indent=1))


def airflow_cycles(folder: Path, figures: Figures) -> None:
    """Start to start of windows through Airflow while rows are written all the time."""
    sync = "unshard_sync__orders"
    with stage.standing(folder, rows_per_shard=1000) as standing:
        standing.airflow.await_dags("unshard_full__orders", sync)
        run_id = standing.airflow.trigger("unshard_full__orders")
        if standing.airflow.await_run("unshard_full__orders", run_id, 300) != "success":
            raise SystemExit("the full load through Airflow failed")
        writers = shop.writers(standing.sources, changes_per_second=100)
        for writer in writers:
            writer.start()
        before = len(standing.airflow.runs(sync))
        standing.airflow.await_true(lambda: len(standing.airflow.runs(sync)) > before + CYCLES, 300, "windows")
        for writer in writers:
            writer.stop()
        runs = standing.airflow.runs(sync)[before : before + CYCLES]
    starts = sorted(datetime.fromisoformat(run["start_date"]) for run in runs if run["start_date"])
    for earlier, later in itertools.pairwise(starts):
        figures.add("Airflow: window to window under load", (later - earlier).total_seconds(), "s")


def set_up(folder: Path, stack: contextlib.ExitStack) -> Bench:
    """Start servers and Spark and fill the shards."""
    from unshard.adapters.spark import open_session

    sources = {
        source: stack.enter_context(servers.running(folder / "servers" / source, server_id=number + 1))
        for number, source in enumerate(shop.SOURCES)
    }
    target = stack.enter_context(servers.running(folder / "servers" / "target"))
    shop.create_shards(sources, ROWS_PER_SHARD)
    connect = stack.enter_context(spark.running_spark(folder / "spark"))
    task = folder / "orders.yaml"
    write_task(task, sources, target, connect.url)
    return Bench(folder, sources, target, task, open_session(connect.url))


def write_task(path: Path, sources: dict[str, MariaDb], target: MariaDb, url: str) -> None:
    from unshard_demo.stage import TASK_FILE

    options = {"storage-path": str(path.parent / "storage"), "spark-connection": url}
    path.write_text(yaml.safe_dump({**TASK_FILE, "target-database": endpoint(target), "unshard": options}))
    (path.parent / "sources").mkdir()
    for source, server in sources.items():
        body = {"source-id": source, "from": endpoint(server)}
        (path.parent / "sources" / f"{source}.yaml").write_text(yaml.safe_dump(body))


def endpoint(server: MariaDb) -> dict[str, object]:
    return {"host": "127.0.0.1", "port": server.port, "user": server.server.user, "password": server.password}


def login(server: MariaDb) -> list[str]:
    return ["--no-defaults", "--host=127.0.0.1", f"--port={server.port}", f"--user={server.server.user}"]


def password(server: MariaDb) -> dict[str, str]:
    return os.environ | {"MYSQL_PWD": server.password}


def timed(work: Callable[[], object]) -> float:
    """Return the wall seconds that the work takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
