"""US-500x, US-5020: shard groups and DDL locks. US-503x: an operator's commands to a lock."""

from unshard.errors.base import Scope, ShardDdlError


class ShardDdlRefused(ShardDdlError, code="US-5001"):
    """A shard ran a statement, and unshard cannot know what it means for the target table.

    All shards share one target table, so unshard executes a statement there only if its effect on the rows is certain.
    The message says why it is not. Examples: `RENAME TABLE` gives a shard's name to a table whose rows are not in the
    target; `EXCHANGE PARTITION` moves rows that the binlog does not show. `docs/limits.md` lists these statements.

    Consequence: unshard holds the later rows of this shard. Other shards and targets continue. `unshard locks` shows
    the statement as an undecided lock with this message.
    Remedy: Decide what the statement means for the target. `unshard skip`: it changes nothing there, and the later rows
    of the shard are written. `unshard replace`: the target executes other statements that you give. Both show their
    effects with `--dry-run`.
    """

    shard: str
    ddl: str
    reason: str
    step: str
    template = "an operator must decide what a statement of {shard} means for the target, `{ddl}`: {reason}"
    hint = "{step}"


class UnknownShard(ShardDdlError, code="US-5002"):
    """The binlog has rows or a DDL of a routed table that neither existed at the snapshot nor was created since.

    The relay may have been started after its CREATE TABLE, or that ran with `sql_log_bin=0`.

    Consequence: Rows stop the windows of the source before this location. After a DDL, the rows of the table wait for
    an operator.
    """

    shard: str
    target: str
    location: str
    template = "{shard} is routed to {target} and changes at {location}, but the task does not know its structure"
    hint = "its CREATE TABLE was never seen: load the task from the start, or remove the table from the routes"


class MismatchedNewShard(ShardDdlError, code="US-5003"):
    """A table was created while DDLs of its group are pending, and its structure matches none of the group.

    No shard of the group has this structure, had it before its pending DDLs, or will have it after them.

    Consequence: unshard holds the rows of the new shard. If another source is only late, the rows are released
    automatically when the group has reached this structure.
    Remedy: Otherwise skip it (its rows are then written by column name), or replace it by statements that the target
    needs to store them.
    """

    shard: str
    target: str
    ddl: str
    peer: str
    template = "new shard {shard} of {target} has another structure than its group (compared with {peer}): `{ddl}`"
    hint = "it continues automatically when its group gets there; else skip it, or replace it by what the target needs"


class UnknownLock(ShardDdlError, code="US-5004", scope=Scope.CONFIG):
    """The task has no lock with this id.

    Consequence: Nothing is changed.
    Remedy: `unshard locks TASK.yaml` lists the open locks, with `--all` also the resolved ones.
    """

    task: str
    lock: str
    template = "task {task} has no lock {lock}"
    hint = "`unshard locks` lists them"


class LockBusy(ShardDdlError, code="US-5005", scope=Scope.INTERNAL, transient=True):
    """Another process is executing the DDL of this lock. This may take long on a large table.

    Remedy: Wait. If that process is dead, the server ends its session eventually; `KILL` on the target ends it at once.
    """

    lock: str
    template = "another process is executing the DDL of lock {lock}"
    hint = "wait for it; if that process is dead, its connection to the target ends by itself or by KILL"


class SegmentGap(ShardDdlError, code="US-5006", scope=Scope.INTERNAL):
    """The stored binlog does not continue at the checkpoint: a segment was removed or damaged.

    Consequence: The windows of the source stop at the checkpoint.
    """

    source: str
    expected: str
    found: str
    template = "source {source}: the next segment should begin at {expected} but begins at {found}"
    hint = "a segment file of the relay is missing: restore it, or remove the later ones so that they are pulled again"


class RecreatedShard(ShardDdlError, code="US-5007", transient=True):
    """One statement (CREATE OR REPLACE TABLE) recreated a shard that still has a pending DDL or held rows.

    The new table has another structure. This code is the reason of an undecided DDL. DROP TABLE and CREATE TABLE as two
    statements do not cause it.

    Consequence: unshard holds the new table's rows after those of the old table. They are released automatically when
    the group has reached this structure.
    Remedy: `unshard skip` lets unshard write them by column name; `unshard replace` names statements that the target
    should run before them.
    """

    shard: str
    target: str
    ddl: str
    template = "{shard} was dropped and recreated while rows of {target} wait after a pending DDL: `{ddl}`"
    hint = "its rows wait: skip it, or replace it by what the target needs to store them; see docs/errors.md"


class DecisionMisfits(ShardDdlError, code="US-5020"):
    """A DDL was skipped or replaced, but the resulting structure does not fit the rows that the shard wrote after it.

    The number of columns or their types differ, or the source shows other columns after a DDL that was skipped. This
    code is the reason of a DDL that is undecided *again*.

    Remedy: Replace it by statements that lead to the structure of the shard, for example those that its users ran.
    """

    shard: str
    ddl: str
    why: str
    template = "the decision about `{ddl}` of {shard} does not fit its rows: {why}"
    hint = "replace it by the statements that lead from the structure before the DDL to that of the rows"


