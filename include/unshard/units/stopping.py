"""Stops targets that cannot take what a source brings, and lets them go on (core.stops)."""

import contextlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target import Writer, open_session
from unshard.core.collision import Found
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.netting import Collisions
from unshard.core.orders import Given
from unshard.core.progress import BegunWindow
from unshard.core.stops import Stop, TargetRefused, refusal_of
from unshard.core.window import Plan
from unshard.errors import UnshardError
from unshard.errors.target import Collision
from unshard.units.owners import stopped_by
from unshard.units.work import Work

log = logging.getLogger(__name__)


def stop_targets(work: Work, begun: BegunWindow, refused: Collection[TargetRefused]) -> None:
    """Record that targets take no rows of the source until something has changed.

    Raises the error of one that has a part of the window and cannot stop there: the source waits for it.
    """
    errors = {each.target: each.error for each in reversed([*refused])}
    found = {target: _with_owner(work, error, begun.plan.number) for target, error in errors.items()}
    digests = {target: schema.digest for target, schema in work.present(set(found)).items()}
    refusals = [refusal_of(target, error) for target, error in found.items()]
    cut = {refusal.target for refusal in work.meta.stops.stop(begun, refusals, digests)}
    for target, error in found.items():
        if target in cut:
            raise error
        log.error("target %s stops for source %s: %s", target, begun.plan.source, error)


def _with_owner(work: Work, error: UnshardError, window: int) -> UnshardError:
    """Record a collision and name its owner; the key is worth a look later on only if it is in the target."""
    if not isinstance(error, Collision):
        return error
    named = stopped_by(work, error, Found.WINDOW, window)
    return named if error.owner == Collision.unnamed else replace(named, condition="")


def stops_of(work: Work, plan: Plan) -> dict[TableId, Stop]:
    """Return the targets that have stopped in this very window: its plan wants their rows applied."""
    return {stop.target: stop for stop in work.meta.stops.all(plan.source) if stop.window == plan.number}


def still_stopped(work: Work, source: str) -> frozenset[TableId]:
    """Return the targets that are stopped, without those that have changed in what stopped them: these go on."""
    stops = work.meta.stops.all(source)
    if not stops:
        return frozenset()
    present = work.present({stop.target for stop in stops})
    policy = Collisions(work.task.instance(source).load.on_duplicate.value)
    with contextlib.closing(open_session(Writer(work.target))) as connection:
        changed = {stop: why for stop in stops if (why := _change(connection, stop, present.get(stop.target), policy))}
    for stop, why in changed.items():
        log.info("target %s goes on for source %s: %s", stop.target, source, why)
        work.meta.stops.lift(stop)
    return frozenset(stop.target for stop in stops if stop not in changed)


def _change(connection: Connection, stop: Stop, schema: TableSchema | None, policy: Collisions) -> str:
    """Return what has changed so that another try is worth it; empty for nothing."""
    if schema is None:
        return ""
    if schema.digest != stop.structure:
        return "its structure has changed"
    error = error_of(stop)
    if not isinstance(error, Collision):
        return ""
    if policy is not Collisions.ERROR:
        return f"on-duplicate is {policy} now"
    if not error.condition:
        return ""
    sql = f"SELECT 1 FROM {mysql.table_name(stop.target)} WHERE {error.condition} LIMIT 1"  # noqa: S608
    return "" if mysql.query(connection, sql) else f"{error.key} is free"


def newest_ddl(work: Work, plan: Plan) -> Mapping[Shard, int]:
    """Return the number of the newest DDL of each shard of a plan's source, before its window."""
    return {state.shard: state.last_seq for state in work.meta.structures.shards(plan.source)}


def retry(work: Work, stops: Collection[Stop]) -> None:
    """Let targets go on: the next window of the source releases what they have missed."""
    for stop in stops:
        work.meta.stops.lift(stop)


def order_retry(work: Work, stops: Collection[Stop], by: str, via: str, reason: str) -> None:
    """Let targets go on in somebody's name; one that goes on already, or has stopped anew, stays as it is."""
    for stop in stops:
        details = {"source": stop.source, "target": str(stop.target), "key": stop.refusal.key}
        is_new = work.meta.stops.lift(stop, Given("retry", by, via, reason, details))
        log.info("order retry task=%s source=%s target=%s by=%s via=%s new=%s", work.task.name, stop.source,
                 stop.target, by, via, is_new)  # fmt: skip


def error_of(stop: Stop) -> UnshardError:
    """Return the error that has stopped a target."""
    return stop.refusal.error
