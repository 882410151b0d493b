"""Declared keys of dump, load and sync: DM's `mydumpers`, `loaders`, `syncers`, `validators`."""

from dataclasses import dataclass
from enum import StrEnum

from unshard.config.declare import BY_GTID, Block, Ignored, Key, keys_of
from unshard.config.kinds import boolean, choice, integer, size, text, words
from unshard.core.rules.filters import unfit_expression

PHYSICAL = "the physical import"
OF_PHYSICAL = "it belongs to the physical import; unshard writes rows over connections"
BY_WINDOW = "unshard applies rows in windows, whose size is unshard.window-size"
SAFE = "safe mode ends exactly at the position of the dump's end"

OLD_IMPORT_MODES = {"sql": "logical", "loader": "logical"}
CONTINUOUS = dict.fromkeys(
    ("full", "fast"), "nothing is validated continuously: run `unshard validate`, once or regularly"
)
OF_CONTINUOUS = "it belongs to continuous validation"
WHERE = text("expression", unfit_expression)


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


CONSISTENCIES = {
    "auto": Consistency.AUTO,
    "none": Consistency.AUTO,
    "snapshot": Consistency.SNAPSHOT,
    "flush": Consistency.SNAPSHOT,
    "lock": Consistency.LOCK,
}


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """From `mydumpers`."""

    threads: int = Key("threads", integer(1, zero=4), "Concurrent chunks of one source; 0 means the default.", 4).field
    chunk_rows: int = Key(
        "rows",
        integer(0),
        "Rows of a chunk, a range of the key; 0: a table is one chunk. "
        "A chunk has at most 20,000 rows if the target, as TiDB, does not accept LOAD DATA in a transaction.",
        200_000,
    ).field
    consistency: Consistency = Key(
        "consistency",
        choice(CONSISTENCIES),
        "Consistency of the dump. `auto` and `none` are the same here: tables with a usable key are read in chunks "
        "without a lock and repaired from the binlog, other tables in one consistent snapshot. `snapshot` and "
        "`flush` are the same here: every table is read in one piece, in a consistent snapshot of its own, and its "
        "changes are applied from that snapshot on; the dump of a table cannot be resumed in the middle. `lock` "
        "uses LOCK TABLES … READ instead of a snapshot: writers wait while their table is read, and the dump is "
        "consistent for any engine.",
        Consistency.AUTO,
    ).field
    rate: int = Key(
        "rate-limit",
        size(),
        "Bytes of rows that all threads of a source together read per second, such as `20MiB`, for a source "
        "with other load. Windows and the relay are not limited.",
        0,
        shown="no limit",
    ).field
    where: str = Key(
        "where",
        WHERE,
        "SQL expression: only rows for which it is true are dumped, in every shard. It names columns without their "
        "table and has no queries and no comments. The source evaluates it, in UTC and with an empty `sql_mode`. "
        "Changes in the binlog are applied regardless. It cannot be changed after rows are dumped; see "
        "[limits](limits.md).",
        "",
        shown="all rows",
    ).field
    where_place: str = ""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """From `loaders`."""

    threads: int = Key(
        "pool-size", integer(1, zero=16), "Concurrent chunks of one source that are written; 0: the default.", 16
    ).field
    on_duplicate: OnDuplicate = Key(
        "on-duplicate",
        choice(words(OnDuplicate), any_case=True),
        "Action if two shards have the same key: `error` stops and names the key and both shards, `replace` keeps "
        "the later row, `ignore` the earlier one. DM replaces silently by default.",
        OnDuplicate.ERROR,
    ).field


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """From `syncers`."""

    safe_mode: bool = Key(
        "safe-mode",
        boolean(),
        "Always write rows so that repeated changes are harmless. If it is off, safe mode applies only while "
        "changes before the end of the dump are repeated. It hides colliding keys.",
        False,
    ).field
    workers: int = Key(
        "worker-count",
        integer(1, zero=16),
        "Concurrent sessions for one table in a large window. On MariaDB and MySQL these are at most four, and no "
        "more than the target has processors; `unshard status` shows the number. On TiDB a window is divided if "
        "it is too large for one transaction.",
        16,
    ).field


