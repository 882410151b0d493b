"""Read what decides on a difference: the keys that a source's binlog touches after a checkpoint. Runs in the driver.

The binlog comes from the source itself, into a folder that is deleted, so a comparison needs neither the relay nor
windows that run. core/validate/proof.py says why this is exact.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from unshard.adapters.relayfiles import RelayStore
from unshard.binlog.decoder import decode_range
from unshard.core.ddl.lineage import names_after
from unshard.core.ddl.queue import ShardState
from unshard.core.model import Column, Location, Shard, TableId, TableSchema
from unshard.core.relay.segment import Segment
from unshard.core.rules.reshaping import AS_IT_IS
from unshard.core.sql import charsets
from unshard.core.task.state import Phase, SourceState
from unshard.core.validate.checksum import BYTES_AS, has_readable_bytes, is_bytes
from unshard.core.validate.proof import Touched
from unshard.core.validate.rowdifferences import FoldedKey, folded_key
from unshard.errors import UnshardError
from unshard.units.full.targets import reshaped_by
from unshard.units.relay.pull import pull
from unshard.units.relay.tasksource import end_of_source
from unshard.units.rows.conversion import Conversion, conversion, conversion_by_ids, convert_some
from unshard.units.rows.joinedrows import joined_rows
from unshard.units.rows.sparserows import FIRST_COLUMN, is_sparse
from unshard.units.work import Work

MOST_BYTES = 256 << 20
"""Of a binlog between the two positions. If it is longer, windows have to apply it first."""


MOST_HELD = 1_000_000
"""Held rows of a shard whose keys are read."""


class _TooFarBehind(Exception):
    """The binlog after the checkpoint is too long to be read for a comparison."""


def positions(work: Work, sources: Sequence[str]) -> dict[str, Location]:
    """Return the checkpoints of those sources; one that is not loaded yet is left out."""
    found = ((source, work.meta.checkpoints.get(source)) for source in sources)
    return {source: checkpoint.location for source, checkpoint in found if checkpoint is not None}


def binlog_ends(work: Work, sources: Iterable[str]) -> dict[str, Location]:
    """Return the present ends of these binlogs."""
    found = {}
    for source in sources:
        with work.source_connection(source) as connection:
            found[source] = end_of_source(work, source, connection)
    return found


@dataclass(frozen=True, slots=True)
class BinlogsSince:
    """The binlogs of the sources between checkpoints and the ends at which the first question finds them."""

    work: Work
    before: Mapping[str, Location]
    _store: RelayStore
    _read: dict[str, Location | Exception] = field(default_factory=dict)

    def touched(self, target: TableId, shards: Mapping[str, Sequence[TableId]], key: Sequence[str]) -> Touched:
        """Return the keys of a target that its shards' binlogs touch.

        `shards` are the tables by source, and `key` the columns of the target that name a row.
        """
        keys: set[FoldedKey] = set()
        until: dict[str, Location] = {}
        anything = ""
        for source, tables in shards.items():
            state = self.work.meta.sources.get(source)
            if state is None or (state.phase is Phase.LOADED and not self.work.task.task_mode.syncs):
                continue  # no change of this source is on its way to the target
            if state.phase is not Phase.SYNC or source not in self.before:
                return Touched(anything=f"source {source} is not loaded yet")
            try:
                reader = _Reader(self.work, state, target, tables, key)
                until[source] = self._end(state)
                reader.read(self._store)
            except _TooFarBehind:
                anything = f"the windows have yet to apply more than {MOST_BYTES >> 20} MiB of source {source}"
            except _Unreadable as error:
                anything = str(error)
            except UnshardError as error:
                anything = f"the binlog of source {source} does not tell: {error}"
            else:
                keys |= reader.keys
                anything = reader.anything or anything
        return Touched(frozenset(keys), anything, until)

    def _end(self, state: SourceState) -> Location:
        """Return how far the binlog of a source is here; the first call gets it, or fails as all others will."""
        source, server, begins = state.source, self.work.sources[state.source], self.before[state.source]
        if source not in self._read:
            try:
                report = pull(source, server, self._store, begins, identity=state.identity, progress=_refuse_too_much)
                self._read[source] = report.ends
            except (UnshardError, _TooFarBehind) as error:
                self._read[source] = error
        if isinstance(found := self._read[source], Exception):
            raise found
        return found


@contextmanager
def binlogs_since(work: Work, before: Mapping[str, Location]) -> Iterator[BinlogsSince]:
    """Yield what the sources have written since the checkpoints; it is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="unshard-validate-") as folder:
        yield BinlogsSince(work, before, RelayStore(Path(folder)))


def held_keys(
    work: Work, states: Sequence[ShardState], target: TableId, key: Sequence[str]
) -> dict[str, frozenset[FoldedKey] | None]:
    """Return the keys of the rows that shards of a target held, by shard; None if they cannot be read.

    `states` are those from before the rows were read: a window may have released some of the held rows since then, and
    removed their files.
    """
    held = (state for state in states if state.target == target and (state.queue or state.held))
    return {str(state.shard): _held_keys(work, state, key) for state in held}


