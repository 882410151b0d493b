"""The demo's steps: full load, windows, a DDL on all shards under write load, and the final comparison.

In pessimistic mode the DDL has a lock. In optimistic mode it begins with a canary.

Each step waits for a state that it reads, never for a fixed time. Any failure ends the demo with an exit code other
than 0.

**Passages**: how windows passed the DDL of shards. The plans of committed windows are in the meta tables.
A window that reaches a DDL holds the rows after it. The first window that writes such rows ends the wait of the shard.

**In optimistic mode** there is a canary that goes forth and back, then the rollout over all shards.
It runs while rows are written, and waits only for states that it reads. Waits are proven in windows: the plans in the
meta tables say which rows a window held and which it wrote.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from unshard.adapters import mysql
from unshard.adapters.meta import Meta
from unshard.adapters.structures import read_schema
from unshard.config import Connections, ShardMode, Task, resolve
from unshard.core import codec
from unshard.core.join.states import State
from unshard.core.model import Shard, TableId
from unshard.core.structures.comparison import shape_differences
from unshard.core.task.state import Phase
from unshard.core.window.plan import Plan
from unshard.operate.documents import difference_lines
from unshard.units.begun import existing_meta
from unshard.units.ddl import coordinate
from unshard.units.ddl.differences import DifferenceView
from unshard.units.ddl.scene import LockFacts
from unshard.units.task.opendifferences import open_differences
from unshard.units.task.status import SourceStatus, status
from unshard.units.validate.validate import validate
from unshard.units.work import open_work
from unshard_demo import shop
from unshard_demo.servers import MariaDb
from unshard_demo.stage import TARGET_TABLE, TASK, DemoStage

# --- printed lines ---


class DemoFailed(Exception):
    """A step failed; the message gives the reason."""


def say(text: str) -> None:
    """Print a separate line."""
    progress.end()
    print(text, flush=True)


def figure(label: str, value: float, text: str = "") -> str:
    """Return a line of the summary."""
    return f"  {label:<24} {value:>10,.0f} {text}".rstrip()


class _Progress:
    """A line that is rewritten on a terminal; elsewhere a new line for a change, but not too often."""

    def __init__(self) -> None:
        self.last, self.at = "", 0.0

    def __call__(self, text: str) -> None:
        if sys.stdout.isatty():
            print(f"\r\x1b[2K  {text}", end="", flush=True)
        elif text != self.last and time.monotonic() - self.at > 5:
            print(f"  {text}", flush=True)
            self.at = time.monotonic()
        self.last = text

    def end(self) -> None:
        if sys.stdout.isatty() and self.last:
            print(flush=True)
        self.last, self.at = "", 0.0


progress = _Progress()


# --- windows and DDL ---

Windows = Mapping[str, int]
"""The number of a window of each source."""


@dataclass(frozen=True, slots=True)
class ReachedDdl:
    """A DDL that a window has reached."""

    shard: Shard
    seq: int
    window: int
    after: str
    """Digest of the structure of the rows after it."""

    def is_held_in(self, plan: Plan) -> bool:
        """Whether the window holds rows after the DDL."""
        return any(
            each.shard == self.shard and each.hold == self.seq for read in plan.reads for each in read.dispositions
        )

    def is_written_in(self, plan: Plan) -> bool:
        """Whether the window writes rows after the DDL, held ones or new ones."""
        mine = (each for read in plan.reads for each in read.dispositions if each.shard == self.shard)
        released = (file for each in plan.releases if each.shard == self.shard for file in each.files)
        return any(each.hold is None and each.structure == self.after for each in mine) or any(
            file.seq == self.seq for file in released
        )

    def windows(self, plans: Iterable[Plan]) -> int | None:
        """Return how many windows the first rows after the DDL took to the target; None if they are not there yet."""
        own = [plan for plan in plans if plan.source == self.shard.source and plan.number >= self.window]
        written = next((plan.number for plan in own if self.is_written_in(plan)), None)
        first = next((plan.number for plan in own if self.is_held_in(plan) or self.is_written_in(plan)), None)
        return None if written is None or first is None else written - first + 1


@dataclass(frozen=True, slots=True)
class WindowRecords:
    """Reads the windows of a task."""

    target: MariaDb
    meta_schema: str
    task: str

    def last(self) -> Windows:
        """Return the last committed window of each source; 0: it has none yet."""
        rows = self._rows("source, `window`", "checkpoint")
        return {str(source): int(str(number)) for source, number in rows}

    def plans(self, after: Windows) -> tuple[Plan, ...]:
        """Return the plans of the committed windows after the given ones, in order."""
        found: list[Plan] = []
        for source, number in after.items():
            more = f"AND state = 'committed' AND source = '{source}' AND number > {number} ORDER BY number"
            plans = [codec.loads(Plan, str(text)) for (text,) in self._rows("plan", "`window`", more)]
            if plans and plans[0].number > number + 1:
                raise DemoFailed(f"the meta tables have no window {number + 1} of source {source} any more")
            found += plans
        return tuple(found)

    def ddls(self, after: Windows) -> Iterator[ReachedDdl]:
        columns = "source, shard_schema, shard_table, seq, `window`, after_digest"
        for source, schema, table, seq, window, digest in self._rows(columns, "shard_ddl"):
            shard = Shard(str(source), TableId(str(schema), str(table)))
            if int(str(window)) > after[shard.source]:
                yield ReachedDdl(shard, int(str(seq)), int(str(window)), str(digest))

    def _rows(self, columns: str, table: str, more: str = "") -> list[tuple[object, ...]]:
        return self.target.run(f"SELECT {columns} FROM {self.meta_schema}.{table} WHERE task = '{self.task}' {more}")


def held_shards(plans: Iterable[Plan]) -> frozenset[Shard]:
    """Return the shards of which windows held rows."""
    return frozenset(
        each.shard for plan in plans for read in plan.reads for each in read.dispositions if each.hold is not None
    )


# --- optimistic mode ---

CANARY = shop.SHARDS[2]
HALF = len(shop.SHARDS) // 2
USUAL_WINDOWS = 2
"""The window that reaches the DDL and the next one."""


@dataclass
class Rollout:
    """The canary and the rollout on the shards of a running task."""

    task: Task
    connections: Connections
    sources: Mapping[str, MariaDb]
    target: MariaDb
    writers: Sequence[shop.ShopWriter]
    wait: Callable[[Callable[[], bool], str], None]
    """Returns when the condition is true; the second argument names it."""
    next_shard: Callable[[], None]
    """Lets some time pass between two shards."""
    halfway: Callable[[Sequence[DifferenceView]], None]
    """Is called with the open differences when half of the shards have the change."""
    figures: list[str] = field(default_factory=list)

    def run(self) -> list[str]:
        """Change the shards; return lines of the summary. Raises DemoFailed if a row waited longer than it may."""
        began = self._records().last()
        self.forth(began)
        self.back()
        self.prove_no_wait(began)
        self.all_shards()
        return self.figures

    def forth(self, began: Windows) -> None:
        """Change the canary only; its new rows reach the target."""
        say(f"canary: {shop.CANARY_DDL.format(table=CANARY.table)}")
        self._change(CANARY, shop.CANARY_DDL)
        taken = self._await_rows(began, 1)
        ((rows, length),) = self.target.run(
            f"SELECT COUNT(*), MAX(LENGTH(customer)) FROM shop.orders WHERE {shop.IN_APP}"
        )
        if not rows or int(str(length)) <= shop.OLD_LENGTH:
            raise DemoFailed(f"the target has {rows} new rows of {CANARY.table}, the longest name has {length} bytes")
        say(f"  its rows with the new column are in the target, after {taken} windows")
        self.figures.append(
            figure("rows of the canary took", taken, f"windows to the target; {USUAL_WINDOWS} are usual")
        )

    def back(self) -> None:
        """Take the canary's change back; the target loses what no shard needs any more."""
        say(f"the canary goes back: {shop.BACK_DDL.format(table=CANARY.table)}")
        began = self._records().last()
        shop.writer_of(self.writers, CANARY).change_back(CANARY)
        self._await_rows(began, 1)
        self.wait(lambda: not self.open(), "the target to go back")
        if found := self.structural_differences():
            raise DemoFailed(f"the target did not go back: {'; '.join(found)}")
        say("  the target has the structure of all shards again")

    def prove_no_wait(self, began: Windows) -> None:
        plans = self._records().plans(began)
        if held := {str(shard.table) for shard in held_shards(plans)} - {CANARY.table}:
            raise DemoFailed(f"rows of {', '.join(sorted(held))} waited for the DDL of {CANARY.table}")
        say(f"  none of the {len(plans)} windows with the canary held a row of another shard")
        self.figures.append(figure("rows of others waited", 0, f"windows, of {len(plans)} with the canary"))

    def all_shards(self) -> None:
        say(f"rollout, one shard after the other: {shop.ROLLOUT_DDL.format(table='<shard>')}")
        began = self._records().last()
        for number, shard in enumerate(shop.SHARDS, 1):
            self._change(shard, shop.ROLLOUT_DDL)
            if number == HALF:
                self.wait(self._is_halfway, f"{HALF} of {len(shop.SHARDS)} shards to be followed")
                self.halfway(self.open())
            else:
                self.next_shard()
        taken = self._await_rows(began, len(shop.SHARDS))
        self.wait(lambda: not self.open(), "the differences to settle")
        say(f"  all shards have it; rows after it took {taken} windows at most")
        self.figures.append(figure("rows in the rollout took", taken, "windows to the target at most"))

    def open(self) -> tuple[DifferenceView, ...]:
        """Return the open differences, as `unshard locks` shows them."""
        with existing_meta(self.task, self.connections) as meta:
            return open_differences(self.task, meta, self.connections) if meta else ()

    def structural_differences(self) -> tuple[str, ...]:
        with contextlib.closing(mysql.connect(self.target.server)) as connection:
            target = read_schema(connection, TableId("shop", "orders"))
        found: dict[str, None] = {}
        for shard in shop.SHARDS:
            with contextlib.closing(mysql.connect(self.sources[shard.source].server)) as connection:
                own = read_schema(connection, TableId(*shard.table.split(".")))
            found |= dict.fromkeys(f"{shard.table}: {text}" for text in shape_differences(own, target))
        return tuple(found)

    def _is_halfway(self) -> bool:
        found = self.open()
        return bool(found) and all(view.state is State.OPEN and len(view.have) == HALF for view in found)

    def _await_rows(self, began: Windows, ddls: int) -> int:
        """Wait until rows after so many DDL are in the target; return how many windows they took at most."""
        records = self._records()

        def taken() -> list[int | None]:
            plans = records.plans(began)
            return [ddl.windows(plans) for ddl in records.ddls(began)]

        self.wait(lambda: len(found := taken()) >= ddls and None not in found, "rows after the DDL to be applied")
        return max(windows for windows in taken() if windows is not None)

    def _records(self) -> WindowRecords:
        return WindowRecords(self.target, self.task.meta_schema, self.task.name)

    def _change(self, shard: shop.DemoShard, ddl: str) -> None:
        shop.writer_of(self.writers, shard).change(shard, ddl, f"{shop.IN_APP}, {shop.LONG_NAME}")


