"""Send rows to the target, and check the server's answer: every warning must have a known cause.

TiDB and other servers keep a limited number of warnings. A statement whose warnings are not all listed is an error.

**Multi-row INSERT and REPLACE**, for targets where LOAD DATA LOCAL is refused or commits the transaction.
A plain INSERT comes first. Under the strict sql_mode every value that does not fit is an error, and a failed statement
writes nothing. Only if a key is taken, the same rows are written by INSERT IGNORE, and its warnings must be exactly the
duplicates. A server does not always name the row that it refuses. Then the rows are halved until the row is found.

**COM_STMT_BULK_EXECUTE**: MariaDB runs one prepared statement for all rows of a packet.
The server parses no text, which is a sixth of its work for LOAD DATA (ADR 0020). Under the strict sql_mode a value that
does not fit and a taken key are errors, and the statement writes nothing. A cut DECIMAL is only a note. In all these
cases the rows are written again by the caller as text, which tells the row and the column, and counts taken keys.

**LOAD DATA LOCAL** from memory.
LOAD DATA LOCAL behaves like INSERT IGNORE: it changes a value until it fits, skips a duplicate row, and reports both
only as warnings. So a statement succeeds only if

* its warnings are exactly its skipped duplicates (plain mode), or it has none (replace mode), or
* its warnings are about ENUM values with index 0. These print as '' and cannot be written without a warning. Rows
  with such values are sent in separate statements, with a lenient sql_mode.

Where LOAD DATA LOCAL cannot be used (`trial`), multi-row statements replace it. Lines that are rows of parameters go to
COM_STMT_BULK_EXECUTE first; what it does not take is written as text.
"""

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymysql.connections import Connection

from unshard.adapters import mysql, pymysqlprivate
from unshard.adapters.pymysqlprivate import ServerAnswer, load_local
from unshard.adapters.target.rendering import pieces, text_of, tuples_of, values_of
from unshard.adapters.target.session import LENIENT, STRICT
from unshard.adapters.target.targetrows import Destination, LineForm, Loaded, Mode, is_blankable, key_of
from unshard.core.model import Column, TableId
from unshard.core.sql.literals import MAYBE, exact_numbers, stored
from unshard.core.sql.quoting import identifier
from unshard.errors.rows import RowRefused
from unshard.errors.source import JsonNumberLost, StatementRefused, ValueNotCanonical

# --- answers of the server ---

DUPLICATE = 1062
TRUNCATED = 1265
_COLUMN_AND_ROW = re.compile(r"for column (?:`[^`]*`\.`[^`]*`\.)?[`']?(?P<column>.*?)[`']? at row (?P<row>\d+)")
_ROW = re.compile(r"at row (\d+)")


def expected_warnings(
    connection: Connection, destination: Destination, lines: pa.BinaryArray, skipped: int, warnings: int
) -> tuple[str, ...]:
    """Return the server's messages about duplicates; raises RowRefused for any other warning."""
    duplicates = []
    listed = mysql.query(connection, "SHOW WARNINGS")
    if len(listed) < warnings:
        message = f"{warnings} warnings, of which the server lists {len(listed)}"
        raise RowRefused(str(destination.table), "", "", message)
    for _, code, message in listed:
        if code == DUPLICATE:
            duplicates.append(message)
        elif not (code == TRUNCATED and _is_blank(destination, lines, message)):
            raise refused(destination, lines, message) or RowRefused(str(destination.table), "", "", message)
    if len(duplicates) != skipped:
        message = f"{skipped} rows were skipped, {len(duplicates)} of them as duplicates"
        raise RowRefused(str(destination.table), "", "", message)
    return tuple(duplicates[:10])


def _is_blank(destination: Destination, lines: pa.BinaryArray, message: str) -> bool:
    """Whether a warning is about an ENUM value with index 0, which the server stores correctly."""
    found = _COLUMN_AND_ROW.search(message)
    if found is None:
        return False
    number, column = _column(destination, found["column"])
    values = values_of(lines[int(found["row"]) - 1].as_py())
    return column is not None and is_blankable(column) and values[number] == b""


def _column(destination: Destination, name: str) -> tuple[int, Column | None]:
    for number, column in enumerate(destination.columns):
        if column.name.lower() == name.lower():
            return number, column
    return -1, None


