"""The fence of a target table: the last window of a source that it has, and the epoch that may write."""

from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.lastwrites import Pair, changed, fence_state
from unshard.core.model import TableId
from unshard.errors.join import JoinChanged
from unshard.errors.meta import FencedOut, FenceMissing

OURS = "task = %s AND source = %s AND target_schema = %s AND target_table = %s"
"""SQL condition for rows of a meta table that belong to the fence's source and target; `named` returns the values."""
OWNED = "f.epoch = %s"


@dataclass(frozen=True, slots=True)
class Fence(Pair):
    """The fence that a writer requires, and the window that it sets."""

    window: int
    epoch: int
    join: int = 0
    """Version of the joined target (adapters/meta/joinrecords) for which the rows are converted; 0: it has none."""


def named(fence: Fence) -> tuple[str, str, str, str]:
    """Return the values of `OURS`."""
    return fence.key


def table_of(fence: Fence, name: str = "fence") -> str:
    """Return the quoted name of a meta table."""
    return f"{mysql.identifier(fence.meta_schema)}.{name}"


def is_applied(connection: Connection, fence: Fence) -> bool:
    """Whether the target has the window; raises FencedOut when another run has taken over, or BackupOlder.

    Call it outside a transaction.
    """
    return _has_window(fence, fence_state(connection, fence))


def hold(connection: Connection, fence: Fence) -> None:
    """Lock the fence until the end of a transaction that writes; raises FencedOut unless this run still owns it."""
    where = f" AND {OWNED} AND f.`window` < %s"
    if not changed(connection, fence, "", (), where, fence.epoch, fence.window):
        is_applied(connection, fence)
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
    """Lock the fence until the end of a transaction that reads; returns False if the target has the window."""
    sql = f"SELECT `window`, epoch FROM {table_of(fence)} WHERE {OURS} FOR UPDATE"  # noqa: S608
    return not _has_window(fence, next(iter(mysql.query(connection, sql, named(fence))), None))


def raise_fence(connection: Connection, fence: Fence) -> bool:
    """Set the fence to this window; returns False if this run does not own it any more."""
    where = f" AND {OWNED} AND f.`window` < %s"
    return changed(connection, fence, "f.`window` = %s, ", (fence.window,), where, fence.epoch, fence.window)


def _has_window(fence: Fence, state: tuple[int, int] | None) -> bool:
    if state is None:
        raise FenceMissing(str(fence.target), fence.source)
    window, epoch = state
    if window < fence.window and epoch != fence.epoch:
        raise FencedOut(fence.source, fence.window, fence.epoch, epoch)
    return window >= fence.window


def own(connection: Connection, fence: Fence) -> None:
    """Lock the fence until the end of a transaction that writes; raises FencedOut if another attempt has begun."""
    if changed(connection, fence, "", (), f" AND {OWNED}", fence.epoch):
        return
    state = fence_state(connection, fence)
    if state is None:
        raise FenceMissing(str(fence.target), fence.source)
    raise FencedOut(fence.source, fence.window, fence.epoch, state[1])
