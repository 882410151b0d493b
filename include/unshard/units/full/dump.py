"""Dump the rows of a source's shards, chunk by chunk, into Parquet files below the storage path.

Runs in the driver; executors read the chunks (dumpchunks). Bounds are planned once and stored. Executors read the
chunks and mark each one as dumped themselves, so a killed job loses only the chunks that it was reading. Each attempt
writes files with its own names: if two executors read one chunk, only the executor that marks it keeps its file.

Tables with a key are read in chunks at different moments, and the binlog from P0 on repairs the differences. For tables
with several unique keys that works only where the load can leave rows to the binlog (`_leaves_rows`,
units/full/loadchunks.py). Three kinds of tables are one chunk in one snapshot: a table that the binlog cannot repair,
for example because its target has another key; a table with several unique keys that one chunk holds; every table of a
task that ends with the load or asks for snapshots. The location of that snapshot is stored in the file and becomes the
shard's `start` before the source's phase is `dumped`.

| process dies                      | what happens                                                         |
|-----------------------------------|----------------------------------------------------------------------|
| while planning                    | shards without chunks are planned                                    |
| while a chunk is read             | its file has no name yet; the chunk is read again                    |
| after the file, before the mark   | the file stays unused until the folder goes; the chunk is read again |
| after all marks, before the phase | structures, starts and P1 are taken again: P1 only gets later        |
| in a restart, chunks cleared      | the phase is still `snapshot`: shards without chunks are planned     |

If a structure changes meanwhile, the dump starts again from a new snapshot; nothing is loaded yet at that time.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from unshard.adapters import structures, upstream
from unshard.adapters.meta.taskrecords import dump_of
from unshard.adapters.spark import map_items
from unshard.adapters.target.fencesteps import bounds_of
from unshard.config import Consistency, OnDuplicate
from unshard.core import codec
from unshard.core.ddl.queue import ShardState
from unshard.core.full.chunks import (
    Key,
    finds_alike,
    is_chunked,
    may_leave_rows,
    pack_key,
    ranges_between,
    walked_columns,
)
from unshard.core.full.fullprogress import weights
from unshard.core.model import Location, Shard, TableId, TableSchema, shape_of
from unshard.core.rows.writepath import LoadData
from unshard.core.task.state import Chunk, ChunkState, Phase
from unshard.errors.full import ConditionChanged, DumpLeft, NoSnapshot, StructureChanged
from unshard.units.full.dumpchunks import DumpJob, DumpPiece, dump_piece, origin_of, plan_bounds
from unshard.units.full.snapshot import present_schemas, retake_snapshot
from unshard.units.full.targets import by_filled_keys, reshaped_by, without_refused_indexes
from unshard.units.rows.joinedrows import joined_rows
from unshard.units.work import Work

log = logging.getLogger(__name__)

ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class DumpReport:
    """The dumped rows of a source."""

    source: str
    chunks: int
    rows: int
    bytes: int
    end: Location | None
    """P1: the binlog location when the last chunk had been read."""


def dump(work: Work, source: str) -> DumpReport:
    """Dump the remaining chunks and record P1; idempotent."""
    work.meta.pauses.refuse()
    state = work.meta.sources.get(source)
    if state is None or state.phase.order < Phase.SNAPSHOT.order:
        raise NoSnapshot(source)
    if state.phase.order < Phase.DUMPED.order:
        with work.meta.active_workers.at(dump_of(source)):
            # The condition of the task file is that of the dump as long as no row is read.
            if all(chunk.state is ChunkState.PLANNED for chunk in work.meta.chunks.of(source)):
                work.meta.conditions.put(source, work.task.instance(source).dump.where)
            _dump_steadily(work, source)
    return _report(work, source)


def dump_folder(source: str) -> str:
    """Return the folder of a source's dump, relative to the storage."""
    return f"dump/{source}"


def refuse_left(work: Work, source: str) -> None:
    """Raise if another task-mode has left rows that this one would never load."""
    if any(chunk.state is not ChunkState.LOADED for chunk in work.meta.chunks.of(source)):
        raise DumpLeft(source)


def _dump_steadily(work: Work, source: str) -> None:
    if not work.task.task_mode.dumps:
        refuse_left(work, source)
        work.meta.sources.set_phase(source, Phase.DUMPED)
        return
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _dump_once(work, source)
            return
        except StructureChanged as error:
            if attempt == ATTEMPTS:
                raise
            _start_anew(work, source, error)


def _start_anew(work: Work, source: str, error: StructureChanged) -> None:
    if any(chunk.state is ChunkState.LOADED for chunk in work.meta.chunks.of(source)):
        raise error
    log.warning("dump starts again source=%s: %s", source, error)
    work.meta.chunks.clear(source)
    work.storage.delete_folder(dump_folder(source))
    retake_snapshot(work, source)


