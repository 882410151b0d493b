"""`unshard run` as its own process, whose JVM is killed: it opens another session and catches up."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.oracle import assert_union
from tests.taskfile import Settings, write_task
from unshard_demo import processes
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.spark]

COMMAND = (sys.executable, "-m", "unshard.cli")
JVM, WORKERS = b"org.apache.spark.deploy.SparkSubmit", b"pyspark.daemon"
SECONDS = 240


def members(leader: int, part: bytes) -> list[int]:
    """Return the processes of a session whose command line contains the bytes."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.getsid(int(entry.name)) == leader:
                found += [int(entry.name)] * (part in (entry / "cmdline").read_bytes())
    return found


def run_with(path: Path, fault: Callable[[int], None]) -> tuple[int, str]:
    """Run the task as its own process, with a fault that is given its process id; return exit code and output."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [*COMMAND, "run", str(path)],
        env=environment,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        fault(process.pid)
        said, _ = process.communicate(timeout=SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said


def kill_jvm_when(part: bytes) -> Callable[[int], None]:
    """Return a fault: the JVM is killed as soon as a process of the run has this command line."""

    def fault(leader: int) -> None:
        processes.await_true(lambda: bool(members(leader, part)), SECONDS, [], "the moment of the kill")
        for pid in members(leader, JVM):
            os.kill(pid, signal.SIGKILL)

    return fault


@pytest.mark.parametrize("moment", [JVM, WORKERS], ids=["opens its session", "uses its session"])
def test_a_run_whose_jvm_is_killed_opens_another_session(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path, moment: bytes
) -> None:
    sources = {"s1": source_1, "s2": source_2}
    for number, server in enumerate(sources.values()):
        server.run(
            f"CREATE DATABASE {unique}",
            f"CREATE TABLE {unique}.t_1 (id INT PRIMARY KEY, v VARCHAR(20))",
            f"INSERT INTO {unique}.t_1 SELECT {1_000_000 * number} + seq, seq FROM mysql.seq_1_to_20000",
        )
    path = write_task(tmp_path, unique, sources, target, {"t": "t_*"}, Settings(spark="local[2]", chunk_rows=2000))
    for _ in ("full load", "window"):
        code, said = run_with(path, kill_jvm_when(moment))
        assert code == 0, said
        assert "Traceback" not in said and "trying again" in said
        for number, server in enumerate(sources.values()):
            server.run(f"UPDATE {unique}.t_1 SET v = 'changed' WHERE id > {1_000_000 * number + 100}")
    code, said = run_with(path, lambda _: None)
    assert code == 0, said
    assert assert_union(sources, {name: [f"{unique}.t_1"] for name in sources}, target, f"{unique}_to.t") == 40_000