class CommandError(ShardDdlError, scope=Scope.CONFIG):
    """An operator's command does not fit the lock.

    Consequence: Nothing is changed.
    """

    lock: str


class LockResolved(CommandError, code="US-5030"):
    """The lock of a command is already resolved: its DDL was executed, skipped or replaced meanwhile.

    Remedy: `unshard locks --all` shows how the lock was resolved.
    """

    how: str
    template = "lock {lock} is resolved already ({how})"
    hint = "`unshard locks` lists the open ones; a shard can be dropped with the id of a resolved lock too"


class LockUndecided(CommandError, code="US-5031"):
    """The effect of the lock's DDL is unknown (the message says why), so a forced unlock has nothing to execute."""

    why: str
    template = "lock {lock} cannot be forced, because the effect of its DDL is unknown: {why}"
    hint = "skip the DDL (`unshard skip`), or replace it by what should happen on the target (`unshard replace`)"


class NotAnOwner(CommandError, code="US-5032"):
    """The chosen owner has no shard that has reached the DDL.

    unshard executes the DDL in the time zone and sql_mode of the owner's session.
    """

    source: str
    sources: str
    template = "source {source} cannot be the owner of lock {lock}: no shard of it has reached the DDL"
    hint = "choose one that has reached it: {sources}"


class LockBegun(CommandError, code="US-5033", transient=True):
    """The DDL is being executed, or its process died during the execution, so the target may have it.

    Remedy: Let `unshard run` or the task `execute_ddl` end it: unshard then finds out what the target has. If the
    target refuses the DDL, the lock becomes `failed` and accepts commands again.
    """

    template = "the execution of the DDL of lock {lock} was begun and has not ended"
    hint = "let it end first (`unshard run`, or the task execute_ddl); if the target refuses it, repeat the command"


class NotInGroup(CommandError, code="US-5034"):
    """The command names a shard that the lock's target does not have. The message lists its shards."""

    shard: str
    group: str
    template = "lock {lock} has no shard {shard}"
    hint = "its shards are: {group}"


class NothingToReplace(CommandError, code="US-5035"):
    """The command replaces the DDL of one shard, but no DDL of that shard is pending."""

    shard: str
    template = "{shard} has no pending DDL that lock {lock} could replace"
    hint = "replace the DDL of all shards (without --shard), or wait until the shard has reached its DDL"


class ReplacementRefused(CommandError, code="US-5036"):
    """The replacement is not an ALTER TABLE, CREATE INDEX or DROP INDEX of the target table or one of its shards."""

    text: str
    why: str
    template = "lock {lock}: the DDL cannot be replaced by `{text}`: {why}"
    hint = "use ALTER TABLE, CREATE INDEX or DROP INDEX statements on the target table or on one of its shards"


class NothingRefused(CommandError, code="US-5037"):
    """The lock does not wait because the target refused its DDL; the message says what it waits for.

    `unshard retry --lock`, and *Try again* on the page, are only for a lock whose DDL the target refused.
    """

    why: str
    template = "lock {lock} does not wait for another answer of the target: {why}"
    hint = "`unshard locks` shows what it waits for and what helps"


class TargetIsReplaced(ShardDdlError, code="US-5060", transient=True):
    """A table joins a target while TRUNCATE, DROP or RENAME of another source is being executed on this target.

    The target was one-to-one when that source ran the statement. Without `shard-mode`, a table of each source may have
    the same target.

    Consequence: The window of the source waits until the lock of that statement is resolved.
    """

    target: str
    lock: str
    ddl: str
    template = "{target} is the target of a new shard, and lock {lock} is executing `{ddl}` on it"
    hint = "unshard tries again; `unshard locks` shows the lock"


class NewShardUndescribed(CommandError, code="US-5070"):
    """The statements would replace a statement that made a table a shard, but nothing tells the columns of that table.

    The group has no other shard with a known structure, so a change such as ALTER TABLE has no structure to start from.
    """

    shard: str
    text: str
    template = "lock {lock}: `{text}` does not tell the columns of {shard}, and no other shard of its group does"
    hint = "begin with CREATE TABLE and the columns of the shard, or skip the statement to read them from the source"


class ShardRowsUnknown(ShardDdlError, code="US-5071"):
    """The rows of a dropped or truncated shard cannot be told from rows of other shards (`drop-shard-rows: delete`).

    `unshard check` reports this before the start (US-2370). This shard, or one with the same values, came later.

    Consequence: No row is deleted. The lock of the statement waits for an operator, and the later rows of the shard are
    held. Everything else continues.
    Remedy: `unshard skip` keeps the rows. To remove them, delete them from the target by hand, then skip.
    """

    shard: str
    target: str
    why: str
    template = "the rows of {shard} in {target} cannot be told from rows of other shards: {why}"
    hint = "skip it to keep the rows; to remove them, delete them from the target by hand first"
