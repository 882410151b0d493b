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

A window is too short to build its statements each time, so the constants here are compiled once. SYNC_STATE reads the
sync state of a source (core.task.state): each EXISTS ends at the first row, and the open window is found by its number,
so rows of old windows are not read.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import and_, bindparam, case, exists, false, func, null, or_, select, text, update
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.commandrecords import CommandState, drop_waiting, require_known, use
from unshard.adapters.meta.database import MetaDatabase, Records
from unshard.adapters.meta.gateway import AnyRow, TaskReader, TaskWriter, columns_of, in_portions, matches
from unshard.adapters.meta.lockrecords import refuse_replaced
from unshard.adapters.meta.pendingskips import add_skips_of_new_shard
from unshard.adapters.meta.problemrecords import forget_rows, keep, mend
from unshard.adapters.meta.rowvalues import (
    HELD_FILE,
    Persisted,
    are_same,
    entry_columns,
    location_columns,
    location_of,
    read_stored,
    target_of,
)
from unshard.adapters.meta.shardrecords import move_shards, note_renames, record_change
from unshard.adapters.meta.sourcerecords import move_source
from unshard.adapters.meta.taskrecords import refuse_paused
from unshard.core import codec
from unshard.core.ddl.queue import EntryState, HeldFile
from unshard.core.model import TableId
from unshard.core.rows.rowerrors import CollisionState
from unshard.core.task.history import Sample
from unshard.core.task.state import BegunWindow, PendingWork, Phase, SyncState
from unshard.core.window.plan import Pace, Plan
from unshard.core.window.suspension import SuspendedTarget
from unshard.errors.meta import FencedOut, NotBegun, UnknownSource, WindowMismatch

WINDOW, CHECKPOINT, FENCE, FENCE_STEP, SOURCE = (
    tables.window,
    tables.checkpoint,
    tables.fence,
    tables.fence_step,
    tables.source,
)
SHARD, SHARD_DDL, HELD_ROWS, SAMPLE = tables.shard, tables.shard_ddl, tables.held_rows, tables.sample
SAMPLES = Persisted(Sample)
MINUTE: Any = func.unix_timestamp() // 60
PLANNED, COMMITTED = tables.PLANNED, "committed"
IN_ORDER = -1
"""The step that says how much of a window connected tables have (adapters/target/fencesteps)."""
RATE_SECONDS = 30
"""The speed of a source is that of its windows in this time."""
KEPT_WINDOWS = 500
"""Windows that began more sections ago than this are deleted, so that the table stays small."""
FORGETTING = 100
"""Every so many sections a window deletes old windows and samples; the others have nothing to delete."""
KEPT_MINUTES = 25 * 60
"""Samples are kept for a day of charts, and an hour before it."""
THIS_TASK: Any = {"task": bindparam("task")}
THIS_SOURCE: Any = {**THIS_TASK, "source": bindparam("source")}


def _any(table: Any, *conditions: Any, **values: Any) -> Any:
    return exists().where(matches(table, {**THIS_SOURCE, **values}), *conditions)


FOUND: Mapping[PendingWork, Any] = {
    PendingWork.PAUSE: exists().where(matches(tables.pause, THIS_TASK)),
    PendingWork.STATEMENT_COMMANDS: _any(tables.statement_command, state=CommandState.WAITING),
    PendingWork.SEQUENCES: _any(tables.sequence),
    PendingWork.ONLINE_TABLES: _any(tables.online_ddl),
    PendingWork.SUSPENDED: _any(tables.suspended_target),
    PendingWork.UNKNOWNS: or_(_any(SHARD, digest=""), _any(SHARD_DDL, after_digest=""), _any(HELD_ROWS, structure="")),
    PendingWork.QUEUES: exists().where(matches(SHARD_DDL, {**THIS_TASK, "state": EntryState.PENDING})),
    PendingWork.HELD: _any(HELD_ROWS),
    PendingWork.DROPPED: _any(SHARD, SHARD.c.dropped != 0),
    PendingWork.DEFERRED: _any(tables.deferred_row),
    PendingWork.UNNAMED: _any(SHARD_DDL, SHARD_DDL.c.unnamed != 0),
    PendingWork.JOINED: exists().where(matches(tables.join_target, THIS_TASK)),
}


