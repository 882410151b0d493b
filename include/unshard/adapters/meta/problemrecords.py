"""Rows with a problem: collisions, diverted, deferred and deleted rows, reloads of columns, and missing changes.

The writer of the rows records most of them in the transaction of the rows (adapters.target). Collisions with the policy
`error` roll that transaction back and are recorded here. Reloads begin here; a chunk changes the row of its reload in
the transaction of its rows (adapters/target/chunkprogress.py).

A suspended target receives no rows of a source until its error is gone. Only the run with the epoch of the source can
suspend a target, and only before the window's rows are in the target. Then the window begins again with a new epoch, so
writers of the earlier attempt cannot write.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import exists, func, or_, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.commandrecords import record_command
from unshard.adapters.meta.database import Records
from unshard.adapters.meta.gateway import AnyRow, TaskReader, TaskWriter
from unshard.adapters.meta.rowvalues import (
    SHARD_NAME,
    TARGET_NAME,
    Persisted,
    are_same,
    earliest,
    location_columns,
    shard_of,
    target_name,
    target_of,
)
from unshard.adapters.meta.sourcerecords import lock_source
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.ddl.queue import EntryState
from unshard.core.full.chunks import unpack_key
from unshard.core.model import Location, Shard, TableId
from unshard.core.rows.columnreload import Reload, ReloadState, continues, names_digest
from unshard.core.rows.rowerrors import CollisionState, Found, KeyCollision, RecordedCollision, RowError, RowErrorState
from unshard.core.task.lag import Waiting
from unshard.core.task.state import BegunWindow
from unshard.core.window.plan import Plan
from unshard.core.window.suspension import Refusal, SuspendedTarget
from unshard.errors.meta import FencedOut
from unshard.errors.rows import ConnectedTargetWaits, RowRefused

COLLISION, ROW_ERROR, DEFERRED_ROW, DELETED_SHARD, RELOAD = (
    tables.collision,
    tables.row_error,
    tables.deferred_row,
    tables.deleted_shard,
    tables.column_reload,
)
SHARD, SHARD_DDL, HELD_ROWS = tables.shard, tables.shard_ddl, tables.held_rows
MEMBER = tables.join_member
NO_LOCK = ""
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Missing:
    """Rows of one source that no change has written, shown by one of them."""

    shard: Shard
    target: TableId
    key: str
    count: int


@dataclass(frozen=True, slots=True)
class DeletedShard:
    """A statement after which the rows of a shard were deleted."""

    shard: Shard
    target: TableId
    location: Location
    """End of the statement."""
    statement: str
    rows: int
    """The number of rows that the last attempt deleted."""
    at: datetime
    """When its window was committed."""


DIVERTED = Persisted(RowError, key="key_shown", column="column_name", words="server_message", row="row_json")
DELETED = Persisted(DeletedShard, location="", rows="row_count", at="deleted_at")
RELOADED = Persisted(Reload, "columns reached")


class Collisions(Records):
    """Rows of `collision`: keys that two shards of a target both have."""

    def all(self, limit: int = 100, *, only_open: bool = False) -> tuple[RecordedCollision, ...]:
        """Return the newest collisions, open ones first."""
        return tuple(map(_collision, _newest(self._db, COLLISION, limit, only_open=only_open)))

    def counts(self, source: str) -> dict[CollisionState, int]:
        """Return the number of collisions of a source by state; open collisions count once per key."""
        c = COLLISION.c
        times = func.sum(func.if_(c.state == CollisionState.OPEN, 1, c.times + c.others))
        query = select(c.state, times).where(self._db.mine(COLLISION, source=source)).group_by(c.state)
        return {CollisionState(state): int(number) for state, number in self._db.fetch(query)}

    def of_load(self, source: str) -> tuple[RecordedCollision, ...]:
        """Return the open collisions of the load that involve a shard of the source."""
        mine = or_(COLLISION.c.source == source, COLLISION.c.owner_source == source)
        rows = self._db.select(COLLISION, mine, state=CollisionState.OPEN, found=Found.LOAD, order=COLLISION.c.digest)
        return tuple(map(_collision, rows))

    def unnamed(self, source: str, limit: int) -> tuple[RecordedCollision, ...]:
        """Return the collisions of a source's shards whose owner is unknown, newest first."""
        where = COLLISION.c.state != CollisionState.MENDED, COLLISION.c.key_condition != ""
        order = COLLISION.c.last_at.desc()
        rows = self._db.select(COLLISION, *where, source=source, owner_source=None, order=order, limit=limit)
        return tuple(map(_collision, rows))

    def stop_at(self, collision: KeyCollision, found: Found, window: int = 0) -> None:
        again = {
            "state": CollisionState.OPEN,
            "found": found,
            "window": window,
            "times": COLLISION.c.times + 1,
            "last_at": tables.NOW,
            **_owner_columns(collision.owner),
        }
        row = {
            "target": collision.target,
            "key_shown": collision.key,
            "key_condition": collision.condition,
            "shard": collision.shard,
            "others": 0,
            "first_at": tables.NOW,
            **again,
            "times": 1,
        }
        with self._db.transaction() as db:
            db.put(COLLISION, {"digest": collision.digest}, row, again)

    def name_owners(self, collisions: Iterable[KeyCollision]) -> None:
        with self._db.transaction() as db:
            for collision in collisions:
                db.update(COLLISION, _owner_columns(collision.owner), digest=collision.digest)

    def mend(self, source: str) -> None:
        """Close the open collisions of a source after its load has succeeded."""
        with self._db.transaction() as db:
            mend(db, source)

    def close(self, collisions: Iterable[KeyCollision]) -> None:
        """Close collisions of the load after their shards were dumped again."""
        mended = {"state": CollisionState.MENDED, "last_at": tables.NOW}
        with self._db.transaction() as db:
            for collision in collisions:
                db.update(COLLISION, mended, digest=collision.digest, state=CollisionState.OPEN)