# --- the steps ---

FULL, SYNC, DDL, JOIN = (f"unshard_{kind}__{TASK}" for kind in ("full", "sync", "ddl", "join"))
LOAD_SECONDS, WINDOW_SECONDS, LOCK_SECONDS, CATCH_UP_SECONDS = 1800.0, 1800.0, 1800.0, 1800.0
WINDOWS_BEFORE_DDL = 3
DDL_GAP_SECONDS = 2.0
POLL_SECONDS = 0.5
FIRST_SHARD, OTHER_SHARDS = shop.SHARDS[0], shop.SHARDS[1:]


@dataclass
class Figures:
    """The figures of the summary."""

    loaded_rows: int = 0
    load_seconds: float = 0.0
    of_change: list[str] = field(default_factory=list)
    """Lines about the DDL of the shards."""
    max_held: int = 0
    windows: int = 0
    applied: int = 0
    changes: int = 0
    compared_rows: int = 0
    began: float = field(default_factory=time.monotonic)


@dataclass
class Story:
    """One run of the demo on a stage."""

    stage: DemoStage
    writers: list[shop.ShopWriter]
    meta: Meta
    figures: Figures = field(default_factory=Figures)

    def run(self) -> Figures:
        for writer in self.writers:
            writer.start()
        try:
            self.full_load()
            self.windows()
            self.figures.of_change = self.rollout().run() if self.is_optimistic else self.shard_ddl()
        finally:
            for writer in self.writers:
                writer.stop()
        self.catch_up()
        self.prove()
        self.prove_page()
        return self.figures

    def full_load(self) -> None:
        say("full load: dump and load while the writers continue")
        airflow = self.stage.airflow
        airflow.await_dags(*dags(self.stage.task))
        began = time.monotonic()
        run = airflow.trigger(FULL)
        self.wait(self.is_loaded, LOAD_SECONDS, "the full load", lambda: self.fail_if_red(FULL, run))
        self.figures.load_seconds = time.monotonic() - began
        self.figures.loaded_rows = sum(each.load.rows for each in self.status())
        say(f"  {self.figures.loaded_rows:,} rows loaded in {self.figures.load_seconds:.0f} s")

    def windows(self) -> None:
        say("a live run applies the binlog as it comes, one window after the other")
        self.wait(lambda: self.windows_done() >= WINDOWS_BEFORE_DDL * len(shop.SOURCES), WINDOW_SECONDS, "windows")

    @property
    def is_optimistic(self) -> bool:
        return self.stage.task.shard_mode is ShardMode.OPTIMISTIC

    def rollout(self) -> Rollout:
        stage = self.stage
        return Rollout(
            stage.task,
            stage.connection,
            stage.sources,
            stage.target,
            self.writers,
            lambda done, what: self.wait(done, LOCK_SECONDS, what),
            self.next_shard,
            self.halfway,
        )

    def shard_ddl(self) -> list[str]:
        """Run a DDL on one shard after the other in pessimistic mode; return lines of the summary."""
        ddl = shop.SHARD_DDL.format(table="<shard>")
        say(f"shard DDL, one shard every {DDL_GAP_SECONDS:.0f} s: {ddl}")
        shop.writer_of(self.writers, FIRST_SHARD).change(FIRST_SHARD)
        self.wait(lambda: bool(self.open_locks()), WINDOW_SECONDS, "a DDL lock")
        began, applied = time.monotonic(), self.applied()
        self.wait(lambda: self.applied() > applied, WINDOW_SECONDS, "rows of shards without the DDL to be applied")
        for shard in OTHER_SHARDS:
            self.next_shard()
            shop.writer_of(self.writers, shard).change(shard)
        meanwhile = self.applied() - applied
        self.wait(lambda: not self.open_locks(), LOCK_SECONDS, "the lock to resolve")
        seconds = time.monotonic() - began
        say(f"  lock resolved after {seconds:.0f} s")
        return [
            figure("the DDL lock waited", seconds, "s"),
            figure("meanwhile applied", meanwhile, "changes of shards without the DDL"),
        ]

    def next_shard(self) -> None:
        """Let some time pass between the DDL of two shards."""
        until = time.monotonic() + DDL_GAP_SECONDS
        self.wait(lambda: time.monotonic() >= until, WINDOW_SECONDS, "the next shard")

    def halfway(self, views: Sequence[DifferenceView]) -> None:
        """Print the open differences, and where Airflow shows them."""
        airflow = self.stage.airflow
        say("half of the shards have it; `unshard locks` shows:")
        for view in views:
            self.wait(lambda id=view.id: id in self.followed(), LOCK_SECONDS, f"a run of {JOIN}")  # type: ignore[misc]
            say("\n".join(f"    {line}" for line in difference_lines(view)))
            say(f"    airflow  {airflow.url}/dags/{JOIN}/runs/{view.id}")
        say(f"  all changes by shard: {airflow.url}/unshard/task/{TASK}")

    def followed(self) -> dict[str, str]:
        return {run["dag_run_id"]: run["state"] for run in self.stage.airflow.runs(JOIN)}

    def catch_up(self) -> None:
        say("the writers have stopped; windows catch up")
        self.figures.changes = sum(sum(writer.counts.values()) for writer in self.writers)
        self.wait(self.is_caught_up, CATCH_UP_SECONDS, "catching up")

    def prove(self) -> None:
        say("validate: the union of the eight shards against the target")
        with open_work(self.stage.task, self.stage.connection) as work:
            results = validate(work)
        for result in results:
            if not result.equal:
                raise DemoFailed(f"{result.target} differs from its shards: {result.differences[:5]}")
        self.figures.compared_rows = sum(result.rows_target for result in results)
        expected = sum(self.count(shard) for shard in shop.SHARDS)
        if not results or self.figures.compared_rows != expected:
            raise DemoFailed(f"{self.figures.compared_rows} rows were compared, but the shards have {expected}")
        if self.is_optimistic:
            self.prove_structures()
        self.figures.windows, self.figures.applied = self.windows_done(), self.applied()

    def prove_page(self) -> None:
        """Request the page of the task: it must show what each source has applied."""
        page = self.stage.airflow.page(f"task/{TASK}")
        for each in self.status():
            if f">{each.source}<" not in page or f">{each.rows_applied:,}<" not in page:
                raise DemoFailed(f"the page does not show that {each.source} has applied {each.rows_applied:,} changes")
        say(f"page: {self.stage.airflow.url}/unshard/task/{TASK} shows these changes, too")

    def prove_structures(self) -> None:
        if found := self.rollout().structural_differences():
            raise DemoFailed(f"structures differ: {'; '.join(found)}")
        say("  the structures are equal; Airflow's runs of the differences end")
        self.wait(lambda: not {"queued", "running"} & {*self.followed().values()}, LOCK_SECONDS, f"the runs of {JOIN}")
        if failed := [run for run, state in self.followed().items() if state != "success"]:
            raise DemoFailed(f"runs of {JOIN} failed: {', '.join(failed)}")

    def count(self, shard: shop.DemoShard) -> int:
        ((rows,),) = self.stage.sources[shard.source].run(f"SELECT COUNT(*) FROM {shard.table}")
        return int(str(rows))

    def wait(
        self, done: Callable[[], bool], seconds: float, what: str, check: Callable[[], None] = lambda: None
    ) -> None:
        """Show progress until `done`; raises DemoFailed after `seconds` or when a writer has failed."""
        deadline = time.monotonic() + seconds
        while not done():
            self.show()
            check()
            for writer in self.writers:
                if writer.error:
                    raise DemoFailed(f"a writer failed: {writer.error}")
            if time.monotonic() > deadline:
                raise DemoFailed(f"{what}: not done within {seconds:.0f} s; see {self.stage.airflow.url}")
            time.sleep(POLL_SECONDS)
        self.show()

    def fail_if_red(self, dag: str, run: str) -> None:
        if self.stage.airflow.run(dag, run)["state"] == "failed":
            states = self.stage.airflow.states(dag, run)
            raise DemoFailed(f"{dag} failed: {', '.join(task for task, s in states.items() if s == 'failed')}")

    def show(self) -> None:
        statuses = self.status()
        held = sum(each.rows_held for each in statuses)
        self.figures.max_held = max(self.figures.max_held, held)
        locks = self.open_locks()
        waiting = "" if not locks else f"; lock waits for {len(locks[0].missing)} shards"
        progress(f"{self.picture(statuses)}; {held:,} rows held{waiting}")

    def picture(self, statuses: tuple[SourceStatus, ...]) -> str:
        if any(each.phase is not Phase.SYNC for each in statuses):
            parts = [(each.dump.done, each.load.done, each.dump.chunks) for each in statuses]
            dumped, loaded, chunks = (sum(column) for column in zip(*parts, strict=True))
            return f"dumped {dumped}/{chunks} chunks, loaded {loaded}/{chunks}"
        lag = max((each.lag_seconds or 0) for each in statuses)
        windows, applied = sum(each.windows for each in statuses), sum(each.rows_applied for each in statuses)
        return f"{windows} windows, {applied:,} changes applied, {lag} s behind"

    def status(self) -> tuple[SourceStatus, ...]:
        return status(self.stage.task, self.stage.connection)

    def is_loaded(self) -> bool:
        return all(each.phase is Phase.SYNC for each in self.status())

    def is_caught_up(self) -> bool:
        return not self.open_locks() and all(each.lag_bytes == 0 and not each.rows_held for each in self.status())

    def windows_done(self) -> int:
        return sum(each.windows for each in self.status())

    def applied(self) -> int:
        return sum(each.rows_applied for each in self.status())

    def open_locks(self) -> tuple[LockFacts, ...]:
        return coordinate.facts(self.meta)


