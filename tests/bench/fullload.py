"""Part e: load eight shards of two sources into one table, compared with `mydumper` and `mariadb-dump | mariadb`.

There are two tables: the demo's orders with one index besides its key, and the same with four, because a loader that
maintains indexes while it inserts pays for each of them. In the files of the peers, `sed` replaces the shards' names by
the merged table's name; for mydumper this is not measured. The pipe runs once for each table, on the first tenth of
each shard's rows. Each load ends with the comparison of the target with all shards.
"""

import contextlib
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from tests.bench import cpu
from tests.bench.cpu import Spent
from tests.bench.figures import Figure, ratio
from tests.bench.settings import Settings
from tests.bench.size import Size
from tests.bench.stand import Stand, login, password
from tests.oracle import columns_of
from tests.running import while_up
from tests.taskfile import endpoint, write_sources
from unshard.adapters.spark import map_items, open_spark_session
from unshard.config import load_task
from unshard.units.task.run import Until, run
from unshard.units.work import open_work
from unshard_demo import servers, shop, sparkserver
from unshard_demo.processes import Program
from unshard_demo.servers import MariaDb
from unshard_demo.stage import TASK_FILE

TARGET = "shop.orders"
SHARDS = {source: [s.table for s in shop.SHARDS if s.source == source] for source in shop.SOURCES}
FIRST_IDS = {shard.table: shard.first_id for shard in shop.SHARDS}
INDEXES = {
    "one index": "ALTER TABLE {} DROP KEY IF EXISTS by_time, DROP KEY IF EXISTS by_amount,"
    " DROP KEY IF EXISTS by_status",
    "four indexes": "ALTER TABLE {} ADD KEY by_time (created_at), ADD KEY by_amount (amount),"
    " ADD KEY by_status (status, customer)",
}
THREADS = 2
ATTEMPTS = 3
GOALS = {"one index": ">= 1.6", "four indexes": ">= 2.0"}
OURS, MYDUMPER, PIPE = "unshard", "mydumper, myloader", "mariadb-dump | mariadb"
SHARE = 10
"""The pipe loads one row of so many."""