def _sync_state() -> Any:
    pending: Any = sum(case((there, flag.value), else_=0) for flag, there in FOUND.items())
    is_open = WINDOW.c.number == CHECKPOINT.c.window + 1, WINDOW.c.state == PLANNED
    joined = SOURCE.outerjoin(CHECKPOINT, are_same(CHECKPOINT, SOURCE, "source"))
    joined = joined.outerjoin(WINDOW, and_(are_same(WINDOW, SOURCE, "source"), *is_open))
    joined = joined.outerjoin(tables.rules, are_same(tables.rules, SOURCE, "source"))
    columns = (
        SOURCE.c.identity,
        SOURCE.c.phase,
        SOURCE.c.epoch,
        SOURCE.c.dump_end_file,
        SOURCE.c.dump_end_position,
        CHECKPOINT.c.file,
        CHECKPOINT.c.position,
        CHECKPOINT.c.gtid,
        CHECKPOINT.c.window,
        WINDOW.c.plan,
        CHECKPOINT.c.paces,
        tables.rules.c.digest,
    )
    return select(*columns, pending.label("pending")).select_from(joined).where(matches(SOURCE, THIS_SOURCE))


def _locking() -> Any:
    collides = _any(tables.collision, state=CollisionState.OPEN).label("collides")
    both = and_(are_same(WINDOW, SOURCE, "source"), WINDOW.c.number == bindparam("number"))
    joined = select(SOURCE.c.epoch, WINDOW.c.state, collides).select_from(SOURCE.outerjoin(WINDOW, both))
    return joined.where(matches(SOURCE, THIS_SOURCE)).with_for_update()


def _this(table: Any, *columns: str) -> Any:
    """Return the condition that these columns have the values of the parameters `this_…`."""
    return and_(*(table.c[name] == bindparam(f"this_{name}") for name in columns))


SYNC_STATE = _sync_state()
LOCK = _locking()
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
    took = func.timestampdiff(text("MICROSECOND"), of_window.began_at, tables.NOW) // 1000
    values |= {of_checkpoint.millis: of_checkpoint.millis + took}
    values |= {of_checkpoint.committed_at: tables.NOW, of_window.committed_at: tables.NOW, of_window.state: COMMITTED}
    same = are_same(CHECKPOINT, WINDOW, "source")
    return update(CHECKPOINT).where(same, _this(WINDOW, "task", "source", "number")).values(values)


