"""Kill -9 of any participant at random moments under load: the target remains the union of the shards.

A seed determines the victim and the moment of each round: any moment of a run, a moment in which a window is in
progress, or one in which the target executes a DDL.

Rows are written all the time, into tables with and without a key. In many rounds a shard DDL is in progress: just
queued, waiting with held rows, or about to be released. After each round everything catches up, and the target must
contain exactly the union of the shards: nothing lost, nothing twice. CONTRIBUTING.md lists the environment
variables that configure it.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.plant import CUT, IMAGE, ROUNDS, SCHEMAS, SECONDS, SEED, TABLES, TARGET, Plant, cuts_in, running
from tests.suite.portions import IS_ALL
from unshard_demo import processes, servers

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration]

VICTIMS = ("task process", "relay", "spark server", "spark workers", "target", "source", "everything")
DDL_STATES = ("none", "none", "queued", "waiting", "released")
MOMENTS = ("any", "window", "window", "execution")
UNCUT_SECONDS = 30
"""After so long without a window that is cut, another one will do."""
MISSES = 20
BRIEF = ("everything", "target", "task process", "spark workers")
"""The first victims on TiDB and in `make test`; *everything* includes the others."""
ON_TIDB = pytest.mark.tidb, *[pytest.mark.test_all("the same deaths")] * (not TARGET)
TARGETS = [pytest.param("mariadb", id="mariadb"), pytest.param("tidb", id="tidb", marks=ON_TIDB)]


@dataclass(frozen=True)
class Round:
    """The random choices of a round."""

    number: int
    victim: str
    source: str
    """The source that is killed, if a source is."""
    moment: str
    seconds: float
    early: bool
    """Whether a server restarts while the run still continues."""
    ddl: str
    table: str
    ahead: int
    """How many of the four shards have the DDL before the kill."""

    @property
    def change(self) -> str:
        """The DDL; an index takes the server a while."""
        column = f"c{self.number}"
        return f"ADD COLUMN {column} INT DEFAULT {self.number}" + (f", ADD INDEX ({column})" if self.number % 2 else "")

    @property
    def shards(self) -> list[tuple[str, str]]:
        """All shards of the table, in an order that differs by round."""
        found = [(source, f"{self.table}_{number}") for source in SCHEMAS for number in (1, 2)]
        random.Random(self.number).shuffle(found)
        return found


def rounds(seed: int, first: Sequence[str], count: int) -> Iterator[Round]:
    """Yield the rounds; the victims in `first` are killed first, one per round."""
    dice = random.Random(seed)
    for number in range(count):
        yield Round(
            number=number,
            victim=first[number] if number < len(first) else dice.choice(VICTIMS),
            source=dice.choice(list(SCHEMAS)),
            moment=dice.choice(MOMENTS),
            seconds=dice.uniform(0, 1),
            early=dice.random() < 0.5,
            ddl=dice.choice(DDL_STATES) if number else "none",
            table=dice.choice(list(TABLES)),
            ahead=dice.randint(1, 3),
        )


@pytest.fixture(scope="module", params=[one for one in TARGETS if TARGET in ("", one.id)])
def plant(
    request: pytest.FixtureRequest, server_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Plant]:
    if request.param == "tidb" and not servers.is_tidb_built():
        pytest.skip("TiDB is not built: sh .ci/tidb/build (needs Go 1.23 or later)")
    with running(tmp_path_factory.mktemp("kill"), server_folder, request.param == "tidb") as plant:
        yield plant


def test_union_survives_kills_at_random_moments(plant: Plant) -> None:
    if IMAGE != "FULL":
        # Otherwise the binlog would lack the values of a row whose key changes while it is dumped: US-6043.
        plant.settle()
    plant.load.start()
    first = VICTIMS if IS_ALL and (TARGET or not plant.is_tidb) else BRIEF
    count = min(ROUNDS, len(BRIEF)) if plant.is_tidb and not TARGET else ROUNDS
    for each in rounds(SEED, first, count):
        began = time.monotonic()
        late = begin_ddl(plant, each)
        process, standing, revive = kill(plant, each)
        if each.early:  # the continuing run connects to a server that has just restarted
            revive()
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode in (0, 3, -signal.SIGKILL) or codes(out), err
        if not each.early:
            revive()
        plant.alter(late, each.change)
        plant.load.finish()
        plant.settle()
        plant.assert_equal()
        state = " ".join(f"{name}={count}" for name, count in standing.items())
        print(
            f"{each.number}: {each.victim} at {each.moment} + {each.seconds:.2f} s, ddl {each.ddl}, {state}; "
            f"exit {process.returncode}, {codes(out)}; {time.monotonic() - began:.0f} s",
            flush=True,
        )
        plant.load.start()
    plant.load.finish()
    if CUT:
        cuts = cuts_in(plant.cut_lines())
        print(
            f"{len(cuts.several)} windows in several {CUT}, {sum(cuts.several.values())} in all;"
            f" {cuts.broken} attempts died in between, {cuts.left} were left for the whole;"
            f" {plant.sections()} sections after the first of a window",
            flush=True,
        )
        assert cuts.several and (CUT != "slices" or plant.sections())


def begin_ddl(plant: Plant, each: Round) -> list[tuple[str, str]]:
    """Run a DDL on some shards before the kill, and return the shards that run it afterwards."""
    if each.ddl == "none":
        return []
    first, late = each.shards[: each.ahead], each.shards[each.ahead :]
    plant.alter(first, each.change)
    if each.ddl == "queued":
        return late
    plant.settle(3)
    if each.ddl == "waiting":
        return late
    plant.alter(late, each.change)
    return []


def codes(out: str) -> list[str]:
    """Return the error codes in the output of a run."""
    said = json.loads(out) if out.strip() else {}
    return [error["code"] for error in (*said.get("errors", ()), *filter(None, [said.get("error")]))]


def kill(plant: Plant, each: Round) -> tuple[subprocess.Popen[str], Mapping[str, int], Callable[[], None]]:
    """Kill in the middle of a run; return the run, the state at that moment, and a function that restarts servers."""
    for missed in range(MISSES):
        run = Run(plant)
        await_moment(plant, run, each, missed)
        standing = plant.standing()
        if run.process.poll() is not None:
            run.finish()
            continue
        revive = strike(plant, run.process, each)
        if each.victim not in ("task process", "relay", "everything") or run.process.wait() == -signal.SIGKILL:
            return run.process, standing, revive
        run.finish()
    raise AssertionError(f"{MISSES} runs were over before their moment: {each}")


class Run:
    """A run of the task, and the state before it."""

    def __init__(self, plant: Plant) -> None:
        self.plant = plant
        self.start()

    def start(self) -> None:
        self.before = self.plant.relayed()
        self.cuts = len(self.plant.cut_lines())
        self.process = self.plant.spawn()

    def finish(self) -> None:
        """Let the run end, if it was not disturbed."""
        out, err = self.process.communicate(timeout=SECONDS)
        assert self.process.returncode in (0, 3), f"{out}\n{err}"

    @property
    def relays(self) -> bool:
        """Whether it has begun a file of the relay."""
        return bool(self.plant.relayed() - self.before)

    @property
    def is_between(self) -> bool:
        """Whether its last completed work is a slice or a step, but not the last one of a window."""
        return any(line.endswith(("made", "step")) for line in self.plant.cut_lines()[self.cuts :][-1:])


def await_moment(plant: Plant, run: Run, each: Round, missed: int) -> None:
    """Wait until the moment of the kill, with a new run whenever one has ended; this test varies the moment.

    After a run that ended before its moment the next one waits half as long, because some runs take one second.
    """
    time.sleep(each.seconds * 4 / 2**missed if each.moment == "any" else 0)
    began = time.monotonic()
    while not has_come(plant, run, each, time.monotonic() - began):
        assert plant.load.is_running, "the load has ended"
        assert time.monotonic() - began < SECONDS, f"the moment of the kill has not come: {each}"
        if run.process.poll() is not None:
            run.finish()
            run.start()
        time.sleep(0.005)
    within = each.moment == "window" and each.victim != "relay"
    time.sleep(each.seconds / (20 if CUT else 4) / 2**missed if within else 0)


def has_come(plant: Plant, run: Run, each: Round, waited: float) -> bool:
    if each.victim == "relay":
        return run.relays
    if each.victim == "spark workers" and not workers(plant):
        return False
    if each.moment == "any":
        return True
    standing = plant.standing()
    if each.moment == "execution" and each.ddl == "released":
        return bool(standing["executing"]) or not standing["locks"]
    # Not every window can be cut, such as one whose rows lack columns.
    return run.is_between if CUT and waited < UNCUT_SECONDS else bool(standing["windows"])


def strike(plant: Plant, process: subprocess.Popen[str], each: Round) -> Callable[[], None]:
    """Kill the victim and wait for its end; return a function that restarts servers."""
    match each.victim:
        case "target" if plant.is_tidb:
            with frozen(process.pid, plant.spark.program.members()):
                plant.end_commits()
                plant.target.kill()
            return lambda: plant.revive("target")
        case "target":
            plant.target.kill()
            return lambda: plant.revive("target")
        case "source":
            plant.sources[each.source].kill()
            return lambda: plant.revive(each.source)
        case "task process" | "relay":
            kill_run(process)
        case "everything":
            kill_run(process)
            for server in (*plant.sources.values(), *[plant.target] * (not plant.is_tidb)):
                server.kill()
            kill_spark(plant, workers_only=False)
            if plant.is_tidb:
                plant.end_commits()
                plant.target.kill()
            return lambda: [plant.revive(name) for name in (*SCHEMAS, "target")] and None
        case _:
            kill_spark(plant, workers_only=each.victim == "spark workers")
    return lambda: None


@contextlib.contextmanager
def frozen(run: int, pids: Sequence[int]) -> Iterator[None]:
    """Stop the run, a group of processes, and other processes for the block."""
    _signal(run, pids, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(run, pids, signal.SIGCONT)


def _signal(run: int, pids: Sequence[int], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run, number)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_run(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def kill_spark(plant: Plant, workers_only: bool) -> None:
    """Kill the driver with its workers or the workers alone; then wait, because a driver may die slowly."""
    pids = workers(plant) if workers_only else plant.spark.program.members()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    processes.await_true(lambda: not set(pids) & set(plant.spark.program.members()), SECONDS, [], "Spark to die")


def workers(plant: Plant) -> list[int]:
    """Return Spark's Python processes."""
    return [pid for pid in plant.spark.program.members() if b"pyspark.daemon" in _command_line(pid)]


def _command_line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
