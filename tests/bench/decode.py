"""Part f: the decoder compared with mysql-replication, both in this process, over the same bytes of the relay.

Both return the values of every column of every row image; our decoder returns canonical texts in Arrow columns. The
first column is compared in every round, all columns once, outside the measured time.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime

from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import DeleteRowsEvent, TableMapEvent, UpdateRowsEvent, WriteRowsEvent

from tests.bench.figures import Figure, ratio
from tests.bench.stand import SOURCE, Backlog, Stand
from tests.bench.workloads import Workload
from unshard.adapters import mysql
from unshard.adapters.relayfiles import RangeBytes, RelayStore
from unshard.adapters.structures import read_schemas
from unshard.binlog.decoder import decode_range
from unshard.binlog.events import EventType, walk
from unshard.core.model import Column, TableId, TableSchema

TITLES = {"mixed": "mixed OLTP, one row an event", "inserts": "inserts, many rows an event", "wide": "20 columns"}
SAMPLE_BYTES = 8 << 20
"""Size of the decoded part of a backlog: mysql-replication takes a second for it."""
EVENTS = frozenset((TableMapEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent))
WANTED = frozenset((EventType.TABLE_MAP, EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1))


def measure(stand: Stand, rounds: int, rows: int) -> list[Figure]:
    """Return images per CPU second of both, for each kind of backlog, and their ratio."""
    found = []
    for name, title in TITLES.items():
        goal = ">= 30" if name == "mixed" else ""
        found += _beside(stand.backlog(Workload(name, rows, rows)), title, stand, rounds, goal)
    return found


def _beside(backlog: Backlog, title: str, stand: Stand, rounds: int, goal: str) -> list[Figure]:
    table = TableId(*backlog.workload.table.split("."))
    with closing(mysql.connect(stand.source.server)) as connection:
        schema = read_schemas(connection, [table])[table]
    sample = _sample(backlog)
    _compare(sample, table, schema)
    ours: list[float] = []
    theirs: list[float] = []
    _ours(sample, table, schema)
    for _ in stand.rounds(rounds):
        first = _timed(lambda: _ours(sample, table, schema), ours)
        other = _timed(lambda: _theirs(sample, schema), theirs)
        if first != other:
            raise SystemExit(f"{backlog.workload.table}: the decoders differ, {len(first)} and {len(other)} rows")
    one = Figure("f", f"decode, {title}: unshard", "rows/CPU s", tuple(ours))
    two = Figure("f", f"decode, {title}: mysql-replication", "rows/CPU s", tuple(theirs))
    return [one, two, ratio("f", f"decode, {title}: unshard to mysql-replication", one, two, goal)]


def _sample(backlog: Backlog) -> list[RangeBytes]:
    """Return the first ranges of a backlog."""
    store, found, size = RelayStore(backlog.relay), list[RangeBytes](), 0
    for segment in store.segments(SOURCE):
        for part in segment.ranges:
            if size < SAMPLE_BYTES:
                found.append(store.read(SOURCE, segment.name, part.start, part.end))
                size += part.end - part.start
    return found


def _timed(decode: Callable[[], Sequence[bytes]], speeds: list[float]) -> Sequence[bytes]:
    began = time.process_time()
    keys = decode()
    speeds.append(len(keys) / max(time.process_time() - began, 1e-6))
    return keys


def _ours(sample: Sequence[RangeBytes], table: TableId, schema: TableSchema) -> Sequence[bytes]:
    keys = list[bytes]()
    for part in sample:
        for _, batch in decode_range(part.data, part.checksum, {table: schema}, {}, part.origin):
            keys += batch.column(2).to_pylist()
    return keys


def _theirs(sample: Sequence[RangeBytes], schema: TableSchema) -> Sequence[bytes]:
    keys = list[bytes]()
    for part in sample:
        for row in _rows(part, schema):
            keys.append(b"%d" % next(iter(row.values())))
    return keys


def _compare(sample: Sequence[RangeBytes], table: TableId, schema: TableSchema) -> None:
    """Compare every value of every row image."""
    decoded = (
        batch
        for part in sample
        for _, batch in decode_range(part.data, part.checksum, {table: schema}, {}, part.origin)
    )
    mine = (row for batch in decoded for row in zip(*(column.to_pylist() for column in batch.columns[2:]), strict=True))
    other = (row for part in sample for row in _rows(part, schema))
    for one, two in zip(mine, other, strict=True):
        for column, value, theirs in zip(schema.columns, one, two.values(), strict=True):
            if value != _canonical(theirs, column):
                raise SystemExit(f"{table} column {column.name}: the decoders differ, {value!r} and {theirs!r}")


def _canonical(value: object, column: Column) -> bytes | None:
    """Convert a value of mysql-replication to our canonical form."""
    match value:
        case None:
            return None
        case bytes():
            return value.ljust(int(column.column_type[7:-1]), b"\0") if column.data_type == "binary" else value
        case datetime():
            digits = int(column.column_type.partition("(")[2].rstrip(")") or 0)
            text = f"{value:%Y-%m-%d %H:%M:%S.%f}"
            return (text[: 20 + digits] if digits else text[:19]).encode()
        case float():
            return repr(value).removesuffix(".0").encode()
        case _:
            return str(value).encode()


def _rows(part: RangeBytes, schema: TableSchema) -> Iterator[dict[str, object]]:
    tables: dict[int, object] = {}
    for offset, frame in walk(part.data, False, "bench"):
        if frame.type not in WANTED:
            continue
        body = bytes(part.data[offset : offset + frame.size])
        wrapper = BinLogPacketWrapper(
            _Packet(body),
            tables,
            _Control(),
            (10, 11, 0),
            part.checksum,
            EVENTS,
            None,
            None,
            None,
            None,
            False,
            False,
            False,
            False,
            False,
            False,
            None,
        )
        if frame.type == EventType.TABLE_MAP:
            tables[wrapper.event.table_id] = _described(wrapper.event.get_table(), schema)
            continue
        for row in wrapper.event.rows:
            yield from (row["values"],) if "values" in row else (row["before_values"], row["after_values"])


def _described(table: object, schema: TableSchema) -> object:
    """Supply what mysql-replication would ask the server for: names, signs and character sets."""
    for column, known in zip(table.columns, schema.columns, strict=True):
        column.name, column.unsigned = known.name, known.is_unsigned
        column.character_set_name = known.charset or "binary"
        if known.data_type == "enum":
            column.enum_values = ["", *(label.strip("'") for label in known.column_type[5:-1].split(","))]
    return table


class _Control:
    charset = "utf8mb4"

    def _get_dbms(self) -> str:
        return "mariadb"


class _Packet:
    """An event as mysql-replication reads it from its connection."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = b"\0" + data, 0

    def read(self, size: int) -> bytes:
        self._position += size
        return self._data[self._position - size : self._position]

    def advance(self, size: int) -> None:
        self._position += size

    def read_all(self) -> bytes:
        return self.read(len(self._data) - self._position)
