"""What a unit of a task works with: its servers, its meta store, its relay, its Spark sessions.

Opened once by whoever runs units (the command line, an operator, a test) and handed to each of them.
Secrets are resolved here and nowhere else. Spark is started on first use only, because an idle window
needs none and must stay cheap.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from unshard.adapters.meta import Meta
from unshard.adapters.objectstore import is_object_store
from unshard.adapters.parquet import Storage
from unshard.adapters.present import PresentStructures
from unshard.adapters.relay import BucketPlace, RelayStore
from unshard.adapters.shadow import ShadowTables
from unshard.adapters.target import Writer, tried_writer
from unshard.config import Connections, Task, environment_connections, resolve, storage_access
from unshard.core.model import ObjectAccess, Server, TableId, TableSchema
from unshard.errors.meta import MetaMissing
from unshard.errors.target import NoTargetTable

T = TypeVar("T")


@dataclass(frozen=True)
class Work:
    """A task together with everything that its units read and write."""

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
    shadow: ShadowTables
    tables: PresentStructures
    """What there is in the target."""
    writer: Callable[[], Writer]
    """How rows are written into the target; the first call tries it out."""
    _structures: dict[str, TableSchema] = field(default_factory=dict, repr=False)

    def structures(self, digests: set[str]) -> dict[str, TableSchema]:
        """Return the structures of those digests; each is read from the meta store once."""
        missing = digests - self._structures.keys()
        if missing:
            self._structures.update(self.meta.structures.get(missing))
        return {digest: self._structures[digest] for digest in digests}

    def target_schema(self, target: TableId) -> TableSchema:
        """Read the present structure of a target table, which a DDL may just have changed."""
        return self.target_schemas({target})[target]

    def target_schemas(self, targets: set[TableId]) -> dict[TableId, TableSchema]:
        """Read the present structures of several target tables at once."""
        found = self.present(targets)
        for target in targets - found.keys():
            raise NoTargetTable(str(target))
        return found

    def present(self, targets: set[TableId]) -> dict[TableId, TableSchema]:
        """Read the present structures of those target tables that are there."""
        return self.tables.read(targets) if targets else {}


@contextlib.contextmanager
def open_work(task: Task, connections: Connections = environment_connections, *,
              only_reads: bool = False) -> Iterator[Work]:  # fmt: skip
    """Resolve the task's secrets, migrate its meta store and close what was opened at the end.

    Who only reads makes a meta store where there is none, and leaves one of an older version alone: MetaTooOld.
    """
    target, access = resolve(task.target, connections), storage_access(task.options, connections)
    meta = Meta(target, task.meta_schema, task.name)
    present = PresentStructures(target)
    with contextlib.ExitStack() as stack:
        stack.callback(meta.close)
        stack.callback(present.close)
        if only_reads:
            with contextlib.suppress(MetaMissing):
                meta.refuse_other_version()
        meta.migrate()
        yield Work(
            task=task,
            target=target,
            sources=MappingProxyType({i.source.id: resolve(i.source.endpoint, connections) for i in task.instances}),
            meta=meta,
            store=RelayStore(_relay_place(task.storage, access)),
            storage=Storage(task.storage, access),
            spark=_lazily(stack, task.options.spark_connection, connections, task.name),
            bulk_spark=_lazily(stack, task.options.bulk_connection, connections, task.name),
            shadow=ShadowTables(target, task.meta_schema),
            tables=present,
            writer=_once(lambda: tried_writer(target, task.meta_schema)),
        )


def _relay_place(storage: str, access: ObjectAccess) -> Path | BucketPlace:
    """Return where the relay keeps its segments."""
    return BucketPlace(f"{storage}/relay", access) if is_object_store(storage) else Path(storage) / "relay"


def _lazily(stack: contextlib.ExitStack, connection: str, connections: Connections, name: str) -> Callable[[], Any]:
    def session() -> Any:
        from unshard.adapters import spark  # pyspark takes half a second to import

        return stack.enter_context(spark.session(connection, connections, name))

    return _once(session)


def _once(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function that makes a value at its first call. Windows of several sources call it from threads."""
    made: list[T] = []
    making = threading.Lock()

    def value() -> T:
        with making:
            if not made:
                made.append(make())
            return made[0]

    return value
