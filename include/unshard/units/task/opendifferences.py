"""Open differences between shards. Importing this module is cheap: only a task in optimistic mode needs the rest."""

from functools import partial
from typing import TYPE_CHECKING

from unshard.config import Connections, ShardMode, Task, resolve

if TYPE_CHECKING:
    from unshard.adapters.meta import MetaReader
    from unshard.units.ddl.differences import DifferenceView


def open_differences(task: Task, meta: "MetaReader", connections: Connections) -> "tuple[DifferenceView, ...]":
    """Return the open differences of a task in optimistic mode, the oldest first; changes nothing."""
    if task.shard_mode is not ShardMode.OPTIMISTIC or not task.task_mode.syncs:
        return ()
    from unshard.units.ddl.differences import differences
    from unshard.units.ddl.joining import JoinRules
    from unshard.units.ddl.jointarget import OnTarget
    from unshard.units.full.targets import mapped_columns

    delay = task.options.contract_delay.total_seconds()
    rules = JoinRules(partial(mapped_columns, task), delay, task.options.is_strict, time_zone=task.timezone)
    return differences(meta, OnTarget(resolve(task.target, connections), task.meta_schema), rules)
