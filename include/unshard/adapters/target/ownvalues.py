"""Keep the values of columns that only the target has: read them from the rows that change, and write them again.

A changed row is written as a whole (REPLACE, or DELETE and INSERT). So its own columns are read first, in the same
transaction and with a lock: another session can change them before or after, but not in between. A column with
ON UPDATE CURRENT_TIMESTAMP gets the present time, as in an UPDATE.

| the row in the target                 | its own columns                                          |
|---------------------------------------|----------------------------------------------------------|
| is found by the key or all its values | keep their values                                        |
| does not exist                        | get their defaults                                       |
| is the origin of two lines            | the first one keeps them; this may happen in safe mode   |
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.changes import Changes, Lines, Removal
from unshard.adapters.target.deletes import any_of, conditions_of, remove_one
from unshard.adapters.target.destination import is_blankable, key_of
from unshard.adapters.target.rendering.lines import lines_of
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.sql.literals import expression
from unshard.core.structures.tablekeys import own_columns
from unshard.errors.rows import RowsMissing

READ_KEYS = 200
LOCK = " FOR UPDATE"
Key = tuple[bytes, ...]
Values = tuple[bytes | None, ...]


@dataclass(slots=True)
class _Found:
    """The rows whose values lines keep, and the number of rows that were removed for them."""

    key: Sequence[Column]
    own: Sequence[Column]
    taken: set[Key] = field(default_factory=set)
    deleted: int = 0


def with_own_values(connection: Connection, changes: Changes) -> tuple[Changes, int]:
    """Return the changes with the values of own columns; removes the changed rows of a table without a key.

    Also returns how many rows were removed. The caller must have opened the transaction that writes the changes.
    """
    own = own_columns(changes.schema)
    if not own or all(each.origins is None for each in changes.writes.lines):
        return changes, 0
    found = _Found(changes.key, own)
    with mysql.raw_results(connection):
        values = _by_key(connection, changes, found) if changes.key else _by_lines(connection, changes, found)
    lines = [part for each, some in zip(changes.writes.lines, values, strict=True) for part in _filled(each, own, some)]
    moved = sorted(found.taken) if any(each.origins and each.origins.moves for each in changes.writes.lines) else ()
    deletes = [*changes.deletes, *moved] if moved else changes.deletes
    return replace(changes, deletes=deletes, writes=replace(changes.writes, lines=lines)), found.deleted


def _by_key(connection: Connection, changes: Changes, found: _Found) -> list[dict[int, Values]]:
    lines = changes.writes.lines
    values: list[dict[int, Values]] = [{} for _ in lines]
    for level in range(max(len(each.origins.keys) for each in lines if each.origins is not None)):
        for number, each in enumerate(lines):
            levels = each.origins.keys if each.origins is not None else ()
            keys = levels[level] if level < len(levels) else ()
            wanted = [(row, key) for row, key in enumerate(keys) if key and row not in values[number]]
            for start in range(0, len(wanted), READ_KEYS):
                values[number] |= _read(connection, changes.table, found, wanted[start : start + READ_KEYS])
    return values


def _read(
    connection: Connection, table: TableId, found: _Found, wanted: Sequence[tuple[int, Key]]
) -> Iterator[tuple[int, Values]]:
    """Yield the lines whose row exists and has not been taken, with the values that they keep."""
    size = len(found.key)
    present = _rows(connection, table, found, [key for _, key in wanted])
    for row, key in wanted:
        values = present.get(key)
        name = tuple(value or b"" for value in values[:size]) if values is not None else None
        if values is not None and name is not None and name not in found.taken:
            found.taken.add(name)
            yield row, values[size:]


def _rows(connection: Connection, table: TableId, found: _Found, keys: Sequence[Key]) -> dict[Key, Values]:
    names = ", ".join([*map(expression, found.key), *_after_update(found.own)])
    select, size = f"SELECT {names} FROM {mysql.table_name(table)} WHERE", len(found.key)  # noqa: S608
    rows: dict[Key, Values] = {
        r[:size]: r for r in mysql.query(connection, f"{select} {any_of(found.key, keys)}{LOCK}")
    }
    if rows.keys() - {*keys}:
        # The server prints a key differently: it has another type, or is equal only by collation.
        for key in [key for key in keys if key not in rows]:
            for row in mysql.query(connection, f"{select} {any_of(found.key, [key])}{LOCK}")[:1]:
                rows[key] = row
    return rows


def _by_lines(connection: Connection, changes: Changes, found: _Found) -> list[dict[int, Values]]:
    """Read and remove the changed rows of a table without a key."""
    values: list[dict[int, Values]] = []
    for each in changes.writes.lines:
        removals = each.origins.removals if each.origins is not None else ()
        values.append(
            {row: _removed(connection, changes.schema, found, removal) for row, removal in enumerate(removals)}
        )
    return values


def _removed(connection: Connection, schema: TableSchema, found: _Found, removal: Removal) -> Values:
    """Remove one row with the values of a line; return the values that its own columns keep."""
    table, size = removal.destination.table, len(found.own)
    where = " AND ".join(conditions_of(removal.destination, schema, removal.line))
    names = ", ".join([*map(expression, found.own), *_after_update(found.own)])
    sql = f"SELECT {names} FROM {mysql.table_name(table)} WHERE {where} LIMIT 1{LOCK}"  # noqa: S608
    rows = mysql.query(connection, sql)
    if not rows or not remove_one(connection, table, where, found.own, rows[0][:size]):
        raise RowsMissing(str(table), key_of(removal.destination, removal.line), 1, 0)
    found.deleted += 1
    return rows[0][size:]


def _filled(each: Lines, own: Sequence[Column], values: dict[int, Values]) -> Iterator[Lines]:
    """Yield the lines that get no values, then the others with all columns."""
    if not values:
        yield replace(each, origins=None)
        return
    rest = each.without(values.keys())
    if len(rest.lines):
        yield replace(rest, origins=None)
    rows = sorted(values)
    added = lines_of([pa.array([values[row][n] for row in rows], pa.binary()) for n in range(len(own))])
    lines = [line[:-1] + b"\t" + more for line, more in zip(_taken(each.lines, rows), added.to_pylist(), strict=True)]
    blank = [
        mark or any(value == b"" and is_blankable(column) for column, value in zip(own, values[row], strict=True))
        for mark, row in zip(_taken(each.blank, rows), rows, strict=True)
    ]
    destination = replace(each.destination, columns=(*each.destination.columns, *own))
    shards = [each.shards[row] for row in rows]
    yield Lines(destination, each.mode, pa.array(lines, pa.binary()), pa.array(blank, pa.bool_()), shards)


def _after_update(own: Sequence[Column]) -> Iterator[str]:
    """Yield the expression for the value that each column has after an UPDATE of other columns."""
    for column in own:
        if "on update" in column.extra:
            digits = re.search(r"\((\d)\)", column.column_type)
            yield f"CURRENT_TIMESTAMP({digits[1] if digits else 0})"
        else:
            yield expression(column)


def _taken(values: pa.Array, rows: Sequence[int]) -> list[Any]:
    found: list[Any] = values.take(pa.array(rows)).to_pylist()
    return found
