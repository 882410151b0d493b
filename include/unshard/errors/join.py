"""US-51xx: targets that follow the join of their shards (`shard-mode: optimistic`)."""

from unshard.errors.base import ShardDdlError


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
