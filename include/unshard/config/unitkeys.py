"""Declared keys of dump, load and sync: DM's `mydumpers`, `loaders`, `syncers`, `validators`."""

from unshard.config.declare import BY_GTID, Block, Ignored, Key
from unshard.config.kinds import boolean, choice, integer, size, text, words
from unshard.config.model import Consistency, ImportMode, OnDuplicate, Validation
from unshard.core.rowfilter import unfit_expression

PHYSICAL = "the physical import"
OF_PHYSICAL = "it belongs to the physical import; rows are always loaded by LOAD DATA"
BY_WINDOW = "rows are applied window by window; unshard.window-size bounds them"
SAFE = "safe mode lasts exactly until the position at which the dump ended"

CONSISTENCIES = {"auto": Consistency.AUTO, "none": Consistency.AUTO, "snapshot": Consistency.SNAPSHOT,
                 "flush": Consistency.SNAPSHOT, "lock": Consistency.LOCK}  # fmt: skip
IMPORT_MODES = {"logical": ImportMode.LOGICAL}
OLD_IMPORT_MODES = {"sql": "logical", "loader": "logical"}
CONTINUOUS = "continuous validation"
OF_CONTINUOUS = "it belongs to the continuous validation"
FILTERED = "let the block-allow-list say which tables are migrated"
DUMPLING = {
    **dict.fromkeys(("-B", "--database", "-T", "--tables-list", "-f", "--filter", "--case-sensitive"), FILTERED),
    **dict.fromkeys(("-t", "--threads"), "use the key threads"),
    **dict.fromkeys(("-r", "--rows"), "use the key rows"),
    **dict.fromkeys(("-F", "--filesize", "-s", "--statement-size"), "leave it out: chunks are cut by the key rows"),
    **dict.fromkeys(("--ca", "--cert", "--key"), "use the block security of the source file"),
    **dict.fromkeys(("--params",), "use the block session of the source file"),
    "--snapshot": "leave it out: the dump begins where the source is",
    "--no-locks": "leave it out: no lock is taken",
    "--escape-backslash": "leave it out: the dump holds no statements",
    "-W": "leave it out: views are never dumped",
    "--no-views": "leave it out: views are never dumped",
}
"""Options of dumpling and what there is instead."""
WHERE = text("expression", unfit_expression)

MYDUMPER = Block(
    "Dump: a block below `mydumpers`, or `mydumper` of an instance",
    (
        Key("threads", integer(1), "Chunks of one source that are read at the same time.", 4),
        Key("rows", integer(0), "Rows of a chunk, cut along the key; 0: a table is one chunk. "
            "A chunk has at most 20,000 rows if the target, as TiDB, does not accept LOAD DATA in a transaction.",
            200_000),
        Key("consistency", choice(CONSISTENCIES),
            "How a dump sees one moment. `auto` and `none` are the same here: tables with a usable key are read in "
            "chunks without a lock and repaired from the binlog, the others in one consistent snapshot. `snapshot` and "
            "`flush` are the same here: every table is read in one piece, in a consistent snapshot of its own, from "
            "which its binlog counts; it is not resumable inside a table. `lock` is the same under LOCK TABLES … READ "
            "instead of a snapshot: writers of a table wait while it is read, and tables of any engine are read at one "
            "moment.",
            Consistency.AUTO),
        Key("rate-limit", size(), "Bytes of rows that all threads of a source read in a second together, like `20MiB`: "
            "for a source that has other work. Windows and the relay are not limited.", shown="no limit"),
        Key("where", WHERE, "Only rows for which this SQL expression is true are dumped, of every shard. It names "
            "columns without their table, has no queries and no comments, and is evaluated by the source, in UTC and "
            "with an empty `sql_mode`. Changes that come through the binlog are applied whatever it says. Once rows "
            "are dumped it cannot be changed; see [limits](limits.md).", "", shown="all rows"),
        Key("extra-args", text(), "Only `--consistency` and `--where`, with values of the keys above.", ""),
        Ignored("mydumper-path", "there is no mydumper; Spark reads the tables"),
        Ignored("chunk-filesize", "chunks are cut by rows"),
        Ignored("statement-size", "the dump holds no statements"),
        Ignored("skip-tz-utc", "TIMESTAMP is always read in UTC", ("true", "false")),
    ),
)  # fmt: skip

