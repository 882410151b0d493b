"""Spark sessions by kind of connection, and running functions on executors.

A `local[n]`, `spark://`, `yarn` or `k8s://` master gets a classic session that belongs to this process.
`sc://host:port` is a Spark Connect server that outlives the process. All processes of a task join the same session
there by a fixed id, because a new session costs a new Python worker with all its imports. The id contains a hash of our
package, so a session never has two versions of the code. A server permanently refuses the id of a session that was
closed, for example by its idle timeout. Then the next number is used; all processes count the same way, so they join
the same session again.

A session can be lost while a process uses it: its JVM died, or the Connect server restarted and has neither the session
nor our package. `is_usable` tells, and the next `session` opens another one, in another JVM if the first is dead.

Executors run functions over short strings (`map_items`). If a function raises, its error is returned as a result and
raised again in the driver as the same error, without the Java stack trace. The failed worker skips its remaining items;
other workers finish theirs.
"""

import atexit
import base64
import contextlib
import ctypes
import gc
import hashlib
import os
import pickle
import re
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import urllib.parse
import uuid
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from unshard.errors import UnshardError
from unshard.errors.meta import SparkJobFailed, SparkTaskCrashed, SparkUnavailable, UnknownSparkConnection

Connections = Callable[[str], Mapping[str, Any]]

OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
"""A channel with this option does not wait because another one has found no server at the same address."""
_OPENING = threading.Lock()
"""Held while a session is opened or closed: a process has one JVM, and pyspark keeps it in global variables."""
_STARTING: dict[int, subprocess.Popen[bytes]] = {}
"""The JVM that a thread is starting, by the thread's id; pyspark tells of it only when it has started."""

USER = "unshard"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt): ")
FIXED_TIME = (1980, 1, 1, 0, 0, 0)
CLOSED_SESSIONS = 1000
"""How many ids of closed sessions a Connect server remembers and refuses."""
CONNECT_SECONDS = 5.0
STOP_SECONDS = 20.0
ABANDON_SECONDS = 0.05
DEFAULT_PORT = 15002
LOG = "spark.log"
RETRIES: Mapping[str, Any] = {"max_retries": 8, "initial_backoff": 50, "backoff_multiplier": 2.0, "max_backoff": 1000}
"""Pauses in milliseconds: five seconds in all, enough for a short network failure."""
RESULT = pa.schema([("failed", pa.bool_()), ("result", pa.string())])
REMEMBERED: Mapping[str, str] = {
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.connect.ui.retainedStatements": "10",
    "spark.connect.ui.retainedSessions": "5",
}
"""How many finished jobs Spark remembers, with or without its page; the default is a thousand of each kind."""
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled", "true"
"""Spark reaches its Python workers by Unix sockets, from Spark 4.1 on. With TCP most jobs wait 40 ms at their start:
the JVM does not send the next bytes before Python's side has acknowledged the last ones, and that is delayed.
"""
LONGEST_SOCKET_FOLDER = 60
"""Spark rejects a longer path of a folder for Unix sockets, because the path of a socket has at most 107 bytes."""
ARENAS = "MALLOC_ARENA_MAX", "2"
"""Otherwise the C library keeps freed memory separately for every thread of the JVM."""
KEPT_MEMORY: Mapping[int, int] = {-1: 256 << 20, -3: 32 << 20}
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h, in bytes, for Python workers: so much freed memory remains
with the process, and smaller buffers than this are made of it. 32 MiB is the most that glibc accepts for the second.
"""
JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dderby.system.home={folder} -Djava.io.tmpdir={folder}"
QUIET = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


@contextlib.contextmanager
def session(connection: str, connections: Connections | None = None, name: str = "unshard") -> Iterator[Any]:
    """Open a session for the block; `connection` is a master, an `sc://` address or a connection's id.

    A process has at most one classic session: an inner block shares it and does not close it.
    """
    with _OPENING:
        _forget_lost_session()
        shared = _active() is not None
        spark = open_spark_session(address(connection, connections), name)
    try:
        yield spark
    finally:
        if _is_connect(spark) or not shared:
            close_session(spark)


def abandon(opening: threading.Thread) -> None:
    """Wait for the end of a thread that opens a session nobody needs, and kill the JVM that it is starting."""
    warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark", RuntimeWarning)
    while opening.is_alive():
        if process := _STARTING.get(opening.ident or 0):
            process.kill()
        opening.join(ABANDON_SECONDS)


def is_usable(spark: Any) -> bool:
    """Whether jobs can still run in the session; otherwise open another one."""
    if _is_connect(spark):
        return _key(spark) in _SHIPPED
    return spark.sparkContext is _active() and not _is_lost()


def address(connection: str, connections: Connections | None = None) -> str:
    """Return the master or `sc://` address that `connection` is, or to which its connection id points."""
    if _kind(connection) is not None:
        return connection
    if connections is None:
        raise UnknownSparkConnection(connection)
    found = connections(connection)
    host, port = str(found.get("host") or ""), found.get("port")
    if found.get("conn_type") == "spark_connect":
        return f"sc://{host.removeprefix('sc://')}:{port or DEFAULT_PORT}"
    master = f"{host}:{port}" if port else host
    if found.get("conn_type") not in ("spark", "", None) or _kind(master) != "classic":
        raise UnknownSparkConnection(connection)
    return master


def is_local(address: str) -> bool:
    """Whether a master runs its executors in a JVM on this machine."""
    return re.fullmatch(r"local(\[.*\])?", address) is not None


def open_spark_session(connection: str, name: str = "unshard") -> Any:
    """Open a session at a master or join the session `name` of a Connect server."""
    match _kind(connection):
        case "classic":
            return _classic(connection, name)
        case "connect":
            return _connect(connection, name)
        case _:
            raise UnknownSparkConnection(connection)


def submitted_session(name: str = "unshard") -> Any:
    """Return the session of the application that spark-submit started for this process."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(name).getOrCreate()
    _ship(spark)
    return spark


