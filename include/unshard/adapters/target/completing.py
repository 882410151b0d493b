r"""Complete rows with values that the target has: those of its own columns, and those that a session did not log.

**Own columns.** A changed row is written as a whole (REPLACE, or DELETE and INSERT). So its own columns are read
first, in the same transaction and with a lock: another session can change them before or after, but not in between. A
column with ON UPDATE CURRENT_TIMESTAMP gets the present time, as in an UPDATE.

| the row in the target                 | its own columns                                          |
|---------------------------------------|----------------------------------------------------------|
| is found by the key or all its values | keep their values                                        |
| does not exist                        | get their defaults                                       |
| is the origin of two lines            | the first one keeps them; this may happen in safe mode   |

**Missing values**, for sessions that log only changed columns.
In a line, `\A` means that the value did not change. Before a window writes anything, the rows that such lines change
are read, and each missing value is filled in. All later steps see whole rows only. In safe mode the changed row may not
exist; then it is deferred to a later change (`deferredrows`). The fence is locked while rows are read, so only this
window changes them. A retry of a partly written window fills in the same values again.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.deletes import any_of, conditions_of, remove_one
from unshard.adapters.target.fence import Fence, lock_unless_applied
from unshard.adapters.target.rendering import ABSENT, lines_of
from unshard.adapters.target.session import Writer, open_session
from unshard.adapters.target.targetrows import (
    Changes,
    DeferredRow,
    Destination,
    Lines,
    Patches,
    RowRemoval,
    is_blankable,
    key_of,
    shown,
)
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.sql.literals import expression
from unshard.core.structures.tablekeys import own_columns
from unshard.errors.rows import ChangedRowMissing, RowsMissing

# --- columns that only the target has ---

READ_KEYS = 200
LOCK = " FOR UPDATE"
Key = tuple[bytes, ...]
Values = tuple[bytes | None, ...]


@dataclass(slots=True)
class _Found:
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
    values: list[dict[int, Values]] = []
    for each in changes.writes.lines:
        removals = each.origins.removals if each.origins is not None else ()
        values.append(
            {row: _removed(connection, changes.schema, found, removal) for row, removal in enumerate(removals)}
        )
    return values


def _removed(connection: Connection, schema: TableSchema, found: _Found, removal: RowRemoval) -> Values:
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
    for column in own:
        if "on update" in column.extra:
            digits = re.search(r"\((\d)\)", column.column_type)
            yield f"CURRENT_TIMESTAMP({digits[1] if digits else 0})"
        else:
            yield expression(column)


def _taken(values: pa.Array, rows: Sequence[int]) -> list[Any]:
    found: list[Any] = values.take(pa.array(rows)).to_pylist()
    return found


# --- values that were not logged ---

SESSION = "SET SESSION sql_mode = '', time_zone = '+00:00'"


def has_gaps(changes: Changes) -> bool:
    """Whether lines have missing values."""
    return any(each.patches is not None for each in changes.writes.lines)


def filled(writer: Writer, fence: Fence, changes: Changes) -> Changes:
    """Return the changes with whole lines; returns them unchanged if the window is already applied."""
    with (
        contextlib.closing(open_session(writer)) as guard,
        contextlib.closing(mysql.connect_raw(writer.server)) as connection,
    ):
        mysql.begin(guard)
        if not lock_unless_applied(guard, fence):
            return changes
        mysql.query(connection, SESSION)
        done = [_without_gaps(connection, changes.key, each) for each in changes.writes.lines]
        mysql.query(guard, "COMMIT")
    deferred = tuple(row for _, some in done for row in some)
    return replace(changes, writes=replace(changes.writes, lines=[each for each, _ in done]), newly_deferred=deferred)


def _without_gaps(connection: Connection, key: Sequence[Column], each: Lines) -> tuple[Lines, list[DeferredRow]]:
    patches = each.patches
    if patches is None:
        return each, []
    made: list[bytes | None] = []
    for start in range(0, len(patches.rows), READ_KEYS):
        made += _whole_lines(connection, key, each, patches, range(start, min(start + READ_KEYS, len(patches.rows))))
    lacking = [number for number, line in enumerate(made) if line is None]
    deferred = []
    for number in lacking:
        values = patches.bases[number]
        told = ", ".join(shown(*pair) for pair in zip(key, values, strict=True))
        deferred.append(DeferredRow(each.shards[int(patches.rows[number])], values, told))
    return _with(each, patches.rows, made), deferred


def _whole_lines(
    connection: Connection, key: Sequence[Column], each: Lines, patches: Patches, chosen: range
) -> Iterator[bytes | None]:
    partial = [each.lines[int(patches.rows[number])].as_py()[:-1].split(b"\t") for number in chosen]
    columns = each.destination.columns
    missing = [index for index in range(len(columns)) if any(fields[index] == ABSENT for fields in partial)]
    bases = [patches.bases[number] for number in chosen]
    found = _wanted_fields(connection, each.destination, key, [columns[index] for index in missing], bases)
    for number, base, fields in zip(chosen, bases, partial, strict=True):
        if base not in found:
            if patches.strict[number]:
                shard = each.shards[int(patches.rows[number])]
                named = ", ".join(shown(*pair) for pair in zip(key, base, strict=True))
                raise ChangedRowMissing(str(each.destination.table), str(shard), named)
            yield None
            continue
        for index, value in zip(missing, found[base], strict=True):
            fields[index] = value if fields[index] == ABSENT else fields[index]
        yield b"\t".join(fields) + b"\n"


def _wanted_fields(
    connection: Connection,
    destination: Destination,
    key: Sequence[Column],
    wanted: Sequence[Column],
    keys: Sequence[Key],
) -> dict[Key, Sequence[bytes]]:
    distinct, size = list(dict.fromkeys(keys)), len(key)
    found: dict[Values, Values] = {}
    for row in _wanted_rows(connection, destination, (*key, *wanted), key, distinct):
        found[row[:size]] = row[size:]
    for absent in (one for one in distinct if one not in found):
        # The server may print this key differently: it has another type, or is equal only by collation.
        for row in _wanted_rows(connection, destination, (*key, *wanted), key, [absent])[:1]:
            found[absent] = row[size:]
    return {one: _fields(found[one]) for one in distinct if one in found}


def _wanted_rows(
    connection: Connection,
    destination: Destination,
    columns: Sequence[Column],
    key: Sequence[Column],
    keys: Sequence[Key],
) -> list[Values]:
    names = ", ".join(expression(column) for column in columns)
    table = mysql.table_name(destination.table)
    return list(mysql.query(connection, f"SELECT {names} FROM {table} WHERE {any_of(key, keys)}"))  # noqa: S608


def _fields(values: Values) -> list[bytes]:
    if not values:
        return []
    line: bytes = lines_of([pa.array([value], pa.binary()) for value in values])[0].as_py()
    return line[:-1].split(b"\t")


def _with(each: Lines, rows: np.ndarray, made: Sequence[bytes | None]) -> Lines:
    """Return the lines with those at `rows` replaced; lines whose replacement is None are left out."""
    indexes = np.arange(len(each.lines))
    indexes[rows] = len(each.lines) + np.arange(len(made))
    lines = pa.concat_arrays([each.lines, pa.array(made, pa.binary())]).take(pa.array(indexes))
    blank = each.blank.to_numpy(zero_copy_only=False).copy()
    blank[rows] = [line is not None and _is_blank(each.destination.columns, line) for line in made]
    remaining = np.flatnonzero(lines.is_valid().to_numpy(zero_copy_only=False))
    chosen = pa.array(remaining)
    order = None if each.order is None else each.order.take(chosen)
    shards = [each.shards[row] for row in remaining.tolist()]
    origins = None if each.origins is None else each.origins.of(remaining.tolist())
    lines, marks = lines.take(chosen), pa.array(blank).take(chosen)
    return replace(each, lines=lines, blank=marks, shards=shards, order=order, patches=None, origins=origins)


def _is_blank(columns: Sequence[Column], line: bytes) -> bool:
    pairs = zip(columns, line[:-1].split(b"\t"), strict=True)
    return any(field == b"" and is_blankable(column) for column, field in pairs)