def _dump_once(work: Work, source: str) -> None:
    shards = work.meta.structures.shards(source)
    schemas = work.structures({state.structure for state in shards})
    job = _job(work, source, schemas)
    chunks = _planned(work, job, shards)
    planned = [chunk for chunk in chunks if chunk.state is ChunkState.PLANNED]
    pieces = [*_pieces(work, source, planned, shards, schemas)]
    threads = work.task.instance(source).dump.threads
    if pieces:
        for _ in map_items(work.bulk_spark(), partial(dump_piece, job), [*map(codec.dumps, pieces)], threads):
            pass
    end = _end(work, source, shards, schemas)
    _set_starts(work, source)
    work.meta.sources.set_phase(source, Phase.DUMPED, dump_end=end)


def dump_again(work: Work, state: ShardState) -> None:
    """Read a shard whose chunks were reset, whole and in one snapshot, which becomes its `start`."""
    source, schemas = state.shard.source, work.structures({state.structure})
    planned = [c for c in work.meta.chunks.of(source) if c.shard == state.shard and c.state is ChunkState.PLANNED]
    pieces = [DumpPiece(chunk.id, state.shard.table, state.structure, None, None, whole=True) for chunk in planned]
    for _ in map_items(
        work.bulk_spark(), partial(dump_piece, _job(work, source, schemas)), [*map(codec.dumps, pieces)], 1
    ):
        pass
    _end(work, source, [state], schemas)
    _set_starts(work, source)


def _job(work: Work, source: str, schemas: dict[str, TableSchema]) -> DumpJob:
    options, known = work.task.instance(source).dump, work.meta.conditions.get(source)
    if options.where != known:
        raise ConditionChanged(source, known or "TRUE", options.where or "TRUE")
    if options.rate:
        work.meta.rates.begin(source)
    return DumpJob(
        source,
        work.sources[source],
        work.target,
        work.task.meta_schema,
        work.task.name,
        work.storage,
        dump_folder(source),
        _chunk_rows(work, options.chunk_rows),
        schemas,
        options.rate,
        options.consistency is Consistency.LOCK,
        options.where,
        options.where_place,
        *_most(work),
    )


def _most(work: Work) -> tuple[int, int]:
    """Return how many rows and bytes a file may have: it is loaded in one transaction, which TiDB limits; 0: any."""
    writer = work.writer()
    bounds = bounds_of(writer)
    return (0, 0) if writer.load_data is LoadData.TRANSACTIONAL else (bounds.rows, bounds.bytes)


def _chunk_rows(work: Work, wanted: int) -> int:
    most, _ = _most(work)
    return min(wanted, most) if most else wanted


def _planned(work: Work, job: DumpJob, shards: Sequence[ShardState]) -> tuple[Chunk, ...]:
    have = {chunk.shard for chunk in work.meta.chunks.of(job.source)}
    new = [state for state in shards if state.shard not in have]
    walked = _walked(work, job, new)
    bounds = dict(_walk(work, job, walked))
    with work.source_connection(job.source) as connection:
        sizes = structures.table_sizes(connection, [state.shard.table for state in new])
    chunks = [chunk for state in new for chunk in _chunks(state, bounds.get(state.shard, ()), sizes[state.shard.table])]
    return work.meta.chunks.plan(job.source, chunks)


def _walked(work: Work, job: DumpJob, shards: Sequence[ShardState]) -> list[ShardState]:
    if job.chunk_rows <= 0 or not _is_repaired(work, job.source):
        return []
    keyed = [state for state in shards if walked_columns(job.schemas[state.structure])]
    targets = _targets(work, job.source, keyed, job.schemas)
    chunked = {state.shard for state in keyed if _is_chunked(state, job.schemas, targets)}
    several = [state for state in keyed if state.shard not in chunked]
    left = _leaves_rows(work, job, several, targets) if several else frozenset()
    return [state for state in keyed if state.shard in chunked | left]


def _targets(
    work: Work, source: str, shards: Sequence[ShardState], schemas: Mapping[str, TableSchema]
) -> dict[TableId, TableSchema]:
    """Return the targets' structures, in which only keys count that the shards fill."""
    joined = joined_rows(work, {state.target for state in shards}, {state.shard for state in shards})
    present = work.target_schemas({state.target for state in shards})
    behind = work.meta.locks.behind({state.shard for state in shards})
    reshapings = reshaped_by(work, source, (state.shard for state in shards))
    return by_filled_keys(present, shards, schemas, behind, reshapings, joined)


def _is_chunked(state: ShardState, schemas: Mapping[str, TableSchema], targets: Mapping[TableId, TableSchema]) -> bool:
    """Whether chunks of the shard may be read at different times."""
    schema = schemas[state.structure]
    return is_chunked(schema) and finds_alike(schema, targets[state.target])


