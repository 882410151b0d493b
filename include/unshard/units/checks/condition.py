"""Check that a source can evaluate the condition of its dump, and that changes of the excluded rows can be applied."""

from collections.abc import Iterator, Mapping

from pymysql.connections import Connection

from unshard.adapters import tablerows
from unshard.config import Instance, TaskMode
from unshard.core.checks.items import Item, shortened, verdict
from unshard.core.model import Shard, TableId, TableSchema
from unshard.errors import UnshardError
from unshard.errors.checks import ImageUnderCondition, KeylessUnderCondition
from unshard.errors.full import ConditionRefused

LACKING = ("MINIMAL", "NOBLOB")
"""Row images that cannot produce a row that the target lacks."""
Schemas = Mapping[TableId, TableSchema]


def dump_condition(
    instance: Instance, mode: TaskMode, connection: Connection, schemas: Schemas, image: str
) -> list[Item]:
    """Check the condition on one table of each structure; changes the session of the connection."""
    dump, source = instance.dump, instance.source.id
    if not dump.where:
        return []
    errors = [*_refused(instance, connection, schemas)]
    if mode.syncs:
        errors += _not_applied(instance, schemas, image)
    fine = f"rows are dumped where {dump.where}" if schemas else ""
    return verdict("dump_condition", f"source {source}", errors, fine)


def _refused(instance: Instance, connection: Connection, schemas: Schemas) -> Iterator[UnshardError]:
    dump, tables = instance.dump, dict[str, TableId]()
    for table, schema in schemas.items():
        tables.setdefault(schema.shape, table)
    tablerows.prepare_condition(connection)
    for table in tables.values():
        if message := tablerows.condition_refusal(connection, table, dump.where):
            yield ConditionRefused(str(Shard(instance.source.id, table)), dump.where, dump.where_place, message)


def _not_applied(instance: Instance, schemas: Schemas, image: str) -> Iterator[UnshardError]:
    where, source = instance.dump.where, instance.source.id
    keyless = [str(Shard(source, table)) for table, schema in schemas.items() if not schema.key]
    if keyless:
        yield KeylessUnderCondition(shortened(keyless), where)
    if image.upper() in LACKING:
        yield ImageUnderCondition(source, image, where)
