"""What a task is, once its files are read: frozen values without a trace of YAML.

Secrets stay references where the file has references; `unshard.config.secrets.resolve` looks them up
at the moment of connecting, so that loading a task needs neither Airflow nor an environment.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from unshard.core.eventfilter import EventRule
from unshard.core.model import Location, Verify
from unshard.core.online import DEFAULT_RULES, OnlineRules
from unshard.core.pace import WindowLimits
from unshard.core.routing import Routing
from unshard.core.rowerrors import RowErrors
from unshard.errors.config import SourceNotInTask

CLUSTERED_INDEX = "tidb_enable_clustered_index"


class TaskMode(StrEnum):
    """Which units a task has."""

    FULL = "full"
    INCREMENTAL = "incremental"
    ALL = "all"
    DUMP = "dump"
    LOAD = "load"
    LOAD_SYNC = "load&sync"

    @property
    def dumps(self) -> bool:
        """Whether the rows that exist at the start are dumped."""
        return self in (TaskMode.FULL, TaskMode.ALL, TaskMode.DUMP)

    @property
    def loads(self) -> bool:
        """Whether what is dumped is loaded."""
        return self not in (TaskMode.INCREMENTAL, TaskMode.DUMP)

    @property
    def begins(self) -> bool:
        """Whether it begins by itself, and not where a dump has ended."""
        return self not in (TaskMode.LOAD, TaskMode.LOAD_SYNC)

    @property
    def syncs(self) -> bool:
        """Whether the binlog is followed."""
        return self in (TaskMode.INCREMENTAL, TaskMode.ALL, TaskMode.LOAD_SYNC)


class ShardMode(StrEnum):
    """How the DDLs of shards are coordinated."""

    PESSIMISTIC = "pessimistic"


class OnDuplicate(StrEnum):
    """What happens when two shards bring the same key."""

    ERROR = "error"
    REPLACE = "replace"
    IGNORE = "ignore"


class Consistency(StrEnum):
    """How a dump sees one moment."""

    AUTO = "auto"
    """Keyed tables in chunks without a lock, repaired by the binlog; others in one snapshot."""
    SNAPSHOT = "snapshot"
    """Every table in one piece and one consistent snapshot of its own."""
    LOCK = "lock"
    """Every table in one piece, under a lock of its own that keeps writers out until it is read."""


class ImportMode(StrEnum):
    """How rows are loaded; read so that other modes of DM are refused, used by nobody."""

    LOGICAL = "logical"


class Validation(StrEnum):
    """How rows are validated all the time; read so that other modes of DM are refused, used by nobody."""

    NONE = "none"


class PrimaryKey(StrEnum):
    """How TiDB stores the rows of a target table that unshard creates."""

    DEFAULT = ""
    """As the server does it by default."""
    CLUSTERED = "clustered"
    """By the primary key, which no DDL can change then."""
    NONCLUSTERED = "nonclustered"
    """By a hidden number."""

    @property
    def session(self) -> tuple[tuple[str, str], ...]:
        """The session variables by which TiDB creates such tables."""
        values = {PrimaryKey.CLUSTERED: "ON", PrimaryKey.NONCLUSTERED: "OFF"}
        return ((CLUSTERED_INDEX, values[self]),) if self in values else ()


class UnsupportedIndexes(StrEnum):
    """What happens where the target refuses a non-unique index of the shards."""

    ERROR = "error"
    LEAVE_OUT = "leave-out"


class Flavor(StrEnum):
    """The make of a source."""

    DETECT = ""
    MYSQL = "mysql"
    MARIADB = "mariadb"


@dataclass(frozen=True, slots=True)
class Security:
    """Where the certificates of a connection are; nothing is read before somebody connects."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    verify: Verify | None = None
    """None: as much as the other keys make possible."""
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How the files say to reach a server; None where a connection supplies it."""

    host: str | None
    port: int | None
    user: str | None
    password: str | None = field(default=None, repr=False)
    password_env: str | None = None
    conn_id: str | None = None
    session: tuple[tuple[str, str], ...] = ()
    password_file: Path | None = None
    security: Security | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """One upstream server, from its source file."""

    id: str
    endpoint: Endpoint
    server_id: int
    """The id that the relay shows upstream; derived from task and source where the file has 0."""
    flavor: Flavor
    path: Path
    case_sensitive: bool = False
    filters: tuple[EventRule, ...] = ()
    """Rules that hold in every task."""


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """From `mydumpers`."""

    threads: int
    chunk_rows: int
    consistency: Consistency
    rate: int = 0
    """Bytes per second; 0: without a limit."""
    where: str = ""
    """The condition on rows that are dumped; empty: all are."""
    where_place: str = ""
    """Where the task file says so."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """From `loaders`."""

    threads: int
    on_duplicate: OnDuplicate


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """From `syncers`."""

    safe_mode: bool
    workers: int


@dataclass(frozen=True, slots=True)
class Instance:
    """One source's part in a task."""

    source: Source
    routing: Routing
    start: Location | None
    """From `meta`; only in task-mode incremental."""
    start_gtid: str
    """The same as GTIDs, of which the source itself knows the place."""
    dump: DumpOptions
    load: LoadOptions
    sync: SyncOptions
    online: OnlineRules | None = DEFAULT_RULES
    """How tables of tools that change shards online are called; None: they are tables like others."""
    start_time: datetime | None = None
    """The same as a time; from whoever starts the task, never from a file."""


@dataclass(frozen=True, slots=True)
class Options:
    """The block `unshard`."""

    schedule: str
    lock_timeout: timedelta
    storage_path: str
    """Absolute path or URI, without the task's name: `Task.storage` has it."""
    spark_connection: str
    bulk_connection: str
    window: WindowLimits
    filter_load: bool = False
    row_errors: RowErrors = RowErrors.STOP
    storage_conn_id: str = ""
    """Connection of an object store; empty: the environment's."""
    primary_key: PrimaryKey = PrimaryKey.DEFAULT
    unsupported_indexes: UnsupportedIndexes = UnsupportedIndexes.ERROR


@dataclass(frozen=True, slots=True)
class Task:
    """A task file with the source files it uses."""

    name: str
    path: Path
    task_mode: TaskMode
    shard_mode: ShardMode
    meta_schema: str
    timezone: str
    target: Endpoint
    instances: tuple[Instance, ...]
    options: Options
    clean_dump_file: bool = True
    """Whether dumped files go once they are loaded."""
    ignored_checks: tuple[str, ...] = ()
    """Prechecks that stop nothing."""
    warnings: tuple[str, ...] = ()
    """What was accepted but should be changed; for a human, on every start."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Ids of the sources, in the order of the file."""
        return tuple(instance.source.id for instance in self.instances)

    @property
    def storage(self) -> str:
        """Where this task keeps its files: absolute path or URI."""
        return f"{self.options.storage_path.rstrip('/')}/{self.name}"

    def instance(self, source: str) -> Instance:
        """Return the part of one source."""
        for instance in self.instances:
            if instance.source.id == source:
                return instance
        raise SourceNotInTask(self.name, source, ", ".join(self.sources))
