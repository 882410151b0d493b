"""Full load, windows, held rows and their release on a real standalone cluster: a master and two workers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.oracle import assert_union
from tests.sparkcluster import SparkCluster, running_cluster
from tests.taskfile import Settings, write_task
from unshard.config import load_task
from unshard.units.task.run import RunOutcome, run
from unshard.units.work import Limits, Work, open_work
from unshard_demo.servers import MariaDb

ALL = pytest.mark.test_all("the jobs are the same at every master")
pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, ALL]

WIDE = "REPEAT(CHAR(65 + {} % 26), 600)"
"""Large enough that several tasks read the window and shuffle it to the appliers."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with running_cluster(tmp_path / "cluster") as started:
        yield started


def caught_up(work: Work) -> RunOutcome:
    outcome = run(work)
    assert not outcome.errors
    return outcome


def test_a_cluster_does_what_a_local_session_does(
    source_1: MariaDb,
    source_2: MariaDb,
    target: MariaDb,
    unique: str,
    tmp_path: Path,
    cluster: SparkCluster,
) -> None:
    sources = {"s1": source_1, "s2": source_2}
    shards = {name: [f"{unique}.t_1", f"{unique}.t_2"] for name in sources}
    for number, server in enumerate(sources.values()):
        server.run(f"CREATE DATABASE {unique}")
        for shard in (1, 2):
            first = 1_000_000 * (2 * number + shard)
            table = f"{unique}.t_{shard}"
            server.run(
                f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(700))",
                f"INSERT INTO {table} SELECT {first} + seq, seq FROM mysql.seq_1_to_3000",
            )
    path = write_task(tmp_path, unique, sources, target, {"t": "t_*"}, Settings(spark=cluster.url))
    with open_work(load_task(path)) as opened:
        work = replace(opened, limits=Limits(small_bytes=1 << 20, alone_bytes=1 << 20, worker_bytes=1 << 20))
        caught_up(work)
        assert assert_union(sources, shards, target, f"{unique}_to.t") == 12_000

        for server in sources.values():
            for shard in (1, 2):
                table = f"{unique}.t_{shard}"
                server.run(f"UPDATE {table} SET v = {WIDE.format('id')}", f"DELETE FROM {table} WHERE id % 7 = 0")
        source_1.run(
            f"ALTER TABLE {unique}.t_1 ADD c INT NOT NULL DEFAULT 7", f"INSERT INTO {unique}.t_1 VALUES (5, 'held', 8)"
        )
        waiting = caught_up(work)
        assert (waiting.exit_code, sum(source.rows_held for source in waiting.sources)) == (3, 1)
        assert sum(source.rows_applied for source in waiting.sources) > 10_000

        source_1.run(f"ALTER TABLE {unique}.t_2 ADD c INT NOT NULL DEFAULT 7")
        source_2.run(*(f"ALTER TABLE {table} ADD c INT NOT NULL DEFAULT 7" for table in shards["s2"]))
        done = caught_up(work)
        assert (done.exit_code, sum(source.rows_released for source in done.sources)) == (0, 1)
        assert_union(sources, shards, target, f"{unique}_to.t")
        assert not work.storage.list("held")
    assert all(cluster.executors()), "both workers had a part"