def close_session(spark: Any) -> None:
    """Stop a classic session unless another one has replaced it; a session at a Connect server stays for others."""
    if _is_connect(spark):
        spark.client.close()  # closes only this client's channel
        return
    with _OPENING:
        _forget_lost_session()
        if spark.sparkContext is _active():
            with contextlib.suppress(Exception):  # the JVM dies at this moment
                spark.stop()
            _end_jvm()
            _remove_folder()


def map_items(
    spark: Any, function: Callable[[str], Iterable[str]], items: Sequence[str], parallelism: int
) -> Iterator[str]:
    """Run `function` on every item, `parallelism` at a time; yield all results in any order.

    Spark may repeat a task and run the function again for an item, so the function must be idempotent.
    """
    if not items:
        return
    workers = max(1, min(parallelism, len(items)))
    run = _StripeRunner(function, tuple(items), workers)
    table = collect(spark, lambda: numbers(spark, workers).mapInArrow(run, columns(RESULT)))
    failures = [row["result"] for row in table.filter(table.column("failed")).to_pylist()]
    if failures:
        raise _decode(failures[0])
    yield from table.column("result").to_pylist()


def collect(spark: Any, frame: Callable[[], Any]) -> pa.Table:
    """Create a DataFrame of the session, run its job and return its rows; raises SparkJobFailed.

    Creating the frame already contacts a Connect server, which may be gone.
    """
    try:
        return frame().toArrow()
    except Exception as error:
        if _is_connect(spark):
            # The server may be another one by the next job: that one gets our package again.
            _SHIPPED.discard(_key(spark))
        raise SparkJobFailed(_reason(error)) from error


@lru_cache(maxsize=8)
def numbers(spark: Any, tasks: int) -> Any:
    """Return a DataFrame with one row per task; it is kept, so a Connect server is asked only once for its columns."""
    return spark.range(0, tasks, 1, tasks)