class Windows(Records):
    """Rows of `window` and `fence` and, at commit, of all tables that a window changes."""

    def __init__(self, database: MetaDatabase) -> None:
        super().__init__(database)
        self._sampled: dict[str, int] = {}
        """The minute of the last sample of each source: only the first window of a minute adds one."""

    def sync_state(self, source: str) -> SyncState:
        return _sync_state_of(self._db, source)

    def open(self, source: str) -> Plan | None:
        """Return the plan of the open window: begun and not committed."""
        return self.sync_state(source).open

    def rates(self) -> dict[str, float]:
        """Return the rows per second that each source has applied in the last RATE_SECONDS."""
        is_new = WINDOW.c.committed_at > func.timestampadd(text("SECOND"), -RATE_SECONDS, tables.NOW)
        query = select(WINDOW.c.source, func.sum(WINDOW.c.rows_applied)).where(self._db.mine(WINDOW, is_new))
        return {
            source: round(int(rows) / RATE_SECONDS, 2)
            for source, rows in self._db.fetch(query.group_by(WINDOW.c.source))
        }

    def in_order(self, source: str, number: int) -> tuple[tuple[TableId, ...], ...]:
        """Return the targets that have a part of a window, written together in the order of the binlog."""
        groups: dict[str, list[TableId]] = {}
        order = (*FENCE_STEP.primary_key.columns,)
        for row in self._db.select(FENCE_STEP, source=source, window=number, number=IN_ORDER, order=order):
            groups.setdefault(row.key_columns, []).append(target_of(row))
        return tuple(map(tuple, groups.values()))

    def begin(self, source: str, plan: Plan) -> BegunWindow:
        """Begin the open window, or else this plan; raise the epoch, so that earlier runs can no longer write.

        Raises CommandsChanged if commands about statements were added or reverted since it was planned.
        """
        this = {"this_task": self._db.task, "this_source": source}
        with self._db.transaction() as db:
            # Locks the source, so that the state that is read next cannot change.
            if not db.execute(RAISE_EPOCH, this).rowcount:
                raise UnknownSource(db.task, source)
            state = _sync_state_of(db, source)
            if PendingWork.PAUSE in state.pending:
                refuse_paused(db)
            begun = state.open or _persist(db, plan, state)
            db.execute(SET_FENCES, {**this, "new_epoch": state.epoch})
            fence = {"task": db.task, "source": source, "window": 0, "epoch": state.epoch, "written": 0}
            rows = [columns_of({**fence, "target": target}) for target in sorted(begun.fenced)]
            if rows:
                # A load may just have created one with the former epoch.
                db.execute(ADD_FENCES, rows)
            refuse_replaced(db, begun)
        return BegunWindow(begun, state.epoch, state.pending)

    def plan_again(self, begun: BegunWindow, plan: Plan) -> bool:
        """Replace the plan of an open window; return False if a target has rows of the first plan.

        The epoch rises before the fences are read, so no writer of the first plan can write after that.
        """
        with self._db.transaction() as db:
            is_replaced = _replace(db, begun, plan, plan.number)
            if is_replaced and plan.orders:
                require_known(db, plan)
        return is_replaced

    def shorten(self, begun: BegunWindow, plan: Plan) -> BegunWindow | None:
        """Let an open window end before a section; return None if a target has rows of that section.

        The section's number becomes that of the next window, so no writer of the section may raise a fence any more.
        """
        with self._db.transaction() as db:
            if not _replace(db, begun, plan, plan.last_number + 1):
                return None
        return BegunWindow(plan, begun.epoch + 1, begun.pending)

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
        with self._db.transaction() as db:
            found = _lock(db, plan)
            if found.epoch != begun.epoch:
                raise FencedOut(plan.source, plan.number, begun.epoch, found.epoch)
            if found.state is None:
                raise NotBegun(plan.source, plan.number)
            if found.state == COMMITTED:
                return
            note_renames(db, plan.renames)
            if stopped or PendingWork.SUSPENDED in begun.pending:
                keep(db, plan, {stop.target: stop for stop in stopped})
            _move_held(db, plan, held, {stop.target for stop in stopped})
            forget_rows(db, plan, deleted)
            _move_shards(db, plan)
            move_shards(db, plan.renames, plan.number)
            move_source(db, plan)
            use(db, plan)
            _move_checkpoint(db, plan, (rows_applied, sum(file.rows for file in held)), paces)
            if plan.reaches_multiple(FORGETTING):
                db.delete(WINDOW, WINDOW.c.number < plan.number - KEPT_WINDOWS, source=plan.source)
                db.delete(SAMPLE, SAMPLE.c.minute < MINUTE - KEPT_MINUTES, source=plan.source)
            if found.collides:
                mend(db, plan.source)
            minute = int(time.time() // 60)
            if self._sampled.get(plan.source) != minute:
                self._sampled[plan.source] = minute
                _add_sample(db, plan.source)

    def samples(self, minutes: int, step: int) -> tuple[Sample, ...]:
        """Return for each source the first sample of each `step` minutes, with the longest lag, then its checkpoint.

        The first one of a source may be one step older than `minutes`.
        """
        columns = [func.min(SAMPLE.c[name]).label(name) for name in ("minute", "windows", "rows_applied", "millis")]
        columns += [func.max(SAMPLE.c[name]).label(name) for name in ("lag_seconds", "rows_held")]
        is_new = self._db.mine(SAMPLE, SAMPLE.c.minute >= MINUTE - minutes - step)
        query = select(SAMPLE.c.source, *columns).where(is_new).group_by(SAMPLE.c.source, SAMPLE.c.minute // step)
        stored = map(SAMPLES.of, self._db.fetch(query.order_by(func.min(SAMPLE.c.minute))))
        c = CHECKPOINT.c
        present = c.source, c.windows, c.rows_applied, c.millis, MINUTE.label("minute")
        now = self._db.select(CHECKPOINT, only=(*present, null().label("lag_seconds"), null().label("rows_held")))
        return (*stored, *map(SAMPLES.of, now))


def _sync_state_of(db: TaskReader, source: str) -> SyncState:
    """Read the sync state of a source; a source that is not recorded is new."""
    row = next(iter(db.fetch(SYNC_STATE, {"task": db.task, "source": source})), None)
    if row is None:
        return SyncState(source)
    plan = read_stored(Plan, row.plan, f"the plan of window {row.window + 1} of {source}") if row.plan else None
    took = read_stored(tuple[Pace, ...], row.paces, f"what the last windows of {source} took") if row.paces else ()
    return SyncState(
        source=source,
        identity=row.identity,
        phase=Phase(row.phase),
        epoch=row.epoch,
        dump_end=location_of(row, "dump_end_"),
        checkpoint=location_of(row),
        gtid=row.gtid or "",
        window=row.window or 0,
        open=plan,
        paces=took,
        rules=row.digest,
        pending=PendingWork(row.pending),
    )


def _persist(db: TaskWriter, plan: Plan, state: SyncState) -> Plan:
    if state.checkpoint is None:
        raise WindowMismatch(plan.source, str(plan.begins), "nowhere")
    if (state.checkpoint, state.window + 1) != (plan.begins, plan.number):
        reached = f"{state.checkpoint} after window {state.window}"
        raise WindowMismatch(plan.source, f"{plan.begins} as window {plan.number}", reached)
    if plan.orders or PendingWork.STATEMENT_COMMANDS in state.pending:
        require_known(db, plan)
    row = {"source": plan.source, "number": plan.number, "state": PLANNED, "plan": codec.dumps(plan)}
    db.insert(WINDOW, {**row, "rows_applied": 0, "rows_held": 0, "began_at": tables.NOW})
    return plan


def _replace(db: TaskWriter, begun: BegunWindow, plan: Plan, number: int) -> bool:
    """Raise the epoch, and replace the plan unless a target has rows of the section with this number."""
    source, found = plan.source, _lock(db, plan)
    if found.epoch != begun.epoch or found.state != PLANNED:
        raise FencedOut(source, plan.number, begun.epoch, found.epoch)
    for fenced in (SOURCE, FENCE):
        db.update(fenced, {"epoch": begun.epoch + 1}, source=source)
    written = db.has(FENCE, FENCE.c.window >= number, source=source)
    if written or db.has(FENCE_STEP, FENCE_STEP.c.done != 0, source=source, window=number):
        return False
    db.delete(FENCE_STEP, source=source, window=number)
    db.update(WINDOW, {"plan": codec.dumps(plan)}, source=source, number=plan.number)
    return True


def _lock(db: TaskWriter, plan: Plan) -> AnyRow:
    """Lock the source and the window; also return whether collisions are open."""
    for row in db.fetch(LOCK, {"task": db.task, "source": plan.source, "number": plan.number}):
        return row
    raise UnknownSource(db.task, plan.source)


def _add_sample(db: TaskWriter, source: str) -> None:
    """Add the sample of this minute unless there is one."""
    mine = db.mine(HELD_ROWS, source=source)
    rows = select(func.coalesce(func.sum(HELD_ROWS.c.row_count), 0)).where(mine).scalar_subquery()
    held = select(func.min(func.nullif(HELD_ROWS.c.first_time, 0))).where(mine).scalar_subquery()
    last = func.nullif(CHECKPOINT.c.last_time, 0)
    oldest = func.least(func.coalesce(held, last), func.coalesce(last, held))
    lag = func.greatest(0, func.coalesce(func.unix_timestamp() - oldest, 0))
    counters = CHECKPOINT.c.windows, CHECKPOINT.c.rows_applied, CHECKPOINT.c.millis
    found = select(CHECKPOINT.c.task, CHECKPOINT.c.source, MINUTE, *counters, rows, lag)
    new = insert(SAMPLE).prefix_with("IGNORE")
    db.execute(new.from_select([*SAMPLE.c.keys()], found.where(db.mine(CHECKPOINT, source=source))))


def _move_held(db: TaskWriter, plan: Plan, held: Sequence[HeldFile], stopped: Collection[TableId]) -> None:
    released = [file for release in plan.releases if release.target not in stopped for file in release.files]
    for files in in_portions(released):
        named = (
            matches(HELD_ROWS, {"shard": f.shard, "seq": f.seq, "window": f.window, "part": f.part}) for f in files
        )
        db.delete(HELD_ROWS, or_(false(), *named))
    for drop in plan.drops:
        drop_waiting(db, drop.shard)
    rows = [{**HELD_FILE.columns(file), "safe": plan.safe or file.safe, "held_at": tables.NOW} for file in held]
    db.insert_all(HELD_ROWS, rows)


def _move_shards(db: TaskWriter, plan: Plan) -> None:
    for change in plan.structures:
        record_change(db, change, plan.number)
    for entry in plan.queued:
        skipped = {"outcome": "skipped", "resolved_at": tables.NOW} if entry.state is EntryState.RESOLVED else {}
        db.insert(SHARD_DDL, {**entry_columns(entry), "window": plan.number, "seen_at": tables.NOW, **skipped})
        db.update(SHARD, {"last_seq": entry.seq}, shard=entry.shard)
    for change in plan.structures:
        add_skips_of_new_shard(db, change)


def _move_checkpoint(db: TaskWriter, plan: Plan, rows: tuple[int, int], paces: Sequence[Pace]) -> None:
    """Move the checkpoint and close the window, in one statement."""
    moved: dict[str, Any] = {**location_columns(plan.ends), "window": plan.last_number}
    moved |= {"gtid": plan.gtid} if plan.ends != plan.begins else {}
    moved |= {"last_time": plan.last_time} if plan.last_time else {}
    moved |= {"paces": codec.dumps(tuple(paces))} if paces else {}
    values = moved | {"rows_applied": rows[0], "rows_held": rows[1]}
    given = {f"new_{name}": value for name, value in values.items()}
    this = {"this_task": db.task, "this_source": plan.source, "this_number": plan.number}
    db.execute(_moving(tuple(moved)), {**given, **this})
