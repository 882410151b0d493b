"""The two ways in which users run a task: Airflow's DAGs (part p), and `unshard run --follow` (part q)."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from tests.bench.cpu import family
from tests.bench.livemerge import LiveMerge, await_true
from tests.e2e.taskinstances import await_run
from tests.running import while_up
from unshard_demo import airflow as demo_airflow
from unshard_demo import processes, sparkserver
from unshard_demo.airflow import Airflow
from unshard_demo.processes import INCLUDE, Program
from unshard_demo.sparkserver import SparkConnect

FULL, SYNC, DDL = (f"unshard_{kind}__merge" for kind in ("full", "sync", "ddl"))
PATIENCE_SECONDS = 600.0
STOP_SECONDS = 60.0
COMMAND = (sys.executable, "-m", "unshard.cli")


class Way(ABC):
    """A way to run the task of a merge."""

    own: ClassVar[str]
    """The place of `pids` whose CPU time is measured by itself."""
    name: ClassVar[str]
    begins: ClassVar[str]
    """When the time of a backlog begins."""

    def __init__(self, merge: LiveMerge) -> None:
        self.merge = merge

    @abstractmethod
    def load(self) -> None:
        """Load the shards; return when the target has their rows."""

    @abstractmethod
    def await_idle(self) -> None:
        """Wait until nothing moves."""

    @abstractmethod
    def rest(self) -> None:
        """Stop the task; return when nothing runs."""

    @abstractmethod
    def go(self) -> None:
        """Let the task go on."""

    @abstractmethod
    def check(self) -> None:
        """Raise if a program has failed."""

    @abstractmethod
    def pids(self) -> Mapping[str, list[int]]:
        """Return the processes that run the task, by place."""

    def counts(self) -> Mapping[str, int]:
        """Return how many rows and files the way has made so far, by name."""
        return {}

    def lock_run_at(self) -> float | None:
        """Return when the DAG run of the first lock was created; None if locks have none."""
        return None


@dataclass(frozen=True, slots=True)
class Database:
    """Airflow's SQLite database, only read."""

    path: Path

    def number(self, query: str) -> int:
        return int(self._first(query))

    def time(self, query: str) -> float | None:
        """Return a time of Airflow, which is in UTC and without a zone."""
        found = self._first(query)
        return None if found is None else datetime.fromisoformat(found).replace(tzinfo=UTC).timestamp()

    def _first(self, query: str):
        with contextlib.closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=30)) as connection:
            ((found,),) = connection.execute(query).fetchall()
        return found


class ThroughAirflow(Way):
    """The DAGs of the task in Airflow with LocalExecutor, and a Spark Connect server as in the demo."""

    own = "airflow"
    name = "CPU of Airflow with its tasks"
    begins = "from `unshard resume`"

    def __init__(self, merge: LiveMerge, airflow: Airflow, connect: SparkConnect) -> None:
        super().__init__(merge)
        self._airflow, self._spark = airflow, connect
        self._database = Database(airflow.folder / "airflow.db")

    def load(self) -> None:
        self._airflow.await_dags(FULL, SYNC, DDL)
        run = self._airflow.trigger(FULL)
        if await_run(self._airflow, FULL, run, PATIENCE_SECONDS) != "success":
            raise SystemExit(f"{FULL} has failed: {self._airflow.states(FULL, run)}")

    def await_idle(self) -> None:
        unfinished = (
            "SELECT (SELECT COUNT(*) FROM dag_run WHERE end_date IS NULL) + (SELECT COUNT(*) FROM asset_dag_run_queue)"
        )
        await_true(lambda: not self._database.number(unfinished), PATIENCE_SECONDS, "no DAG run", self.check, 0.2)

    def rest(self) -> None:
        self._command("pause")
        self.await_idle()

    def go(self) -> None:
        self._command("resume")

    def check(self) -> None:
        for program in (*self._airflow.programs, self._spark.program):
            _check(program)

    def pids(self) -> Mapping[str, list[int]]:
        programs = self._airflow.programs
        own = {pid for program in programs for pid in (*family(program.pid), *program.members())}
        return {self.own: sorted(own), "spark": self._spark.program.members()}

    def counts(self) -> Mapping[str, int]:
        return {
            "DAG runs": self._database.number("SELECT COUNT(*) FROM dag_run"),
            "task instances": self._database.number("SELECT COUNT(*) FROM task_instance"),
            "log files": sum(len(files) for _, _, files in os.walk(self._airflow.folder / "logs")),
            "bytes of Airflow's database": self._database.path.stat().st_size,
        }

    def lock_run_at(self) -> float | None:
        return self._database.time(f"SELECT MIN(queued_at) FROM dag_run WHERE dag_id = '{DDL}'")

    def _command(self, name: str) -> None:
        subprocess.run([*COMMAND, name, str(self.merge.task)], env=environment(), check=True, capture_output=True)


class ThroughCommand(Way):
    """`unshard run --follow`, with the Spark that it starts itself."""

    own = "command"
    name = "CPU of the command without Spark"
    begins = "from the start"

    def __init__(self, merge: LiveMerge) -> None:
        super().__init__(merge)
        self._log = merge.folder / "run.log"
        self._program: Program | None = None

    def load(self) -> None:
        self.go()
        self.merge.await_equal(PATIENCE_SECONDS, self.check)
        self.merge.write(len(self.merge.sources))  # when these rows come through, the command follows
        self.merge.await_equal(PATIENCE_SECONDS, self.check)

    def await_idle(self) -> None:
        pass

    def rest(self) -> None:
        program, self._program = self._running, None
        os.kill(program.pid, signal.SIGTERM)
        await_true(lambda: not program.is_running, STOP_SECONDS, "the end of the command", lambda: None)
        if "followed in " not in program.tail():
            raise SystemExit(f"unshard run --follow has failed:\n{program.tail()}")

    def go(self) -> None:
        command = [*COMMAND, "run", str(self.merge.task), "--follow"]
        self._program = processes.start_program("unshard run --follow", command, environment(), self._log)

    def check(self) -> None:
        _check(self._running)

    def stop(self) -> None:
        """End the command if it still runs."""
        if self._program is not None:
            processes.stop_program(self._program)

    def pids(self) -> Mapping[str, list[int]]:
        pid = self._running.pid
        return {self.own: [pid], "spark": [each for each in family(pid) if each != pid]}

    @property
    def _running(self) -> Program:
        if self._program is None:
            raise SystemExit("unshard run --follow does not run")
        return self._program


@contextlib.contextmanager
def through_airflow(merge: LiveMerge) -> Iterator[Way]:
    """Start Airflow and Spark side by side."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        prepared = pool.submit(demo_airflow.prepare_airflow, merge.folder / "airflow", merge.tasks)
        connect = stack.enter_context(while_up(sparkserver.start_spark(merge.folder / "spark")))
        merge.write_task(spark_connection=connect.url)
        prepared.result()
        airflow = stack.enter_context(while_up(demo_airflow.start_airflow(merge.folder / "airflow", merge.tasks)))
        yield ThroughAirflow(merge, airflow, connect)


@contextlib.contextmanager
def through_command(merge: LiveMerge) -> Iterator[Way]:
    """Write the task file; the command starts with the load."""
    merge.write_task()
    way = ThroughCommand(merge)
    try:
        yield way
    finally:
        way.stop()


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(INCLUDE)}


def _check(program: Program) -> None:
    if not program.is_running:
        raise SystemExit(f"{program.name} has ended, see {program.log}:\n{program.tail()}")
