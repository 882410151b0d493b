"""US-30xx: decoding rows. US-600x, US-604x: writing them; US-601x, US-602x: rules; US-607x: foreign keys; US-68xx."""

from typing import ClassVar

from unshard.errors.base import OneTargetError, RelayError, Scope, ShardRowsError, TargetError
from unshard.errors.checks import CheckFailed, SourceWarned

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


class NoTargetTable(OneTargetError, code="US-6001"):
    template = "target table {target} does not exist"
    hint = "run the full part of the task first, or create the table in the target as the shards have it"


class RowRefused(OneTargetError, code="US-6002"):
    column: str
    key: str
    server_message: str
    line: bytes = b""
    """The row as it was sent; empty if it was not sent."""
    template = "target table {target} cannot store a row as it is: {server_message} (column '{column}', row {key})"
    hint = "make the target's column as wide as the shards', or raise the limit that the message names; then run again"


class ColumnNotInTarget(ShardRowsError, code="US-6003"):
    column: str
    target: str
    template = "shard {shard} has the column '{column}', target table {target} has not"
    hint = "add the column to the target, or drop it in the shard; then run the task again"


class ColumnTypesDiffer(ShardRowsError, code="US-6004"):
    column: str
    shard_type: str
    target: str
    target_type: str
    template = (
        "column '{column}' is {shard_type} in shard {shard} and {target_type} in target table {target}:"
        " its values would change silently"
    )
    hint = "give the target's column the type that it has in the shards, then run the task again"


class KeyColumnMissing(ShardRowsError, code="US-6005"):
    column: str
    target: str
    template = "target table {target} identifies rows by the column '{column}', which shard {shard} does not have"
    hint = "run the DDL that adds the column on this shard too, or give the target the key that the shards have"


class Collision(OneTargetError, code="US-6006"):
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


class KeyOutOfOrder(ShardRowsError, code="US-6007", scope=Scope.INTERNAL):
    target: str
    key: str
    template = "shard {shard} deletes or inserts the row {key} of target table {target} twice"
    hint = (
        "if the shard was truncated or its key is no unique key there, run the full part of the task again;"
        " otherwise report this"
    )


class RowsMissing(OneTargetError, code="US-6008"):
    row: str
    wanted: int
    found: int
    template = "target table {target} has {found} of {wanted} rows to delete or change: {row}"
    hint = "something else wrote into the target: compare with `unshard validate`, restore the rows and run again"


class EngineNotTransactional(OneTargetError, code="US-6009"):
    engine: str
    template = "target table {target} has the engine {engine}, which has no transactions"
    hint = "ALTER TABLE … ENGINE=InnoDB on the target, then run the task again"


class StatementWarned(OneTargetError, code="US-6011"):
    server_message: str
    template = "writing to target table {target} caused an unexpected warning: {server_message}"
    hint = "check that the target's structure fits the shards'; if it does, report this"


class WriteRefused(OneTargetError, code="US-6026"):
    server_message: str
    template = "the target refuses a statement about table {target}: {server_message}"
    hint = "correct what the server reports (a privilege, a trigger, the table itself), then run the task again"


# --- Rows without all of their columns ------------------------------------------------------------


class ColumnLeftOut(ShardRowsError, code="US-6041"):
    column: str
    target: str
    need: str
    template = (
        "rows of shard {shard} lack the column '{column}' (binlog_row_image is not FULL in that session),"
        " which {need} needs to write them into {target}"
    )
    hint = f"{FULL}, and load the target anew"


class ChangedRowMissing(OneTargetError, code="US-6042"):
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


class MovedRowUnknown(OneTargetError, code="US-6043"):
    shard: str
    key: str
    template = (
        "in shard {shard} a row got the key {key} during the dump of {target} or in safe mode, and the binlog lacks"
        " columns of it (binlog_row_image is not FULL in that session): its values are unknown"
    )
    hint = f"load again while no keys change, or {FULL}, and load the target anew"


class DeferredRowMissing(OneTargetError, code="US-6044"):
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


class ShardRowsUnmarked(ShardRowsError, code="US-6080"):
    target: str
    column: str
    found: str
    template = "{target} cannot tell the rows of {shard}: its column '{column}' does not fit the rule (type '{found}')"
    hint = "give the target table the column that the rule of the task file names, then run the task again"


class ShardRowsNotDeleted(ShardRowsError, code="US-6081"):
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


class NothingInCommon(OneTargetError, code="US-6810"):
    reasons: str
    template = "target table {target} has no column in common with its shards that can be compared: {reasons}"
    hint = "check that the routes send the right shards to this table, and compare SHOW CREATE TABLE on both"


class ForeignKeysCascade(SourceWarned, code="US-2367"):
    keys: str
    template = "source {source} changes rows by foreign keys, without a trace in its binlog: {keys}"
    hint = "the target's foreign keys must have the same actions"


class ForeignKeyLacking(SourceWarned, code="US-2368"):
    keys: str
    template = "source {source} has foreign keys that the target lacks and does not get: {keys}"
    hint = "create them on the target (ALTER TABLE … ADD FOREIGN KEY), or route the parent tables too"


