"""Rows of `suspended_target`: targets that receive no rows of a source until their error is gone.

Only the run with the epoch of the source can suspend a target, and only before the window's rows are in the target.
Then the window begins again with a new epoch, so writers of the earlier attempt cannot write.
"""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import func

from unshard.adapters.meta import tables
from unshard.adapters.meta.commandrecords import record
from unshard.adapters.meta.database import Records
from unshard.adapters.meta.gateway import AnyRow, TaskWriter
from unshard.adapters.meta.rows import shard_columns, target_columns, target_of
from unshard.adapters.meta.sourcerecords import lock_source
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.model import TableId
from unshard.core.task.state import BegunWindow
from unshard.core.window.plan import Plan
from unshard.core.window.suspension import Refusal, SuspendedTarget
from unshard.errors.foreignkeys import ConnectedTargetWaits
from unshard.errors.meta import FencedOut
from unshard.errors.rows import RowRefused

SUSPENDED_TARGET, FENCE, FENCE_STEP = tables.suspended_target, tables.fence, tables.fence_step
IN_ORDER = (*SUSPENDED_TARGET.primary_key.columns,)


class SuspendedTargets(Records):
    """Rows of `suspended_target`."""

    def all(self, source: str | None = None, *, and_lifted: bool = False) -> tuple[SuspendedTarget, ...]:
        """Return the suspended targets of a source or of all; `and_lifted`: also those without a row since."""
        of_source: dict[str, Any] = {"source": source} if source is not None else {}
        is_open = () if and_lifted else (SUSPENDED_TARGET.c.is_open != 0,)
        return tuple(map(_suspended, self._db.select(SUSPENDED_TARGET, *is_open, **of_source, order=IN_ORDER)))

    def lifted(self, source: str) -> tuple[TableId, ...]:
        """Return the targets whose suspension is lifted and that have received no row of the source since."""
        return tuple(map(target_of, self._db.select(SUSPENDED_TARGET, source=source, is_open=0, order=IN_ORDER)))

    def stop(
        self, begun: BegunWindow, refusals: Collection[Refusal], structures: Mapping[TableId, str]
    ) -> tuple[Refusal, ...]:
        """Suspend targets that do not have the rows of the window; FencedOut if another run has taken over.

        Returns those that cannot be suspended, because they have a part of the window. Targets that would wait for them
        are not suspended either: rows of connected tables keep their order.
        """
        plan = begun.plan
        with self._db.transaction() as db:
            found = lock_source(db, plan.source).epoch
            if found != begun.epoch:
                raise FencedOut(plan.source, plan.number, begun.epoch, found)
            cut: list[Refusal] = []
            for each in sorted(refusals, key=lambda refusal: bool(_other(refusal))):
                waits = _other(each) in {str(refusal.target) for refusal in cut}
                if not waits and not _stop(db, plan, each, structures.get(each.target, "")):
                    cut.append(each)
        return tuple(cut)

    def lift(self, stop: SuspendedTarget, order: IssuedCommand | None = None) -> bool:
        """Lift a suspension; return whether the target was suspended."""
        is_open = {"source": stop.source, **target_columns(stop.target), "window": stop.window, "is_open": 1}
        with self._db.transaction() as db:
            lifted = bool(db.update(SUSPENDED_TARGET, {"is_open": 0}, **is_open))
            if lifted and order is not None:
                record(db, "", order)
        return lifted


def keep(db: TaskWriter, plan: Plan, stopped: Mapping[TableId, SuspendedTarget]) -> None:
    """Keep the held rows that a window would have released for suspended targets; delete suspensions that are over.

    If a part of the window is in the target, its rows come again and must replace: the held rows get safe mode.
    """
    for release in plan.releases:
        if release.target in stopped and stopped[release.target].is_partial:
            db.update(tables.held_rows, {"safe": True}, **shard_columns(release.shard))
    for target in plan.targets - stopped.keys():
        db.delete(SUSPENDED_TARGET, source=plan.source, **target_columns(target), is_open=0)


def _stop(db: TaskWriter, plan: Plan, refusal: Refusal, structure: str) -> bool:
    mine = {"source": plan.source, **target_columns(refusal.target)}
    # A target that does not exist has no fence and no rows.
    fence = db.value(FENCE, FENCE.c.window, **mine, lock=True)
    if fence is not None and fence >= plan.number:
        return True
    done = db.count(FENCE_STEP, FENCE_STEP.c.done != 0, **mine, window=plan.number)
    if done and not refusal.may_come_in_parts:
        return False
    db.delete(FENCE_STEP, **mine)
    values = {
        "column_name": refusal.column,
        "key_shown": refusal.key,
        "server_message": refusal.words,
        "code": refusal.code,
        "parts": refusal.parts,
        "window": plan.number,
        "structure": structure,
        "partial": bool(done),
        "is_open": True,
    }
    c = SUSPENDED_TARGET.c
    again = {"since": func.if_(c.is_open, c.since, tables.NOW), "times": c.times + 1, **values}
    db.put(SUSPENDED_TARGET, mine, {**values, "times": 1, "since": tables.NOW}, again)
    return True


def _other(refusal: Refusal) -> str:
    """Return the target that a suspended target waits for; empty if it has an error of its own."""
    error = refusal.error
    return error.other if isinstance(error, ConnectedTargetWaits) else ""


def _suspended(row: AnyRow) -> SuspendedTarget:
    refusal = Refusal(
        target_of(row), row.column_name, row.key_shown, row.server_message, row.code or RowRefused.code, row.parts
    )
    return SuspendedTarget(row.source, refusal, row.window, row.structure, row.times, row.since, bool(row.partial))
