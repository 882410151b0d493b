"""Write rows that the target cannot store into `row_error` instead (`row-errors: divert`), in the same transaction.

The writes are rolled back to their savepoint, and the refused row is left out. The rest is written again, until the
target accepts everything. An older version of a refused row is deleted from the table, so that it is not taken for the
current one. Only tables with a key can continue without a row.

| process dies            | result                                                           |
|-------------------------|------------------------------------------------------------------|
| before COMMIT           | neither the rows nor the record exist; a retry does the same     |
| after COMMIT            | the fence or the step shows that both exist                      |
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.deferring import changed_keys, key_digest, key_of_line
from unshard.adapters.target.deletes import delete_keys
from unshard.adapters.target.fence import Fence, meta_table
from unshard.adapters.target.takenkeys import SAVEPOINT, Ledger, write_rows
from unshard.adapters.target.targetrows import Changes, Destination, Loaded, Mode, Writes
from unshard.core.model import Column, Shard
from unshard.core.rows.rowerrors import RowErrorState
from unshard.errors.rows import RowRefused

T = TypeVar("T")
MAX_DIVERTED = 100
"""More diverted rows in one transaction of a target point to a common cause: the target is suspended."""
OPEN, MENDED = RowErrorState.OPEN.value, RowErrorState.MENDED.value


@dataclass(frozen=True, slots=True)
class Diverted:
    """A row that was left out."""

    destination: Destination
    shard: Shard
    error: RowRefused
    is_known: bool
    """Whether the table may have an older version of the row, from the same shard."""


def write_or_divert(
    connection: Connection, writes: Writes, ledger: Ledger, limit: int
) -> tuple[Loaded, bool, list[Diverted]]:
    """Write rows without those that the target cannot store; raises RowRefused if rows may not be diverted."""

    def write(some: Writes) -> tuple[Loaded, bool]:
        return write_rows(connection, some, ledger)

    (loaded, collided), diverted = without_refused(connection, writes, write, limit)
    return loaded, collided, diverted


def without_refused(
    connection: Connection, writes: Writes, write: Callable[[Writes], T], limit: int
) -> tuple[T, list[Diverted]]:
    """Write, and write again without each refused row; raises RowRefused if rows may not be diverted."""
    diverted: list[Diverted] = []
    while True:
        try:
            return write(writes), diverted
        except RowRefused as error:
            found = _without_refused_row(writes, error) if writes.diverts and len(diverted) < limit else None
            if found is None:
                raise
            mysql.query(connection, f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
            writes, row = found
            diverted.append(row)


def record_diverted(connection: Connection, fence: Fence, changes: Changes, diverted: Sequence[Diverted]) -> None:
    """Record the diverted rows, and mark earlier diverted rows as mended if these changes contain their keys."""
    if not changes.writes.diverts or not changes.key:
        return
    _mark_mended(connection, fence, changes)
    old = [
        tuple(value or b"" for value in key_of_line(row.destination, row.error.line))
        for row in diverted
        if row.is_known
    ]
    delete_keys(connection, changes.table, changes.key, old)
    note_diverted(connection, meta_table(fence, "row_error"), fence.task, changes.key, diverted, fence.window)


def note_diverted(
    connection: Connection, table: str, task: str, key: Sequence[Column], diverted: Sequence[Diverted], window: int = 0
) -> None:
    """Record rows that were left out; `table` is the quoted name of `row_error`, window 0 is the load."""
    sql = (
        f"INSERT INTO {table} (task, target_schema, target_table, digest, source, shard_schema,"  # noqa: S608
        " shard_table, key_shown, column_name, server_message, row_json, `window`, state, times, first_at, last_at)"
        f" VALUES ({', '.join(['%s'] * 13)}, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE source ="
        " VALUES(source), shard_schema = VALUES(shard_schema), shard_table = VALUES(shard_table), column_name ="
        " VALUES(column_name), server_message = VALUES(server_message), row_json = VALUES(row_json),"
        " `window` = VALUES(`window`), state = VALUES(state), times = times + 1, last_at = VALUES(last_at)"
    )
    for row in diverted:
        error, shard, target = row.error, row.shard, row.destination.table
        mysql.query(
            connection,
            sql,
            (
                task,
                target.schema,
                target.name,
                key_digest(key, key_of_line(row.destination, error.line)),
                shard.source,
                shard.table.schema,
                shard.table.name,
                error.key,
                error.column,
                error.server_message,
                _as_json(row.destination, error.line),
                window,
                OPEN,
            ),
        )


def _without_refused_row(writes: Writes, error: RowRefused) -> tuple[Writes, Diverted] | None:
    """Return the writes without the refused row; None if the row cannot be found or left out."""
    for number, each in enumerate(writes.lines):
        index = pc.index(each.lines, pa.scalar(error.line, each.lines.type)).as_py() if error.line else -1
        if index >= 0 and each.patches is None and each.destination.key:
            lines = [*writes.lines[:number], each.without([index]), *writes.lines[number + 1 :]]
            remaining = [one for one in lines if len(one.lines)]
            return replace(writes, lines=remaining), Diverted(
                each.destination, each.shards[index], error, each.mode is Mode.REPLACE
            )
    return None


def _mark_mended(connection: Connection, fence: Fence, changes: Changes) -> None:
    where = "task = %s AND target_schema = %s AND target_table = %s AND state = %s"
    mine = fence.task, fence.target.schema, fence.target.name
    table = meta_table(fence, "row_error")
    sql = f"SELECT digest FROM {table} WHERE {where}"  # noqa: S608
    found = {digest for (digest,) in mysql.query(connection, sql, (*mine, OPEN))}
    if not found:
        return
    for digest in found & {key_digest(changes.key, key) for key in changed_keys(changes)}:
        sql = f"UPDATE {table} SET state = %s, last_at = UTC_TIMESTAMP(6) WHERE {where} AND digest = %s"  # noqa: S608
        mysql.query(connection, sql, (MENDED, *mine, OPEN, digest))


def _as_json(destination: Destination, line: bytes) -> str:
    pairs = zip(destination.columns, destination.values(line), strict=True)
    return json.dumps({column.name: _shown(value) for column, value in pairs}, ensure_ascii=False)


def _shown(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
