"""The structures of shards with a column that has another name in the target (core.ddl.columnnames).

The change is one transaction for each shard. It is made while no window of the source is open, and repeating it changes
nothing.
"""

from typing import Any

from sqlalchemy import Connection, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.rows import entry_of, held_of, matches, shard_columns, shard_of
from unshard.adapters.meta.tasks.sources import lock_source
from unshard.core.ddl.queue import EntryState, QueueEntry, UnnamedShard

SHARD, SHARD_DDL, HELD_ROWS = tables.shard, tables.shard_ddl, tables.held_rows


def read_unnamed_shards(connection: Connection, task: str, source: str) -> tuple[UnnamedShard, ...]:
    """Return the shards of a source whose structures lack the target's names of columns."""
    key = matches(SHARD_DDL, {"task": task, "source": source}), SHARD_DDL.c.unnamed != 0
    shards = sorted({shard_of(row) for row in connection.execute(select(SHARD_DDL).where(*key))})
    found = []
    for shard in shards:
        mine = {"task": task, **shard_columns(shard)}
        state = connection.execute(select(SHARD).where(matches(SHARD, mine))).one()
        rows = connection.execute(select(SHARD_DDL).where(matches(SHARD_DDL, mine)).order_by(SHARD_DDL.c.seq))
        entries = tuple(map(entry_of, rows))
        first = next(number for number, entry in enumerate(entries) if entry.is_unnamed)
        held = tuple(map(held_of, connection.execute(select(HELD_ROWS).where(matches(HELD_ROWS, mine)))))
        found.append(UnnamedShard(shard, entries[first:], held, state.digest, state.shard_uid))
    return tuple(found)


def write_names(connection: Connection, task: str, before: UnnamedShard, after: UnnamedShard) -> None:
    """Store the named structures of a shard, unless another shard has its name by now."""
    lock_source(connection, task, before.shard.source)
    mine = {"task": task, **shard_columns(before.shard)}
    is_same = matches(SHARD, {**mine, "shard_uid": before.shard_uid})
    if connection.execute(select(SHARD.c.shard_uid).where(is_same)).first() is None:
        return
    for old, new in zip(before.entries, after.entries, strict=True):
        if old != new:
            key = {**mine, "seq": old.seq, "fingerprint": old.fingerprint, "state": old.state.value}
            connection.execute(update(SHARD_DDL).where(matches(SHARD_DDL, key)).values(_changed(old, new)))
    for held, named in zip(before.held, after.held, strict=True):
        key = {**mine, "seq": held.seq, "window": held.window, "part": held.part}
        connection.execute(update(HELD_ROWS).where(matches(HELD_ROWS, key)).values(structure=named.structure))
    connection.execute(update(SHARD).where(is_same, SHARD.c.digest == before.structure).values(digest=after.structure))


def _changed(old: QueueEntry, new: QueueEntry) -> dict[str, Any]:
    values: dict[str, Any] = {
        "before_digest": new.before,
        "after_digest": new.after,
        "routed": new.routed,
        "fingerprint": new.fingerprint,
        "reason": new.reason,
        "unnamed": False,
    }
    if new.state is not old.state:
        values |= {"state": EntryState.RESOLVED.value, "outcome": "skipped", "resolved_at": tables.NOW}
    return values
