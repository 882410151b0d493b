"""The fence of a target table: the last window of a source that it has, and the epoch that may write."""

from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.core.model import TableId
from unshard.errors.joinedrows import JoinChanged
from unshard.errors.window import FencedOut, FenceMissing

OURS = "task = %s AND source = %s AND target_schema = %s AND target_table = %s"
"""SQL condition for rows of a meta table that belong to the fence's source and target; `named` returns the values."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The fence that a writer requires, and the window that it sets."""

    meta_schema: str
    task: str
    source: str
    target: TableId
    window: int
    epoch: int
    join: int = 0
    """Version of the joined target (adapters/meta/locks/join) for which the rows are converted; 0: it has none."""


def named(fence: Fence) -> tuple[str, str, str, str]:
    """Return the values of `OURS`."""
    return fence.task, fence.source, fence.target.schema, fence.target.name


def table_of(fence: Fence, name: str = "fence") -> str:
    """Return the quoted name of a meta table."""
    return f"{mysql.identifier(fence.meta_schema)}.{name}"


def is_applied(connection: Connection, fence: Fence) -> bool:
    """Whether the target has the window; raises FencedOut when another run has taken over."""
    return _is_applied(connection, fence, "")


def hold(connection: Connection, fence: Fence) -> None:
    """Lock the fence until the end of the transaction; raises FencedOut unless this run still owns it."""
    if _is_applied(connection, fence, " FOR UPDATE"):
        raise FencedOut(fence.source, fence.window, fence.epoch, fence.epoch)


def hold_join(connection: Connection, fence: Fence) -> None:
    """Keep the ids of the target's columns until the end of the transaction; raises if they are no longer the same."""
    if fence.join:
        hold_version(connection, fence.meta_schema, fence.task, fence.target, fence.join)


def hold_version(connection: Connection, meta_schema: str, task: str, target: TableId, version: int) -> None:
    """Keep a joined target at a version until the end of the transaction; raises JoinChanged if it has another one."""
    # TiDB has no shared row locks.
    lock = "FOR UPDATE" if "tidb" in connection.get_server_info().lower() else "LOCK IN SHARE MODE"
    where = "task = %s AND target_schema = %s AND target_table = %s"
    sql = f"SELECT version FROM {mysql.identifier(meta_schema)}.join_target WHERE {where} {lock}"  # noqa: S608
    if mysql.query(connection, sql, (task, target.schema, target.name)) != [(version,)]:
        raise JoinChanged(str(target))


def lock_unless_applied(connection: Connection, fence: Fence) -> bool:
    """Lock the fence until the end of the transaction; returns False if the target already has the window."""
    return not _is_applied(connection, fence, " FOR UPDATE")


def raise_fence(connection: Connection, fence: Fence) -> bool:
    """Set the fence to this window; returns False if this run does not own it any more."""
    sql = f"UPDATE {table_of(fence)} SET `window` = %s WHERE {OURS} AND epoch = %s AND `window` < %s"  # noqa: S608
    return bool(mysql.change(connection, sql, (fence.window, *named(fence), fence.epoch, fence.window)))


def _is_applied(connection: Connection, fence: Fence, lock: str) -> bool:
    sql = f"SELECT `window`, epoch FROM {table_of(fence)} WHERE {OURS}{lock}"  # noqa: S608
    rows = mysql.query(connection, sql, named(fence))
    if not rows:
        raise FenceMissing(str(fence.target), fence.source)
    window, epoch = rows[0]
    if window < fence.window and epoch != fence.epoch:
        raise FencedOut(fence.source, fence.window, fence.epoch, epoch)
    return bool(window >= fence.window)


def own(connection: Connection, fence: Fence) -> None:
    """Lock the fence until the end of the transaction; raises FencedOut if another attempt or window has begun."""
    sql = f"SELECT epoch FROM {table_of(fence)} WHERE {OURS} FOR UPDATE"  # noqa: S608
    rows = mysql.query(connection, sql, named(fence))
    if not rows:
        raise FenceMissing(str(fence.target), fence.source)
    ((epoch,),) = rows
    if epoch != fence.epoch:
        raise FencedOut(fence.source, fence.window, fence.epoch, epoch)
