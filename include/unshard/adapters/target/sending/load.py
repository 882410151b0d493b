"""Run LOAD DATA LOCAL from memory and check every warning of every statement.

LOAD DATA LOCAL behaves like INSERT IGNORE: it changes a value until it fits, skips a duplicate row, and reports both
only as warnings. So a statement succeeds only if

* its warnings are exactly its skipped duplicates (plain mode), or it has none (replace mode), or
* its warnings are about ENUM values with index 0. These print as '' and cannot be written without a warning. Rows
  with such values are sent in separate statements, with a lenient sql_mode.

Where LOAD DATA LOCAL cannot be used (`trial`), multi-row statements replace it (`statements`). Lines that are rows of
parameters go to MariaDB's COM_STMT_BULK_EXECUTE first (`bulk`); what it does not take is written as text.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.pymysqlprivate import Answer, load_local
from unshard.adapters.target.destination import Destination, Form, Loaded, Mode, is_blankable, key_of
from unshard.adapters.target.rendering.lines import pieces, text_of, values_of
from unshard.adapters.target.sending.answers import DUPLICATE, expected_warnings, refused
from unshard.adapters.target.sending.bulk import bulk_bytes, insert_rows
from unshard.adapters.target.sending.statements import insert_lines
from unshard.adapters.target.session import LENIENT, STRICT
from unshard.core.model import Column, TableId
from unshard.core.sql.jsonnumbers import MAYBE, exact_numbers
from unshard.errors.rows import RowRefused
from unshard.errors.source import StatementRefused

PIECE_BYTES = 8 << 20
PIECE_ROWS = 50_000
"""Below the number of warnings that a session keeps, so that every warning can be read."""
RENDERED_BYTES = 64 << 20
LOCAL_INFILE_REFUSED = frozenset({1148, 3948, 4166, 2068})
SHOWN_WARNINGS = 3
NOT_CONVERTED_BY_LOAD = frozenset({"json", "uuid", "inet4", "inet6"})
"""Types that accept text but not binary strings. MariaDB's JSON is a longtext and needs no conversion."""
_COUNTS = re.compile(r"Records: (\d+)  (?:Deleted: (\d+)  Skipped: (\d+)|Duplicates: (\d+))  Warnings: (\d+)")


