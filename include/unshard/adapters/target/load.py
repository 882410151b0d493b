"""LOAD DATA LOCAL from memory, statement by statement, with every warning of the server accounted for.

LOAD DATA LOCAL behaves like INSERT IGNORE: a value that does not fit is bent until it does, a duplicate
row is skipped, and all that remains is a warning. So a statement counts as done only if

* its warnings are exactly its skipped duplicates (plain mode), or none (replace mode), or
* they say what was expected of ENUM values with index 0, which print as '' and cannot be written
  without a warning: rows with such values go in statements of their own, in lenient mode.

Where LOAD DATA LOCAL cannot be used (`trial`), statements do the same (`statements`).
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymysql.connections import Connection
from pymysql.constants.COMMAND import COM_QUERY
from pymysql.protocol import OKPacketWrapper

from unshard.adapters import mysql
from unshard.adapters.target.answers import DUPLICATE, expected_warnings, refused
from unshard.adapters.target.destination import Destination, Loaded, Mode, is_blankable, key_of
from unshard.adapters.target.lines import lines_of, pieces, text_of
from unshard.adapters.target.session import LENIENT, STRICT
from unshard.adapters.target.statements import insert_lines
from unshard.core.model import Column, TableId
from unshard.errors.source import StatementRefused
from unshard.errors.target import RowRefused

PIECE_BYTES = 8 << 20
PIECE_ROWS = 50_000
"""Below the number of warnings that a session keeps, so that each one can be read."""
PACKET_BYTES = 1 << 20
RENDERED_BYTES = 64 << 20
LOCAL_INFILE_REFUSED = frozenset({1148, 3948, 4166, 2068})
SHOWN_WARNINGS = 3
NOT_CONVERTED_BY_LOAD = frozenset({"json", "uuid", "inet4", "inet6"})
"""Types that take text but refuse it as binary; MariaDB's JSON is a longtext and not among them."""
_COUNTS = re.compile(r"Records: (\d+)  (?:Deleted: (\d+)  Skipped: (\d+)|Duplicates: (\d+))  Warnings: (\d+)")


