"""Load one dumped chunk in one transaction of the target. Runs in executors.

The transaction begins by locking the chunk's row in the meta tables and ends by changing it to `loaded`. So the
rows of a chunk are in the target exactly when its state is `loaded`. The same transaction records the rows that are
left to the binlog (units/full/loadchunks.py).

| process dies                  | what happens                                                        |
|-------------------------------|---------------------------------------------------------------------|
| before COMMIT                 | the server rolls back; the chunk is loaded again                    |
| in COMMIT, the answer is lost | a new connection reads the chunk's state: `loaded` means done       |
| hangs, while another loads it | the other waits for the row's lock, then finds the chunk loaded     |

Find which keys of the target other chunks of the same shard have loaded, by the chunks' files. Runs in executors.

A shard with several unique keys is also cut into chunks (units/full/dump.py). If a value moves between two of its rows
during the dump, the load leaves one of the rows to the binlog (adapters.target.chunk.deferred), which has a change of
both before the end of safe mode. That is true only for rows of one shard, so the shard's own files show which rows are
its own.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.meta import Meta, MetaReader
from unshard.adapters.parquet import Storage
from unshard.adapters.serverstate import limit_row_wait
from unshard.adapters.target import (
    Ledger,
    Lines,
    Loaded,
    Mode,
    Writer,
    Writes,
    chunkprogress,
    open_session,
    write_or_defer,
)
from unshard.adapters.target.deferring import record
from unshard.adapters.target.deletes import delete_keys, remove_rows
from unshard.adapters.target.diverting import MAX_DIVERTED, note, without_refused
from unshard.adapters.target.evaluator import ExpressionEvaluator
from unshard.adapters.target.fence import Pair, hold_version, prepare_fence, record_write
from unshard.adapters.target.sending import blank_rows
from unshard.adapters.target.session import repeated
from unshard.adapters.target.targetrows import DeferredRow
from unshard.config import OnDuplicate
from unshard.core import codec
from unshard.core.full.chunks import is_chunked, unpack_key, walked_columns
from unshard.core.join.places import JoinedRows
from unshard.core.model import Column, Shard, TableId, TableSchema
from unshard.core.rows.compaction import Collisions
from unshard.core.rows.rowerrors import Found
from unshard.core.rules.reshaping import AS_IT_IS, Reshaping
from unshard.core.sql.literals import INTEGERS
from unshard.core.structures.tablekeys import unique_keys
from unshard.core.task.state import Chunk, ChunkState
from unshard.core.window.suspension import ABOUT_ONE_TARGET, refusal_of
from unshard.errors.base import ServerError
from unshard.errors.full import ChunkGone, LoadCollision
from unshard.errors.rows import Collision
from unshard.units.full.dumpchunks import meta_of
from unshard.units.rows.batchruns import key_of_rows
from unshard.units.rows.conversion import Behind, Conversion, conversion, conversion_by_ids, convert
from unshard.units.rows.shuffle import encode

Key = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class OtherChunks:
    """The loaded chunks of a shard except one: they were read at other moments."""

    meta: MetaReader
    storage: Storage
    shard: Shard
    chunk: int
    structure: TableSchema
    plan: Conversion

    @property
    def key(self) -> tuple[Column, ...]:
        return tuple(self.plan.fields[number].column for number in self.plan.key)

    def among(self, wanted: Collection[Key]) -> set[Key]:
        """Return the given keys of the target that these chunks have loaded."""
        if not wanted or not self.key or is_chunked(self.structure):
            return set()
        wanted_keys = [*wanted]
        columns = [pa.array(values, pa.binary()) for values in zip(*wanted_keys, strict=True)]
        keys = encode(self.key, columns)
        found = np.zeros(len(keys), bool)
        for chunk in self._loaded(_numbers(self.structure, self.key, columns)):
            for batch in self.storage.read_batches(chunk.path):
                matches = pc.is_in(keys, value_set=key_of_rows(batch.columns, self.plan))
                found |= matches.to_numpy(zero_copy_only=False)
        return {wanted_keys[place] for place in np.flatnonzero(found).tolist()}

    def _loaded(self, numbers: Sequence[int] | None) -> Iterator[Chunk]:
        """Yield the chunks that may hold one of the keys; a chunk's state is `loaded` exactly when its rows are in the
        target.
        """
        for chunk in self.meta.chunks.of(self.shard.source):
            is_other = chunk.shard == self.shard and chunk.id != self.chunk and chunk.state is ChunkState.LOADED
            if is_other and (numbers is None or any(_is_within(chunk, number) for number in numbers)):
                yield chunk


def _numbers(structure: TableSchema, key: Sequence[Column], columns: Sequence[pa.Array]) -> list[int] | None:
    """Return the keys' values of the column by which the shard is cut; None if a value is not a number."""
    first = walked_columns(structure)[0]
    place = next((n for n, column in enumerate(key) if column.name.lower() == first.name.lower()), None)
    if place is None or first.data_type not in INTEGERS:
        return None
    return [int(value) for value in columns[place].to_pylist()]


