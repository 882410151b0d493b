"""Renames: all rows about a shard move to its new name, in the transaction that commits the window.

All renames of a statement happen at once. A swap needs a name in between: the empty schema name, which no server has.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.rows import location_columns, matches, read, shard_columns, target_columns, target_of
from unshard.core import codec
from unshard.core.ddl.lock import LockState
from unshard.core.ddl.queue import QueueEntry
from unshard.core.model import Shard, TableId
from unshard.core.window.plan import Rename

SHARD, TABLE_SCHEMA, DDL_LOCK, JOINED = tables.shard, tables.table_schema, tables.ddl_lock, tables.join_target
MOVED = (
    tables.shard,
    tables.shard_ddl,
    tables.held_rows,
    tables.ddl_lock_member,
    tables.column_reload,
    tables.join_member,
)
"""An earlier shard of the new name has neither queue nor held rows, so its rows in these tables are deleted."""


def move_shards(connection: Connection, task: str, renames: Sequence[Rename], window: int) -> None:
    """Rename shards, all at once."""
    if not renames:
        return
    # Locks first: resolving a lock also locks the row of the lock before those of the shards.
    _rename_in_locks(connection, task, {rename.shard: Shard(rename.shard.source, rename.to) for rename in renames})
    between = [Shard(rename.shard.source, TableId("", str(number))) for number, rename in enumerate(renames)]
    for rename, place in zip(renames, between, strict=True):
        for table in (*MOVED, TABLE_SCHEMA):
            _move(connection, task, table, rename.shard, place)
    for rename, place in zip(renames, between, strict=True):
        shard = Shard(place.source, rename.to)
        for table in MOVED:
            connection.execute(delete(table).where(matches(table, {"task": task, **shard_columns(shard)})))
            _move(connection, task, table, place, shard)
        _append_history(connection, task, place, rename, window)


def note_renames(connection: Connection, task: str, renames: Sequence[Rename]) -> None:
    """Change the versions of joined targets: a process that has read the old names accepts no DDL with them.

    This comes first in the transaction: a process that accepts DDL locks the target before its shards, too.
    """
    found = set[TableId]()
    for rename in renames:
        key = {"task": task, **shard_columns(rename.shard)}
        row = connection.execute(select(SHARD).where(matches(SHARD, key))).one_or_none()
        found |= {target_of(row)} if row is not None else set()
    for target in sorted(found):
        of_target = matches(JOINED, {"task": task, **target_columns(target)})
        connection.execute(update(JOINED).where(of_target).values(version=JOINED.c.version + 1))


def _move(connection: Connection, task: str, table: Table, old: Shard, new: Shard) -> None:
    mine = matches(table, {"task": task, **shard_columns(old)})
    connection.execute(update(table).where(mine).values(shard_columns(new)))


def _append_history(connection: Connection, task: str, place: Shard, rename: Rename, window: int) -> None:
    """Append the shard's history to that of the new name, then the rename."""
    shard = Shard(place.source, rename.to)
    key = {"task": task, **shard_columns(shard)}
    newest = select(func.coalesce(func.max(TABLE_SCHEMA.c.number), 0)).where(matches(TABLE_SCHEMA, key))
    known = connection.scalar(newest) or 0
    moved = {**shard_columns(shard), "number": TABLE_SCHEMA.c.number + known}
    connection.execute(
        update(TABLE_SCHEMA).where(matches(TABLE_SCHEMA, {"task": task, **shard_columns(place)})).values(moved)
    )
    now = connection.execute(select(SHARD).where(matches(SHARD, key))).one()
    connection.execute(
        insert(TABLE_SCHEMA).values(
            **key,
            number=(connection.scalar(newest) or 0) + 1,
            **target_columns(target_of(now)),
            **location_columns(rename.location),
            window=window,
            digest=None if now.has_left else now.digest,
            recorded_at=tables.NOW,
        )
    )


def _rename_in_locks(connection: Connection, task: str, names: dict[Shard, Shard]) -> None:
    """Change the name of the shard that opened a lock in the open locks."""
    unresolved = DDL_LOCK.c.task == task, DDL_LOCK.c.state != LockState.RESOLVED.value
    for row in connection.execute(
        select(DDL_LOCK.c.lock_id, DDL_LOCK.c.entry).where(*unresolved).with_for_update()
    ).all():
        entry = read(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}")
        if entry.shard in names:
            renamed = codec.dumps(replace(entry, shard=names[entry.shard]))
            connection.execute(
                update(DDL_LOCK).where(matches(DDL_LOCK, {"task": task, "lock_id": row.lock_id})).values(entry=renamed)
            )
