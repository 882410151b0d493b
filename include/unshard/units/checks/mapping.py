"""Check that column mappings fit the shards' ids, and give different ids to the shards of a target."""

from collections.abc import Iterator, Mapping

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
    errors = list(_ids_too_large(connection, instance, schemas))
    return verdict("column_mapping", f"source {instance.source.id}", errors, "all ids fit into their bits")


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
    connection: Connection, instance: Instance, schemas: Mapping[TableId, TableSchema]
) -> Iterator[UnshardError]:
    """Read the ids of shards whose mapped column is first in an index: the others would be read in full."""
    for table, schema in schemas.items():
        for each in instance.routing.reshaping(table).mapped:
            if not isinstance(each.change, PartitionId) or not _is_asked(schema, each):
                continue
            ids = value_range(connection, table, each.source)
            if ids is not None and (ids[0] < 0 or ids[1] >> each.change.free):
                shard = str(Shard(instance.source.id, table))
                yield MappedIdsTooLarge(shard, each.source, *ids, each.change.free, each.rule)


def _is_asked(schema: TableSchema, mapped: Mapped) -> bool:
    column = next((c for c in schema.columns if c.name.lower() == mapped.source.lower()), None)
    firsts = {index.columns[0].lower() for index in schema.indexes}
    return column is not None and column.data_type in INTEGERS and mapped.source.lower() in firsts
