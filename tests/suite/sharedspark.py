"""One warm Spark Connect server for all processes of a run; a test that kills Spark starts its own.

The first process of a distributed run starts it while the others collect the tests.
"""

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unshard_demo import spark
from unshard_demo.processes import Program
from unshard_demo.spark import SparkConnect

FOLDERS = {"tests", "e2e", "integration"}
"""Folders with tests that use Spark."""
SERVER = pytest.StashKey[SparkConnect]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Start the server; the tests that need it wait until it answers."""
    if FOLDERS & {Path(argument).name for argument in config.args} and "not spark" not in config.option.markexpr:
        config.stash[SERVER] = spark.launch(Path(tempfile.mkdtemp(prefix="unshard-tests-spark-")))


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
        with spark.running_spark(tmp_path_factory.mktemp("spark")) as server:
            yield server
    else:
        server = SparkConnect(given["port"], Program(**given["program"]))
        spark.await_answer(server)
        yield server
