"""Keeps a statement about a whole target table and the windows of other sources apart.

TRUNCATE or DROP of a one-to-one target must not meet rows of a table of another source that has just joined. Both sides
lock the row of the target's open lock, so one of them comes first:

| first                                     | the other                                                        |
|-------------------------------------------|------------------------------------------------------------------|
| a window with a joining shard begins      | the statement is not begun while that window is open; after it   |
|                                           | the lock waits for the shard                                     |
| the statement is begun                    | the window does not begin until the lock is resolved             |
"""

from sqlalchemy import Connection, and_, or_, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.rows import matches, read, target_columns
from unshard.core.ddl.lock import LockState
from unshard.core.ddl.queue import QueueEntry, WholeChange
from unshard.core.model import TableId
from unshard.core.window.plan import Plan
from unshard.errors.locks import TargetIsReplaced

LOCK, FENCE, WINDOW = tables.ddl_lock, tables.fence, tables.window


def is_written(connection: Connection, task: str, target: TableId, source: str) -> bool:
    """Whether a window of another source that may write the target is open."""
    same = and_(WINDOW.c.task == FENCE.c.task, WINDOW.c.source == FENCE.c.source, WINDOW.c.state == tables.PLANNED)
    where = matches(FENCE, {"task": task, **target_columns(target)}), FENCE.c.source != source
    return connection.execute(select(FENCE.c.source).join(WINDOW, same).where(*where).limit(1)).first() is not None


def refuse_replaced(connection: Connection, task: str, plan: Plan) -> None:
    """Raise TargetIsReplaced if a shard joins a target for which such a statement of another source is begun."""
    joined = {change.target for change in plan.structures if change.joins}
    if not joined:
        return
    named = or_(*(matches(LOCK, target_columns(target)) for target in joined))
    where = LOCK.c.task == task, LOCK.c.state != LockState.RESOLVED.value, named
    for row in connection.execute(select(LOCK).where(*where).with_for_update()):
        entry = read(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}")
        is_whole = entry.whole not in (WholeChange.NONE, WholeChange.CREATE)
        if is_whole and row.started_at is not None and entry.shard.source != plan.source:
            raise TargetIsReplaced(str(entry.target), row.lock_id, entry.routed)