class RowErrorRecords(Records):
    """Rows of `row_error`: diverted rows."""

    def all(self, limit: int = 100, *, only_open: bool = False) -> tuple[RowError, ...]:
        return tuple(map(DIVERTED.of, _newest(self._db, ROW_ERROR, limit, only_open=only_open)))

    def of_window(self, source: str, first: int, last: int) -> int:
        """Return how many rows the sections of a window have diverted that no later window has mended."""
        sections = ROW_ERROR.c.window.between(first, last)
        return self._db.count(ROW_ERROR, sections, source=source, state=RowErrorState.OPEN)

    def counts(self) -> dict[str, int]:
        return _counts(self._db, ROW_ERROR, state=RowErrorState.OPEN)


class DeferredRows(Records):
    """Rows of `deferred_row`: rows that their targets do not have yet."""

    def targets(self, source: str) -> frozenset[TableId]:
        query = select(*target_name(DEFERRED_ROW)).where(self._db.mine(DEFERRED_ROW, source=source)).distinct()
        return frozenset(map(target_of, self._db.fetch(query)))

    def counts(self) -> dict[str, int]:
        return _counts(self._db, DEFERRED_ROW)

    def missing(self, source: str) -> Missing | None:
        is_held = exists().where(are_same(HELD_ROWS, DEFERRED_ROW, *SHARD_NAME), HELD_ROWS.c.safe != 0)
        is_dropped = exists().where(are_same(SHARD, DEFERRED_ROW, *SHARD_NAME), SHARD.c.dropped != 0)
        where, order = (~is_held, ~is_dropped), (DEFERRED_ROW.c.since, DEFERRED_ROW.c.digest)
        row = self._db.row(DEFERRED_ROW, *where, source=source, order=order, limit=1)
        if row is None:
            return None
        count = self._db.count(DEFERRED_ROW, *where, source=source)
        return Missing(shard_of(row), target_of(row), row.key_shown, count)


class DeletedShards(Records):
    """Rows of `deleted_shard`: statements after which the rows of a shard were deleted from a merged target."""

    def newest(self, number: int = SHOWN) -> tuple[DeletedShard, ...]:
        order = DELETED_SHARD.c.deleted_at.desc(), *DELETED_SHARD.primary_key.columns
        return tuple(map(DELETED.of, self._db.select(DELETED_SHARD, order=order, limit=number)))


