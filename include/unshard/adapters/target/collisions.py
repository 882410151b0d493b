"""Which of some rows to be written meets a row that is there already."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.deletes import any_of
from unshard.adapters.target.lines import values_of
from unshard.adapters.target.load import Destination

ASKED_KEYS = 500

Keyed = Sequence[tuple[int, tuple[bytes | None, ...]]]


@dataclass(frozen=True, slots=True)
class Taken:
    """A row whose key is taken."""

    row: int
    columns: tuple[str, ...]
    condition: str


def taken_row(connection: Connection, destination: Destination, unique: Sequence[tuple[str, ...]],
              lines: pa.Array) -> Taken | None:  # fmt: skip
    """Return the first row whose key, by one of the unique indexes, is in the table."""
    for columns in unique:
        if not set(columns) <= {column.name for column in destination.columns}:
            continue
        for start in range(0, len(lines), ASKED_KEYS):
            keyed = _keyed(destination, columns, lines, start)
            row = _search(connection, destination, columns, keyed)
            if row is not None:
                condition = _condition(destination, columns, [values for number, values in keyed if number == row])
                return Taken(row, columns, condition)
    return None


def _keyed(destination: Destination, columns: tuple[str, ...], lines: pa.Array, start: int) -> Keyed:
    """Return number and key of each row; a NULL collides with nothing."""
    names = [column.name for column in destination.columns]
    places = [names.index(name) for name in columns]
    rows = (values_of(line) for line in lines.slice(start, ASKED_KEYS).to_pylist())
    found = ((start + offset, tuple(values[place] for place in places)) for offset, values in enumerate(rows))
    return [(row, values) for row, values in found if None not in values]


def _search(connection: Connection, destination: Destination, columns: tuple[str, ...], keyed: Keyed) -> int | None:
    """Halve the rows until one is left."""
    if not keyed or not _is_there(connection, destination, columns, keyed):
        return None
    while len(keyed) > 1:
        half = keyed[: len(keyed) // 2]
        keyed = half if _is_there(connection, destination, columns, half) else keyed[len(half) :]
    return keyed[0][0]


def _is_there(connection: Connection, destination: Destination, columns: tuple[str, ...], keyed: Keyed) -> bool:
    condition = _condition(destination, columns, [values for _, values in keyed])
    table = mysql.table_name(destination.table)
    return bool(mysql.query(connection, f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1"))  # noqa: S608


def _condition(destination: Destination, columns: tuple[str, ...], keys: Sequence[tuple[bytes | None, ...]]) -> str:
    by_name = {column.name: column for column in destination.columns}
    return any_of([by_name[name] for name in columns], keys)
