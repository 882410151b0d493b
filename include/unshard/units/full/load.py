"""Load the dumped chunks of a source into the target tables, and hand over to the windows.

Runs in the driver; executors load the chunks (loadchunks). Each chunk is one transaction that also changes the chunk's
state, so a load may be killed and repeated at any time, and its progress never decreases. The task's `on-duplicate`
decides about a key that two shards have. A collision is reported and recorded with the key and both shards. Once one of
the rows is deleted from its shard, the next call reads that shard again and continues.

| process dies                       | what happens                                                        |
|------------------------------------|---------------------------------------------------------------------|
| while chunks are loaded            | those that are not `loaded` are loaded                              |
| while a shard is read again        | see the table below                                                 |
| after the last, before the phase   | only late indexes are left (see below)                              |
| after the phase, files still exist | a repeated call, or the handover, removes them                      |
| in the handover                    | existing checkpoints stay, the missing ones are created             |

To resolve a collision of the load, the shards are read again in which the colliding row is gone. The binlog cannot
correct the dumped rows here: a DELETE after P0 would also delete the other shard's row. So the loaded rows of such a
shard are removed from the target, by the chunks' files, and the shard is read again, whole, in one snapshot. The binlog
counts for it only from there (its `start`), as for a table without a key. Files of the dump stay until the handover for
this.

| process dies                     | what happens                                                              |
|----------------------------------|---------------------------------------------------------------------------|
| while rows are removed           | a chunk's rows and its state are one transaction; the others follow       |
| before the new chunk is dumped   | the shard has a planned chunk after the dump: it is read again            |
| before it is loaded              | the collision is still open, the row still gone: it is read again         |
| before the collision is closed   | the same                                                                  |

A large empty target is loaded without its non-unique secondary indexes, which are created at the end. Maintaining such
an index row by row costs more than writing the row, and two writers of one table wait for each other at its pages. A
server without such pages (TiDB) is loaded with all indexes: `keeps_pages` tests for this property, not for the server's
name. The dropped indexes are recorded first. A call that finds such a record and no row left to load creates the
missing indexes.

| process dies                   | what happens                                                          |
|--------------------------------|-----------------------------------------------------------------------|
| after the record, before DROP  | the table has its indexes: the load is slower, the record is removed at the end |
| after DROP, in the load        | the next load continues; its end, or the handover, creates them       |
| while the server creates them  | its session holds the guard; the handover waits for it, then checks the indexes |
| after that, before the record is removed | nothing is missing; the record is removed                   |

No window begins before the handover, so no DDL of a shard is executed on a target without its indexes.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from unshard.adapters import mysql, serverstate
from unshard.adapters.meta.taskrecords import load_of
from unshard.adapters.spark import map_items
from unshard.adapters.structures import has_rows, keeps_pages, read_schema
from unshard.core import codec
from unshard.core.ddl.queue import ShardState
from unshard.core.full.lateindexes import LateIndex, add_statement, drop_statement, late_indexes, missing_indexes
from unshard.core.model import Location, Shard, TableId
from unshard.core.rows.rowerrors import Found, KeyCollision, RowErrors
from unshard.core.task.state import Chunk, ChunkState, Phase
from unshard.core.window.suspension import Refusal
from unshard.errors.ddl import DdlStillRunning
from unshard.errors.full import LoadCollision, LoadRefused, NotDumped, NotLoaded
from unshard.errors.locks import JoinChanged
from unshard.errors.meta import FinishedElsewhere, StoredFileMissing
from unshard.errors.source import StatementRefused, TableMissing
from unshard.units.ddl.execute import LOCK_WAIT_SECONDS, target_guard
from unshard.units.full.dump import dump_again, dump_folder, refuse_left
from unshard.units.full.keyowners import name_owners, shard_has_key, stopped_by
from unshard.units.full.loadchunks import LoadBatch, LoadJob, load_one_batch, unload_batch
from unshard.units.full.snapshot import check_recorded_alike
from unshard.units.full.targets import by_filled_keys, refuse_engines, reshaped_by
from unshard.units.rows.joinedrows import joined_rows
from unshard.units.work import Work

MAKING_SECONDS = 6 * 3600
"""Time that the handover waits for a session that creates the indexes and whose client died."""
NEEDED_BY_FOREIGN_KEY = 1553


def postpone_indexes(work: Work, source: str) -> None:
    """Record and drop the late indexes of those targets of a source that are empty and will be large."""
    states = work.meta.sources.all()
    if any(state.phase is Phase.SYNC for state in states):
        return
    own = {shard.target for shard in work.meta.structures.shards(source)}
    noted = work.meta.late_indexes.all()
    for target, (rows, _) in work.meta.chunks.totals().items():
        if target in own and target not in noted and rows >= work.limits.late_rows:
            _postpone(work, target)


def make_late_indexes(work: Work, seconds: int = 0) -> None:
    """Create the indexes of all targets with no row left to load; wait up to `seconds` for another session that does
    so.
    """
    noted = work.meta.late_indexes.all()
    if not noted or not _are_dumped(work):
        return
    totals = work.meta.chunks.totals()
    for target, indexes in noted.items():
        if not totals.get(target, (0, 0))[1]:
            _make(work, target, indexes, seconds)


def make_all(work: Work, seconds: int) -> None:
    """Create the indexes of all targets, also of those with rows left to load: no later call creates them."""
    for target, indexes in work.meta.late_indexes.all().items():
        with contextlib.suppress(TableMissing):
            _make(work, target, indexes, seconds)


def _are_dumped(work: Work) -> bool:
    phases = {state.source: state.phase for state in work.meta.sources.all()}
    return all(phases.get(source, Phase.NEW).order >= Phase.DUMPED.order for source in work.task.sources)


def _postpone(work: Work, target: TableId) -> None:
    with work.target_connection() as connection, target_guard(connection, target):
        if not keeps_pages(connection) or has_rows(connection, target):
            return
        indexes = late_indexes(read_schema(connection, target))
        if not indexes or target in work.meta.late_indexes.all():
            return
        work.meta.late_indexes.note(target, indexes)
        serverstate.limit_ddl_wait(connection, LOCK_WAIT_SECONDS)
        mysql.plain_mode(connection)
        try:
            mysql.query(connection, drop_statement(target, indexes))
        except StatementRefused as error:
            if error.errno != NEEDED_BY_FOREIGN_KEY:
                raise
            log.info("indexes kept table=%s: a foreign key needs one", target)


def _make(work: Work, target: TableId, indexes: tuple[LateIndex, ...], seconds: int) -> None:
    with work.target_connection() as connection, contextlib.ExitStack() as stack:
        try:
            stack.enter_context(target_guard(connection, target, seconds))
        except DdlStillRunning:
            if seconds:
                raise
            return
        if absent := missing_indexes(read_schema(connection, target), indexes):
            log.info("creating indexes table=%s indexes=%s", target, ", ".join(index.name for index in absent))
            mysql.plain_mode(connection)
            mysql.query(connection, add_statement(target, absent))
        work.meta.late_indexes.forget(target)


def reread_mended(work: Work, source: str, job_of: Callable[[str], LoadJob]) -> None:
    """Read the shards again that a collision requires, of this source and of the loaded sources."""
    found = work.meta.collisions.of_load(source)
    if not found and not any(_unfinished(work, source)):
        return
    collisions = [each.collision for each in found]
    states = {state.shard: state for state in work.meta.structures.shards()}
    owners = {collision.owner.source for collision in collisions if collision.owner}
    # An earlier attempt has begun to read the unfinished ones again.
    begun = {chunk.shard for each in {source, *owners} for chunk in _unfinished(work, each)}
    shards = {*_changed(work, collisions, states), *begun}

    for shard in sorted(shards):
        if _may_be_read(work, shard, source):
            _reread(work, states[shard], job_of(shard.source))
    gone = [collision for collision in collisions if shards & {collision.shard, collision.owner}]
    work.meta.collisions.close(gone)


def _changed(work: Work, collisions: Iterable[KeyCollision], states: dict[Shard, ShardState]) -> Iterator[Shard]:
    for collision in collisions:
        for shard in (collision.shard, collision.owner):
            if shard in states and collision.condition and not shard_has_key(work, states[shard], collision):
                yield shard


def _unfinished(work: Work, source: str) -> list[Chunk]:
    state = work.meta.sources.get(source)
    if state is None or not Phase.DUMPED.order <= state.phase.order <= Phase.LOADED.order:
        return []
    done = {ChunkState.LOADED} if state.phase is Phase.LOADED else {ChunkState.LOADED, ChunkState.DUMPED}
    return [chunk for chunk in work.meta.chunks.of(source) if chunk.state not in done]


def _may_be_read(work: Work, shard: Shard, source: str) -> bool:
    """Whether a shard may be read again: windows repair their own rows, and a loading source reads its own shards."""
    state = work.meta.sources.get(shard.source)
    return shard.source == source or (state is not None and state.phase is Phase.LOADED)


def _reread(work: Work, state: ShardState, job: LoadJob) -> None:
    log.warning("shard is read again because of a collision shard=%s", state.shard)
    shard, threads = state.shard, work.task.instance(state.shard.source).load.threads
    _run(work, partial(unload_batch, job), _batches_of(work, state, ChunkState.LOADED), threads)
    old = work.meta.chunks.begin_anew(shard, state.target)
    for chunk in (chunk for chunk in old if chunk.path):
        work.storage.delete(chunk.path)
    dump_again(work, state)
    _run(work, partial(load_one_batch, job), _batches_of(work, state, ChunkState.DUMPED), threads)


def _batches_of(work: Work, state: ShardState, wanted: ChunkState) -> list[str]:
    chunks = [chunk for chunk in work.meta.chunks.of(state.shard.source) if chunk.shard == state.shard]
    return [codec.dumps(LoadBatch.of(chunk, state.structure)) for chunk in chunks if chunk.state is wanted]


def _run(work: Work, function: "partial[Iterable[str]]", items: list[str], threads: int) -> None:
    for _ in map_items(work.bulk_spark(), function, items, threads):
        pass


log = logging.getLogger(__name__)
NAMED_REFUSALS = 5


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The loaded rows of a source."""

    source: str
    chunks: int
    rows: int


