"""A loaded task as frozen values, independent of YAML.

Secrets stay references if the file has references. `unshard.config.secrets.resolve` looks them up when a
connection opens, so loading a task needs neither Airflow nor environment variables.
"""

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from unshard.core.ddl.onetoone import Feeds
from unshard.core.ddl.online import DEFAULT_RULES, OnlineRules
from unshard.core.model import Location, Verify
from unshard.core.rows.rowerrors import RowErrors
from unshard.core.rules.filters import EventRule
from unshard.core.rules.routing import Routing
from unshard.core.rules.shardrows import DropShardRows
from unshard.core.window.pace import WindowLimits
from unshard.errors.config import SourceNotInTask

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
DIGEST = 8
"""Hexadecimal digits at the end of the plain name of a task with special characters."""
BRIEFLY = 2
"""Warnings of one kind that one line replaces."""
CLUSTERED_INDEX = "tidb_enable_clustered_index"


class TaskMode(StrEnum):
    """Steps of a task."""

    FULL = "full"
    INCREMENTAL = "incremental"
    ALL = "all"
    DUMP = "dump"
    LOAD = "load"
    LOAD_SYNC = "load&sync"

    @property
    def dumps(self) -> bool:
        """Whether the task dumps the existing rows."""
        return self in (TaskMode.FULL, TaskMode.ALL, TaskMode.DUMP)

    @property
    def loads(self) -> bool:
        """Whether the task loads the dump."""
        return self not in (TaskMode.INCREMENTAL, TaskMode.DUMP)

    @property
    def begins(self) -> bool:
        """Whether the task takes its own start position instead of that of an earlier dump."""
        return self not in (TaskMode.LOAD, TaskMode.LOAD_SYNC)

    @property
    def syncs(self) -> bool:
        """Whether the task follows the binlog."""
        return self in (TaskMode.INCREMENTAL, TaskMode.ALL, TaskMode.LOAD_SYNC)


class ShardMode(StrEnum):
    """Mode in which the DDLs of shards are coordinated."""

    NONE = ""
    """The file names none. DDLs of several shards are coordinated nevertheless (core.ddl.onetoone)."""
    PESSIMISTIC = "pessimistic"
    OPTIMISTIC = "optimistic"
    """The target follows the join of its shards."""


class OnDuplicate(StrEnum):
    """Action if two shards have the same key."""

    ERROR = "error"
    REPLACE = "replace"
    IGNORE = "ignore"


class Consistency(StrEnum):
    """Consistency of a dump."""

    AUTO = "auto"
    """Tables with a key in chunks without a lock, repaired by the binlog; others in one snapshot."""
    SNAPSHOT = "snapshot"
    """Every table in one piece, in a consistent snapshot of its own."""
    LOCK = "lock"
    """Every table in one piece, under a lock of its own that blocks writers until the table is read."""


class ImportMode(StrEnum):
    """DM's import modes. Only used to reject the unsupported ones."""

    LOGICAL = "logical"


class Validation(StrEnum):
    """DM's continuous validation. Only used to reject the unsupported modes."""

    NONE = "none"


class PrimaryKey(StrEnum):
    """Storage of the rows of a target table that unshard creates on TiDB."""

    DEFAULT = ""
    """The server's default."""
    CLUSTERED = "clustered"
    """By the primary key, which no later DDL can change."""
    NONCLUSTERED = "nonclustered"
    """By a hidden row id."""

    @property
    def session(self) -> tuple[tuple[str, str], ...]:
        """Session variables with which TiDB creates such tables."""
        values = {PrimaryKey.CLUSTERED: "ON", PrimaryKey.NONCLUSTERED: "OFF"}
        return ((CLUSTERED_INDEX, values[self]),) if self in values else ()


class UnsupportedIndexes(StrEnum):
    """Action if the target refuses a non-unique index of the shards."""

    ERROR = "error"
    LEAVE_OUT = "leave-out"


class Flavor(StrEnum):
    """Server product of a source."""

    DETECT = ""
    MYSQL = "mysql"
    MARIADB = "mariadb"


