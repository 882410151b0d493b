"""Part o: several writers of one table, before a target to which each round trip takes 5 ms longer.

The task's `worker-count` is 1, 2 and 4. The same backlog is also applied without the proxy, with the default value.
"""

import contextlib
from collections.abc import Iterator
from functools import partial

from tests.bench.cpu import Spent
from tests.bench.cpu import measure as spent_by
from tests.bench.figures import Figure, ratio
from tests.bench.replay import TITLES, cpu_of
from tests.bench.size import Size
from tests.bench.stand import SOURCE, Backlog, Stand
from tests.bench.workloads import Workload
from tests.slowlink import linked
from unshard.units.window.sync import run_window
from unshard_demo.servers import MariaDb

DELAY = 0.005
BACKLOGS = {"inserts": TITLES["b"], "mixed": TITLES["a"]}
DIRECT, ONE, *MORE = WRITERS = {"no delay, default worker-count": None} | {f"worker-count {n}": n for n in (1, 2, 4)}


def measure(stand: Stand, size: Size) -> list[Figure]:
    """Return changes per second of each number of writers, and the ratios to one writer."""
    backlogs = {title: stand.backlog(Workload(name, size.rows, size.fixed)) for name, title in BACKLOGS.items()}
    contests = {
        f"{title}: {how}": partial(_applied, stand, backlog, count)
        for title, backlog in backlogs.items()
        for how, count in WRITERS.items()
    }
    spent: dict[str, list[Spent]] = {contest: [] for contest in contests}
    for title in backlogs:
        contests[f"{title}: {DIRECT}"]()  # the first job of a session includes its start
    for number in stand.rounds(size.rounds):
        for contest in contests if number % 2 == 0 else reversed(contests):
            spent[contest].append(contests[contest]())
    for backlog in backlogs.values():
        stand.describe(backlog)
        stand.release(backlog)
    found = {
        contest: Figure("o", contest, "changes/s", tuple(size.fixed / run.wall for run in runs), cpu_of(runs))
        for contest, runs in spent.items()
    }
    ratios = (
        ratio("o", f"{title}: {more} to 1", found[f"{title}: {more}"], found[f"{title}: {ONE}"])
        for title in backlogs
        for more in MORE
    )
    return [*found.values(), *ratios]


def _applied(stand: Stand, backlog: Backlog, workers: int | None) -> Spent:
    """Apply the backlog, through the proxy if a number of writers is given."""
    syncer = {} if workers is None else {"worker-count": workers}
    with (
        stand.server(backlog) as target,
        _reached(target, workers is not None) as reached,
        stand.work(backlog, reached, syncer=syncer) as work,
    ):
        stand.warm()

        def windows() -> None:
            while run_window(work, SOURCE).moved:
                pass

        spent = spent_by(windows, {**stand.programs, "server": target.program})
        stand.check(backlog, target)
    return spent


@contextlib.contextmanager
def _reached(target: MariaDb, is_slow: bool) -> Iterator[MariaDb]:
    if not is_slow:
        yield target
        return
    with linked(target, DELAY, keeps_statements=False) as (through, _):
        yield through
