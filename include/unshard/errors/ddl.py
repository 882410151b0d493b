"""US-4xxx: reading DDL, computing its effect, executing it."""

from unshard.errors.base import DdlError, Scope

SHOWN = 300
"""Characters of a statement that a message quotes."""


class DdlUnreadable(DdlError, code="US-4001"):
    """unshard cannot parse a statement of a source's binlog, so its effect on tables is unknown.

    It begins with unknown keywords, or cannot be split into tokens.

    Consequence: The shards that the statement names wait for an operator (`unshard skip`, `unshard replace`). If it
    names none, those wait whose name or schema occurs anywhere in its text. If there is no such shard, unshard ignores
    the statement and records it: `unshard status` and the page show it without its strings.
    Remedy: Skip or replace it. If the statement is valid on the server, report it with its text.
    """

    text: str
    reason: str
    template = "cannot read the statement {text!r}: {reason}"
    hint = "nothing was skipped; docs/errors.md says what to do; if the statement is valid, report it"


class StatementFailed(DdlError, code="US-4011"):
    """unshard has a defect and cannot process a statement of a source's binlog; its log has the traceback.

    Consequence: The shards that the statement may concern wait for an operator. Everything else continues.
    Remedy: Skip or replace the statement, and report it with its text and the traceback.
    """

    text: str
    defect: str
    template = "a defect of unshard ({defect}) prevents it from processing the statement {text!r}"
    hint = "skip or replace the statement, and report it with the traceback in the log"


class EffectRefused(DdlError, code="US-4003"):
    """The target refuses a DDL on an empty table of the shard's structure.

    unshard finds the effect of a DDL by executing it on such a table. Usually the target's flavor or version does not
    support the syntax; the server's message says why.

    Consequence: The shard waits for an operator.
    Remedy: Skip the DDL or replace it. If the target accepts it by now, or if you have altered the target by hand so
    that it has the structure which the shards have now, ask again (`unshard retry … --lock`). If a shard has had later
    DDLs, unshard cannot know its structure after this one: state it by replacing the DDL by a CREATE TABLE.
    """

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
    """A table became a shard, and unshard does not know its columns.

    The binlog has no CREATE TABLE with columns for it. Either `CREATE TABLE a LIKE b` copied table b, or
    `RENAME TABLE b TO a` renamed table b, and table b does not belong to the task.

    Consequence: unshard holds the rows of this shard until an operator decides. Everything else continues.
    Remedy: Skip the statement (`unshard skip`). The shard then has the structure of the other shards of its group. If
    it is the only one, unshard reads the structure from the source. Or replace the statement by a CREATE TABLE with the
    columns of the shard (`unshard replace`).
    """

    table: str
    text: str
    template = "unshard does not know the columns of {table}, because the task does not follow it: {text!r}"
    hint = (
        "skip the statement if the table is like the other shards, or has not changed since; else replace it by"
        " CREATE TABLE with its columns"
    )


class StructureNotShown(DdlError, code="US-4030"):
    """An operator skipped the statement that made a table a shard, and the source no longer shows its structure then.

    The group has no other shard with a known structure, so unshard asks the source. The structure that the source shows
    is valid only if no later statement has changed the table. The message names that statement.

    Consequence: unshard holds the rows of this shard until an operator decides. Another skip has the same result.
    Remedy: Replace the statement by a CREATE TABLE with the columns that the table had at that time.
    """

    table: str
    why: str
    template = "the source does not show the columns that {table} had after this statement: {why}"
    hint = "replace it by CREATE TABLE with these columns: `unshard replace … --shard … --sql 'CREATE TABLE …'`"


class DdlRefused(DdlError, code="US-4005", scope=Scope.DOWNSTREAM):
    """All shards have run a DDL and the target refuses it because of its rows.

    For example, a new unique key for which rows of two shards conflict, a type that is too narrow, or no space left.
    The message has the server's message.

    Consequence: The lock has failed. unshard holds the rows after the DDL until an operator decides.
    """

    target: str
    errno: int
    server_message: str
    text: str
    template = "{target} refuses with error {errno}, {server_message}, the DDL: {text}"
    hint = "remove the cause and unlock again, or skip or replace the DDL"


class TargetChanged(DdlError, code="US-4006", scope=Scope.DOWNSTREAM):
    """The target table has neither the structure from before a DDL nor the one from after it.

    The table was altered outside unshard. The message names the differences.
    """

    target: str
    changes: str
    text: str
    template = "{target} was altered by someone else ({changes}), so it is unknown whether it has had the DDL {text}"
    hint = "restore the structure that the table should have, then unlock again"


class DdlStillRunning(DdlError, code="US-4007", scope=Scope.DOWNSTREAM, transient=True):
    """Another DDL on the same target table is running: in this process, in another, or in a session without a client.

    Consequence: unshard retries until that DDL has ended.
    """

    target: str
    seconds: int
    template = "another session has been executing a DDL on {target} for more than {seconds} s"
    hint = "unshard tries again; SHOW PROCESSLIST on the target shows the progress"


class TargetLacksColumns(DdlError, code="US-4008", scope=Scope.DOWNSTREAM):
    """The target table existed before its first shard and lacks columns of the shard.

    It existed before the task, or its only shard was dropped and created again with another structure.

    Consequence: At the start, the task does not start. In a running task, the target is suspended for this source: its
    rows are held, and everything else continues. It continues automatically when the target table has the columns.
    """

    target: str
    columns: str
    template = "the target table {target} exists and lacks columns of its shards: {columns}"
    hint = "add them, or drop the table and let unshard create it from a shard's structure"


class ColumnNamedOtherwise(DdlError, code="US-4010"):
    """A shard gave a column another name than its group did, and a later statement of the shard cannot be translated.

    An operator has decided that the shard's statement (`CHANGE a d`) counts as that of its group (`CHANGE a c`). Since
    then unshard reads statements of the shard with the target's name of the column. In this statement the name may
    mean something else, or the shard now has a second column with the target's name.

    Consequence: unshard holds the rows of this shard after the statement until an operator decides.
    Remedy: Replace the statement for this shard by the statements that the target needs, with the target's names. Or
    skip it if the target needs none.
    """

    shard: str
    text: str
    names: str
    template = (
        "a column of {shard} has another name in the target ({names}), and this statement may mean both: `{text}`"
    )
    hint = "give the statements for the target: `unshard replace … --shard … --sql …`"


class DdlFiltered(DdlError, code="US-4009"):
    """A rule of `filters` with the action `Error` matches this statement.

    Consequence: Everything before the statement is applied. The source waits at the statement.
    Remedy: Skip this one statement with `unshard ddl skip TASK.yaml --current`. Or change the rule to `Ignore` or `Do`,
    or change its events or patterns, and run the task again. The message names the event that matches.
    """

    rule: str
    table: str
    text: str
    event: str
    template = "filter '{rule}' stops at a statement of {table} (event `{event}`): {text}"
    hint = (
        "skip this statement: `unshard ddl skip TASK.yaml --current`; or change the filter's action to Do or Ignore, or"
        " its events, and run the task again"
    )