MYDUMPER = Block(
    "Dump: a block below `mydumpers`, or `mydumper` of an instance",
    (
        *keys_of(DumpOptions),
        Key(
            "extra-args",
            text(),
            "Options of dumpling: `--consistency` and `--where` with values of the keys above, `-t` and `-r` instead "
            "of `threads` and `rows`. `-B` and `-T` select tables in the task-modes `full` and `dump`. In the other "
            "modes the changes of all tables follow the dump, so `-B` and `-T` have no effect. Options about the files "
            "of a dump have no effect either. Both cause a warning.",
            "",
        ),
        Ignored("mydumper-path", "unshard has no mydumper; Spark reads the tables"),
        Ignored("chunk-filesize", "chunks are sized by rows"),
        Ignored("statement-size", "the dump contains no statements"),
        Ignored("skip-tz-utc", "unshard always reads TIMESTAMP in UTC", ("true", "false")),
    ),
)

LOADER = Block(
    "Load: a block below `loaders`, or `loader` of an instance",
    (
        *keys_of(LoadOptions),
        Key(
            "on-duplicate-logical",
            choice(words(OnDuplicate), any_case=True),
            "DM's newer name of `on-duplicate`.",
            shown="as `on-duplicate`",
        ),
        Key(
            "import-mode",
            choice(words(ImportMode), {"physical": PHYSICAL, "import-into": PHYSICAL}, OLD_IMPORT_MODES, any_case=True),
            "The only mode writes over connections. DM's old names `sql` and `loader` are accepted with a warning.",
            ImportMode.LOGICAL,
        ),
        Ignored("security", OF_PHYSICAL),
        Ignored("dir", "unshard.storage-path is the place of dumped rows"),
        Ignored("on-duplicate-physical", OF_PHYSICAL, ("none",)),
        Ignored("sorting-dir-physical", OF_PHYSICAL),
        Ignored("disk-quota-physical", OF_PHYSICAL),
        Ignored("sorting-dir", OF_PHYSICAL),
        Ignored("disk-quota", OF_PHYSICAL),
        Ignored("checksum", OF_PHYSICAL),
        Ignored("checksum-physical", OF_PHYSICAL),
        Ignored("analyze", OF_PHYSICAL),
        Ignored("range-concurrency", OF_PHYSICAL),
        Ignored("compress-kv-pairs", OF_PHYSICAL),
        Ignored("pd-addr", OF_PHYSICAL),
    ),
)

SYNCER = Block(
    "Sync: a block below `syncers`, or `syncer` of an instance",
    (
        *keys_of(SyncOptions),
        Ignored("enable-gtid", BY_GTID, ("false",)),
        Ignored("safe-mode-duration", SAFE),
        Ignored("meta-file", "the meta schema of the target stores positions"),
        Ignored("batch", BY_WINDOW),
        Ignored("queue-size", BY_WINDOW),
        Ignored("checkpoint-flush-interval", "every window commits its checkpoint"),
        Ignored("compact", "unshard always compacts the changes of a key", ("true",)),
        Ignored("multiple-rows", "unshard always writes rows in bulk", ("true",)),
        Ignored("multipleRows", "it is multiple-rows, as `dmctl config export` spells it", ("true", "false")),
        Ignored("max-retry", "Airflow retries failed tasks"),
        Ignored("auto-fix-gtid", "DM itself has removed it", ("false",)),
        Ignored("disable-detect", "DM itself has removed it", ("false",)),
        Ignored("enable-ansi-quotes", "the binlog contains the sql_mode of a statement", ("false",)),
    ),
)

VALIDATOR = Block(
    "Continuous validation: a block below `validators`",
    (
        Key(
            "mode",
            choice(dict.fromkeys(("none", *CONTINUOUS), Validation.NONE), warned=CONTINUOUS),
            "Not supported: `unshard validate` compares tables on demand. DM's `full` and `fast` mean the same, with a "
            "warning.",
            Validation.NONE,
        ),
        *(
            Ignored(name, OF_CONTINUOUS)
            for name in (
                "worker-count",
                "validate-interval",
                "check-interval",
                "row-error-delay",
                "meta-flush-interval",
                "batch-query-size",
                "max-pending-row-size",
                "max-pending-row-count",
            )
        ),
    ),
)
