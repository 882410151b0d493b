"""US-3016 to US-3022, US-303x: decoding rows. US-600x, US-604x: writing them into the target."""

from typing import ClassVar

from unshard.errors.base import RelayError, Scope, TargetError

FULL = "set binlog_row_image=FULL globally and in every session of the source"
MISSED_DDL = "a DDL was not seen (sql_log_bin=0?): dump the shard again"


# --- Decoding -------------------------------------------------------------------------------------


class PartialRowImage(RelayError, code="US-3016"):
    """A row event omits columns, and nothing else contains their values.

    A session had `binlog_row_image` MINIMAL or NOBLOB: MariaDB logs a REPLACE of an existing row as an UPDATE of the
    columns that it names. MySQL logs a partial change of a JSON value without the value. A row of a system-versioned
    table may be a historical one.
    """

    shard: str
    place: str
    why: str = ""
    template = "rows of {shard} at {place} lack columns (binlog_row_image is not FULL in that session) {why}"
    hint = f"{FULL}, then dump the source again"


class ColumnCountDiffers(RelayError, code="US-3017"):
    """Rows have another number of columns than the shard's tracked structure: a DDL ran with `sql_log_bin=0`.

    Consequence: A window holds such rows and asks an operator ([US-3032](#us-3032-rowscontradict)).
    """

    shard: str
    place: str
    found: int
    tracked: int
    template = "rows of {shard} at {place} have {found} columns, the tracked structure has {tracked}"
    hint = MISSED_DDL


class ColumnTypeDiffers(RelayError, code="US-3018"):
    """A column of the rows has another type, sign or name than in the tracked structure.

    A DDL ran with `sql_log_bin=0`. unshard never reads rows with a structure that does not fit them.

    Consequence: A window holds such rows and asks an operator ([US-3032](#us-3032-rowscontradict)).
    """

    shard: str
    column: str
    place: str
    found: str
    tracked: str
    template = "column {column} of {shard} is {found} in the rows at {place}, but {tracked} in the tracked structure"
    hint = MISSED_DDL


class UnsupportedColumn(RelayError, code="US-3019"):
    """unshard does not support the type of a column.

    It is YEAR(2), an unknown type, or an ENUM or SET whose labels are in an unknown character set.
    """

    shard: str
    column: str
    type: str
    template = "column {column} of {shard} has a type that unshard does not support: {type}"
    hint = "change the column's type on the source, or exclude the table with block-allow-list"


class DamagedRow(RelayError, code="US-3021"):
    """The bytes of a row do not fit the structure: they end too early or too late, or are not a value of their type."""

    shard: str
    place: str
    reason: str
    template = "rows of {shard} at {place} cannot be read: {reason}"
    hint = "pull the segment again; if that does not help, a DDL was not seen: dump the shard again"


class RowsWithoutTable(RelayError, code="US-3022"):
    """A row event refers to a table that no event of its transaction describes."""

    place: str
    table_id: int
    template = "rows at {place} belong to table id {table_id}, which no event before them describes"
    hint = "remove this relay segment and its index so that it is pulled again; if it repeats report it"


class DefaultUnknown(RelayError, code="US-3031"):
    """An INSERT omits a column, and unshard cannot compute the column's default from the definition of the table.

    The session had `binlog_row_image` MINIMAL, and the default is a TIMESTAMP (which depends on the reader's time
    zone), a ZEROFILL number or an address.
    """

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
    """The rows of a shard do not have the structure that unshard tracks.

    The shard was altered without a trace in its binlog, for example with `sql_log_bin=0`. Or a MariaDB session had
    another `old_mode` than its server, which no binlog contains, so its `CHARACTER SET utf8` means another character
    set. This code is the reason of an undecided lock.

    Consequence: unshard holds the rows of this shard after the named location. All other shards continue.
    Remedy: Name the missing statement: `unshard replace TASK.yaml LOCK --shard SHARD --sql 'ALTER TABLE …'`. It then
    counts as the shard's own DDL, and its group has to agree with it. If the target should stay as it is, `unshard
    skip` the lock afterwards. If the shard is gone for good, use `unshard drop-shard`.
    """

    shard: str
    location: str
    reason: str
    template = "a DDL of {shard} is missing in the binlog, its rows after {location} have another structure: {reason}"
    hint = "replace it for this shard by the statement that the shard has run, or drop the shard"