@dataclass(frozen=True, slots=True)
class Security:
    """Paths of the certificates of a connection. They are read when it opens."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    verify: Verify | None = None
    """None: as strict as the other keys permit."""
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and account of a server from the files; None for values of an Airflow connection."""

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
    """Replica id of the relay; derived from task and source if the file has 0."""
    flavor: Flavor
    path: Path
    case_sensitive: bool = False
    filters: tuple[EventRule, ...] = ()
    """Rules for every task."""


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """From `mydumpers`."""

    threads: int
    chunk_rows: int
    consistency: Consistency
    rate: int = 0
    """Bytes per second; 0 is unlimited."""
    where: str = ""
    """Condition of the dumped rows; empty for all rows."""
    where_place: str = ""
    """Place of the condition in the task file."""


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
    """Settings of one source in a task."""

    source: Source
    routing: Routing
    start: Location | None
    """From `meta`; only in task-mode incremental."""
    start_gtid: str
    """The start as GTIDs; the source resolves them to a position."""
    dump: DumpOptions
    load: LoadOptions
    sync: SyncOptions
    online: OnlineRules | None = DEFAULT_RULES
    """Name rules for tables of online-DDL tools; None treats them as ordinary tables."""
    start_time: datetime | None = None
    """The start as a time; set when the task is started, never in a file."""
    start_unset: str = ""
    """Place of a `meta` without a position: the task begins only with a start time. Empty for any other `meta`."""


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
    """Airflow connection of an object store; empty for the environment's credentials."""
    primary_key: PrimaryKey = PrimaryKey.DEFAULT
    unsupported_indexes: UnsupportedIndexes = UnsupportedIndexes.ERROR
    drop_shard_rows: DropShardRows = DropShardRows.KEEP
    contract_delay: timedelta = timedelta()
    """How long a target that follows the join keeps what no shard needs any more."""
    live_run: timedelta = timedelta(minutes=10)
    """Longest time of a live run in Airflow."""
    idle_after: timedelta = timedelta(seconds=20)
    """Time without binlog after which a live run in Airflow ends."""
    sources_per_worker: int = 0
    """Sources that share one process in Airflow; 0: a quarter of them."""
    is_strict: bool = False
    """In optimistic mode, a DDL waits for an operator if its own text does not lead to the join of the shards."""


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
    """Whether dumped files are removed after the load."""
    ignored_checks: tuple[str, ...] = ()
    """Prechecks whose errors do not stop the task."""
    warnings: tuple[str, ...] = ()
    """Warnings about accepted values, shown on every start."""
    idle: tuple[str, ...] = ()
    """Those of `warnings` that are about values without effect; only their number is shown, unless asked for."""
    passwords: tuple[str, ...] = ()
    """Those of `warnings` that are about passwords in files; only their number is shown, unless asked for."""
    files: tuple[tuple[Path, int], ...] = field(default=(), compare=False)
    """Its file and those of its sources, with the times of their last changes (`has_changed`)."""

    @property
    def brief_warnings(self) -> tuple[str, ...]:
        """The warnings, with one line for those about values without effect, and one for those about passwords."""
        counted = {
            self.idle: "values of the files have no effect here",
            self.passwords: "passwords are in the files; use conn-id or password-env instead",
        }
        many = {texts: told for texts, told in counted.items() if len(texts) >= BRIEFLY}
        folded = {text for texts in many for text in texts}
        return (
            *(text for text in self.warnings if text not in folded),
            *(f"{self.path}: {len(texts)} {told}; `unshard check -v` lists them" for texts, told in many.items()),
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """Ids of the sources, in the order of the file."""
        return tuple(instance.source.id for instance in self.instances)

    @property
    def plain_name(self) -> str:
        """The name for DAG ids and folders; special characters become `_`, and a digest keeps such names distinct."""
        if PLAIN_NAME.fullmatch(self.name):
            return self.name
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", self.name).lstrip(".-")
        return f"{plain}.{hashlib.sha256(self.name.encode()).hexdigest()[:DIGEST]}"

    @property
    def storage(self) -> str:
        """Storage of this task's files: absolute path or URI."""
        return f"{self.options.storage_path.rstrip('/')}/{self.plain_name}"

    @property
    def checks_foreign_keys(self) -> bool:
        """Whether the session of the target has `foreign_key_checks: 1`."""
        values = {name.lower(): value for name, value in self.target.session}
        return values.get("foreign_key_checks", "").lower() in ("1", "on", "true")

    @property
    def feeds(self) -> Feeds:
        """The routes of all sources, which decide which targets are one-to-one."""
        removes_rows = self.options.drop_shard_rows is DropShardRows.DELETE
        routings = tuple(instance.routing for instance in self.instances)
        return Feeds(routings, self.shard_mode is not ShardMode.NONE, removes_rows)

    def instance(self, source: str) -> Instance:
        """Return the settings of one source."""
        for instance in self.instances:
            if instance.source.id == source:
                return instance
        raise SourceNotInTask(self.name, source, ", ".join(self.sources))
