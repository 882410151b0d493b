"""Optimistic mode of a task: follows the join of its shards, and reads columns again where that is needed."""

import logging
from collections.abc import Sequence
from functools import partial

from unshard.config import ShardMode
from unshard.core.model import Shard
from unshard.errors.reload import ReloadMustWait, ReloadStructureAhead
from unshard.errors.window import NotInSync
from unshard.units.ddl import joining
from unshard.units.ddl.joining import JoinRules
from unshard.units.ddl.jointarget import OnTarget
from unshard.units.full.joins import mapped_columns
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
    delay = work.task.options.contract_delay.total_seconds()
    return JoinRules(partial(mapped_columns, work), delay, partial(_reload, work))


def _reload(work: Work, shard: Shard, columns: Sequence[str]) -> bool:
    """Read columns again; return False if the shard must first be followed further."""
    try:
        return reload_columns(work, shard, columns).is_done
    except (ReloadMustWait, ReloadStructureAhead, NotInSync) as error:
        log.info("reload waits shard=%s columns=%s error=%s", shard, ",".join(columns), error)
        return False
