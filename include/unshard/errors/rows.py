"""US-3016 to US-3022, US-303x: decoding rows. US-600x, US-604x: writing them. US-68xx: comparing target and shards."""

from typing import ClassVar

from unshard.errors.base import RelayError, Scope, TargetError

FULL = "set binlog_row_image=FULL globally and in every session of the source"
MISSED_DDL = "a DDL was not seen (sql_log_bin=0?): dump the shard again"


# --- Decoding -------------------------------------------------------------------------------------


class PartialRowImage(RelayError, code="US-3016"):
    shard: str
    place: str
    why: str = ""
    template = "rows of {shard} at {place} lack columns (binlog_row_image is not FULL in that session) {why}"
    hint = f"{FULL}, then dump the source again"


class ColumnCountDiffers(RelayError, code="US-3017"):
    shard: str
    place: str
    found: int
    tracked: int
    template = "rows of {shard} at {place} have {found} columns, the tracked structure has {tracked}"
    hint = MISSED_DDL


class ColumnTypeDiffers(RelayError, code="US-3018"):
    shard: str
    column: str
    place: str
    found: str
    tracked: str
    template = "column {column} of {shard} is {found} in the rows at {place}, but {tracked} in the tracked structure"
    hint = MISSED_DDL


class UnsupportedColumn(RelayError, code="US-3019"):
    shard: str
    column: str
    type: str
    template = "column {column} of {shard} has a type that unshard does not support: {type}"
    hint = "change the column's type on the source, or exclude the table with block-allow-list"


class DamagedRow(RelayError, code="US-3021"):
    shard: str
    place: str
    reason: str
    template = "rows of {shard} at {place} cannot be read: {reason}"
    hint = "pull the segment again; if that does not help, a DDL was not seen: dump the shard again"


class RowsWithoutTable(RelayError, code="US-3022"):
    place: str
    table_id: int
    template = "rows at {place} belong to table id {table_id}, which no event before them describes"
    hint = "remove this relay segment and its index so that it is pulled again; if it repeats report it"


class DefaultUnknown(RelayError, code="US-3031"):
    shard: str
    column: str
    place: str
    default: str
    template = (
        "an INSERT into {shard} at {place} omits column '{column}' (binlog_row_image is not FULL in that session),"
        " and the value of its default ({default}) is not certain"
    )
    hint = f"{FULL}, then dump the source again"


class RowsContradict(RelayError, code="US-3032"):
    shard: str
    location: str
    reason: str
    template = "a DDL of {shard} is missing in the binlog, its rows after {location} have another structure: {reason}"
    hint = "replace it for this shard by the statement that the shard has run, or drop the shard"


# --- Writing --------------------------------------------------------------------------------------


class NoTargetTable(TargetError, code="US-6001"):
    target: str
    template = "target table {target} does not exist"
    hint = "run the full part of the task first, or create the table in the target as the shards have it"


class RowRefused(TargetError, code="US-6002"):
    target: str
    column: str
    key: str
    server_message: str
    line: bytes = b""
    """The row as it was sent; empty if it was not sent."""
    template = "target table {target} cannot store a row as it is: {server_message} (column '{column}', row {key})"
    hint = "make the target's column as wide as the shards' (SHOW CREATE TABLE on both), then run the task again"


class ColumnNotInTarget(TargetError, code="US-6003"):
    shard: str
    column: str
    target: str
    template = "shard {shard} has the column '{column}', target table {target} has not"
    hint = "add the column to the target, or drop it in the shard; then run the task again"


class ColumnTypesDiffer(TargetError, code="US-6004"):
    shard: str
    column: str
    shard_type: str
    target: str
    target_type: str
    template = (
        "column '{column}' is {shard_type} in shard {shard} and {target_type} in target table {target}:"
        " its values would change silently"
    )
    hint = "give the target's column the type that it has in the shards, then run the task again"


class KeyColumnMissing(TargetError, code="US-6005"):
    shard: str
    column: str
    target: str
    template = "target table {target} identifies rows by the column '{column}', which shard {shard} does not have"
    hint = "run the DDL that adds the column on this shard too, or give the target the key that the shards have"


class Collision(TargetError, code="US-6006"):
    target: str
    key: str
    shard: str
    owner: str
    condition: str = ""
    """The key as an SQL condition, used to find its owner."""
    unnamed: ClassVar[str] = "another shard"
    """The owner if only the target was asked: the key exists there."""
    template = "target table {target} has {key} already, from {owner}; shard {shard} has it too"
    hint = (
        "remove the row from one of the shards, or from the target if it is left over from a truncated or dropped"
        " shard, or set on-duplicate to replace or ignore in the task file; then run the task again"
    )


