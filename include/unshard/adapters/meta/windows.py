"""Windows: begun with a persisted plan and a raised epoch, committed in one transaction.

| dies                                      | what happens                                                    |
|-------------------------------------------|-----------------------------------------------------------------|
| before `begin` has committed              | nothing has happened; the next run plans anew                   |
| after `begin`, before or while rows move  | the next `begin` returns the same plan with a new epoch; a      |
|                                           | target whose fence has this window is done already              |
| a zombie goes on after another `begin`    | its fence updates match 0 rows, its `commit` raises FencedOut   |
| after the rows, before `commit`           | the same plan again; every fence says done; then commit         |
| in `commit`                               | all of it or nothing                                            |
| after `commit`, before its answer arrives | `commit` again finds the window committed and does nothing      |
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, delete, false, func, or_, select, update
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.aside import move_aside
from unshard.adapters.meta.collisions import mend
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.debts import owe_as_newcomer
from unshard.adapters.meta.halts import refuse_halted
from unshard.adapters.meta.online import move_online
from unshard.adapters.meta.orders import drop_waiting
from unshard.adapters.meta.renames import move_shards
from unshard.adapters.meta.rows import (
    entry_columns,
    held_columns,
    in_portions,
    location_columns,
    matches,
    read,
    shard_columns,
)
from unshard.adapters.meta.rows import target_columns as target_key
from unshard.adapters.meta.sources import lock_source
from unshard.adapters.meta.statementorders import require_known, use
from unshard.adapters.meta.stops import keep
from unshard.adapters.meta.structures import record_change
from unshard.core import codec
from unshard.core.model import Location, TableId
from unshard.core.pace import Pace
from unshard.core.progress import BegunWindow, WindowTotals
from unshard.core.stops import Stop
from unshard.core.window import HeldFile, Plan, QueueEntry
from unshard.errors.meta import FencedOut, NotBegun, WindowMismatch

W, C, F, S, P = tables.window, tables.checkpoint, tables.fence, tables.source, tables.pace
PLANNED, COMMITTED = "planned", "committed"
KEPT_PLANS = 100
"""Plans of older windows are emptied, so that the table stays small."""


class Windows:
    """Rows of `window`, `fence` and, at commit, of all that a window changes."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def open(self, source: str) -> Plan | None:
        """Return the plan of the window that was begun and not committed."""
        with self._database.transaction() as connection:
            return self._open(connection, source)

    def begin(self, source: str, plan: Plan) -> BegunWindow:
        """Begin the open window, else this plan; raises the epoch, so that earlier runs can write no more.

        Raises OrdersChanged if orders about statements came or went since it was planned.
        """
        with self._database.transaction() as connection:
            epoch = lock_source(connection, self._task, source).epoch + 1
            refuse_halted(connection, self._task)
            mine = {"task": self._task, "source": source}
            connection.execute(update(S).where(matches(S, mine)).values(epoch=epoch, updated_at=tables.NOW))
            begun = self._open(connection, source) or self._persist(connection, plan)
            connection.execute(update(F).where(matches(F, mine)).values(epoch=epoch))
            for target in sorted(begun.targets):
                row = {**mine, **target_key(target), "window": 0, "epoch": epoch}
                connection.execute(insert(F).prefix_with("IGNORE").values(row))
        return BegunWindow(begun, epoch)

    def commit(self, begun: BegunWindow, held: Sequence[HeldFile], rows_applied: int,
               paces: Sequence[Pace] = (), stopped: Collection[Stop] = ()) -> None:  # fmt: skip
        """Make the window's effects exist: held files, queue entries, structures, checkpoint; idempotent.

        `paces` are what is remembered of the last windows from now on; empty: what was. What was to be released for
        targets that are `stopped` is held still.
        """
        plan = begun.plan
        with self._database.transaction() as connection:
            found = lock_source(connection, self._task, plan.source).epoch
            if found != begun.epoch:
                raise FencedOut(plan.source, plan.number, begun.epoch, found)
            if self._is_committed(connection, plan):
                return
            keep(connection, self._task, plan, {stop.target: stop for stop in stopped})
            self._move_held(connection, plan, held, {stop.target for stop in stopped})
            self._move_shards(connection, plan)
            move_shards(connection, self._task, plan.renames, plan.number)
            move_aside(connection, self._task, plan)
            use(connection, self._task, plan)
            move_online(connection, self._task, plan)
            self._move_checkpoint(connection, plan)
            self._close(connection, plan, rows_applied, sum(file.rows for file in held))
            self._remember(connection, plan.source, paces)
            mend(connection, self._task, plan.source)

    def paces(self, source: str) -> tuple[Pace, ...]:
        """Return what is remembered of the last windows of a source, the oldest first."""
        query = select(P.c.windows).where(P.c.task == self._task, P.c.source == source)
        with self._database.transaction() as connection:
            text = connection.scalar(query)
        return read(tuple[Pace, ...], text, f"what the last windows of {source} took") if text else ()

    def totals(self, source: str) -> WindowTotals:
        """Return sums over all committed windows of a source."""
        query = select(func.count(), func.sum(W.c.rows_applied), func.sum(W.c.rows_held))
        with self._database.transaction() as connection:
            where = W.c.task == self._task, W.c.source == source, W.c.state == COMMITTED
            windows, applied, held = connection.execute(query.where(*where)).one()
        return WindowTotals(windows, int(applied or 0), int(held or 0))

    def _open(self, connection: Connection, source: str) -> Plan | None:
        where = W.c.task == self._task, W.c.source == source, W.c.state == PLANNED
        row = connection.execute(select(W.c.number, W.c.plan).where(*where)).one_or_none()
        return read(Plan, row.plan, f"the plan of window {row.number} of {source}") if row else None

    def _persist(self, connection: Connection, plan: Plan) -> Plan:
        where = C.c.task == self._task, C.c.source == plan.source
        row = connection.execute(select(C.c.file, C.c.position, C.c.window).where(*where)).one_or_none()
        if row is None:
            raise WindowMismatch(plan.source, str(plan.begins), "nowhere")
        if (Location(row.file, row.position), row.window + 1) != (plan.begins, plan.number):
            stands = f"{row.file}:{row.position} after window {row.window}"
            raise WindowMismatch(plan.source, f"{plan.begins} as window {plan.number}", stands)
        require_known(connection, self._task, plan)
        connection.execute(insert(W).values(
            task=self._task, source=plan.source, number=plan.number, state=PLANNED, plan=codec.dumps(plan),
            rows_applied=0, rows_held=0, began_at=tables.NOW,
        ))  # fmt: skip
        return plan

    def _is_committed(self, connection: Connection, plan: Plan) -> bool:
        state = connection.scalar(select(W.c.state).where(matches(W, self._key(plan))))
        if state is None:
            raise NotBegun(plan.source, plan.number)
        return bool(state == COMMITTED)

    def _move_held(self, connection: Connection, plan: Plan, held: Sequence[HeldFile],
                   stopped: Collection[TableId]) -> None:  # fmt: skip
        table = tables.held_rows
        released = [file for release in plan.releases if release.target not in stopped for file in release.files]
        for files in in_portions(released):
            named = (matches(table, {**shard_columns(f.shard), "seq": f.seq, "window": f.window, "part": f.part})
                     for f in files)  # fmt: skip
            connection.execute(delete(table).where(table.c.task == self._task, or_(false(), *named)))
        for drop in plan.drops:
            drop_waiting(connection, self._task, drop.shard)
        rows = [
            {"task": self._task, **held_columns(file), "safe": plan.safe or file.safe, "held_at": tables.NOW}
            for file in held
        ]
        for some_rows in in_portions(rows):
            connection.execute(insert(table).values(list(some_rows)))

    def _move_shards(self, connection: Connection, plan: Plan) -> None:
        for change in plan.structures:
            record_change(connection, self._task, change, plan.number)
        for entry in plan.queued:
            self._queue(connection, entry, plan.number)
        for change in plan.structures:
            owe_as_newcomer(connection, self._task, change)

    def _queue(self, connection: Connection, entry: QueueEntry, window: int) -> None:
        row = {"task": self._task, **entry_columns(entry), "window": window, "seen_at": tables.NOW}
        connection.execute(insert(tables.shard_ddl).values(row))
        shard = tables.shard
        mine = matches(shard, {"task": self._task, **shard_columns(entry.shard)})
        connection.execute(update(shard).where(mine).values(last_seq=entry.seq))

    def _move_checkpoint(self, connection: Connection, plan: Plan) -> None:
        values: dict[str, Any] = {**location_columns(plan.ends), "window": plan.number, "committed_at": tables.NOW}
        values |= {"gtid": plan.gtid} if plan.ends != plan.begins else {}
        values |= {"last_time": plan.last_time} if plan.last_time else {}
        mine = matches(C, {"task": self._task, "source": plan.source})
        connection.execute(update(C).where(mine).values(values))

    def _close(self, connection: Connection, plan: Plan, applied: int, held: int) -> None:
        values = {"state": COMMITTED, "rows_applied": applied, "rows_held": held, "committed_at": tables.NOW}
        connection.execute(update(W).where(matches(W, self._key(plan))).values(values))
        old = {**self._key(plan), "number": plan.number - KEPT_PLANS}
        connection.execute(update(W).where(matches(W, old)).values(plan=""))

    def _remember(self, connection: Connection, source: str, paces: Sequence[Pace]) -> None:
        if paces:
            row = {"task": self._task, "source": source, "windows": codec.dumps(tuple(paces))}
            connection.execute(insert(P).values(row).on_duplicate_key_update(windows=row["windows"]))

    def _key(self, plan: Plan) -> dict[str, Any]:
        return {"task": self._task, "source": plan.source, "number": plan.number}
