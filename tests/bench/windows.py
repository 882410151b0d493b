"""Parts h and i: the fixed cost of a window, and the age of a change when it becomes visible in the target.

Each runs relay and window as `unshard run` does, one after the other, in this process with a warm Spark session.
"""

import itertools
import statistics
import threading
import time
from collections.abc import Callable

from tests.bench.figures import Figure
from tests.bench.stand import SOURCE, Backlog, Stand, checksum
from tests.bench.workloads import Workload
from unshard.units.relay import pull
from unshard.units.window.sync import run_window
from unshard.units.work import Work
from unshard_demo.servers import MariaDb

SMALL = 5000
REPEATS = 5
PER_SECOND = 200
LOAD_SECONDS = 20.0
POLL_SECONDS = 0.005
PATIENCE_SECONDS = 120.0


def measure_overhead(stand: Stand, rounds: int, rows: int) -> list[Figure]:
    """Return the seconds of a pull and a window: nothing new, and one changed row."""
    workload = Workload("inserts", min(rows, SMALL), 0)
    backlog = stand.backlog(workload)
    idle, small = [], []
    with stand.server(backlog) as target, stand.work(backlog, target) as work:
        stand.warm()
        _change(stand, workload, 1)
        _step(work)  # the first one includes imports and structures
        for number in stand.rounds(max(rounds, REPEATS)):
            idle.append(_timed(lambda: _step(work)))
            _change(stand, workload, 2 + number)
            small.append(_timed(lambda: _step(work)))
        _compare(stand, workload, target)
    return [
        Figure("h", "pull and window, nothing new", "s", tuple(idle)),
        Figure("h", "pull and window, one changed row", "s", tuple(small)),
    ]


def measure_freshness(stand: Stand, rounds: int, rows: int) -> list[Figure]:
    """Return the time from a row's commit until it is visible in the target, under a steady write load."""
    found = []
    for _ in stand.rounds(rounds):
        workload = Workload("inserts", min(rows, SMALL), 0)
        stand.backlogs.pop(workload, None)  # each round begins with a table without the rows of the last one
        found.append(_ages(stand, stand.backlog(workload), LOAD_SECONDS * min(1.0, rows / 20_000)))
    name = f"commit upstream to visible downstream at {PER_SECOND} transactions/s"
    late = tuple(sorted(ages)[len(ages) * 95 // 100] for ages in found)
    return [
        Figure("i", f"{name}, median", "s", tuple(statistics.median(ages) for ages in found)),
        Figure("i", f"{name}, 95 of 100", "s", late),
    ]


def _ages(stand: Stand, backlog: Backlog, seconds: float) -> list[float]:
    """Write rows at a steady rate, apply them, and watch the target for each."""
    workload, commits, ages = backlog.workload, dict[int, float](), list[float]()
    written, seen = threading.Event(), threading.Event()
    last = workload.rows + max(10, int(PER_SECOND * seconds))
    with stand.server(backlog) as target, stand.work(backlog, target) as work:
        stand.warm()
        threads = [
            threading.Thread(target=run, args=given, daemon=True)
            for run, given in (
                (_write, (stand.source, workload, last, commits, written)),
                (_watch, (target, workload, last, commits, ages, seen)),
            )
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + seconds + PATIENCE_SECONDS
        while not (written.is_set() and seen.is_set()):
            if time.monotonic() > deadline:
                raise SystemExit("the rows did not come through")
            _step(work)
        for thread in threads:
            thread.join()
        _compare(stand, workload, target)
    return ages


def _write(source: MariaDb, workload: Workload, last: int, commits: dict[int, float], done: threading.Event) -> None:
    began = time.monotonic()
    with source.connect() as connection, connection.cursor() as cursor:
        for number in range(workload.rows + 1, last + 1):
            cursor.execute(f"INSERT INTO {workload.table} (id, k) VALUES ({number}, 1)")
            commits[number] = time.monotonic()
            ahead = (number - workload.rows) / PER_SECOND - (commits[number] - began)
            done.wait(max(0.0, ahead))
    done.set()


def _watch(
    target: MariaDb, workload: Workload, last: int, commits: dict[int, float], ages: list[float], done: threading.Event
) -> None:
    known = workload.rows
    with target.connect() as connection, connection.cursor() as cursor:
        while known < last and not done.wait(POLL_SECONDS):
            cursor.execute(f"SELECT MAX(id) FROM {workload.table}")
            found, now = int(cursor.fetchone()[0]), time.monotonic()
            ages += [now - commits.get(number, now) for number in range(known + 1, found + 1)]
            known = max(known, found)
    done.set()


def _step(work: Work) -> None:
    checkpoint = work.meta.checkpoints.get(SOURCE)
    if checkpoint is None:
        raise SystemExit("the task has no checkpoint")
    pull.pull(SOURCE, work.sources[SOURCE], work.store, checkpoint.location)
    for _ in itertools.takewhile(lambda _: run_window(work, SOURCE).more, itertools.count()):
        pass


def _change(stand: Stand, workload: Workload, row: int) -> None:
    stand.source.run(f"UPDATE {workload.table} SET k = k + 1 WHERE id = {row}")


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _compare(stand: Stand, workload: Workload, target: MariaDb) -> None:
    """Compare target and source again, because the source has more changes than the backlog."""
    found, wanted = checksum(target, workload), checksum(stand.source, workload)
    if found != wanted:
        raise SystemExit(f"{workload.table}: checksum {found}, the source has {wanted}")
