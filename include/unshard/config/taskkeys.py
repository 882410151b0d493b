"""Keys of a task file, and its block `unshard` as a value."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from unshard.config import textchecks
from unshard.config.declare import Block, ConfigKey, Ignored, declared, keys_of
from unshard.config.kinds import (
    blocks,
    boolean,
    byte_size,
    choice,
    duration,
    integer,
    named,
    nested,
    text,
    texts,
    words,
)
from unshard.config.rulekeys import ALLOW_LIST, EVENT_FILTER, MAPPING, ROUTE, ROW_FILTER
from unshard.config.sources import SERVER
from unshard.config.unitkeys import LOADER, MYDUMPER, OF_PHYSICAL, PHYSICAL, SYNCER, VALIDATOR
from unshard.core.checks.itemnames import IGNORABLE
from unshard.core.ddl.online import SHADOW_RULES, TRASH_RULES
from unshard.core.rows.rowerrors import RowErrors
from unshard.core.rules.shardrows import DropShardRows
from unshard.core.window.plan import WindowLimits

CLUSTERED_INDEX = "tidb_enable_clustered_index"
REMOVED = "DM itself has removed it"


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


class PrimaryKey(StrEnum):
    """Storage of the rows of a target table that unshard creates on TiDB."""

    DEFAULT = ""
    CLUSTERED = "clustered"
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


PRIMARY_KEYS = {key.value: key for key in (PrimaryKey.CLUSTERED, PrimaryKey.NONCLUSTERED)}


def rules_shown(rules: Iterable[str]) -> str:
    """Return rules as written in a file."""
    return ", ".join(f"`{rule}`" for rule in rules)


@dataclass(frozen=True, slots=True)
class Options:
    """The block `unshard`."""

    schedule: str = ConfigKey(
        "schedule",
        text("cron expression", textchecks.cron),
        "When live runs begin in Airflow. `* * * * *` means: at once, whenever a source has new binlog; this needs "
        "the triggerer. With another schedule each live run ends when it has caught up.",
        "* * * * *",
    ).field
    check_schedule: str = ConfigKey(
        "check-schedule",
        text("cron expression", textchecks.cron),
        "When Airflow compares the targets with their shards; each table is a mapped task of `unshard_check__<task>`.",
        "",
        shown="none: only if the DAG is triggered",
    ).field
    check_older_than: timedelta = ConfigKey(
        "check-older-than",
        duration(),
        "A scheduled check leaves out the ranges of a table that were found equal in this time.",
        timedelta(hours=24),
        shown="24h",
    ).field
    check_time: timedelta = ConfigKey(
        "check-time",
        duration(),
        "Longest time of the check of a table; the next one goes on with the ranges that were compared longest ago.",
        timedelta(hours=1),
        shown="1h",
    ).field
    masked_columns: tuple[str, ...] = ConfigKey(
        "masked-columns",
        texts(),
        "Columns of any table whose values `unshard_repair__<task>` does not show in Airflow; `*`: all columns.",
        (),
        shown="none",
    ).field
    live_run: timedelta = ConfigKey(
        "live-run",
        duration(),
        "Longest time of a live run in Airflow; a new one follows at once if there is work left.",
        timedelta(minutes=10),
        shown="10m",
    ).field
    idle_after: timedelta = ConfigKey(
        "idle-after",
        duration(),
        "Time without binlog after which a live run in Airflow ends. New binlog starts the next one.",
        timedelta(seconds=20),
        shown="20s",
    ).field
    sources_per_worker: int = ConfigKey(
        "sources-per-worker",
        integer(0),
        "Sources that share one process in Airflow.",
        0,
        shown="a quarter of the sources, so that a task has at most four processes",
    ).field
    lock_timeout: timedelta = ConfigKey(
        "lock-timeout",
        duration(),
        "Time that a DDL lock may wait for shards before its DAG run fails.",
        timedelta(hours=1),
        shown="1h",
    ).field
    lock_deadline: timedelta = ConfigKey(
        "lock-deadline",
        duration(),
        "Time that a DDL lock may be open before Airflow's deadline alert calls `[unshard] notifier`.",
        timedelta(),
        shown="none",
    ).field
    lag_deadline: timedelta = ConfigKey(
        "lag-deadline",
        duration(),
        "Age of a change that the targets lack at which Airflow's deadline alert calls `[unshard] notifier`, at the "
        "latest at twice this age. `unshard_lag__<task>` looks once in this time.",
        timedelta(),
        shown="none",
    ).field
    contract_delay: timedelta = ConfigKey(
        "contract-delay",
        duration(),
        "With `shard-mode: optimistic`: how long a target keeps what no shard needs any more, for shards that may "
        "go back. It counts from the last DDL of a shard.",
        timedelta(),
        shown="none",
    ).field
    storage_path: str = ConfigKey(
        "storage-path",
        text("path or URI", textchecks.storage_path, shown=False),
        "Storage of dumped rows, relay segments and held rows, in a folder named after the task. A relative path "
        "begins at the folder of the task file. Every Spark worker must reach it: a folder (`file://` is allowed), "
        "which a cluster shares by NFS or similar, `s3://bucket/prefix` of an object store, or "
        "`webhdfs://host:port/folder` of HDFS, see [below](#object-stores).",
        "unshard-storage",
    ).field
    """Absolute path or URI, without the task's name: `Task.storage` has it."""
    storage_conn_id: str = ConfigKey(
        "storage-conn-id",
        text("text", textchecks.connection_id, shown=False),
        "Airflow Connection of the object store, see [below](#object-stores).",
        "",
        shown="the environment",
    ).field
    spark_connection: str = ConfigKey(
        "spark-connection",
        text("text", textchecks.spark_connection),
        "Spark for windows: a master (`local[*]`, `spark://…`, `yarn`), a Connect server (`sc://host:port`), or "
        "the id of an Airflow connection. Addresses of other machines must be [allowed](#secrets). With "
        "`local[…]`, the process itself runs windows of up to 4 MiB of binlog, and starts Spark for larger ones "
        "only.",
        "local[*]",
    ).field
    bulk_connection: str = ConfigKey(
        "bulk-connection",
        text("text", textchecks.spark_connection),
        "Spark for dump, load and validation.",
        shown="as `spark-connection`",
    ).field
    window: WindowLimits = declared(
        ConfigKey(
            "window-size",
            byte_size(),
            "Largest number of bytes of binlog and held files in one section of a window; a single larger transaction "
            "is one section. A backlog of any size is split into windows. A window that only applies rows to one "
            "target may have up to eight sections; each is committed before the next one. Other windows have one "
            "section. A section ends at the end of a relay segment (8 MiB). Its size follows the measured speed, from "
            "a sixteenth of this value up to the whole value; the first window has a quarter. The plan of a window "
            "that has begun does not change, except that it ends before a section that fails. With more than 128 MiB "
            "a window has one section. If it has one target, several tasks read it before one writes, which can take "
            "twice as long.",
            128 * 1024 * 1024,
            shown="128MiB",
        ),
        ConfigKey(
            "window-time",
            duration(),
            "Intended duration of a window, estimated from the bytes per second of the last five.",
            timedelta(seconds=30),
            shown="30s",
        ),
        ConfigKey(
            "window-rows",
            integer(1),
            "Intended maximum of row changes in a section of a window, estimated from the rows per byte of the last "
            "five windows. It limits the memory of Spark's workers if the binlog is compressed.",
            1_000_000,
        ),
    )
    filter_load: bool = ConfigKey(
        "filter-load",
        boolean(),
        "Whether `insert-value-expr` of expression filters also filters the load; in DM it does not.",
        False,
    ).field
    row_errors: RowErrors = ConfigKey(
        "row-errors",
        choice(words(RowErrors)),
        "Action for a row of a window or of the load that does not fit its target: `stop` suspends the target "
        "(rows of that source are held, see [operations](operations.md)); `divert` writes the row into the table "
        "`row_error` of the meta schema, and the target lacks it.",
        RowErrors.STOP,
    ).field
    drop_shard_rows: DropShardRows = ConfigKey(
        "drop-shard-rows",
        choice(words(DropShardRows)),
        "Rows of a shard of a merged target after DROP TABLE, DROP DATABASE or TRUNCATE: `keep` leaves them in the "
        "target, as DM does; `delete` removes them. `delete` needs extracted columns or `partition id` mappings "
        "that tell the shards apart, see [life of a shard DDL](life-of-a-shard-ddl.md#rows-of-a-dropped-shard). "
        "A change applies to statements that no window has reached.",
        DropShardRows.KEEP,
    ).field
    primary_key: PrimaryKey = ConfigKey(
        "target-primary-key",
        choice(PRIMARY_KEYS),
        "Storage of the target tables that unshard creates on TiDB: by the primary key (`clustered`), which no "
        "later DDL can drop or change, or by a hidden row id (`nonclustered`). unshard sets "
        "`tidb_enable_clustered_index` in every session. Only TiDB has this choice.",
        PrimaryKey.DEFAULT,
        shown="the server's",
    ).field
    unsupported_indexes: UnsupportedIndexes = ConfigKey(
        "unsupported-indexes",
        choice(words(UnsupportedIndexes)),
        "Action if the target refuses a non-unique index of the shards: `error` fails `unshard check`; "
        "`leave-out` creates the target without it, and `check` and `run` name it.",
        UnsupportedIndexes.ERROR,
    ).field
    is_strict: bool = False
    """In optimistic mode, a DDL waits for an operator if its own text does not lead to the join of the shards."""


