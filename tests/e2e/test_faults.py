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

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.mariadb_only("a death of Spark, not of a target; the moment of one is read from InnoDB"),
]

COMMAND = (sys.executable, "-m", "unshard.cli")
JVM, WORKERS = b"org.apache.spark.deploy.SparkSubmit", b"pyspark.daemon"
WAITING = "SELECT COUNT(*) > 0 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
SECONDS = 1800
"""The longest time of a run, which takes an idle machine half a minute."""
ROWS = 4000
"""Rows of a shard."""
PAUSE = 0.15
"""InnoDB refreshes its tables of transactions only if they were not read for 0.1 s."""
Run = subprocess.Popen[bytes]


def members(run: Run, part: bytes) -> list[int]:
    """Return the processes of the session of a run whose command line contains the bytes."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.getsid(int(entry.name)) == run.pid:
                found += [int(entry.name)] * (part in (entry / "cmdline").read_bytes())
    return found


def kill_jvm(run: Run, is_due: Callable[[], bool], what: str) -> None:
    """Kill the JVM of the run at the moment, and wait until it has gone."""
    processes.await_true(lambda: is_due() or run.poll() is not None, SECONDS, [], what, PAUSE)
    jvms = members(run, JVM)
    for pid in jvms:
        with contextlib.suppress(ProcessLookupError):  # the script that starts a JVM has children, which end with it
            os.kill(pid, signal.SIGKILL)
    processes.await_true(lambda: not {*jvms} & {*members(run, JVM)}, SECONDS, [], "the end of a killed JVM")


def kill_as_it_opens(run: Run) -> None:
    """Kill the JVM or the script that starts it, as soon as it exists."""
    kill_jvm(run, lambda: bool(members(run, JVM)), "a JVM")


def kill_in_use(run: Run) -> None:
    """Kill the JVM as soon as it has Python workers."""
    kill_jvm(run, lambda: bool(members(run, WORKERS)), "Python workers")


def kill_as_it_writes(run: Run, server: MariaDb, table: str) -> None:
    """Kill the JVM while a worker waits for the locks of all rows of the table."""
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT COUNT(*) FROM {table} FOR UPDATE")
        kill_jvm(run, lambda: server.run(WAITING) == [(1,)], "a worker that waits for rows")


def run_with(path: Path, *faults: Callable[[Run], None]) -> str:
    """Run the task as its own process with these faults, one after the other; it must succeed. Return its output."""
    log = path.with_name("output")
    with log.open("wb") as output:
        run = subprocess.Popen(
            [*COMMAND, "run", str(path)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
            stdout=output,
            stderr=output,
        )
    try:
        for fault in faults:
            fault(run)
        processes.await_true(lambda: run.poll() is not None, SECONDS, [], f"the end of the run, see {log}")
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    assert run.returncode == 0, log.read_text()
    return log.read_text()


@pytest.mark.test_all(
    "starts three JVMs; tests/integration/task/test_spark.py kills one, unit tests choose the next session"
)
@pytest.mark.parametrize("step", ["full load", "window"])
def test_a_run_whose_jvm_is_killed_opens_another_session(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path, step: str
) -> None:
    """The first JVM is killed while the session opens, the second while jobs run in it."""
    sources, table = {"s1": source_1, "s2": source_2}, f"{unique}_to.t"
    for number, server in enumerate(sources.values()):
        server.run(
            f"CREATE DATABASE {unique}",
            f"CREATE TABLE {unique}.t_1 (id INT PRIMARY KEY, v VARCHAR(2000))",
            f"INSERT INTO {unique}.t_1 SELECT {1_000_000 * number} + seq, seq FROM mysql.seq_1_to_{ROWS}",
        )
    path = write_task(tmp_path, unique, sources, target, {"t": "t_*"}, Settings(spark="local[2]", chunk_rows=ROWS // 2))
    if step == "full load":
        said = run_with(path, kill_as_it_opens, kill_in_use)
    else:
        run_with(path)
        for server in sources.values():
            # More than 4 MiB: the process would run a smaller window itself.
            server.run(f"UPDATE {unique}.t_1 SET v = REPEAT('changed', 200) WHERE id % 100")
        said = run_with(path, kill_as_it_opens, lambda run: kill_as_it_writes(run, target, table))
    assert "Traceback" not in said and said.count("trying again") >= 2, said
    assert assert_union(sources, {name: [f"{unique}.t_1"] for name in sources}, target, table) == 2 * ROWS
