"""Deferred rows: recorded when a writer leaves them to a later change, deleted when that change is applied.

The load defers a row if another row of its shard has its value of a second unique key. Safe mode
defers a row if not all its values are known and the target does not have it. In both cases the binlog must contain a
change of the row before the end of safe mode: the whole row or its DELETE. Until then the row is in `deferred_row`.
Both the entry and its deletion are in the transaction that writes the rows. A row that is still there after the end of
safe mode is an error (units/window/deferredrows.py).

Rows are named by a digest of their key. It does not depend on where the row was read.

**The load** defers rows whose unique key another row of the same shard has.
Two chunks of a shard are read at different times. In between, a value of a second unique key may move from one row to
another. Then both rows changed after P0, so the binlog contains both again and safe mode writes them, including the row
that is left out here. The target shows which row has the value. The shard's files show whose row that is
(units/full/deferredrows.py). If no other chunk of the same shard contains that row, it is a collision like any other.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.completing import SESSION
from unshard.adapters.target.fence import OURS, Fence, named, table_of
from unshard.adapters.target.takenkeys import Ledger, condition_of, keyed_rows, taken_rows, write_rows
from unshard.adapters.target.targetrows import Changes, DeferredRow, Destination, Lines, Loaded, Writes, key_of
from unshard.core.model import Column, Server, TableId
from unshard.core.sql.literals import INTEGERS, expression
from unshard.errors.rows import Collision

# --- keys of rows ---

Key = tuple[bytes | None, ...]


def key_of_line(destination: Destination, line: bytes) -> Key:
    """Return the values of the key in a line."""
    values = dict(zip((column.name for column in destination.columns), destination.values(line), strict=True))
    return tuple(values.get(name) for name in destination.key)


def changed_keys(changes: Changes) -> Iterator[Key]:
    """Yield the keys of all rows that changes delete or write; a key may occur twice."""
    yield from (tuple(key) for key in changes.deletes)
    for each in changes.writes.lines:
        yield from (key_of_line(each.destination, line) for line in each.lines.to_pylist())


def digest_of(columns: Sequence[Column], key: Key) -> str:
    """Return 32 hexadecimal digits that identify a key of these columns."""
    text = json.dumps([_packed(column, value) for column, value in zip(columns, key, strict=True)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _packed(column: Column, value: bytes | None) -> str | None:
    if value is None:
        return None
    # Only some forms of a key contain the zeros that ZEROFILL prints.
    return (str(int(value)).encode() if column.data_type in INTEGERS else value).hex()


# --- the table `deferred_row` ---

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


# --- rows that the load defers ---

Keys = Collection[tuple[bytes, ...]]
Own = Callable[[Keys], Keys]
"""Returns those keys that other chunks of the shard have written into the target."""


def write_or_defer(
    connection: Connection, server: Server, writes: Writes, ledger: Ledger, own: Own
) -> tuple[Loaded, list[DeferredRow]]:
    """Write rows, but leave out those whose key another row of their shard has; raises Collision for other shards."""
    all_deferred: list[DeferredRow] = []
    while True:
        try:
            loaded, _ = write_rows(connection, writes, ledger)
            return loaded, all_deferred
        except Collision:
            # Another chunk may have committed just now, so search again until no more rows are found.
            with contextlib.closing(mysql.connect_raw(server, "target")) as reader:
                mysql.query(reader, SESSION)
                writes, found = _without_own(connection, reader, writes, own)
            if not found:
                raise
            all_deferred += found


def _without_own(
    connection: Connection, reader: Connection, writes: Writes, own: Own
) -> tuple[Writes, list[DeferredRow]]:
    remaining, all_deferred = [], list[DeferredRow]()
    for each in writes.lines:
        taken = taken_rows(connection, each.destination, writes.unique, each.lines, len(each.lines))
        blocking = {row.row: {*_blocking_rows(reader, writes, each, row.row)} for row in taken}
        known = {*own({key for keys in blocking.values() for key in keys})}
        deferred = [row for row, keys in blocking.items() if keys and keys <= known]
        all_deferred += [_deferred(each, row) for row in deferred]
        remaining.append(each.without(deferred))
    return replace(writes, lines=[each for each in remaining if len(each.lines)]), all_deferred


def _blocking_rows(reader: Connection, writes: Writes, each: Lines, row: int) -> Iterator[tuple[bytes, ...]]:
    columns = [next(c for c in each.destination.columns if c.name == name) for name in each.destination.key]
    names, table = ", ".join(map(expression, columns)), mysql.table_name(each.destination.table)
    for key in writes.unique:
        for _, values in keyed_rows(each.destination, key, each.lines.slice(row, 1), 0):
            condition = condition_of(each.destination, key, [values])
            yield from mysql.query(reader, f"SELECT {names} FROM {table} WHERE {condition}")  # noqa: S608


def _deferred(each: Lines, row: int) -> DeferredRow:
    line: bytes = each.lines[row].as_py()
    return DeferredRow(each.shards[row], key_of_line(each.destination, line), key_of(each.destination, line))
