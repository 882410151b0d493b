"""Rows that the target cannot take go into `row_error`, if the task says so: in the transaction of all others.

The writes are taken back to their savepoint, the row is left out, and the rest is written again, until all fits. What
the table has of an older version goes: nobody shall take that for the present one. Only tables with a key can go on
without a row.

| dies                    | what happens                                                     |
|-------------------------|------------------------------------------------------------------|
| before COMMIT           | neither the rows nor the record is there; a retry does the same  |
| after it                | the fence, or the step, says that both are                       |
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.changes import Changes, Writes
from unshard.adapters.target.collisions import SAVEPOINT, Ledger, write_rows
from unshard.adapters.target.deletes import delete_keys
from unshard.adapters.target.destination import Destination, Loaded, Mode
from unshard.adapters.target.fence import Fence, table_of
from unshard.adapters.target.lines import values_of
from unshard.adapters.target.rowkeys import changed_keys, digest_of, key_of_line
from unshard.core.model import Column, Shard
from unshard.core.rowerrors import RowErrorState
from unshard.errors.target import RowRefused

T = TypeVar("T")
MOST_DIVERTED = 100
"""More of one target in one transaction are no slips: the target stops."""
OPEN, MENDED = RowErrorState.OPEN.value, RowErrorState.MENDED.value


@dataclass(frozen=True, slots=True)
class Diverted:
    """A row that was left out."""

    destination: Destination
    shard: Shard
    error: RowRefused
    is_known: bool
    """The table may have an older version of it, of the same shard."""


def write_or_divert(connection: Connection, writes: Writes, ledger: Ledger,
                    most: int) -> tuple[Loaded, bool, list[Diverted]]:  # fmt: skip
    """Write rows, leaving out those that the target cannot take; raises RowRefused where that is not wanted."""

    def write(some: Writes) -> tuple[Loaded, bool]:
        return write_rows(connection, some, ledger)

    (loaded, collided), diverted = without_refused(connection, writes, write, most)
    return loaded, collided, diverted


def without_refused(connection: Connection, writes: Writes, write: Callable[[Writes], T],
                    most: int) -> tuple[T, list[Diverted]]:  # fmt: skip
    """Write, and write again without each row that is refused; raises RowRefused where that is not wanted."""
    diverted: list[Diverted] = []
    while True:
        try:
            return write(writes), diverted
        except RowRefused as error:
            found = _found(writes, error) if writes.diverts and len(diverted) < most else None
            if found is None:
                raise
            mysql.query(connection, f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
            writes, row = found
            diverted.append(row)


def record(connection: Connection, fence: Fence, changes: Changes, diverted: Sequence[Diverted]) -> None:
    """Note what was left out, and that of what was left out before the keys have been changed again."""
    if not changes.writes.diverts or not changes.key:
        return
    _mend(connection, fence, changes)
    old = [
        tuple(value or b"" for value in key_of_line(row.destination, row.error.line))
        for row in diverted
        if row.is_known
    ]
    delete_keys(connection, changes.table, changes.key, old)
    note(connection, table_of(fence, "row_error"), fence.task, changes.key, diverted, fence.window)


def note(connection: Connection, table: str, task: str, key: Sequence[Column], diverted: Sequence[Diverted],
         window: int = 0) -> None:  # fmt: skip
    """Record rows that were left out; `table` is the quoted name of `row_error`, window 0 is the load."""
    sql = (
        f"INSERT INTO {table} (task, target_schema, target_table, digest, source, shard_schema,"  # noqa: S608
        " shard_table, key_shown, column_name, words, row_json, `window`, state, times, first_at, last_at) VALUES"
        f" ({', '.join(['%s'] * 13)}, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE source ="
        " VALUES(source), shard_schema = VALUES(shard_schema), shard_table = VALUES(shard_table), column_name ="
        " VALUES(column_name), words = VALUES(words), row_json = VALUES(row_json), `window` = VALUES(`window`),"
        " state = VALUES(state), times = times + 1, last_at = VALUES(last_at)"
    )
    for row in diverted:
        error, shard, target = row.error, row.shard, row.destination.table
        mysql.query(connection, sql, (
            task, target.schema, target.name, digest_of(key, key_of_line(row.destination, error.line)),
            shard.source, shard.table.schema, shard.table.name, error.key, error.column, error.words,
            _as_json(row.destination, error.line), window, OPEN,
        ))  # fmt: skip


def _found(writes: Writes, error: RowRefused) -> tuple[Writes, Diverted] | None:
    """Return the writes without the row that was refused."""
    for number, each in enumerate(writes.lines):
        place = pc.index(each.lines, pa.scalar(error.line, each.lines.type)).as_py() if error.line else -1
        if place >= 0 and each.patches is None and each.destination.key:
            lines = [*writes.lines[:number], each.without([place]), *writes.lines[number + 1 :]]
            kept = [one for one in lines if len(one.lines)]
            return replace(writes, lines=kept), Diverted(
                each.destination, each.shards[place], error, each.mode is Mode.REPLACE
            )
    return None


def _mend(connection: Connection, fence: Fence, changes: Changes) -> None:
    where = "task = %s AND target_schema = %s AND target_table = %s AND state = %s"
    mine = fence.task, fence.target.schema, fence.target.name
    table = table_of(fence, "row_error")
    found = {row[0] for row in mysql.query(connection, f"SELECT digest FROM {table} WHERE {where}", (*mine, OPEN))}  # noqa: S608
    if not found:
        return
    for digest in found & {digest_of(changes.key, key) for key in changed_keys(changes)}:
        sql = f"UPDATE {table} SET state = %s, last_at = UTC_TIMESTAMP(6) WHERE {where} AND digest = %s"  # noqa: S608
        mysql.query(connection, sql, (MENDED, *mine, OPEN, digest))


def _as_json(destination: Destination, line: bytes) -> str:
    pairs = zip(destination.columns, values_of(line), strict=True)
    return json.dumps({column.name: _shown(value) for column, value in pairs}, ensure_ascii=False)


def _shown(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
