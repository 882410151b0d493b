"""A collision of the load is mended by reading anew the shards in which its row is gone.

What a dump has read cannot be corrected by the binlog here: a DELETE behind P0 would take the other shard's row
along with its own. So the rows that the load has of such a shard go out of the target again, by the files that
they came from, and the shard is read once more, whole, in one snapshot; the binlog counts for it only from
there (its `start`), as for a table without a key. Files of the dump stay until the handover for this.

| died                             | what happens                                                              |
|----------------------------------|---------------------------------------------------------------------------|
| while rows go out                | a chunk's rows and its state are one transaction; the others follow       |
| before the new chunk is dumped   | the shard has a planned chunk after the dump: it is read anew             |
| before it is loaded              | the collision is open still, the row gone still: it is read anew          |
| before the collision is closed   | the same                                                                  |
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from unshard.adapters.spark import map_items
from unshard.core.collision import Clash
from unshard.core.model import Shard
from unshard.core.progress import Chunk, ChunkState, Phase
from unshard.core.window import ShardState
from unshard.units.dump import dump_again
from unshard.units.loading import LoadJob, Parcel, load_parcel, unload_parcel
from unshard.units.owners import has_row
from unshard.units.work import Work

log = logging.getLogger(__name__)


def reread_mended(work: Work, source: str, job_of: Callable[[str], LoadJob]) -> None:
    """Read anew what a collision asks for, of this source and of those that are loaded already."""
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
    """Yield the shards that do not have the row any more with which they collided."""
    for clash in clashes:
        for shard in (clash.shard, clash.owner):
            if shard in states and clash.condition and not has_row(work, states[shard], clash):
                yield shard


def _begun(work: Work, sources: set[str]) -> Iterator[Shard]:
    """Yield the shards of which an earlier attempt has begun to read anew."""
    for source in sources:
        yield from (chunk.shard for chunk in _unfinished(work, source))


def _unfinished(work: Work, source: str) -> list[Chunk]:
    state = work.meta.sources.get(source)
    if state is None or not Phase.DUMPED.order <= state.phase.order <= Phase.LOADED.order:
        return []
    done = {ChunkState.LOADED} if state.phase is Phase.LOADED else {ChunkState.LOADED, ChunkState.DUMPED}
    return [chunk for chunk in work.meta.chunks.of(source) if chunk.state not in done]


def _may_be_read(work: Work, shard: Shard, source: str) -> bool:
    """Windows mend what they have written; a source whose load is under way sees to its own shards."""
    state = work.meta.sources.get(shard.source)
    return shard.source == source or (state is not None and state.phase is Phase.LOADED)


def _reread(work: Work, state: ShardState, job: LoadJob) -> None:
    log.warning("shard is read anew because of a collision shard=%s", state.shard)
    shard, threads = state.shard, work.task.instance(state.shard.source).load.threads
    _run(work, partial(unload_parcel, job), _parcels(work, state, ChunkState.LOADED), threads)
    old = work.meta.chunks.begin_anew(shard, state.target)
    for chunk in (chunk for chunk in old if chunk.path):
        work.storage.delete(chunk.path)
    dump_again(work, state)
    _run(work, partial(load_parcel, job), _parcels(work, state, ChunkState.DUMPED), threads)


def _parcels(work: Work, state: ShardState, wanted: ChunkState) -> list[str]:
    chunks = [chunk for chunk in work.meta.chunks.of(state.shard.source) if chunk.shard == state.shard]
    return [Parcel.of(chunk, state.structure).to_json() for chunk in chunks if chunk.state is wanted]


def _run(work: Work, function: "partial[Iterable[str]]", items: list[str], threads: int) -> None:
    for _ in map_items(work.bulk_spark(), function, items, threads):
        pass
