"""The resources of a task's units: servers, meta store, relay, Spark sessions.

The caller that runs units (the command line, an operator, a test) opens them once and passes them to each unit. Secrets
are resolved only here. Spark starts at its first use, because an idle window does not need it and must stay cheap.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.meta import Meta
from unshard.adapters.objectstore import is_object_store
from unshard.adapters.parquet import Storage
from unshard.adapters.relayfiles import BucketPlace, RelayStore
from unshard.adapters.structures import PresentStructures
from unshard.adapters.target import Writer, tried_writer
from unshard.adapters.targetddl import DdlTrialTables
from unshard.config import Connections, Task, TaskMode, environment_connections, resolve, storage_access
from unshard.config.allowed import allowed_spark_connection
from unshard.core.model import Server, TableId, TableSchema
from unshard.errors.meta import MetaMissing
from unshard.errors.rows import NoTargetTable


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one process."""

    late_rows: int = 100_000
    """A load of fewer rows keeps its indexes: below this, two ALTERs take longer than they save."""
    pause_seconds: float = 1.0
    """The pause before the first retry of a source or a lock; it doubles with each retry."""
    small_bytes: int = 4 << 20
    """A window up to this size is one Spark task: the cost of the job itself is nearly all."""
    alone_bytes: int = 128 << 20
    """The same for a window of one target: a shuffle costs more than parallel reading gains (ADR 0006)."""
    worker_bytes: int = 4 << 20
    """Bytes for each Spark task of a larger window."""
    most_workers: int = 32
    deleted_rows: int | None = None
    """Rows of a dropped shard that one transaction deletes; None: as many as the target's transactions may have."""

    reload_rows: int = 5_000
    """Rows of a chunk of a reload at most: windows of the source wait while it is read and written."""


LIMITS = Limits()


# --- a Spark session that is opened when it is needed


class LazySpark:
    """Returns the session at each call; opens it at the first one, and another one if that is lost.

    `starting` is called before Spark is started or reached, which takes some seconds. The end of `stack` closes all
    sessions.
    """

    def __init__(
        self, stack: ExitStack, connection: str, connections: Connections, name: str, starting: Callable[[], None]
    ) -> None:
        self._stack, self._connection, self._connections, self._name = stack, connection, connections, name
        self._starting = starting
        self._opened: list[Any] = []
        self._opening = threading.Lock()

    def __call__(self) -> Any:
        from unshard.adapters import spark  # pyspark and Arrow take half a second

        with self._opening:
            if not self._opened or not spark.is_usable(self._opened[-1]):
                address = allowed_spark_connection(self._connection)
                self._starting()
                session = spark.session(address, self._connections, self._name)
                self._opened.append(self._stack.enter_context(session))
            return self._opened[-1]

    @property
    def is_local(self) -> bool:
        """Whether the executors are in a JVM of this process, so that it gains nothing for a small job."""
        from unshard.adapters import spark

        return spark.is_local(spark.address(allowed_spark_connection(self._connection), self._connections))

    def begin(self) -> None:
        """Open the session in a thread, because a job will need it soon; that job meets an error again.

        If the stack ends before, nobody needs it any more: its start is broken off.
        """
        if self._opened:
            return
        thread = threading.Thread(target=self._begin, name="Spark starts", daemon=True)
        thread.start()
        self._stack.callback(self._abandon, thread)

    def _begin(self) -> None:
        with suppress(Exception):
            self()

    def _abandon(self, thread: threading.Thread) -> None:
        from unshard.adapters import spark

        spark.abandon(thread)


def open_ahead(spark: Callable[[], Any]) -> None:
    """Open a session in advance, if that is not done yet."""
    if isinstance(spark, LazySpark):
        spark.begin()


# --- the resources


T = TypeVar("T")