# --- Writing --------------------------------------------------------------------------------------


class NoTargetTable(TargetError, code="US-6001"):
    """The target does not have, or no longer has, a table into which unshard writes rows.

    Remedy: Run the full part of the task, which creates its target tables. If the table was dropped later, create it
    like the shards and run the task again.
    """

    target: str
    template = "target table {target} does not exist"
    hint = "run the full part of the task first, or create the table in the target as the shards have it"


class RowRefused(TargetError, code="US-6002"):
    """A value does not fit into the target's column.

    It is too long, out of range, NULL where NULL is not allowed, or a text that the column's character set cannot
    store. Or the server would change it without a warning: trailing blanks in CHAR, too few bytes in BINARY, a text
    that is not a label of an ENUM or SET, a year of two digits. The message names the column and the key of the row.

    Consequence: In the full load, nothing of the chunk is written. In a window, unshard suspends this target for the
    source, holds its rows from there on, and continues with everything else.
    Remedy: Make the target's column as wide as the shards' and run the task again.
    [Operations](operations.md#when-a-target-cannot-take-a-row) lists what else helps, also against an id that a column
    mapping cannot map.
    """

    target: str
    column: str
    key: str
    server_message: str
    line: bytes = b""
    """The row as it was sent; empty if it was not sent."""
    template = "target table {target} cannot store a row as it is: {server_message} (column '{column}', row {key})"
    hint = "make the target's column as wide as the shards' (SHOW CREATE TABLE on both), then run the task again"


class ColumnNotInTarget(TargetError, code="US-6003"):
    """A shard has a column that the target table does not have, so its values would be lost.

    Usually the column was added to the shard outside a DDL that unshard has seen, or dropped from the target.
    """

    shard: str
    column: str
    target: str
    template = "shard {shard} has the column '{column}', target table {target} has not"
    hint = "add the column to the target, or drop it in the shard; then run the task again"


class ColumnTypesDiffer(TargetError, code="US-6004"):
    """A column has different types in shard and target, with which the same bytes have different meanings.

    Examples are BIT and a number, DATETIME and TIMESTAMP, DOUBLE and FLOAT, DOUBLE and DOUBLE(9,2), a generated column
    and a plain one. With `shard-mode: optimistic` a target that exists at the start must have a join with its shards.
    """

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
    """The target's primary or unique key has a column that the rows of this shard do not have.

    unshard could not find such a row again. This happens after a forced unlock of a DDL that changes the key.
    """

    shard: str
    column: str
    target: str
    template = "target table {target} identifies rows by the column '{column}', which shard {shard} does not have"
    hint = "run the DDL that adds the column on this shard too, or give the target the key that the shards have"


class Collision(TargetError, code="US-6006"):
    """Two shards have a row with the same key, so their union does not fit into one table.

    The message names the key and both shards, as far as unshard can find them.

    Remedy: Remove one of the rows, or choose a policy with `on-duplicate`. If a row was moved from one source to
    another, the window of the other source may have to run first: unshard releases the held rows when the key is free
    in the target. If both shards are of one source, `unshard retry` combines the DELETE with the held rows.
    """

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
    """A shard inserts a key that it already has, or deletes a key that it does not have.

    The usual reason is TRUNCATE of a shard, which unshard does not execute on the target. Another is a shard whose own
    key is not unique (a target key of fewer columns).
    """

    shard: str
    target: str
    key: str
    template = "shard {shard} deletes or inserts the row {key} of target table {target} twice"
    hint = (
        "if the shard was truncated or its key is no unique key there, run the full part of the task again;"
        " otherwise report this"
    )


class RowsMissing(TargetError, code="US-6008"):
    """The target has fewer copies of a row than its shards delete or change.

    In a table without a key, unshard finds a row by all its values, as often as the source deleted or changed it.
    Something else changed the target table.

    Consequence: Nothing of the window is written to this target; unshard suspends it for the source.
    """

    target: str
    row: str
    wanted: int
    found: int
    template = "target table {target} has {found} of {wanted} rows to delete or change: {row}"
    hint = "something else wrote into the target: compare with `unshard validate`, restore the rows and run again"


