"""Optimistic mode of a task: follows the join of its shards, and reads columns again where that is needed."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from unshard.adapters.meta import MetaReader
from unshard.config import Connections, ShardMode, Task, resolve
from unshard.core.join.planning import JoinPlan
from unshard.core.model import Shard, TableId
from unshard.errors.reload import ReloadColumnUnfit, ReloadImpossible, ReloadMustWait, ReloadStructureAhead
from unshard.errors.window import NotInSync
from unshard.units.ddl import joining
from unshard.units.ddl.differences import DifferenceView, differences
from unshard.units.ddl.joining import Followed, JoinRules
from unshard.units.ddl.jointarget import OnTarget
from unshard.units.full.joins import follow_mode, mapped_columns
from unshard.units.window.reload import reload_columns
from unshard.units.work import Work

log = logging.getLogger(__name__)


def follow_joins(work: Work) -> bool:
    """Do everything that is due for the targets of a task in optimistic mode; return whether anything changed.

    The first error of a target is raised when the others are done.
    """
    return follow_each(work).raised()


def follow_each(work: Work) -> Followed:
    """Do everything that is due; return the errors of targets instead of raising them."""
    if not work.task.task_mode.syncs:
        return Followed()
    if work.task.shard_mode is not ShardMode.OPTIMISTIC:
        follow_mode(work, bool(work.meta.joins.targets()))
        return Followed()
    return joining.follow_each(work.meta, OnTarget(work.target, work.task.meta_schema), rules_of(work))


def plan_joins(work: Work) -> Mapping[TableId, JoinPlan]:
    """Return what is due for the targets of a task in optimistic mode; changes nothing."""
    if work.task.shard_mode is not ShardMode.OPTIMISTIC or not work.task.task_mode.syncs:
        return {}
    return joining.planned(work.meta, OnTarget(work.target, work.task.meta_schema), rules_of(work))


def rules_of(work: Work) -> JoinRules:
    """Return the parts of a task that decide about its joined targets."""
    delay = work.task.options.contract_delay.total_seconds()
    strict = work.task.options.is_strict
    return JoinRules(partial(mapped_columns, work.task, work.meta), delay, strict, partial(_reload, work))


def _reload(work: Work, shard: Shard, columns: Sequence[str]) -> bool:
    """Read columns again; return False if the shard must first be followed further."""
    try:
        return reload_columns(work, shard, columns).is_done
    except (ReloadMustWait, ReloadStructureAhead, NotInSync) as error:
        log.info("reload waits shard=%s columns=%s error=%s", shard, ",".join(columns), error)
        return False
    except (ReloadImpossible, ReloadColumnUnfit) as error:
        log.warning("reload is not possible shard=%s columns=%s error=%s", shard, ",".join(columns), error)
        return False


def open_differences(task: Task, meta: MetaReader, connections: Connections) -> tuple[DifferenceView, ...]:
    """Return the open differences of a task in optimistic mode, the oldest first; changes nothing."""
    if task.shard_mode is not ShardMode.OPTIMISTIC or not task.task_mode.syncs:
        return ()
    delay = task.options.contract_delay.total_seconds()
    rules = JoinRules(partial(mapped_columns, task, meta), delay, task.options.is_strict)
    return differences(meta, OnTarget(resolve(task.target, connections), task.meta_schema), rules)
