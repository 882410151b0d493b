"""Windows: begun with a persisted plan and a raised epoch, committed in one transaction.

| the process dies                          | what happens                                                    |
|-------------------------------------------|-----------------------------------------------------------------|
| before `begin` has committed              | nothing has happened; the next run plans again                  |
| after `begin`, before or while rows move  | the next `begin` returns the same plan with a new epoch; a      |
|                                           | target whose fence has this window is already done              |
| a zombie goes on after another `begin`    | its fence updates match 0 rows, its `commit` raises FencedOut   |
| before or after `plan_again`              | the old plan, which no target has a row of, or the new one      |
| before or after `shorten`                 | the plan with all sections, or the plan of those that the       |
|                                           | target has                                                      |
| after the rows, before `commit`           | the same plan runs again; every fence says done; then commit    |
| in `commit`                               | all of it or nothing                                            |
| after `commit`, before its answer arrives | `commit` again finds the window committed and does nothing      |
"""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, exists, false, func, or_, select, update
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.load.collisions import OPEN, mend
from unshard.adapters.meta.locks.lockcommands import drop_waiting
from unshard.adapters.meta.locks.pendingskips import add_skips_of_new_shard
from unshard.adapters.meta.locks.statementcommands import require_known, use
from unshard.adapters.meta.locks.wholetargets import refuse_replaced
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import (
    AnyRow,
    entry_columns,
    held_columns,
    in_portions,
    location_columns,
    matches,
    shard_columns,
    target_of,
)
from unshard.adapters.meta.rows import target_columns as target_key
from unshard.adapters.meta.shards.deletedshards import forget_rows
from unshard.adapters.meta.shards.ignored import forget_ignored
from unshard.adapters.meta.shards.online import move_online
from unshard.adapters.meta.shards.renames import move_shards, note_renames
from unshard.adapters.meta.shards.structures import record_change
from unshard.adapters.meta.tasks.pauses import refuse_paused
from unshard.adapters.meta.windows.suspended import keep
from unshard.adapters.meta.windows.syncstate import PLANNED, read_sync_state
from unshard.core import codec
from unshard.core.ddl.queue import HeldFile, QueueEntry
from unshard.core.model import TableId
from unshard.core.task.state import BegunWindow, PendingWork, SyncState
from unshard.core.window.pace import Pace
from unshard.core.window.plan import Plan
from unshard.core.window.suspension import SuspendedTarget
from unshard.errors.meta import FencedOut, NotBegun, UnknownSource, WindowMismatch

WINDOW, CHECKPOINT, FENCE, SOURCE = tables.window, tables.checkpoint, tables.fence, tables.source
COLLISION = tables.collision
COMMITTED = "committed"
IN_ORDER = -1
"""The step that says how much of a window connected tables have (adapters/target/steps)."""
KEPT_WINDOWS = 500
"""Windows that began more sections ago than this are deleted, so that the table stays small."""
FORGETTING = 100
"""Every so many sections a window deletes old windows; the others have nothing to delete."""


def _locking() -> Any:
    mine: dict[str, Any] = {"task": bindparam("task"), "source": bindparam("source")}
    collides = exists().where(matches(COLLISION, {**mine, "state": OPEN})).label("collides")
    both = matches(WINDOW, {"task": SOURCE.c.task, "source": SOURCE.c.source, "number": bindparam("number")})
    joined = select(SOURCE.c.epoch, WINDOW.c.state, collides).select_from(SOURCE.outerjoin(WINDOW, both))
    return joined.where(matches(SOURCE, mine)).with_for_update()


LOCK = _locking()
"""Compiled once, like SYNC_STATE."""


def _this(table: Any, *columns: str) -> Any:
    """Return the condition that these columns have the values of the parameters `this_…`."""
    return and_(*(table.c[name] == bindparam(f"this_{name}") for name in columns))


RAISE_EPOCH = (
    update(SOURCE).where(_this(SOURCE, "task", "source")).values(epoch=SOURCE.c.epoch + 1, updated_at=tables.NOW)
)
SET_FENCES = update(FENCE).where(_this(FENCE, "task", "source")).values(epoch=bindparam("new_epoch"))
_FENCE = insert(FENCE)
ADD_FENCES = _FENCE.on_duplicate_key_update(epoch=_FENCE.inserted.epoch)


