"""Windows: begun with a persisted plan and a raised epoch, committed in one transaction.

| dies                                      | what happens                                                    |
|-------------------------------------------|-----------------------------------------------------------------|
| before `begin` has committed              | nothing has happened; the next run plans anew                   |
| after `begin`, before or while rows move  | the next `begin` returns the same plan with a new epoch; a      |
|                                           | target whose fence has this window is done already              |
| a zombie goes on after another `begin`    | its fence updates match 0 rows, its `commit` raises FencedOut   |
| before or after `plan_again`              | the plan of before, which no target has a row of, or the new one |
| after the rows, before `commit`           | the same plan again; every fence says done; then commit         |
| in `commit`                               | all of it or nothing                                            |
| after `commit`, before its answer arrives | `commit` again finds the window committed and does nothing      |
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, exists, false, func, or_, select, update
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.aside import move_aside
from unshard.adapters.meta.collisions import OPEN, mend
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.debts import owe_as_newcomer
from unshard.adapters.meta.halts import refuse_halted
from unshard.adapters.meta.online import move_online
from unshard.adapters.meta.orders import drop_waiting
from unshard.adapters.meta.renames import move_shards
from unshard.adapters.meta.rows import (
    AnyRow,
    entry_columns,
    held_columns,
    in_portions,
    location_columns,
    matches,
    shard_columns,
)
from unshard.adapters.meta.rows import target_columns as target_key
from unshard.adapters.meta.standing import PLANNED, read_standing
from unshard.adapters.meta.statementorders import require_known, use
from unshard.adapters.meta.stops import keep
from unshard.adapters.meta.structures import record_change
from unshard.core import codec
from unshard.core.beside import Beside
from unshard.core.model import TableId
from unshard.core.pace import Pace
from unshard.core.progress import BegunWindow, Standing, WindowTotals
from unshard.core.stops import Stop
from unshard.core.window import HeldFile, Plan, QueueEntry
from unshard.errors.meta import FencedOut, NotBegun, UnknownSource, WindowMismatch

W, C, F, S = tables.window, tables.checkpoint, tables.fence, tables.source
P, N = tables.pace, tables.collision
COMMITTED = "committed"
KEPT_PLANS = 100
"""Plans of older windows are emptied now and then, so that the table stays small."""


def _locking() -> Any:
    mine: dict[str, Any] = {"task": bindparam("task"), "source": bindparam("source")}
    collides = exists().where(matches(N, {**mine, "state": OPEN})).label("collides")
    both = matches(W, {"task": S.c.task, "source": S.c.source, "number": bindparam("number")})
    joined = select(S.c.epoch, W.c.state, collides).select_from(S.outerjoin(W, both))
    return joined.where(matches(S, mine)).with_for_update()


LOCK = _locking()
"""Put together once, as STANDING is."""


class Windows:
    """Rows of `window`, `fence` and, at commit, of all that a window changes."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def standing(self, source: str) -> Standing:
        """Look at where the windows of a source stand and what there is beside it."""
        with self._database.reading() as connection:
            return read_standing(connection, self._task, source)

    def open(self, source: str) -> Plan | None:
        """Return the plan of the window that was begun and not committed."""
        return self.standing(source).open

    def begin(self, source: str, plan: Plan) -> BegunWindow:
        """Begin the open window, else this plan; raises the epoch, so that earlier runs can write no more.

        Raises OrdersChanged if orders about statements came or went since it was planned.
        """
        mine = {"task": self._task, "source": source}
        with self._database.transaction() as connection:
            # Locks the source, so that what is read next stays as it is.
            raised = update(S).where(matches(S, mine)).values(epoch=S.c.epoch + 1, updated_at=tables.NOW)
            if not connection.execute(raised).rowcount:
                raise UnknownSource(self._task, source)
            standing = read_standing(connection, self._task, source)
            if Beside.HALT in standing.beside:
                refuse_halted(connection, self._task)
            begun = standing.open or self._persist(connection, plan, standing)
            connection.execute(update(F).where(matches(F, mine)).values(epoch=standing.epoch))
            rows = [{**mine, **target_key(target), "window": 0, "epoch": standing.epoch}
                    for target in sorted(begun.targets)]  # fmt: skip
            for some_rows in in_portions(rows):
                connection.execute(insert(F).prefix_with("IGNORE").values(list(some_rows)))
        return BegunWindow(begun, standing.epoch, standing.beside)

    def plan_again(self, begun: BegunWindow, plan: Plan) -> bool:
        """Replace the plan of a window that was begun; False if a target has rows of the first plan.

        The epoch rises before the fences are read, so no writer of the first plan can write after that.
        """
        mine = {"task": self._task, "source": plan.source}
        with self._database.transaction() as connection:
            found = self._lock(connection, plan)
            if found.epoch != begun.epoch or found.state != PLANNED:
                raise FencedOut(plan.source, plan.number, begun.epoch, found.epoch)
            for fenced in (S, F):
                connection.execute(update(fenced).where(matches(fenced, mine)).values(epoch=begun.epoch + 1))
            written = connection.scalar(select(func.count()).where(matches(F, mine), F.c.window >= plan.number))
            steps = matches(tables.fence_step, {**mine, "window": plan.number})
            if written or connection.scalar(select(func.count()).where(steps, tables.fence_step.c.done != 0)):
                return False
            connection.execute(delete(tables.fence_step).where(steps))
            if plan.orders:
                require_known(connection, self._task, plan)
            connection.execute(update(W).where(matches(W, self._key(plan))).values(plan=codec.dumps(plan)))
        return True

    def commit(self, begun: BegunWindow, held: Sequence[HeldFile], rows_applied: int,
               paces: Sequence[Pace] = (), stopped: Collection[Stop] = ()) -> None:  # fmt: skip
        """Make the window's effects exist: held files, queue entries, structures, checkpoint; idempotent.

        `paces` are what is remembered of the last windows from now on; empty: what was. What was to be released for
        targets that are `stopped` is held still.
        """
        plan = begun.plan
        with self._database.transaction() as connection:
            found = self._lock(connection, plan)
            if found.epoch != begun.epoch:
                raise FencedOut(plan.source, plan.number, begun.epoch, found.epoch)
            if found.state is None:
                raise NotBegun(plan.source, plan.number)
            if found.state == COMMITTED:
                return
            if stopped or Beside.STOPS in begun.beside:
                keep(connection, self._task, plan, {stop.target: stop for stop in stopped})
            self._move_held(connection, plan, held, {stop.target for stop in stopped})
            self._move_shards(connection, plan)
            move_shards(connection, self._task, plan.renames, plan.number)
            move_aside(connection, self._task, plan)
            use(connection, self._task, plan)
            move_online(connection, self._task, plan)
            self._move_checkpoint(connection, plan, rows_applied, sum(file.rows for file in held))
            self._forget_plans(connection, plan)
            self._remember(connection, plan.source, paces)
            if found.collides:
                mend(connection, self._task, plan.source)

    def totals(self, source: str) -> WindowTotals:
        """Return sums over all committed windows of a source."""
        query = select(func.count(), func.sum(W.c.rows_applied), func.sum(W.c.rows_held))
        with self._database.reading() as connection:
            where = W.c.task == self._task, W.c.source == source, W.c.state == COMMITTED
            windows, applied, held = connection.execute(query.where(*where)).one()
        return WindowTotals(windows, int(applied or 0), int(held or 0))

    def _persist(self, connection: Connection, plan: Plan, standing: Standing) -> Plan:
        if standing.checkpoint is None:
            raise WindowMismatch(plan.source, str(plan.begins), "nowhere")
        if (standing.checkpoint, standing.window + 1) != (plan.begins, plan.number):
            stands = f"{standing.checkpoint} after window {standing.window}"
            raise WindowMismatch(plan.source, f"{plan.begins} as window {plan.number}", stands)
        if plan.orders or Beside.ORDERS in standing.beside:
            require_known(connection, self._task, plan)
        connection.execute(insert(W).values(
            task=self._task, source=plan.source, number=plan.number, state=PLANNED, plan=codec.dumps(plan),
            rows_applied=0, rows_held=0, began_at=tables.NOW,
        ))  # fmt: skip
        return plan

    def _lock(self, connection: Connection, plan: Plan) -> AnyRow:
        """Lock the source and the window; also tell whether collisions are open."""
        row = connection.execute(LOCK, self._key(plan)).one_or_none()
        if row is None:
            raise UnknownSource(self._task, plan.source)
        return row

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

    def _move_checkpoint(self, connection: Connection, plan: Plan, applied: int, held: int) -> None:
        """Move the checkpoint and close the window, in one statement."""
        moved: dict[str, Any] = {**location_columns(plan.ends), "window": plan.number, "committed_at": tables.NOW}
        moved |= {"gtid": plan.gtid} if plan.ends != plan.begins else {}
        moved |= {"last_time": plan.last_time} if plan.last_time else {}
        closed = {"state": COMMITTED, "rows_applied": applied, "rows_held": held, "committed_at": tables.NOW}
        values = {C.c[name]: value for name, value in moved.items()} | {W.c[name]: closed[name] for name in closed}
        same = C.c.task == W.c.task, C.c.source == W.c.source
        connection.execute(update(C).where(*same, matches(W, self._key(plan))).values(values))

    def _forget_plans(self, connection: Connection, plan: Plan) -> None:
        """Empty plans of older windows now and then."""
        if plan.number % KEPT_PLANS == 0:
            old = W.c.number.between(plan.number - 2 * KEPT_PLANS, plan.number - KEPT_PLANS)
            mine = matches(W, {"task": self._task, "source": plan.source})
            connection.execute(update(W).where(mine, old).values(plan=""))

    def _remember(self, connection: Connection, source: str, paces: Sequence[Pace]) -> None:
        if paces:
            row = {"task": self._task, "source": source, "windows": codec.dumps(tuple(paces))}
            connection.execute(insert(P).values(row).on_duplicate_key_update(windows=row["windows"]))

    def _key(self, plan: Plan) -> dict[str, Any]:
        return {"task": self._task, "source": plan.source, "number": plan.number}
