"""LOAD DATA LOCAL from memory, statement by statement, with every warning of the server accounted for.

LOAD DATA LOCAL behaves like INSERT IGNORE: a value that does not fit is bent until it does, a duplicate
row is skipped, and all that remains is a warning. So a statement counts as done only if

* its warnings are exactly its skipped duplicates (plain mode), or none (replace mode), or
* they say what was expected of ENUM values with index 0, which print as '' and cannot be written
  without a warning: rows with such values go in statements of their own, in lenient mode.

Where the server refuses LOAD DATA LOCAL, multi-row INSERT IGNORE or REPLACE does the same and is
checked in the same way.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymysql.connections import Connection
from pymysql.protocol import OKPacketWrapper

from unshard.adapters import mysql
from unshard.adapters.target.lines import lines_of, values_of
from unshard.adapters.target.session import LENIENT, STRICT
from unshard.core.literals import literal
from unshard.core.model import Column, TableId
from unshard.errors.source import StatementRefused
from unshard.errors.target import RowRefused

PIECE_BYTES = 8 << 20
PIECE_ROWS = 50_000
"""Below the number of warnings that a session keeps, so that each one can be read."""
FALLBACK_ROWS = 500
FALLBACK_BYTES = 2 << 20
"""Values become hexadecimal digits, and a statement must stay below the server's max_allowed_packet."""
PACKET_BYTES = 1 << 20
RENDERED_BYTES = 64 << 20
COM_QUERY = 3
LOCAL_INFILE_REFUSED = frozenset({1148, 3948, 4166, 2068})
DUPLICATE = 1062
SHOWN_WARNINGS = 3
TRUNCATED = 1265
NOT_CONVERTED_BY_LOAD = frozenset({"json", "uuid", "inet4", "inet6"})
"""Types that take text but refuse it as binary; MariaDB's JSON is a longtext and not among them."""
_COUNTS = re.compile(r"Records: (\d+)  (?:Deleted: (\d+)  Skipped: (\d+)|Duplicates: (\d+))  Warnings: (\d+)")
_PLACE = re.compile(r"for column (?:`[^`]*`\.`[^`]*`\.)?[`']?(?P<column>.*?)[`']? at row (?P<row>\d+)")
_ROW = re.compile(r"at row (\d+)")


class Mode(StrEnum):
    """What happens to a row whose key is in the table already."""

    PLAIN = "plain"
    """It is skipped and counted."""
    REPLACE = "replace"
    """It takes the place of every row that it collides with."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A table and those of its columns that lines hold, in the order of the line."""

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """What identifies a row in messages."""

    def only(self, numbers: Sequence[int]) -> "Destination":
        """Return the same table with only some of the columns."""
        return Destination(self.table, tuple(self.columns[number] for number in numbers), self.key)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What became of the rows sent."""

    sent: int = 0
    skipped: int = 0
    """Rows that were not written, because their key was taken (plain mode only)."""
    replaced: int = 0
    """Rows that had to go for those sent (replace mode only)."""
    duplicates: tuple[str, ...] = ()
    """The server's words for the first of the skipped rows."""

    def __add__(self, other: "Loaded") -> "Loaded":
        return Loaded(
            self.sent + other.sent,
            self.skipped + other.skipped,
            self.replaced + other.replaced,
            (self.duplicates + other.duplicates)[:10],
        )


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


def is_blankable(column: Column) -> bool:
    """Whether '' in this column can only mean index 0 of an ENUM."""
    labels = re.findall(r"'((?:[^']|'')*)'", column.column_type)
    return column.data_type == "enum" and "" not in labels


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
    for piece in _pieces(lines, PIECE_ROWS, PIECE_BYTES):
        write = _load_or_insert if connection.uses_load_data else _insert
        loaded += write(connection, destination, piece, mode)
    return loaded


def _load_or_insert(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    try:
        return _load(connection, destination, lines, mode)
    except StatementRefused as error:
        if error.errno not in LOCAL_INFILE_REFUSED:
            raise
    connection.uses_load_data = False
    return _insert(connection, destination, lines, mode)


def _pieces(lines: pa.BinaryArray, rows: int, size: int) -> Iterator[pa.BinaryArray]:
    """Cut into pieces of bounded rows and bytes; a single line may be larger."""
    start, total = 0, len(lines)
    if not total:
        return
    ends = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + total + 1]
    while start < total:
        fits = int(np.searchsorted(ends, ends[start] + size, side="right")) - 1
        stop = min(max(fits, start + 1), start + rows, total)
        yield lines.slice(start, stop - start)
        start = stop


