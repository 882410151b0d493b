"""Spark sessions of both kinds: results, errors as themselves, the code that executors run."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark import cloudpickle

from tests.running import while_up
from unshard.adapters import spark as sparks
from unshard.adapters.parquet import Storage
from unshard.adapters.relayfiles import RelayStore
from unshard.adapters.target import Writer
from unshard.core.model import Location, Server
from unshard.core.rows.compaction import CollisionPolicy
from unshard.core.task.state import BegunWindow
from unshard.core.window.plan import Plan
from unshard.errors.meta import (
    SparkJobFailed,
    SparkTaskCrashed,
    SparkUnavailable,
    StorageFailed,
    UnknownSparkConnection,
)
from unshard.units.rows.windowjob import WindowJob
from unshard.units.window.sync import run_job
from unshard_demo import processes
from unshard_demo.servers import free_port
from unshard_demo.sparkserver import SparkConnect, start_spark

pytestmark = pytest.mark.spark
# Executors know our package, not the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
INCLUDE = Path(sparks.__file__).parents[2]
PATH = os.pathsep.join(map(str, (INCLUDE, INCLUDE.parent, Path(__file__).parent)))
"""Where a process of a test finds our package and this module."""


@pytest.fixture
def connect(shared_spark: SparkConnect) -> str:
    return shared_spark.url


def twice(item: str) -> Iterable[str]:
    return (item, item.upper())


def failing(item: str) -> Iterable[str]:
    if item == "coded":
        raise StorageFailed("write", "/x", "full")
    return [str(1 // 0)] if item == "bug" else [item]


def where(_: str) -> Iterable[str]:
    import unshard

    yield unshard.__file__


def has_unix_socket(_: str) -> Iterable[str]:
    yield os.environ["PYTHON_UNIX_DOMAIN_ENABLED"].lower()


def frozen(_: str) -> Iterable[str]:
    import gc

    yield str(gc.get_freeze_count())


def memory_pool(_: str) -> Iterable[str]:
    import pyarrow as pa

    yield pa.default_memory_pool().backend_name


def check(spark: object) -> None:
    assert sorted(sparks.map_items(spark, twice, ["a", "b", "c"], 2)) == ["A", "B", "C", "a", "b", "c"]
    assert list(sparks.map_items(spark, twice, [], 2)) == []
    assert len(list(sparks.map_items(spark, twice, list(map(str, range(1000))), 7))) == 2000
    with pytest.raises(StorageFailed) as coded:
        list(sparks.map_items(spark, failing, ["x", "coded", "y"], 2))
    assert (coded.value.action, coded.value.reason) == ("write", "full")
    with pytest.raises(SparkTaskCrashed, match="ZeroDivisionError") as crash:
        list(sparks.map_items(spark, failing, ["bug"], 2))
    assert "1 // 0" in crash.value.__notes__[0]


def test_workers(connect: str) -> None:
    """Unix sockets reach them, the C library gives Arrow's buffers, and what they have imported is not collected."""
    with sparks.session(connect) as spark:
        assert list(sparks.map_items(spark, has_unix_socket, ["a"], 1)) == ["true"]
        assert list(sparks.map_items(spark, memory_pool, ["a", "b"], 2)) == ["system", "system"]
        assert [int(count) > 10_000 for count in sparks.map_items(spark, frozen, ["a", "b"], 2)] == [True, True]


def test_a_socket_is_in_the_first_folder_with_a_short_path() -> None:
    enabled = {"spark.python.unix.domain.socket.enabled": "true"}
    short, long = Path("/" + "s" * 59), Path("/" + "l" * 60)
    assert sparks.unix_sockets(long, short) == enabled | {"spark.python.unix.domain.socket.dir": str(short)}
    assert sparks.unix_sockets(long) == {}


