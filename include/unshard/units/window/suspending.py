"""Suspends targets that refuse rows of a source, and lets them go on (core.window.suspension)."""

import contextlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.tablerows import has_row
from unshard.adapters.target import Writer, open_session
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.rows.compaction import Collisions
from unshard.core.rows.rowerrors import Found
from unshard.core.structures.foreignkeys import connected
from unshard.core.task.state import BegunWindow
from unshard.core.window.plan import Plan
from unshard.core.window.suspension import SuspendedTarget, TargetRefused, refusal_of
from unshard.errors import UnshardError
from unshard.errors.checks import TargetNamesAlike
from unshard.errors.rows import Collision, ConnectedTargetWaits, ReferencedRowMissing, RowReferenced
from unshard.units.foreignkeys import enforced_keys
from unshard.units.full.keyowners import stopped_by
from unshard.units.work import Work

log = logging.getLogger(__name__)


def suspend_targets(work: Work, begun: BegunWindow, refused: Collection[TargetRefused]) -> None:
    """Record targets as suspended for the source.

    Raises the error of a target that has a part of the window and cannot be suspended there: the source waits for it.
    """
    errors = _with_connected(work, begun.plan.source, {each.target: each.error for each in reversed([*refused])})
    found = {target: _with_owner(work, error, begun.plan.number) for target, error in errors.items()}
    digests = {target: schema.digest for target, schema in work.present(set(found)).items()}
    refusals = [refusal_of(target, error) for target, error in found.items()]
    cut = {refusal.target for refusal in work.meta.suspended_targets.stop(begun, refusals, digests)}
    for target in cut:
        raise found[target]
    for target, error in found.items():
        log.warning("target %s stops for source %s: %s", target, begun.plan.source, error)


def _with_connected(work: Work, source: str, errors: dict[TableId, UnshardError]) -> dict[TableId, UnshardError]:
    """Add the targets of the source that foreign keys connect with refused ones: their rows keep one order."""
    known = {state.target for state in work.meta.structures.shards(source)} if work.task.checks_foreign_keys else set()
    keys = enforced_keys(work, known)
    waiting: dict[TableId, UnshardError] = {
        other: ConnectedTargetWaits(str(other), str(target))
        for target in reversed(errors)
        for other in sorted(connected({target}, keys) & known)
    }
    return waiting | errors


def _with_owner(work: Work, error: UnshardError, window: int) -> UnshardError:
    """Record a collision and name its owner; later windows look for the key only if it is in the target."""
    if not isinstance(error, Collision):
        return error
    named = stopped_by(work, error, Found.WINDOW, window)
    return named if error.owner == Collision.unnamed else replace(named, condition="")


def suspended_of(work: Work, plan: Plan) -> dict[TableId, SuspendedTarget]:
    """Return the targets that were suspended in this very window: its plan still wants their rows applied."""
    return {stop.target: stop for stop in work.meta.suspended_targets.all(plan.source) if stop.window == plan.number}


def refused_names(work: Work, plan: Plan) -> tuple[TableId, ...]:
    """Return the targets that were suspended for their names and go on with this window."""
    stops = work.meta.suspended_targets.all(plan.source, and_lifted=True)
    named = {stop.target for stop in stops if stop.refusal.code == TargetNamesAlike.code and stop.window < plan.number}
    return tuple(sorted(named & plan.targets))


def still_suspended(work: Work, source: str) -> frozenset[TableId]:
    """Return the suspended targets, except those whose cause is gone: these are let go on."""
    stops = work.meta.suspended_targets.all(source)
    if not stops:
        return frozenset()
    present = work.present({stop.target for stop in stops})
    policy = Collisions(work.task.instance(source).load.on_duplicate.value)
    with contextlib.closing(open_session(Writer(work.target))) as connection:
        changed = {stop: why for stop in stops if (why := _change(connection, stop, present.get(stop.target), policy))}
    own = {(stop.source, str(stop.target)) for stop in stops}
    left = {stop: "the other target has gone on" for stop in stops if _cause(stop) not in own}
    changed = _with_waiting(stops, left | changed)
    for stop, why in changed.items():
        log.info("target %s goes on for source %s: %s", stop.target, source, why)
        work.meta.suspended_targets.lift(stop)
    return frozenset(stop.target for stop in stops if stop not in changed)


def _change(connection: Connection, stop: SuspendedTarget, schema: TableSchema | None, policy: Collisions) -> str:
    """Return the change that may have removed the cause, or an empty text."""
    if schema is None:
        return ""
    if schema.digest != stop.structure:
        return "its structure has changed"
    why = ""
    match stop.refusal.error:
        case Collision() if policy is not Collisions.ERROR:
            why = f"on-duplicate is {policy} now"
        case Collision(key=key, condition=condition) if condition:
            is_taken = has_row(connection, mysql.table_name(stop.target), condition)
            why = "" if is_taken else f"{key} is free"
        case ReferencedRowMissing(parent=parent, parent_key=key, condition=condition, rows=rows) if condition:
            why = f"{parent} has {key}" if has_row(connection, rows, condition) else ""
        case RowReferenced(key=key, child=child, condition=condition, rows=rows) if condition:
            why = "" if has_row(connection, rows, condition) else f"no row of {child} references {key}"
    return why


def _with_waiting(
    stops: Collection[SuspendedTarget], changed: Mapping[SuspendedTarget, str]
) -> dict[SuspendedTarget, str]:
    causes = {_cause(stop): stop for stop in changed}
    others = {stop: causes[_cause(stop)] for stop in stops if stop not in changed and _cause(stop) in causes}
    return {**changed, **{stop: f"{first.target} goes on" for stop, first in others.items()}}


def _cause(stop: SuspendedTarget) -> tuple[str, str]:
    error = stop.refusal.error
    return stop.source, error.other if isinstance(error, ConnectedTargetWaits) else str(stop.target)


def newest_ddl(work: Work, plan: Plan) -> Mapping[Shard, int]:
    """Return the number of the newest DDL of each shard of a plan's source, before its window."""
    return {state.shard: state.last_seq for state in work.meta.structures.shards(plan.source)}


def retry(work: Work, stops: Collection[SuspendedTarget]) -> None:
    """Let targets go on: the next window of the source releases their held rows."""
    for stop in stops:
        work.meta.suspended_targets.lift(stop)


def command_retry(work: Work, stops: Collection[SuspendedTarget], by: str, via: str, reason: str) -> None:
    """Let targets go on by an operator's command; one that goes on already, or was suspended again, is unchanged."""
    for stop in _with_waiting(work.meta.suspended_targets.all(), dict.fromkeys(stops, "")):
        details = {"source": stop.source, "target": str(stop.target), "key": stop.refusal.key}
        is_new = work.meta.suspended_targets.lift(stop, IssuedCommand("retry", by, via, reason, details))
        log.info(
            "command retry task=%s source=%s target=%s by=%s via=%s new=%s",
            work.task.name,
            stop.source,
            stop.target,
            by,
            via,
            is_new,
        )
