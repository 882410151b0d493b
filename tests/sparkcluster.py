"""A standalone Spark cluster: a master and workers of one core each.

The executors get our package only from the session, as on the machines of a real cluster.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unshard_demo import processes, sparkserver
from unshard_demo.processes import Program
from unshard_demo.servers import free_port

REGISTERED = "Registering worker"


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A running cluster."""

    port: int
    folder: Path
    master: Program
    workers: tuple[Program, ...]

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def executors(self) -> tuple[int, ...]:
        return tuple(len(list((self.folder / worker.name).glob("app-*/*"))) for worker in self.workers)

    def stop(self) -> None:
        """Stop the workers with their executors, then the master."""
        for program in (*self.workers, self.master):
            processes.stop_program(program)


@contextlib.contextmanager
def running_cluster(folder: Path, workers: int = 2, memory: str = "1g") -> Iterator[SparkCluster]:
    """Run a master and workers of one core each for the block; their files are below `folder`."""
    cluster = _start(folder, workers, memory)
    try:
        programs = [cluster.master, *cluster.workers]
        processes.await_true(
            lambda: _registered(cluster) >= workers, sparkserver.START_SECONDS, programs, "workers are registered"
        )
        yield cluster
    finally:
        cluster.stop()


def _start(folder: Path, workers: int, memory: str) -> SparkCluster:
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    master = _daemon(folder, "master", "org.apache.spark.deploy.master.Master", "--port", str(port))
    started = tuple(
        _daemon(
            folder,
            name,
            "org.apache.spark.deploy.worker.Worker",
            "--port",
            "0",
            "--cores",
            "1",
            "--memory",
            memory,
            "--work-dir",
            str(folder / name),
            f"spark://127.0.0.1:{port}",
        )
        for name in (f"worker-{number}" for number in range(1, workers + 1))
    )
    return SparkCluster(port, folder, master, started)


def _daemon(folder: Path, name: str, kind: str, *options: str) -> Program:
    command = [
        str(sparkserver.spark_home() / "bin" / "spark-class"),
        kind,
        "--host",
        "127.0.0.1",
        "--webui-port",
        "0",
        *options,
    ]
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment = kept | {
        "SPARK_HOME": str(sparkserver.spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{sparkserver.JVM} -Djava.io.tmpdir={sparkserver.spark_folder(folder)}",
        "SPARK_LOCAL_DIRS": str(sparkserver.spark_folder(folder)),
        "PYSPARK_PYTHON": sys.executable,
    }
    return processes.start_program(name, command, environment, folder / f"{name}.log", folder)


def _registered(cluster: SparkCluster) -> int:
    return Path(cluster.master.log).read_text(errors="replace").count(REGISTERED)