def _is_within(chunk: Chunk, number: int) -> bool:
    lower, upper = unpack_key(chunk.lower), unpack_key(chunk.upper)
    return (upper is None or number <= int(upper[0])) and (lower is None or int(lower[0]) <= number)


# --- one dumped chunk


log = logging.getLogger(__name__)

DUMPED = 0
"""Number of the DDL before dumped rows: none."""
LOCK_WAIT_SECONDS = 600
"""A chunk may wait for another one that holds rows or the AUTO_INCREMENT lock of the same table."""


@dataclass(frozen=True)
class LoadJob:
    """The properties that all chunks of a source share; sent to executors, including passwords."""

    source: str
    writer: Writer
    meta_schema: str
    task: str
    storage: Storage
    on_duplicate: OnDuplicate
    schemas: Mapping[str, TableSchema]
    targets: Mapping[TableId, TableSchema]
    reshapings: Mapping[TableId, Reshaping] = field(default_factory=dict)
    """The columns that the names of a shard fill or change."""
    behind: Behind = field(default_factory=dict)
    """DDL that the target has and that shards of a late source do not have."""
    joined: Mapping[TableId, JoinedRows] = field(default_factory=dict)
    """The ids of columns, for targets that follow the join of their shards."""
    filters: bool = False
    """Whether expression filters for inserts exclude rows of the load."""
    time_zone: str = "+00:00"
    diverts: bool = False
    """Whether rows that a target cannot take are diverted."""
    progress_seconds: float = 1.0
    """How often the written rows of a chunk are recorded."""

    @cached_property
    def row_error_table(self) -> str:
        return mysql.table_name(TableId(self.meta_schema, "row_error"))

    @cached_property
    def deferred_table(self) -> str:
        return mysql.table_name(TableId(self.meta_schema, "deferred_row"))

    def row_of(self, load_batch: "LoadBatch") -> chunkprogress.ChunkRow:
        return chunkprogress.ChunkRow(self.meta_schema, self.task, load_batch.chunk)

    def pair_of(self, load_batch: "LoadBatch") -> Pair:
        return Pair(self.meta_schema, self.task, load_batch.shard.source, load_batch.target)


@dataclass(frozen=True, slots=True)
class LoadBatch:
    """One dumped chunk to be loaded into the target."""

    chunk: int
    number: int
    shard: Shard
    target: TableId
    structure: str
    path: str

    @staticmethod
    def of(chunk: Chunk, structure: str) -> "LoadBatch":
        return LoadBatch(chunk.id, chunk.number, chunk.shard, chunk.target, structure, chunk.path)


def load_one_batch(job: LoadJob, item: str) -> Iterable[str]:
    """Load one chunk exactly once, even if called repeatedly; yield the error, as text, if its target cannot take it.

    Other chunks continue. A collision is raised: the shards must be asked which one has the row.
    """
    load_batch = codec.loads(LoadBatch, item)
    try:
        _repeated(job, load_batch, _load_once)
    except Collision:
        raise
    except ABOUT_ONE_TARGET as error:
        return (codec.dumps(refusal_of(load_batch.target, error)),)
    return ()


def unload_batch(job: LoadJob, item: str) -> Iterable[str]:
    """Remove the rows of a loaded chunk from the target, exactly once; yields nothing."""
    _repeated(job, codec.loads(LoadBatch, item), _unload_once)
    return ()


def _repeated(job: LoadJob, load_batch: LoadBatch, once: Callable[[Connection, LoadJob, LoadBatch], None]) -> None:
    def in_transaction() -> None:
        with contextlib.closing(open_session(job.writer)) as connection:
            limit_row_wait(connection, LOCK_WAIT_SECONDS)
            prepare_fence(connection, job.pair_of(load_batch))
            mysql.begin(connection)
            if (joined := job.joined.get(load_batch.target)) is not None:
                hold_version(connection, job.meta_schema, job.task, load_batch.target, joined.version)
            once(connection, job, load_batch)

    repeated(in_transaction)


def _load_once(connection: Connection, job: LoadJob, load_batch: LoadBatch) -> None:
    began = time.monotonic()
    if not _is_waiting(connection, job, load_batch):
        mysql.rollback(connection)
        return
    loaded, plan = Loaded(), _conversion(job, load_batch)
    meta = meta_of(job.writer.server, job.meta_schema, job.task)
    own = OtherChunks(meta, job.storage, load_batch.shard, load_batch.chunk, job.schemas[load_batch.structure], plan)
    told = began
    for batch in _batches(job, load_batch):
        loaded += _write(connection, job, load_batch, own, batch)
        if time.monotonic() - told >= job.progress_seconds:
            _tell(meta, load_batch, loaded)
            told = time.monotonic()
    millis = int(1000 * (time.monotonic() - began))
    chunkprogress.mark_loaded(connection, job.row_of(load_batch), loaded.sent - loaded.skipped, millis)
    record_write(connection, job.pair_of(load_batch))
    mysql.commit(connection)


