"""Parts a to d: the same backlog replayed by unshard, by native replication and by `mariadb-binlog | mariadb`.

No measured time includes fetching the binlog: unshard's segments exist already, the replica's IO thread finishes first,
and `mariadb-binlog` reads the source's own files. Native replication commits every transaction separately; unshard
publishes only the state after each window.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from tests.bench.cpu import Spent, measure
from tests.bench.figures import Figure, ratio
from tests.bench.stand import SOURCE, Backlog, Stand, login, pipe
from tests.bench.workloads import SCHEMA, Workload
from unshard.units.window.sync import run_window
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb

UNSHARD, SINGLE, PARALLEL = (
    "unshard, warm Spark session",
    "native replication, 1 thread",
    "native replication, 2 threads",
)
PIPE = "mariadb-binlog | mariadb"
TITLES = {"a": "mixed OLTP changes", "b": "inserts", "c": "mixed changes of 20 columns", "d": "mixed, skewed keys"}
NAMES = {"a": "mixed", "b": "inserts", "c": "wide", "d": "skewed"}
GOALS = {"a": ">= 1.3", "b": ">= 0.8", "d": ">= 2"}
PATIENCE_SECONDS = 600
REPLICA = ("--server-id=7", "--skip-slave-start", "--slave-parallel-mode=optimistic")

Contest = Callable[[Stand, Backlog], Spent]


def measure_replay(stand: Stand, part: str, rounds: int, rows: int) -> list[Figure]:
    """Run the contestants in turn; return changes per second of each and the ratio to native replication's best."""
    workload = Workload(NAMES[part], rows, rows)
    backlog = stand.backlog(workload)
    contests = {UNSHARD: unshard, SINGLE: native(1), PARALLEL: native(2), PIPE: by_pipe}
    if part == "d":
        del contests[PIPE]
    spent: dict[str, list[Spent]] = {name: [] for name in contests}
    unshard(stand, backlog)  # the first job of a session includes its start
    for number in range(rounds):
        names = list(contests) if number % 2 == 0 else list(reversed(contests))
        for name in names:
            spent[name].append(contests[name](stand, backlog))
    found = [_speed(part, name, runs, workload) for name, runs in spent.items()]
    best = max(found[1:3], key=lambda figure: figure.median)
    return [
        *found,
        ratio(part, f"{TITLES[part]}: unshard to native replication's best", found[0], best, GOALS.get(part, "")),
    ]


def _speed(part: str, name: str, runs: Sequence[Spent], workload: Workload) -> Figure:
    speeds = tuple(workload.changes / run.wall for run in runs)
    return Figure(part, f"{TITLES[part]}: {name}", "changes/s", speeds, cpu_of(runs))


def cpu_of(runs: Sequence[Spent]) -> dict[str, float]:
    """Return the median CPU seconds of each consumer."""
    return {place: sorted(run.cpu[place] for run in runs)[len(runs) // 2] for place in runs[0].cpu}


def unshard(stand: Stand, backlog: Backlog) -> Spent:
    """Run windows until the backlog is in the target."""
    with stand.server(backlog) as target, stand.work(backlog, target) as work:
        stand.warm()

        def windows() -> None:
            while run_window(work, SOURCE).moved:
                pass

        spent = measure(windows, {**stand.programs, "server": target.program})
        stand.check(backlog, target)
    return spent


def native(threads: int) -> Contest:
    """Return the replica with this many applier threads."""

    def replicate(stand: Stand, backlog: Backlog) -> Spent:
        options = (*REPLICA, f"--slave-parallel-threads={threads if threads > 1 else 0}")
        with stand.server(backlog, *options) as replica, _fetched(stand, backlog, replica):
            ends = backlog.ends

            def apply() -> None:
                wait = f"SELECT MASTER_POS_WAIT('{ends.file}', {ends.position}, {PATIENCE_SECONDS})"
                ((waited,),) = replica.run("START SLAVE SQL_THREAD", wait)
                if waited is None or int(str(waited)) < 0:
                    raise SystemExit(f"the replica did not come to {ends}: {replica.run('SHOW SLAVE STATUS')}")

            spent = measure(apply, {"server": replica.program})
            stand.check(backlog, replica)
        return spent

    return replicate


@contextlib.contextmanager
def _fetched(stand: Stand, backlog: Backlog, replica: MariaDb) -> Iterator[None]:
    """Put the whole backlog into the replica's relay log before the measurement."""
    at = backlog.begins
    replica.run(
        f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {stand.source.port}, MASTER_USER ="
        f" '{stand.source.server.user}', MASTER_PASSWORD = '{stand.source.password}', MASTER_USE_GTID = no,"
        f" MASTER_LOG_FILE = '{at.file}', MASTER_LOG_POS = {at.position}",
        "START SLAVE IO_THREAD",
    )
    await_true(
        lambda: _read_to(replica) >= (backlog.ends.file, backlog.ends.position),
        PATIENCE_SECONDS,
        [replica.program],
        "the replica has fetched the backlog",
    )
    replica.run("STOP SLAVE IO_THREAD")
    yield
    replica.run("STOP SLAVE")


def _read_to(replica: MariaDb) -> tuple[str, int]:
    ((*columns,),) = replica.run("SHOW SLAVE STATUS")
    return str(columns[5]), int(str(columns[6]))


def by_pipe(stand: Stand, backlog: Backlog) -> Spent:
    """Send row events as BINLOG statements through the client."""
    folder, begins, ends = stand.source.folder / "data", backlog.begins, backlog.ends
    if begins.file != ends.file:
        raise SystemExit("the backlog is in more than one binlog file")
    reading = [
        "mariadb-binlog",
        "--no-defaults",
        f"--start-position={begins.position}",
        f"--stop-position={ends.position}",
        str(folder / begins.file),
    ]
    with stand.server(backlog) as target:
        spent = measure(
            lambda: pipe(reading, ["mariadb", *login(target), SCHEMA], stand.source, target), {"server": target.program}
        )
        stand.check(backlog, target)
    return spent