@cache
def _moving(columns: tuple[str, ...]) -> Any:
    """Return the statement that moves the checkpoint and closes a window; the values are the parameters `new_…`."""
    of_checkpoint, of_window = CHECKPOINT.c, WINDOW.c
    values: dict[Any, Any] = {
        of_checkpoint[name]: bindparam(f"new_{name}", type_=of_checkpoint[name].type) for name in columns
    }
    values |= {of_window[name]: bindparam(f"new_{name}") for name in ("rows_applied", "rows_held")}
    values |= {of_checkpoint.windows: of_checkpoint.windows + 1}
    values |= {of_checkpoint.rows_applied: of_checkpoint.rows_applied + values[of_window.rows_applied]}
    values |= {of_checkpoint.committed_at: tables.NOW, of_window.committed_at: tables.NOW, of_window.state: COMMITTED}
    same = of_checkpoint.task == of_window.task, of_checkpoint.source == of_window.source
    return update(CHECKPOINT).where(*same, _this(WINDOW, "task", "source", "number")).values(values)


class WindowReader(ReadingPart):
    """Rows of `window` and the sync state."""

    def sync_state(self, source: str) -> SyncState:
        """Return the sync state of a source with its pending-work flags."""
        with self._database.reading() as connection:
            return read_sync_state(connection, self._task, source)

    def open(self, source: str) -> Plan | None:
        """Return the plan of the open window: begun and not committed."""
        return self.sync_state(source).open

    def in_order(self, source: str, number: int) -> tuple[tuple[TableId, ...], ...]:
        """Return the targets that have a part of a window, written together in the order of the binlog."""
        mine = {"task": self._task, "source": source, "window": number, "number": IN_ORDER}
        query = select(tables.fence_step).where(matches(tables.fence_step, mine))
        groups: dict[str, list[TableId]] = {}
        with self._database.reading() as connection:
            for row in connection.execute(query.order_by(*tables.fence_step.primary_key.columns)):
                groups.setdefault(row.key_columns, []).append(target_of(row))
        return tuple(map(tuple, groups.values()))


