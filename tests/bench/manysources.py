"""Part l: one target table with 1, 2, 4 and 8 sources, and the same rows and changes in each case.

There are always eight shards. The sources of a case share them out, and all sources apply their windows at the same
time, as `unshard run` does. The measured time contains applying only: all segments exist before.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from tests.bench.cpu import Spent
from tests.bench.cpu import measure as spent_by
from tests.bench.figures import Figure, ratio
from tests.bench.replay import cpu_of
from tests.bench.size import Size
from tests.bench.stand import Stand, compare_union, hand_over
from tests.bench.workloads import TRANSACTION, Workload
from tests.running import while_up
from tests.taskfile import endpoint, route, write_sources
from unshard.adapters import mysql, upstream
from unshard.adapters.relayfiles import RelayStore
from unshard.config import load_task
from unshard.core.model import Location, TableId
from unshard.units.relay import pull as relay
from unshard.units.window.sync import run_window
from unshard.units.work import Work, open_work
from unshard_demo import servers
from unshard_demo.servers import MariaDb

CASES = (1, 2, 4, 8)
SHARDS = 8
TURNS = 50
"""A source with several shards changes them by turns."""
WRITERS = 2
"""Sources that make their changes at the same time, which is not measured."""
MERGED = TableId("merged", "mixed")
SMALL = ("--innodb-buffer-pool-size=64M", "--innodb-log-file-size=64M", "--innodb-doublewrite=0")
"""The options of a source: it does nothing while unshard applies."""


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a case, with its shards, and where its changes are in its binlog."""

    name: str
    server: MariaDb
    shards: tuple[Workload, ...]
    begins: Location
    gtid: str


@dataclass(frozen=True, slots=True)
class Case:
    """So many sources, and the relay folder with their changes."""

    sources: tuple[Source, ...]
    relay: Path


