"""Targets that take no rows of a source for now: rows of `stopped_target` and `stop_error` (core.stops).

Only the run whose epoch is the source's can stop a target, and only before the window's rows are in it; the window is
begun anew afterwards, so nothing of the attempt before can write any more.
"""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, and_, delete, func, select, update
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.orders import record
from unshard.adapters.meta.rows import AnyRow, matches, shard_columns, target_columns, target_of
from unshard.adapters.meta.sources import lock_source
from unshard.core.model import TableId
from unshard.core.orders import Given
from unshard.core.progress import BegunWindow
from unshard.core.stops import Refusal, Stop
from unshard.core.window import Plan
from unshard.errors.meta import FencedOut
from unshard.errors.target import RowRefused

T, E, F, P, H = tables.stopped_target, tables.stop_error, tables.fence, tables.fence_step, tables.held_rows
SAME = and_(*(column == E.c[column.name] for column in T.primary_key.columns))


class Stops:
    """Rows of `stopped_target` of one task."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def all(self, source: str | None = None, *, and_lifted: bool = False) -> tuple[Stop, ...]:
        """Return what is stopped, of one source or of all; those too that may go on and have got no row since."""
        query = select(T, E.c.code, E.c.parts).join_from(T, E, SAME, isouter=True).order_by(*T.primary_key.columns)
        query = query.where(T.c.task == self._task, *(() if and_lifted else (T.c.is_open != 0,)))
        query = query if source is None else query.where(T.c.source == source)
        with self._database.reading() as connection:
            return tuple(map(_stop, connection.execute(query)))

    def lifted(self, source: str) -> tuple[TableId, ...]:
        """Return the targets that may go on and have got no row of a source since they stopped."""
        query = select(T).where(matches(T, {"task": self._task, "source": source, "is_open": 0}))
        with self._database.reading() as connection:
            return tuple(map(target_of, connection.execute(query.order_by(*T.primary_key.columns))))

    def stop(self, begun: BegunWindow, refusals: Collection[Refusal],
             structures: Mapping[TableId, str]) -> tuple[Refusal, ...]:  # fmt: skip
        """Stop targets that have not got the window; FencedOut if another run has taken over.

        Returns those that cannot stop here, because they have got a part of it.
        """
        plan = begun.plan
        with self._database.transaction() as connection:
            found = lock_source(connection, self._task, plan.source).epoch
            if found != begun.epoch:
                raise FencedOut(plan.source, plan.number, begun.epoch, found)
            stopped = [self._stop(connection, plan, each, structures.get(each.target, "")) for each in refusals]
        return tuple(each for each, is_stopped in zip(refusals, stopped, strict=True) if not is_stopped)

    def lift(self, stop: Stop, order: Given | None = None) -> bool:
        """Let a target go on; whether it was stopped still."""
        mine = {**self._key(stop.source, stop.target), "window": stop.window, "is_open": 1}
        with self._database.transaction() as connection:
            lifted = bool(connection.execute(update(T).where(matches(T, mine)).values(is_open=0)).rowcount)
            if lifted and order is not None:
                record(connection, self._task, "", order)
        return lifted

    def _stop(self, connection: Connection, plan: Plan, refusal: Refusal, structure: str) -> bool:
        mine = self._key(plan.source, refusal.target)
        # A target that is still to be made has no fence, and no rows.
        fence = connection.scalar(select(F.c.window).where(matches(F, mine)).with_for_update())
        if fence is not None and fence >= plan.number:
            return True
        steps = matches(P, {**mine, "window": plan.number})
        done = connection.scalar(select(func.count()).where(steps, P.c.done != 0))
        if done and not refusal.may_come_in_parts:
            return False
        connection.execute(delete(P).where(matches(P, mine)))
        values = {"column_name": refusal.column, "key_shown": refusal.key, "words": refusal.words,
                  "window": plan.number, "structure": structure, "partial": bool(done), "is_open": True}  # fmt: skip
        again = {"since": func.if_(T.c.is_open, T.c.since, tables.NOW), "times": T.c.times + 1, **values}
        row = {**mine, **values, "times": 1, "since": tables.NOW}
        connection.execute(insert(T).values(row).on_duplicate_key_update(list(again.items())))
        error = {"code": refusal.code, "parts": refusal.parts}
        connection.execute(insert(E).values({**mine, **error}).on_duplicate_key_update(error))
        return True

    def _key(self, source: str, target: TableId) -> dict[str, Any]:
        return {"task": self._task, "source": source, **target_columns(target)}


def keep(connection: Connection, task: str, plan: Plan, stopped: Mapping[TableId, Stop]) -> None:
    """Keep held rows that a window was to release for a target that has stopped; forget stops that are over.

    What is in the target already of a window that was cut comes again: it is replaced then.
    """
    for release in plan.releases:
        if release.target in stopped and stopped[release.target].is_partial:
            mine = {"task": task, **shard_columns(release.shard)}
            connection.execute(update(H).where(matches(H, mine)).values(safe=True))
    for target in plan.targets - stopped.keys():
        over = {"task": task, "source": plan.source, **target_columns(target), "is_open": 0}
        if connection.execute(delete(T).where(matches(T, over))).rowcount:
            del over["is_open"]
            connection.execute(delete(E).where(matches(E, over)))


def _stop(row: AnyRow) -> Stop:
    refusal = Refusal(target_of(row), row.column_name, row.key_shown, row.words, row.code or RowRefused.code,
                      row.parts or "")  # fmt: skip
    return Stop(row.source, refusal, row.window, row.structure, row.times, row.since, bool(row.partial))
