"""Part k: the cost of a window of three rows in a task of 10 tables and in one of thousands.

Every shard has its own target table, all in one schema, so the window reads as many tables as possible. The whole
window is measured, in this process and without Spark, whose work does not depend on other tables.
"""

import tempfile
import time
from pathlib import Path

from tests.bench.figures import Figure
from tests.bench.stand import Stand
from tests.livetask import LiveTask, living
from tests.running import while_up
from unshard.core.model import Shard, TableId
from unshard.core.window.plan import StructureChange
from unshard_demo import servers

FEW, MANY = 10, 5000
REPEATS = 5
TOUCHED = 3
NAME = "many"
COLUMNS = "id BIGINT PRIMARY KEY, v INT NOT NULL, note VARCHAR(40)"


def measure(stand: Stand, rounds: int, rows: int) -> list[Figure]:
    """Return the seconds of a window with few and with many tables, and the difference."""
    sizes = FEW, min(MANY, rows // 10)
    found = {size: _windows(stand, size, max(rounds, REPEATS)) for size in sizes}
    few, many = (Figure("k", f"window of {TOUCHED} rows, {size:,} tables", "s", found[size]) for size in sizes)
    more = tuple(max(0.0, one - other) for one, other in zip(many.values, few.values, strict=False))
    return [few, many, Figure("k", "what so many tables add to a window", "s", more, goal="<= 1")]


def _windows(stand: Stand, tables: int, repeats: int) -> tuple[float, ...]:
    with (
        tempfile.TemporaryDirectory(dir=stand.folder) as name,
        while_up(servers.start_server(Path(name) / "target")) as target,
    ):
        folder = Path(name) / "task"
        folder.mkdir()
        made = {"columns": {"t": COLUMNS}, "numbers": {("s1", "t"): (1,)}}
        with living(NAME, folder, (stand.source, target), ("t",), **made) as task:
            _add_tables(task, tables)
            _seconds(task, 0)  # the first one includes imports
            found = tuple(_seconds(task, 1 + number) for number in stand.rounds(repeats))
            _compare(task)
            return found


def _add_tables(task: LiveTask, tables: int) -> None:
    """Add tables that no route matches, so that each keeps its name, as if a snapshot had found them."""
    create = [f"CREATE TABLE {NAME}.x{number} ({COLUMNS})" for number in range(tables)]
    task.sources["s1"].run(*create)
    task.target.run(f"CREATE DATABASE {NAME}", *create)
    structures, place = task.work().meta.structures, task.upstream_end("s1")
    (first,) = structures.shards("s1")
    names = (TableId(NAME, f"x{number}") for number in range(tables))
    structures.record_all(StructureChange(Shard("s1", table), table, place, first.structure) for table in names)
    task.pull("s1")
    while task.window("s1").moved:
        pass


def _seconds(task: LiveTask, number: int) -> float:
    task.sources["s1"].run(*(f"INSERT INTO {NAME}.x{place} VALUES ({number}, 1, 'x')" for place in range(TOUCHED)))
    task.pull("s1")
    began = time.monotonic()
    if task.window("s1").rows_applied != TOUCHED:
        raise SystemExit("the rows did not come in one window")
    return time.monotonic() - began


def _compare(task: LiveTask) -> None:
    for number in range(TOUCHED):
        sums = f"CHECKSUM TABLE {NAME}.x{number}"
        if task.sources["s1"].run(sums) != task.target.run(sums):
            raise SystemExit(f"{NAME}.x{number} differs from its source")