@dataclass
class FullLoad:
    """Two filled sources, an empty target, and a Spark session, for which the part starts a server."""

    folder: Path
    sources: Mapping[str, MariaDb]
    target: MariaDb
    settings: Settings
    shard_rows: int
    connect: sparkserver.SparkConnect = field(init=False)
    session: Any = None
    spent: dict[str, list[Spent]] = field(default_factory=dict)
    loaded: dict[str, int] = field(default_factory=dict)
    """The rows that each contestant has loaded in a round."""

    def contest(self, number: int) -> None:
        """Run every contestant, each into an empty target, with few and with many indexes."""
        for indexes, alter in INDEXES.items():
            for source, tables in SHARDS.items():
                self.sources[source].run(*map(alter.format, tables))
            if number == 0:
                self.contend(f"{indexes}: {PIPE}, a tenth of the rows, once", self.pipe, self.shard_rows // SHARE)
            for name, load in ((MYDUMPER, self._mydumper), (OURS, self.ours)):
                self.contend(f"{indexes}: {name}", load, self.shard_rows)

    def contend(self, name: str, load: Callable[[], Spent], rows: int) -> None:
        """Load the first rows of each shard, and compare the target with them."""
        self.spent.setdefault(name, []).append(load())
        self.loaded[name] = self._compare(rows)

    def _compare(self, rows: int) -> int:
        """Compare the target with the first rows of each shard, and return how many it has."""
        shards = [
            _sums(self.sources[source], table, _first(table, rows))
            for source, tables in SHARDS.items()
            for table in tables
        ]
        found, wanted = _sums(self.target, TARGET), tuple(map(sum, zip(*shards, strict=True)))
        if found != wanted:
            raise SystemExit(f"{TARGET}: rows and sum of their hashes are {found}, the shards have {wanted}")
        return found[0]

    def ours(self) -> Spent:
        self.target.run("DROP DATABASE IF EXISTS shop", "DROP DATABASE IF EXISTS unshard_meta")
        list(map_items(self.session, _import_all, ["1", "2"], 2))
        spent = self._measured(self._run, spark=self.connect.program)
        if _forking(self.connect.program) > 1:
            raise SystemExit("the load has used Python workers of another session, which were not warm")
        return spent

    def _run(self) -> None:
        with open_work(load_task(self.folder / "orders.yaml")) as opened:
            outcome = run(replace(opened, spark=self._warmed, bulk_spark=self._warmed), Until.FULL)
        if outcome.exit_code:
            raise SystemExit(f"the full load ended with {[str(trouble.error) for trouble in outcome.errors]}")

    def _warmed(self) -> Any:
        return self.session

    def _mydumper(self) -> Spent:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folders = {source: Path(name) / source for source in self.sources}
            dumped = self._measured(lambda: self._dump(folders))
            for path in Path(name).glob("*/shop_*.sql"):
                table = path.name.split(".")[1]
                subprocess.run(["sed", "-i", f"s/^INSERT INTO `{table}`/INSERT INTO `orders`/", str(path)], check=True)
            loaded = self._loaded(folders)
        both = {place: seconds + loaded.cpu[place] for place, seconds in dumped.cpu.items()}
        return Spent(dumped.wall + loaded.wall, both)

    def _dump(self, folders: Mapping[str, Path]) -> None:
        commands = [
            [
                "mydumper",
                *_login(self.sources[source]),
                "--regex=^shop_",
                "--no-schemas",
                f"--threads={THREADS}",
                "--rows=50000",
                f"--outputdir={folder}",
            ]
            for source, folder in folders.items()
        ]
        running = [subprocess.Popen(command) for command in commands]
        if sum(process.wait() for process in running):
            raise SystemExit("mydumper failed")

    def _loaded(self, folders: Mapping[str, Path]) -> Spent:
        """Load a dump; a deadlock between threads of myloader ends it, and the load is then measured again."""
        for attempt in range(1, ATTEMPTS + 1):
            self._empty_target()
            try:
                return self._measured(lambda: self._load(folders))
            except subprocess.CalledProcessError:
                print(f"myloader failed, see its message above (attempt {attempt} of {ATTEMPTS})")
        raise SystemExit("myloader failed at each attempt")

    def _load(self, folders: Mapping[str, Path]) -> None:
        for folder in folders.values():
            # Without the option it writes no binlog; the other loaders do if the target has one.
            binlog = ["--enable-binlog"] if self.settings.is_durable else []
            options = ["--database=shop", f"--threads={THREADS}", f"--directory={folder}", *binlog]
            subprocess.run(["myloader", *_login(self.target), *options], check=True)

    def pipe(self) -> Spent:
        self._empty_target()
        return self._measured(lambda: [self._pipe_one(s, table) for s, tables in SHARDS.items() for table in tables])

    def _pipe_one(self, source: str, table: str) -> None:
        schema, _, name = table.partition(".")
        dump = [
            "mariadb-dump",
            *login(self.sources[source]),
            "--no-create-info",
            "--single-transaction",
            "--skip-add-locks",
            "--skip-disable-keys",
            f"--where={_first(table, self.shard_rows // SHARE)}",
            schema,
            name,
        ]
        rename, load = (
            ["sed", f"s/^INSERT INTO `{name}`/INSERT INTO `orders`/"],
            ["mariadb", *login(self.target), "shop"],
        )
        with (
            subprocess.Popen(dump, stdout=subprocess.PIPE, env=password(self.sources[source])) as reading,
            subprocess.Popen(rename, stdin=reading.stdout, stdout=subprocess.PIPE) as renaming,
            subprocess.Popen(load, stdin=renaming.stdout, env=password(self.target)) as loading,
        ):
            for stage in (reading, renaming):
                stage.stdout.close()  # close our end, so that a stage notices when its reader has ended
        if reading.returncode or renaming.returncode or loading.returncode:
            raise SystemExit(f"mariadb-dump | mariadb failed for {table}")

    def _empty_target(self) -> None:
        self.target.run("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
        source, first = next((source, tables[0]) for source, tables in SHARDS.items())
        ((_, text),) = self.sources[source].run(f"SHOW CREATE TABLE {first}")
        self.target.run("USE shop", str(text).replace("`orders_1`", "`orders`", 1))

    def _measured(self, work: Callable[[], object], **others: Program) -> Spent:
        """Measure with the CPU of the servers; Spark's idle workers end during a peer's load, so Spark is left out."""
        sources = {source: server.program for source, server in self.sources.items()}
        return cpu.measure(work, {**others, "target": self.target.program, **sources})


def measure(stand: Stand, size: Size) -> list[Figure]:
    """Measure with shards of half of `rows` each; the peer is Debian's package `mydumper`."""
    if shutil.which("mydumper") is None:
        raise SystemExit("part e needs mydumper and myloader: `make bench` installs them, or apt-get install mydumper")
    with filled_sources(size.rows // 2, stand.settings) as load, _warm_spark(load):
        for number in stand.rounds(size.rounds):
            load.contest(number)
        stand.conditions.append(f"{max(load.loaded.values()):,} rows in all shards")
        for role, server in (("source", load.sources[shop.SOURCES[0]]), ("target", load.target)):
            stand.note_settings(role, server)
    figures = {name: _figure(name, load.loaded[name], spent) for name, spent in load.spent.items()}
    ratios = [
        ratio("e", f"{kind}: unshard to {MYDUMPER}", figures[f"{kind}: {OURS}"], figures[f"{kind}: {MYDUMPER}"], goal)
        for kind, goal in GOALS.items()
    ]
    return [*figures.values(), *ratios]


def _forking(program: Program) -> int:
    """Return how many processes fork Python workers: one for each session of a Connect server that has run a job."""
    return [cpu.parent(pid) for pid in program.members()].count(program.pid)


def _first(table: str, rows: int) -> str:
    """Return the condition of the first rows of a shard."""
    return f"id <= {FIRST_IDS[table] + rows}"


def _sums(server: MariaDb, table: str, where: str = "TRUE") -> tuple[int, ...]:
    """Return how many rows a table has, and the sum of 64 bits of each row's MD5."""
    columns = ", ".join(columns_of(server, table))
    digest = f"CAST(CONV(LEFT(MD5(JSON_ARRAY({columns})), 16), 16, 10) AS UNSIGNED)"
    (counted,) = server.run("SET time_zone = '+00:00'", f"SELECT COUNT(*), SUM({digest}) FROM {table} WHERE {where}")
    return tuple(int(str(value)) for value in counted)


def _figure(name: str, rows: int, spent: list[Spent]) -> Figure:
    seconds = {place: statistics.median(one.cpu[place] for one in spent) for place in spent[0].cpu}
    return Figure("e", f"full load, {name}", "rows/s", tuple(rows / one.wall for one in spent), seconds)


@contextlib.contextmanager
def filled_sources(rows: int, settings: Settings) -> Iterator[FullLoad]:
    with tempfile.TemporaryDirectory(prefix="unshard-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        sources = {
            source: stack.enter_context(
                while_up(servers.start_server(folder / source, *settings.roomy, server_id=number))
            )
            for number, source in enumerate(shop.SOURCES, 1)
        }
        target = stack.enter_context(while_up(servers.start_server(folder / "target", *settings.target)))
        shop.create_shards(sources, rows)
        for server in sources.values():
            settings.write_as_measured(server)
        yield FullLoad(folder, sources, target, settings, rows)


@contextlib.contextmanager
def _warm_spark(load: FullLoad) -> Iterator[None]:
    """Start Spark and load once: the first load of a session includes its start."""
    with while_up(sparkserver.start_spark(load.folder / "spark")) as load.connect:
        _write_task(load.folder, load.sources, load.target, load.connect.url)
        load.session = open_spark_session(load.connect.url)
        load.ours()
        yield


def _write_task(folder: Path, sources: Mapping[str, MariaDb], target: MariaDb, url: str) -> None:
    options = {"storage-path": str(folder / "storage"), "spark-connection": url}
    body = {**TASK_FILE, "target-database": endpoint(target), "unshard": options}
    (folder / "orders.yaml").write_text(yaml.safe_dump(body))
    write_sources(folder, sources)


def _login(server: MariaDb) -> list[str]:
    return ["--host=127.0.0.1", f"--port={server.port}", f"--user={servers.ADMIN}", f"--password={server.password}"]


def _import_all(_: str) -> tuple[str, ...]:
    import unshard.units.full.dumpchunks
    import unshard.units.full.loadchunks

    return (unshard.units.full.dumpchunks.__name__, unshard.units.full.loadchunks.__name__)