def refused(destination: Destination, lines: pa.BinaryArray, message: str) -> RowRefused | None:
    """Return an error with column and key of the row that a server message is about; None if it names no row."""
    row = _ROW.search(message)
    if row is None or not 1 <= int(row[1]) <= len(lines):
        return None
    found = _COLUMN_AND_ROW.search(message)
    line = lines[int(row[1]) - 1].as_py()
    return RowRefused(
        str(destination.table), found["column"] if found else "", key_of(destination, line), message, line
    )


# --- INSERT and REPLACE ---

STATEMENT_ROWS = 200
STATEMENT_BYTES = 1 << 20
"""Limit for the rendered rows; a larger row gets its own statement."""
RENDERED_ROWS = 20_000
VERBS = {Mode.PLAIN: "INSERT", Mode.REPLACE: "REPLACE"}
IGNORING = "INSERT IGNORE"


def insert_lines(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    """Write lines by statements of bounded size; raises RowRefused for any error except a duplicate."""
    loaded = Loaded()
    size = min(STATEMENT_BYTES, connection.packet_bytes // 2)
    for start in range(0, len(lines), RENDERED_ROWS):
        part = lines.slice(start, RENDERED_ROWS)
        rows, done = _rendered(destination, part), 0
        for piece in pieces(rows, STATEMENT_ROWS, size):
            loaded += _insert(connection, destination, part.slice(done, len(piece)), piece, mode)
            done += len(piece)
    return loaded


def _rendered(destination: Destination, lines: pa.BinaryArray) -> pa.BinaryArray:
    """Render rows for a statement; raises RowRefused for the first value that does not have its column's type."""
    try:
        return tuples_of(destination.columns, lines)
    except (ValueNotCanonical, JsonNumberLost):
        for line in lines.to_pylist():
            for column, value in zip(destination.columns, values_of(line), strict=True):
                try:
                    stored(column, value)
                except (ValueNotCanonical, JsonNumberLost) as error:
                    is_lost = isinstance(error, JsonNumberLost)
                    message = error.message if is_lost else f"the value does not have the type {column.column_type}"
                    key = key_of(destination, line)
                    raise RowRefused(str(destination.table), column.name, key, message, line) from error
        raise


def run_statement(connection: Connection, statement: str | bytes) -> pymysqlprivate.ServerAnswer:
    """Run a statement without result rows; return the server's answer with its counts."""
    with mysql.coded_errors(connection, statement if isinstance(statement, str) else shown(statement)):
        return pymysqlprivate.run(connection, statement)


def shown(statement: bytes) -> str:
    """Return the beginning of a statement for messages."""
    return statement[: mysql.SHOWN_STATEMENT].decode("utf-8", "backslashreplace")


def _insert(
    connection: Connection, destination: Destination, lines: pa.BinaryArray, rows: pa.BinaryArray, mode: Mode
) -> Loaded:
    """Write some rows; if the server refuses them, find the row that caused it."""
    try:
        return _insert_once(connection, destination, lines, rows, mode)
    except StatementRefused as error:
        if named := refused(destination, lines, error.server_message):
            raise named from error
        if len(lines) == 1:
            line = lines[0].as_py()
            raise RowRefused(
                str(destination.table), "", key_of(destination, line), error.server_message, line
            ) from error
        half = len(lines) // 2
        for start, size in ((0, half), (half, len(lines) - half)):
            _insert(connection, destination, lines.slice(start, size), rows.slice(start, size), mode)
        raise  # each half succeeds alone: the server refused the size of the statement, or had another reason


def _insert_once(
    connection: Connection, destination: Destination, lines: pa.BinaryArray, rows: pa.BinaryArray, mode: Mode
) -> Loaded:
    try:
        ok = run_statement(connection, _statement(connection, destination, lines, rows, VERBS[mode]))
    except StatementRefused as error:
        if error.errno != DUPLICATE or mode is not Mode.PLAIN:
            raise
        ok = run_statement(connection, _statement(connection, destination, lines, rows, IGNORING))
    count, changed = len(lines), ok.affected_rows
    skipped = count - changed if mode is Mode.PLAIN else 0
    duplicates: tuple[str, ...] = ()
    if ok.warning_count or skipped:
        duplicates = expected_warnings(connection, destination, lines, skipped, ok.warning_count)
    return Loaded(count, skipped, max(0, changed - count) if mode is Mode.REPLACE else 0, duplicates)


def _statement(
    connection: Connection, destination: Destination, lines: pa.BinaryArray, rows: pa.BinaryArray, verb: str
) -> bytes:
    names = ", ".join(identifier(column.name) for column in destination.columns)
    head = f"{verb} INTO {mysql.table_name(destination.table)} ({names}) VALUES ".encode()
    text = text_of(rows)
    if len(head) + len(text) > connection.packet_bytes:
        line = lines[int(np.argmax([len(row) for row in rows.to_pylist()]))].as_py()
        message = f"as a statement it has {len(text)} bytes, max_allowed_packet is {connection.packet_bytes}"
        raise RowRefused(str(destination.table), "", key_of(destination, line), message, line)
    return b"".join((head, text[:-2]))


# --- COM_STMT_BULK_EXECUTE ---

NUMBERS = itertools.count()


def bulk_bytes(connection: Connection, destination: Destination) -> int:
    """Return how many bytes of rows one command may have."""
    return pymysqlprivate.bulk_bytes(len(destination.columns), connection.packet_bytes)


def insert_rows(connection: Connection, destination: Destination, rows: pa.BinaryArray, mode: Mode) -> Loaded | None:
    """Write rows of parameters in the open transaction; None: the server did not take them all, so none is written."""
    if not connection.uses_bulk or rows.nbytes > bulk_bytes(connection, destination):
        return None
    statement, width = bulk_statement(destination, mode), len(destination.columns)
    # With a name of its own: if SAVEPOINT itself fails, nothing is rolled back to an older one.
    savepoint = f"bulk_{next(NUMBERS)}"
    try:
        number = prepared(connection, statement)
    except StatementRefused:
        return None
    try:
        with mysql.coded_errors(connection, statement):
            before = f"SAVEPOINT {savepoint}"
            ok = pymysqlprivate.execute_bulk(connection, before, number, width, text_of(rows))
    except StatementRefused:
        ok = None
    replaced = ok.affected_rows - len(rows) if ok else -1
    if ok and not ok.warning_count and (replaced == 0 or (replaced > 0 and mode is Mode.REPLACE)):
        return Loaded(len(rows), replaced=replaced)
    mysql.query(connection, f"ROLLBACK TO SAVEPOINT {savepoint}")
    return None


def bulk_statement(destination: Destination, mode: Mode) -> str:
    """Return the statement that writes one row of a destination."""
    names = ", ".join(identifier(column.name) for column in destination.columns)
    marks = ", ".join("?" * len(destination.columns))
    return f"{VERBS[mode]} INTO {mysql.table_name(destination.table)} ({names}) VALUES ({marks})"


def prepared(connection: Connection, statement: str) -> int:
    """Return the server's number of a statement; a session prepares it once. Raises coded errors."""
    if statement not in connection.prepared:
        with mysql.coded_errors(connection, statement):
            connection.prepared[statement] = pymysqlprivate.prepare(connection, statement)
    number: int = connection.prepared[statement]
    return number


# --- LOAD DATA LOCAL ---

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
    form = LineForm.PARAMETERS if connection.uses_bulk else LineForm.TEXT
    destination = Destination(table, tuple(columns), tuple(c.name for c in columns[:1])).in_form(form)
    step = max(1, RENDERED_BYTES * rows.num_rows // max(rows.nbytes, 1))
    loaded = Loaded()
    for start in range(0, rows.num_rows, step):
        part = rows.slice(start, step)
        arrays = [pa.concat_arrays(each.chunks) if isinstance(each, pa.ChunkedArray) else each for each in part.columns]
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


def _load_all(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    if destination.form is LineForm.TEXT:
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
            loaded += write(connection, destination.in_form(LineForm.TEXT), piece, mode)
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
    if destination.form is LineForm.TEXT or not len(lines):
        return lines
    columns = zip(*map(destination.values, lines.to_pylist()), strict=True)
    return destination.in_form(LineForm.TEXT).lines([pa.array(values, pa.binary()) for values in columns])


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
        name = identifier(column.name)
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


def _checked(
    connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode, ok: ServerAnswer
) -> Loaded:
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