OPTIONS = Block(
    "unshard's own block `unshard`",
    (
        *keys_of(Options),
        ConfigKey(
            "sources",
            texts(text("path", textchecks.not_empty)),
            "Source files; relative paths begin at the folder of the task file.",
            shown="`sources/*.yaml` next to the task file, or next to its folder if that is `tasks`",
        ),
    ),
)

META = Block(
    "Start: `meta` of an instance",
    (
        ConfigKey("binlog-name", text("text", textchecks.binlog_file), "Binlog file in which the windows begin."),
        ConfigKey(
            "binlog-pos", integer(0), "Byte position in the file, between two transactions; values below 4 mean 4.", 4
        ),
        ConfigKey(
            "binlog-gtid",
            text("text", textchecks.gtids),
            "GTIDs of all transactions before the start, instead of `binlog-name`; ignored if both are set. `uuid:0` "
            "means no transaction. If both are empty, the task needs `--start-time`.",
        ),
    ),
)

INSTANCE = Block(
    "Instance: an entry of `mysql-instances`",
    (
        ConfigKey(
            "source-id", text("text", textchecks.source_id), "Id of a source, from its source file.", required=True
        ),
        ConfigKey("meta", nested(META), "Start of a task in task-mode `incremental`; ignored in other modes."),
        ConfigKey("route-rules", texts(), "Names of routes.", ()),
        ConfigKey("filter-rules", texts(), "Names of binlog event filters.", ()),
        ConfigKey("expression-filters", texts(), "Names of expression filters.", ()),
        ConfigKey("column-mapping-rules", texts(), "Names of column mappings.", ()),
        ConfigKey("block-allow-list", text(), "Name of a block-allow list."),
        ConfigKey("black-white-list", text(), "Old name of `block-allow-list`."),
        ConfigKey("mydumper-config-name", text(), "Name of a block in `mydumpers`."),
        ConfigKey("mydumper", nested(MYDUMPER), "The same settings inline."),
        ConfigKey("mydumper-thread", integer(0), "Instead of its `threads`, unless it is 0."),
        ConfigKey("loader-config-name", text(), "Name of a block in `loaders`."),
        ConfigKey("loader", nested(LOADER), "The same settings inline."),
        ConfigKey("loader-thread", integer(0), "Instead of its `pool-size`, unless it is 0."),
        ConfigKey("syncer-config-name", text(), "Name of a block in `syncers`."),
        ConfigKey("syncer", nested(SYNCER), "The same settings inline."),
        ConfigKey("validator-config-name", text(), "Name of a block in `validators`."),
        Ignored("syncer-thread", "unshard applies rows in windows"),
    ),
)

