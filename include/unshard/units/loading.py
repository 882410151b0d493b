"""The part of the load that runs on executors: one dumped chunk in one transaction of the target.

The chunk's row in the meta tables is locked first and changed to `loaded` last, in the transaction that
writes the rows, so the rows of a chunk are in the target exactly when its row says so. Rows that are left to the binlog
(units/leaving.py) are noted in it, too.

| dies                          | what happens                                                        |
|-------------------------------|---------------------------------------------------------------------|
| before COMMIT                 | the server rolls back; the chunk is loaded again                    |
| in COMMIT, the answer is lost | a new connection reads the chunk's state: `loaded` there means done |
| hangs, while another loads it | the other waits for the row's lock, then finds the chunk loaded     |
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.parquet import Storage
from unshard.adapters.target import Ledger, Lines, Loaded, Mode, Writer, Writes, in_sessions, lines_of, write_or_leave
from unshard.adapters.target.awaiting import leave
from unshard.adapters.target.changes import Awaited
from unshard.adapters.target.deletes import delete_keys, remove_rows
from unshard.adapters.target.diverting import MOST_DIVERTED, note, without_refused
from unshard.adapters.target.load import blank_rows
from unshard.adapters.target.rowfilter import RowJudge
from unshard.config import OnDuplicate
from unshard.core import codec
from unshard.core.collision import Found
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.netting import Collisions
from unshard.core.progress import Chunk, ChunkState
from unshard.core.reshape import AS_IT_IS, Reshaping
from unshard.core.stops import ABOUT_ONE_TARGET, refusal_of
from unshard.core.uniquekeys import unique_keys
from unshard.errors.target import ChunkGone, Collision, LoadCollision
from unshard.units.conversion import Behind, Conversion, conversion, convert
from unshard.units.dumping import meta_of
from unshard.units.leaving import OtherChunks

LOCK_WAIT_SECONDS = 600
"""A chunk may wait for another one that holds rows or the AUTO_INCREMENT lock of the same table."""


@dataclass(frozen=True)
class LoadJob:
    """What all chunks of a source have in common; travels to executors, its passwords too."""

    source: str
    writer: Writer
    meta_schema: str
    task: str
    storage: Storage
    on_duplicate: OnDuplicate
    schemas: Mapping[str, TableSchema]
    targets: Mapping[TableId, TableSchema]
    reshapings: Mapping[TableId, Reshaping] = field(default_factory=dict)
    """What the names of a shard do to its rows."""
    behind: Behind = field(default_factory=dict)
    """DDL that the target has had and shards of a source that comes late have not."""
    filters: bool = False
    """Whether expression filters for inserts leave rows of the load out."""
    time_zone: str = "+00:00"
    """In which they are evaluated."""
    diverts: bool = False
    """Whether rows that a target cannot take are put aside."""

    @cached_property
    def chunk_table(self) -> str:
        return mysql.table_name(TableId(self.meta_schema, "load_chunk"))

    @cached_property
    def pace_table(self) -> str:
        return mysql.table_name(TableId(self.meta_schema, "chunk_pace"))

    @cached_property
    def row_error_table(self) -> str:
        return mysql.table_name(TableId(self.meta_schema, "row_error"))

    @cached_property
    def awaited_table(self) -> str:
        return mysql.table_name(TableId(self.meta_schema, "awaited_row"))


@dataclass(frozen=True, slots=True)
class Parcel:
    """One dumped chunk on its way into the target."""

    chunk: int
    number: int
    shard: Shard
    target: TableId
    structure: str
    path: str

    @staticmethod
    def of(chunk: Chunk, structure: str) -> "Parcel":
        """Return the parcel of a dumped chunk whose rows have that structure."""
        return Parcel(chunk.id, chunk.number, chunk.shard, chunk.target, structure, chunk.path)

    def to_json(self) -> str:
        shard, target = self.shard, self.target
        return json.dumps([self.chunk, self.number, shard.source, shard.table.schema, shard.table.name, target.schema,
                           target.name, self.structure, self.path])  # fmt: skip

    @staticmethod
    def from_json(text: str) -> "Parcel":
        chunk, number, source, schema, name, target_schema, target_name, structure, path = json.loads(text)
        shard, target = Shard(source, TableId(schema, name)), TableId(target_schema, target_name)
        return Parcel(chunk, number, shard, target, structure, path)


def load_parcel(job: LoadJob, item: str) -> Iterable[str]:
    """Load one chunk exactly once, however often it is called; yield why its target cannot take it, as text.

    Other chunks go on. A collision is raised: the shards have to be asked whose row it is.
    """
    parcel = Parcel.from_json(item)
    try:
        _repeated(job, parcel, _load_once)
    except Collision:
        raise
    except ABOUT_ONE_TARGET as error:
        return (codec.dumps(refusal_of(parcel.target, error)),)
    return ()


def unload_parcel(job: LoadJob, item: str) -> Iterable[str]:
    """Take the rows of a loaded chunk out of the target again, exactly once; yields nothing."""
    _repeated(job, Parcel.from_json(item), _unload_once)
    return ()


def _repeated(job: LoadJob, parcel: Parcel, once: Callable[[Connection, LoadJob, Parcel], None]) -> None:
    def in_transaction(connection: Connection) -> None:
        mysql.query(connection, "SET SESSION innodb_lock_wait_timeout = %s", (LOCK_WAIT_SECONDS,))
        connection.begin()
        once(connection, job, parcel)

    in_sessions(job.writer, in_transaction)


def _load_once(connection: Connection, job: LoadJob, parcel: Parcel) -> None:
    began = time.monotonic()
    if not _is_waiting(connection, job, parcel):
        connection.rollback()
        return
    loaded, plan = Loaded(), _conversion(job, parcel)
    own = OtherChunks(meta_of(job.writer.server, job.meta_schema, job.task), job.storage, parcel.shard, parcel.chunk,
                      job.schemas[parcel.structure], plan)  # fmt: skip
    for batch in _batches(job, parcel):
        loaded += _write(connection, job, parcel, own, batch)
    _mark(connection, job, parcel, ChunkState.LOADED, loaded.sent - loaded.skipped)
    _time(connection, job, parcel, int(1000 * (time.monotonic() - began)))
    mysql.query(connection, "COMMIT")


def _batches(job: LoadJob, parcel: Parcel) -> Iterator[pa.RecordBatch]:
    """Yield the chunk's rows without those that expression filters leave out of the load."""
    reshaping = job.reshapings.get(parcel.shard.table, AS_IT_IS)
    rules = [rule for rule in reshaping.filters if rule.insert] if job.filters else []
    with contextlib.closing(RowJudge(job.writer, job.meta_schema, job.time_zone)) as judge:
        for batch in job.storage.read_batches(parcel.path):
            for rule in rules if batch.num_rows else ():
                dropped = judge.true_for(rule.name, rule.insert, job.schemas[parcel.structure], batch.columns)
                batch = batch.filter(pa.array(~dropped))  # noqa: PLW2901
            if batch.num_rows:
                yield batch