def _tell(meta: Meta, load_batch: LoadBatch, loaded: Loaded) -> None:
    """Record the rows that are written so far, on another connection: they are not committed yet."""
    try:
        meta.chunks.advance(load_batch.chunk, loaded.sent - loaded.skipped)
    except ServerError as error:
        log.info("progress of a chunk is not recorded chunk=%s error=%s", load_batch.chunk, error.code)


def _batches(job: LoadJob, load_batch: LoadBatch) -> Iterator[pa.RecordBatch]:
    """Yield the chunk's rows without those that expression filters exclude from the load."""
    reshaping = job.reshapings.get(load_batch.shard.table, AS_IT_IS)
    rules = [rule for rule in reshaping.filters if rule.insert] if job.filters else []
    with contextlib.closing(ExpressionEvaluator(job.writer, job.meta_schema, job.time_zone)) as evaluator:
        for batch in job.storage.read_batches(load_batch.path):
            for rule in rules if batch.num_rows else ():
                dropped = evaluator.true_for(rule.name, rule.insert, job.schemas[load_batch.structure], batch.columns)
                batch = batch.filter(pa.array(~dropped))  # noqa: PLW2901
            if batch.num_rows:
                yield batch


def _unload_once(connection: Connection, job: LoadJob, load_batch: LoadBatch) -> None:
    if _is_waiting(connection, job, load_batch):
        mysql.rollback(connection)
        return
    plan = _conversion(job, load_batch)
    for batch in _batches(job, load_batch):
        _remove(connection, job.targets[load_batch.target], load_batch, plan, batch)
    chunkprogress.mark_dumped(connection, job.row_of(load_batch))
    record_write(connection, job.pair_of(load_batch))
    mysql.commit(connection)


def _conversion(job: LoadJob, load_batch: LoadBatch) -> Conversion:
    reshaping, behind = (
        job.reshapings.get(load_batch.shard.table, AS_IT_IS),
        job.behind.get((load_batch.shard, None), ()),
    )
    structure, present = job.schemas[load_batch.structure], job.targets[load_batch.target]
    if (joined := job.joined.get(load_batch.target)) is not None:
        into = load_batch.target, present
        return conversion_by_ids(load_batch.shard, DUMPED, structure, into, joined, reshaping)
    return conversion(load_batch.shard, structure, load_batch.target, present, behind, reshaping)


def _remove(
    connection: Connection, schema: TableSchema, load_batch: LoadBatch, plan: Conversion, batch: pa.RecordBatch
) -> None:
    values = convert(plan, batch.columns)
    if plan.key:
        columns = [plan.fields[number].column for number in plan.key]
        chosen = zip(*(values[number].to_pylist() for number in plan.key), strict=True)
        delete_keys(connection, load_batch.target, columns, [*chosen])
        return
    for line in plan.destination.lines(values).to_pylist():
        remove_rows(connection, plan.destination, schema, line, 1)


def _is_waiting(connection: Connection, job: LoadJob, load_batch: LoadBatch) -> bool:
    state = chunkprogress.lock_chunk(connection, job.row_of(load_batch))
    if state is None or state is ChunkState.PLANNED:
        raise ChunkGone(str(load_batch.shard), load_batch.number)
    return state is ChunkState.DUMPED


def _write(
    connection: Connection, job: LoadJob, load_batch: LoadBatch, own: OtherChunks, batch: pa.RecordBatch
) -> Loaded:
    plan, ledger = own.plan, Ledger(job.meta_schema, job.task, Found.LOAD)
    values = convert(plan, batch.columns)
    destination = plan.destination.in_form(job.writer.form)
    lines, blank = destination.lines(values), blank_rows(destination.columns, values)
    rows = Lines(destination, Mode.PLAIN, lines, blank, [load_batch.shard] * len(lines))
    unique = unique_keys(job.targets[load_batch.target])
    diverts = job.diverts and bool(plan.key)
    writes = Writes(load_batch.target, [rows], unique, Collisions(job.on_duplicate.value), diverts=diverts)
    left: list[DeferredRow] = []

    def write(some: Writes) -> Loaded:
        done, deferred = write_or_defer(connection, job.writer.server, some, ledger, own.among)
        left.extend(deferred)
        return done

    try:
        loaded, diverted = without_refused(connection, writes, write, MAX_DIVERTED)
    except Collision as error:
        raise LoadCollision(error.target, error.key, error.shard, error.owner, error.condition) from error
    note(connection, job.row_error_table, job.task, own.key, diverted)
    record(connection, job.deferred_table, job.task, load_batch.target, own.key, left)
    return loaded
