r"""Complete lines with missing values from the target's rows, for sessions that log only changed columns.

In a line, `\A` means that the value did not change. Before a window writes anything, the rows that such lines change
are read, and each missing value is filled in. All later steps see whole rows only. In safe mode the changed row may not
exist; then it is deferred to a later change (`deferredrows`). The fence is locked while rows are read, so only this
window changes them. A retry of a partly written window fills in the same values again.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.changes import Changes, DeferredRow, Lines, Patches
from unshard.adapters.target.deletes import any_of
from unshard.adapters.target.destination import Destination, is_blankable, shown
from unshard.adapters.target.fence import Fence, lock_unless_applied
from unshard.adapters.target.rendering.lines import ABSENT, lines_of
from unshard.adapters.target.session import Writer, open_session
from unshard.core.model import Column, Shard
from unshard.core.sql.literals import expression
from unshard.errors.rows import ChangedRowMissing

READ_KEYS = 200
SESSION = "SET SESSION sql_mode = '', time_zone = '+00:00'"
Key = tuple[bytes, ...]
Values = tuple[bytes | None, ...]


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
        done = [_filled(connection, changes.key, each) for each in changes.writes.lines]
        mysql.query(guard, "COMMIT")
    deferred = tuple(row for _, some in done for row in some)
    return replace(changes, writes=replace(changes.writes, lines=[each for each, _ in done]), newly_deferred=deferred)


def _filled(connection: Connection, key: Sequence[Column], each: Lines) -> tuple[Lines, list[DeferredRow]]:
    patches = each.patches
    if patches is None:
        return each, []
    made: list[bytes | None] = []
    for start in range(0, len(patches.rows), READ_KEYS):
        made += _whole_lines(connection, key, each, patches, range(start, min(start + READ_KEYS, len(patches.rows))))
    lacking = [number for number, line in enumerate(made) if line is None]
    deferred = [_deferred(key, each.shards[int(patches.rows[number])], patches.bases[number]) for number in lacking]
    return _with(each, patches.rows, made), deferred


def _deferred(key: Sequence[Column], shard: Shard, values: Key) -> DeferredRow:
    return DeferredRow(shard, values, ", ".join(shown(*pair) for pair in zip(key, values, strict=True)))


def _whole_lines(
    connection: Connection, key: Sequence[Column], each: Lines, patches: Patches, chosen: range
) -> Iterator[bytes | None]:
    """Yield the whole line of each chosen patch; None for an optional row that does not exist."""
    partial = [each.lines[int(patches.rows[number])].as_py()[:-1].split(b"\t") for number in chosen]
    columns = each.destination.columns
    missing = [index for index in range(len(columns)) if any(fields[index] == ABSENT for fields in partial)]
    bases = [patches.bases[number] for number in chosen]
    found = _rows(connection, each.destination, key, [columns[index] for index in missing], bases)
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


def _rows(
    connection: Connection,
    destination: Destination,
    key: Sequence[Column],
    wanted: Sequence[Column],
    keys: Sequence[Key],
) -> dict[Key, Sequence[bytes]]:
    """Return the values of the wanted columns of the rows with these keys, as fields of lines."""
    distinct, size = list(dict.fromkeys(keys)), len(key)
    found: dict[Values, Values] = {}
    for row in _read(connection, destination, (*key, *wanted), key, distinct):
        found[row[:size]] = row[size:]
    for absent in (one for one in distinct if one not in found):
        # The server may print this key differently: it has another type, or is equal only by collation.
        for row in _read(connection, destination, (*key, *wanted), key, [absent])[:1]:
            found[absent] = row[size:]
    return {one: _fields(found[one]) for one in distinct if one in found}


def _read(
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
