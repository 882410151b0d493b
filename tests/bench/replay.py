"""Parts a to d: the same backlog replayed by unshard, by native replication and by `mariadb-binlog | mariadb`.

No measured time includes fetching the binlog: unshard's segments exist already, the replica's IO thread finishes first,
and `mariadb-binlog` reads the source's own files. Native replication commits every transaction separately; unshard
publishes only the state after each window.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from tests.bench.cpu import Spent, measure
from tests.bench.figures import Figure, ratio
from tests.bench.size import Size, enough
from tests.bench.stand import SOURCE, Backlog, Stand, binlog_parts, login, pipe
from tests.bench.workloads import SCHEMA, TRANSACTION, Workload
from unshard.core.model import Location
from unshard.units.window.sync import run_window
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb

UNSHARD, PIPE = "unshard, warm Spark session", "mariadb-binlog | mariadb"
TITLES = {"a": "mixed OLTP changes", "b": "inserts", "c": "mixed changes of 20 columns", "d": "mixed, skewed keys"}
NAMES = {"a": "mixed", "b": "inserts", "c": "wide", "d": "skewed"}
GOALS = {"a": ">= 1.6", "b": ">= 0.95", "c": ">= 1.8", "d": ">= 2.5"}
SHORT_SHARE = 10
"""A backlog begins with a short one, which has a tenth of its changes, or as many as a tenth of the table's rows.

The pipe gets no more, because it takes a second for 6,600 mixed changes. The short one also tells how many changes need
the wanted time. With inserts it then has as many as the table has rows, because both sides become slower while the
table grows.
"""
PATIENCE_SECONDS = 3600
REPLICA = ("--server-id=7", "--skip-slave-start", "--slave-parallel-mode=optimistic")

Contest = Callable[[Stand, Backlog], Spent]


def measure_replay(stand: Stand, part: str, size: Size) -> list[Figure]:
    """Run the contestants in turn; return changes per second of each and the ratio to native replication's best."""
    short = short_backlog(stand, NAMES[part], size)
    once = f"{PIPE}, {short.workload.changes:,} changes, once"
    piped = [] if part == "d" else [_speed(part, once, [by_pipe(stand, short)], short.workload)]
    backlog = longer_backlog(stand, short, size)
    contests = {UNSHARD: unshard} | {native_name(threads): native(threads) for threads in size.threads}
    spent: dict[str, list[Spent]] = {name: [] for name in contests}
    for number in stand.rounds(size.rounds):
        names = list(contests) if number % 2 == 0 else list(reversed(contests))
        for name in names:
            spent[name].append(contests[name](stand, backlog))
    stand.describe(backlog)
    stand.release(backlog)
    found = [_speed(part, name, runs, backlog.workload) for name, runs in spent.items()]
    best = max(found[1:], key=lambda figure: figure.median)
    versus = ratio(part, f"{TITLES[part]}: unshard to native replication's best", found[0], best, GOALS[part])
    return [*found, *piped, versus]


def short_backlog(stand: Stand, name: str, size: Size) -> Backlog:
    """Return the beginning of a backlog."""
    changes = size.fixed if name == "inserts" and size.is_timed else size.fixed // SHORT_SHARE
    return stand.backlog(Workload(name, size.rows, max(TRANSACTION, changes // TRANSACTION * TRANSACTION)))


def longer_backlog(stand: Stand, short: Backlog, size: Size) -> Backlog:
    """Return a backlog of the wanted size, or one that takes the wanted time; it replaces the short one."""
    unshard(stand, short)  # the first job of a session includes its start
    if not size.is_timed:
        return stand.longer(short, size.fixed)
    walls = unshard(stand, short).wall, min(native(threads)(stand, short).wall for threads in size.threads)
    speeds = short.workload.changes / walls[0], short.workload.changes / walls[1]
    return stand.longer(short, max(enough(speeds, size.seconds), short.workload.changes))


def native_name(threads: int) -> str:
    return f"native replication, {threads} thread" + ("s" if threads > 1 else "")


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
        with fetched_replica(stand, backlog, threads) as replica:
            spent = measure(lambda: apply_to(replica, backlog.ends), {"server": replica.program})
            stand.check(backlog, replica)
        return spent

    return replicate


@contextlib.contextmanager
def fetched_replica(stand: Stand, backlog: Backlog, threads: int) -> Iterator[MariaDb]:
    """Run a replica that has the whole backlog in its relay log, and applies nothing yet."""
    options = (*REPLICA, f"--slave-parallel-threads={threads if threads > 1 else 0}")
    with (
        stand.server(backlog, *options, role=native_name(threads)) as replica,
        _fetched(stand, backlog, replica),
    ):
        yield replica


def apply_to(replica: MariaDb, end: Location) -> None:
    """Let the replica apply its relay log up to a location."""
    wait = f"SELECT MASTER_POS_WAIT('{end.file}', {end.position}, {PATIENCE_SECONDS})"
    ((waited,),) = replica.run("START SLAVE SQL_THREAD", wait)
    if waited is None or int(str(waited)) < 0:
        raise SystemExit(f"the replica did not come to {end}: {replica.run('SHOW SLAVE STATUS')}")


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
    begins, ends = backlog.begins, backlog.ends
    reading = [
        "mariadb-binlog",
        "--no-defaults",
        f"--start-position={begins.position}",
        f"--stop-position={ends.position}",
        *(str(stand.source.folder / "data" / name) for name, _, _ in binlog_parts(stand.source, backlog)),
    ]
    with stand.server(backlog) as target:
        spent = measure(
            lambda: pipe(reading, ["mariadb", *login(target), SCHEMA], stand.source, target), {"server": target.program}
        )
        stand.check(backlog, target)
    return spent
