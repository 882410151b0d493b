"""Targets of `shard-mode: optimistic` before rows are written: they join when their first shards are known."""

import contextlib
from collections.abc import Collection, Iterable
from functools import partial

from unshard.config import ShardMode, Task
from unshard.core.ddl.queue import ShardState
from unshard.core.ddl.renaming import name_upstream
from unshard.core.model import TableId
from unshard.errors.join import ShardModeWaits
from unshard.errors.rows import ColumnTypesDiffer
from unshard.units.ddl import joining
from unshard.units.ddl.joining import JoinRules
from unshard.units.ddl.jointarget import OnTarget
from unshard.units.work import Work


def join_targets(work: Work) -> bool:
    """Make each target the join of the shards that are known, as the coordinator does; return whether that changed any.

    Columns that must be read again wait for the coordinator.
    """
    return joining.follow(work.meta, *_parts(work))


def join_before_rows(work: Work, targets: Collection[TableId], *, releases: bool) -> None:
    """Join targets that have not joined yet, end changes whose process has died, and make the first change of a target.

    After a target has joined, it may not hold the rows of its shards yet. An error of its first change is the
    coordinator's; the rows of the shards that fit the target are written.
    `releases`: rows are released, maybe by a command whose DDL the shards have not followed yet.
    """
    if work.task.shard_mode is not ShardMode.OPTIMISTIC:
        return
    if not {*targets} <= work.meta.joins.resting().keys():
        with contextlib.suppress(ShardModeWaits, ColumnTypesDiffer):  # until then rows go by names and by the locks
            join_targets(work)
    elif not work.meta.joins.begun().isdisjoint(targets):
        joining.follow_each(work.meta, *_parts(work))
    if releases:
        joining.follow_decisions(work.meta, *_parts(work), targets)


def _parts(work: Work) -> tuple[OnTarget, JoinRules]:
    """Return what executes statements on targets, and the rules of the task."""
    delay = work.task.options.contract_delay.total_seconds()
    mapped = partial(mapped_columns, work.task)
    rules = JoinRules(mapped, delay, work.task.options.is_strict, time_zone=work.task.timezone)
    return OnTarget(work.target, work.task.meta_schema, work.task.timezone, work.task.name), rules


def follow_mode(work: Work, has_joined: bool) -> None:
    """End the joins of a task that has left optimistic mode; raises ShardModeWaits while its shards differ."""
    if has_joined and work.task.shard_mode is not ShardMode.OPTIMISTIC:
        joining.leave(work.meta)


def mapped_columns(task: Task, shards: Iterable[ShardState]) -> frozenset[str]:
    """Return the columns of column mappings of shards, in lower case."""
    found = set[str]()
    for state in shards:
        reshaping = task.instance(state.shard.source).routing.reshaping(name_upstream(state.shard.table))
        found |= {name.lower() for each in reshaping.mapped for name in (each.source, each.column)}
    return frozenset(found)