def load_lines(connection: Connection, table: TableId, columns: Sequence[Column], rows: pa.RecordBatch | pa.Table,
               mode: Mode) -> Loaded:  # fmt: skip
    """Write rows of canonical values; `columns` are the target's, in the order of the binary columns of `rows`.

    Belongs inside a transaction of the caller's; raises RowRefused when anything but a duplicate is wrong.
    """
    if not rows.num_rows:
        return Loaded()
    destination = Destination(table, tuple(columns), tuple(c.name for c in columns[:1]))
    step = max(1, RENDERED_BYTES * rows.num_rows // max(rows.nbytes, 1))
    loaded = Loaded()
    for start in range(0, rows.num_rows, step):
        part = rows.slice(start, step)
        arrays = [_combined(column) for column in part.columns]
        refuse_nulls(destination, arrays)
        loaded += load_text(connection, destination, lines_of(arrays), blank_rows(columns, arrays), mode)
    return loaded


def load_text(connection: Connection, destination: Destination, lines: pa.BinaryArray, blank: pa.BooleanArray,
              mode: Mode) -> Loaded:  # fmt: skip
    """Write rendered lines; `blank` marks those that hold an ENUM value with index 0."""
    if not pc.any(blank).as_py():
        return _load_all(connection, destination, lines, mode)
    loaded = _load_all(connection, destination, lines.filter(pc.invert(blank)), mode)
    mysql.query(connection, f"SET SESSION sql_mode = '{LENIENT}'")
    try:
        return loaded + _load_all(connection, destination, lines.filter(blank), mode)
    finally:
        if connection.open:
            mysql.query(connection, f"SET SESSION sql_mode = '{STRICT}'")


def blank_rows(columns: Sequence[Column], arrays: Sequence[pa.Array]) -> pa.BooleanArray:
    """Mark the rows that hold an empty value of an ENUM that has no empty label."""
    marks = None
    for column, array in zip(columns, arrays, strict=True):
        if is_blankable(column):
            mark = pc.fill_null(pc.equal(array, pa.scalar(b"", pa.binary())), False)
            marks = mark if marks is None else pc.or_(marks, mark)
    return pa.array(np.zeros(len(arrays[0]), bool)) if marks is None else marks


def refuse_nulls(destination: Destination, arrays: Sequence[pa.Array]) -> None:
    """Raise RowRefused for a NULL in a NOT NULL column: the server would make up a value, often in silence."""
    for column, array in zip(destination.columns, arrays, strict=True):
        if array.null_count and not column.nullable:
            row = pc.index(pc.is_null(array), True).as_py()
            key = key_of(destination, lines_of([other.slice(row, 1) for other in arrays])[0].as_py())
            raise RowRefused(str(destination.table), column.name, key, "NULL is not allowed there")


def _combined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _load_all(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    loaded = Loaded()
    for piece in pieces(lines, PIECE_ROWS, PIECE_BYTES):
        write = _load_or_insert if connection.uses_load_data else insert_lines
        loaded += write(connection, destination, piece, mode)
    return loaded


def _load_or_insert(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    try:
        return _load(connection, destination, lines, mode)
    except StatementRefused as error:
        if error.errno not in LOCAL_INFILE_REFUSED:
            raise
    connection.uses_load_data = False
    return insert_lines(connection, destination, lines, mode)


def _load(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    statement = load_statement(destination, mode)
    try:
        with mysql.coded_errors(connection, statement):
            ok = send(connection, statement, text_of(lines))
    except StatementRefused as error:
        raise refused(destination, lines, error.words) or error from error
    return _checked(connection, destination, lines, mode, ok)


def load_statement(destination: Destination, mode: Mode) -> str:
    """Return the LOAD DATA statement for lines of that destination."""
    targets, sets = [], []
    for number, column in enumerate(destination.columns):
        name = mysql.identifier(column.name)
        if column.data_type in NOT_CONVERTED_BY_LOAD:
            targets.append(f"@v{number}")
            sets.append(f"{name} = CONVERT(@v{number} USING utf8mb4)")
        else:
            targets.append(name)
    replace = "REPLACE " if mode is Mode.REPLACE else ""
    tail = f" SET {', '.join(sets)}" if sets else ""
    return (
        f"LOAD DATA LOCAL INFILE 'rows' {replace}INTO TABLE {mysql.table_name(destination.table)}"
        f" CHARACTER SET binary ({', '.join(targets)}){tail}"
    )


def send(connection: Connection, statement: str, text: memoryview) -> OKPacketWrapper:
    """Speak the LOCAL INFILE sub-protocol: the driver itself would only read a file by its name."""
    connection._execute_command(COM_QUERY, statement)
    request = connection._read_packet()
    if not request.is_load_local_packet():
        return OKPacketWrapper(request)
    for start in range(0, len(text), PACKET_BYTES):
        connection.write_packet(text[start : start + PACKET_BYTES])
    connection.write_packet(b"")
    return OKPacketWrapper(connection._read_packet())


def _checked(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode,
             ok: OKPacketWrapper) -> Loaded:  # fmt: skip
    counts = _COUNTS.search(bytes(ok.message).decode("ascii", "replace"))
    sent = int(counts[1]) if counts else len(lines)
    if sent != len(lines):
        # A CHECK that fails: the server leaves the row out, and its warning names none.
        why = {words for _, code, words in mysql.query(connection, "SHOW WARNINGS") if code != DUPLICATE}
        words = "; ".join((f"{len(lines)} rows were sent, the server counted {sent}", *sorted(why)[:SHOWN_WARNINGS]))
        raise RowRefused(str(destination.table), "", "", words)
    skipped = int(counts[3] or (counts[4] if mode is Mode.PLAIN else 0) or 0) if counts else 0
    duplicates = (
        expected_warnings(connection, destination, lines, skipped, ok.warning_count) if ok.warning_count else ()
    )
    if skipped and not duplicates:
        raise RowRefused(str(destination.table), "", "", f"the server skipped {skipped} rows without saying why")
    return Loaded(sent, skipped, int(counts[2] or 0) if counts else 0, duplicates)