class Reloads(Records):
    """Rows of `column_reload`: columns of shards that are read again, and how far they are."""

    def get(self, shard: Shard, columns: Collection[str]) -> Reload | None:
        row = self._db.row(RELOAD, shard=shard, digest=names_digest(columns))
        return _reload(row) if row else None

    def newest(self, number: int = SHOWN) -> tuple[Reload, ...]:
        order = RELOAD.c.state == ReloadState.DONE, RELOAD.c.changed_at.desc(), *RELOAD.primary_key.columns
        return tuple(map(_reload, self._db.select(RELOAD, order=order, limit=number)))

    def due(self, target: TableId, columns: Collection[str], since: datetime) -> tuple[Shard, ...]:
        """Return the shards of a target whose columns were not reloaded after a time; only those that existed then."""
        same, is_old = are_same(tables.table_schema, SHARD, *SHARD_NAME), tables.table_schema.c.recorded_at <= since
        present = self._db.select(SHARD, exists().where(same, is_old), target=target, has_left=0, dropped=0)
        shards = set(map(shard_of, present))
        if not shards:
            return ()
        names: dict[Shard, set[str]] = {}
        done = self._db.select(RELOAD, RELOAD.c.began_at >= since, target=target, state=ReloadState.DONE)
        for reload in map(_reload, done):
            names.setdefault(reload.shard, set()).update(name.lower() for name in reload.columns)
        wanted = {name.lower() for name in columns}
        return tuple(sorted(shard for shard in shards if not wanted <= names.get(shard, set())))

    def begin(
        self, shard: Shard, target: TableId, columns: Collection[str], basis: str, command: IssuedCommand | None
    ) -> bool:
        """Record a reload; return whether it continues an earlier one. `command` is that of a person."""
        key = {"shard": shard, "digest": names_digest(columns)}
        fresh = {
            "target": target,
            "names": json.dumps([*columns], ensure_ascii=False),
            "state": ReloadState.READING,
            "basis": basis,
            "reached_key": None,
            "chunks": 0,
            "rows_read": 0,
            "rows_changed": 0,
            "began_at": tables.NOW,
            "changed_at": tables.NOW,
        }
        with self._db.transaction() as db:
            row = db.row(RELOAD, **key, lock=True)
            goes_on = continues(_reload(row) if row else None, basis)
            if not goes_on:
                db.put(RELOAD, key, fresh)
            if command is not None:
                record_command(db, NO_LOCK, command)
        return goes_on


class MissingChanges(Records):
    """The oldest changes that the targets of a source do not have although the checkpoint is after them.

    They wait for a DDL, a target or an operator.
    """

    def of(self, source: str) -> Waiting:
        """Return the times of the oldest ones of a source, except those of held rows (`Structures.totals`).

        A time that is not known is at most that of its entry.
        """
        ddl, is_open = SHARD_DDL.c, {"state": RowErrorState.OPEN}
        with self._db.snapshot() as db:
            oldest = partial(_oldest, db, source)
            return Waiting(
                oldest(SHARD_DDL, func.nullif(ddl.executed_at, 0), ddl.seen_at, state=EntryState.PENDING),
                None,
                earliest(
                    oldest(ROW_ERROR, ROW_ERROR.c.first_at, **is_open),
                    oldest(DEFERRED_ROW, DEFERRED_ROW.c.since),
                    oldest(RELOAD, RELOAD.c.began_at, state=ReloadState.READING),
                    _oldest_due(db, source),
                ),
            )


def mend(db: TaskWriter, source: str) -> None:
    """Close the open collisions of a source after its load or window, except those of suspended targets."""
    is_stopped = exists().where(are_same(tables.suspended_target, COLLISION, "source", *TARGET_NAME))
    mended = {"state": CollisionState.MENDED, "last_at": tables.NOW}
    db.update(COLLISION, mended, ~is_stopped, source=source, state=CollisionState.OPEN)


def forget_rows(db: TaskWriter, plan: Plan, deleted: Sequence[int]) -> None:
    """Forget the held, deferred and diverted rows of shards whose rows are deleted, in the transaction of the window.

    `deleted` are the numbers of rows that were deleted from the targets.
    """
    for each, rows in zip(plan.deletions, deleted, strict=True):
        db.delete(HELD_ROWS, shard=each.shard)
        db.delete(DEFERRED_ROW, shard=each.shard)
        mended = {"state": RowErrorState.MENDED, "last_at": tables.NOW}
        db.update(ROW_ERROR, mended, shard=each.shard, state=RowErrorState.OPEN)
        row = {
            "target": each.target,
            "statement": each.text,
            "row_count": rows,
            "window": plan.number,
            "deleted_at": tables.NOW,
        }
        db.put(DELETED_SHARD, {"shard": each.shard, **location_columns(each.location)}, row, again={"row_count": rows})


