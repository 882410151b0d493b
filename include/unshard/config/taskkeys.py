"""Declared keys of a task file."""

from collections.abc import Iterable
from datetime import timedelta

from unshard.config import checks
from unshard.config.declare import Block, Ignored, Key, Later
from unshard.config.eventfilters import EVENT_FILTER
from unshard.config.kinds import blocks, boolean, choice, duration, integer, named, nested, size, text, texts, words
from unshard.config.model import PrimaryKey, ShardMode, TaskMode, UnsupportedIndexes
from unshard.config.rowfilters import ROW_FILTER
from unshard.config.sourcekeys import SERVER
from unshard.config.unitkeys import LOADER, MYDUMPER, SYNCER, VALIDATOR
from unshard.core.extract import Origin
from unshard.core.mapping import Expression
from unshard.core.online import SHADOW_RULES, TRASH_RULES
from unshard.core.prechecks import IGNORABLE
from unshard.core.rowerrors import RowErrors

GIVEN_UP = "DM itself has given it up"

KEYS = {key.value: key for key in (PrimaryKey.CLUSTERED, PrimaryKey.NONCLUSTERED)}
SHARD_MODES = {"": ShardMode.PESSIMISTIC, "pessimistic": ShardMode.PESSIMISTIC}


def rules_shown(rules: Iterable[str]) -> str:
    """Return rules as they stand in a file."""
    return ", ".join(f"`{rule}`" for rule in rules)


OPTIONS = Block(
    "unshard's own block `unshard`",
    (
        Key("schedule", text("cron expression", checks.cron), "When windows run even if nothing asks for them.",
            "* * * * *"),
        Key("lock-timeout", duration(), "How long a DDL lock may wait for shards before its DAG run turns red.",
            timedelta(hours=1), shown="1h"),
        Key("storage-path", text("path or URI", checks.storage_path, shown=False), "Where dumped rows, relay segments "
            "and held rows are kept, in a folder named after the task. A relative path begins at the folder of the "
            "task file. Every Spark worker must reach it: a folder (`file://` is understood), which a cluster shares "
            "by NFS or the like, `s3://bucket/prefix` of an object store, or `webhdfs://host:port/folder` of HDFS, see "
            "[below](#object-stores).",
            "unshard-storage"),
        Key("storage-conn-id", text("text", checks.connection_id, shown=False), "Airflow Connection of the object "
            "store, see [below](#object-stores).", "", shown="the environment"),
        Key("spark-connection", text("text", checks.spark_connection), "What runs windows: a Spark master (`local[*]`, "
            "`spark://…`, `yarn`), a Connect server (`sc://host:port`), or the id of an Airflow connection.",
            "local[*]"),
        Key("bulk-connection", text("text", checks.spark_connection), "The same for dump, load and validation.",
            shown="as `spark-connection`"),
        Key("window-size", size(), "Bytes of binlog and of held files that one window takes at most, but for a single "
            "larger transaction: a backlog of any size becomes windows. They end where a segment of the relay ends "
            "(8 MiB) and adapt to the measured speed, from a sixteenth of this up to all of it; the first one takes a "
            "quarter. The plan of a window that has begun never changes.", 64 * 1024 * 1024, shown="64MiB"),
        Key("window-time", duration(), "How long a window should take, by the bytes per second of the last five.",
            timedelta(seconds=30), shown="30s"),
        Key("window-rows", integer(1), "Row changes that a window should have at most, by the rows per byte of the "
            "last five; it bounds the memory of Spark's workers where the binlog is compressed.", 1_000_000),
        Key("filter-load", boolean(), "Whether `insert-value-expr` of expression filters leaves rows out of the load, "
            "too; DM's does not.", False),
        Key("row-errors", choice(words(RowErrors)), "What happens to a row of a window or of the load that does not "
            "fit its target: `stop` that target (its rows of that source are held, see [operations](operations.md)), "
            "or `divert`: the row goes into the table `row_error` of the meta schema, and the target lacks it.",
            RowErrors.STOP),
        Key("target-primary-key", choice(KEYS), "How TiDB stores the target tables that unshard creates: by the "
            "primary key (`clustered`), which no DDL can drop or change later, or by a hidden number (`nonclustered`). "
            "It sets `tidb_enable_clustered_index` in every session. Only TiDB has this choice.", PrimaryKey.DEFAULT,
            shown="the server's"),
        Key("unsupported-indexes", choice(words(UnsupportedIndexes)), "What happens where the target refuses an index "
            "of the shards that is not unique: `error` of `unshard check`, or `leave-out`: the target is created "
            "without it, and `check` and `run` name it.", UnsupportedIndexes.ERROR),
        Key("sources", texts(text("path", checks.not_empty)), "Source files; relative paths begin at the folder of the "
            "task file.", shown="`sources/*.yaml` beside the task file"),
    ),
)  # fmt: skip

