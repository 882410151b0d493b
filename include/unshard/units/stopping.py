"""Stops targets that cannot take a row of a source, and lets them go on (core.stops)."""

import logging
from collections.abc import Collection, Mapping

from unshard.core.model import Shard, TableId
from unshard.core.orders import Given
from unshard.core.progress import BegunWindow
from unshard.core.stops import Refusal, Stop
from unshard.core.window import Plan
from unshard.errors.target import RowRefused
from unshard.units.targets import present_schemas
from unshard.units.windowtasks import TargetRefused
from unshard.units.work import Work

log = logging.getLogger(__name__)


def stop_targets(work: Work, begun: BegunWindow, refused: Collection[TargetRefused]) -> None:
    """Record that targets take no rows of the source until something has changed."""
    refusals = {r.target: Refusal(r.target, r.error.column, r.error.key, r.error.words) for r in refused}
    present = present_schemas(work, refusals)
    for each in refused:
        log.error("target %s stops for source %s: %s", each.target, begun.plan.source, each.error)
    work.meta.stops.stop(begun, tuple(refusals.values()), {target: s.digest for target, s in present.items()})


def stops_of(work: Work, plan: Plan) -> dict[TableId, Stop]:
    """Return the targets that have stopped in this very window: its plan wants their rows applied."""
    stops = work.meta.stops.all(plan.source)
    return {stop.target: stop for stop in stops if stop.window == plan.number and stop.target in plan.targets}


def still_stopped(work: Work, source: str) -> frozenset[TableId]:
    """Return the targets that are stopped, without those whose structure is another now: these go on."""
    stops = work.meta.stops.all(source)
    if not stops:
        return frozenset()
    present = work.present({stop.target for stop in stops})
    changed = [stop for stop in stops if stop.target in present and present[stop.target].digest != stop.structure]
    for stop in changed:
        log.info("target %s goes on for source %s: its structure has changed", stop.target, source)
        work.meta.stops.lift(stop)
    return frozenset(stop.target for stop in stops if stop not in changed)


def newest_ddl(work: Work, plan: Plan) -> Mapping[Shard, int]:
    """Return the number of the newest DDL of each shard of a plan's source, before its window."""
    return {state.shard: state.last_seq for state in work.meta.structures.shards(plan.source)}


def retry(work: Work, stops: Collection[Stop], order: Given | None = None) -> None:
    """Let targets go on: the next window of the source releases what they have missed."""
    for stop in stops:
        work.meta.stops.lift(stop, order)


def error_of(stop: Stop) -> RowRefused:
    """Return the error that has stopped a target."""
    refusal = stop.refusal
    return RowRefused(str(refusal.target), refusal.column, refusal.key, refusal.words)