@dataclass(frozen=True, slots=True)
class HandoverReport:
    """The location where the windows of each source begin; empty for a task that ends with the load."""

    checkpoints: tuple[tuple[str, Location], ...]


def load(work: Work, source: str) -> LoadReport:
    """Load the remaining chunks and remove the dump's files; idempotent."""
    work.meta.pauses.refuse()
    state = work.meta.sources.get(source)
    if state is None or state.phase.order < Phase.DUMPED.order:
        raise NotDumped(source)
    if state.phase.order < Phase.LOADED.order:
        with work.meta.active_workers.at(load_of(source)), _or_finished_elsewhere(work, source):
            _load_chunks(work, source)
            make_late_indexes(work)
        work.meta.collisions.mend(source)
        work.meta.sources.set_phase(source, Phase.LOADED)
    _remove_files(work)
    chunks = work.meta.chunks.of(source)
    return LoadReport(source, len(chunks), sum(chunk.loaded_rows for chunk in chunks))


@contextlib.contextmanager
def _or_finished_elsewhere(work: Work, source: str) -> Iterator[None]:
    """Tell a file that another run has removed after its load from a file that is lost."""
    try:
        yield
    except StoredFileMissing as error:
        state = work.meta.sources.get(source)
        if state is not None and state.phase.order >= Phase.LOADED.order:
            raise FinishedElsewhere(source, "the load", error.message) from error
        raise