EXTRACT_FROM = {Origin.TABLE: "shard's table name", Origin.SCHEMA: "shard's schema name", Origin.SOURCE: "source id"}
EXTRACT = {
    origin: Block(
        f"Extractor: `extract-{origin}` of a route",
        (
            Key(f"{origin}-regexp", text("regular expression", checks.not_empty), "Found in the name as it is written; "
                "what its groups `( )` hold is the value, one behind the other.", required=True),
            Key("target-column", text("text", checks.column_name), "Column of the target that gets the value.",
                required=True),
        ),
    )
    for origin in Origin
}  # fmt: skip

ROUTE = Block(
    "Route: a block below `routes`",
    (
        Key("schema-pattern", text("pattern", checks.not_empty), "Schemas that the rule is for.", required=True),
        Key("table-pattern", text("pattern"), "Tables; without it the rule is of schema level and yields to rules "
            "that have one.", ""),
        Key("target-schema", text("text", checks.schema_name), "Schema in the target.", required=True),
        Key("target-table", text("text", checks.table_name), "Table in the target; empty: the shard's own name.", ""),
        *(Key(f"extract-{origin}", nested(EXTRACT[origin]), f"Writes what the {what} says into a column.")
          for origin, what in EXTRACT_FROM.items()),
    ),
)  # fmt: skip

MAPPING = Block(
    "Column mapping: a block below `column-mappings`",
    (
        Key("schema-pattern", text("pattern", checks.not_empty), "Schemas that the rule is for.", required=True),
        Key("table-pattern", text("pattern"), "Tables; without it the rule yields to rules that have one.", ""),
        Key("expression", choice(words(Expression)), "What is done to the values: `partition id`, `add prefix` or "
            "`add suffix`.", required=True),
        Key("source-column", text("text", checks.column_name), "Column of the shards whose values are taken.",
            shown="as `target-column`"),
        Key("target-column", text("text", checks.column_name), "Column of the shards in whose place they go.",
            required=True),
        Key("arguments", texts(), "`partition id`: instance (0 to 15), what stands before the number in the schema's "
            "name, the same of the table's name, and what stands between (empty if left out); an empty one takes no "
            "bits. `add prefix`, `add suffix`: the text.", required=True),
        Key("referencing-columns", texts(text("text", checks.column_name)), "Columns that are mapped alike and need "
            "not be part of a key, such as one that refers to mapped ids; `source-column` may be one.", ()),
        Key("shared-bits", boolean(), "Shards may have the same bits, because their ids are distinct without.", False),
        Ignored("create-table-query", "rows go into the columns that the target has"),
    ),
)  # fmt: skip

TABLE_PATTERN = Block(
    "Entry of `do-tables` and `ignore-tables`",
    (
        Key("db-name", text("pattern", checks.not_empty), "Schemas.", required=True),
        Key("tbl-name", text("pattern", checks.not_empty), "Tables.", required=True),
    ),
)

ALLOW_LIST = Block(
    "Block-allow list: a block below `block-allow-list`",
    (
        Key("do-dbs", texts(text("pattern")), "Only these schemas pass; `ignore-dbs` is then not asked.", ()),
        Key("ignore-dbs", texts(text("pattern")), "All schemas but these pass.", ()),
        Key("do-tables", blocks(TABLE_PATTERN), "These tables pass, and no others.", ()),
        Key("ignore-tables", blocks(TABLE_PATTERN), "These tables do not pass, unless `do-tables` names them.", ()),
    ),
)

META = Block(
    "Start: `meta` of an instance",
    (
        Key(
            "binlog-name",
            text("text", checks.binlog_file),
            "Binlog file; it or `binlog-gtid` is required in task-mode `incremental`.",
        ),
        Key("binlog-pos", integer(0), "Byte in it, at the border of two transactions; below 4 means 4.", 4),
        Key(
            "binlog-gtid",
            text("text", checks.gtids),
            "GTIDs of all transactions before the start, instead of `binlog-name`; without effect beside it.",
        ),
    ),
)

INSTANCE = Block(
    "Instance: an entry of `mysql-instances`",
    (
        Key("source-id", text("text", checks.source_id), "A source, by the id of its source file.", required=True),
        Key("meta", nested(META), "Where a task of mode `incremental` begins; without effect in the others."),
        Key("route-rules", texts(), "Names of routes.", ()),
        Key("filter-rules", texts(), "Names of binlog event filters.", ()),
        Key("expression-filters", texts(), "Names of expression filters.", ()),
        Key("column-mapping-rules", texts(), "Names of column mappings.", ()),
        Key("block-allow-list", text(), "Name of a block-allow list."),
        Key("black-white-list", text(), "Old name of `block-allow-list`."),
        Key("mydumper-config-name", text(), "Name of a block in `mydumpers`."),
        Key("mydumper", nested(MYDUMPER), "The same, written here."),
        Key("mydumper-thread", integer(1), "Instead of its `threads`."),
        Key("loader-config-name", text(), "Name of a block in `loaders`."),
        Key("loader", nested(LOADER), "The same, written here."),
        Key("loader-thread", integer(1), "Instead of its `pool-size`."),
        Key("syncer-config-name", text(), "Name of a block in `syncers`."),
        Key("syncer", nested(SYNCER), "The same, written here."),
        Key("validator-config-name", text(), "Name of a block in `validators`."),
        Ignored("syncer-thread", "rows are applied window by window"),
    ),
)

