"""Read from a source for the dump: walk a table's key (driver), and read one chunk into a file (executors)."""

import contextlib
import json
import math
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql, tablerows
from unshard.adapters.meta import Meta
from unshard.adapters.parquet import Storage
from unshard.adapters.tablerows import rows_statement
from unshard.adapters.target.rendering import content_of
from unshard.adapters.textrows import prepare, read_rows, schema_of
from unshard.adapters.upstream import begin_snapshot, lock_table
from unshard.core import codec
from unshard.core.full.chunks import Key, next_bound, unpack_key, walked_columns
from unshard.core.model import Location, Server, Shard, TableId, TableSchema
from unshard.core.sql.keyrange import KeyRange
from unshard.core.task.state import DumpedFile
from unshard.errors.full import ConditionRefused, StructureChanged
from unshard.errors.source import StatementRefused, TableMissing

START = b"unshard.start"
"""Key in a file's metadata: location of the snapshot from which the whole table was read."""
WHERE = b"unshard.where"
"""Key in a file's metadata: the condition with which its rows were read."""
CHANGED = frozenset({1054, 1176, 1412})
"""Unknown column, unknown index, table changed since the snapshot: a DDL was executed in between."""


@dataclass(frozen=True, slots=True)
class DumpJob:
    """The properties that all chunks of a source share; sent to executors, including passwords."""

    source: str
    server: Server
    target: Server
    meta_schema: str
    task: str
    storage: Storage
    folder: str
    chunk_rows: int
    schemas: Mapping[str, TableSchema]
    rate: int = 0
    """Bytes per second that all readers of the source together may read; 0: no limit."""
    locks: bool = False
    """Whether a table that is read in one piece is locked, instead of read in a snapshot."""
    where: str = ""
    """The condition on rows to read; empty: all rows."""
    where_place: str = ""
    most_rows: int = 0
    """Rows of one file: its rows are loaded in one transaction, which the target limits; 0: no limit."""
    most_bytes: int = 0
    """Bytes of values in one file; 0: no limit."""


@dataclass(frozen=True, slots=True)
class DumpPiece:
    """One chunk to read; `whole`: the table in one snapshot."""

    chunk: int
    table: TableId
    structure: str
    lower: Any
    upper: Any
    whole: bool


def plan_bounds(job: DumpJob, table: TableId, structure: str) -> tuple[Key, ...]:
    """Walk the key of a table; return the bounds between its chunks."""
    schema = job.schemas[structure]
    bounds: list[Key] = []
    with _connected(job, table) as connection:
        while rows := mysql.query(
            connection, next_bound(table, schema, bounds[-1] if bounds else None, job.chunk_rows)
        ):
            bounds.append(tuple(rows[0]))
    return tuple(bounds)


def dump_piece(job: DumpJob, item: str) -> Iterable[str]:
    """Read one chunk into files and mark it as dumped; yields nothing.

    Only a chunk that is too large for one transaction of the target has several files. Each of them becomes a chunk.
    """
    piece = codec.loads(DumpPiece, item)
    meta, began = meta_of(job.target, job.meta_schema, job.task), time.monotonic()
    with _connected(job, piece.table) as connection:
        start = _begin(connection, job, piece) if piece.whole else None
        schema = job.schemas[piece.structure]
        moment = {START: json.dumps([start.file, start.position]).encode()} if start else {}
        condition = {WHERE: job.where.encode()} if job.where else {}
        arrow = schema_of(schema.written).with_metadata(moment | condition)
        batches = _within_rate(job, meta, _rows(connection, piece, schema, job.where))
        files = [_write(job, piece, arrow, some) for some in files_of(batches, job.most_rows, job.most_bytes)]
    millis = int(1000 * (time.monotonic() - began))
    files = files or [_write(job, piece, arrow, iter(()))]
    if not meta.chunks.dumped(piece.chunk, files, millis):
        for file in files:
            job.storage.delete(file.path)
    return ()


