"""Spark from the pyspark wheel: a Connect server for the live session of the windows.

It listens only on a free loopback port. Our package is on the path of its Python workers, so sessions need not send it.
Its JVM uses only the quick compiler, because windows are short.
"""

import importlib.util
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from unshard.adapters.spark import ARENAS, REMEMBERED, unix_sockets
from unshard_demo import processes
from unshard_demo.servers import free_port

INCLUDE = Path(__file__).resolve().parents[1]
START_SECONDS = 300.0
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@dataclass(frozen=True, slots=True)
class SparkConnect:
    """A running Connect server."""

    port: int
    program: processes.Program

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    @property
    def connection(self) -> dict[str, object]:
        return {"conn_type": "spark_connect", "host": "127.0.0.1", "port": self.port}

    def stop(self) -> None:
        processes.stop_program(self.program)


def start_spark(folder: Path, master: str = "local[2]", memory: str = "1g", port: int = 0) -> SparkConnect:
    """Start a Connect server whose files are below `folder`; return when it accepts connections."""
    server = launch_spark(folder, master, memory, port)
    try:
        await_answer(server)
    except BaseException:
        server.stop()
        raise
    return server


def launch_spark(folder: Path, master: str = "local[2]", memory: str = "1g", port: int = 0) -> SparkConnect:
    """Start a Connect server whose files are below `folder`, without waiting for it."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    program = processes.start_program(
        "spark-connect",
        _command(folder, port, master, memory),
        _environment(folder),
        folder / "spark-connect.log",
        folder,
    )
    return SparkConnect(port, program)


def await_answer(server: SparkConnect) -> None:
    """Wait until a server accepts connections."""
    processes.await_true(
        lambda: processes.listens(server.port), START_SECONDS, [server.program], "Spark Connect listens"
    )


def _command(folder: Path, port: int, master: str, memory: str) -> list[str]:
    settings = {
        **REMEMBERED,
        **unix_sockets(spark_folder(folder), Path(tempfile.gettempdir())),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{JVM} -Dderby.system.home={folder} -Djava.io.tmpdir={spark_folder(folder)}",
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(spark_folder(folder)),
    }
    options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    return [
        str(spark_home() / "bin" / "spark-submit"),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--name",
        "unshard-connect",
        "--master",
        master,
        "--driver-memory",
        memory,
        *options,
        "spark-internal",
    ]


def _environment(folder: Path) -> dict[str, str]:
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path = list(dict.fromkeys([str(INCLUDE), *inherited]))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return (
        dict([ARENAS])
        | kept
        | {
            "SPARK_HOME": str(spark_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(path),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOG_DIR": str(folder),
            "SPARK_PID_DIR": str(folder),
        }
    )


def spark_folder(folder: Path) -> Path:
    """Create and return the folder of temporary files."""
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return scratch


def spark_home() -> Path:
    """Return the Spark folder of the pyspark wheel."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise RuntimeError("pyspark is not installed: run `make setup`")
    return Path(found.origin).parent