@pytest.mark.test_all("starts two servers of Spark; the choice of the folder has a test without one")
@pytest.mark.parametrize("length", [60, 62])
def test_a_server_has_sockets_whatever_the_length_of_its_folder(length: int) -> None:
    """With the second length all jobs fail if the sockets are to be in its own folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / ("f" * (length - len(f"{name}//scratch")))
        assert len(str(folder / "scratch")) == length
        with while_up(start_spark(folder)) as server, sparks.session(server.url) as spark:
            assert list(sparks.map_items(spark, has_unix_socket, ["a"], 1)) == ["true"]


LOST = """
import os, signal, sys
from unshard.adapters import spark as sparks
from test_spark import check, frozen, has_unix_socket, memory_pool, twice
from pyspark import SparkContext
with sparks.session("local[1]") as first:
    assert sparks.is_usable(first)
    check(first)
    for job in (has_unix_socket, memory_pool, frozen):
        print(*sparks.map_items(first, job, ["a"], 1))
    with sparks.session("local[1]") as inner:
        assert inner.sparkContext is first.sparkContext
    assert sparks.is_usable(first)
    try:
        sparks.open_spark_session("local[2]")
    except sparks.SparkUnavailable as error:
        print(error)
    if sys.argv[1] == "killed":
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    else:
        SparkContext._active_spark_context._jsc.stop()
    try:
        list(sparks.map_items(first, twice, ["a"], 1))
    except sparks.SparkJobFailed:
        pass
    assert not sparks.is_usable(first)
    with sparks.session("local[1]") as second:
        assert sorted(sparks.map_items(second, twice, ["a"], 1)) == ["A", "a"]
        assert sparks.is_usable(second) and not sparks.is_usable(first)
        jvm = SparkContext._gateway.proc
    assert jvm.returncode is not None
sys.stdout.flush()
os._exit(0)  # as a task of Airflow, without the hooks of Python's end
"""


@pytest.mark.parametrize(
    "lost", ["killed", pytest.param("stopped", marks=pytest.mark.test_all("a killed JVM is harder"))]
)
def test_a_local_session_and_the_next_one_when_it_is_lost(tmp_path: Path, lost: str) -> None:
    """A process has one classic session; the end of one takes its JVM and its files along."""
    command = [sys.executable, "-c", LOST, lost]
    with tempfile.TemporaryDirectory() as temporary:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": PATH, "TMPDIR": temporary},
            cwd=tmp_path,
            timeout=600,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert os.listdir(temporary) == []
    sockets, pool, count, refused = done.stdout.splitlines()
    assert (sockets, pool) == ("true", "system") and int(count) > 10_000
    assert "local[1] already" in refused
    assert list(tmp_path.iterdir()) == []


ABANDONED = """
import contextlib
from unshard.adapters import spark as sparks
from unshard.units.work import LazySpark
from unshard_demo.processes import await_true
with contextlib.ExitStack() as stack:
    lazy = LazySpark(stack, "local[1]", {}.__getitem__, "shop", lambda: None)
    lazy.begin()
    await_true(lambda: sparks._STARTING, 600, [], "the process of the JVM")
    (jvm,) = sparks._STARTING.values()
print(jvm.poll(), lazy._opened, sparks._STARTING)
"""


def test_a_start_that_nobody_needs_any_more_is_broken_off(tmp_path: Path) -> None:
    """A failed precheck must not wait for Spark, and no JVM, no message and no file must remain."""
    environment = {**os.environ, "PYTHONPATH": str(INCLUDE), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ABANDONED],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("-9 [] {}\n", "", [])


CLIENT = """
import os, sys
from unshard.adapters import spark as sparks
sys.path.insert(0, sys.argv[3])
from test_spark import check, where
with sparks.session(sys.argv[1], name=sys.argv[4]) as spark:
    check(spark)
    print(spark.session_id, *sparks.map_items(spark, where, ["x"], 1))
    if sys.argv[2] == "close":
        spark.stop()