LOADER = Block(
    "Load: a block below `loaders`, or `loader` of an instance",
    (
        Key("pool-size", integer(1), "Chunks of one source that are written at the same time.", 16),
        Key("on-duplicate", choice(words(OnDuplicate)),
            "What to do when two shards bring the same key: `error` stops and names the key and both shards, "
            "`replace` lets the later row win, `ignore` the earlier one. DM's default is to replace in silence.",
            OnDuplicate.ERROR),
        Key("on-duplicate-logical", choice(words(OnDuplicate)), "DM's newer name of `on-duplicate`.",
            shown="as `on-duplicate`"),
        Key("import-mode", choice(IMPORT_MODES, {"physical": PHYSICAL, "import-into": PHYSICAL}, OLD_IMPORT_MODES),
            "There is one: LOAD DATA. DM's old names for it, `sql` and `loader`, are accepted with a warning.",
            ImportMode.LOGICAL),
        Ignored("security", OF_PHYSICAL),
        Ignored("dir", "unshard.storage-path says where dumped rows are kept"),
        Ignored("on-duplicate-physical", OF_PHYSICAL, ("none",)),
        Ignored("sorting-dir-physical", OF_PHYSICAL),
        Ignored("disk-quota-physical", OF_PHYSICAL),
        Ignored("checksum-physical", OF_PHYSICAL),
        Ignored("analyze", OF_PHYSICAL),
        Ignored("range-concurrency", OF_PHYSICAL),
        Ignored("compress-kv-pairs", OF_PHYSICAL),
        Ignored("pd-addr", OF_PHYSICAL),
    ),
)  # fmt: skip

SYNCER = Block(
    "Sync: a block below `syncers`, or `syncer` of an instance",
    (
        Key("safe-mode", boolean(), "Write every row so that repeating it does no harm, always. Where it is off, "
            "safe mode holds only while rows of the dump come again. It hides keys that collide.", False),
        Key("worker-count", integer(1), "Sessions that write ranges of one table at the same time, in a window that is "
            "too large for one transaction, where rows go by statements (TiDB). One session writes a table where LOAD "
            "DATA takes part in a transaction (MariaDB, MySQL).", 16),
        Ignored("enable-gtid", BY_GTID, ("false",)),
        Ignored("safe-mode-duration", SAFE),
        Ignored("meta-file", "positions are kept in the meta schema of the target"),
        Ignored("batch", BY_WINDOW),
        Ignored("queue-size", BY_WINDOW),
        Ignored("checkpoint-flush-interval", "every window commits its checkpoint"),
        Ignored("compact", "changes of one key are always compacted", ("true",)),
        Ignored("multiple-rows", "rows are always written in bulk", ("true",)),
        Ignored("max-retry", "Airflow repeats what fails"),
        Ignored("auto-fix-gtid", "DM itself has given it up"),
        Ignored("disable-detect", "DM itself has given it up"),
        Ignored("enable-ansi-quotes", "the binlog says which sql_mode a statement has"),
    ),
)  # fmt: skip

VALIDATOR = Block(
    "Continuous validation: a block below `validators`",
    (
        Key("mode", choice(words(Validation), {"full": CONTINUOUS, "fast": CONTINUOUS}),
            "There is none: `unshard validate` compares a table when asked to.", Validation.NONE),
        *(Ignored(name, OF_CONTINUOUS) for name in (
            "worker-count", "validate-interval", "check-interval", "row-error-delay", "meta-flush-interval",
            "batch-query-size", "max-pending-row-size", "max-pending-row-count",
        )),
    ),
)  # fmt: skip