def _load(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    statement = load_statement(destination, mode)
    try:
        with mysql.coded_errors(connection, statement):
            ok = send(connection, statement, _text_of(lines))
    except StatementRefused as error:
        raise _refused(destination, lines, error.words) or error from error
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


def _text_of(lines: pa.BinaryArray) -> memoryview:
    offsets = np.frombuffer(lines.buffers()[1], np.int32)
    first, last = int(offsets[lines.offset]), int(offsets[lines.offset + len(lines)])
    return memoryview(lines.buffers()[2])[first:last]


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
    duplicates = _expected_warnings(connection, destination, lines, skipped) if ok.warning_count else ()
    if skipped and not duplicates:
        raise RowRefused(str(destination.table), "", "", f"the server skipped {skipped} rows without saying why")
    return Loaded(sent, skipped, int(counts[2] or 0) if counts else 0, duplicates)


def _expected_warnings(connection: Connection, destination: Destination, lines: pa.BinaryArray,
                       skipped: int) -> tuple[str, ...]:  # fmt: skip
    """Return the words about duplicates; raises for every other warning that nothing explains."""
    duplicates = []
    for _, code, words in mysql.query(connection, "SHOW WARNINGS"):
        if code == DUPLICATE:
            duplicates.append(words)
        elif not (code == TRUNCATED and _is_blank(destination, lines, words)):
            raise _refused(destination, lines, words) or RowRefused(str(destination.table), "", "", words)
    if len(duplicates) != skipped:
        words = f"{skipped} rows were skipped, {len(duplicates)} of them as duplicates"
        raise RowRefused(str(destination.table), "", "", words)
    return tuple(duplicates[:10])


def _is_blank(destination: Destination, lines: pa.BinaryArray, words: str) -> bool:
    """Whether a warning speaks of an ENUM value with index 0, which is stored as it should be."""
    place = _PLACE.search(words)
    if place is None:
        return False
    number, column = _column(destination, place["column"])
    values = values_of(lines[int(place["row"]) - 1].as_py())
    return column is not None and is_blankable(column) and values[number] == b""


def _column(destination: Destination, name: str) -> tuple[int, Column | None]:
    for number, column in enumerate(destination.columns):
        if column.name.lower() == name.lower():
            return number, column
    return -1, None


def _refused(destination: Destination, lines: pa.BinaryArray, words: str) -> RowRefused | None:
    """Name column and key of the row that the server's words speak of, if they speak of one."""
    row = _ROW.search(words)
    if row is None or not 1 <= int(row[1]) <= len(lines):
        return None
    place = _PLACE.search(words)
    line = lines[int(row[1]) - 1].as_py()
    return RowRefused(str(destination.table), place["column"] if place else "", key_of(destination, line), words, line)


def key_of(destination: Destination, line: bytes) -> str:
    """Return the key of a line as a message shows it: `id = 1, region = 'eu'`."""
    pairs = zip(destination.columns, values_of(line), strict=True)
    return ", ".join(shown(column, value) for column, value in pairs if column.name in destination.key)


def shown(column: Column, value: bytes | None) -> str:
    """Return a value as a message shows it."""
    text = "NULL" if value is None else value.decode("utf-8", "backslashreplace")[:60]
    return f"{column.name} = {text}"


def _insert(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    loaded = Loaded()
    for piece in _pieces(lines, FALLBACK_ROWS, FALLBACK_BYTES):
        loaded += _insert_some(connection, destination, piece, mode)
    return loaded


def _insert_some(connection: Connection, destination: Destination, lines: pa.BinaryArray, mode: Mode) -> Loaded:
    statement = insert_statement(destination, lines, mode)
    try:
        ok = run_statement(connection, statement)
    except StatementRefused as error:
        raise _refused(destination, lines, error.words) or error from error
    if len(lines) > 1:
        return _checked(connection, destination, lines, mode, ok)
    skipped = int(mode is Mode.PLAIN and not ok.affected_rows)
    duplicates = _expected_warnings(connection, destination, lines, skipped) if ok.warning_count else ()
    return Loaded(1, skipped, ok.affected_rows - 1 if mode is Mode.REPLACE else 0, duplicates)


def run_statement(connection: Connection, statement: str) -> OKPacketWrapper:
    """Run a statement without result rows; return the server's answer with its counts."""
    with mysql.coded_errors(connection, statement):
        connection._execute_command(COM_QUERY, statement)
        return OKPacketWrapper(connection._read_packet())


def insert_statement(destination: Destination, lines: pa.BinaryArray, mode: Mode) -> str:
    """Return the multi-row statement that does what LOAD DATA would do with these lines."""
    names = ", ".join(mysql.identifier(column.name) for column in destination.columns)
    tuples = []
    for line in lines.to_pylist():
        pairs = zip(destination.columns, values_of(line), strict=True)
        tuples.append(f"({', '.join(literal(column, value) for column, value in pairs)})")
    verb = "REPLACE" if mode is Mode.REPLACE else "INSERT IGNORE"
    return f"{verb} INTO {mysql.table_name(destination.table)} ({names}) VALUES {', '.join(tuples)}"