sys.stdout.flush()
os._exit(0)  # as a task of Airflow, without the hooks of Python's end
"""


def client(url: str, end: str, folder: Path, name: str = "shop") -> tuple[str, str]:
    root = str(Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": PATH, "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, url, end, root, name],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    session, place = done.stdout.split()
    assert not list(folder.iterdir())
    return session, place


def test_processes_meet_in_one_session_of_a_connect_server(connect: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:  # the session has no code yet
        ((first, place),) = set(pool.map(lambda _: client(connect, "leave", tmp_path), range(2)))
    assert first == sparks.session_id("shop")
    assert place.endswith("unshard/__init__.py")
    assert client(connect, "close", tmp_path)[0] == first
    assert client(connect, "leave", tmp_path)[0] == sparks.session_id("shop", 1)


@pytest.mark.filterwarnings("ignore:.RETRIES_EXCEEDED")
def test_a_server_that_died_is_told_by_a_code_and_a_restarted_one_gets_a_new_session(tmp_path: Path) -> None:
    """Without a server not even a DataFrame can be made. A new one does not know the session."""
    place = Location("b.000001", 4)
    begun = BegunWindow(Plan("s1", 1, place, place, False, (), (), (), (), "", 0), 1)
    job = WindowJob(
        "task",
        "meta",
        begun,
        Writer(Server("127.0.0.1", 1, "", "")),
        Storage("/nowhere"),
        RelayStore(tmp_path),
        CollisionPolicy.ERROR,
        (),
        (),
        (),
        {},
        {},
        (),
    )
    with while_up(start_spark(tmp_path / "first")) as server, sparks.session(server.url, name="again") as first:
        assert sorted(sparks.map_items(first, twice, ["a"], 1)) == ["A", "a"] and sparks.is_usable(first)
        processes.kill(server.program)
        with pytest.raises(SparkJobFailed, match=r"GrpcException: details = .*[Rr]efused"):
            list(sparks.map_items(first, twice, ["a"], 1))
        with pytest.raises(SparkJobFailed, match=r"GrpcException: details = .*[Rr]efused"):
            run_job(lambda: first, job)
        with while_up(start_spark(tmp_path / "second", port=server.port)):
            with pytest.raises(SparkJobFailed):
                list(sparks.map_items(first, twice, ["a"], 1))
            assert not sparks.is_usable(first)
            with sparks.session(server.url, name="again") as second:
                assert sorted(sparks.map_items(second, twice, ["b"], 1)) == ["B", "b"] and sparks.is_usable(second)


@pytest.mark.test_all("starts Spark; a session that is lost leaves nothing either")
def test_a_local_session_leaves_nothing_in_the_folder(tmp_path: Path) -> None:
    script = CLIENT.replace("spark.session_id", "'local'").replace('sys.argv[2] == "close"', "False")
    root = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", script, "local[1]", "", root, "shop"],
        cwd=tmp_path,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": PATH},
        text=True,
        timeout=600,
        check=True,
    )
    assert (done.stderr, list(tmp_path.iterdir())) == ("", [])


def test_nothing_there_is_told() -> None:
    with pytest.raises(SparkUnavailable, match="refused"):
        sparks.open_spark_session(f"sc://127.0.0.1:{free_port()}")


def test_what_a_connection_is() -> None:
    known = {
        "a": {"conn_type": "spark_connect", "host": "sc://h", "port": 15003},
        "b": {"conn_type": "spark_connect", "host": "h", "port": None},
        "c": {"conn_type": "spark", "host": "spark://h", "port": 7077},
        "d": {"conn_type": "spark", "host": "local[2]", "port": None},
        "e": {"conn_type": "mysql", "host": "h", "port": 3306},
    }
    assert [sparks.address(name, known.__getitem__) for name in "abcd"] == [
        "sc://h:15003",
        "sc://h:15002",
        "spark://h:7077",
        "local[2]",
    ]
    for direct in ("local", "local[*]", "local[2,3]", "yarn", "spark://h:7077", "k8s://https://h", "sc://h:1"):
        assert sparks.address(direct) == direct
    for wrong in ("e", "nonsense"):
        with pytest.raises((UnknownSparkConnection, KeyError)):
            sparks.address(wrong, known.__getitem__)
    with pytest.raises(UnknownSparkConnection, match="what"):
        sparks.address("what")
