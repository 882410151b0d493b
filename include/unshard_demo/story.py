"""The demo's steps: full load, windows, a DDL on all shards under write load, and the final comparison.

In pessimistic mode the DDL has a lock. In optimistic mode it begins with a canary (unshard_demo.rollout).

Each step waits for a state that it reads, never for a fixed time. Any failure ends the demo with an exit code other
than 0.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from unshard.adapters.meta import Meta
from unshard.config import ShardMode, Task, resolve
from unshard.core.task.state import Phase
from unshard.operate.documents import difference_lines
from unshard.units.ddl import coordinate
from unshard.units.ddl.differences import DifferenceView
from unshard.units.ddl.scene import LockFacts
from unshard.units.task.status import SourceStatus, status
from unshard.units.validate.validate import validate
from unshard.units.work import open_work
from unshard_demo import shop
from unshard_demo.output import DemoFailed, figure, progress, say
from unshard_demo.rollout import Rollout
from unshard_demo.stage import TARGET_TABLE, TASK, Stage

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

    stage: Stage
    writers: list[shop.Writer]
    meta: Meta
    figures: Figures = field(default_factory=Figures)

    def run(self) -> Figures:
        """Run all steps; raises DemoFailed if one fails."""
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
        """Return the change of the shards in optimistic mode."""
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
        """Return the state of each run of Airflow that follows a difference."""
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

    def prove_structures(self) -> None:
        """Compare the structures, and wait until Airflow's runs have followed all differences to their end."""
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


def perform(stage: Stage, changes_per_second: float, rows: int) -> Figures:
    """Run the demo on that stage."""
    writers = shop.writers(stage.sources, changes_per_second)
    for writer in writers:
        writer.rows = rows
    task = stage.task
    meta = Meta(resolve(task.target, stage.connection), task.meta_schema, task.name)
    meta.migrate()
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
