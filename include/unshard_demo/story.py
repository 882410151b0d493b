"""The demo's steps: full load, windows, a shard DDL under write load, and the final comparison.

Each step waits for a state that it reads, never for a fixed time. Any failure ends the demo with an exit code other
than 0.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from unshard.adapters.meta import Meta
from unshard.config import resolve
from unshard.core.task.state import Phase
from unshard.units.ddl import coordinate
from unshard.units.task.status import SourceStatus, status
from unshard.units.validate.validate import validate
from unshard.units.work import open_work
from unshard_demo import shop
from unshard_demo.stage import TARGET_TABLE, TASK, Stage

FULL, SYNC, DDL = (f"unshard_{kind}__{TASK}" for kind in ("full", "sync", "ddl"))
LOAD_SECONDS, WINDOW_SECONDS, LOCK_SECONDS, CATCH_UP_SECONDS = 600.0, 600.0, 600.0, 600.0
WINDOWS_BEFORE_DDL = 3
DDL_GAP_SECONDS = 2.0
POLL_SECONDS = 0.5
FIRST_SHARD, OTHER_SHARDS = shop.SHARDS[0], shop.SHARDS[1:]


class DemoFailed(Exception):
    """A step failed; the message gives the reason."""


@dataclass
class Figures:
    """The figures of the summary."""

    loaded_rows: int = 0
    load_seconds: float = 0.0
    lock_seconds: float = 0.0
    applied_meanwhile: int = 0
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
            self.shard_ddl()
        finally:
            for writer in self.writers:
                writer.stop()
        self.catch_up()
        self.prove()
        return self.figures

    def full_load(self) -> None:
        say("full load: dump and load while the writers continue")
        airflow = self.stage.airflow
        airflow.await_dags(FULL, SYNC, DDL)
        began = time.monotonic()
        run = airflow.trigger(FULL)
        self.wait(self.is_loaded, LOAD_SECONDS, "the full load", lambda: self.fail_if_red(FULL, run))
        self.figures.load_seconds = time.monotonic() - began
        self.figures.loaded_rows = sum(each.load.rows for each in self.status())
        say(f"  {self.figures.loaded_rows:,} rows loaded in {self.figures.load_seconds:.0f} s")

    def windows(self) -> None:
        say("windows: each applies the new part of the binlog, and the next starts at once")
        self.wait(lambda: self.windows_done() >= WINDOWS_BEFORE_DDL * len(shop.SOURCES), WINDOW_SECONDS, "windows")

    def shard_ddl(self) -> None:
        ddl = shop.SHARD_DDL.format(table="<shard>")
        say(f"shard DDL, one shard every {DDL_GAP_SECONDS:.0f} s: {ddl}")
        shop.migrate_shard(self.stage.sources, FIRST_SHARD)
        self.wait(lambda: bool(self.open_locks()), WINDOW_SECONDS, "a DDL lock")
        began, applied = time.monotonic(), self.applied()
        self.wait(lambda: self.applied() > applied, WINDOW_SECONDS, "rows of shards without the DDL to be applied")
        for shard in OTHER_SHARDS:
            deadline = time.monotonic() + DDL_GAP_SECONDS
            self.wait(lambda until=deadline: time.monotonic() >= until, WINDOW_SECONDS, "the next shard")  # type: ignore[misc]
            shop.migrate_shard(self.stage.sources, shard)
        self.figures.applied_meanwhile = self.applied() - applied
        self.wait(lambda: not self.open_locks(), LOCK_SECONDS, "the lock to resolve")
        self.figures.lock_seconds = time.monotonic() - began
        say(f"  lock resolved after {self.figures.lock_seconds:.0f} s")

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
        self.figures.windows, self.figures.applied = self.windows_done(), self.applied()

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

    def open_locks(self) -> tuple[coordinate.LockView, ...]:
        return coordinate.views(self.meta)


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
    return f"""
equal: {TARGET_TABLE} holds exactly the union of its 8 shards
  rows compared            {figures.compared_rows:>10,}
  loaded                   {figures.loaded_rows:>10,} rows in {figures.load_seconds:.0f} s
  changes written upstream {figures.changes:>10,} while all of this ran
  windows                  {figures.windows:>10,} with {figures.applied:,} net changes
  the DDL lock waited      {figures.lock_seconds:>10.0f} s
  meanwhile applied        {figures.applied_meanwhile:>10,} changes of shards without the DDL
  rows held at most        {figures.max_held:>10,}
  everything took          {time.monotonic() - figures.began:>10.0f} s"""


def say(text: str) -> None:
    """Print a separate line."""
    progress.end()
    print(text, flush=True)


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