@dataclass(frozen=True)
class Work:
    """A task with everything that its units read and write."""

    task: Task
    target: Server
    sources: Mapping[str, Server]
    meta: Meta
    store: RelayStore
    storage: Storage
    spark: Callable[[], Any]
    """The live session for windows; the first call opens it."""
    bulk_spark: Callable[[], Any]
    """The session for dump, load and validation."""
    trial_tables: DdlTrialTables
    tables: PresentStructures
    writer: Callable[[], Writer]
    """Writer of rows into the target; the first call tests the write path."""
    limits: Limits = LIMITS
    _structures: dict[str, TableSchema] = field(default_factory=dict, repr=False)

    def structures(self, digests: set[str]) -> dict[str, TableSchema]:
        """Return the structures of those digests; each is read from the meta store once."""
        missing = digests - self._structures.keys()
        if missing:
            self._structures.update(self.meta.structures.get(missing))
        return {digest: self._structures[digest] for digest in digests}

    def source_connection(self, source: str) -> closing[Connection]:
        """Connect to a source for a block."""
        return closing(mysql.connect(self.sources[source], f"source {source}"))

    def target_connection(self) -> closing[Connection]:
        """Connect to the target for a block."""
        return closing(mysql.connect(self.target, "target"))

    def target_schema(self, target: TableId) -> TableSchema:
        """Read the present structure of a target table; a DDL may just have changed it."""
        return self.target_schemas({target})[target]

    def target_schemas(self, targets: set[TableId]) -> dict[TableId, TableSchema]:
        found = self.present(targets)
        for target in targets - found.keys():
            raise NoTargetTable(str(target))
        return found

    def present(self, targets: set[TableId]) -> dict[TableId, TableSchema]:
        return self.tables.read(targets) if targets else {}


def _silent() -> None:
    """Tell nobody that Spark starts."""


@contextlib.contextmanager
def open_work(
    task: Task,
    connections: Connections = environment_connections,
    *,
    only_reads: bool = False,
    starting: Callable[[], None] = _silent,
    will_load: bool = False,
) -> Iterator[Work]:
    """Resolve the task's secrets, create its meta tables, and close all resources at the end.

    `starting` is called before Spark is started or reached, which takes some seconds.
    With `only_reads` it creates a missing meta store, but does not complete one: it raises MetaTooOld.
    With `will_load`, a full load follows if the task is new. Then Spark starts while the meta store is created, which
    takes TiDB 40 ms for each table.
    """
    target = resolve(task.target, connections)
    meta = Meta(target, task.meta_schema, task.name)
    with contextlib.ExitStack() as stack:
        stack.callback(meta.close)
        if only_reads:
            with contextlib.suppress(MetaMissing):
                meta.refuse_other_version()
        work = stack.enter_context(work_with(task, meta, connections, starting))
        if will_load and task.task_mode is not TaskMode.INCREMENTAL and not meta.is_current():
            open_ahead(work.bulk_spark)
        meta.create_tables()
        yield work


@contextlib.contextmanager
def work_with(
    task: Task, meta: Meta, connections: Connections = environment_connections, starting: Callable[[], None] = _silent
) -> Iterator[Work]:
    """Resolve the task's secrets and open everything but the meta store, which the caller has opened."""
    target, access = resolve(task.target, connections), storage_access(task.options, connections)
    present = PresentStructures(target)
    live, bulk = task.options.spark_connection, task.options.bulk_connection
    is_remote = is_object_store(task.storage)
    place = BucketPlace(f"{task.storage}/relay", access) if is_remote else Path(task.storage) / "relay"
    with contextlib.ExitStack() as stack:
        stack.callback(present.close)
        spark = LazySpark(stack, live, connections, task.name, starting)
        yield Work(
            task=task,
            target=target,
            sources=MappingProxyType({i.source.id: resolve(i.source.endpoint, connections) for i in task.instances}),
            meta=meta,
            store=RelayStore(place),
            storage=Storage(task.storage, access),
            spark=spark,
            bulk_spark=spark if bulk == live else LazySpark(stack, bulk, connections, task.name, starting),
            trial_tables=DdlTrialTables(target, task.meta_schema),
            tables=present,
            writer=_once(lambda: _recorded_writer(target, meta)),
        )


def _recorded_writer(target: Server, meta: Meta) -> Writer:
    """Test how rows are written, and record the result for callers that only read the task."""
    writer = tried_writer(target, meta.schema)
    meta.write_paths.record(writer.writing)
    return writer


def _once(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function that creates a value at its first call. Windows of several sources call it from threads."""
    made: list[T] = []
    making = threading.Lock()

    def value() -> T:
        with making:
            if not made:
                made.append(make())
            return made[0]

    return value
