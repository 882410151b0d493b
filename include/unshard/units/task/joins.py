"""Optimistic mode of a task: follows the join of its shards, and reads columns again where that is needed."""

import logging
from collections.abc import Sequence

from unshard.config import ShardMode
from unshard.core.ddl.renaming import name_upstream
from unshard.core.ddl.shardgroup import groups
from unshard.core.model import Shard, TableId
from unshard.errors.reload import ReloadMustWait, ReloadStructureAhead
from unshard.errors.window import NotInSync
from unshard.units.ddl import joining
from unshard.units.ddl.joining import JoinRules
from unshard.units.ddl.jointarget import OnTarget
from unshard.units.window.reload import reload_columns
from unshard.units.work import Work

log = logging.getLogger(__name__)


def follow_joins(work: Work) -> bool:
    """Do everything that is due for the targets of a task in optimistic mode; return whether anything changed."""
    if work.task.shard_mode is not ShardMode.OPTIMISTIC or not work.task.task_mode.syncs:
        return False
    return joining.follow(work.meta, OnTarget(work.target, work.task.meta_schema), rules_of(work))


def rules_of(work: Work) -> JoinRules:
    """Return the parts of a task that decide about its joined targets."""
    return JoinRules(lambda target: _mapped(work, target), 0.0, lambda shard, columns: _reload(work, shard, columns))


def _mapped(work: Work, target: TableId) -> frozenset[str]:
    found = set[str]()
    for state in groups(work.meta.structures.shards()).get(target, ()):
        reshaping = work.task.instance(state.shard.source).routing.reshaping(name_upstream(state.shard.table))
        found |= {name.lower() for each in reshaping.mapped for name in (each.source, each.column)}
    return frozenset(found)


def _reload(work: Work, shard: Shard, columns: Sequence[str]) -> bool:
    """Read columns again; return False if the shard must first be followed further."""
    try:
        return reload_columns(work, shard, columns).is_done
    except (ReloadMustWait, ReloadStructureAhead, NotInSync) as error:
        log.info("reload waits shard=%s columns=%s error=%s", shard, ",".join(columns), error)
        return False