@cache
def columns(schema: pa.Schema) -> Any:
    """Return a schema for `mapInArrow`; if it is given as text, a Connect server is asked each time to parse it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def unix_sockets(*folders: Path) -> dict[str, str]:
    """Return the settings for Unix sockets in the first folder with a short path; none if all paths are too long.

    They are for a JVM whose Python workers run on the same machine.
    """
    for folder in folders:
        if len(os.fsencode(folder)) <= LONGEST_SOCKET_FOLDER:
            return dict([UNIX_SOCKETS]) | {"spark.python.unix.domain.socket.dir": str(folder)}
    return {}


@cache
def prepare_worker() -> None:
    """Set up garbage collection and memory of a Python worker for its life (in executors).

    Spark's worker collects garbage after every task. Over the modules of Spark, Arrow and unshard that takes 60 ms of
    CPU or more. With Arrow's own allocator a quarter of the CPU time of a worker in a backlog is spent in the kernel,
    which clears pages for new buffers. So the C library provides the buffers, and keeps freed memory for the next ones.
    """
    if "pyspark.worker" not in sys.modules:
        return
    gc.freeze()
    pa.set_memory_pool(pa.system_memory_pool())
    with contextlib.suppress(AttributeError):  # another C library than glibc
        for option, size in KEPT_MEMORY.items():
            ctypes.CDLL(None).mallopt(option, size)


class _StripeRunner:
    """The function of one Spark task: runs the items of its stripe one after the other."""

    def __init__(self, function: Callable[[str], Iterable[str]], items: tuple[str, ...], workers: int) -> None:
        self._function, self._items, self._workers = function, items, workers

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        for batch in batches:
            for stripe in batch.column(0).to_pylist():
                yield from self._run(self._items[stripe :: self._workers])

    def _run(self, items: Iterable[str]) -> Iterator[pa.RecordBatch]:
        for item in items:
            try:
                results = list(self._function(item))
            except Exception as error:
                yield _result(True, [_encode(error)])
                return
            yield _result(False, results)


def _result(failed: bool, results: list[str]) -> pa.RecordBatch:
    flags = pa.array([failed] * len(results), pa.bool_())
    return pa.RecordBatch.from_arrays([flags, pa.array(results, pa.string())], schema=RESULT)


def _encode(error: Exception) -> str:
    if isinstance(error, UnshardError):
        return base64.b64encode(pickle.dumps(error)).decode()
    crash = SparkTaskCrashed(f"{type(error).__name__}: {error}")
    crash.add_note("".join(traceback.format_exception(error)))
    return base64.b64encode(pickle.dumps(crash)).decode()


def _decode(text: str) -> UnshardError:
    error: UnshardError = pickle.loads(base64.b64decode(text))  # noqa: S301  written by _encode on our executor
    return error


def _reason(error: Exception) -> str:
    """Return the most informative line of Spark's message: the end of a traceback, gRPC's details, or the first."""
    lines = [line.strip() for line in str(error).splitlines()]
    relevant = [line for line in lines if line and not line.startswith(("at ", "An error occurred while calling"))]
    raised = [line for line in relevant if _RAISED.match(line)]
    details = [line for line in relevant if line.startswith("details = ")]
    return f"{type(error).__name__}: {(raised[-1:] or details or relevant or [''])[0][:500]}"


# --- classic sessions ---------------------------------------------------------------------------------


def _classic(master: str, name: str) -> Any:
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.sql import SparkSession

    active = _active()
    if active is not None and active.master != master:
        raise SparkUnavailable(master, f"this process has a session at {active.master} already, and can have one only")
    if active is None:
        folder = _folder()
        conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(name).setAll(_settings(master, folder))
        os.environ.setdefault(*ARENAS)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        log = folder / LOG
        java_gateway.Popen = _start_jvm  # type: ignore[assignment,attr-defined]
        try:
            with log.open("ab") as output:
                outputs = {"stdout": output, "stderr": output}
                gateway = java_gateway.launch_gateway(conf, outputs)  # type: ignore[no-untyped-call]
            SparkContext(conf=conf, gateway=gateway)
        except Exception as error:
            _end_jvm()
            raise SparkUnavailable(master, f"{_reason(error)}; see {log}") from error
        finally:
            _STARTING.pop(threading.get_ident(), None)
    try:
        spark = SparkSession.builder.getOrCreate()
        if not is_local(master):
            _ship(spark)
    except Exception as error:
        raise SparkUnavailable(master, f"{_reason(error)}; see {_folder() / LOG}") from error
    return spark


def _start_jvm(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
    process = _STARTING[threading.get_ident()] = subprocess.Popen(*arguments, **options)
    return process


def _is_lost() -> bool:
    """Whether the classic session of this process has ended by itself: its JVM is dead, or its context has stopped."""
    process, context = getattr(_gateway(), "proc", None), _active()
    if process is not None and process.poll() is not None:
        return True
    if context is None:
        return False
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:  # the JVM does not answer
        return True


def _forget_lost_session() -> None:
    """Remove what pyspark remembers of a lost session; otherwise it would use it for the next one."""
    if not _is_lost():
        return
    from pyspark.sql import SparkSession

    if (context := _active()) is not None:
        context._jsc = None  # so that `stop` does not call the JVM
        context.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    _end_jvm()


def _gateway() -> Any:
    """Return the connection to the JVM of this process, None before there is one."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return SparkContext._gateway


def _end_jvm() -> None:
    """End the JVM that this process started, and wait for it; a later session starts another."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process.stdin.close()  # the JVM ends when its standard input is closed
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _active() -> Any:
    """Return the context of this process's classic session, None before there is one."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def _settings(master: str, folder: Path) -> list[tuple[str, str]]:
    quiet = folder / "log4j2.properties"
    quiet.write_text(QUIET)
    options = JVM_OPTIONS.format(folder=folder) + f" -Dlog4j2.configurationFile={quiet}"
    settings = {
        **REMEMBERED,
        "spark.driver.extraJavaOptions": options,
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }
    if master.startswith("local") or "127.0.0.1" in master or "localhost" in master:
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if is_local(master):
        inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        settings["spark.executorEnv.PYTHONPATH"] = os.pathsep.join([str(package_folder().parent), *inherited])
        settings |= unix_sockets(folder)
    return list(settings.items())


@cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="unshard-spark-", ignore_cleanup_errors=True)
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def _remove_folder() -> None:
    """Remove the scratch folder with its session: a process of Airflow ends without Python's hooks for its end."""
    _folder.cache_clear()
    while _KEPT:
        _KEPT.pop().cleanup()


# --- Spark Connect --------------------------------------------------------------------------------------


def _connect(server: str, name: str) -> Any:
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    _require_listener(server)
    for number in range(CLOSED_SESSIONS):
        url = f"{server.rstrip('/')}/;session_id={session_id(name, number)};user_id={USER}"
        try:
            channel = DefaultChannelBuilder(url, [OWN_CONNECTION])
            spark = SparkSession.builder.channelBuilder(channel).create()
            # By default a client waits more than ten minutes for a server that is gone.
            spark.client.set_retry_policies([DefaultPolicy(**RETRIES)])
            # Its hook for the end of the process calls the server while the interpreter shuts down, and can hang.
            if hook := getattr(spark.client, "_on_exit", None):  # Spark 4.0 has none
                atexit.unregister(hook)
            _ship(spark)
        except Exception as error:
            if "INVALID_HANDLE.SESSION_" in str(error):
                continue
            raise SparkUnavailable(server, _reason(error)) from error
        return spark
    raise SparkUnavailable(server, f"the last {CLOSED_SESSIONS} sessions of {name} were all closed")


def _require_listener(server: str) -> None:
    try:
        address = urllib.parse.urlsplit(server)
        socket.create_connection((address.hostname or "", address.port or DEFAULT_PORT), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise SparkUnavailable(server, str(error)) from error


def session_id(name: str, number: int = 0) -> str:
    """Return the id of a task's session at a Connect server, for this version of our code."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"unshard:{name}:{package_hash()}:{number}"))


# --- our package on the executors: a zip named by its content, so several processes may send it at once -------

_SHIPPED: set[str] = set()
"""Sessions of this process that have the package."""


def _ship(spark: Any) -> None:
    key = _key(spark)
    if key in _SHIPPED:
        return
    if _is_connect(spark):
        _add_artifact(spark)
    else:
        spark.sparkContext.addPyFile(str(package_zip(_folder())))
    _SHIPPED.add(key)


def _key(spark: Any) -> str:
    return str(spark.session_id if _is_connect(spark) else spark.sparkContext.applicationId)


def _add_artifact(spark: Any) -> None:
    """Send the zip; another process may send it to the same session at this moment, under the same name and content."""
    with tempfile.TemporaryDirectory(prefix="unshard-package-") as folder:
        try:
            spark.addArtifacts(str(package_zip(Path(folder))), pyfile=True)
        except Exception as error:
            if "FileAlreadyExistsException" not in str(error):
                raise


def package_folder() -> Path:
    """Return the folder of our package; its parent must be on Python's path."""
    return Path(__file__).parents[1]


def spark_job(name: str) -> Path:
    """Return a file of spark_jobs: it is in the installed package, or beside `include` in a clone."""
    installed = package_folder() / "spark_jobs"
    return (installed if installed.is_dir() else package_folder().parents[1] / "spark_jobs") / name


@cache
def package_hash() -> str:
    """Return 12 hexadecimal digits that identify the content of the package."""
    digest = hashlib.sha256()
    for name, data in _modules():
        digest.update(name.encode() + b"\0" + data + b"\0")
    return digest.hexdigest()[:12]


def package_zip(folder: Path) -> Path:
    """Write the zip into a folder of this process, and return it: a shared folder could have another one's code."""
    path = folder / f"unshard-{package_hash()}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in _modules():
            archive.writestr(zipfile.ZipInfo(name, FIXED_TIME), data)
    return path


def _modules() -> list[tuple[str, bytes]]:
    folder = package_folder()
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return [(path.relative_to(folder.parent).as_posix(), path.read_bytes()) for path in paths]


def _is_connect(spark: Any) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _kind(connection: str) -> str | None:
    if connection.startswith("sc://"):
        return "connect"
    if re.match(r"(local(\[.*\])?|yarn|spark://.+|k8s://.+)\Z", connection):
        return "classic"
    return None
