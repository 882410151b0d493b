"""The definition of the meta tables. `reference` derives the page docs/meta-tables.md from it.

Every primary key begins with the task, so several tasks can share one schema. Texts are utf8mb4_bin, so the server
compares them byte by byte. JSON is stored in LONGTEXT, because TiDB, MySQL and MariaDB differ in their JSON type.
Columns have no default value: an INSERT that forgets a column is an error.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sqlalchemy import Column, Double, Index, Integer, MetaData, Table, func
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateColumn

from unshard.adapters.meta import columns as c
from unshard.core.ddl.lock import LockState, Outcome
from unshard.core.ddl.queue import EntryState
from unshard.core.ddl.statementcommands import CommandKind
from unshard.core.join.changekind import ChangeKind
from unshard.core.rows.columnreload import ReloadState
from unshard.core.rows.rowerrors import CollisionState, Found, RowErrorState
from unshard.core.sql.quoting import identifier
from unshard.core.task.state import ChunkState, PauseKind, Phase
from unshard.core.validate.cutoverstate import CutoverPhase
from unshard.core.validate.ledger import RangeVerdict

VERSION = 1
"""The version of these tables: raise it with each change of them. A start refuses tables of another version."""
DIALECT = mysql.dialect()
OPTIONS = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
metadata = MetaData()
NOW = func.utc_timestamp(6)
"""The clock of the target: the only clock that all processes share."""


def _section(subject: str) -> Callable[..., Table]:
    """Return the function that defines the tables of a section of the reference page.

    Its argument `comment` completes "one row per ...".
    """

    def define(name: str, comment: str, *parts: Column[Any] | Index) -> Table:
        return Table(name, metadata, c.key("task"), *parts, comment=comment, info={"subject": subject})

    return define


TASKS = "Tasks and sources"
meta_version = Table(
    "meta_version",
    metadata,
    c.number("number", "unshard refuses meta tables of another version than its own"),
    c.moment("created_at"),
    comment="version of the meta tables, written when all of them exist",
    info={"subject": TASKS},
)

_of_task = _section(TASKS)
source = _of_task(
    "source",
    "source, with its identity, phase and epoch",
    c.key("source"),
    c.short_text(
        "identity", "flavor and server UUID; another identity means that another server has replaced the source"
    ),
    c.short_text("flavor", "mariadb or mysql"),
    c.state("phase", Phase),
    *c.binlog_location("snapshot_", "P0, where the dump began", null=True),
    c.long("snapshot_gtid", "GTID history up to P0"),
    *c.binlog_location("dump_end_", "P1, where the dump ended", null=True),
    c.big("epoch", "rises when a window begins; a writer with an older epoch cannot write"),
    c.moment("added_at"),
    c.moment("updated_at"),
)

checkpoint = _of_task(
    "checkpoint",
    "source: the binlog location up to which everything is applied, held or queued",
    c.key("source"),
    *c.binlog_location(),
    c.long("gtid", "GTID history up to the location"),
    c.big("window", "number of the last committed section"),
    c.big("last_time", "time of the last transaction, in seconds since 1970"),
    c.big("windows", "committed windows of the source"),
    c.big("rows_applied", "rows that these windows have applied"),
    c.big("millis", "milliseconds that these windows have taken"),
    c.long("paces", "JSON: bytes, rows and milliseconds of the last windows, for the size of the next one; or empty"),
    c.moment("committed_at"),
)

rules = _of_task(
    "rules",
    "source: the rules of the task file that its windows use, and the location from which on they apply",
    c.key("source"),
    c.digest("digest", "identifies the rules"),
    c.long("body", "JSON: the rules"),
    *c.binlog_location(),
    c.moment("adopted_at"),
)

cutover = _of_task(
    "cutover",
    "task whose applications are switched to the target by `unshard cutover`",
    c.state("phase", CutoverPhase),
    c.big("number", "number of its proofs in `judged_range`"),
    c.long("checkpoints", "JSON: the checkpoints before the last round of proofs, by source"),
    c.long("changed", "JSON: the variables of sources that it has changed, with their values before"),
    c.moment("read_only_at", "when the sources were read-only", null=True),
    c.long("certificate", "JSON: positions, rows and checksums at the end; empty before"),
    c.moment("changed_at"),
)

pause = _of_task(
    "pause",
    "task that is paused or stopped",
    c.state("kind", PauseKind),
    c.short_text("who", size=255),
    c.short_text("via", "where the command was given: command line, page, clear (of an Airflow task)"),
    c.long("reason"),
    c.moment("paused_at"),
)

precheck = _of_task(
    "precheck", "task: the result of its last prechecks", c.long("items", "JSON: all items"), c.moment("checked_at")
)

write_path = _of_task(
    "write_path",
    "task: the result of the last trial of the ways to write rows into the target",
    c.word("load_data", "result of the trial of LOAD DATA LOCAL"),
    c.flag("bulk", "whether the target has accepted COM_STMT_BULK_EXECUTE"),
    c.number("processors", "processors of the target, as far as it tells"),
    c.moment("tried_at"),
)

_of_load = _section("Full load")
load_chunk = _of_load(
    "load_chunk",
    "chunk of the full load; it becomes `loaded` in the transaction that loads its rows",
    c.auto_id("identifies the chunk in file names and tasks"),
    *c.shard(),
    *c.target(),
    c.of_kind("number", "counts the chunks of a shard from 1", kind=Integer),
    c.long("lower_bound", "JSON: exclusive bound of the key; NULL: none", null=True),
    c.long("upper_bound", "JSON: inclusive bound of the key; NULL: none", null=True),
    c.state("state", ChunkState),
    c.short_text("path", "Parquet file, relative to the storage path", size=1024),
    c.big("row_count", "dumped rows"),
    c.big("bytes", "size of the values, as the source sent them"),
    c.big("loaded_rows"),
    c.big("weight", "share of the table's bytes when the chunk was planned"),
    c.moment("dumped_at", null=True),
    c.big("dump_millis", null=True),
    c.moment("loaded_at", null=True),
    c.big("load_millis", null=True),
    c.moment("updated_at"),
    Index("by_id", "id", unique=True),
    Index("by_number", "task", "source", "shard_schema", "shard_table", "number", unique=True),
)

load_progress = _of_load(
    "load_progress",
    "chunk that is being loaded; deleted when it is loaded",
    c.number("chunk", "`load_chunk.id`"),
    c.big("rows_written", "most rows that a transaction of the chunk has written, which may be rolled back"),
)

dump_condition = _of_load(
    "dump_condition",
    "source: the condition (`where`) that its rows were dumped by",
    c.key("source"),
    c.long("body", "SQL condition; empty: all rows"),
)

dump_rate = _of_load(
    "dump_rate",
    "source: how much of its rate limit the readers of the dump have used",
    c.key("source"),
    c.of_kind("paid", "time up to which the limit is used, in seconds since 1970", kind=Double),
    c.big("bytes", "bytes that were read under the limit"),
    c.of_kind("waited", "seconds that readers have waited", kind=Double),
)

late_index = _of_load(
    "late_index",
    "target whose non-unique secondary indexes are dropped for the load; deleted when they are created again",
    *c.target_key(),
    c.long("indexes", "JSON: the definitions"),
    c.moment("noted_at"),
)

_of_shards = _section("Shards")
structure = _of_shards(
    "structure",
    "table structure",
    c.key("digest", "hash of the structure; other tables refer to it", 32),
    c.long("body", "JSON: columns, indexes, CREATE TABLE"),
    c.moment("added_at"),
)

shard = _of_shards(
    "shard",
    "shard, with its target and current structure",
    *c.shard_key(),
    *c.target(),
    c.digest("digest", "structure at the checkpoint; empty: unknown"),
    *c.binlog_location("start_", "windows skip rows before this location, because the dump has them", null=True),
    c.big("last_seq", "number of the shard's last DDL in `shard_ddl`"),
    c.flag("has_left", "1: the table is dropped, renamed or no longer routed"),
    c.flag("dropped", "1: an operator has dropped the shard from its group"),
    c.digest("shard_uid", "stays the same when the shard is renamed"),
    Index("by_target", "task", "target_schema", "target_table"),
)

table_schema = _of_shards(
    "table_schema",
    "structure that a shard has had, with the location from which on",
    *c.shard_key(),
    c.number("number", "counts the structures of a shard from 1"),
    *c.target(),
    *c.binlog_location(),
    c.big("window", "window that has recorded it; 0: the snapshot"),
    c.digest("digest", "empty: unknown; NULL: the shard has left", null=True),
    c.moment("recorded_at"),
)

schema_default = _of_shards(
    "schema_default",
    "default character set of a source's schema, with the location from which on",
    c.key("source"),
    c.key("shard_schema"),
    c.key("file", size=255),
    c.number("position"),
    c.short_text("charset"),
    c.short_text("collation"),
    c.moment("added_at"),
)

sequence = _of_shards(
    "sequence",
    "sequence that exists on a source at its checkpoint",
    c.key("source"),
    c.key("shard_schema"),
    c.key("shard_table"),
)

online_ddl = _of_shards(
    "online_ddl",
    "shadow table of an online-DDL tool that is changing a shard",
    c.key("source"),
    c.key("online_schema"),
    c.key("online_name"),
    c.long("online_table", "JSON: the statements that the tool has run on it"),
)

ignored_statement = _of_shards(
    "ignored_statement",
    "statement that could not be parsed and was ignored because it concerns no shard",
    c.key("source"),
    c.key("file", size=255),
    c.number("position"),
    c.long("statement"),
    c.big("window"),
    c.moment("ignored_at"),
)

PLANNED = "planned"
"""State of an open window in `window`."""
_of_windows = _section("Windows")
window = _of_windows(
    "window",
    "window, while it is open or one of the last windows of its source: its persisted plan and its state",
    c.key("source"),
    c.number("number", "number of its first section; the sections of a source are counted from 1"),
    c.word("state", "planned or committed"),
    c.long("plan", "JSON: the plan"),
    c.big("rows_applied"),
    c.big("rows_held"),
    c.moment("began_at"),
    c.moment("committed_at", null=True),
)

sample = _of_windows(
    "sample",
    "minute in which a source has committed windows: the state after the first of them, for charts. Kept for a day",
    c.key("source"),
    c.number("minute", "minutes since 1970"),
    c.big("windows", "as in `checkpoint`, and so the next two"),
    c.big("rows_applied"),
    c.big("millis"),
    c.big("rows_held", "rows of the source that are held"),
    c.big("lag_seconds", "age of the last transaction of the window, or of the oldest held row"),
)

fence = _of_windows(
    "fence",
    "pair of source and target: the last section of a window whose rows are in the target; written with the rows."
    " A DDL has an empty source",
    c.key("source"),
    *c.target_key(),
    c.big("window"),
    c.big("epoch", "epoch of the source; a writer compares it with its own inside its transaction"),
    c.big("written", "last write in microseconds since 1970, as in `unshard_last_write` of the target schema"),
)

fence_step = _of_windows(
    "fence_step",
    "part of a window that is too large for one transaction; deleted when the fence is raised",
    c.key("source"),
    *c.target_key(),
    c.big("window"),
    c.number("number", "order of the steps"),
    c.word("kind", "all, deletes, writes, share or in order"),
    c.long(
        "upper_key",
        "JSON: last key of the range, NULL: to the end; share: sessions, first value, block; in order: row images",
        null=True,
    ),
    c.long("key_columns", "JSON: the key that the ranges are cut by; in order: digest of all row images"),
    c.flag("done", "written in the transaction of the rows"),
)

held_rows = _of_windows(
    "held_rows",
    "Parquet file of rows that wait for a queued DDL or a suspended target",
    *c.shard_key(),
    c.number("seq", "number of the DDL that the rows were written after"),
    c.number("window"),
    c.number("part"),
    c.short_text("path", size=1024),
    c.big("row_count"),
    c.big("bytes"),
    c.digest("structure", "structure of the rows; empty: unknown"),
    c.flag("safe", "1: apply the rows in safe mode"),
    c.flag("raw", "1: the rows are stored as binlog events, because their structure is unknown"),
    c.big("first_time", "time before which none of the rows was changed, in seconds since 1970; 0: unknown"),
    c.moment("held_at"),
)

suspended_target = _of_windows(
    "suspended_target",
    "pair of source and target that is suspended because of an error; its rows are held",
    c.key("source"),
    *c.target_key(),
    c.big("window", "window in which the error was raised"),
    c.short_text("column_name", "column that the error is about, or empty"),
    c.long("key_shown", "key of the row that the error is about, or empty"),
    c.long("server_message"),
    c.word("code", "error code"),
    c.long("parts", "JSON: the parts of the error, from which its message is made again"),
    c.digest("structure", "structure of the target at that time"),
    c.big("times", "how often the target was suspended"),
    c.moment("since"),
    c.flag("partial", "1: a part of the window is in the target"),
    c.flag("is_open", "0: the suspension is lifted; the row is deleted when the target has received rows"),
)

_of_rows = _section("Rows with a problem")
collision = _of_rows(
    "collision",
    "key that two shards of a target both have, and its state",
    c.key("digest", "hash of target and key", 32),
    *c.target(),
    c.long("key_shown", "the key, readable"),
    c.long("key_condition", "SQL condition that finds the key in the target, or empty"),
    *c.shard(),
    c.short_text("owner_source", "shard whose row is in the target; NULL: unknown", null=True),
    c.short_text("owner_schema", null=True),
    c.short_text("owner_table", size=128, null=True),
    c.state("found", Found),
    c.big("window", "0: the load"),
    c.state("state", CollisionState),
    c.big("times", "how often the key has collided"),
    c.big("others", "collisions of the same transaction that are counted but not listed"),
    c.moment("first_at"),
    c.moment("last_at"),
    Index("by_state", "task", "state"),
)

row_error = _of_rows(
    "row_error",
    "diverted row: the target has rejected it (`row-errors: divert`)",
    *c.target_key(),
    c.key("digest", "hash of the key", 32),
    *c.shard(),
    c.long("key_shown", "the key, readable"),
    c.short_text("column_name", "column that the error is about, or empty"),
    c.long("server_message"),
    c.long("row_json", "JSON: the row"),
    c.big("window", "0: the load"),
    c.state("state", RowErrorState),
    c.big("times"),
    c.moment("first_at"),
    c.moment("last_at"),
    Index("by_state", "task", "state"),
)

judged_range = _of_rows(
    "judged_range",
    "range of a target's key that `unshard validate` has compared, with its last verdict",
    *c.target_key(),
    c.key("digest", "hash of the lower bound", 32),
    c.long("range_lower", "JSON: the last key before the range, in hexadecimal digits; null: no bound"),
    c.long("range_upper", "JSON: the last key of the range; null: no bound"),
    c.long("key_columns", "JSON: the columns of the key"),
    c.big("row_count", "rows of the target"),
    c.short_text("total", "sum of the hashes of its rows; NULL: it was found equal row by row, or is not", null=True),
    c.state("verdict", RangeVerdict),
    c.big("round", "number of the validation of this target"),
    c.moment("compared_at"),
)

deleted_shard = _of_rows(
    "deleted_shard",
    "DROP or TRUNCATE of a shard after which its rows were deleted from the target (`drop-shard-rows: delete`)",
    *c.shard_key(),
    c.key("file", "end of the statement", 255),
    c.number("position"),
    *c.target(),
    c.long("statement", "without its strings"),
    c.big("row_count", "rows that the last attempt of the window deleted"),
    c.big("window"),
    c.moment("deleted_at"),
)

deferred_row = _of_rows(
    "deferred_row",
    "row that the target lacks until a later change in the binlog writes it; deleted then",
    c.key("source"),
    *c.target_key(),
    c.key("digest", "hash of the key", 32),
    c.short_text("shard_schema"),
    c.short_text("shard_table", size=128),
    c.long("key_shown", "the key, readable"),
    c.moment("since"),
)

column_reload = _of_rows(
    "column_reload",
    "reload of columns of a shard, with its progress, which is written in the transaction of each chunk",
    *c.shard_key(),
    c.key("digest", "hash of the columns' names", 32),
    *c.target(),
    c.long("names", "JSON: the columns"),
    c.state("state", ReloadState),
    c.digest("basis", "hash of the structures and the DDL that the written values depend on"),
    c.long("reached_key", "JSON: last key of the last written chunk; NULL: at the beginning", null=True),
    c.big("chunks"),
    c.big("rows_read"),
    c.big("rows_changed"),
    c.moment("began_at"),
    c.moment("changed_at", "when the last chunk was written"),
)

_of_locks = _section("DDL locks and operator commands")
shard_ddl = _of_locks(
    "shard_ddl",
    "DDL that a shard has reached; the pending rows are the shard's queue",
    *c.shard_key(),
    c.number("seq", "counts the DDL of a shard from 1"),
    *c.target(),
    *c.binlog_location(),
    c.long("statement", "JSON: the statement with its session variables"),
    c.big("executed_at", "when the source has executed it, in seconds since 1970"),
    c.long("routed", "the statement with the names of the target"),
    c.long("fingerprint", "normalised text; shards with the same fingerprint agree"),
    c.digest("before_digest", "structure before the DDL; empty: unknown"),
    c.digest("after_digest", "structure after the DDL; empty: unknown"),
    c.state("state", EntryState),
    c.long("reason", "why an operator has to decide, or empty"),
    c.flag("alone", "1: the DDL concerns this shard only and needs no lock"),
    c.word("whole", "truncate, drop, rename or create, if the DDL concerns the whole table of a one-to-one target"),
    *c.decision(),
    c.flag("unnamed", "1: the structures after the DDL do not have the target's names of columns yet"),
    c.word("outcome", "executed, present, skipped, admitted or dropped", null=True),
    c.short_text("lock_id", "lock that has resolved the DDL", size=255, null=True),
    c.big("window"),
    c.moment("seen_at"),
    c.moment("resolved_at", null=True),
    Index("by_state", "task", "state"),
    Index("by_time", "task", "seen_at"),
)

ddl_lock = _of_locks(
    "ddl_lock",
    "DDL lock",
    c.key("lock_id", size=255),
    *c.target(),
    c.big("number", "counts the locks of a target from 1"),
    c.state("state", LockState),
    c.long("entry", "JSON: the DDL of the lock, as its first shard has it"),
    c.short_text("owner", "source that executes the DDL", null=True),
    c.flag("forced", "1: an operator has unlocked it; it waits for no more shards"),
    c.long("error", "message of the target that has rejected the DDL", null=True),
    c.moment("opened_at", "time of the DDL on its first shard"),
    c.moment("seen_at", "when the first window with the DDL was committed"),
    c.moment("started_at", null=True),
    c.moment("resolved_at", null=True),
    c.state("outcome", Outcome, null=True),
    *c.decision(),
    c.of_kind("done", "how many statements of the replacement are executed", kind=Integer),
    Index("by_number", "task", "target_schema", "target_table", "number", unique=True),
    Index("by_state", "task", "state"),
)

ddl_lock_guard = _of_locks(
    "ddl_lock_guard",
    "DDL lock: the row that the executor locks while it runs the DDL, so that `ddl_lock` stays readable",
    c.key("lock_id", size=255),
)

ddl_lock_member = _of_locks(
    "ddl_lock_member",
    "shard that a lock does not wait for, or whose DDL the lock has resolved",
    c.key("lock_id", size=255),
    *c.shard_key(),
    c.word("state", "pending: the shard skips the DDL when it reaches it; settled; resolved; waived"),
    c.big("seq", "number of the DDL in `shard_ddl`; pending: of the other DDL that it had reached", null=True),
    c.moment("updated_at"),
    Index("by_state", "task", "state"),
)

ddl_history = _of_locks(
    "ddl_history",
    "DDL that was executed on the target",
    c.auto_id("order of execution"),
    c.short_text("lock_id", size=255),
    c.short_text("source", "source whose task has executed it"),
    c.long("ddl"),
    c.digest("before_digest", "structure of the target before"),
    c.digest("wanted_digest", "structure of the target after"),
    c.big("sql_mode"),
    c.moment("started_at", "written before the DDL runs"),
    c.moment("done_at", "NULL: it runs, or the process has died", null=True),
    c.word("outcome", "executed, present (the target already had the structure), refused or given up", null=True),
    c.long("error", null=True),
    Index("by_id", "id", unique=True),
    Index("by_lock", "task", "lock_id"),
)

operator_action = _of_locks(
    "operator_action",
    "command that an operator has given",
    c.auto_id("order of the commands"),
    c.short_text("lock_id", "empty: the command is about the task, a target or a statement", size=255),
    c.short_text("action", "name of the command", size=32),
    c.short_text("who", "empty: not known yet (a task cleared in Airflow)", size=255),
    c.short_text("via", "where the command was given: command line, page, clear (of an Airflow task)"),
    c.long("reason"),
    c.long("details", "JSON: the arguments"),
    c.moment("done_at"),
    Index("by_id", "id", unique=True),
    Index("by_lock", "task", "lock_id"),
)

statement_command = _of_locks(
    "statement_command",
    "operator command about a single statement of a binlog",
    c.auto_id("number of the command"),
    c.short_text("source"),
    *c.binlog_location(comment="where the statement begins; NULL: it is named by its GTID", null=True),
    c.short_text("gtid", "GTID of the statement, or empty", size=255),
    c.state("kind", CommandKind),
    c.long("statements", "JSON: the statements to run instead"),
    c.word("state", "waiting, used or reverted"),
    c.big("action", "`operator_action.id`"),
    c.big("window", "window that has used the command", null=True),
    *c.binlog_location("matched_", "where the statement was found", null=True),
    c.long("matched_text", "the statement without its string literals, or empty"),
    c.moment("ended_at", "when the command was used or reverted", null=True),
    Index("by_id", "id", unique=True),
    Index("by_state", "task", "source", "state"),
)

_of_joins = _section("Targets in optimistic mode")
join_target = _of_joins(
    "join_target",
    "target that follows the join of its shards",
    *c.target_key(),
    c.big("version", "rises with every change of the target or of its columns' ids"),
    c.big("settled_version", "version at which shards and target were found equal"),
    c.digest("settled_shards", "hash of the states of the shards at that time; or empty"),
    c.big("last_id", "id that was given last to a column"),
    c.long("names", "JSON: the ids of the target's columns, by name"),
    c.digest("floor_digest", "structure of the target when someone had given it more than its shards; or empty"),
    c.long("floor_ids", "JSON: the ids of the columns of that structure, by name"),
    c.moment("began_at"),
    c.moment("changed_at"),
)

join_column = _of_joins(
    "join_column",
    "column of a joined target that a shard has or had, by its id",
    *c.target_key(),
    c.number("id"),
    c.long("names", "JSON: the names that shards have given it, in order"),
    c.long("fill", "SQL literal that rows have which existed before it was added"),
    c.flag("was_common", "1: all shards have had it at one time"),
    c.flag("is_kept", "1: filters have left out a DDL that drops it, so the target keeps it"),
    c.flag("is_filled_by_server", "1: rows of shards that lack it have values that no shard has"),
)

join_member = _of_joins(
    "join_member",
    "shard of a joined target after one of its DDL; rows after this DDL are read by it",
    *c.shard_key(),
    c.number("seq", "number of the DDL in `shard_ddl`; 0: the structure with which the shard has joined"),
    *c.target(),
    c.digest("shard_uid"),
    *c.binlog_location("ddl_", "end of the DDL; NULL: seq is 0", null=True),
    c.digest("digest", "structure"),
    c.long("ids", "JSON: the ids of its columns, by name"),
    c.long("dropped", "JSON: ids that it has dropped and that the target may still have"),
    c.long("reloads", "JSON: ids whose values must be read again, with the reason"),
    c.long("reload_error", "why they cannot be read again without an operator", null=True),
    c.moment("accepted_at"),
    Index("by_target", "task", "target_schema", "target_table"),
)

join_change = _of_joins(
    "join_change",
    "change of a joined target: its statements are stored before the first is executed",
    c.auto_id("order of the changes"),
    *c.target(),
    c.state("kind", ChangeKind),
    c.long("cause", "the DDL of the shards, or why the target contracts"),
    c.long("statements", "JSON: the statements, with the structures of the target before and after each"),
    c.of_kind("done", "how many statements are executed", kind=Integer),
    c.long("error", "message of the target that has rejected a statement", null=True),
    c.moment("started_at", "written before the first statement runs"),
    c.moment("done_at", "NULL: it runs, or the process has died", null=True),
    c.word("outcome", "executed, given up (the rest is decided again) or refused", null=True),
    Index("by_id", "id", unique=True),
    Index("by_target", "task", "target_schema", "target_table", "done_at"),
)


def create_table(table: Table) -> str:
    """Return CREATE TABLE IF NOT EXISTS with all indexes, for MariaDB, MySQL and TiDB."""
    comment = str(table.comment).replace("'", "''")
    parts = ", ".join(_parts(table))
    return f"CREATE TABLE IF NOT EXISTS {identifier(table.name)} ({parts}) {OPTIONS} COMMENT='{comment}'"


def _parts(table: Table) -> Iterator[str]:
    # SQLAlchemy would create the indexes by separate statements, which MySQL cannot repeat.
    yield from (str(CreateColumn(column).compile(dialect=DIALECT)) for column in table.columns)
    yield f"PRIMARY KEY ({_names(table.primary_key.columns)})"
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        yield f"{'UNIQUE ' if index.unique else ''}KEY {identifier(str(index.name))} ({_names(index.columns)})"


def _names(columns: Iterable[Column[Any]]) -> str:
    return ", ".join(identifier(column.name) for column in columns)