class EngineNotTransactional(TargetError, code="US-6009"):
    """The target table has an engine without transactions, such as MyISAM or Aria.

    It cannot roll back half a chunk or half a window, so rows could be lost or doubled. unshard creates target tables
    with transactions (US-2390). So the table was created by hand or altered by a DDL of its shards, or the server
    enforces an engine.
    """

    target: str
    engine: str
    template = "target table {target} has the engine {engine}, which has no transactions"
    hint = "ALTER TABLE … ENGINE=InnoDB on the target, then run the task again"


class StatementWarned(TargetError, code="US-6011"):
    """The target executed a statement with a warning that unshard does not expect.

    Consequence: unshard rolls the window back.
    """

    target: str
    server_message: str
    template = "writing to target table {target} caused an unexpected warning: {server_message}"
    hint = "check that the target's structure fits the shards'; if it does, report this"


class WriteRefused(TargetError, code="US-6026"):
    """The target refuses to read, delete or write rows of one table.

    The account may not do so, a trigger raises an error, or the table is damaged. The message has the server's message.

    Remedy: Correct the cause, then let the target continue with `unshard retry`.
    """

    target: str
    server_message: str
    template = "the target refuses a statement about table {target}: {server_message}"
    hint = "correct what the server reports (a privilege, a trigger, the table itself), then run the task again"


# --- Rows without all of their columns ------------------------------------------------------------


class ColumnLeftOut(TargetError, code="US-6041"):
    """Rows of a session that logs only changed columns lack a needed column.

    The target's key contains it, the target has no key although the shard has one, an expression filter names it, or a
    DDL is between two changes of a row in one window.
    """

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
    """A session that logs only changed columns changed a row that is not in the target.

    The values of the other columns are not in the binlog. The row was removed from the target, or excluded from the
    dump (`where`). In safe mode unshard defers such a change to a later one, because the dump saw the row deleted.

    Remedy: `unshard validate` shows which other rows are missing. Set `binlog_row_image` FULL on the source and load
    the target anew.
    """

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
    """A session that logs only changed columns gave a row another key between P0 and P1, or in safe mode.

    unshard does not know which of two moments the dump saw, so the other values of the row are unknown.
    """

    target: str
    shard: str
    key: str
    template = (
        "in shard {shard} a row got the key {key} during the dump of {target} or in safe mode, and the binlog lacks"
        " columns of it (binlog_row_image is not FULL in that session): its values are unknown"
    )
    hint = f"load again while no keys change, or {FULL}, and load the target anew"


class DeferredRowMissing(TargetError, code="US-6044"):
    """Rows were deferred to a later change, and that change has not come by P1.

    The load defers a row if another row of its shard had its value of a unique key at another moment. Safe mode defers
    a row if the binlog has only some of its columns and the target lacks the row. The change is missing because a
    session logged changed columns only, because the target's keys were changed after the dump, or because rows changed
    without a binlog (`sql_log_bin=0`).

    Consequence: The windows continue. The error recurs at the end of what was pulled, until the rows have come.
    Remedy: Change the rows in their shard with `binlog_row_image=FULL`, or remove them there.
    """

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
    """The target has no column, or one of another type, for a value that names the rows of a dropped shard.

    With `drop-shard-rows: delete`, the rows of a dropped or truncated shard are found by extracted columns and mapped
    ids. The column was renamed, dropped or changed in the target.

    Consequence: The windows of the source stop before the statement is done. No row is lost, and none is deleted.
    """

    shard: str
    target: str
    column: str
    found: str
    template = "{target} cannot tell the rows of {shard}: its column '{column}' does not fit the rule (type '{found}')"
    hint = "give the target table the column that the rule of the task file names, then run the task again"


class ShardRowsNotDeleted(TargetError, code="US-6081"):
    """The target refused to delete the rows of a dropped or truncated shard (`drop-shard-rows: delete`).

    Consequence: The windows of the source stop at the statement. Rows that are deleted stay deleted, and the next
    attempt deletes the rest. Other sources continue.
    """

    shard: str
    target: str
    statement: str
    server_message: str
    template = "the rows of {shard} could not be deleted from {target} after `{statement}`: {server_message}"
    hint = "remove the cause (a missing table, a missing DELETE privilege), then run the task again"
