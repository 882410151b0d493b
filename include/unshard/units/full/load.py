"""Load the dumped chunks of a source into the target tables, and hand over to the windows.

Runs in the driver; executors load the chunks (loadchunks). Each chunk is one transaction that also changes the chunk's
state, so a load may be killed and repeated at any time, and its progress never decreases. The task's `on-duplicate`
decides about a key that two shards have. A collision is reported and recorded with the key and both shards. Once one of
the rows is deleted from its shard, the next call reads that shard again (units.full.reread) and continues.

| process dies                       | what happens                                                        |
|------------------------------------|---------------------------------------------------------------------|
| while chunks are loaded            | those that are not `loaded` are loaded                              |
| while a shard is read again        | see units.full.reread                                               |
| after the last, before the phase   | only late indexes are left (units/full/makeindexes.py)              |
| after the phase, files still exist | a repeated call, or the handover, removes them                      |
| in the handover                    | existing checkpoints stay, the missing ones are created             |
"""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from unshard.adapters.meta.activeworkers import load_of
from unshard.adapters.spark import map_items
from unshard.core import codec
from unshard.core.model import Location
from unshard.core.rows.rowerrors import Found, RowErrors
from unshard.core.task.state import ChunkState, Phase
from unshard.core.window.suspension import Refusal
from unshard.errors.full import LoadCollision, LoadRefused, NotDumped, NotLoaded
from unshard.errors.join import JoinChanged
from unshard.errors.meta import FinishedElsewhere, StoredFileMissing
from unshard.units.full.dump import dump_folder, refuse_left
from unshard.units.full.keyowners import name_owners, stopped_by
from unshard.units.full.loadchunks import LoadBatch, LoadJob, load_one_batch
from unshard.units.full.makeindexes import MAKING_SECONDS, make_late_indexes, postpone_indexes
from unshard.units.full.reread import reread_mended
from unshard.units.full.snapshot import check_recorded_alike
from unshard.units.full.targets import by_filled_keys, refuse_engines, reshaped_by
from unshard.units.rows.joinedrows import joined_rows
from unshard.units.work import Work

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


def _load_dumped(work: Work, source: str, job: LoadJob) -> None:
    # Neighbours in this order go to different tables, if there are several.
    batches = [*map(codec.dumps, sorted(_batches(work, source), key=lambda each: (each.number, each.shard)))]
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
