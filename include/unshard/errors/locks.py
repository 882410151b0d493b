"""US-50xx: shard groups, DDL locks, commands about locks and statements. US-509x, US-517x: reloads. US-51xx: joins."""

from unshard.errors.base import Scope, ShardDdlError, TargetDdlError


class ShardDdlRefused(ShardDdlError, code="US-5001"):
    shard: str
    ddl: str
    reason: str
    step: str
    template = "an operator must decide what a statement of {shard} means for the target, `{ddl}`: {reason}"
    hint = "{step}"


class UnknownShard(ShardDdlError, code="US-5002"):
    shard: str
    target: str
    location: str
    template = "{shard} is routed to {target} and changes at {location}, but the task does not know its structure"
    hint = "its CREATE TABLE was never seen: load the task from the start, or remove the table from the routes"


class MismatchedNewShard(ShardDdlError, code="US-5003"):
    shard: str
    target: str
    ddl: str
    peer: str
    template = "new shard {shard} of {target} has another structure than its group (compared with {peer}): `{ddl}`"
    hint = "it continues automatically when its group gets there; else skip it, or replace it by what the target needs"


class UnknownLock(ShardDdlError, code="US-5004", scope=Scope.CONFIG):
    task: str
    lock: str
    template = "task {task} has no lock {lock}"
    hint = "`unshard locks` lists them"


class LockBusy(ShardDdlError, code="US-5005", scope=Scope.INTERNAL, transient=True):
    lock: str
    template = "another process is executing the DDL of lock {lock}"
    hint = "wait for it; if that process is dead, its connection to the target ends by itself or by KILL"


class SegmentGap(ShardDdlError, code="US-5006", scope=Scope.INTERNAL):
    source: str
    expected: str
    found: str
    template = "source {source}: the next segment should begin at {expected} but begins at {found}"
    hint = "a segment file of the relay is missing: restore it, or remove the later ones so that they are pulled again"


class RecreatedShard(ShardDdlError, code="US-5007", transient=True):
    shard: str
    target: str
    ddl: str
    template = "{shard} was dropped and recreated while rows of {target} wait after a pending DDL: `{ddl}`"
    hint = "its rows wait: skip it, or replace it by what the target needs to store them; see docs/errors.md"


class DecisionMisfits(ShardDdlError, code="US-5020"):
    shard: str
    ddl: str
    why: str
    template = "the decision about `{ddl}` of {shard} does not fit its rows: {why}"
    hint = (
        "replace it by the statements that lead from the structure before the DDL to that of the rows, or by CREATE"
        " TABLE with these columns"
    )


class CommandError(ShardDdlError, scope=Scope.CONFIG):
    """An operator's command does not fit the lock."""

    lock: str


class LockResolved(CommandError, code="US-5030"):
    how: str
    template = "lock {lock} is resolved already ({how})"
    hint = "`unshard locks` lists the open ones; a shard can be dropped with the id of a resolved lock too"


class LockUndecided(CommandError, code="US-5031"):
    why: str
    template = "lock {lock} cannot be forced, because the effect of its DDL is unknown: {why}"
    hint = "skip the DDL (`unshard skip`), or replace it by what should happen on the target (`unshard replace`)"


class NotAnOwner(CommandError, code="US-5032"):
    source: str
    sources: str
    template = "source {source} cannot be the owner of lock {lock}: no shard of it has reached the DDL"
    hint = "choose one that has reached it: {sources}"


class LockBegun(CommandError, code="US-5033", transient=True):
    template = "the execution of the DDL of lock {lock} was begun and has not ended"
    hint = "let it end first (`unshard run`, or the task execute_ddl); if the target refuses it, repeat the command"


class NotInGroup(CommandError, code="US-5034"):
    shard: str
    group: str
    template = "lock {lock} has no shard {shard}"
    hint = "its shards are: {group}"


class NothingToReplace(CommandError, code="US-5035"):
    shard: str
    template = "{shard} has no pending DDL that lock {lock} could replace"
    hint = "replace the DDL of all shards (without --shard), or wait until the shard has reached its DDL"


