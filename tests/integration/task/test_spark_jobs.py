"""The jobs as spark-submit runs them: by path, with our package on PYTHONPATH only."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.taskfile import Settings, write_task
from unshard.config import load_task
from unshard.units.full.snapshot import take_snapshot
from unshard.units.work import open_work
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.spark]
ROOT = Path(__file__).parents[3]


def submit(folder: Path, job: str, task: Path, source: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "include"),
        "PYSPARK_PYTHON": sys.executable,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = [
        Path(pyspark.__file__).parent / "bin/spark-submit",
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
        "--conf",
        "spark.driver.host=127.0.0.1",
        "--conf",
        "spark.driver.bindAddress=127.0.0.1",
        ROOT / "spark_jobs" / job,
        "--task",
        task,
        "--source",
        source,
    ]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.test_all("each job starts a JVM; other tests run the same functions in a session")
def test_dump_and_load_are_submitted(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> None:
    source_1.run(
        f"CREATE DATABASE {unique}",
        f"CREATE TABLE {unique}.t_1 (id INT PRIMARY KEY)",
        f"INSERT INTO {unique}.t_1 SELECT seq FROM mysql.seq_1_to_3000",
    )
    # The session is the one that spark-submit made: the task's own connection leads nowhere.
    settings = Settings(spark="sc://127.0.0.1:1")
    task = write_task(tmp_path, unique, {"s1": source_1}, target, {"t": "t_*"}, settings)
    refused = submit(tmp_path, "dump_table.py", task, "s1")
    assert refused.returncode == 1
    # spark-submit sends all that Python says to its standard output.
    assert refused.stdout.startswith("[US-2202] source s1 has no snapshot yet (run the task's snapshot step")
    with open_work(load_task(task)) as work:
        take_snapshot(work, "s1")
    dumped = submit(tmp_path, "dump_table.py", task, "s1")
    assert dumped.stdout.startswith("source=s1 chunks=4 rows=3000 bytes="), dumped.stderr
    loaded = submit(tmp_path, "load_table.py", task, "s1")
    assert loaded.stdout == "source=s1 chunks=4 rows=3000\n", loaded.stderr
    assert target.run(f"SELECT COUNT(*) FROM {unique}_to.t") == [(3000,)]
    assert {path.name for path in tmp_path.iterdir()} == {"full.yaml", "sources", "storage"}
