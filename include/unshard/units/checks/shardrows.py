"""Check that the rows of a dropped shard can be told from those of other shards (`drop-shard-rows: delete`)."""

from collections.abc import Mapping

from unshard.config import Task
from unshard.core.checks.items import Item, verdict
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.rules.shardrows import DropShardRows, rows_of, why_unknown_in
from unshard.errors.checks import ShardRowsAlike


def shard_rows(task: Task, groups: Mapping[TableId, Mapping[Shard, TableSchema]]) -> list[Item]:
    """Check each merged target; a one-to-one target is truncated or dropped as a whole."""
    if task.options.drop_shard_rows is DropShardRows.KEEP or not task.task_mode.syncs:
        return []
    items: list[Item] = []
    for target, shards in sorted(groups.items()):
        if len(shards) > 1 or not task.feeds.is_single(target):
            found = {s: rows_of(task.instance(s.source).routing.reshaping(s.table), shards[s]) for s in shards}
            why = why_unknown_in(found)
            errors = [ShardRowsAlike(str(target), why)] if why else []
            told = f"the rows of {len(shards)} shards can be told apart"
            items += verdict("drop_shard_rows", f"target {target}", errors, told)
    return items
