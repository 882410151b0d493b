"""The target tables of a window: present structures, and creation of tables for new shards. Runs in the driver."""

import contextlib
from collections.abc import Collection, Iterable, Mapping

from pymysql.connections import Connection

from unshard.adapters import mysql, structures
from unshard.core.ddl.renaming import name_upstream
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.rules.reshaping import Reshaping
from unshard.core.rules.routing import Routing
from unshard.core.window.plan import Plan
from unshard.core.window.suspension import TargetRefused
from unshard.errors.ddl import TargetLacksColumns
from unshard.errors.rows import EngineNotTransactional
from unshard.errors.rules import ExtractionNeedsTable
from unshard.units.ddl.execute import create_target
from unshard.units.work import Work


def reshaped_by(work: Work, source: str, shards: Iterable[Shard]) -> dict[TableId, Reshaping]:
    """Return the columns that shard names fill or change, per shard; shards without such columns are left out."""
    routing = work.task.instance(source).routing
    found = {shard.table: routing.reshaping(name_upstream(shard.table)) for shard in shards}
    return {table: reshaping for table, reshaping in found.items() if reshaping}


def make_target(connection: Connection, routing: Routing, shard: Shard, target: TableId, like: TableSchema) -> None:
    """Create the target table of a shard unless it exists; a table with extracted columns must exist."""
    extracted = routing.reshaping(shard.table).extracted
    if extracted and not structures.read_schemas(connection, [target]):
        raise ExtractionNeedsTable(str(target), str(shard), ", ".join(each.column for each in extracted))
    create_target(connection, target, like)


def refuse_engines(schemas: Mapping[TableId, TableSchema]) -> None:
    """Raise for a target without transactions: after a crash of the load its rows would be written twice."""
    for target, schema in schemas.items():
        if schema.lacks_transactions:
            raise EngineNotTransactional(str(target), schema.lacks_transactions)


def create_joined(work: Work, plan: Plan, stopped: Collection[TableId]) -> tuple[TargetRefused, ...]:
    """Create the target tables of shards that are the first of their group; return those that cannot be created.

    A shard that joins others has their structure before or after a pending DDL; planning guarantees this.
    """
    joined = [change for change in plan.first_of_group if change.target not in stopped]
    if not joined:
        return ()
    refused = []
    routing = work.task.instance(plan.source).routing
    schemas = work.structures({change.structure for change in joined if change.structure})
    with contextlib.closing(mysql.connect(work.target, "target")) as connection:
        for change in joined:
            if change.structure:
                try:
                    make_target(connection, routing, change.shard, change.target, schemas[change.structure])
                except (ExtractionNeedsTable, TargetLacksColumns) as error:
                    refused.append(TargetRefused(change.target, error))
    return tuple(refused)
