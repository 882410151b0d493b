"""Fixtures that every level of tests shares: real MariaDB servers on free loopback ports."""

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import s3server
from unshard_demo import servers

# Deadlines and slow generation would measure how busy the machine is. Examples are the same in every run, so that a
# change is judged by itself; whoever sets UNSHARD_EXAMPLES hunts, with others each time.
settings.register_profile("unshard", deadline=None, derandomize="UNSHARD_EXAMPLES" not in os.environ,
                          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
settings.load_profile("unshard")


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this run keeps its servers; a missing MariaDB fails instead of skipping silently."""
    if shutil.which("mariadbd") is None:
        pytest.fail("mariadbd is not installed: run `make setup`")
    return tmp_path_factory.mktemp("mariadb")


@pytest.fixture(scope="session")
def source_1(server_folder: Path) -> Iterator[servers.MariaDb]:
    with servers.running(server_folder / "source-1", server_id=101) as server:
        yield server


@pytest.fixture(scope="session")
def source_2(server_folder: Path) -> Iterator[servers.MariaDb]:
    with servers.running(server_folder / "source-2", server_id=102) as server:
        yield server


@pytest.fixture(scope="session")
def target(server_folder: Path) -> Iterator[servers.MariaDb]:
    with servers.running(server_folder / "target") as server:
        yield server


@pytest.fixture
def s3() -> Iterator[s3server.S3]:
    """An object store with an empty bucket."""
    with s3server.running() as server:
        yield server


@pytest.fixture
def unique() -> str:
    """A schema name that no other test uses."""
    return f"t_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def upstream_server(server_folder: Path, tmp_path: Path) -> Iterator[servers.MariaDb]:
    """A source with a table d.t of its own, for tests that read all of its binlog, reset or purge it."""
    with servers.running(server_folder / tmp_path.name, server_id=301) as server:
        server.run("CREATE DATABASE d", "CREATE TABLE d.t(id int primary key auto_increment, v varchar(100))")
        yield server