class ForeignKeyNotOfShards(CheckFailed, code="US-2369"):
    target: str
    key: str
    shard: str
    template = (
        "the target has a foreign key, {key}, that shard {shard} does not have: no order of its rows satisfies it"
    )
    hint = "drop the foreign key on the target, or set foreign_key_checks of the target's session to 0"


class ReferencedRowMissing(OneTargetError, code="US-6070"):
    key: str
    parent: str
    parent_key: str
    condition: str = ""
    """The parent's row as an SQL condition; empty if it was not found out."""
    rows: str = ""
    """The parent, quoted for SQL."""
    template = "row {key} of target table {target} references {parent_key}, which {parent} does not have"
    hint = (
        "if another source writes the parent row, wait for its next window; otherwise write the row into its shard, or"
        " remove the reference there, then run `unshard retry`"
    )


class RowReferenced(OneTargetError, code="US-6071"):
    key: str
    child: str
    condition: str = ""
    """The referencing rows of the child as an SQL condition; empty if they were not found out."""
    rows: str = ""
    """The child, quoted for SQL."""
    template = "row {key} of target table {target} cannot be deleted or moved: rows of {child} reference it"
    hint = (
        "if another source deletes the rows that reference it, wait for its next window; otherwise compare the foreign"
        " keys of the target with those of the shards, then run `unshard retry`"
    )


class ConnectedTargetWaits(OneTargetError, code="US-6072"):
    other: str
    template = "target table {target} waits for {other}: foreign keys connect them"
    hint = "the error of {other} says what to do"


class ExtractedColumnMissing(OneTargetError, code="US-6014"):
    column: str
    shard: str
    template = "target table {target} has no column '{column}', into which the route of shard {shard} extracts"
    hint = "add it (VARCHAR(64) NOT NULL, say), and to the key too if two shards can have the same key; then run again"


class ExtractedColumnTaken(ShardRowsError, code="US-6015", scope=Scope.CONFIG):
    column: str
    target: str
    template = "shard {shard} has the column '{column}' itself, into which its route to {target} extracts"
    hint = "set target-column of the route to a column that no shard has"


class ExtractedValueUnfit(OneTargetError, code="US-6016"):
    column: str
    column_type: str
    value: str
    shard: str
    template = "column '{column}' of target table {target} is {column_type} and cannot hold '{value}' of shard {shard}"
    hint = "make it a CHAR, VARCHAR or TEXT that is long enough, or an integer for values without leading zeros"


class ExtractionNeedsTable(OneTargetError, code="US-6017"):
    shard: str
    columns: str
    template = "target table {target} does not exist, and the route of shard {shard} extracts into it: {columns}"
    hint = (
        "create it like the shards, with these columns (VARCHAR(64) NOT NULL, say), and add them to the key if two"
        " shards can have the same key; then run the task again"
    )


class MappedColumnMissing(ShardRowsError, code="US-6018"):
    column: str
    rule: str
    template = "shard {shard} has no column '{column}', which column mapping '{rule}' names"
    hint = "correct the rule, or its patterns so that it does not match this table"


class MappedColumnUnfit(TargetError, code="US-6019"):
    place: str
    column: str
    kind: str
    rule: str
    wanted: str
    template = "column '{column}' of {place} is {kind}, column mapping '{rule}' needs {wanted}"
    hint = "create the target table by hand with a column that holds the mapped values, or correct the rule"


class MappedNotKey(ShardRowsError, code="US-6020"):
    column: str
    rule: str
    template = "column mapping '{rule}' changes '{column}' of shard {shard}, which is in no primary or unique key"
    hint = "correct the rule; if the column refers to mapped ids, name it in the rule's referencing-columns"


class MappedIdsTooLarge(ShardRowsError, code="US-6021"):
    column: str
    low: int
    high: int
    bits: int
    rule: str
    template = (
        "the ids in '{column}' of shard {shard} go from {low} to {high}, column mapping '{rule}' leaves {bits} bits,"
        " from 0 on"
    )
    hint = "leave an argument of the rule empty that no shard needs, so that more bits are free"


class MappingOverlap(OneTargetError, code="US-6022"):
    column: str
    first: str
    second: str
    start: int
    template = "shards {first} and {second} may both have ids from {start} on in '{column}' of target {target}"
    hint = (
        "give each its own instance, schema or table number in column-mappings; if their ids are distinct without it,"
        " set shared-bits: true"
    )


class RowsFiltered(TargetError, code="US-6023"):
    rule: str
    shard: str
    kind: str
    rows: int
    template = "filter '{rule}' stops at the {kind} of {rows} rows in shard {shard}"
    hint = "nothing was skipped; change the filter's action to Do or Ignore, or its events, and run the task again"


class RowFilterFailed(TargetError, code="US-6024"):
    rule: str
    expression: str
    server_message: str
    template = "the target cannot evaluate {expression!r} of expression filter '{rule}': {server_message}"
    hint = "correct the expression; it may name the columns of the shard as they are now, but no generated ones"


class RowFilterIdle(TargetError, code="US-6025"):
    rule: str
    table: str
    template = "expression filter '{rule}' is for {table}, which is no shard of a source that has the rule"
    hint = "nothing to do if the table comes later; else correct schema and table, which are names and not patterns"