def _held_keys(work: Work, state: ShardState, key: Sequence[str]) -> frozenset[FoldedKey] | None:
    if any(file.is_raw for file in state.held) or sum(file.rows for file in state.held) > MOST_HELD:
        return None
    keys: set[FoldedKey] = set()
    try:
        named = _NamedKeys(work, state.target, key, state.shard.source, {state.shard})
        structures = work.structures({file.structure for file in state.held})
        for file in state.held:
            plan = named.plan(state.shard, structures[file.structure], file.seq)
            for batch in work.storage.read_batches(file.path):
                keys.update(plan.keys(batch))
    except (UnshardError, _Unreadable):
        return None
    return frozenset(keys)


class _Unreadable(Exception):
    """Rows do not show their keys; the text says why."""


@dataclass(frozen=True, slots=True)
class _KeyPlan:
    """Reads the keys from the rows of a shard with one structure."""

    shard: Shard
    conversion: Conversion
    kept: Sequence[int]
    """The columns of a row that the conversion knows, by number."""
    numbers: Sequence[int]
    """The fields of the key."""

    def keys(self, batch: pa.RecordBatch) -> Iterator[FoldedKey]:
        fields = [self.conversion.fields[number].column for number in self.numbers]
        columns = [batch.column(FIRST_COLUMN + place) for place in self.kept]
        lists = [array.to_pylist() for array in convert_some(self.conversion, columns, self.numbers)]
        if is_sparse(batch) and any(None in each for each in lists):
            raise _Unreadable(f"the binlog has rows of {self.shard} without their key")
        for row in set(zip(*lists, strict=True)):
            yield folded_key(tuple(_shown(column, value) for column, value in zip(fields, row, strict=True)))


class _NamedKeys:
    """Finds the columns of a target's key in the rows of its shards of one source."""

    def __init__(self, work: Work, target: TableId, key: Sequence[str], source: str, shards: set[Shard]) -> None:
        self._target, self._names = target, [name.lower() for name in key]
        self._behind = work.meta.locks.behind(shards)
        self._reshapings = reshaped_by(work, source, shards)
        self._joined = joined_rows(work, {target}, shards)
        self._schema = work.target_schemas({target})[target]

    def plan(self, shard: Shard, structure: TableSchema, seq: int | None = None) -> _KeyPlan:
        """Return how to read the keys of rows after DDL number `seq`, or of the next ones; raises _Unreadable."""
        reshaping = self._reshapings.get(shard.table, AS_IT_IS)
        kept = [*range(len(structure.written))]
        into = self._target, self._schema
        if self._target in self._joined:
            found = conversion_by_ids(shard, seq, structure, into, self._joined[self._target], reshaping)
        else:
            behind = self._behind.get((shard, seq), ())
            names, there = names_after(structure.names, behind), {name.lower() for name in self._schema.by_name}
            # A DDL that waits may have added columns that the target lacks: they are in no key of it.
            kept = [n for n, c in enumerate(structure.written) if names.get(c.name.lower(), "").lower() in there]
            known = replace(structure, columns=tuple(structure.written[number] for number in kept))
            found = conversion(shard, known, *into, behind, reshaping)
        numbers = {field.column.name.lower(): number for number, field in enumerate(found.fields)}
        if not all(n in numbers and has_readable_bytes(found.fields[numbers[n]].column) for n in self._names):
            raise _Unreadable(f"the keys of {shard} cannot be read from its rows")
        return _KeyPlan(shard, found, kept, [numbers[name] for name in self._names])


class _Reader:
    """Reads the touched keys of one source."""

    def __init__(
        self, work: Work, state: SourceState, target: TableId, tables: Sequence[TableId], key: Sequence[str]
    ) -> None:
        self._work, self._state = work, state
        self.keys: set[FoldedKey] = set()
        self.anything = ""
        known = {each.shard.table: each for each in work.meta.structures.shards(state.source)}
        unknown = [table for table in tables if table not in known or not known[table].structure]
        if unknown:
            self.anything = f"the windows do not know the structure of {unknown[0]} of source {state.source} yet"
        shards = {Shard(state.source, table): known[table].structure for table in tables if table not in unknown}
        structures = work.structures({*shards.values()})
        self._wanted = {shard.table: structures[digest] for shard, digest in shards.items()}
        named = _NamedKeys(work, target, key, state.source, {*shards})
        self._plans = {shard.table: named.plan(shard, structures[digest]) for shard, digest in shards.items()}

    def read(self, store: RelayStore) -> None:
        """Read all that is stored of the source."""
        for segment in store.segments(self._state.source):
            self._add(store, segment)

    def _add(self, store: RelayStore, segment: Segment) -> None:
        if segment.statement is not None or segment.changes:
            self.anything = f"source {segment.source} has run {(segment.statement or segment.changes[0]).text[:80]!r}"
        for piece in segment.pieces:
            wanted = {table: self._wanted[table] for table, _ in piece.tables if table in self._wanted}
            if wanted:
                found = store.read(segment.source, segment.name, piece.start, piece.end)
                for table, batch in decode_range(found.data, found.checksum, wanted, origin=found.origin):
                    self.keys.update(self._plans[table].keys(batch))


def _shown(column: Column, value: bytes | None) -> str | None:
    """Return a value of a target's column as a comparison shows it."""
    if value is None:
        return None
    if is_bytes(column):
        return BYTES_AS + value.hex()
    charset = column.encoding
    return charsets.decode(value, charset) if charset else value.decode("utf-8", "replace")


def _refuse_too_much(_done: int, total: int) -> None:
    if total > MOST_BYTES:
        raise _TooFarBehind
