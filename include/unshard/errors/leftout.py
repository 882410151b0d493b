"""US-604x: rows of the binlog that lack columns, where what is there does not do, and rows that never come; US-6406."""

from dataclasses import dataclass

from unshard.errors.target import TargetError

FULL = "set binlog_row_image=FULL on the source, globally and in every session, and load the target anew"


@dataclass(eq=False)
class ColumnLeftOut(TargetError):
    """A row lacks a column that is needed to apply it."""

    shard: str
    column: str
    target: str
    need: str

    code = "US-6041"
    template = (
        "rows of shard {shard} lack the column '{column}' (binlog_row_image is not FULL in that session),"
        " which {need} needs to write them into {target}"
    )
    hint = FULL


@dataclass(eq=False)
class ChangedRowMissing(TargetError):
    """Some columns of a row change that is not in the target."""

    target: str
    shard: str
    key: str

    code = "US-6042"
    template = (
        "shard {shard} changes some columns of the row {key}, which is not in target table {target}:"
        " what the other columns hold is not in the binlog (binlog_row_image is not FULL in that session)"
    )
    hint = (
        "the dump has left the row out (`where`), somebody has removed it from the target, or it never came (`unshard"
        f" validate` shows more); {FULL}"
    )


@dataclass(eq=False)
class MovedRowUnknown(TargetError):
    """A row got another key while the dump was under way, and not all of its columns are known."""

    target: str
    shard: str
    key: str

    code = "US-6043"
    template = (
        "in shard {shard} a row has got the key {key} while the dump of {target} was under way, or in safe mode,"
        " and the binlog lacks columns of it (binlog_row_image is not FULL in that session): nobody can tell its values"
    )
    hint = f"change no keys while the source is dumped, or {FULL}"


@dataclass(eq=False)
class AwaitedRowMissing(TargetError):
    """A row that the load or safe mode left to a later change has not come."""

    target: str
    shard: str
    key: str
    rows: int

    code = "US-6044"
    template = (
        "target table {target} lacks {rows} rows that were left to later changes, which have not come by the end of"
        " safe mode; the first is {key} of shard {shard}"
    )
    hint = (
        "change the row in its shard with binlog_row_image=FULL, any column of it, or remove it there: windows go on"
        " all the same, and one of the next brings it"
    )


@dataclass(eq=False)
class DumpLeft(TargetError):
    """A task that loads nothing has a dump from before that is not loaded."""

    source: str

    code = "US-6406"
    template = "source {source} has been dumped, or its dump has begun, and task-mode incremental would never load it"
    hint = (
        "put the former task-mode back, or load&sync if the dump is complete;"
        " `unshard stop --remove-meta` forgets it, so that the task begins without a dump"
    )
