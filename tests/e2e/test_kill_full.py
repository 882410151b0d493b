"""Kill -9 of `unshard run` during dump and load, alone or with its Spark: the next run continues where it was."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import unshard
from tests.oracle import assert_union
from tests.suite.portions import portion
from tests.taskfile import Settings, write_task
from unshard.adapters.meta import Meta
from unshard.core.task.state import ChunkState
from unshard.errors import UnshardError
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration, pytest.mark.slow]
ROUNDS = portion(0, 1, 4)
ROWS = portion(0, 20_000, 200_000)
SECONDS = 1800.0
RUN = (sys.executable, "-c", "import sys; from unshard.cli import main; sys.exit(main())", "run")
WORTH = {ChunkState.PLANNED: 0, ChunkState.DUMPED: 1, ChunkState.LOADED: 2}
KEYED = "id INT PRIMARY KEY, k INT, c CHAR(120)"


def start(task: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(unshard.__file__).parents[1])}
    with (task.parent / "output").open("ab") as output:
        return subprocess.Popen(
            [*RUN, str(task)],
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def progress(meta: Meta) -> int:
    try:
        return sum(WORTH[chunk.state] for chunk in meta.chunks.of("s1"))
    except UnshardError:
        return 0


def test_a_killed_full_load_ends_in_the_union(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> None:
    rows = 80_000 if "TiDB" in target.run("SELECT VERSION()")[0][0] else ROWS
    source_1.run(
        f"CREATE DATABASE {unique}",
        f"CREATE TABLE {unique}.t_1 ({KEYED})",
        f"CREATE TABLE {unique}.log_1 (v INT)",
        f"INSERT INTO {unique}.t_1 SELECT seq, seq % 7, REPEAT(MD5(seq), 3) FROM mysql.seq_1_to_{rows}",
        f"INSERT INTO {unique}.log_1 SELECT seq % 100 FROM mysql.seq_1_to_50000",
    )
    # As many chunks on both targets, so that the load never ends before the last kill.
    settings = Settings(chunk_rows=rows // 40)
    task = write_task(tmp_path, unique, {"s1": source_1}, target, {"t": "t_*", "log": "log_*"}, settings)
    meta, chance, before = Meta(target.server, f"{unique}_meta", "full"), random.Random(5), 0
    for number in range(ROUNDS):
        process = start(task)
        goal = before + chance.randint(1, 12)

        def is_due(process: subprocess.Popen[bytes] = process, goal: int = goal) -> bool:
            return process.poll() is not None or progress(meta) >= goal

        await_true(is_due, SECONDS, [], f"{goal} steps of the full load")
        # If only the process is killed, its JVM notices and ends; with its group, everything ends at once.
        (os.killpg if number % 2 else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
        assert progress(meta) >= goal, f"progress has fallen back, or the run has failed, see {tmp_path / 'output'}"
        before = progress(meta)
    assert start(task).wait(SECONDS) == 0, (tmp_path / "output").read_text()
    named = {"s1": source_1}
    assert assert_union(named, {"s1": [f"{unique}.t_1"]}, target, f"{unique}_to.t") == rows
    assert assert_union(named, {"s1": [f"{unique}.log_1"]}, target, f"{unique}_to.log") == 50_000
    assert not list((tmp_path / "storage/full/dump").rglob("*.parquet"))
