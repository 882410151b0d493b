"""Loaded rows whose unique key another row of the same shard has: the load defers them to the binlog.

Two chunks of a shard are read at different times. In between, a value of a second unique key may move from one row to
another. Then both rows changed after P0, so the binlog contains both again and safe mode writes them, including the row
that is left out here. The target shows which row has the value. The shard's files show whose row that is
(units/full/loadchunks.py). If no other chunk of the same shard contains that row, it is a collision like any other.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.changes import DeferredRow, Lines, Writes
from unshard.adapters.target.collisions import Ledger, condition_of, keyed_rows, taken_rows, write_rows
from unshard.adapters.target.destination import Loaded, key_of
from unshard.adapters.target.partialrows import SESSION
from unshard.adapters.target.rowkeys import key_of_line
from unshard.core.model import Server
from unshard.core.sql.literals import expression
from unshard.errors.rows import Collision

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
    """Yield the keys of the target's rows that have a unique value of this row."""
    columns = [next(c for c in each.destination.columns if c.name == name) for name in each.destination.key]
    names, table = ", ".join(map(expression, columns)), mysql.table_name(each.destination.table)
    for key in writes.unique:
        for _, values in keyed_rows(each.destination, key, each.lines.slice(row, 1), 0):
            condition = condition_of(each.destination, key, [values])
            yield from mysql.query(reader, f"SELECT {names} FROM {table} WHERE {condition}")  # noqa: S608


def _deferred(each: Lines, row: int) -> DeferredRow:
    line: bytes = each.lines[row].as_py()
    return DeferredRow(each.shards[row], key_of_line(each.destination, line), key_of(each.destination, line))