def files_of(batches: Iterator[pa.RecordBatch], rows: int, size: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """Split rows into files of at most `rows` rows and about `size` bytes, both without limit if 0.

    Each file must be read to its end before the next one is asked for.
    """
    left: list[pa.RecordBatch] = []

    def taken() -> pa.RecordBatch | None:
        return left.pop() if left else next(batches, None)

    def one_file(batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
        room, space = rows or math.inf, size or math.inf
        while batch is not None and room > 0 and space > 0:
            by_size = batch.num_rows if space == math.inf else space * batch.num_rows // max(bytes_of(batch), 1)
            fitting = int(min(room, max(1, by_size), batch.num_rows))
            part, rest = batch.slice(0, fitting), batch.slice(fitting)
            room, space = room - part.num_rows, space - bytes_of(part)
            yield part
            batch = rest if rest.num_rows else taken()
        if batch is not None:
            left.append(batch)

    while (first := taken()) is not None:
        yield one_file(first)


def bytes_of(batch: pa.RecordBatch) -> int:
    """Return the bytes of the batch's values."""
    return sum(len(content_of(column)) for column in batch.columns)


def _write(job: DumpJob, piece: DumpPiece, arrow: pa.Schema, batches: Iterator[pa.RecordBatch]) -> DumpedFile:
    path = f"{job.folder}/{piece.chunk:08d}-{uuid.uuid4().hex[:8]}.parquet"
    size = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal size
        for batch in batches:
            size += bytes_of(batch)
            yield batch

    written = job.storage.write_batches(path, arrow, counted())
    return DumpedFile(path, written.rows, size)


def _begin(connection: Connection, job: DumpJob, piece: DumpPiece) -> Location:
    """Start a consistent read; return the location from which the table's binlog counts."""
    if job.locks:
        return lock_table(connection, job.source, piece.table).location
    return begin_snapshot(connection, job.source).location


def _within_rate(job: DumpJob, meta: Meta, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches at the rate of the source; the server waits with the next rows until they are read."""
    for batch in batches:
        if job.rate:
            time.sleep(meta.rates.take(job.source, bytes_of(batch), job.rate))
        yield batch


_kept: dict[tuple[Server, str, str], Meta] = {}
_keeping = threading.Lock()


def meta_of(target: Server, schema: str, task: str) -> Meta:
    """Return the meta tables; an executor process keeps those of its last task, and closes those of the task before."""
    key = (target, schema, task)
    with _keeping:
        if key not in _kept:
            while _kept:
                _kept.popitem()[1].close()
            _kept[key] = Meta(target, schema, task)
        return _kept[key]


def origin_of(storage: Storage, path: str) -> tuple[Location | None, str]:
    """Return the snapshot location of a file (None for a chunk of a table with a key) and its condition."""
    found = storage.schema(path).metadata or {}
    packed = found.get(START)
    return Location(*json.loads(packed)) if packed else None, found.get(WHERE, b"").decode()


def _rows(connection: Connection, piece: DumpPiece, schema: TableSchema, where: str) -> Iterator[pa.RecordBatch]:
    is_whole = piece.whole or not walked_columns(schema)
    span = None if is_whole else KeyRange(unpack_key(piece.lower), unpack_key(piece.upper))
    return read_rows(connection, schema.written, rows_statement(piece.table, schema, span, where))


@contextlib.contextmanager
def _connected(job: DumpJob, table: TableId) -> Iterator[Connection]:
    """Connect to the source; raises one coded error for all effects of a DDL in between."""
    shard = Shard(job.source, table)
    connection = mysql.connect_raw(job.server, f"source {job.source}")
    try:
        prepare(connection)
        if job.where:
            tablerows.prepare_condition(connection)
        yield connection
    except TableMissing as error:
        raise StructureChanged(str(shard)) from error
    except StatementRefused as error:
        if job.where and (message := _message(job, table, error)):
            raise ConditionRefused(str(shard), job.where, job.where_place, message) from error
        if error.errno not in CHANGED:
            raise
        raise StructureChanged(str(shard)) from error
    finally:
        connection.close()


def _message(job: DumpJob, table: TableId, error: StatementRefused) -> str:
    """Return the server's message about the condition, for any row or for a row that was read."""
    # The refused session may hold a lock that permits the table only by its own name.
    with contextlib.closing(mysql.connect(job.server, f"source {job.source}")) as connection:
        tablerows.prepare_condition(connection)
        return tablerows.condition_refusal(connection, table, job.where) or (
            "" if error.errno in CHANGED else error.server_message
        )
