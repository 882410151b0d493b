"""Fixtures for tests of every level: real servers on free loopback ports.

A test with the fixture `target` runs on MariaDB, and on TiDB too if it has the mark `on_tidb`. `make test-all` runs all
of them on TiDB as well, except those with `mariadb_only`.

A test with `tidb_only` always runs on TiDB, and on no other target. With `on_mysql` `make test-all` runs it on a MySQL
target, too.
A MariaDB target gets rows by COM_STMT_BULK_EXECUTE. Tests with the mark `on_statements` also run on a MariaDB that
prepares no statements, so it gets LOAD DATA LOCAL, and on one that refuses that as well. In `make test-all`, tests with
the mark `writes_rows` do so, too.

Tests on TiDB get the mark `tidb`, also those whose parameter is `tidb_target`. They are skipped with the reason if TiDB
is not built.
"""

import contextlib
import gc
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import s3server
from tests.running import while_up
from tests.suite import distribution, failures, portions, sharedspark
from tests.suite.portions import EXAMPLES, IS_ALL, leave_out, portion
from tests.versions import MYSQL
from unshard_demo import servers

MEMORY = Path("/dev/shm")
ROOMY = 8 << 30
"""Bytes; a run on 2 cores takes about half of it at a time."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins of the tests, each of which says what it does; put the files of servers into memory.

    There a server creates the tables of a task ten times as fast. TMPDIR chooses another folder.
    """
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOMY:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
    for plugin in (distribution, failures, portions, sharedspark):
        config.pluginmanager.register(plugin)
    gc.disable()  # The collection of tests leaves no garbage.


# Deadlines and slow generation would measure the load of the machine. Examples are the same in every run, so that a
# change is judged by itself. With UNSHARD_EXAMPLES each run uses new examples.
settings.register_profile(
    "unshard",
    max_examples=portion(10, 30, 100),
    deadline=None,
    derandomize=not EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unshard")

NOTHING_PREPARED = "--max-prepared-stmt-count=0"


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of this run's servers; a missing MariaDB fails instead of skipping silently."""
    if shutil.which("mariadbd") is None:
        pytest.fail("mariadbd is not installed: run `make setup`")
    return tmp_path_factory.mktemp("mariadb")


@contextlib.contextmanager
def _running(folder: Path, *options: str, server_id: int | None = None) -> Iterator[servers.MariaDb]:
    """Run a server, and remove its data afterwards, which takes 100 MB; its log stays."""
    with while_up(servers.start_server(folder, *options, server_id=server_id)) as server:
        yield server
    shutil.rmtree(folder / "data")


@pytest.fixture(scope="session")
def source_1(server_folder: Path) -> Iterator[servers.MariaDb]:
    with _running(server_folder / "source-1", server_id=101) as server:
        yield server


@pytest.fixture(scope="session")
def source_2(server_folder: Path) -> Iterator[servers.MariaDb]:
    with _running(server_folder / "source-2", server_id=102) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_target(server_folder: Path) -> Iterator[servers.MariaDb]:
    with _running(server_folder / "target") as server:
        yield server


@pytest.fixture(scope="session")
def load_data_target(server_folder: Path) -> Iterator[servers.MariaDb]:
    """Prepare no statements, so that all rows are written by LOAD DATA LOCAL."""
    with _running(server_folder / "load-data", NOTHING_PREPARED) as server:
        yield server


@pytest.fixture(scope="session")
def statements_target(server_folder: Path) -> Iterator[servers.MariaDb]:
    """Refuse LOAD DATA LOCAL as well, so that all rows are written by statements."""
    with _running(server_folder / "statements", NOTHING_PREPARED, "--local-infile=0") as server:
        yield server


@pytest.fixture(scope="session")
def tidb_target(server_folder: Path) -> Iterator[servers.MariaDb]:
    if not servers.is_tidb_built():
        pytest.skip(servers.TIDB_NOT_BUILT)
    with while_up(servers.start_tidb(server_folder / "tidb")) as server:
        yield server


@pytest.fixture(scope="session")
def mysql_target(server_folder: Path) -> Iterator[servers.MariaDb]:
    """Return a MySQL, which has a binlog and may also be a source."""
    with MYSQL.running(server_folder / "mysql") as server:
        yield server


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> servers.MariaDb:
    """The server that the test writes to; the module's docstring names the possible ones."""
    found: servers.MariaDb = request.getfixturevalue(f"{request.param}_target")
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let each test with the fixture `target` run once per target."""
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    given = {name for mark in metafunc.definition.iter_markers("parametrize") for name in _argnames(mark)}
    if "target" not in metafunc.fixturenames or "target" in given:
        return
    is_tidb_only = "tidb_only" in marks
    targets = [] if is_tidb_only else [pytest.param("mariadb", id="mariadb")]
    if "on_statements" in marks or ("writes_rows" in marks and IS_ALL):
        targets += [pytest.param("load_data", id="load-data"), pytest.param("statements", id="statements")]
    if "mariadb_only" not in marks and (is_tidb_only or "on_tidb" in marks or IS_ALL):
        targets.append(pytest.param("tidb", id="tidb", marks=pytest.mark.tidb))
    if "on_mysql" in marks:
        targets.append(pytest.param("mysql", id="mysql", marks=pytest.mark.test_all("MariaDB shows the same")))
    metafunc.parametrize("target", targets, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests with TiDB, and leave out those that belong to `make test-all` alone."""
    # The mark of one case of a test is not known before.
    items[:] = [each for each in items if {"tidb", "mariadb_only"} - {mark.name for mark in each.iter_markers()}]
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if "tidb_target" in (*parameters, *getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.tidb)
    leave_out(config, items)


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what stays until the end: the tests and the imported libraries."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _argnames(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


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
    with _running(server_folder / tmp_path.name, server_id=301) as server:
        server.run("CREATE DATABASE d", "CREATE TABLE d.t(id int primary key auto_increment, v varchar(100))")
        yield server