class Windows(WritingPart, WindowReader):
    """Changes rows of `window` and `fence` and, at commit, of all tables that a window changes."""

    def begin(self, source: str, plan: Plan) -> BegunWindow:
        """Begin the open window, or else this plan; raise the epoch, so that earlier runs can no longer write.

        Raises CommandsChanged if commands about statements were added or reverted since it was planned.
        """
        mine, this = {"task": self._task, "source": source}, {"this_task": self._task, "this_source": source}
        with self._database.transaction() as connection:
            # Locks the source, so that the state that is read next cannot change.
            if not connection.execute(RAISE_EPOCH, this).rowcount:
                raise UnknownSource(self._task, source)
            state = read_sync_state(connection, self._task, source)
            if PendingWork.PAUSE in state.beside:
                refuse_paused(connection, self._task)
            begun = state.open or self._persist(connection, plan, state)
            connection.execute(SET_FENCES, {**this, "new_epoch": state.epoch})
            rows = [
                {**mine, **target_key(target), "window": 0, "epoch": state.epoch, "written": 0}
                for target in sorted(begun.fenced)
            ]
            if rows:
                # A load may just have created one with the former epoch.
                connection.execute(ADD_FENCES, rows)
            refuse_replaced(connection, self._task, begun)
        return BegunWindow(begun, state.epoch, state.beside)

    def plan_again(self, begun: BegunWindow, plan: Plan) -> bool:
        """Replace the plan of an open window; return False if a target has rows of the first plan.

        The epoch rises before the fences are read, so no writer of the first plan can write after that.
        """
        with self._database.transaction() as connection:
            is_replaced = self._replace(connection, begun, plan, plan.number)
            if is_replaced and plan.orders:
                require_known(connection, self._task, plan)
        return is_replaced

    def shorten(self, begun: BegunWindow, plan: Plan) -> BegunWindow | None:
        """Let an open window end before a section; return None if a target has rows of that section.

        The section's number becomes that of the next window, so no writer of the section may raise a fence any more.
        """
        with self._database.transaction() as connection:
            if not self._replace(connection, begun, plan, plan.last_number + 1):
                return None
        return BegunWindow(plan, begun.epoch + 1, begun.beside)

    def _replace(self, connection: Connection, begun: BegunWindow, plan: Plan, number: int) -> bool:
        """Raise the epoch, and replace the plan unless a target has rows of the section with this number."""
        mine = {"task": self._task, "source": plan.source}
        found = self._lock(connection, plan)
        if found.epoch != begun.epoch or found.state != PLANNED:
            raise FencedOut(plan.source, plan.number, begun.epoch, found.epoch)
        for fenced in (SOURCE, FENCE):
            connection.execute(update(fenced).where(matches(fenced, mine)).values(epoch=begun.epoch + 1))
        written = connection.scalar(select(func.count()).where(matches(FENCE, mine), FENCE.c.window >= number))
        steps = matches(tables.fence_step, {**mine, "window": number})
        if written or connection.scalar(select(func.count()).where(steps, tables.fence_step.c.done != 0)):
            return False
        connection.execute(delete(tables.fence_step).where(steps))
        connection.execute(update(WINDOW).where(matches(WINDOW, self._key(plan))).values(plan=codec.dumps(plan)))
        return True

    def commit(
        self,
        begun: BegunWindow,
        held: Sequence[HeldFile],
        rows_applied: int,
        paces: Sequence[Pace] = (),
        stopped: Collection[SuspendedTarget] = (),
        deleted: Sequence[int] = (),
    ) -> None:
        """Commit the window: held files, queue entries, structures, checkpoint; idempotent.

        `paces` replaces the stored paces of the last windows unless it is empty. Rows that the plan releases for
        `stopped` targets stay held. `deleted` are the numbers of rows that the plan's deletions have deleted.
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
            note_renames(connection, self._task, plan.renames)
            if stopped or PendingWork.SUSPENDED in begun.beside:
                keep(connection, self._task, plan, {stop.target: stop for stop in stopped})
            self._move_held(connection, plan, held, {stop.target for stop in stopped})
            forget_rows(connection, self._task, plan, deleted)
            self._move_shards(connection, plan)
            move_shards(connection, self._task, plan.renames, plan.number)
            forget_ignored(connection, self._task, plan)
            use(connection, self._task, plan)
            move_online(connection, self._task, plan)
            self._move_checkpoint(connection, plan, (rows_applied, sum(file.rows for file in held)), paces)
            self._forget_windows(connection, plan)
            if found.collides:
                mend(connection, self._task, plan.source)

    def _persist(self, connection: Connection, plan: Plan, state: SyncState) -> Plan:
        if state.checkpoint is None:
            raise WindowMismatch(plan.source, str(plan.begins), "nowhere")
        if (state.checkpoint, state.window + 1) != (plan.begins, plan.number):
            reached = f"{state.checkpoint} after window {state.window}"
            raise WindowMismatch(plan.source, f"{plan.begins} as window {plan.number}", reached)
        if plan.orders or PendingWork.STATEMENT_COMMANDS in state.beside:
            require_known(connection, self._task, plan)
        connection.execute(
            insert(WINDOW).values(
                task=self._task,
                source=plan.source,
                number=plan.number,
                state=PLANNED,
                plan=codec.dumps(plan),
                rows_applied=0,
                rows_held=0,
                began_at=tables.NOW,
            )
        )
        return plan

    def _lock(self, connection: Connection, plan: Plan) -> AnyRow:
        """Lock the source and the window; also return whether collisions are open."""
        row = connection.execute(LOCK, self._key(plan)).one_or_none()
        if row is None:
            raise UnknownSource(self._task, plan.source)
        return row

    def _move_held(
        self, connection: Connection, plan: Plan, held: Sequence[HeldFile], stopped: Collection[TableId]
    ) -> None:
        table = tables.held_rows
        released = [file for release in plan.releases if release.target not in stopped for file in release.files]
        for files in in_portions(released):
            named = (
                matches(table, {**shard_columns(f.shard), "seq": f.seq, "window": f.window, "part": f.part})
                for f in files
            )
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
            add_skips_of_new_shard(connection, self._task, change)

    def _queue(self, connection: Connection, entry: QueueEntry, window: int) -> None:
        row = {"task": self._task, **entry_columns(entry), "window": window, "seen_at": tables.NOW}
        connection.execute(insert(tables.shard_ddl).values(row))
        shard = tables.shard
        mine = matches(shard, {"task": self._task, **shard_columns(entry.shard)})
        connection.execute(update(shard).where(mine).values(last_seq=entry.seq))

    def _move_checkpoint(
        self, connection: Connection, plan: Plan, rows: tuple[int, int], paces: Sequence[Pace]
    ) -> None:
        """Move the checkpoint and close the window, in one statement."""
        moved: dict[str, Any] = {**location_columns(plan.ends), "window": plan.last_number}
        moved |= {"gtid": plan.gtid} if plan.ends != plan.begins else {}
        moved |= {"last_time": plan.last_time} if plan.last_time else {}
        moved |= {"paces": codec.dumps(tuple(paces))} if paces else {}
        values = moved | {"rows_applied": rows[0], "rows_held": rows[1]}
        given = {f"new_{name}": value for name, value in values.items()}
        given |= {f"this_{name}": value for name, value in self._key(plan).items()}
        connection.execute(_moving(tuple(moved)), given)

    def _forget_windows(self, connection: Connection, plan: Plan) -> None:
        if plan.reaches_multiple(FORGETTING):
            mine = matches(WINDOW, {"task": self._task, "source": plan.source})
            connection.execute(delete(WINDOW).where(mine, WINDOW.c.number < plan.number - KEPT_WINDOWS))

    def _key(self, plan: Plan) -> dict[str, Any]:
        return {"task": self._task, "source": plan.source, "number": plan.number}
