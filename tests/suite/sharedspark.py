"""One warm Spark Connect server for all processes of a run; a test that kills Spark starts its own.

The first process of a distributed run starts it while the others collect the tests. All JVMs of a run start from an
archive of Spark's classes, which halves their CPU time; the first run on a machine makes it.
"""

import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.running import while_up
from unshard_demo import sparkserver
from unshard_demo.processes import Program
from unshard_demo.sparkserver import SparkConnect

FOLDERS = {"tests", "e2e", "integration"}
"""Folders with tests that use Spark."""
SERVER = pytest.StashKey[SparkConnect]()
OPTIONS = "SPARK_SUBMIT_OPTS"
SERVERS = Path(__file__).resolve().parents[2] / ".servers"
JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.createDataFrame([(1, "a")]).mapInArrow(lambda parts: parts, "_1 long, _2 string").toArrow()
"""


def class_archive() -> Path:
    """Return the archive of Spark's classes for this Java and this Spark; the first call makes it."""
    versions = [Path(shutil.which("java") or sys.executable).resolve(), Path(pyspark.__file__).with_name("jars")]
    state = "".join(f"{one} {one.stat().st_mtime_ns}\n" for one in versions)
    path = SERVERS / f"spark-{hashlib.sha256(state.encode()).hexdigest()[:12]}.jsa"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        making = path.with_suffix(f".{os.getpid()}")
        options = {OPTIONS: f"-XX:ArchiveClassesAtExit={making}", "PYSPARK_PYTHON": sys.executable}
        subprocess.run([sys.executable, "-c", JOB], env=os.environ | options, capture_output=True, check=True)
        making.rename(path)
    return path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Start the server; the tests that need it wait until it answers."""
    if FOLDERS & {Path(argument).name for argument in config.args} and "not spark" not in config.option.markexpr:
        os.environ[OPTIONS] = f"-XX:SharedArchiveFile={class_archive()} -XX:TieredStopAtLevel=1 -Xlog:disable"
        config.stash[SERVER] = sparkserver.launch_spark(Path(tempfile.mkdtemp(prefix="unshard-tests-spark-")))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    if (server := node.config.stash.get(SERVER, None)) is not None:
        node.workerinput["spark"] = dataclasses.asdict(server)


def pytest_unconfigure(config: pytest.Config) -> None:
    if (server := config.stash.get(SERVER, None)) is not None:
        server.stop()
        shutil.rmtree(Path(server.program.log).parent, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnect]:
    """The Spark Connect server of the run."""
    given = getattr(request.config, "workerinput", {}).get("spark")
    if given is None:
        with while_up(sparkserver.start_spark(tmp_path_factory.mktemp("spark"))) as server:
            yield server
    else:
        server = SparkConnect(given["port"], Program(**given["program"]))
        sparkserver.await_answer(server)
        yield server