LIGHTNING = Block(
    "TiDB Lightning: `tidb`",
    (
        ConfigKey("backend", choice({"tidb": "tidb"}, {"local": PHYSICAL}), "Rows are loaded by SQL."),
        Ignored("status-port", OF_PHYSICAL),
        Ignored("pd-addr", OF_PHYSICAL),
    ),
)

TASK = Block(
    "Task file",
    (
        ConfigKey(
            "name",
            text("text", textchecks.task_name),
            "Name of the task, at most 64 characters. Names of DAGs and folders have letters, digits, `_`, `.` and `-` "
            "of it; other characters become `_`, and a number that belongs to the name follows.",
            required=True,
        ),
        ConfigKey(
            "task-mode",
            choice(words(TaskMode)),
            "`full`: dump and load; `incremental`: windows from `meta`, a start time or the current position; `all`: "
            "both. `dump`: only dump, each table in one snapshot; `load`: only load the dump of a task of the same "
            "name; `load&sync`: also follow the binlog after it.",
            required=True,
        ),
        ConfigKey(
            "shard-mode",
            choice(words(ShardMode)),
            "Coordination of the shards' DDLs. `pessimistic`: the target gets a DDL when all shards have run it. "
            "`optimistic`: it follows the join of its shards, and no shard waits for another "
            "([life of a shard DDL](life-of-a-shard-ddl.md#optimistic-mode)). Without it DDLs are coordinated as with "
            "`pessimistic`, but more targets are one-to-one: TRUNCATE, DROP and RENAME TABLE of their only shard are "
            "replicated. A target with a single shard never waits. An explicit `is-sharding` must agree with it, as in "
            "DM.",
            ShardMode.NONE,
        ),
        ConfigKey("is-sharding", boolean(), "DM's old switch. unshard always coordinates shards.", True),
        ConfigKey(
            "meta-schema",
            text("text", textchecks.schema_name),
            "Schema in the target for unshard's own tables.",
            "unshard_meta",
        ),
        ConfigKey(
            "timezone",
            text("time zone", textchecks.time_zone),
            "IANA name or offset: time zone of DDLs whose session has that of its machine, and of conversions from and "
            "to TIMESTAMP in optimistic mode. Other rows do not depend on it, because TIMESTAMP is transferred in UTC.",
            "+00:00",
        ),
        ConfigKey("case-sensitive", boolean(), "Whether patterns of routes and lists are case-sensitive.", False),
        ConfigKey("target-database", nested(SERVER), "The target server, see below.", required=True),
        ConfigKey("mysql-instances", blocks(INSTANCE), "The sources of the task, see below.", required=True),
        ConfigKey("routes", named(ROUTE), "Routes by name, see below.", shown="none"),
        ConfigKey("filters", named(EVENT_FILTER), "Binlog event filters by name, see below.", shown="none"),
        ConfigKey("expression-filter", named(ROW_FILTER), "Expression filters by name, see below.", shown="none"),
        ConfigKey("column-mappings", named(MAPPING), "Column mappings by name, see below.", shown="none"),
        ConfigKey("block-allow-list", named(ALLOW_LIST), "Lists by name, see below.", shown="none"),
        ConfigKey("black-white-list", named(ALLOW_LIST), "Old name of `block-allow-list`.", shown="none"),
        ConfigKey("mydumpers", named(MYDUMPER), "Settings of the dump by name, see below.", shown="none"),
        ConfigKey("loaders", named(LOADER), "Settings of the load by name, see below.", shown="none"),
        ConfigKey("syncers", named(SYNCER), "Settings of windows by name, see below.", shown="none"),
        ConfigKey("validators", named(VALIDATOR), "DM's continuous validation by name, see below.", shown="none"),
        ConfigKey(
            "online-ddl",
            boolean(),
            "Whether unshard recognises the tables with which gh-ost and pt-online-schema-change change a shard: they "
            "are not shards, and their DDL becomes the shard's DDL at the cut-over. If false, they are ordinary "
            "tables. If the file has the key, the names of the rules identify these tables, as in DM. Without the "
            "key, a sign of a tool is required as well.",
            True,
        ),
        ConfigKey(
            "shadow-table-rules",
            texts(text("regular expression", textchecks.one_group)),
            "Names of shadow tables; the group `( )` is the shard's name. With your own rules, or with "
            "`online-ddl: true` in the file, every copy of a shard with such a name is a shadow table. Otherwise the "
            "triggers, log or comment of a tool must also exist; without them the table is an ordinary table.",
            (),
            shown=rules_shown(SHADOW_RULES),
        ),
        ConfigKey(
            "trash-table-rules",
            texts(text("regular expression", textchecks.one_group)),
            "Names of the tools' other tables.",
            (),
            shown=rules_shown(TRASH_RULES),
        ),
        ConfigKey(
            "ignore-checking-items",
            texts(choice({name: name for name in IGNORABLE})),
            "Names of prechecks whose problems are shown but do not stop the task; `all` for every precheck. An error"
            " at which the task would stop anyway cannot be ignored.",
            (),
            shown="none",
        ),
        ConfigKey("unshard", nested(OPTIONS), "unshard's own settings, see below."),
        ConfigKey(
            "strict-optimistic-shard-mode",
            boolean(),
            "With `shard-mode: optimistic`: a DDL of a shard is executed as it is, or waits for an operator. Otherwise "
            "unshard executes its own ALTER TABLE if the text of the shard does not lead to the join.",
            False,
        ),
        ConfigKey(
            "online-ddl-scheme",
            choice({"gh-ost": "gh-ost", "pt": "pt"}),
            "DM's old key; it means `online-ddl: true`. unshard follows both tools.",
            "",
            shown="none",
        ),
        ConfigKey(
            "collation_compatible",
            choice({"loose": "loose", "strict": "strict"}),
            "Both are the same here: unshard creates target tables with the collations of the shards, also if their "
            "server does not print them. `unshard check` names a collation that the target does not know.",
            "loose",
        ),
        Ignored("remove-meta", "use `unshard run --remove-meta` or `unshard stop --remove-meta` once", ("false",)),
        ConfigKey("clean-dump-file", boolean(), "Whether dumped files are removed after every source is loaded.", True),
        Ignored("experimental", "every window commits its checkpoint", ("false",)),
        Ignored(
            "mariadb2tidb", "target tables get the structures of the shards; `check` names what the target refuses"
        ),
        Ignored("enable-heartbeat", REMOVED, ("false",)),
        Ignored("heartbeat-update-interval", REMOVED, ("1",)),
        Ignored("heartbeat-report-interval", REMOVED, ("1", "10")),
        ConfigKey(
            "tidb",
            nested(LIGHTNING),
            "DM's old block for TiDB Lightning. Its `backend` may be `tidb`: rows are loaded by SQL; `local` is the "
            "physical import. `status-port` and `pd-addr` have no effect.",
        ),
        Ignored("ansi-quotes", "the binlog contains the sql_mode of a statement", ("false",)),
    ),
)
