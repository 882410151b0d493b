"""The numbered steps that bring a meta schema to this version.

A step is never changed once released: a later one alters what it made. DDL has no transaction, so each
statement can be run again after a death in the middle (IF NOT EXISTS), and the number is written last.
"""

from dataclasses import dataclass

OPTIONS = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
ID = "VARCHAR(64) NOT NULL"
TASK = f"task {ID}"
LOCK = "lock_id VARCHAR(255)"
SHARD = f"source {ID}, shard_schema {ID}, shard_table VARCHAR(128) NOT NULL"
SHARD_KEY = "source, shard_schema, shard_table"
TARGET = f"target_schema {ID}, target_table {ID}"
LOCATION = "file VARCHAR(255) NOT NULL, position BIGINT NOT NULL"
DIGEST = "VARCHAR(32)"
MOMENT = "DATETIME(6)"
VERDICT = ("decision VARCHAR(16) NOT NULL", "replacement LONGTEXT NOT NULL")
MIGRATION_TABLE = (
    f"CREATE TABLE IF NOT EXISTS migration (number BIGINT NOT NULL, description VARCHAR(255) NOT NULL, "
    f"applied_at {MOMENT} NOT NULL, PRIMARY KEY (number)) {OPTIONS}"
)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step; `number` counts from 1 without a gap."""

    number: int
    description: str
    statements: tuple[str, ...]


def _table(name: str, *parts: str) -> str:
    return f"CREATE TABLE IF NOT EXISTS `{name}` ({', '.join(parts)}) {OPTIONS}"


_SOURCES = (
    _table("task", TASK, "config_hash VARCHAR(64) NOT NULL", f"created_at {MOMENT} NOT NULL",
           f"updated_at {MOMENT} NOT NULL", "PRIMARY KEY (task)"),
    _table("source", TASK, f"source {ID}", f"identity {ID}", f"flavor {ID}", "phase VARCHAR(16) NOT NULL",
           "snapshot_file VARCHAR(255)", "snapshot_position BIGINT", "snapshot_gtid LONGTEXT NOT NULL",
           "dump_end_file VARCHAR(255)", "dump_end_position BIGINT", "epoch BIGINT NOT NULL",
           f"added_at {MOMENT} NOT NULL", f"updated_at {MOMENT} NOT NULL", "PRIMARY KEY (task, source)"),
    _table("checkpoint", TASK, f"source {ID}", LOCATION, "gtid LONGTEXT NOT NULL", "`window` BIGINT NOT NULL",
           "last_time BIGINT NOT NULL", f"committed_at {MOMENT} NOT NULL", "PRIMARY KEY (task, source)"),
)  # fmt: skip

_SHARDS = (
    _table("structure", TASK, f"digest {DIGEST} NOT NULL", "body LONGTEXT NOT NULL", f"added_at {MOMENT} NOT NULL",
           "PRIMARY KEY (task, digest)"),
    _table("shard", TASK, SHARD, TARGET, f"digest {DIGEST} NOT NULL", "start_file VARCHAR(255)",
           "start_position BIGINT", "last_seq BIGINT NOT NULL", "has_left TINYINT NOT NULL",
           "dropped TINYINT NOT NULL", f"born {DIGEST} NOT NULL",
           f"PRIMARY KEY (task, {SHARD_KEY})", "KEY by_target (task, target_schema, target_table)"),
    _table("table_schema", TASK, SHARD, "number BIGINT NOT NULL", TARGET, LOCATION, "`window` BIGINT NOT NULL",
           f"digest {DIGEST}", f"recorded_at {MOMENT} NOT NULL", f"PRIMARY KEY (task, {SHARD_KEY}, number)"),
    _table("schema_default", TASK, f"source {ID}", f"shard_schema {ID}", LOCATION, f"charset {ID}", f"collation {ID}",
           f"added_at {MOMENT} NOT NULL", "PRIMARY KEY (task, source, shard_schema, file, position)"),
    _table("load_chunk", TASK, "id BIGINT NOT NULL AUTO_INCREMENT", SHARD, TARGET, "number INT NOT NULL",
           "lower_bound LONGTEXT", "upper_bound LONGTEXT", "state VARCHAR(16) NOT NULL", "path VARCHAR(1024) NOT NULL",
           "row_count BIGINT NOT NULL", "bytes BIGINT NOT NULL", "loaded_rows BIGINT NOT NULL",
           f"updated_at {MOMENT} NOT NULL", "PRIMARY KEY (task, id)", "UNIQUE KEY by_id (id)",
           f"UNIQUE KEY by_number (task, {SHARD_KEY}, number)"),
)  # fmt: skip

_WINDOWS = (
    _table("window", TASK, f"source {ID}", "number BIGINT NOT NULL", "state VARCHAR(16) NOT NULL",
           "plan LONGTEXT NOT NULL", "rows_applied BIGINT NOT NULL", "rows_held BIGINT NOT NULL",
           f"began_at {MOMENT} NOT NULL", f"committed_at {MOMENT}", "PRIMARY KEY (task, source, number)"),
    _table("fence", TASK, f"source {ID}", TARGET, "`window` BIGINT NOT NULL", "epoch BIGINT NOT NULL",
           "PRIMARY KEY (task, source, target_schema, target_table)"),
    _table("held_rows", TASK, SHARD, "seq BIGINT NOT NULL", "`window` BIGINT NOT NULL", "part BIGINT NOT NULL",
           "path VARCHAR(1024) NOT NULL", "row_count BIGINT NOT NULL", "bytes BIGINT NOT NULL",
           f"structure {DIGEST} NOT NULL", "safe TINYINT NOT NULL", "raw TINYINT NOT NULL",
           f"held_at {MOMENT} NOT NULL",
           f"PRIMARY KEY (task, {SHARD_KEY}, seq, `window`, part)"),
)  # fmt: skip

_LOCKS = (
    _table("shard_ddl", TASK, SHARD, "seq BIGINT NOT NULL", TARGET, LOCATION, "statement LONGTEXT NOT NULL",
           "routed LONGTEXT NOT NULL", "agreement LONGTEXT NOT NULL", f"before_digest {DIGEST} NOT NULL",
           f"after_digest {DIGEST} NOT NULL", "state VARCHAR(16) NOT NULL", "reason LONGTEXT NOT NULL",
           "alone TINYINT NOT NULL", *VERDICT, "outcome VARCHAR(16)", LOCK,
           "`window` BIGINT NOT NULL", f"seen_at {MOMENT} NOT NULL", f"resolved_at {MOMENT}",
           f"PRIMARY KEY (task, {SHARD_KEY}, seq)", "KEY by_state (task, state)"),
    _table("ddl_lock", TASK, f"{LOCK} NOT NULL", TARGET, "number BIGINT NOT NULL", "state VARCHAR(16) NOT NULL",
           "entry LONGTEXT NOT NULL", "owner VARCHAR(64)", "forced TINYINT NOT NULL", "error LONGTEXT",
           f"opened_at {MOMENT} NOT NULL", f"seen_at {MOMENT} NOT NULL", f"started_at {MOMENT}",
           f"resolved_at {MOMENT}", "outcome VARCHAR(16)", *VERDICT, "done INT NOT NULL", "PRIMARY KEY (task, lock_id)",
           "UNIQUE KEY by_number (task, target_schema, target_table, number)", "KEY by_state (task, state)"),
    _table("ddl_lock_guard", TASK, f"{LOCK} NOT NULL", "PRIMARY KEY (task, lock_id)"),
    _table("ddl_lock_member", TASK, f"{LOCK} NOT NULL", SHARD, "state VARCHAR(16) NOT NULL", "seq BIGINT",
           f"updated_at {MOMENT} NOT NULL", f"PRIMARY KEY (task, lock_id, {SHARD_KEY})", "KEY by_state (task, state)"),
    _table("ddl_history", TASK, "id BIGINT NOT NULL AUTO_INCREMENT", f"{LOCK} NOT NULL", f"source {ID}",
           "ddl LONGTEXT NOT NULL", f"before_digest {DIGEST} NOT NULL", f"wanted_digest {DIGEST} NOT NULL",
           "sql_mode BIGINT NOT NULL", f"started_at {MOMENT} NOT NULL", f"done_at {MOMENT}", "outcome VARCHAR(16)",
           "error LONGTEXT", "PRIMARY KEY (task, id)", "UNIQUE KEY by_id (id)", "KEY by_lock (task, lock_id)"),
    _table("operator_action", TASK, "id BIGINT NOT NULL AUTO_INCREMENT", f"{LOCK} NOT NULL",
           "action VARCHAR(32) NOT NULL", "who VARCHAR(255) NOT NULL", "via VARCHAR(64) NOT NULL",
           "reason LONGTEXT NOT NULL", "details LONGTEXT NOT NULL", f"done_at {MOMENT} NOT NULL",
           "PRIMARY KEY (task, id)", "UNIQUE KEY by_id (id)", "KEY by_lock (task, lock_id)"),
)  # fmt: skip

_LATE_INDEXES = (
    _table("late_index", TASK, TARGET, "indexes LONGTEXT NOT NULL", f"noted_at {MOMENT} NOT NULL",
           "PRIMARY KEY (task, target_schema, target_table)"),
)  # fmt: skip

_ASIDE = (
    _table("sequence", TASK, f"source {ID}", f"shard_schema {ID}", f"shard_table {ID}",
           "PRIMARY KEY (task, source, shard_schema, shard_table)"),
    _table("passed_statement", TASK, f"source {ID}", LOCATION, "statement LONGTEXT NOT NULL",
           "`window` BIGINT NOT NULL", f"passed_at {MOMENT} NOT NULL", "PRIMARY KEY (task, source, file, position)"),
)  # fmt: skip

_PACE = (_table("pace", TASK, f"source {ID}", "windows LONGTEXT NOT NULL", "PRIMARY KEY (task, source)"),)

_COLLISIONS = (
    _table("collision", TASK, f"digest {DIGEST} NOT NULL", TARGET, "key_shown LONGTEXT NOT NULL",
           "key_condition LONGTEXT NOT NULL", SHARD, "owner_source VARCHAR(64)", "owner_schema VARCHAR(64)",
           "owner_table VARCHAR(128)", "found VARCHAR(16) NOT NULL", "`window` BIGINT NOT NULL",
           "state VARCHAR(16) NOT NULL", "times BIGINT NOT NULL", "others BIGINT NOT NULL",
           f"first_at {MOMENT} NOT NULL", f"last_at {MOMENT} NOT NULL", "PRIMARY KEY (task, digest)",
           "KEY by_state (task, state)"),
)  # fmt: skip

_STEPS = (
    _table("fence_step", TASK, f"source {ID}", TARGET, "`window` BIGINT NOT NULL", "number BIGINT NOT NULL",
           "kind VARCHAR(16) NOT NULL", "upper_key LONGTEXT", "key_columns LONGTEXT NOT NULL", "done TINYINT NOT NULL",
           "PRIMARY KEY (task, source, target_schema, target_table, number)"),
)  # fmt: skip

_HALT = (
    _table("halt", TASK, "kind VARCHAR(16) NOT NULL", "who VARCHAR(255) NOT NULL", "via VARCHAR(64) NOT NULL",
           "reason LONGTEXT NOT NULL", f"halted_at {MOMENT} NOT NULL", "PRIMARY KEY (task)"),
)  # fmt: skip

_FULL_LOAD = (
    _table("chunk_pace", TASK, "id BIGINT NOT NULL", "weight BIGINT NOT NULL", f"dumped_at {MOMENT}",
           "dump_millis BIGINT", f"loaded_at {MOMENT}", "load_millis BIGINT", "PRIMARY KEY (task, id)"),
    _table("dump_rate", TASK, f"source {ID}", "paid DOUBLE NOT NULL", "bytes BIGINT NOT NULL",
           "waited DOUBLE NOT NULL", "PRIMARY KEY (task, source)"),
)  # fmt: skip

_STATEMENT_ORDERS = (
    _table("statement_order", TASK, "id BIGINT NOT NULL AUTO_INCREMENT", f"source {ID}", "file VARCHAR(255)",
           "position BIGINT", "gtid VARCHAR(255) NOT NULL", "kind VARCHAR(16) NOT NULL", "statements LONGTEXT NOT NULL",
           "state VARCHAR(16) NOT NULL", "action BIGINT NOT NULL", "`window` BIGINT", "met_file VARCHAR(255)",
           "met_position BIGINT", "met_text LONGTEXT NOT NULL", f"ended_at {MOMENT}", "PRIMARY KEY (task, id)",
           "UNIQUE KEY by_id (id)", "KEY by_state (task, source, state)"),
)  # fmt: skip

_PRECHECKS = (
    _table("precheck", TASK, "items LONGTEXT NOT NULL", f"checked_at {MOMENT} NOT NULL", "PRIMARY KEY (task)"),
)  # fmt: skip

_STOPS = (
    _table("stopped_target", TASK, f"source {ID}", TARGET, "`window` BIGINT NOT NULL", f"column_name {ID}",
           "key_shown LONGTEXT NOT NULL", "words LONGTEXT NOT NULL", f"structure {DIGEST} NOT NULL",
           "times BIGINT NOT NULL", f"since {MOMENT} NOT NULL", "partial TINYINT NOT NULL", "is_open TINYINT NOT NULL",
           "PRIMARY KEY (task, source, target_schema, target_table)"),
)  # fmt: skip

_STOP_ERRORS = (
    _table("stop_error", TASK, f"source {ID}", TARGET, "code VARCHAR(16) NOT NULL", "parts LONGTEXT NOT NULL",
           "PRIMARY KEY (task, source, target_schema, target_table)"),
)  # fmt: skip

_RULES = (
    _table("rules", TASK, f"source {ID}", f"digest {DIGEST} NOT NULL", "body LONGTEXT NOT NULL", LOCATION,
           f"adopted_at {MOMENT} NOT NULL", "PRIMARY KEY (task, source)"),
)  # fmt: skip

_ONLINE = (
    _table("online_ddl", TASK, f"source {ID}", f"ghost_schema {ID}", f"ghost_table {ID}", "ghost LONGTEXT NOT NULL",
           "PRIMARY KEY (task, source, ghost_schema, ghost_table)"),
)  # fmt: skip

_ROW_ERRORS = (
    _table("row_error", TASK, TARGET, f"digest {DIGEST} NOT NULL", SHARD, "key_shown LONGTEXT NOT NULL",
           f"column_name {ID}", "words LONGTEXT NOT NULL", "row_json LONGTEXT NOT NULL", "`window` BIGINT NOT NULL",
           "state VARCHAR(16) NOT NULL", "times BIGINT NOT NULL", f"first_at {MOMENT} NOT NULL",
           f"last_at {MOMENT} NOT NULL", "PRIMARY KEY (task, target_schema, target_table, digest)",
           "KEY by_state (task, state)"),
)  # fmt: skip

_AWAITED = (
    _table("awaited_row", TASK, f"source {ID}", TARGET, f"digest {DIGEST} NOT NULL", f"shard_schema {ID}",
           "shard_table VARCHAR(128) NOT NULL", "key_shown LONGTEXT NOT NULL", f"since {MOMENT} NOT NULL",
           "PRIMARY KEY (task, source, target_schema, target_table, digest)"),
)  # fmt: skip

_CONDITION = (
    _table("dump_condition", TASK, f"source {ID}", "body LONGTEXT NOT NULL", "PRIMARY KEY (task, source)"),
)  # fmt: skip

MIGRATIONS = (
    Migration(1, "first tables", (*_SOURCES, *_SHARDS, *_WINDOWS, *_LOCKS)),
    Migration(2, "indexes that are made after the load", _LATE_INDEXES),
    Migration(3, "sequences, statements that were passed over", _ASIDE),
    Migration(4, "what the last windows took", _PACE),
    Migration(5, "collisions", _COLLISIONS),
    Migration(6, "large windows in several transactions", _STEPS),
    Migration(7, "tasks that are halted", _HALT),
    Migration(8, "speed of the full load, limit of the dump", _FULL_LOAD),
    Migration(9, "orders about statements of a binlog", _STATEMENT_ORDERS),
    Migration(10, "what the last prechecks have found", _PRECHECKS),
    Migration(11, "targets that are stopped by a row", _STOPS),
    Migration(12, "rules in force", _RULES),
    Migration(13, "tables of tools that change shards online", _ONLINE),
    Migration(14, "rows that were put aside", _ROW_ERRORS),
    Migration(15, "targets that are stopped by any error of their own", _STOP_ERRORS),
    Migration(16, "rows that are left to a later change", _AWAITED),
    Migration(17, "the condition of the dump", _CONDITION),
)