def _newest(db: TaskReader, table: Any, limit: int, *, only_open: bool) -> Sequence[AnyRow]:
    """Return the newest rows of a table of problems, open ones first."""
    is_open = table.c.state == CollisionState.OPEN
    order = ~is_open, table.c.last_at.desc(), table.c.digest
    return db.select(table, *([is_open] if only_open else []), order=order, limit=limit)


def _counts(db: TaskReader, table: Any, **values: Any) -> dict[str, int]:
    target = target_name(table)
    rows = db.fetch(select(*target, func.count()).where(db.mine(table, **values)).group_by(*target))
    return {f"{schema}.{name}": count for schema, name, count in rows}


def _oldest(db: TaskReader, source: str, table: Any, *columns: Any, **values: Any) -> float | None:
    return earliest(*db.one(table, only=tuple(map(func.min, columns)), source=source, **values))


def _oldest_due(db: TaskReader, source: str) -> float | None:
    """Return when the oldest DDL was accepted after which columns must be read again and are not yet.

    Only the newest state of a shard says which columns; a column that the shard has dropped since is not read.
    """
    found: dict[tuple[str, str], AnyRow] = {}
    for row in db.select(MEMBER, source=source, order=MEMBER.c.seq):
        found[row.shard_schema, row.shard_table] = row
    due = {name: {column for column, *_ in json.loads(row.reloads)} for name, row in found.items()}
    return earliest(*(row.accepted_at for name, row in found.items() if due[name] & {*json.loads(row.ids).values()}))


def _owner_columns(owner: Shard | None) -> dict[str, str | None]:
    source, table = (owner.source, owner.table) if owner else (None, None)
    schema, name = (table.schema, table.name) if table else (None, None)
    return {"owner_source": source, "owner_schema": schema, "owner_table": name}


def _collision(row: AnyRow) -> RecordedCollision:
    is_named = row.owner_source is not None
    owner = Shard(row.owner_source, TableId(row.owner_schema, row.owner_table)) if is_named else None
    collision = KeyCollision(target_of(row), row.key_shown, row.key_condition, shard_of(row), owner, row.others)
    return RecordedCollision(
        collision, Found(row.found), row.window, CollisionState(row.state), row.times, row.first_at, row.last_at
    )


def _reload(row: AnyRow) -> Reload:
    reached = unpack_key(json.loads(row.reached_key)) if row.reached_key else None
    return RELOADED.of(row, columns=tuple(json.loads(row.names)), reached=reached)


SUSPENDED_TARGET, FENCE, FENCE_STEP = tables.suspended_target, tables.fence, tables.fence_step
IN_ORDER = (*SUSPENDED_TARGET.primary_key.columns,)


REFUSAL = Persisted(Refusal, "code", column="column_name", key="key_shown", words="server_message")
SUSPENDED = Persisted(SuspendedTarget, "refusal", is_partial="partial")


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

    def lift(self, stop: SuspendedTarget, command: IssuedCommand | None = None) -> bool:
        is_open = {"source": stop.source, "target": stop.target, "window": stop.window, "is_open": 1}
        with self._db.transaction() as db:
            lifted = bool(db.update(SUSPENDED_TARGET, {"is_open": 0}, **is_open))
            if lifted and command is not None:
                record_command(db, "", command)
        return lifted


def keep(db: TaskWriter, plan: Plan, stopped: Mapping[TableId, SuspendedTarget]) -> None:
    """Keep the held rows that a window would have released for suspended targets; delete suspensions that are over.

    If a part of the window is in the target, its rows come again and must replace: the held rows get safe mode.
    """
    for release in plan.releases:
        if release.target in stopped and stopped[release.target].is_partial:
            db.update(tables.held_rows, {"safe": True}, shard=release.shard)
    for target in plan.targets - stopped.keys():
        db.delete(SUSPENDED_TARGET, source=plan.source, target=target, is_open=0)


def _stop(db: TaskWriter, plan: Plan, refusal: Refusal, structure: str) -> bool:
    mine = {"source": plan.source, "target": refusal.target}
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
    refusal = REFUSAL.of(row, code=row.code or RowRefused.code)
    return SUSPENDED.of(row, refusal=refusal)
