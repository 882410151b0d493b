"""Read what decides on a difference: the keys that a source's binlog touches after a checkpoint. Runs in the driver.

The binlog comes from the source itself, into a folder that is deleted, so a comparison needs neither the relay nor
windows that run. core/validate/proof.py says why this is exact.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from unshard.adapters.relayfiles import RelayStore
from unshard.binlog.decoder import decode_range
from unshard.core.model import Column, Location, Shard, TableId, TableSchema
from unshard.core.relay.segment import Segment
from unshard.core.rules.reshaping import AS_IT_IS
from unshard.core.sql import charsets
from unshard.core.task.state import Phase, SourceState
from unshard.core.validate.checksum import BYTES_AS, has_readable_bytes, is_bytes
from unshard.core.validate.proof import FoldedKey, Touched, folded_key
from unshard.errors import UnshardError
from unshard.units.full.targets import by_filled_keys, reshaped_by
from unshard.units.relay.pull import pull
from unshard.units.rows.conversion import Conversion, conversion, conversion_by_ids, convert_some
from unshard.units.rows.joinedrows import joined_rows
from unshard.units.rows.sparserows import FIRST_COLUMN, is_sparse
from unshard.units.work import Work

MOST_BYTES = 256 << 20
"""Of a binlog between the two positions. If it is longer, windows have to apply it first."""


class _TooFarBehind(Exception):
    """The binlog after the checkpoint is too long to be read for a comparison."""


def positions(work: Work, sources: Sequence[str]) -> dict[str, Location]:
    """Return the checkpoints of those sources; one that is not loaded yet is left out."""
    found = ((source, work.meta.checkpoints.get(source)) for source in sources)
    return {source: checkpoint.location for source, checkpoint in found if checkpoint is not None}


def touched_since(
    work: Work,
    target: TableId,
    shards: Mapping[str, Sequence[TableId]],
    key: Sequence[str],
    before: Mapping[str, Location],
) -> Touched:
    """Return the keys of a target that its shards' binlogs touch between the checkpoints and their present ends.

    `shards` are the tables by source, and `key` the columns of the target that name a row.
    """
    keys: set[FoldedKey] = set()
    until: dict[str, Location] = {}
    anything = ""
    for source, tables in shards.items():
        state = work.meta.sources.get(source)
        if state is None:
            continue  # nothing has begun, so nothing is on its way
        if state.phase is not Phase.SYNC or source not in before:
            return Touched(anything=f"source {source} is not loaded yet")
        try:
            reader = _Reader(work, state, target, tables, key)
            until[source] = reader.read(before[source])
        except _TooFarBehind:
            anything = f"the windows have yet to apply more than {MOST_BYTES >> 20} MiB of source {source}"
        except UnshardError as error:
            anything = f"the binlog of source {source} does not tell: {error}"
        else:
            keys |= reader.keys
            anything = reader.anything or anything
    return Touched(frozenset(keys), anything, until)


class _Reader:
    """Reads the touched keys of one source."""

    def __init__(
        self, work: Work, state: SourceState, target: TableId, tables: Sequence[TableId], key: Sequence[str]
    ) -> None:
        self._work, self._state, self._target, self._names = work, state, target, [name.lower() for name in key]
        self.keys: set[FoldedKey] = set()
        self.anything = ""
        source = state.source
        known = {each.shard.table: each for each in work.meta.structures.shards(source)}
        self._structures = work.structures({known[table].structure for table in tables if table in known} - {""})
        self._wanted: dict[TableId, TableSchema] = {}
        self._conversions: dict[TableId, Conversion] = {}
        for table in tables:
            if table not in known or not known[table].structure:
                self.anything = f"the windows do not know {table} of source {source} yet"
            elif known[table].queue or known[table].held:
                pass  # what it holds is named as held
            else:
                self._wanted[table] = self._structures[known[table].structure]
        self._add_conversions(source, known)

    def _add_conversions(self, source: str, known: Mapping[TableId, object]) -> None:
        work, target = self._work, self._target
        shards = {Shard(source, table) for table in self._wanted}
        states = [state for state in work.meta.structures.shards(source) if state.shard in shards]
        behind, reshapings = work.meta.locks.behind(shards), reshaped_by(work, source, shards)
        joined = joined_rows(work, {target}, shards)
        structures = {state.structure: self._wanted[state.shard.table] for state in states}
        there = work.target_schemas({target})
        schema = by_filled_keys(there, states, structures, behind, reshapings, joined)[target]
        for shard in shards:
            structure, reshaping = self._wanted[shard.table], reshapings.get(shard.table, AS_IT_IS)
            self._conversions[shard.table] = (
                conversion_by_ids(shard, None, structure, (target, schema), joined[target], reshaping)
                if target in joined
                else conversion(shard, structure, target, schema, behind.get((shard, None), ()), reshaping)
            )

    def read(self, begins: Location) -> Location:
        """Read from there to the present end of the binlog, which is returned."""
        source = self._state.source
        with tempfile.TemporaryDirectory(prefix="unshard-validate-") as folder:
            store = RelayStore(Path(folder))
            report = pull(
                source,
                self._work.sources[source],
                store,
                begins,
                identity=self._state.identity,
                progress=_refuse_too_much,
            )
            for segment in store.segments(source):
                self._add(store, segment)
        return report.ends

    def _add(self, store: RelayStore, segment: Segment) -> None:
        if segment.statement is not None or segment.changes:
            self.anything = f"source {segment.source} has run {(segment.statement or segment.changes[0]).text[:80]!r}"
        for piece in segment.pieces:
            wanted = {table: self._wanted[table] for table, _ in piece.tables if table in self._wanted}
            if wanted:
                found = store.read(segment.source, segment.name, piece.start, piece.end)
                for table, batch in decode_range(found.data, found.checksum, wanted, origin=found.origin):
                    self.keys.update(self._keys_of(table, batch))

    def _keys_of(self, table: TableId, batch: pa.RecordBatch) -> Iterator[FoldedKey]:
        plan = self._conversions[table]
        columns = {field.column.name.lower(): number for number, field in enumerate(plan.fields)}
        numbers = [columns.get(name, -1) for name in self._names]
        fields = [plan.fields[number].column for number in numbers]
        if -1 in numbers or not all(map(has_readable_bytes, fields)):
            self.anything = f"{table} of source {self._state.source} has changed, and its keys cannot be read"
            return
        values = convert_some(plan, batch.columns[FIRST_COLUMN : batch.num_columns - is_sparse(batch)], numbers)
        lists = [array.to_pylist() for array in values]
        if is_sparse(batch) and any(None in each for each in lists):
            self.anything = f"the binlog of source {self._state.source} has rows without their key"
        for row in set(zip(*lists, strict=True)):
            yield folded_key([_shown(column, value) for column, value in zip(fields, row, strict=True)])


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