class ReplacementRefused(CommandError, code="US-5036"):
    text: str
    why: str
    template = "lock {lock}: the DDL cannot be replaced by `{text}`: {why}"
    hint = "use ALTER TABLE, CREATE INDEX or DROP INDEX statements on the target table or on one of its shards"


class NothingRefused(CommandError, code="US-5037"):
    why: str
    template = "lock {lock} does not wait for another answer of the target: {why}"
    hint = "`unshard locks` shows what it waits for and what helps"


class TargetIsReplaced(TargetDdlError, code="US-5060", transient=True):
    lock: str
    ddl: str
    template = "{target} is the target of a new shard, and lock {lock} is executing `{ddl}` on it"
    hint = "unshard tries again; `unshard locks` shows the lock"


class NewShardUndescribed(CommandError, code="US-5070"):
    shard: str
    text: str
    template = "lock {lock}: `{text}` does not tell the columns of {shard}, and no other shard of its group does"
    hint = "begin with CREATE TABLE and the columns of the shard, or skip the statement to read them from the source"


class ShardRowsUnknown(ShardDdlError, code="US-5071"):
    shard: str
    target: str
    why: str
    template = "the rows of {shard} in {target} cannot be told from rows of other shards: {why}"
    hint = "skip it to keep the rows; to remove them, delete them from the target by hand first"


class ShardsWithoutJoin(TargetDdlError, code="US-5100"):
    conflicts: str
    template = "the shards of {target} have no common structure: {conflicts}"
    hint = "change one of the sides, then start the task again"


class ShardModeWaits(TargetDdlError, code="US-5101"):
    mode: str
    waits: str
    template = "{target} cannot change to shard-mode '{mode}' yet: {waits}"
    hint = "`unshard locks` shows the open locks and differences"


class TargetBeingChanged(TargetDdlError, code="US-5150", scope=Scope.INTERNAL, transient=True):
    template = "{target} is being expanded or contracted by another process"
    hint = "nothing to do: the next attempt executes the lock"


class UnlockOfJoined(ShardDdlError, code="US-5102", scope=Scope.CONFIG):
    lock: str
    target: str
    template = "lock {lock} cannot be unlocked: {target} follows the join of its shards"
    hint = "let the shards agree, or use `unshard skip --shard` or `unshard drop-shard`"


class JoinNotReached(TargetDdlError, code="US-5103", scope=Scope.DOWNSTREAM):
    statements: str
    template = "{target} would not have the structure that its shards need after `{statements}`"
    hint = "`unshard locks` shows the shard; skip or replace its DDL"


class JoinRefused(TargetDdlError, code="US-5160", scope=Scope.DOWNSTREAM):
    errno: int
    server_message: str
    statement: str
    template = "{target} refuses with error {errno}, {server_message}, what its shards need: {statement}"
    hint = "`unshard locks` shows the shard; skip or replace its DDL"


class TargetNameTaken(TargetDdlError, code="US-5161", scope=Scope.DOWNSTREAM):
    columns: str
    template = "{target} has a column of its own with the name that its shards need: {columns}"
    hint = "rename or drop the target's column (ALTER TABLE … RENAME COLUMN); the next run continues"


class TargetColumnsGone(TargetDdlError, code="US-5180", scope=Scope.DOWNSTREAM):
    columns: str
    template = "{target} was altered by someone else: it lacks {columns}"
    hint = "add the columns to the target again, then run `unshard reload TASK --shard S --columns C` for each shard"


class JoinChanged(TargetDdlError, code="US-5120", scope=Scope.INTERNAL):
    template = "target table {target} was changed while rows for it were converted"
    hint = "nothing to do: the next attempt writes them into the present columns"


class JoinChanging(TargetDdlError, code="US-5121", scope=Scope.INTERNAL, transient=True):
    statement: str
    template = "target table {target} is being changed: {statement}"
    hint = "nothing to do: the next attempt writes the rows after the change"


class StatementCommandError(ShardDdlError, scope=Scope.CONFIG):
    """A command about a statement is rejected or cannot be carried out."""

    place: str


