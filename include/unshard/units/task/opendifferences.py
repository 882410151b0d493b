"""Open differences between shards. Importing this module is cheap: only a task in optimistic mode needs the rest."""

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
    from unshard.units.full.targets import join_rules, on_target

    return differences(meta, on_target(task, resolve(task.target, connections)), join_rules(task))
