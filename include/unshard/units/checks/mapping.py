"""Check that column mappings fit the shards' ids, and give different ids to the shards of a target."""

from collections.abc import Iterator, Mapping, Sequence

from pymysql.connections import Connection

from unshard.adapters.tablerows import value_range
from unshard.config import Instance, Task
from unshard.core.checks.items import Item, verdict
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.rules.columnmapping import Mapped, PartitionId, overlaps
from unshard.core.sql.literals import INTEGERS
from unshard.errors import UnshardError
from unshard.errors.rules import MappedIdsTooLarge, MappingOverlap


def mapped_ids(instance: Instance, connection: Connection, schemas: Mapping[TableId, TableSchema]) -> list[Item]:
    """Check that the ids of a source's shards leave free the bits that its mappings need."""
    if not instance.routing.mappings:
        return []
    mapped = [
        (table, each)
        for table in schemas
        for each in instance.routing.reshaping(table).mapped
        if isinstance(each.change, PartitionId)
    ]
    asked = [(table, each) for table, each in mapped if _is_asked(schemas[table], each)]
    errors = list(_ids_too_large(connection, instance.source.id, asked))
    fine = "all ids fit into their bits"
    if len(asked) < len(mapped):
        fine = f"the ids of {len(asked)} of {len(mapped)} columns fit into their bits; the others have no index"
    return verdict("column_mapping", f"source {instance.source.id}", errors, fine if asked else "")


def mapped_apart(task: Task, groups: Mapping[TableId, Mapping[Shard, TableSchema]]) -> list[Item]:
    """Check that column mappings give different ids to all shards of a target."""
    items: list[Item] = []
    for target, shards in sorted(groups.items()):
        mapped = {shard: task.instance(shard.source).routing.reshaping(shard.table).mapped for shard in shards}
        if any(mapped.values()):
            found = overlaps({str(shard): (schema, mapped[shard]) for shard, schema in shards.items()})
            errors = [MappingOverlap(str(target), name, o.first, o.second, o.start) for name, o in found.items()]
            items += verdict("column_mapping", f"target {target}", errors, f"{len(shards)} shards are kept apart")
    return items


def _ids_too_large(
    connection: Connection, source: str, asked: Sequence[tuple[TableId, Mapped]]
) -> Iterator[UnshardError]:
    for table, each in asked:
        assert isinstance(each.change, PartitionId)
        ids = value_range(connection, table, each.source)
        if ids is not None and (ids[0] < 0 or ids[1] >> each.change.free):
            shard = str(Shard(source, table))
            yield MappedIdsTooLarge(shard, each.source, *ids, each.change.free, each.rule)


def _is_asked(schema: TableSchema, mapped: Mapped) -> bool:
    """Whether the column is first in an index: otherwise the shard would be read in full."""
    column = next((c for c in schema.columns if c.name.lower() == mapped.source.lower()), None)
    firsts = {index.columns[0].lower() for index in schema.indexes}
    return column is not None and column.data_type in INTEGERS and mapped.source.lower() in firsts
