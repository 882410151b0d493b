"""Part n: TiDB as the target: a full load, a backlog of one-row transactions, small windows and a shard DDL.

Each round begins with a new TiDB and with new shards. Small work is timed twice: directly, and through a proxy on
loopback that counts the round trips and delays each by 5 ms. Load and backlog are timed directly. They first run once
through a proxy without delay, which counts their round trips. Each round ends with the comparison of the target with
all shards.
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from tests.bench.cpu import measure as spent_by
from tests.bench.figures import Figure
from tests.bench.stand import SOURCE, Stand, compare_union
from tests.running import while_up
from tests.slowlink import SlowLink, linked
from tests.taskfile import endpoint, write_sources
from unshard.adapters.spark import map_items
from unshard.config import load_task
from unshard.units.relay.tasksource import pull_source
from unshard.units.task.run import Until, run
from unshard.units.window.sync import run_window
from unshard.units.work import Work, open_work
from unshard_demo import servers
from unshard_demo.servers import MariaDb

SCHEMA, MERGED = "tidb_n", "tidb_n_to.orders"
SHARDS = 4
REPEATS = 5
DELAY = 0.005
COLUMNS = (
    "id BIGINT PRIMARY KEY, customer INT NOT NULL, amount DECIMAL(12,2) NOT NULL, note VARCHAR(80) NOT NULL,"
    " made DATETIME NOT NULL, KEY by_customer (customer)"
)
ROW = "{id}, {id} MOD 997, ({id} MOD 100003) / 7, CONCAT('order ', MD5({id})), '2026-01-01' + INTERVAL {id} SECOND"
FILL = "INSERT INTO {schema}.orders_{shard} SELECT {row} FROM {schema}.seq_{first}_to_{last}"
WRITE = """CREATE PROCEDURE {schema}.write_{shard}(n INT, first BIGINT, stored BIGINT) BEGIN DECLARE i INT DEFAULT 0;
 WHILE i < n DO
  CASE i MOD 4
   WHEN 0 THEN INSERT INTO orders_{shard} VALUES ({row});
   WHEN 1 THEN UPDATE orders_{shard} SET amount = amount + 1 WHERE id = first + i * 7 MOD stored;
   WHEN 2 THEN UPDATE orders_{shard} SET note = MD5(i), customer = i MOD 991 WHERE id = first + i * 11 MOD stored;
   ELSE DELETE FROM orders_{shard} WHERE id = first + i * 13 MOD stored;
  END CASE;
  SET i = i + 1;
 END WHILE; END"""
APART = 1_000_000_000
"""Distance between the first ids of two shards."""


@dataclass
class Seen:
    """The measurements so far, by name."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    trips: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    cpu: dict[str, dict[str, float]] = field(default_factory=dict)


def measure(stand: Stand, rounds: int, rows: int) -> list[Figure]:
    """Return seconds and round trips; empty if TiDB is not built."""
    if not servers.is_tidb_built():
        print("n   skipped: TiDB is not built (sh .ci/tidb/build, which needs Go 1.23 or later)", flush=True)
        return []
    seen, changes = Seen(), rows * 2 // 5
    load, backlog = f"full load of {rows:,} rows", f"backlog of {changes:,} one-row transactions"
    with _new_target(stand, rows) as (target, folder), linked(target) as (through, link):
        _bulk(stand, through, folder, (load, backlog, changes), seen, link)
    for _ in stand.rounds(rounds):
        with _new_target(stand, rows) as (target, folder):
            _bulk(stand, target, folder, (load, backlog, changes), seen)
            _small(stand, target, folder, "", seen)
            with linked(target, DELAY) as (through, link):
                _small(stand, through, folder, ", each round trip 5 ms longer", seen, link)
            _compare(stand, target)
    stand.source.run(f"DROP DATABASE {SCHEMA}")
    return [*_figures(seen)]


@contextmanager
def _new_target(stand: Stand, rows: int) -> Iterator[tuple[MariaDb, Path]]:
    """Create shards with rows and a new TiDB."""
    each = rows // SHARDS
    made = [f"DROP DATABASE IF EXISTS {SCHEMA}", f"CREATE DATABASE {SCHEMA}", f"USE {SCHEMA}"]
    for shard in range(SHARDS):
        first = shard * APART + 1
        row, new = ROW.format(id="seq"), ROW.format(id="(first + stored + i)")
        made += [
            f"CREATE TABLE orders_{shard} ({COLUMNS})",
            FILL.format(schema=SCHEMA, shard=shard, row=row, first=first, last=first + each - 1),
            WRITE.format(schema=SCHEMA, shard=shard, row=new),
        ]
    stand.source.run(*made)
    with (
        tempfile.TemporaryDirectory(dir=stand.folder) as name,
        while_up(servers.start_tidb(Path(name) / "tidb")) as target,
    ):
        yield target, Path(name)


