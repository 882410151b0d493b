"""Resolve a collision of the load: read again the shards in which the colliding row is gone. Runs in the driver.

The binlog cannot correct the dumped rows here: a DELETE after P0 would also delete the other shard's row. So the loaded
rows of such a shard are removed from the target, by the chunks' files, and the shard is read again, whole, in one
snapshot. The binlog counts for it only from there (its `start`), as for a table without a key. Files of the dump stay
until the handover for this.

| process dies                     | what happens                                                              |
|----------------------------------|---------------------------------------------------------------------------|
| while rows are removed           | a chunk's rows and its state are one transaction; the others follow       |
| before the new chunk is dumped   | the shard has a planned chunk after the dump: it is read again            |
| before it is loaded              | the collision is still open, the row still gone: it is read again         |
| before the collision is closed   | the same                                                                  |
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from unshard.adapters.spark import map_items
from unshard.core import codec
from unshard.core.ddl.queue import ShardState
from unshard.core.model import Shard
from unshard.core.rows.rowerrors import Clash
from unshard.core.task.state import Chunk, ChunkState, Phase
from unshard.units.full.dump import dump_again
from unshard.units.full.keyowners import has_row
from unshard.units.full.loadchunks import LoadBatch, LoadJob, load_one_batch, unload_batch
from unshard.units.work import Work

log = logging.getLogger(__name__)


def reread_mended(work: Work, source: str, job_of: Callable[[str], LoadJob]) -> None:
    """Read the shards again that a collision requires, of this source and of the loaded sources."""
    found = work.meta.collisions.of_load(source)
    if not found and not any(_unfinished(work, source)):
        return
    clashes = [each.clash for each in found]
    states = {state.shard: state for state in work.meta.structures.shards()}
    shards = {*_changed(work, clashes, states), *_begun(work, {source, *_owners(clashes)})}
    for shard in sorted(shards):
        if _may_be_read(work, shard, source):
            _reread(work, states[shard], job_of(shard.source))
    gone = [clash for clash in clashes if shards & {clash.shard, clash.owner}]
    work.meta.collisions.close(gone)


def _owners(clashes: Iterable[Clash]) -> set[str]:
    return {clash.owner.source for clash in clashes if clash.owner}


def _changed(work: Work, clashes: Iterable[Clash], states: dict[Shard, ShardState]) -> Iterator[Shard]:
    for clash in clashes:
        for shard in (clash.shard, clash.owner):
            if shard in states and clash.condition and not has_row(work, states[shard], clash):
                yield shard


def _begun(work: Work, sources: set[str]) -> Iterator[Shard]:
    for source in sources:
        yield from (chunk.shard for chunk in _unfinished(work, source))


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
    _run(work, partial(unload_batch, job), _batches(work, state, ChunkState.LOADED), threads)
    old = work.meta.chunks.begin_anew(shard, state.target)
    for chunk in (chunk for chunk in old if chunk.path):
        work.storage.delete(chunk.path)
    dump_again(work, state)
    _run(work, partial(load_one_batch, job), _batches(work, state, ChunkState.DUMPED), threads)


def _batches(work: Work, state: ShardState, wanted: ChunkState) -> list[str]:
    chunks = [chunk for chunk in work.meta.chunks.of(state.shard.source) if chunk.shard == state.shard]
    return [codec.dumps(LoadBatch.of(chunk, state.structure)) for chunk in chunks if chunk.state is wanted]


def _run(work: Work, function: "partial[Iterable[str]]", items: list[str], threads: int) -> None:
    for _ in map_items(work.bulk_spark(), function, items, threads):
        pass
