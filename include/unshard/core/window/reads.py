"""Decides which rows of a segment a window reads, and whether those of each shard are applied or held."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from unshard.core.ddl.queue import ShardState
from unshard.core.model import Shard, TableId
from unshard.core.relay.segment import ByteRange, Segment
from unshard.core.window.plan import Contradiction, Disposition, Read
from unshard.errors.locks import UnknownShard

Contradicted = Mapping[TableId, tuple[Contradiction, ShardState]]
"""Tables whose rows contradict their structure in the segment, each with the state of the shard from there on."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The values that are equal for all segments up to the next statement."""

    source: str
    target_of: Callable[[TableId], TableId | None]
    apart: frozenset[TableId]
    """Tables that are not shards."""
    stopped: frozenset[TableId]
    """Suspended targets of the source."""


def reads(
    reading: Reading, segment: Segment, shards: Mapping[TableId, ShardState], contradicted: Contradicted
) -> Iterator[Read]:
    """Yield the reads of a segment, with a disposition for each routed table.

    XA transactions that were prepared before and are committed here come first: until their COMMIT no other
    transaction changes their rows.
    """
    for commit in segment.commits:
        own = commit.prepared
        whole = replace(segment, end=commit.end, next_file="", ranges=(ByteRange(own.start, own.end, own.tables),))
        cut = {table: found for table, found in contradicted.items() if found[0].committed}
        if read := _read(reading, whole, shards, cut):
            dispositions = tuple(replace(disposition, start=None) for disposition in read.dispositions)
            yield Read(own.segment, own.file, read.ranges, dispositions, True, segment.first_time)
    if read := _read(reading, segment, shards, contradicted):
        yield read


def _read(
    reading: Reading, segment: Segment, shards: Mapping[TableId, ShardState], contradicted: Contradicted
) -> Read | None:
    found = {
        table: target
        for r in segment.ranges
        for table, _ in r.tables
        if table not in reading.apart and (target := reading.target_of(table))
    }
    dispositions: list[Disposition] = []
    for table, target in sorted(found.items()):
        state = shards.get(table)
        if state is None or state.has_left:
            raise UnknownShard(str(Shard(reading.source, table)), str(target), str(segment.begins))
        if state.is_dropped or (state.start is not None and segment.ends <= state.start):
            continue
        before = _disposition(state, segment, reading)
        dispositions += _cut(before, *contradicted[table], segment) if table in contradicted else (before,)
    tables = {disposition.shard.table for disposition in dispositions}
    ranges = tuple((r.start, r.end) for r in segment.ranges if any(table in tables for table, _ in r.tables))
    if not ranges:
        return None
    return Read(segment.name, segment.file, ranges, tuple(dispositions), first_time=segment.first_time)


def _disposition(state: ShardState, segment: Segment, reading: Reading) -> Disposition:
    waits = state.queue or state.held or not state.structure or state.target in reading.stopped
    hold = state.last_seq if waits else None
    start = state.start if state.start is not None and state.start > segment.begins else None
    return Disposition(state.shard, state.target, state.structure, hold, start)


def _cut(before: Disposition, met: Contradiction, after: ShardState, segment: Segment) -> Iterator[Disposition]:
    """Yield the disposition of the rows before a contradiction, and hold the others raw."""
    raw = replace(before, structure=after.structure, hold=after.last_seq)
    if met.committed or met.location <= segment.begins:
        yield raw
        return
    yield replace(before, until=met.location)
    yield replace(raw, start=met.location if before.start is None else max(before.start, met.location))
