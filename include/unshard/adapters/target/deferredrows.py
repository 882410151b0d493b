"""Deferred rows: recorded when a writer leaves them to a later change, deleted when that change is applied.

The load defers a row if another row of its shard has its value of a second unique key (`deferredload`). Safe mode
defers a row if not all its values are known and the target does not have it. In both cases the binlog must contain a
change of the row before the end of safe mode: the whole row or its DELETE. Until then the row is in `deferred_row`.
Both the entry and its deletion are in the transaction that writes the rows. A row that is still there after the end of
safe mode is an error (units/window/sync.py).
"""

from collections.abc import Iterable, Sequence

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.changes import Changes, DeferredRow
from unshard.adapters.target.fence import OURS, Fence, named, table_of
from unshard.adapters.target.rowkeys import changed_keys, digest_of
from unshard.core.model import Column, TableId

AT_ONCE = 500


def update(connection: Connection, fence: Fence, changes: Changes) -> None:
    """Delete the entries of rows that the changes write or delete, and add those that the changes defer."""
    table = table_of(fence, "deferred_row")
    if changes.has_deferred:
        _forget(connection, table, fence, {digest_of(changes.key, key) for key in changed_keys(changes)})
    record(connection, table, fence.task, fence.target, changes.key, changes.newly_deferred)


def record(
    connection: Connection, table: str, task: str, target: TableId, key: Sequence[Column], rows: Iterable[DeferredRow]
) -> None:
    """Record rows that are left to a later change; `table` is the quoted name of `deferred_row`."""
    sql = (
        f"INSERT INTO {table} (task, source, target_schema, target_table, digest, shard_schema, shard_table, key_shown,"  # noqa: S608
        " since) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE since = since"
    )
    values = [
        (
            task,
            row.shard.source,
            target.schema,
            target.name,
            digest_of(key, row.key),
            row.shard.table.schema,
            row.shard.table.name,
            row.shown,
        )
        for row in rows
    ]
    if values:
        with mysql.coded_errors(connection, sql), connection.cursor() as cursor:
            cursor.executemany(sql, values)


def _forget(connection: Connection, table: str, fence: Fence, changed: set[str]) -> None:
    sql = f"SELECT digest FROM {table} WHERE {OURS}"  # noqa: S608
    applied = sorted({row[0] for row in mysql.query(connection, sql, named(fence))} & changed)
    for start in range(0, len(applied), AT_ONCE):
        batch = applied[start : start + AT_ONCE]
        placeholders = ", ".join(["%s"] * len(batch))
        sql = f"DELETE FROM {table} WHERE {OURS} AND digest IN ({placeholders})"  # noqa: S608
        mysql.query(connection, sql, (*named(fence), *batch))