class CommandAtNoStatement(StatementCommandError, code="US-5040"):
    number: int
    template = "command {number}: at {place} there are rows, not a statement"
    hint = "revert it: `unshard ddl revert TASK --number {number}`; SHOW BINLOG EVENTS shows where statements are"


class CommandUnfit(ShardDdlError, code="US-5041", scope=Scope.CONFIG):
    number: int
    place: str
    text: str
    why: str
    template = "command {number} for {place} does not fit `{text}`: {why}"
    hint = "revert it (`unshard ddl revert TASK --number {number}`), then give a command that fits"


class CommandPast(StatementCommandError, code="US-5042"):
    checkpoint: str
    template = "{place} is past: the windows are at {checkpoint}"
    hint = "if the statement waits, use the commands for its lock (`unshard locks`, `unshard skip`, `unshard replace`)"


class CommandLate(StatementCommandError, code="US-5043"):
    window: int
    template = "window {window} has begun with {place}, and its plan does not change"
    hint = "let it end (`unshard run`); if the statement waits then, use the commands for its lock (`unshard locks`)"


class CommandTaken(StatementCommandError, code="US-5044"):
    number: int
    kind: str
    template = "command {number} ({kind}) for {place} exists already"
    hint = "revert it first: `unshard ddl revert TASK --number {number}`"


class NothingStuck(ShardDdlError, code="US-5045", scope=Scope.CONFIG):
    source: str
    why: str
    template = "{source} does not wait at a statement that it cannot apply: {why}"
    hint = "name the statement by --at FILE:POSITION or --gtid GTID, or see `unshard status` and `unshard locks`"


class CommandSpent(ShardDdlError, code="US-5046", scope=Scope.CONFIG):
    named: str
    state: str
    template = "{named} cannot be reverted: {state}"
    hint = "`unshard ddl list TASK` shows all commands and their results"


class PlaceUnreadable(ShardDdlError, code="US-5047", scope=Scope.CONFIG):
    text: str
    why: str
    template = "'{text}' names no statement: {why}"
    hint = "write a position as mysql-bin.000003:1234, a GTID as 0-1-55 (MariaDB) or uuid:55 (MySQL), with one --source"


class CommandsChanged(ShardDdlError, code="US-5048", scope=Scope.INTERNAL, transient=True):
    source: str
    template = "commands about statements of {source} changed while its next window was planned"
    hint = "the next try plans the window again"


class HistoryUnknown(StatementCommandError, code="US-5049"):
    number: int
    location: str
    template = "command {number}: unknown whether {place} is past, because the GTIDs at {location} are not known"
    hint = "revert it (`unshard ddl revert TASK --number {number}`) and name the statement by its position"


class ReloadError(ShardDdlError, scope=Scope.CONFIG):
    """Columns of a shard cannot be reloaded."""

    shard: str


class ReloadShardUnknown(ReloadError, code="US-5090"):
    known: str
    template = "the task has no shard '{shard}' (it has {known})"
    hint = "write the shard as SOURCE/SCHEMA.TABLE, as `unshard locks` and `unshard validate` show it"


class ReloadColumnUnfit(ReloadError, code="US-5091"):
    column: str
    why: str
    template = "column {column} of {shard} cannot be reloaded: {why}"
    hint = "name other columns, drop that key of the target, or load the target again (`unshard run --remove-meta`)"


class ReloadMustWait(ReloadError, code="US-5092"):
    why: str
    next: str
    template = "{shard} cannot be reloaded now: {why}"
    hint = "{next}; then run the same command again"


class ReloadImpossible(ReloadError, code="US-5093"):
    why: str
    next: str
    template = "{shard} cannot be reloaded: {why}"
    hint = "{next}"


class ReloadStructureAhead(ReloadError, code="US-5094"):
    differences: str
    template = "the source's table {shard} is ahead of the windows: {differences}"
    hint = "apply the binlog first (`unshard run TASK`) and resolve its lock (`unshard locks TASK`), then reload again"


class ReloadNotDue(ReloadError, code="US-5170"):
    columns: str
    due: str
    template = "{columns} of {shard} need not be read again (to reload: {due})"
    hint = "`unshard locks` shows the columns that must be read again"
