"""The parts of the dump that speak to a source: walk a table's key; on executors, read one chunk into a file."""

import contextlib
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import condition as conditions
from unshard.adapters import mysql
from unshard.adapters.meta import Meta
from unshard.adapters.parquet import Storage
from unshard.adapters.snapshot import begin_snapshot, lock_table
from unshard.adapters.target.lines import content_of
from unshard.adapters.textrows import prepare, read_rows, schema_of
from unshard.core.chunks import Key, key_index, next_bound, unpack_key, walked_columns
from unshard.core.keyrange import KeyRange, condition
from unshard.core.literals import expression
from unshard.core.model import Location, Server, Shard, TableId, TableSchema
from unshard.core.quoting import identifier
from unshard.errors.condition import ConditionRefused
from unshard.errors.source import StatementRefused, StructureChanged, TableMissing

START = b"unshard.start"
"""Key in a file's metadata: where the snapshot stood from which the whole table was read."""
WHERE = b"unshard.where"
"""Key in a file's metadata: the condition by which its rows were read."""
CHANGED = frozenset({1054, 1176, 1412})
"""Unknown column, unknown index, table changed since the snapshot: a DDL came between."""


@dataclass(frozen=True, slots=True)
class DumpJob:
    """What all chunks of a source have in common; travels to executors, its passwords too."""

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
    """Bytes per second that all readers of the source may read together; 0: as fast as they can."""
    locks: bool = False
    """Whether a table that is read in one piece is locked, instead of read in a snapshot."""
    where: str = ""
    """The condition on rows that are read; empty: all are."""
    where_place: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """One chunk to be read; `whole`: the table in one snapshot."""

    chunk: int
    table: TableId
    structure: str
    lower: Any
    upper: Any
    whole: bool

    def to_json(self) -> str:
        return json.dumps([self.chunk, self.table.schema, self.table.name, self.structure, self.lower, self.upper,
                           self.whole])  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> Self:
        chunk, schema, name, structure, lower, upper, whole = json.loads(text)
        return cls(chunk, TableId(schema, name), structure, lower, upper, whole)


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
    """Read one chunk into a file of its own and mark it as dumped; yields nothing."""
    piece = Piece.from_json(item)
    path = f"{job.folder}/{piece.chunk:08d}-{uuid.uuid4().hex[:8]}.parquet"
    meta, began = meta_of(job.target, job.meta_schema, job.task), time.monotonic()
    with _connected(job, piece.table) as connection:
        start = _begin(connection, job, piece) if piece.whole else None
        schema = job.schemas[piece.structure]
        arrow = schema_of(schema.written).with_metadata(_metadata(start, job.where))
        taken = _Taken(job, meta)
        written = job.storage.write_batches(path, arrow, taken.counted(_rows(connection, piece, schema, job.where)))
    millis = int(1000 * (time.monotonic() - began))
    if not meta.chunks.dumped(piece.chunk, path, written.rows, taken.bytes, millis):
        job.storage.delete(path)
    return ()


def _begin(connection: Connection, job: DumpJob, piece: Piece) -> Location:
    """Let all that is read from here on be of one moment; return the location from which the table's binlog counts."""
    if job.locks:
        return lock_table(connection, job.source, piece.table).location
    return begin_snapshot(connection, job.source).location


class _Taken:
    """Counts the bytes of values that come from the source, and keeps them within its rate."""

    def __init__(self, job: DumpJob, meta: Meta) -> None:
        self.bytes = 0
        self._job, self._meta = job, meta

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches; the server waits with the next rows while we wait with reading them."""
        for batch in batches:
            size = sum(len(content_of(column)) for column in batch.columns)
            self.bytes += size
            if self._job.rate:
                time.sleep(self._meta.rates.take(self._job.source, size, self._job.rate))
            yield batch


@cache
def meta_of(target: Server, schema: str, task: str) -> Meta:
    """Return the meta tables: what is read of their server is read once in the life of an executor."""
    return Meta(target, schema, task)


def origin_of(storage: Storage, path: str) -> tuple[Location | None, str]:
    """Return the location of the snapshot that a file was read from, None for a chunk of a keyed table; and by which
    condition."""
    found = storage.schema(path).metadata or {}
    packed = found.get(START)
    return Location(*json.loads(packed)) if packed else None, found.get(WHERE, b"").decode()


def _metadata(start: Location | None, where: str) -> dict[bytes, bytes]:
    moment = {START: json.dumps([start.file, start.position]).encode()} if start else {}
    return {**moment, **({WHERE: where.encode()} if where else {})}


def _rows(connection: Connection, piece: Piece, schema: TableSchema, where: str) -> Iterator[pa.RecordBatch]:
    selected = ", ".join(map(expression, schema.written))
    table = mysql.table_name(piece.table)
    walked = walked_columns(schema)
    if piece.whole or not walked:
        statement = f"SELECT {selected} FROM {table}{f' WHERE ({where})' if where else ''}"  # noqa: S608
    else:
        span = KeyRange(unpack_key(piece.lower), unpack_key(piece.upper))
        names = ", ".join(identifier(name) for name in schema.key[: len(walked)])
        statement = (
            f"SELECT {selected} FROM {table} FORCE INDEX ({identifier(key_index(schema))})"  # noqa: S608
            f" WHERE {condition(walked, span)}{f' AND ({where})' if where else ''} ORDER BY {names}"
        )
    return read_rows(connection, schema.written, statement)


@contextlib.contextmanager
def _connected(job: DumpJob, table: TableId) -> Iterator[Connection]:
    """Connect to the source; what a DDL in between leads to is one coded error."""
    shard = Shard(job.source, table)
    connection = mysql.connect_raw(job.server, f"source {job.source}")
    try:
        prepare(connection)
        if job.where:
            conditions.prepare(connection)
        yield connection
    except TableMissing as error:
        raise StructureChanged(str(shard)) from error
    except StatementRefused as error:
        if job.where and (words := _words(job, table, error)):
            raise ConditionRefused(str(shard), job.where, job.where_place, words) from error
        if error.errno not in CHANGED:
            raise
        raise StructureChanged(str(shard)) from error
    finally:
        connection.close()


def _words(job: DumpJob, table: TableId, error: StatementRefused) -> str:
    """Return what the server says about the condition, over any row or over one of those that were read."""
    # The session that was refused may hold a lock, under which it may read that table by its own name only.
    with contextlib.closing(mysql.connect(job.server, f"source {job.source}")) as connection:
        conditions.prepare(connection)
        return conditions.refusal(connection, table, job.where) or ("" if error.errno in CHANGED else error.words)
