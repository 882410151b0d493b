"""The rollout of `make demo MODE=optimistic` on real servers, without Airflow: the same steps and the same proofs."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.localspark import LocalSpark
from tests.oracle import assert_union
from unshard.config import load_task
from unshard.units.ddl.differences import DifferenceView
from unshard.units.task.run import run
from unshard.units.work import open_work
from unshard_demo import shop, stage
from unshard_demo.servers import MariaDb
from unshard_demo.story import Rollout

pytestmark = [
    pytest.mark.integration,
    pytest.mark.on_tidb,
    pytest.mark.test_all("a rollout in Airflow is one of the tests with a scheduler"),
]

SCHEMAS = sorted({shard.table.partition(".")[0] for shard in shop.SHARDS})
RUNS = 20
"""More runs of the task than any step of the story needs."""


class Shop:
    """The demo's shop and its task, which runs in this process."""

    def __init__(self, folder: Path, sources: Sequence[MariaDb], target: MariaDb) -> None:
        self.sources = dict(zip(shop.SOURCES, sources, strict=True))
        self.target = target
        self.connections: dict[str, dict[str, Any]] = {
            name.replace("-", "_"): stage.connection_of(server)
            for name, server in {**self.sources, "warehouse": target}.items()
        }
        stage.write_tasks(folder, "optimistic")
        self.task = load_task(folder / "tasks" / f"{stage.TASK}.yaml")
        self.writers = shop.writers(self.sources, 100)
        for writer in self.writers:
            writer.rows = 60
        self.shown: list[DifferenceView] = []

    def run(self) -> None:
        with open_work(self.task, self.connections.__getitem__) as work:
            local = dataclasses.replace(work, spark=LocalSpark, bulk_spark=LocalSpark)
            outcome = run(local, connections=self.connections.__getitem__)
        assert not outcome.errors, [str(trouble.error) for trouble in outcome.errors]

    def wait(self, done: Callable[[], bool], what: str) -> None:
        for _ in range(RUNS):
            if done():
                return
            self.run()
        pytest.fail(f"{what}: not done after {RUNS} runs")

    def rollout(self) -> Rollout:
        reached = self.task, self.connections.__getitem__, self.sources, self.target
        return Rollout(*reached, self.writers, self.wait, self.run, self.shown.extend)


@pytest.fixture
def sharded(source_1: MariaDb, source_2: MariaDb, target: MariaDb, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path, (source_1, source_2), target)
    shop.create_shards(made.sources, 60)
    try:
        yield made
    finally:
        for server in (source_1, source_2, target):
            schemas = [*SCHEMAS, "shop", made.task.meta_schema]
            server.run("DO 1", *(f"DROP DATABASE IF EXISTS {schema}" for schema in schemas))


@contextlib.contextmanager
def load(writers: Sequence[shop.ShopWriter]) -> Iterator[None]:
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.stop()


def test_a_canary_goes_forth_and_back_then_all_shards_follow(sharded: Shop) -> None:
    sharded.run()
    rollout = sharded.rollout()
    with load(sharded.writers):
        lines = rollout.run()
    sharded.run()
    assert {view.subject for view in sharded.shown} == {"column channel", "column customer"}
    assert {view.progress for view in sharded.shown} == {"open (4 of 8 shards)"}
    assert rollout.open() == () and rollout.structural_differences() == ()
    shards = {source: [shard.table for shard in shop.SHARDS if shard.source == source] for source in shop.SOURCES}
    assert assert_union(sharded.sources, shards, sharded.target, stage.TARGET_TABLE) > 8 * 40
    assert len(lines) == 3 and all("windows" in line for line in lines)
    values = sharded.target.run(f"SELECT DISTINCT channel FROM {stage.TARGET_TABLE} ORDER BY channel")
    assert values == [("app",), ("shop",)]  # nothing is left of the canary's default