TASK = Block(
    "Task file",
    (
        Key("name", text("text", checks.task_name), "Name of the task: letters, digits, `_`, `.`, `-`; part of DAG "
            "ids, lock ids and folders.", required=True),
        Key("task-mode", choice(words(TaskMode)), "`full`: dump and load; `incremental`: windows from "
            "`meta`, a start time or now on; `all`: both. `dump`: only dump, each table in one snapshot; `load`, "
            "`load&sync`: only load what a task of the same name has dumped, and then follow the binlog.",
            required=True),
        Key("shard-mode", choice(SHARD_MODES, {"optimistic": "the optimistic shard mode"}), "How DDLs of shards are "
            "coordinated; empty means the same. A target with a single shard never waits.", ShardMode.PESSIMISTIC),
        Key("is-sharding", boolean(), "DM's old switch. Shards are coordinated in any case.", True),
        Key("meta-schema", text("text", checks.schema_name), "Schema in the target for unshard's own tables.",
            "unshard_meta"),
        Key("timezone", text("time zone", checks.time_zone), "IANA name or offset: the zone of DDLs whose session "
            "names none. Rows do not depend on it: TIMESTAMP travels in UTC.", "+00:00"),
        Key("case-sensitive", boolean(), "Whether patterns of routes and lists mind case.", False),
        Key("target-database", nested(SERVER), "The target server, see below.", required=True),
        Key("mysql-instances", blocks(INSTANCE), "The sources of the task, see below.", required=True),
        Key("routes", named(ROUTE), "Routes by name, see below.", shown="none"),
        Key("filters", named(EVENT_FILTER), "Binlog event filters by name, see below.", shown="none"),
        Key("expression-filter", named(ROW_FILTER), "Expression filters by name, see below.", shown="none"),
        Key("column-mappings", named(MAPPING), "Column mappings by name, see below.", shown="none"),
        Key("block-allow-list", named(ALLOW_LIST), "Lists by name, see below.", shown="none"),
        Key("black-white-list", named(ALLOW_LIST), "Old name of `block-allow-list`.", shown="none"),
        Key("mydumpers", named(MYDUMPER), "Settings of the dump by name, see below.", shown="none"),
        Key("loaders", named(LOADER), "Settings of the load by name, see below.", shown="none"),
        Key("syncers", named(SYNCER), "Settings of windows by name, see below.", shown="none"),
        Key("validators", named(VALIDATOR), "DM's continuous validation by name, see below.", shown="none"),
        Key("online-ddl", boolean(), "Whether the tables by which gh-ost and pt-online-schema-change change a shard "
            "are followed: they are no shards, and what is run on them is the shard's DDL from the cut-over on. "
            "Without, they are tables like others.", True),
        Key("shadow-table-rules", texts(text("regular expression", checks.one_group)), "What shadow tables are called; "
            "the group `( )` is the shard's name. Rules that are given are taken at their word: a copy of a shard that "
            "is called so is a shadow at once. With the default ones a tool must show itself by its triggers, its log "
            "or its comment; else it is a table like others.", (), shown=rules_shown(SHADOW_RULES)),
        Key("trash-table-rules", texts(text("regular expression", checks.one_group)), "The same for the tools' other "
            "tables.", (), shown=rules_shown(TRASH_RULES)),
        Key("ignore-checking-items", texts(choice({name: name for name in IGNORABLE})), "Prechecks whose problems are "
            "shown and stop nothing, by name; `all` for every one.", (), shown="none"),
        Key("unshard", nested(OPTIONS), "What DM has no key for, see below."),
        Later("strict-optimistic-shard-mode", "the optimistic shard mode", ("false",)),
        Ignored("online-ddl-scheme", "gh-ost and pt-online-schema-change are both followed, see `online-ddl`"),
        Key("collation_compatible", choice({"loose": "loose", "strict": "strict"}), "Both are the same here: target "
            "tables are made with the collations that the shards have, also where their server does not print them; "
            "`unshard check` names one that the target does not know.", "loose"),
        Ignored("remove-meta", "`unshard run --remove-meta` or `unshard stop --remove-meta` says it once", ("false",)),
        Key("clean-dump-file", boolean(), "Whether dumped files are removed once every source is loaded.", True),
        Ignored("experimental", "every window commits its checkpoint"),
        Ignored("enable-heartbeat", GIVEN_UP, ("false",)),
        Ignored("heartbeat-update-interval", GIVEN_UP),
        Ignored("heartbeat-report-interval", GIVEN_UP),
        Ignored("ansi-quotes", "the binlog says which sql_mode a statement has"),
    ),
)  # fmt: skip
