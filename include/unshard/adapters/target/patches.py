"""Lines that lack values, made whole with what the target has: the rows of sessions that log changed columns only.

In a line, `\\A` stands for a value that is as it was. Before anything of a window is written, the rows that such lines
change are read, and each gap is filled. So all that follows is about whole rows. In safe mode such a row need not be
there: it is left to a later change (`awaiting`). The fence is locked meanwhile, so nobody but this window changes those
rows: a second attempt that finds some of it done fills the same gaps again.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.changes import Awaited, Changes, Lines, Patches
from unshard.adapters.target.deletes import any_of
from unshard.adapters.target.destination import Destination, is_blankable, shown
from unshard.adapters.target.fence import Fence, lock_unless_applied
from unshard.adapters.target.lines import ABSENT, lines_of
from unshard.adapters.target.session import Writer, open_session
from unshard.core.literals import expression
from unshard.core.model import Column, Shard
from unshard.errors.leftout import ChangedRowMissing

READ_KEYS = 200
SESSION = "SET SESSION sql_mode = '', time_zone = '+00:00'"
Key = tuple[bytes, ...]
Values = tuple[bytes | None, ...]


def has_gaps(changes: Changes) -> bool:
    """Whether lines lack values."""
    return any(each.patches is not None for each in changes.writes.lines)


def filled(writer: Writer, fence: Fence, changes: Changes) -> Changes:
    """Return changes whose lines are whole; as they were if the window is applied already."""
    with (
        contextlib.closing(open_session(writer)) as guard,
        contextlib.closing(mysql.connect_raw(writer.server)) as connection,
    ):
        guard.begin()
        if not lock_unless_applied(guard, fence):
            return changes
        mysql.query(connection, SESSION)
        done = [_filled(connection, changes.key, each) for each in changes.writes.lines]
        mysql.query(guard, "COMMIT")
    left = tuple(row for _, some in done for row in some)
    return replace(changes, writes=replace(changes.writes, lines=[each for each, _ in done]), left=left)


def _filled(connection: Connection, key: Sequence[Column], each: Lines) -> tuple[Lines, list[Awaited]]:
    patches = each.patches
    if patches is None:
        return each, []
    made: list[bytes | None] = []
    for start in range(0, len(patches.rows), READ_KEYS):
        made += _some(connection, key, each, patches, range(start, min(start + READ_KEYS, len(patches.rows))))
    lacking = [number for number, line in enumerate(made) if line is None]
    left = [_awaited(key, each.shards[int(patches.rows[number])], patches.bases[number]) for number in lacking]
    return _with(each, patches.rows, made), left


def _awaited(key: Sequence[Column], shard: Shard, values: Key) -> Awaited:
    return Awaited(shard, values, ", ".join(shown(*pair) for pair in zip(key, values, strict=True)))


def _some(connection: Connection, key: Sequence[Column], each: Lines, patches: Patches,
          chosen: range) -> Iterator[bytes | None]:  # fmt: skip
    """Yield the whole line of each of some patches; None for a row that need not be there and is not."""
    given = [each.lines[int(patches.rows[number])].as_py()[:-1].split(b"\t") for number in chosen]
    columns = each.destination.columns
    lacked = [place for place in range(len(columns)) if any(fields[place] == ABSENT for fields in given)]
    bases = [patches.bases[number] for number in chosen]
    found = _rows(connection, each.destination, key, [columns[place] for place in lacked], bases)
    for number, base, fields in zip(chosen, bases, given, strict=True):
        if base not in found:
            if patches.strict[number]:
                shard = each.shards[int(patches.rows[number])]
                named = ", ".join(shown(*pair) for pair in zip(key, base, strict=True))
                raise ChangedRowMissing(str(each.destination.table), str(shard), named)
            yield None
            continue
        for place, value in zip(lacked, found[base], strict=True):
            fields[place] = value if fields[place] == ABSENT else fields[place]
        yield b"\t".join(fields) + b"\n"


def _rows(connection: Connection, destination: Destination, key: Sequence[Column], wanted: Sequence[Column],
          keys: Sequence[Key]) -> dict[Key, Sequence[bytes]]:  # fmt: skip
    """Return what stands in some columns of the rows with these keys, as fields of lines."""
    asked, size = list(dict.fromkeys(keys)), len(key)
    found: dict[Values, Values] = {}
    for row in _read(connection, destination, (*key, *wanted), key, asked):
        found[row[:size]] = row[size:]
    for left in (one for one in asked if one not in found):
        # A key may be printed otherwise there: of another type, or equal by its collation.
        for row in _read(connection, destination, (*key, *wanted), key, [left])[:1]:
            found[left] = row[size:]
    return {one: _fields(found[one]) for one in asked if one in found}


def _read(connection: Connection, destination: Destination, columns: Sequence[Column], key: Sequence[Column],
          keys: Sequence[Key]) -> list[Values]:  # fmt: skip
    names = ", ".join(expression(column) for column in columns)
    table = mysql.table_name(destination.table)
    return list(mysql.query(connection, f"SELECT {names} FROM {table} WHERE {any_of(key, keys)}"))  # noqa: S608


def _fields(values: Values) -> list[bytes]:
    if not values:
        return []
    line: bytes = lines_of([pa.array([value], pa.binary()) for value in values])[0].as_py()
    return line[:-1].split(b"\t")


def _with(each: Lines, rows: np.ndarray, made: Sequence[bytes | None]) -> Lines:
    """Return the lines with some of them replaced, and those left out that are None."""
    places = np.arange(len(each.lines))
    places[rows] = len(each.lines) + np.arange(len(made))
    lines = pa.concat_arrays([each.lines, pa.array(made, pa.binary())]).take(pa.array(places))
    blank = each.blank.to_numpy(zero_copy_only=False).copy()
    blank[rows] = [line is not None and _is_blank(each.destination.columns, line) for line in made]
    kept = np.flatnonzero(lines.is_valid().to_numpy(zero_copy_only=False))
    chosen = pa.array(kept)
    order = None if each.order is None else each.order.take(chosen)
    shards = [each.shards[row] for row in kept.tolist()]
    return replace(each, lines=lines.take(chosen), blank=pa.array(blank).take(chosen), shards=shards, order=order,
                   patches=None)  # fmt: skip


def _is_blank(columns: Sequence[Column], line: bytes) -> bool:
    pairs = zip(columns, line[:-1].split(b"\t"), strict=True)
    return any(field == b"" and is_blankable(column) for column, field in pairs)
