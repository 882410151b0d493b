"""US-500x, US-5020: shard groups and DDL locks. US-503x: an operator's commands to a lock."""

from unshard.errors.base import Scope, ShardDdlError


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


class TargetIsReplaced(ShardDdlError, code="US-5060", transient=True):
    target: str
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