def _leaves_rows(
    work: Work, job: DumpJob, shards: Sequence[ShardState], targets: Mapping[TableId, TableSchema]
) -> frozenset[Shard]:
    """Return the shards whose rows can be left to the binlog: it has whole rows, and all their changes are applied.

    With the policies to replace or to ignore, rows of the shard itself are not distinguished from rows of others.
    """
    instance = work.task.instance(job.source)
    with work.source_connection(job.source) as connection:
        logs_whole_rows = upstream.inspect(connection, job.source).binlog_row_image.upper() == "FULL"
    if not logs_whole_rows or instance.load.on_duplicate is not OnDuplicate.ERROR:
        return frozenset()
    return frozenset(
        state.shard
        for state in shards
        if instance.routing.reshaping(state.shard.table).keeps_rows
        and may_leave_rows(job.schemas[state.structure], targets[state.target])
    )


def _is_repaired(work: Work, source: str) -> bool:
    """Whether the binlog repairs the differences between chunks that were read at different moments."""
    return work.task.task_mode.syncs and work.task.instance(source).dump.consistency is Consistency.AUTO


def _walk(work: Work, job: DumpJob, shards: Sequence[ShardState]) -> Iterator[tuple[Shard, tuple[Key, ...]]]:
    """Find the bounds of several tables at a time, on threads: the servers do the work, and a Spark job costs more."""
    with ThreadPoolExecutor(work.task.instance(job.source).dump.threads, thread_name_prefix="walk") as pool:
        tables = pool.map(lambda state: plan_bounds(job, state.shard.table, state.structure), shards)
        yield from zip((state.shard for state in shards), tables, strict=True)


def _chunks(state: ShardState, bounds: Sequence[Key], size: int) -> Iterable[Chunk]:
    spans = ranges_between(bounds)
    for number, (span, weight) in enumerate(zip(spans, weights(size, len(spans)), strict=True), 1):
        yield Chunk(0, state.shard, state.target, number, pack_key(span.lower), pack_key(span.upper), weight=weight)


def _pieces(
    work: Work, source: str, chunks: Sequence[Chunk], shards: Sequence[ShardState], schemas: dict[str, TableSchema]
) -> Iterator[DumpPiece]:
    states = {state.shard: state for state in shards}
    targets = _targets(work, source, shards, schemas) if chunks and _is_repaired(work, source) else None
    for chunk in chunks:
        state, is_cut = states[chunk.shard], chunk.lower is not None or chunk.upper is not None
        whole = not is_cut and (targets is None or not _is_chunked(state, schemas, targets))
        yield DumpPiece(chunk.id, chunk.shard.table, state.structure, chunk.lower, chunk.upper, whole)


def _end(work: Work, source: str, shards: Sequence[ShardState], schemas: dict[str, TableSchema]) -> Location:
    """Return P1, after the check that every shard still has the structure that it was read with."""
    with work.source_connection(source) as connection:
        _, seen = present_schemas(connection, work.task.instance(source))
        present = without_refused_indexes(work, seen)
        for state in shards:
            found = present.get(state.shard.table)
            if found is None or found.shape != shape_of(state.structure):
                raise StructureChanged(str(state.shard))
        return upstream.location(connection, source)


def _set_starts(work: Work, source: str) -> None:
    """Set the shards' `start`, so that windows skip changes that snapshots of single tables contain.

    A process that was considered dead may have read a chunk with the condition that the task file had before. With
    foreign keys, windows skip only what they cannot repeat: a change of a parent also changes rows of other tables.
    """
    condition = work.meta.conditions.get(source)
    repeated = _repeated(work, source) if work.task.checks_foreign_keys else frozenset()
    for chunk in work.meta.chunks.of(source):
        if not chunk.path or not work.storage.exists(chunk.path):
            continue
        start, where = origin_of(work.storage, chunk.path)
        if where != condition:
            raise ConditionChanged(source, where or "TRUE", condition or "TRUE")
        if start is not None and chunk.shard not in repeated:
            work.meta.structures.set_start(chunk.shard, start)


def _repeated(work: Work, source: str) -> frozenset[Shard]:
    """Return the shards whose changes can be applied again, because their rows have a key."""
    states = work.meta.structures.shards(source)
    schemas = work.structures({state.structure for state in states})
    return frozenset(state.shard for state in states if schemas[state.structure].key)


def _report(work: Work, source: str) -> DumpReport:
    chunks = work.meta.chunks.of(source)
    state = work.meta.sources.get(source)
    return DumpReport(
        source,
        len(chunks),
        sum(c.rows for c in chunks),
        sum(c.bytes for c in chunks),
        state.dump_end if state else None,
    )
