"""The target tables of a window: present structures, and tables that a new shard brings."""

import contextlib
from collections.abc import Collection, Iterable, Mapping

from pymysql.connections import Connection

from unshard.adapters import mysql, structures
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.renaming import name_upstream
from unshard.core.reshape import Reshaping
from unshard.core.routing import Routing
from unshard.core.stops import TargetRefused
from unshard.core.window import Plan
from unshard.errors.target import EngineNotTransactional, ExtractionNeedsTable
from unshard.units.execute import create_target
from unshard.units.work import Work


def reshaped_by(work: Work, source: str, shards: Iterable[Shard]) -> dict[TableId, Reshaping]:
    """Return what the names of the shards of a source do to their rows; those without any effect are left out."""
    routing = work.task.instance(source).routing
    found = {shard.table: routing.reshaping(name_upstream(shard.table)) for shard in shards}
    return {table: reshaping for table, reshaping in found.items() if reshaping}


def make_target(connection: Connection, routing: Routing, shard: Shard, target: TableId, like: TableSchema) -> None:
    """Make the target table of a shard unless there is one; one that gets extracted columns must be there."""
    extracted = routing.reshaping(shard.table).extracted
    if extracted and not structures.read_schemas(connection, [target]):
        raise ExtractionNeedsTable(str(target), str(shard), ", ".join(each.column for each in extracted))
    create_target(connection, target, like)


def refuse_engines(schemas: Mapping[TableId, TableSchema]) -> None:
    """Raise for a target that cannot undo what it has written: rows of a load that dies would come twice."""
    for target, schema in schemas.items():
        if schema.lacks_transactions:
            raise EngineNotTransactional(str(target), schema.lacks_transactions)


def create_joined(work: Work, plan: Plan, stopped: Collection[TableId]) -> tuple[TargetRefused, ...]:
    """Create the target tables of shards that are the first of their group, and return those that cannot be made.

    A shard that joins others has their structure before or behind a pending DDL, as planning has seen to.
    """
    first = (c for c in plan.structures if c.joins and c.structure and c.peer is None)
    joined = [c for c in first if c.makes_target and not c.is_strange and c.target not in stopped]
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
                except ExtractionNeedsTable as error:
                    refused.append(TargetRefused(change.target, error))
    return tuple(refused)
