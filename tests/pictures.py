"""Makes the pictures of the docs from a demo under load: `make docs-images`.

It takes some minutes. Each picture waits for the state that it shows.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.e2e.browser import Browser, browsing
from tests.e2e.scheduler.waiting import log_in
from tests.e2e.taskinstances import await_run
from unshard.adapters.meta import Meta
from unshard.config import resolve
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockView
from unshard_demo import shop
from unshard_demo.stage import TASK, DemoStage, StageOptions, running_stage
from unshard_demo.story import DDL, FULL, SYNC

IMAGES = Path(__file__).parents[1] / "docs/images"
SECONDS = 1800.0
CHANGES_PER_SECOND = 60.0
SAMPLES = 10
"""Samples of both sources in the charts."""
OTHER_DDL = shop.SHARD_DDL.replace("VARCHAR(20)", "VARCHAR(30)")
COLLISION = "INSERT INTO {table} (id, customer, amount, created_at) VALUES ({id}, 'customer 7', 9.5, NOW(3))"
FIRST_THREE, OTHER, CONFLICTING, COLLIDING = shop.SHARDS[:3], shop.SHARDS[3], shop.SHARDS[4], shop.SHARDS[7]


class Pictures:
    """A demo and a browser at its Airflow."""

    def __init__(self, stage: DemoStage, writers: list[shop.ShopWriter], meta: Meta, browser: Browser) -> None:
        self.stage, self.writers, self.meta, self.browser = stage, writers, meta, browser
        self.airflow = stage.airflow

    def take(self) -> None:
        """Take all pictures, in the order of a task's life."""
        log_in(self.browser, self.airflow, "admin")
        self.full_load()
        self.live_run()
        self.lock()
        self.conflict()
        self.suspended_target()

    def full_load(self) -> None:
        self.airflow.await_dags(FULL, SYNC, DDL)
        run = self.airflow.trigger(FULL)
        if await_run(self.airflow, FULL, run, SECONDS) != "success":
            raise SystemExit(f"{FULL} has failed")
        self.picture("full", f"/dags/{FULL}/runs/{run}", "a", "handover")

    def live_run(self) -> None:
        self.wait(lambda: self.running_task(SYNC, "follow") and self.applied() > 0, "a live run")
        run = self.running_task(SYNC, "follow")
        self.picture("sync", f"/dags/{SYNC}/runs/{run}", "a", "follow")

    def lock(self) -> None:
        """Run the DDL on three of the eight shards."""
        for shard in FIRST_THREE:
            shop.writer_of(self.writers, shard).change(shard)
        self.wait(lambda: [len(view.ready) for view in self.locks()] == [3], "a lock with three shards")
        lock = self.locks()[0].id
        self.wait(lambda: self.state(lock) == "deferred", "a lock that waits")
        self.picture("lock", f"/dags/{DDL}/runs/{lock}", "a", "wait_for_shards")
        self.picture("wait", f"/dags/{DDL}/runs/{lock}/tasks/wait_for_shards", "text=missing=")

    def conflict(self) -> None:
        """Run another DDL on a fourth shard, then look at the page and at a dry run."""
        self.stage.sources[CONFLICTING.source].run(OTHER_DDL.format(table=CONFLICTING.table))
        self.wait(lambda: [view.state for view in self.locks()] == ["conflict"], "a conflict")
        lock = self.locks()[0].id
        self.open_page(".tabs a", "Changes")
        self.shoot("page-changes", "td.cell.waits")
        self.browser.click(".tabs a", "Overview")
        self.browser.click("#locks a", lock)
        self.shoot("page-lock", "#arrivals")
        self.browser.page.emulate_media(color_scheme="dark")
        self.browser.click("#unlock button")
        self.shoot("page-command-dark", "#confirm button")
        self.browser.page.emulate_media(color_scheme="light")

    def suspended_target(self) -> None:
        """Insert a row that another shard has."""
        ((taken,),) = self.stage.sources[OTHER.source].run(f"SELECT MIN(id) FROM {OTHER.table}")
        self.stage.sources[COLLIDING.source].run(COLLISION.format(table=COLLIDING.table, id=taken))
        self.wait(self.meta.suspended_targets.all, "a suspended target")
        self.wait(lambda: len(self.meta.windows.samples(60, 1)) > SAMPLES, "some minutes of charts")
        self.open_page()
        self.browser.await_element("#stops")
        self.shoot("page-task", "[aria-label^='Throughput, last hour: at most'] canvas")

    # --- steps

    def wait(self, is_true: Callable[[], object], what: str) -> None:
        self.airflow.await_true(is_true, SECONDS, what)

    def locks(self) -> list[LockView]:
        return [view for view in coordinate.views(self.meta) if view.is_open]

    def applied(self) -> int:
        found = [self.meta.checkpoints.get(source) for source in shop.SOURCES]
        return sum(each.rows_applied for each in found if each)

    def running_task(self, dag: str, task: str) -> str:
        """Return the run whose tasks of that name are all running; empty if there is none."""
        run = str(self.airflow.runs(dag)[-1]["dag_run_id"]) if self.airflow.runs(dag) else ""
        states = self.airflow.states(dag, run) if run else {}
        found = {state for name, state in states.items() if name.partition("[")[0] == task}
        return run if found == {"running"} else ""

    def state(self, lock: str) -> str | None:
        known = {run["dag_run_id"] for run in self.airflow.runs(DDL)}
        return self.airflow.states(DDL, lock).get("wait_for_shards") if lock in known else None

    def picture(self, name: str, path: str, selector: str, text: str = "") -> None:
        """Take a picture of a page of Airflow when it shows an element with this text."""
        self.browser.go(self.airflow.url + path)
        self.shoot(name, selector, text)

    def open_page(self, *further: str) -> None:
        """Open the page of the task, then click a link there."""
        self.browser.go(f"{self.airflow.url}/plugin/unshard")  # its link does nothing while the page is open
        self.browser.click("#tasks a", TASK)
        if further:
            self.browser.click(*further)

    def shoot(self, name: str, selector: str, text: str = "") -> None:
        self.browser.await_element(selector, text)
        self.browser.page.wait_for_load_state("networkidle")
        self.browser.page.screenshot(path=IMAGES / f"{name}.png")
        print(IMAGES / f"{name}.png", flush=True)


@contextmanager
def writing(stage: DemoStage) -> Iterator[list[shop.ShopWriter]]:
    """Write into all shards during the block."""
    writers = shop.writers(stage.sources, CHANGES_PER_SECOND)
    for writer in writers:
        writer.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.stop()


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as folder, running_stage(Path(folder) / "demo", StageOptions()) as stage:
        task = stage.task
        meta = Meta(resolve(task.target, stage.connection), task.meta_schema, task.name)
        with closing(meta), writing(stage) as writers, browsing(Path(folder)) as browser:
            browser.page.set_viewport_size({"width": 1400, "height": 860})
            Pictures(stage, writers, meta, browser).take()


if __name__ == "__main__":
    main()