def _unload_once(connection: Connection, job: LoadJob, parcel: Parcel) -> None:
    if _is_waiting(connection, job, parcel):
        connection.rollback()
        return
    plan = _conversion(job, parcel)
    for batch in _batches(job, parcel):
        _remove(connection, job.targets[parcel.target], parcel, plan, batch)
    _mark(connection, job, parcel, ChunkState.DUMPED, 0)
    mysql.query(connection, "COMMIT")


def _conversion(job: LoadJob, parcel: Parcel) -> Conversion:
    reshaping, behind = job.reshapings.get(parcel.shard.table, AS_IT_IS), job.behind.get((parcel.shard, None), ())
    structure, present = job.schemas[parcel.structure], job.targets[parcel.target]
    return conversion(parcel.shard, structure, parcel.target, present, behind, reshaping)


def _remove(connection: Connection, schema: TableSchema, parcel: Parcel, plan: Conversion,
            batch: pa.RecordBatch) -> None:  # fmt: skip
    values = convert(plan, batch.columns)
    if plan.key:
        columns = [plan.fields[number].column for number in plan.key]
        chosen = zip(*(values[number].to_pylist() for number in plan.key), strict=True)
        delete_keys(connection, parcel.target, columns, [*chosen])
        return
    written = tuple(column.name for column in schema.written)
    for line in lines_of(values).to_pylist():
        remove_rows(connection, plan.destination, written, line, 1)


def _is_waiting(connection: Connection, job: LoadJob, parcel: Parcel) -> bool:
    sql = f"SELECT state FROM {job.chunk_table} WHERE task = %s AND id = %s FOR UPDATE"  # noqa: S608
    rows = mysql.query(connection, sql, (job.task, parcel.chunk))
    if not rows or rows[0][0] == ChunkState.PLANNED.value:
        raise ChunkGone(str(parcel.shard), parcel.number)
    return bool(rows[0][0] == ChunkState.DUMPED.value)


def _mark(connection: Connection, job: LoadJob, parcel: Parcel, state: ChunkState, rows: int) -> None:
    sql = (
        f"UPDATE {job.chunk_table} SET state = %s, loaded_rows = %s, updated_at = UTC_TIMESTAMP(6)"  # noqa: S608
        " WHERE task = %s AND id = %s"
    )
    mysql.query(connection, sql, (state.value, rows, job.task, parcel.chunk))


def _time(connection: Connection, job: LoadJob, parcel: Parcel, millis: int) -> None:
    sql = f"UPDATE {job.pace_table} SET loaded_at = UTC_TIMESTAMP(6), load_millis = %s WHERE task = %s AND id = %s"  # noqa: S608
    mysql.query(connection, sql, (millis, job.task, parcel.chunk))


def _write(connection: Connection, job: LoadJob, parcel: Parcel, own: OtherChunks, batch: pa.RecordBatch) -> Loaded:
    plan, ledger = own.plan, Ledger(job.meta_schema, job.task, Found.LOAD)
    values = convert(plan, batch.columns)
    lines, blank = lines_of(values), blank_rows(plan.destination.columns, values)
    rows = Lines(plan.destination, Mode.PLAIN, lines, blank, [parcel.shard] * len(lines))
    unique = unique_keys(job.targets[parcel.target])
    writes = Writes(parcel.target, [rows], unique, Collisions(job.on_duplicate.value), diverts=job.diverts)
    left: list[Awaited] = []

    def write(some: Writes) -> Loaded:
        done, kept_back = write_or_leave(connection, job.writer.server, some, ledger, own.among)
        left.extend(kept_back)
        return done

    try:
        loaded, diverted = without_refused(connection, writes, write, MOST_DIVERTED)
    except Collision as error:
        raise LoadCollision(error.target, error.key, error.shard, error.owner, error.condition) from error
    note(connection, job.row_error_table, job.task, own.key, diverted)
    leave(connection, job.awaited_table, job.task, parcel.target, own.key, left)
    return loaded


def in_order(parcels: Iterable[Parcel]) -> Iterator[Parcel]:
    """Order chunks by number, then shard: neighbours go to different tables where there are several."""
    yield from sorted(parcels, key=lambda parcel: (parcel.number, parcel.shard))