def handover(work: Work) -> HandoverReport:
    """Let the windows of all sources begin at P0; idempotent."""
    work.meta.pauses.refuse()
    states = {source: work.meta.sources.get(source) for source in work.task.sources}
    late = [source for source, state in states.items() if state is None or state.phase.order < Phase.LOADED.order]
    if late:
        raise NotLoaded(", ".join(late))
    make_late_indexes(work, MAKING_SECONDS)
    _remove_files(work)
    if not work.task.task_mode.syncs:
        return HandoverReport(())
    made = []
    for source, state in states.items():
        assert state is not None and state.snapshot is not None
        made.append((source, work.meta.checkpoints.start(source, state.snapshot, state.snapshot_gtid).location))
    return HandoverReport(tuple(made))


def _remove_files(work: Work) -> None:
    """Remove the dump's files once every source is loaded; before that, a collision may need them."""
    states = [work.meta.sources.get(source) for source in work.task.sources]
    is_loaded = all(state is not None and state.phase.order >= Phase.LOADED.order for state in states)
    if work.task.clean_dump_file and is_loaded:
        for source in work.task.sources:
            work.storage.delete_folder(dump_folder(source))


def _load_chunks(work: Work, source: str) -> None:
    if not work.task.task_mode.loads:
        refuse_left(work, source)
        return
    check_recorded_alike(work, source)
    job = job_of(work, source)
    refuse_engines(job.targets)
    try:
        reread_mended(work, source, partial(job_of, work))
        _load_dumped(work, source, job)
    except LoadCollision as error:
        raise stopped_by(work, error, Found.LOAD) from error
    name_owners(work, source)


