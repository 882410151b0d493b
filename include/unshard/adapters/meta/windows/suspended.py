"""Rows of `suspended_target`: targets that receive no rows of a source until their error is gone.

Only the run with the epoch of the source can suspend a target, and only before the window's rows are in the target.
Then the window begins again with a new epoch, so writers of the earlier attempt cannot write.
"""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import AnyRow, matches, shard_columns, target_columns, target_of
from unshard.adapters.meta.tasks.actions import record
from unshard.adapters.meta.tasks.sources import lock_source
from unshard.core.ddl.lockcommands import IssuedCommand
from unshard.core.model import TableId
from unshard.core.task.state import BegunWindow
from unshard.core.window.plan import Plan
from unshard.core.window.suspension import Refusal, SuspendedTarget
from unshard.errors.foreignkeys import ConnectedTargetWaits
from unshard.errors.meta import FencedOut
from unshard.errors.rows import RowRefused

SUSPENDED_TARGET, FENCE, FENCE_STEP, HELD_ROWS = (
    tables.suspended_target,
    tables.fence,
    tables.fence_step,
    tables.held_rows,
)


class SuspendedTargetReader(ReadingPart):
    """Rows of `suspended_target` of one task."""

    def all(self, source: str | None = None, *, and_lifted: bool = False) -> tuple[SuspendedTarget, ...]:
        """Return the suspended targets of a source or of all; `and_lifted`: also those without a row since."""
        query = select(SUSPENDED_TARGET).order_by(*SUSPENDED_TARGET.primary_key.columns)
        query = query.where(
            SUSPENDED_TARGET.c.task == self._task, *(() if and_lifted else (SUSPENDED_TARGET.c.is_open != 0,))
        )
        query = query if source is None else query.where(SUSPENDED_TARGET.c.source == source)
        with self._database.reading() as connection:
            return tuple(map(_stop, connection.execute(query)))

    def lifted(self, source: str) -> tuple[TableId, ...]:
        """Return the targets whose suspension is lifted and that have received no row of the source since."""
        query = select(SUSPENDED_TARGET).where(
            matches(SUSPENDED_TARGET, {"task": self._task, "source": source, "is_open": 0})
        )
        with self._database.reading() as connection:
            return tuple(map(target_of, connection.execute(query.order_by(*SUSPENDED_TARGET.primary_key.columns))))


class SuspendedTargets(WritingPart, SuspendedTargetReader):
    """Changes rows of `suspended_target` of one task."""

    def stop(
        self, begun: BegunWindow, refusals: Collection[Refusal], structures: Mapping[TableId, str]
    ) -> tuple[Refusal, ...]:
        """Suspend targets that do not have the rows of the window; FencedOut if another run has taken over.

        Returns those that cannot be suspended, because they have a part of the window. Targets that would wait for them
        are not suspended either: rows of connected tables keep their order.
        """
        plan = begun.plan
        with self._database.transaction() as connection:
            found = lock_source(connection, self._task, plan.source).epoch
            if found != begun.epoch:
                raise FencedOut(plan.source, plan.number, begun.epoch, found)
            cut: list[Refusal] = []
            for each in sorted(refusals, key=_is_waiting):
                waits = _other(each) in {str(refusal.target) for refusal in cut}
                if not waits and not self._stop(connection, plan, each, structures.get(each.target, "")):
                    cut.append(each)
        return tuple(cut)

    def lift(self, stop: SuspendedTarget, order: IssuedCommand | None = None) -> bool:
        """Lift a suspension; return whether the target was suspended."""
        mine = {**self._key(stop.source, stop.target), "window": stop.window, "is_open": 1}
        with self._database.transaction() as connection:
            lifted = bool(
                connection.execute(
                    update(SUSPENDED_TARGET).where(matches(SUSPENDED_TARGET, mine)).values(is_open=0)
                ).rowcount
            )
            if lifted and order is not None:
                record(connection, self._task, "", order)
        return lifted

    def _stop(self, connection: Connection, plan: Plan, refusal: Refusal, structure: str) -> bool:
        mine = self._key(plan.source, refusal.target)
        # A target that does not exist has no fence and no rows.
        fence = connection.scalar(select(FENCE.c.window).where(matches(FENCE, mine)).with_for_update())
        if fence is not None and fence >= plan.number:
            return True
        steps = matches(FENCE_STEP, {**mine, "window": plan.number})
        done = connection.scalar(select(func.count()).where(steps, FENCE_STEP.c.done != 0))
        if done and not refusal.may_come_in_parts:
            return False
        connection.execute(delete(FENCE_STEP).where(matches(FENCE_STEP, mine)))
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
        again = {
            "since": func.if_(SUSPENDED_TARGET.c.is_open, SUSPENDED_TARGET.c.since, tables.NOW),
            "times": SUSPENDED_TARGET.c.times + 1,
            **values,
        }
        row = {**mine, **values, "times": 1, "since": tables.NOW}
        connection.execute(insert(SUSPENDED_TARGET).values(row).on_duplicate_key_update(list(again.items())))
        return True

    def _key(self, source: str, target: TableId) -> dict[str, Any]:
        return {"task": self._task, "source": source, **target_columns(target)}


def keep(connection: Connection, task: str, plan: Plan, stopped: Mapping[TableId, SuspendedTarget]) -> None:
    """Keep the held rows that a window would have released for suspended targets; delete suspensions that are over.

    If a part of the window is in the target, its rows come again and must replace: the held rows get safe mode.
    """
    for release in plan.releases:
        if release.target in stopped and stopped[release.target].is_partial:
            mine = {"task": task, **shard_columns(release.shard)}
            connection.execute(update(HELD_ROWS).where(matches(HELD_ROWS, mine)).values(safe=True))
    for target in plan.targets - stopped.keys():
        over = {"task": task, "source": plan.source, **target_columns(target), "is_open": 0}
        connection.execute(delete(SUSPENDED_TARGET).where(matches(SUSPENDED_TARGET, over)))


def _other(refusal: Refusal) -> str:
    """Return the target that a suspended target waits for; empty if it has an error of its own."""
    error = refusal.error
    return error.other if isinstance(error, ConnectedTargetWaits) else ""


def _is_waiting(refusal: Refusal) -> bool:
    return bool(_other(refusal))


def _stop(row: AnyRow) -> SuspendedTarget:
    refusal = Refusal(
        target_of(row), row.column_name, row.key_shown, row.server_message, row.code or RowRefused.code, row.parts
    )
    return SuspendedTarget(row.source, refusal, row.window, row.structure, row.times, row.since, bool(row.partial))
