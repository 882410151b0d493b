"""The fence of a target table: which window of a source it has last, and which epoch may write."""

from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.core.model import TableId
from unshard.errors.meta import FencedOut
from unshard.errors.target import FenceMissing

OURS = "task = %s AND source = %s AND target_schema = %s AND target_table = %s"
"""Which rows of meta tables are about the fence's target and source; `named` gives the values."""


@dataclass(frozen=True, slots=True)
class Fence:
    """What a writer must present, and what it leaves."""

    meta_schema: str
    task: str
    source: str
    target: TableId
    window: int
    epoch: int


def named(fence: Fence) -> tuple[str, str, str, str]:
    """Return what names the fence's row, and others about its target and source."""
    return fence.task, fence.source, fence.target.schema, fence.target.name


def table_of(fence: Fence, name: str = "fence") -> str:
    """Return a table of the meta schema, quoted."""
    return f"{mysql.identifier(fence.meta_schema)}.{name}"


def is_applied(connection: Connection, fence: Fence) -> bool:
    """Whether the window is in the target; raises FencedOut when another run has taken over."""
    return _is_applied(connection, fence, "")


def hold(connection: Connection, fence: Fence) -> None:
    """Lock the fence until the end of the transaction; raises FencedOut unless it is still ours."""
    if _is_applied(connection, fence, " FOR UPDATE"):
        raise FencedOut(fence.source, fence.window, fence.epoch, fence.epoch)


def lock_unless_applied(connection: Connection, fence: Fence) -> bool:
    """Lock the fence until the end of the transaction; False when the window is in the target already."""
    return not _is_applied(connection, fence, " FOR UPDATE")


def raise_fence(connection: Connection, fence: Fence) -> bool:
    """Let the fence say that the window is applied; False when it is not ours any more."""
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
