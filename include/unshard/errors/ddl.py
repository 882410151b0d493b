"""US-4xxx: reading DDL, computing its effect, executing it."""

from unshard.errors.base import DdlError, Scope

SHOWN = 300
"""Characters of a statement that a message quotes."""


class DdlUnreadable(DdlError, code="US-4001"):
    text: str
    reason: str
    template = "cannot read the statement {text!r}: {reason}"
    hint = "nothing was skipped; docs/errors.md says what to do; if the statement is valid, report it"


class StatementFailed(DdlError, code="US-4011"):
    text: str
    defect: str
    template = "a defect of unshard ({defect}) prevents it from processing the statement {text!r}"
    hint = "skip or replace the statement, and report it with the traceback in the log"


class EffectRefused(DdlError, code="US-4003"):
    table: str
    errno: int
    server_message: str
    text: str
    template = "the target refuses with error {errno}, {server_message}, the DDL of {table} on an empty copy: {text}"
    hint = (
        "make the target accept it (flavor, version, sql_mode), or alter the target by hand, and ask again (`retry`);"
        " or skip or replace the DDL; CREATE TABLE in its place states the columns that the shards have after it"
    )


class StructureUnknown(DdlError, code="US-4004"):
    table: str
    text: str
    template = "unshard does not know the columns of {table}, because the task does not follow it: {text!r}"
    hint = (
        "skip the statement if the table is like the other shards, or has not changed since; else replace it by"
        " CREATE TABLE with its columns"
    )


class StructureNotShown(DdlError, code="US-4030"):
    table: str
    why: str
    template = "the source does not show the columns that {table} had after this statement: {why}"
    hint = "replace it by CREATE TABLE with these columns: `unshard replace … --shard … --sql 'CREATE TABLE …'`"


class DdlRefused(DdlError, code="US-4005", scope=Scope.DOWNSTREAM):
    target: str
    errno: int
    server_message: str
    text: str
    template = "{target} refuses with error {errno}, {server_message}, the DDL: {text}"
    hint = "remove the cause and unlock again, or skip or replace the DDL"


class TargetChanged(DdlError, code="US-4006", scope=Scope.DOWNSTREAM):
    target: str
    changes: str
    text: str
    template = "{target} was altered by someone else ({changes}), so it is unknown whether it has had the DDL {text}"
    hint = "restore the structure that the table should have, then unlock again"


class DdlStillRunning(DdlError, code="US-4007", scope=Scope.DOWNSTREAM, transient=True):
    target: str
    seconds: int
    template = "another session has been executing a DDL on {target} for more than {seconds} s"
    hint = "unshard tries again; SHOW PROCESSLIST on the target shows the progress"


class TargetLacksColumns(DdlError, code="US-4008", scope=Scope.DOWNSTREAM):
    target: str
    columns: str
    template = "the target table {target} exists and lacks columns of its shards: {columns}"
    hint = "add them, or drop the table and let unshard create it from a shard's structure"


class ColumnNamedOtherwise(DdlError, code="US-4010"):
    shard: str
    text: str
    names: str
    template = (
        "a column of {shard} has another name in the target ({names}), and this statement may mean both: `{text}`"
    )
    hint = "give the statements for the target: `unshard replace … --shard … --sql …`"


class DdlFiltered(DdlError, code="US-4009"):
    rule: str
    table: str
    text: str
    event: str
    template = "filter '{rule}' stops at a statement of {table} (event `{event}`): {text}"
    hint = (
        "skip this statement: `unshard ddl skip TASK.yaml --current`; or change the filter's action to Do or Ignore, or"
        " its events, and run the task again"
    )
