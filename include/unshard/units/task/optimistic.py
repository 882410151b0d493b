"""Targets in optimistic mode: what is due for them, and the values that an operator accepts."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from unshard.config import ShardMode
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.join.joined import with_reloaded
from unshard.core.join.planning import JoinPlan
from unshard.core.model import Shard, TableId
from unshard.errors.locks import ReloadMustWait, ReloadNotDue, ReloadStructureAhead
from unshard.errors.meta import NotInSync
from unshard.units.ddl import joining
from unshard.units.ddl.joining import Followed, JoinRules, ReloadOutcome
from unshard.units.full.targets import follow_mode, join_rules, on_target
from unshard.units.window.reloading import reload_columns
from unshard.units.work import Work

log = logging.getLogger(__name__)


def follow_each(work: Work) -> Followed:
    """Do everything that is due; return the errors of targets instead of raising them."""
    if not work.task.task_mode.syncs:
        return Followed()
    if work.task.shard_mode is not ShardMode.OPTIMISTIC:
        follow_mode(work, bool(work.meta.joins.targets()))
        return Followed()
    return joining.follow_each_target(work.meta, on_target(work.task, work.target), follow_rules(work))


def plan_joins(work: Work) -> Mapping[TableId, JoinPlan]:
    """Return what is due for the targets of a task in optimistic mode; changes nothing."""
    if work.task.shard_mode is not ShardMode.OPTIMISTIC or not work.task.task_mode.syncs:
        return {}
    return joining.planned_joins(work.meta, on_target(work.task, work.target), follow_rules(work))


def is_due(work: Work) -> bool:
    """Whether `follow_each` has something to do for a target in optimistic mode; a refused step is not due."""
    return any(plan.is_due for plan in plan_joins(work).values())


def follow_rules(work: Work) -> JoinRules:
    """Return the parts of a task that decide about its joined targets, with the reload of columns."""
    return join_rules(work.task, partial(_reload, work))


def _reload(work: Work, shard: Shard, columns: Sequence[str]) -> ReloadOutcome:
    """Read columns again; raises ReloadError if an operator must do something before."""
    try:
        reload_columns(work, shard, columns)
    except (ReloadMustWait, ReloadStructureAhead, NotInSync) as error:
        log.info("reload waits shard=%s columns=%s error=%s", shard, ",".join(columns), error)
        return ReloadOutcome.WAITS
    return ReloadOutcome.DONE


def accept_values(work: Work, shard: Shard, columns: Sequence[str], command: IssuedCommand | None) -> None:
    """End an open difference without reading: the values that the target has are right; None: only check that."""
    joined = next((each for each in work.meta.joins.all() if shard in each.group.members), None)
    member = joined.group.members[shard] if joined is not None else None
    due = {member.names[each.column] for each in member.reloads if each.column in member.names} if member else set()
    if joined is None or not {*columns} <= due:
        raise ReloadNotDue(str(shard), ", ".join(columns), ", ".join(sorted(due)) or "nothing")
    if joined.change is not None:
        raise ReloadMustWait(str(shard), f"target {joined.target} is being changed", "let that end (`unshard locks`)")
    if command is not None and not work.meta.joins.complete(joined, with_reloaded(joined, shard, columns), command):
        raise ReloadMustWait(str(shard), f"target {joined.target} was changed meanwhile", "look at `unshard locks`")
