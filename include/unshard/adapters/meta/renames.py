"""Renames: all that is kept of a shard goes with it to its new name, in the transaction that commits the window.

All renames of a statement happen at once, so a swap needs a place in between: a schema without a name,
which no server has.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.rows import location_columns, matches, read, shard_columns, target_columns, target_of
from unshard.core import codec
from unshard.core.ddllock import LockState
from unshard.core.model import Shard, TableId
from unshard.core.window import QueueEntry, Rename

S, H, K = tables.shard, tables.table_schema, tables.ddl_lock
MOVED = (tables.shard, tables.shard_ddl, tables.held_rows, tables.ddl_lock_member)
"""What a shard that has had the new name before has left there is of no use any more: nothing of it waits."""


def move_shards(connection: Connection, task: str, renames: Sequence[Rename], window: int) -> None:
    """Give shards their new names, all at once."""
    if not renames:
        return
    # First, as resolving a lock does: it goes on from the lock's row to those of the shards.
    _tell_locks(connection, task, {rename.shard: Shard(rename.shard.source, rename.to) for rename in renames})
    between = [Shard(rename.shard.source, TableId("", str(number))) for number, rename in enumerate(renames)]
    for rename, place in zip(renames, between, strict=True):
        for table in (*MOVED, H):
            _move(connection, task, table, rename.shard, place)
    for rename, place in zip(renames, between, strict=True):
        shard = Shard(place.source, rename.to)
        for table in MOVED:
            connection.execute(delete(table).where(matches(table, {"task": task, **shard_columns(shard)})))
            _move(connection, task, table, place, shard)
        _append_history(connection, task, place, rename, window)


def _move(connection: Connection, task: str, table: Table, old: Shard, new: Shard) -> None:
    mine = matches(table, {"task": task, **shard_columns(old)})
    connection.execute(update(table).where(mine).values(shard_columns(new)))


def _append_history(connection: Connection, task: str, place: Shard, rename: Rename, window: int) -> None:
    """Put the shard's history behind that of the name, and the rename behind both."""
    shard = Shard(place.source, rename.to)
    key = {"task": task, **shard_columns(shard)}
    newest = select(func.coalesce(func.max(H.c.number), 0)).where(matches(H, key))
    known = connection.scalar(newest) or 0
    moved = {**shard_columns(shard), "number": H.c.number + known}
    connection.execute(update(H).where(matches(H, {"task": task, **shard_columns(place)})).values(moved))
    now = connection.execute(select(S).where(matches(S, key))).one()
    connection.execute(insert(H).values(
        **key, number=(connection.scalar(newest) or 0) + 1, **target_columns(target_of(now)),
        **location_columns(rename.location), window=window, digest=None if now.has_left else now.digest,
        recorded_at=tables.NOW,
    ))  # fmt: skip


def _tell_locks(connection: Connection, task: str, names: dict[Shard, Shard]) -> None:
    """Let open locks name the shard that opened them as it is called now."""
    unresolved = K.c.task == task, K.c.state != LockState.RESOLVED.value
    for row in connection.execute(select(K.c.lock_id, K.c.entry).where(*unresolved).with_for_update()).all():
        entry = read(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}")
        if entry.shard in names:
            told = codec.dumps(replace(entry, shard=names[entry.shard]))
            connection.execute(update(K).where(matches(K, {"task": task, "lock_id": row.lock_id})).values(entry=told))