def load_lines(
    connection: Connection, table: TableId, columns: Sequence[Column], rows: pa.RecordBatch | pa.Table, mode: Mode
) -> Loaded:
    """Write rows of canonical values; `columns` are the target's, in the order of the binary columns of `rows`.

    The caller must have opened a transaction. Raises RowRefused for any error except a duplicate.
    """
    if not rows.num_rows:
        return Loaded()
    form = Form.PARAMETERS if connection.uses_bulk else Form.TEXT
    destination = Destination(table, tuple(columns), tuple(c.name for c in columns[:1])).in_form(form)
    step = max(1, RENDERED_BYTES * rows.num_rows // max(rows.nbytes, 1))
    loaded = Loaded()
    for start in range(0, rows.num_rows, step):
        part = rows.slice(start, step)
        arrays = [_combined(column) for column in part.columns]
        refuse_nulls(destination, arrays)
        lines, blank = destination.lines(arrays), blank_rows(columns, arrays)
        loaded += load_rendered(connection, destination, lines, blank, mode)
    return loaded


def load_rendered(
    connection: Connection, destination: Destination, lines: pa.BinaryArray, blank: pa.BooleanArray, mode: Mode
) -> Loaded:
    """Write lines of the destination's form; `blank` marks those that contain an ENUM value with index 0."""
    if not pc.any(blank).as_py():
        return _load_all(connection, destination, lines, mode)
    loaded = _load_all(connection, destination, lines.filter(pc.invert(blank)), mode)
    mysql.query(connection, f"SET SESSION sql_mode = '{LENIENT}'")
    try:
        return loaded + _load_as_text(connection, destination, lines.filter(blank), mode)
    finally:
        if connection.open:
            mysql.query(connection, f"SET SESSION sql_mode = '{STRICT}'")


def blank_rows(columns: Sequence[Column], arrays: Sequence[pa.Array]) -> pa.BooleanArray:
    """Mark the rows with an empty value in an ENUM column that has no empty label."""
    marks = None
    for column, array in zip(columns, arrays, strict=True):
        if is_blankable(column):
            mark = pc.fill_null(pc.equal(array, pa.scalar(b"", pa.binary())), False)
            marks = mark if marks is None else pc.or_(marks, mark)
    return pa.array(np.zeros(len(arrays[0]), bool)) if marks is None else marks


def refuse_nulls(destination: Destination, arrays: Sequence[pa.Array]) -> None:
    """Raise RowRefused for a NULL in a NOT NULL column: the server would store a default, often without a warning."""
    for column, array in zip(destination.columns, arrays, strict=True):
        if array.null_count and not column.nullable:
            row = pc.index(pc.is_null(array), True).as_py()
            key = key_of(destination, destination.lines([other.slice(row, 1) for other in arrays])[0].as_py())
            raise RowRefused(str(destination.table), column.name, key, "NULL is not allowed there")


def _combined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _load_all(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    if destination.form is Form.TEXT:
        return _load_as_text(connection, destination, lines, mode)
    loaded = Loaded()
    for piece in pieces(lines, PIECE_ROWS, min(PIECE_BYTES, bulk_bytes(connection, destination))):
        done = insert_rows(connection, destination, piece, mode)
        if done is None:
            done = _load_as_text(connection, destination, piece, mode)
        loaded += done
    return loaded


def _load_as_text(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    loaded = Loaded()
    with _lines_of_errors(destination):
        for piece in pieces(_text_lines(destination, lines), PIECE_ROWS, PIECE_BYTES):
            write = _load_or_insert if connection.uses_load_data else insert_lines
            loaded += write(connection, destination.in_form(Form.TEXT), piece, mode)
    return loaded


def _exact_rows(columns: Sequence[Column], lines: pa.BinaryArray) -> pa.BooleanArray | None:
    """Mark the rows with JSON that LOAD DATA cannot write exactly; None if it can write all rows."""
    numbers = [number for number, column in enumerate(columns) if column.data_type == "json"]
    if not numbers or not pc.any(marks := pc.match_substring_regex(lines, MAYBE)).as_py():
        return None
    exact = np.zeros(len(lines), bool)
    for row in np.flatnonzero(marks.to_numpy(zero_copy_only=False)):
        values = values_of(lines[int(row)].as_py())
        exact[row] = any(exact_numbers(values[number] or b"") for number in numbers)
    return pa.array(exact) if exact.any() else None


def _text_lines(destination: Destination, lines: pa.BinaryArray) -> pa.BinaryArray:
    if destination.form is Form.TEXT or not len(lines):
        return lines
    columns = zip(*map(destination.values, lines.to_pylist()), strict=True)
    return destination.in_form(Form.TEXT).lines([pa.array(values, pa.binary()) for values in columns])


@contextlib.contextmanager
def _lines_of_errors(destination: Destination) -> Iterator[None]:
    """Give errors that name a line the line in the form of the destination."""
    try:
        yield
    except RowRefused as error:
        if error.line:
            error.line = destination.lines([pa.array([value], pa.binary()) for value in values_of(error.line)])[
                0
            ].as_py()
        raise


def _load_or_insert(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    exact = _exact_rows(destination.columns, lines)
    if exact is not None:
        loaded = insert_lines(connection, destination, lines.filter(exact), mode)
        lines = lines.filter(pc.invert(exact))
        return loaded + _load_or_insert(connection, destination, lines, mode) if len(lines) else loaded
    try:
        return _load(connection, destination, lines, mode)
    except StatementRefused as error:
        if error.errno not in LOCAL_INFILE_REFUSED:
            raise
    connection.uses_load_data = False
    return insert_lines(connection, destination, lines, mode)


def _load(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    _refuse_larger(connection, destination, lines)
    statement = load_statement(destination, mode)
    try:
        with mysql.coded_errors(connection, statement):
            ok = load_local(connection, statement, text_of(lines))
    except StatementRefused as error:
        raise refused(destination, lines, error.server_message) or error from error
    return _checked(connection, destination, lines, mode, ok)


def _refuse_larger(connection: Connection, destination: Destination, lines: pa.BinaryArray) -> None:
    """Raise RowRefused for a row that the server could not send to anyone, although it may load it."""
    for number in np.flatnonzero(pc.binary_length(lines).to_numpy() > connection.packet_bytes):
        line = lines[int(number)].as_py()
        size = sum(len(value or b"") for value in values_of(line))
        if size > connection.packet_bytes:
            message = f"it has {size} bytes, max_allowed_packet is {connection.packet_bytes}"
            raise RowRefused(str(destination.table), "", key_of(destination, line), message, line)


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


def _checked(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode, ok: Answer) -> Loaded:
    counts = _COUNTS.search(ok.message.decode("ascii", "replace"))
    sent = int(counts[1]) if counts else len(lines)
    if sent != len(lines):
        # A failed CHECK constraint: the server leaves the row out, and its warning does not identify the row.
        reasons = {text for _, code, text in mysql.query(connection, "SHOW WARNINGS") if code != DUPLICATE}
        message = "; ".join(
            (f"{len(lines)} rows were sent, the server counted {sent}", *sorted(reasons)[:SHOWN_WARNINGS])
        )
        raise RowRefused(str(destination.table), "", "", message)
    skipped = int(counts[3] or (counts[4] if mode is Mode.PLAIN else 0) or 0) if counts else 0
    duplicates = (
        expected_warnings(connection, destination, lines, skipped, ok.warning_count) if ok.warning_count else ()
    )
    if skipped and not duplicates:
        raise RowRefused(str(destination.table), "", "", f"the server skipped {skipped} rows without a reason")
    return Loaded(sent, skipped, int(counts[2] or 0) if counts else 0, duplicates)
