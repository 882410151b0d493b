"""Whether the target can evaluate the expressions of filters, over the columns that the shards have."""

from collections.abc import Mapping

from pymysql.connections import Connection

from unshard.adapters.target.rowfilter import check_expression
from unshard.config import Task
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.prechecks import Item, verdict
from unshard.errors import UnshardError
from unshard.errors.target import RowFilterFailed, RowFilterIdle


def row_filters(task: Task, connection: Connection, refused: list[UnshardError],
                groups: Mapping[TableId, Mapping[Shard, TableSchema]]) -> list[Item]:  # fmt: skip
    """Let the target read all expressions; `refused` says what privilege it lacks for evaluating them."""
    rules = {rule for instance in task.instances for rule in instance.routing.filters}
    if not rules:
        return []
    errors, met = [*refused], set()
    for shard, structure in ((s, schema) for shards in groups.values() for s, schema in shards.items()):
        for rule in task.instance(shard.source).routing.reshaping(shard.table).filters:
            met.add(rule)
            for expression in rule.expressions:
                try:
                    check_expression(connection, rule.name, expression, structure)
                except RowFilterFailed as error:
                    errors.append(error)
    errors += [RowFilterIdle(rule.name, str(rule.table)) for rule in sorted(rules - met, key=lambda rule: rule.name)]
    return verdict("expression_filter", "target", errors, f"{len(rules)} filters can be evaluated")