def in_order(batches: Iterable[LoadBatch]) -> list[LoadBatch]:
    """Order chunks by number, then shard: then neighbours go to different tables if there are several."""
    return sorted(batches, key=lambda each: (each.number, each.shard))


def _load_dumped(work: Work, source: str, job: LoadJob) -> None:
    batches = [*map(codec.dumps, in_order(_batches(work, source)))]
    if not batches:
        return
    postpone_indexes(work, source)
    threads = work.task.instance(source).load.threads
    try:
        answers = [*map_items(work.bulk_spark(), partial(load_one_batch, job), batches, threads)]
    except JoinChanged as error:
        log.info("load continues with the present columns source=%s: %s", source, error)
        _load_dumped(work, source, job_of(work, source))
        return
    refused = [codec.loads(Refusal, text) for text in answers]
    for refusal in refused:
        log.warning("target %s stops the load of source %s: %s", refusal.target, source, refusal.error)
    if len(refused) == 1:
        raise refused[0].error
    if refused:
        targets = sorted({str(refusal.target) for refusal in refused})
        named = "; ".join(str(refusal.error) for refusal in refused[:NAMED_REFUSALS])
        raise LoadRefused(source, ", ".join(targets), len(refused), named)


def _batches(work: Work, source: str) -> Iterator[LoadBatch]:
    structures = {state.shard: state.structure for state in work.meta.structures.shards(source)}
    for chunk in work.meta.chunks.of(source):
        if chunk.state is ChunkState.DUMPED:
            yield LoadBatch.of(chunk, structures[chunk.shard])


def job_of(work: Work, source: str) -> LoadJob:
    """Return the properties that all chunks of a source share."""
    shards = work.meta.structures.shards(source)
    schemas = work.structures({state.structure for state in shards})
    joined = joined_rows(work, {state.target for state in shards}, {state.shard for state in shards})
    present = work.target_schemas({state.target for state in shards})
    reshapings = reshaped_by(work, source, (state.shard for state in shards))
    behind = work.meta.locks.behind({state.shard for state in shards})
    return LoadJob(
        source=source,
        writer=work.writer(),
        meta_schema=work.task.meta_schema,
        task=work.task.name,
        storage=work.storage,
        on_duplicate=work.task.instance(source).load.on_duplicate,
        schemas=schemas,
        targets=by_filled_keys(present, shards, schemas, behind, reshapings, joined),
        joined=joined,
        reshapings=reshapings,
        filters=work.task.options.filter_load,
        time_zone=work.task.timezone,
        diverts=work.task.options.row_errors is RowErrors.DIVERT,
        behind=behind,
    )
