"""US-51xx: targets that follow the join of their shards (`shard-mode: optimistic`)."""

from unshard.errors.base import Scope, ShardDdlError


class ShardsWithoutJoin(ShardDdlError, code="US-5100"):
    """The shards of a target have structures that no table can hold together.

    Examples: a column is JSON in one shard and INT in another; the shards have different primary keys.

    Consequence: The target is not changed, and the task does not begin with these shards.
    Remedy: Change the shards that the message names, or route them to another target.
    """

    target: str
    conflicts: str
    template = "the shards of {target} have no common structure: {conflicts}"
    hint = "change one of the sides, then start the task again"


class ShardModeWaits(ShardDdlError, code="US-5101"):
    """The `shard-mode` of a running task was changed, and shards of a target differ or a DDL of them waits.

    Consequence: The target stays in its former mode. With the mode `optimistic` in the task file it joins as soon as
    nothing waits any more. Without it the windows of the task stop, because its rows go by the ids of their columns.
    Remedy: Let the shards agree, or resolve the lock. To leave the mode `optimistic`, set it again until then.
    """

    target: str
    mode: str
    waits: str
    template = "{target} cannot change to shard-mode '{mode}' yet: {waits}"
    hint = "`unshard locks` shows the open locks and differences"


class TargetBeingChanged(ShardDdlError, code="US-5150", scope=Scope.INTERNAL, transient=True):
    """Another process expands or contracts the target at the moment, so the DDL of a lock has to wait for it.

    Consequence: The lock waits. Nothing is lost.
    Remedy: Nothing has to be done. If that process has died, the next coordination of locks ends its change.
    """

    target: str
    template = "{target} is being expanded or contracted by another process"
    hint = "nothing to do: the next attempt executes the lock"


class UnlockOfJoined(ShardDdlError, code="US-5102", scope=Scope.CONFIG):
    """`unshard unlock` of a target in optimistic mode: other shards would not fit into the structure that it leads to.

    Values of their rows, or of the shard's own, would be lost.

    Consequence: The command is rejected, nothing is changed.
    Remedy: Let the other shards run the DDL, or let this shard go back. `unshard skip --shard` lets its rows continue
    without the columns that have no place. `unshard drop-shard` takes it out of the group.
    """

    lock: str
    target: str
    template = "lock {lock} cannot be unlocked: {target} follows the join of its shards"
    hint = "let the shards agree, or use `unshard skip --shard` or `unshard drop-shard`"


class JoinNotReached(ShardDdlError, code="US-5103", scope=Scope.DOWNSTREAM):
    """Statements of unshard do not lead to the structure that they should, as a trial on an empty table shows.

    For example, the target shows a part of the structure differently from its shards.

    Consequence: Nothing is executed. The rows of the shard after its DDL are held. Everything else continues.
    Remedy: `unshard skip --shard` or `unshard replace --shard` for the DDL of the shard that needs the structure.
    """

    target: str
    statements: str
    template = "{target} would not have the structure that its shards need after `{statements}`"
    hint = "`unshard locks` shows the shard; skip or replace its DDL"


class JoinRefused(ShardDdlError, code="US-5160", scope=Scope.DOWNSTREAM):
    """The target refuses a statement that shards need, on an empty table of its structure.

    For example, TiDB adds no STORED column to a table, and converts no text to latin1.

    Consequence: Nothing is executed. The rows of the shard after its DDL are held. Everything else continues. Each run
    tries the statement again.
    Remedy: `unshard skip --shard` or `unshard replace --shard` for the DDL of the shard, or let the shard go back. If
    the shards differ from the start, create the target table before the start with a structure that holds the rows of
    all shards.
    """

    target: str
    errno: int
    server_message: str
    statement: str
    template = "{target} refuses with error {errno}, {server_message}, what its shards need: {statement}"
    hint = "`unshard locks` shows the shard; skip or replace its DDL"


class TargetNameTaken(ShardDdlError, code="US-5161", scope=Scope.DOWNSTREAM):
    """A shard has added or renamed a column, and the target has another column of this name, which no shard has had.

    unshard does not write into a column that belongs to someone else: its values would be lost.

    Consequence: Nothing is executed. The rows of the shard after its DDL are held. Everything else continues. Each run
    tries it again.
    Remedy: Give the target's own column another name, or drop it. The next run continues. Or let the shard go back.
    `unshard skip --shard` lets its rows continue without its column.
    """

    target: str
    columns: str
    template = "{target} has a column of its own with the name that its shards need: {columns}"
    hint = "rename or drop the target's column (ALTER TABLE … RENAME COLUMN); the next run continues"


class TargetColumnsGone(ShardDdlError, code="US-5180", scope=Scope.DOWNSTREAM):
    """A target in optimistic mode has lost columns that unshard knows, because someone else has altered it.

    unshard does not add them again by itself: their values would be missing, and nothing would show it.

    Consequence: The target is not changed. Rows after the next DDL of a shard are held. Other targets continue.
    Remedy: Add the columns to the target again as they were, then read their values again with `unshard reload` for
    each shard. The next windows continue.
    """

    target: str
    columns: str
    template = "{target} was altered by someone else: it lacks {columns}"
    hint = "add the columns to the target again, then run `unshard reload TASK --shard S --columns C` for each shard"
