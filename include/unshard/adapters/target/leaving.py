"""Rows of the load whose unique key another row of their own shard has: they are left to the binlog.

Two chunks of a shard are read at different moments, and a value of a second unique key may move from one row to another
in between. Then both rows have changed since P0, so both come again in safe mode, the one that is left out here
included. The target tells which row is in the way, the shard's files (units/leaving.py) tell whose it is: what no other
chunk of the same shard has brought is a collision, as everywhere else.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.changes import Awaited, Lines, Writes
from unshard.adapters.target.collisions import Ledger, condition_of, keyed_rows, taken_rows, write_rows
from unshard.adapters.target.destination import Loaded, key_of
from unshard.adapters.target.patches import SESSION
from unshard.adapters.target.rowkeys import key_of_line
from unshard.core.literals import expression
from unshard.core.model import Server
from unshard.errors.target import Collision

Keys = Collection[tuple[bytes, ...]]
Own = Callable[[Keys], Keys]
"""Returns those keys of rows that other chunks of the shard have brought into the target."""


def write_or_leave(connection: Connection, server: Server, writes: Writes, ledger: Ledger,
                   own: Own) -> tuple[Loaded, list[Awaited]]:  # fmt: skip
    """Write rows, leaving out those that rows of their own shard are in the way of; raises Collision for others."""
    left: list[Awaited] = []
    while True:
        try:
            loaded, _ = write_rows(connection, writes, ledger)
            return loaded, left
        except Collision:
            # Another chunk may have been committed just now: its rows are looked for as well, until none is left.
            with contextlib.closing(mysql.connect_raw(server, "target")) as reader:
                mysql.query(reader, SESSION)
                writes, found = _without_own(connection, reader, writes, own)
            if not found:
                raise
            left += found


def _without_own(connection: Connection, reader: Connection, writes: Writes,
                 own: Own) -> tuple[Writes, list[Awaited]]:  # fmt: skip
    kept, left = [], list[Awaited]()
    for each in writes.lines:
        taken = taken_rows(connection, each.destination, writes.unique, each.lines, len(each.lines))
        met = {row.row: {*_in_the_way(reader, writes, each, row.row)} for row in taken}
        known = {*own({key for keys in met.values() for key in keys})}
        gone = [row for row, keys in met.items() if keys and keys <= known]
        left += [_awaited(each, row) for row in gone]
        kept.append(each.without(gone))
    return replace(writes, lines=[each for each in kept if len(each.lines)]), left


def _in_the_way(reader: Connection, writes: Writes, each: Lines, row: int) -> Iterator[tuple[bytes, ...]]:
    """Yield the keys of the rows in the target that a row meets."""
    columns = [next(c for c in each.destination.columns if c.name == name) for name in each.destination.key]
    names, table = ", ".join(map(expression, columns)), mysql.table_name(each.destination.table)
    for key in writes.unique:
        for _, values in keyed_rows(each.destination, key, each.lines.slice(row, 1), 0):
            condition = condition_of(each.destination, key, [values])
            yield from mysql.query(reader, f"SELECT {names} FROM {table} WHERE {condition}")  # noqa: S608


def _awaited(each: Lines, row: int) -> Awaited:
    line: bytes = each.lines[row].as_py()
    return Awaited(each.shards[row], key_of_line(each.destination, line), key_of(each.destination, line))
