"""The merge of parts p and q: shards in private sources, their writers, and a look at the rows that the target shows.

The sources write their rows themselves, in a procedure, so that no client takes CPU time from the measured programs.
Each row has the time of its own INSERT. All processes share the clock of the machine.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pymysql
import yaml

from tests.bench.stand import compare_union
from tests.running import while_up
from tests.taskfile import route, task_body, write_sources
from unshard_demo import servers
from unshard_demo.servers import MariaDb

SCHEMA, TARGET_SCHEMA, TOOLS = "live", "live_to", "bench_tools"
MERGED = f"{TARGET_SCHEMA}.orders"
APART = 1_000_000_000
"""Distance between the first ids of two shards."""
SMALL = ("--innodb-buffer-pool-size=24M",)
"""The option of a source, whose shards are small."""
COLUMNS = (
    "id BIGINT PRIMARY KEY, customer INT NOT NULL, amount DECIMAL(12,2) NOT NULL, note VARCHAR(80) NOT NULL,"
    " made DATETIME(6) NOT NULL, KEY by_customer (customer)"
)
ROW = "{id}, {id} MOD 997, ({id} MOD 100003) / 7, CONCAT('order ', MD5({id})), SYSDATE(6)"
INSERT = "INSERT INTO {table} (id, customer, amount, note, made) "
WRITE = f"""CREATE PROCEDURE {TOOLS}.write_rows(done BIGINT, n INT, pace DOUBLE) BEGIN
 DECLARE i INT DEFAULT 0; DECLARE fresh BIGINT; DECLARE ahead DOUBLE;
 DECLARE began DOUBLE DEFAULT UNIX_TIMESTAMP(SYSDATE(6));
 WHILE i < n DO
  SET fresh = (done + i) DIV {{shards}} + 1;
  CASE (done + i) MOD {{shards}} {{inserts}} END CASE;
  SET i = i + 1;
  IF pace > 0 THEN
   SET ahead = began + i / pace - UNIX_TIMESTAMP(SYSDATE(6));
   IF ahead > 0.0005 THEN DO SLEEP(ahead); END IF;
  END IF;
 END WHILE; END"""
STARTING = 4
"""Servers that start at the same time."""
PORTION_SECONDS = 0.5
"""A call of the procedure writes the rows of so many seconds; a writer ends after a call."""
POLL_SECONDS = 0.01
COUNT_SECONDS = 0.1
NO_SCHEMA, NO_TABLE = 1049, 1146


@dataclass(frozen=True, slots=True)
class LiveShard:
    """A shard: its number, its source, and the rows that it has before the first change."""

    number: int
    source: str
    rows: int

    @property
    def table(self) -> str:
        return f"{SCHEMA}.orders_{self.number}"

    @property
    def loaded(self) -> int:
        """The greatest id before the first change."""
        return self.number * APART + self.rows

    @property
    def newest(self) -> str:
        """The query of the greatest id in the target."""
        first = self.number * APART
        return f"SELECT MAX(id) FROM {MERGED} WHERE id BETWEEN {first} AND {first + APART - 1}"


Ids = tuple[int, ...]
"""The greatest id of each shard."""


@dataclass(frozen=True)
class LiveMerge:
    """The servers and shards of one case, and its task file."""

    folder: Path
    sources: Mapping[str, MariaDb]
    target: MariaDb
    shards: Sequence[LiveShard]
    written: dict[str, int] = field(default_factory=dict)
    """How many rows each writer has written."""

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks"

    @property
    def task(self) -> Path:
        return self.tasks / "merge.yaml"

    def write_task(self, **options: object) -> None:
        """Write task and source files; `options` are keys of the block `unshard`."""
        self.tasks.mkdir()
        write_sources(self.tasks, self.sources)
        routes = {"all": route(SCHEMA, "orders_*", TARGET_SCHEMA, "orders")}
        given = {"storage-path": str(self.folder / "storage")}
        given |= {name.replace("_", "-"): value for name, value in options.items()}
        keys = {"shard-mode": "pessimistic", "unshard": given}
        self.task.write_text(yaml.safe_dump(task_body(SCHEMA, self.sources, self.target, routes, **keys)))

    def shards_of(self, source: str) -> list[LiveShard]:
        return [shard for shard in self.shards if shard.source == source]

    def create(self) -> None:
        """Create and fill the shards, and the procedure that writes; it is not in the schema of the shards."""
        for source, server in self.sources.items():
            shards, inserts = self.shards_of(source), ""
            server.run(f"CREATE DATABASE {SCHEMA}", f"CREATE DATABASE {TOOLS}")
            for place, shard in enumerate(shards):
                insert = INSERT.format(table=shard.table)
                first, last = shard.number * APART + 1, shard.loaded
                rows = f"SELECT {ROW.format(id='seq')} FROM {SCHEMA}.seq_{first}_to_{last}"
                server.run(f"CREATE TABLE {shard.table} ({COLUMNS})", insert + rows)
                inserts += f"WHEN {place} THEN {insert} VALUES ({ROW.format(id=f'({shard.loaded} + fresh)')}); "
            server.run(WRITE.format(shards=len(shards), inserts=inserts))
            self.written[source] = 0

    @contextlib.contextmanager
    def load(self, per_second: float) -> Iterator[None]:
        """Write so many one-row transactions per second for the block, in all sources together."""
        done, pace = threading.Event(), per_second / len(self.sources)
        with ThreadPoolExecutor(len(self.sources)) as pool:
            writers = [pool.submit(self._write, source, pace, done) for source in self.sources]
            try:
                yield
            finally:
                done.set()
                for writer in writers:
                    writer.result()

    def _write(self, source: str, pace: float, done: threading.Event) -> None:
        began, first = time.monotonic(), self.written[source]
        with contextlib.closing(self.sources[source].connect()) as connection, connection.cursor() as cursor:
            while not done.is_set():
                planned = first + (time.monotonic() - began + PORTION_SECONDS) * pace
                self._call(cursor, source, max(1, int(planned) - self.written[source]), PORTION_SECONDS)

    def write(self, rows: int) -> None:
        """Write so many one-row transactions, as fast as the sources can."""
        each, more = divmod(rows, len(self.sources))

        def write(number: int, source: str) -> None:
            with contextlib.closing(self.sources[source].connect()) as connection, connection.cursor() as cursor:
                self._call(cursor, source, each + (number < more))

        with ThreadPoolExecutor(len(self.sources)) as pool:
            list(pool.map(write, range(len(self.sources)), self.sources))

    def _call(self, cursor: pymysql.cursors.Cursor, source: str, rows: int, seconds: float = 0.0) -> None:
        pace = rows / seconds if seconds else 0.0
        cursor.execute(f"CALL {TOOLS}.write_rows(%s, %s, %s)", (self.written[source], rows, pace))
        self.written[source] += rows

    def newest(self, at: float | None = None) -> Ids:
        """Return the greatest id of each shard in the sources, or the greatest one that was written until a time."""
        until = "" if at is None else f" WHERE made <= FROM_UNIXTIME({at:.6f})"
        found = list[int]()
        for shard in self.shards:
            ((last,),) = self.sources[shard.source].run(f"SELECT MAX(id) FROM {shard.table}{until}")
            found.append(shard.loaded if last is None else int(str(last)))
        return tuple(found)

    def made(self, since: float, until: float) -> list[list[tuple[int, float]]]:
        """Return the ids and times of the rows of each shard that were written between two times, by id."""
        query = (
            "SELECT id, UNIX_TIMESTAMP(made) FROM {table}"
            f" WHERE made >= FROM_UNIXTIME({since:.6f}) AND made < FROM_UNIXTIME({until:.6f}) ORDER BY id"
        )
        return [
            [(int(str(id_)), float(str(at))) for id_, at in self.sources[s.source].run(query.format(table=s.table))]
            for s in self.shards
        ]

    def await_equal(self, seconds: float, check: Callable[[], None]) -> None:
        """Wait until the target has as many rows as all shards, which no other process writes now."""
        wanted = sum(int(str(self.sources[s.source].run(f"SELECT COUNT(*) FROM {s.table}")[0][0])) for s in self.shards)
        await_true(lambda: self._count() == wanted, seconds, "target = union of the shards", check, COUNT_SECONDS)

    def _count(self) -> int:
        try:
            ((rows,),) = self.target.run(f"SELECT COUNT(*) FROM {MERGED}")
        except (pymysql.err.ProgrammingError, pymysql.err.OperationalError) as error:
            if error.args[0] not in (NO_SCHEMA, NO_TABLE):
                raise
            return 0
        return int(str(rows))

    def has_column(self, name: str) -> bool:
        """Whether the target has a column."""
        return bool(self.target.run(f"SHOW COLUMNS FROM {MERGED} LIKE '{name}'"))

    def compare(self) -> None:
        """Compare the target with the union of the shards, all columns of all rows."""
        compare_union(self.target, MERGED, ((self.sources[shard.source], shard.table) for shard in self.shards))


class Sampler:
    """Looks again and again which rows the target shows: the greatest id of each shard, and when it was first seen."""

    def __init__(self, merge: LiveMerge) -> None:
        self._merge, self._done = merge, threading.Event()
        self._query = "SELECT " + ", ".join(f"({shard.newest})" for shard in merge.shards)
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._error: Exception | None = None
        with contextlib.closing(merge.target.connect()) as connection:
            self.samples: list[tuple[float, Ids]] = [(time.time(), self._look(connection))]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def newest(self) -> Ids:
        """The ids of the last sample."""
        if self._error:
            raise self._error
        return self.samples[-1][1]

    def seen_at(self, ids: Ids) -> float:
        """Return when the target first showed all these ids; infinite if it has not shown them."""
        return next((at for at, found in self.samples if reached(found, ids)), float("inf"))

    def _guarded(self) -> None:
        try:
            with contextlib.closing(self._merge.target.connect()) as connection:
                while not self._done.wait(POLL_SECONDS):
                    found, now = self._look(connection), time.time()
                    if found != self.samples[-1][1]:
                        self.samples.append((now, found))
        except Exception as error:  # raised again by `newest`, in the thread that waits
            self._error = error

    def _look(self, connection: pymysql.connections.Connection) -> Ids:
        with connection.cursor() as cursor:
            cursor.execute(self._query)
            return tuple(int(value or 0) for value in cursor.fetchone())


def reached(found: Ids, wanted: Ids) -> bool:
    """Whether each id is at least the wanted one."""
    return all(one >= other for one, other in zip(found, wanted, strict=True))


def ages(samples: Sequence[tuple[float, Ids]], made: Sequence[Sequence[tuple[int, float]]]) -> list[float]:
    """Return the age of each row at the first sample that shows it; `made` has the ids and times of each shard."""
    found = list[float]()
    for place, rows in enumerate(made):
        looks = iter(samples)
        at, ids = next(looks)
        for id_, when in rows:
            while ids[place] < id_:
                at, ids = next(looks)
            found.append(at - when)
    return found


def await_true(
    condition: Callable[[], bool], seconds: float, what: str, check: Callable[[], None], pause: float = POLL_SECONDS
) -> None:
    """Wait until the condition is true; `check` raises if a measured program has failed."""
    deadline = time.monotonic() + seconds
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)


@contextlib.contextmanager
def merging(folder: Path, sources: int, shards: int, rows: int, options: Sequence[str]) -> Iterator[LiveMerge]:
    """Run the servers of a case, with so many sources, shards in all and rows in all; `options` are the target's."""
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(while_up(servers.start_server(folder / "servers" / "target", *options)))

        def start(number: int) -> MariaDb:
            server = servers.start_server(folder / "servers" / f"s{number}", *SMALL, server_id=number)
            stack.callback(server.kill)  # its data is not needed any more
            return server

        numbers = range(1, sources + 1)
        with ThreadPoolExecutor(STARTING) as pool:
            running = dict(zip((f"s{number}" for number in numbers), pool.map(start, numbers), strict=True))
        names = [*running]
        made = [LiveShard(number, names[number * sources // shards], rows // shards) for number in range(shards)]
        merge = LiveMerge(folder, running, target, made)
        merge.create()
        yield merge
