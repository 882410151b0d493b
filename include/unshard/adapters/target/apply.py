"""The changes of one window to one target table: one transaction, guarded by a fence.

The fence row of (task, source, target) says which window was applied last and which epoch may write.

| dies                              | what happens                                                       |
|-----------------------------------|--------------------------------------------------------------------|
| before COMMIT                     | the server rolls back; a retry does it all again                   |
| in COMMIT, the answer is lost     | a new connection reads the fence: this window there means done     |
| after COMMIT                      | a retry reads the fence and does nothing                           |
| hangs, while another run begins   | the epoch has risen: the UPDATE of the fence matches no row, rollback |

Order inside: deletes, removals (multisets), writes, fence. Deadlocks, lock waits and lost connections
are tried again a few times.
"""

import contextlib
import random
import time
from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.changes import Applied, Changes
from unshard.adapters.target.collisions import Ledger, write_rows
from unshard.adapters.target.deletes import delete_keys, remove_rows
from unshard.adapters.target.session import open_session
from unshard.core.collision import Found
from unshard.core.model import Server, TableId
from unshard.errors import UnshardError
from unshard.errors.meta import FencedOut
from unshard.errors.target import FenceMissing

ATTEMPTS = 6
FIRST_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class Fence:
    """What a writer must present, and what it leaves."""

    meta_schema: str
    task: str
    source: str
    target: TableId
    window: int
    epoch: int


def apply_changes(server: Server, fence: Fence, changes: Changes) -> Applied:
    """Apply the window to its target table exactly once, however often it is called."""
    tried = _Attempts()
    while True:
        try:
            with contextlib.closing(open_session(server)) as connection:
                return _apply_once(connection, fence, changes, tried)
        except UnshardError as error:
            if not error.transient or tried.exhausted:
                raise
        tried.pause()


class _Attempts:
    """How often it was tried, and what the last attempt had done when it came to its COMMIT."""

    def __init__(self) -> None:
        self.count = 1
        self.committing: Applied | None = None

    @property
    def exhausted(self) -> bool:
        return self.count >= ATTEMPTS

    def pause(self) -> None:
        time.sleep(FIRST_PAUSE * 2 ** (self.count - 1) * random.uniform(0.5, 1.5))
        self.count += 1


def _apply_once(connection: Connection, fence: Fence, changes: Changes, tried: _Attempts) -> Applied:
    if is_applied(connection, fence):
        return tried.committing or Applied(before=True)
    connection.begin()
    applied = _write(connection, fence, changes)
    if not _raise_fence(connection, fence):
        mysql.query(connection, "ROLLBACK")
        if is_applied(connection, fence):
            return Applied(before=True)
        raise FenceMissing(str(fence.target), fence.source)
    tried.committing = applied
    mysql.query(connection, "COMMIT")
    return applied


def is_applied(connection: Connection, fence: Fence) -> bool:
    """Whether the window is in the target; raises FencedOut when another run has taken over."""
    rows = mysql.query(
        connection,
        f"SELECT `window`, epoch FROM {_fence_table(fence)}"  # noqa: S608
        " WHERE task = %s AND source = %s AND target_schema = %s AND target_table = %s",
        (fence.task, fence.source, fence.target.schema, fence.target.name),
    )
    if not rows:
        raise FenceMissing(str(fence.target), fence.source)
    window, epoch = rows[0]
    if window < fence.window and epoch != fence.epoch:
        raise FencedOut(fence.source, fence.window, fence.epoch, epoch)
    return bool(window >= fence.window)


def _raise_fence(connection: Connection, fence: Fence) -> bool:
    sql = (
        f"UPDATE {_fence_table(fence)} SET `window` = %s"  # noqa: S608
        " WHERE task = %s AND source = %s AND target_schema = %s AND target_table = %s"
        " AND epoch = %s AND `window` < %s"
    )
    name = (fence.task, fence.source, fence.target.schema, fence.target.name)
    with mysql.coded_errors(connection, sql), connection.cursor() as cursor:
        return bool(cursor.execute(sql, (fence.window, *name, fence.epoch, fence.window)))


def _fence_table(fence: Fence) -> str:
    return f"{mysql.identifier(fence.meta_schema)}.fence"


def _write(connection: Connection, fence: Fence, changes: Changes) -> Applied:
    deleted = delete_keys(connection, changes.table, changes.key, changes.deletes)
    for removal in changes.removals:
        deleted += remove_rows(connection, removal.destination, changes.defaults, removal.line, removal.count)
    ledger = Ledger(fence.meta_schema, fence.task, Found.WINDOW, fence.window)
    loaded, collided = write_rows(connection, changes.writes, ledger)
    return Applied(deleted, loaded.sent - loaded.skipped, loaded.skipped, collided)