def dags(task: Task) -> tuple[str, ...]:
    """Return the DAGs of the demo's task."""
    return (FULL, SYNC, DDL, JOIN) if task.shard_mode is ShardMode.OPTIMISTIC else (FULL, SYNC, DDL)


def perform(stage: DemoStage, changes_per_second: float, rows: int) -> Figures:
    """Run the demo on that stage."""
    writers = shop.writers(stage.sources, changes_per_second)
    for writer in writers:
        writer.rows = rows
    task = stage.task
    meta = Meta(resolve(task.target, stage.connection), task.meta_schema, task.name)
    meta.create_tables()
    with contextlib.closing(meta):
        return Story(stage, writers, meta).run()


def summary(figures: Figures) -> str:
    """Return the last lines of the demo."""
    of_change = "\n".join(figures.of_change)
    return f"""
equal: {TARGET_TABLE} holds exactly the union of its 8 shards
  rows compared            {figures.compared_rows:>10,}
  loaded                   {figures.loaded_rows:>10,} rows in {figures.load_seconds:.0f} s
  changes written upstream {figures.changes:>10,} while all of this ran
  windows                  {figures.windows:>10,} with {figures.applied:,} net changes
{of_change}
  rows held at most        {figures.max_held:>10,}
  everything took          {time.monotonic() - figures.began:>10.0f} s"""
