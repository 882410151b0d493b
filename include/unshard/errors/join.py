"""US-51xx: targets that follow the join of their shards (`shard-mode: optimistic`)."""

from unshard.errors.base import Scope, ShardDdlError


class ShardsWithoutJoin(ShardDdlError, code="US-5100"):
    target: str
    conflicts: str
    template = "the shards of {target} have no common structure: {conflicts}"
    hint = "change one of the sides, then start the task again"


class ShardModeWaits(ShardDdlError, code="US-5101"):
    target: str
    mode: str
    waits: str
    template = "{target} cannot change to shard-mode '{mode}' yet: {waits}"
    hint = "`unshard locks` shows the open locks and differences"


class TargetBeingChanged(ShardDdlError, code="US-5150", scope=Scope.INTERNAL, transient=True):
    target: str
    template = "{target} is being expanded or contracted by another process"
    hint = "nothing to do: the next attempt executes the lock"


class UnlockOfJoined(ShardDdlError, code="US-5102", scope=Scope.CONFIG):
    lock: str
    target: str
    template = "lock {lock} cannot be unlocked: {target} follows the join of its shards"
    hint = "let the shards agree, or use `unshard skip --shard` or `unshard drop-shard`"


class JoinNotReached(ShardDdlError, code="US-5103", scope=Scope.DOWNSTREAM):
    target: str
    statements: str
    template = "{target} would not have the structure that its shards need after `{statements}`"
    hint = "`unshard locks` shows the shard; skip or replace its DDL"


class JoinRefused(ShardDdlError, code="US-5160", scope=Scope.DOWNSTREAM):
    target: str
    errno: int
    server_message: str
    statement: str
    template = "{target} refuses with error {errno}, {server_message}, what its shards need: {statement}"
    hint = "`unshard locks` shows the shard; skip or replace its DDL"


class TargetNameTaken(ShardDdlError, code="US-5161", scope=Scope.DOWNSTREAM):
    target: str
    columns: str
    template = "{target} has a column of its own with the name that its shards need: {columns}"
    hint = "rename or drop the target's column (ALTER TABLE … RENAME COLUMN); the next run continues"


class TargetColumnsGone(ShardDdlError, code="US-5180", scope=Scope.DOWNSTREAM):
    target: str
    columns: str
    template = "{target} was altered by someone else: it lacks {columns}"
    hint = "add the columns to the target again, then run `unshard reload TASK --shard S --columns C` for each shard"


class JoinChanged(ShardDdlError, code="US-5120", scope=Scope.INTERNAL):
    target: str
    template = "target table {target} was changed while rows for it were converted"
    hint = "nothing to do: the next attempt writes them into the present columns"


class JoinChanging(ShardDdlError, code="US-5121", scope=Scope.INTERNAL, transient=True):
    target: str
    statement: str
    template = "target table {target} is being changed: {statement}"
    hint = "nothing to do: the next attempt writes the rows after the change"
