"""The lineage of target tables: which shards feed them, and from which columns of a shard each column comes.

| column of the target | comes from |
|---|---|
| a column of the shard, by its name | that column |
| the column that a column mapping fills | the column whose values the mapping changes |
| an extracted column | no column: its value is a part of the shard's name |
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from unshard.core.ddl.queue import ShardState
from unshard.core.ddl.renaming import name_upstream
from unshard.core.model import Server, Shard, TableId, TableSchema
from unshard.core.task.state import ChunkState
from unshard.units.work import Work


@dataclass(frozen=True, slots=True)
class ShardLineage:
    """A shard that feeds a target."""

    shard: Shard
    server: Server
    schema: TableSchema
    origins: Mapping[str, str]
    """The column of the shard from which a column of the target comes."""
    mapped: frozenset[str]
    """Columns of the target whose values a column mapping has changed."""


@dataclass(frozen=True, slots=True)
class TargetLineage:
    """A target table that has changed."""

    target: TableId
    server: Server
    schema: TableSchema
    shards: tuple[ShardLineage, ...]
    rows: int
    """The number of rows that were written or deleted."""


def loaded_rows(work: Work, sources: Collection[str]) -> Mapping[TableId, int]:
    """Return the rows of these sources that each target has got from the full load."""
    rows: Counter[TableId] = Counter()
    for chunk in (chunk for source in sources for chunk in work.meta.chunks.of(source)):
        if chunk.state is ChunkState.LOADED:
            rows[chunk.target] += chunk.loaded_rows
    return rows


def lineage_of(work: Work, sources: Collection[str], rows: Mapping[TableId, int]) -> tuple[TargetLineage, ...]:
    """Return the lineage of the targets that have changed; reads the states of all shards."""
    states = [
        state
        for state in (work.meta.structures.shards() if rows else ())
        if state.shard.source in sources and state.target in rows and state.structure and not state.has_left
    ]
    schemas, present = work.structures({state.structure for state in states}), work.present(set(rows))

    def feeding(state: ShardState, target: TableSchema) -> ShardLineage:
        source, table, schema = state.shard.source, name_upstream(state.shard.table), schemas[state.structure]
        mapped = work.task.instance(source).routing.reshaping(table).mapped
        origins = origins_of(schema, target, {each.column: each.source for each in mapped})
        changed = frozenset(each.column.lower() for each in mapped)
        return ShardLineage(Shard(source, table), work.sources[source], schema, origins, changed)

    return tuple(
        TargetLineage(
            target,
            work.target,
            present[target],
            tuple(feeding(state, present[target]) for state in states if state.target == target),
            rows[target],
        )
        for target in sorted(present)
    )


def origins_of(shard: TableSchema, target: TableSchema, mapped: Mapping[str, str]) -> dict[str, str]:
    """Return the column of a shard from which each column of the target comes; `mapped` are those of mappings."""
    origins = {column.name.lower(): column.own_name or column.name for column in shard.columns}
    origins |= {column.lower(): source for column, source in mapped.items()}
    return {column.name: origins[column.name.lower()] for column in target.columns if column.name.lower() in origins}