class KeyOutOfOrder(TargetError, code="US-6007", scope=Scope.INTERNAL):
    shard: str
    target: str
    key: str
    template = "shard {shard} deletes or inserts the row {key} of target table {target} twice"
    hint = (
        "if the shard was truncated or its key is no unique key there, run the full part of the task again;"
        " otherwise report this"
    )


class RowsMissing(TargetError, code="US-6008"):
    target: str
    row: str
    wanted: int
    found: int
    template = "target table {target} has {found} of {wanted} rows to delete or change: {row}"
    hint = "something else wrote into the target: compare with `unshard validate`, restore the rows and run again"


class EngineNotTransactional(TargetError, code="US-6009"):
    target: str
    engine: str
    template = "target table {target} has the engine {engine}, which has no transactions"
    hint = "ALTER TABLE … ENGINE=InnoDB on the target, then run the task again"


class StatementWarned(TargetError, code="US-6011"):
    target: str
    server_message: str
    template = "writing to target table {target} caused an unexpected warning: {server_message}"
    hint = "check that the target's structure fits the shards'; if it does, report this"


class WriteRefused(TargetError, code="US-6026"):
    target: str
    server_message: str
    template = "the target refuses a statement about table {target}: {server_message}"
    hint = "correct what the server reports (a privilege, a trigger, the table itself), then run the task again"


# --- Rows without all of their columns ------------------------------------------------------------


class ColumnLeftOut(TargetError, code="US-6041"):
    shard: str
    column: str
    target: str
    need: str
    template = (
        "rows of shard {shard} lack the column '{column}' (binlog_row_image is not FULL in that session),"
        " which {need} needs to write them into {target}"
    )
    hint = f"{FULL}, and load the target anew"


class ChangedRowMissing(TargetError, code="US-6042"):
    target: str
    shard: str
    key: str
    template = (
        "shard {shard} changes some columns of the row {key}, which is not in target table {target}:"
        " the values of the other columns are not in the binlog (binlog_row_image is not FULL in that session)"
    )
    hint = (
        "the dump excluded the row (`where`), or it was removed from the target, or it never came (`unshard"
        f" validate` shows more); {FULL}, and load the target anew"
    )


class MovedRowUnknown(TargetError, code="US-6043"):
    target: str
    shard: str
    key: str
    template = (
        "in shard {shard} a row got the key {key} during the dump of {target} or in safe mode, and the binlog lacks"
        " columns of it (binlog_row_image is not FULL in that session): its values are unknown"
    )
    hint = f"load again while no keys change, or {FULL}, and load the target anew"


class DeferredRowMissing(TargetError, code="US-6044"):
    target: str
    shard: str
    key: str
    rows: int
    template = (
        "target table {target} lacks {rows} deferred rows, which have not come by the end of safe mode; the first is"
        " {key} of shard {shard}"
    )
    hint = (
        "change any column of the row in its shard with binlog_row_image=FULL, or remove the row there: windows"
        " continue meanwhile, and one of the next applies the change"
    )


class ShardRowsUnmarked(TargetError, code="US-6080"):
    shard: str
    target: str
    column: str
    found: str
    template = "{target} cannot tell the rows of {shard}: its column '{column}' does not fit the rule (type '{found}')"
    hint = "give the target table the column that the rule of the task file names, then run the task again"


class ShardRowsNotDeleted(TargetError, code="US-6081"):
    shard: str
    target: str
    statement: str
    server_message: str
    template = "the rows of {shard} could not be deleted from {target} after `{statement}`: {server_message}"
    hint = "remove the cause (a missing table, a missing DELETE privilege), then run the task again"


class PacketTooSmall(TargetError, code="US-6803"):
    server: str
    value: int
    wanted: int
    template = "{server} has max_allowed_packet = {value}, comparing needs {wanted} at least"
    hint = "SET GLOBAL max_allowed_packet to 16777216 (16 MiB) and try again"


class NothingToValidate(TargetError, code="US-6804"):
    tables: str
    template = "no target table to validate{tables}"
    hint = "check the task's routes, and the names given with --table"


class NothingInCommon(TargetError, code="US-6810"):
    target: str
    reasons: str
    template = "target table {target} has no column in common with its shards that can be compared: {reasons}"
    hint = "check that the routes send the right shards to this table, and compare SHOW CREATE TABLE on both"
