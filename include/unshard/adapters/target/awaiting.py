"""Rows that are left to a later change of the binlog: noted when they are left, forgotten when the change comes.

The load leaves a row whose other unique key another row of its shard has (`leaving`), safe mode one whose values are
not all known and which the target lacks. In both cases the binlog has a change of the row before the end of safe mode,
as a whole or as its DELETE, or something is wrong; so each is a row of `awaited_row` until then, and all of it is
written in the transaction of the rows themselves. What is still there behind the end of safe mode is an error
(units/awaited.py).
"""

from collections.abc import Iterable, Sequence

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.changes import Awaited, Changes
from unshard.adapters.target.fence import OURS, Fence, named, table_of
from unshard.adapters.target.rowkeys import changed_keys, digest_of
from unshard.core.model import Column, TableId

AT_ONCE = 500


def settle(connection: Connection, fence: Fence, changes: Changes) -> None:
    """Forget the awaited rows that changes bring or remove, and note those that they leave."""
    table = table_of(fence, "awaited_row")
    if changes.awaited:
        _forget(connection, table, fence, {digest_of(changes.key, key) for key in changed_keys(changes)})
    leave(connection, table, fence.task, fence.target, changes.key, changes.left)


def leave(connection: Connection, table: str, task: str, target: TableId, key: Sequence[Column],
          rows: Iterable[Awaited]) -> None:  # fmt: skip
    """Note rows that are left to a later change; `table` is the quoted name of `awaited_row`."""
    sql = (
        f"INSERT INTO {table} (task, source, target_schema, target_table, digest, shard_schema, shard_table, key_shown,"  # noqa: S608
        " since) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE since = since"
    )
    values = [
        (task, row.shard.source, target.schema, target.name, digest_of(key, row.key), row.shard.table.schema,
         row.shard.table.name, row.shown)
        for row in rows
    ]  # fmt: skip
    if values:
        with mysql.coded_errors(connection, sql), connection.cursor() as cursor:
            cursor.executemany(sql, values)


def _forget(connection: Connection, table: str, fence: Fence, changed: set[str]) -> None:
    sql = f"SELECT digest FROM {table} WHERE {OURS}"  # noqa: S608
    come = sorted({row[0] for row in mysql.query(connection, sql, named(fence))} & changed)
    for start in range(0, len(come), AT_ONCE):
        some = come[start : start + AT_ONCE]
        places = ", ".join(["%s"] * len(some))
        mysql.query(connection, f"DELETE FROM {table} WHERE {OURS} AND digest IN ({places})", (*named(fence), *some))  # noqa: S608
