"""Find which keys of the target other chunks of the same shard have loaded, by the chunks' files. Runs in executors.

A shard with several unique keys is also cut into chunks (units/full/dump.py). If a value moves between two of its rows
during the dump, the load leaves one of the rows to the binlog (adapters.target.deferring), which has a change of
both before the end of safe mode. That is true only for rows of one shard, so the shard's own files show which rows are
its own.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.adapters.meta import MetaReader
from unshard.adapters.parquet import Storage
from unshard.core.full.chunks import is_chunked, unpack_key, walked_columns
from unshard.core.model import Column, Shard, TableSchema
from unshard.core.sql.literals import INTEGERS
from unshard.core.task.state import Chunk, ChunkState
from unshard.units.rows.changes import key_of_rows
from unshard.units.rows.conversion import Conversion
from unshard.units.rows.sortkeys import encode

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
        """The key of the target."""
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
