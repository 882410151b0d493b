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
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.collisions import taken_row
from unshard.adapters.target.deletes import delete_keys, remove_rows
from unshard.adapters.target.load import Destination, Loaded, Mode, key_of, load_text
from unshard.adapters.target.session import open_session
from unshard.core.model import Column, Server, TableId
from unshard.core.netting import Collisions
from unshard.errors import UnshardError
from unshard.errors.meta import FencedOut
from unshard.errors.target import Collision, FenceMissing

ATTEMPTS = 6
FIRST_PAUSE = 0.1
SAVEPOINT = "before_writes"


@dataclass(frozen=True, slots=True)
class Fence:
    """What a writer must present, and what it leaves."""

    meta_schema: str
    task: str
    source: str
    target: TableId
    window: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows to write into one destination, sorted by key."""

    destination: Destination
    mode: Mode
    lines: pa.Array
    blank: pa.Array
    shards: Sequence[str]
    """Where each line comes from, for messages."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A row of a table without a key that has to go a number of times."""

    destination: Destination
    line: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What one window does to one target table."""

    table: TableId
    key: tuple[Column, ...]
    deletes: Sequence[tuple[bytes, ...]]
    removals: Sequence[Removal]
    defaults: tuple[str, ...]
    """All columns of the table that are written: those that a removal does not name have their default."""
    writes: Sequence[Lines]
    unique: tuple[tuple[str, ...], ...]
    """Columns of each unique index, to find out what a new row collides with."""
    collisions: Collisions


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of the changes."""

    deleted: int = 0
    written: int = 0
    skipped: int = 0
    """New rows that were left out because their key was taken (on-duplicate: ignore)."""
    before: bool = False
    """An earlier run had applied this window already."""


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
    applied = _write(connection, changes)
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


def _write(connection: Connection, changes: Changes) -> Applied:
    deleted = delete_keys(connection, changes.table, changes.key, changes.deletes)
    for removal in changes.removals:
        deleted += remove_rows(connection, removal.destination, changes.defaults, removal.line, removal.count)
    mysql.query(connection, f"SAVEPOINT {SAVEPOINT}")
    loaded = Loaded()
    for rows in changes.writes:
        one = load_text(connection, rows.destination, rows.lines, rows.blank, rows.mode)
        if one.skipped and changes.collisions is Collisions.ERROR:
            raise _collision(connection, changes, rows, one)
        loaded += one
    return Applied(deleted, loaded.sent - loaded.skipped, loaded.skipped)


def _collision(connection: Connection, changes: Changes, rows: Lines, loaded: Loaded) -> Collision:
    """Find the row that met a taken key: back to before the writes, look which keys are there."""
    mysql.query(connection, f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
    found = taken_row(connection, rows.destination, changes.unique, rows.lines)
    words = loaded.duplicates[0] if loaded.duplicates else "a row with this key"
    if found is None:
        shards = " or ".join(sorted(set(rows.shards)))
        return Collision(str(changes.table), words, shards, "another shard of this window")
    columns = tuple(name for name in found.columns)
    named = replace(rows.destination, key=columns)
    key = key_of(named, rows.lines[found.row].as_py())
    return Collision(str(changes.table), key, rows.shards[found.row], "another shard", found.condition)