@contextmanager
def _work(stand: Stand, target: MariaDb, folder: Path) -> Iterator[Work]:
    write_sources(folder, {SOURCE: stand.source})
    path = folder / "tidb.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "tidb",
                "task-mode": "all",
                "shard-mode": "pessimistic",
                "target-database": endpoint(target),
                "mysql-instances": [{"source-id": SOURCE, "route-rules": ["orders"], "block-allow-list": "ours"}],
                "routes": {
                    "orders": {
                        "schema-pattern": SCHEMA,
                        "table-pattern": "orders_*",
                        "target-schema": f"{SCHEMA}_to",
                        "target-table": "orders",
                    }
                },
                "block-allow-list": {"ours": {"do-dbs": [SCHEMA]}},
                "unshard": {"storage-path": str(folder / "storage")},
            }
        )
    )
    with open_work(load_task(path)) as opened:
        yield replace(opened, spark=lambda: stand.session, bulk_spark=lambda: stand.session)


def _bulk(
    stand: Stand, target: MariaDb, folder: Path, names: tuple[str, str, int], seen: Seen, link: SlowLink | None = None
) -> None:
    """Load the shards, then write and apply the backlog; with a link, round trips are counted instead of time."""
    load, backlog, changes = names
    with _work(stand, target, folder) as work:
        if stand.with_spark:
            list(map_items(stand.session, _import_all, ["1", "2"], 2))
        programs = {**stand.programs, "target": target.program}

        def timed(name: str, until: Until) -> None:
            if link is not None:
                link.reset()
            spent = spent_by(lambda: _run(work, until), programs)
            if link is not None:
                seen.trips[name].append(link.trips)
                return
            seen.seconds[name].append(spent.wall)
            seen.cpu[name] = dict(spent.cpu)

        timed(load, Until.FULL)
        ((stored,),) = stand.source.run(f"SELECT COUNT(*) FROM {SCHEMA}.orders_0")
        calls = (f"CALL write_{shard}({changes // SHARDS}, {shard * APART + 1}, {stored})" for shard in range(SHARDS))
        stand.source.run(f"USE {SCHEMA}", *calls)
        timed(backlog, Until.CAUGHT_UP)
    _compare(stand, target)


def _small(stand: Stand, target: MariaDb, folder: Path, how: str, seen: Seen, link: SlowLink | None = None) -> None:
    """Measure windows of no row and of one, and a DDL of all shards."""

    def timed(name: str, work: Callable[[], object]) -> None:
        if link is not None:
            link.reset()
        began = time.monotonic()
        work()
        seen.seconds[name + how].append(time.monotonic() - began)
        if link is not None:
            seen.trips[name].append(link.trips)

    with _work(stand, target, folder) as work:
        _change(stand)
        _step(work)  # the first one includes imports, connections and structures
        for _ in range(REPEATS):
            timed("pull and window, nothing new", lambda: _step(work))
            _change(stand)
            timed("pull and window, one changed row", lambda: _step(work))
        column = f"c{len(stand.source.run(f'SHOW COLUMNS FROM {SCHEMA}.orders_0'))}"
        stand.source.run(
            *(f"ALTER TABLE {SCHEMA}.orders_{shard} ADD {column} INT NOT NULL DEFAULT 7" for shard in range(SHARDS))
        )
        timed(f"a DDL of {SHARDS} shards, with all windows and its lock", lambda: _run(work, Until.CAUGHT_UP))


def _run(work: Work, until: Until) -> None:
    outcome = run(work, until)
    if outcome.exit_code:
        raise SystemExit(f"the run ended with {[str(trouble.error) for trouble in outcome.errors]}, {outcome.locks}")


def _step(work: Work) -> None:
    pull_source(work, SOURCE)
    while run_window(work, SOURCE).more:
        pass


def _change(stand: Stand) -> None:
    stand.source.run(f"UPDATE {SCHEMA}.orders_1 SET amount = amount + 1 ORDER BY id DESC LIMIT 1")


def _compare(stand: Stand, target: MariaDb) -> None:
    compare_union(target, MERGED, [(stand.source, f"{SCHEMA}.orders_{number}") for number in range(SHARDS)])


def _figures(seen: Seen) -> Iterator[Figure]:
    goals = {"pull and window, nothing new": "<= 0.1", "pull and window, one changed row": "<= 0.5"}
    for name, values in seen.seconds.items():
        yield Figure("n", f"TiDB: {name}", "s", tuple(values), seen.cpu.get(name, {}), goals.get(name, ""))
    for name, counts in seen.trips.items():
        yield Figure("n", f"TiDB: {name}", "round trips", tuple(map(float, counts)))


def _import_all(_: str) -> tuple[str, ...]:
    import unshard.units.full.dumpchunks
    import unshard.units.full.loadchunks
    import unshard.units.window.tasks

    return (
        unshard.units.full.dumpchunks.__name__,
        unshard.units.full.loadchunks.__name__,
        unshard.units.window.tasks.__name__,
    )
