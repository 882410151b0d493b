"""Check that the target can evaluate the expressions of filters, over the columns of the shards."""

from collections.abc import Mapping

from pymysql.connections import Connection

from unshard.adapters.target.evaluator import check_expression
from unshard.config import Task
from unshard.core.checks.items import Item, Severity, problem, verdict
from unshard.core.model import Shard, TableId, TableSchema
from unshard.errors import UnshardError
from unshard.errors.rules import RowFilterFailed, RowFilterIdle


def row_filters(
    task: Task,
    connection: Connection,
    refused: list[UnshardError],
    groups: Mapping[TableId, Mapping[Shard, TableSchema]],
) -> list[Item]:
    """Let the target evaluate all expressions; `refused` has the privileges that it lacks for this."""
    rules = {rule for instance in task.instances for rule in instance.routing.filters}
    if not rules:
        return []
    errors, matched = [*refused], set()
    for shard, structure in ((s, schema) for shards in groups.values() for s, schema in shards.items()):
        for rule in task.instance(shard.source).routing.reshaping(shard.table).filters:
            matched.add(rule)
            for expression in rule.expressions:
                try:
                    check_expression(connection, rule.name, expression, structure)
                except RowFilterFailed as error:
                    errors.append(error)
    idle = [
        problem("expression_filter", "target", RowFilterIdle(rule.name, str(rule.table)), Severity.WARNING)
        for rule in sorted(rules - matched, key=lambda rule: rule.name)
    ]
    return [
        *verdict("expression_filter", "target", errors, f"{len(matched)} filters can be evaluated" if matched else ""),
        *idle,
    ]