def measure(stand: Stand, size: Size) -> list[Figure]:
    """Return changes per second for each number of sources, and the ratios to one source."""
    turns = max(1, min(TURNS, size.fixed // (SHARDS * TRANSACTION)))
    each = max(1, size.fixed // (SHARDS * turns * TRANSACTION)) * TRANSACTION
    changes = each * turns * SHARDS
    stand.conditions.append(f"{changes:,} changes in {SHARDS} shards")
    found: dict[int, list[Spent]] = {number: [] for number in CASES}
    with tempfile.TemporaryDirectory(dir=stand.folder) as name, _servers(Path(name)) as running:
        folder = Path(name)
        base = _base(stand, folder, _shards(1, size))
        cases = {number: _case(running, folder, _shards(number, size), number, each, turns) for number in CASES}
        stand.note_settings("source", running[0])
        _measured(stand, folder, base, cases[1])  # the first job of a session includes its start
        for number in stand.rounds(size.rounds):
            for one in CASES if number % 2 == 0 else reversed(CASES):
                found[one].append(_measured(stand, folder, base, cases[one]))
    figures = {number: _speed(number, changes, spent) for number, spent in found.items()}
    ratios = (ratio("l", f"{one} sources to one", figures[one], figures[1]) for one in CASES[1:])
    return [*figures.values(), *ratios]


def _speed(sources: int, changes: int, spent: Sequence[Spent]) -> Figure:
    name = "1 source" if sources == 1 else f"{sources} sources"
    return Figure("l", name, "changes/s", tuple(changes / one.wall for one in spent), cpu_of(spent))


def _shards(case: int, size: Size) -> tuple[Workload, ...]:
    rows = max(1, size.rows // SHARDS)
    return tuple(Workload("mixed", rows, 0, schema=f"sources_{case}", shard=number) for number in range(SHARDS))


@contextlib.contextmanager
def _servers(folder: Path) -> Iterator[list[MariaDb]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(while_up(servers.start_server(folder / f"s{number}", *SMALL, server_id=number)))
            for number in range(1, max(CASES) + 1)
        ]


def _base(stand: Stand, folder: Path, shards: Sequence[Workload]) -> Path:
    """Return the data folder of a target that has all rows; the same statements give the same rows as in a source."""
    with while_up(servers.start_server(folder / "base", *stand.settings.roomy)) as server:
        server.run(f"CREATE DATABASE {shards[0].schema}", f"CREATE DATABASE {MERGED.schema}")
        for shard in shards:
            server.run(*shard.prepare())
        server.run(
            f"CREATE TABLE {MERGED} LIKE {shards[0].table}",
            *(f"INSERT INTO {MERGED} SELECT * FROM {shard.table}" for shard in shards),
            f"DROP DATABASE {shards[0].schema}",
        )
    return folder / "base" / "data"


def _case(
    running: Sequence[MariaDb], folder: Path, shards: Sequence[Workload], count: int, each: int, turns: int
) -> Case:
    """Fill so many sources, make their changes and pull them."""
    place = folder / f"relay-{count}"
    place.mkdir()

    def source(number: int) -> Source:
        return _source(place, f"s{number + 1}", running[number], tuple(shards[number::count]), each, turns)

    with ThreadPoolExecutor(WRITERS) as pool:
        return Case(tuple(pool.map(source, range(count))), place)


def _source(place: Path, name: str, server: MariaDb, shards: tuple[Workload, ...], each: int, turns: int) -> Source:
    server.run(f"CREATE DATABASE {shards[0].schema}")
    for shard in shards:
        server.run(*shard.prepare())
    begins, gtid = _end(server, name)
    seed = f"SET rand_seed1 = {4711 + (shards[0].shard or 0)}, rand_seed2 = 815"
    server.run(seed, *(shard.call(each) for _ in range(turns) for shard in shards))
    ends, _ = _end(server, name)
    relay.pull(name, server.server, RelayStore(place), begins, until=ends)
    return Source(name, server, shards, begins, gtid)


def _end(server: MariaDb, name: str) -> tuple[Location, str]:
    with contextlib.closing(mysql.connect(server.server)) as connection:
        found = upstream.inspect(connection, name)
    return found.end, found.gtid


def _measured(stand: Stand, folder: Path, base: Path, case: Case) -> Spent:
    """Apply the changes of all sources to a new target, and compare it with all shards."""
    shutil.copytree(base, folder / "target" / "data")
    try:
        with (
            while_up(servers.start_server(folder / "target", *stand.settings.target)) as target,
            _work(stand, target, case) as work,
        ):
            target.run(f"CHECKSUM TABLE {MERGED}")
            stand.note_settings("target", target)
            stand.warm()
            names = [source.name for source in case.sources]
            spent = spent_by(lambda: _apply(work, names), {**stand.programs, "server": target.program})
            shards = ((source.server, shard.table) for source in case.sources for shard in source.shards)
            compare_union(target, str(MERGED), shards)
    finally:
        shutil.rmtree(folder / "target", ignore_errors=True)
    return spent


def _apply(work: Work, sources: Iterable[str]) -> None:
    def windows(source: str) -> None:
        while run_window(work, source).moved:
            pass

    names = [*sources]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(windows, names))


@contextlib.contextmanager
def _work(stand: Stand, target: MariaDb, case: Case) -> Iterator[Work]:
    """Open a task of all sources whose next windows begin with their changes."""
    with tempfile.TemporaryDirectory(dir=stand.folder) as name:
        folder = Path(name)
        write_sources(folder, {source.name: source.server for source in case.sources})
        schema = case.sources[0].shards[0].schema
        body = {
            "name": "sources",
            "task-mode": "incremental",
            "shard-mode": "pessimistic",
            "target-database": endpoint(target),
            "mysql-instances": [
                {"source-id": source.name, "route-rules": ["all"], "block-allow-list": "ours"}
                for source in case.sources
            ],
            "routes": {"all": route(schema, "mixed_*", MERGED.schema, MERGED.name)},
            "block-allow-list": {"ours": {"do-dbs": [schema]}},
            "unshard": {"storage-path": str(folder / "storage")},
        }
        (folder / "sources.yaml").write_text(yaml.safe_dump(body))
        with open_work(load_task(folder / "sources.yaml")) as opened:
            shutil.copytree(case.relay, opened.store.folder)
            for source in case.sources:
                shards = {TableId(*shard.table.split(".")): MERGED for shard in source.shards}
                hand_over(opened, source.name, shards, source.begins, source.gtid)
            yield replace(opened, spark=lambda: stand.session, bulk_spark=lambda: stand.session)
