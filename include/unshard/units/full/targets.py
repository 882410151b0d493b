"""The target tables of a window: present structures, and creation of tables for new shards. Runs in the driver.

Structures of shards without the indexes that the target refuses (`unsupported-indexes: leave-out`).

Runs in the driver. They are recorded in this form, so target tables, trial tables of DDL and comparisons never contain
these indexes. The target refuses a later DDL of a shard that drops or adds such an index, and that DDL waits for an
operator.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from pymysql.connections import Connection

from unshard.adapters import structures
from unshard.adapters.target.fence import drop_empty_schema
from unshard.adapters.targetddl import create_schema, set_default
from unshard.config import Instance, ShardMode, Task, UnsupportedIndexes
from unshard.core.checks.items import alike_names
from unshard.core.ddl.lineage import ExecutedDdl, filled_names
from unshard.core.ddl.parsed import DdlKind
from unshard.core.ddl.queue import ShardState
from unshard.core.ddl.renaming import name_upstream
from unshard.core.join.places import JoinedRows
from unshard.core.model import Server, Shard, TableId, TableSchema
from unshard.core.relay.segment import SchemaDefault
from unshard.core.rules.reshaping import AS_IT_IS, Reshaping
from unshard.core.rules.routing import Routing
from unshard.core.structures.foreignkeys import ForeignKey
from unshard.core.structures.tablekeys import as_filled
from unshard.core.window.plan import Plan
from unshard.core.window.suspension import TargetRefused
from unshard.errors.checks import TargetNamesAlike
from unshard.errors.ddl import TargetLacksColumns
from unshard.errors.locks import ShardModeWaits
from unshard.errors.rows import ColumnTypesDiffer, EngineNotTransactional, ExtractionNeedsTable
from unshard.errors.source import MissingPrivilege, StatementRefused
from unshard.units.ddl import joining
from unshard.units.ddl.createtrial import RefusedPart, TrialTables
from unshard.units.ddl.execute import OnTarget, create_target
from unshard.units.ddl.joining import JoinRules, ReloadOutcome, no_reload
from unshard.units.enforcedkeys import keys_of_shards
from unshard.units.rows.conversion import Behind, conversion
from unshard.units.work import Work

log = logging.getLogger(__name__)

NOT_JOINED: Mapping[TableId, JoinedRows] = MappingProxyType({})


def reshaped_by(work: Work, source: str, shards: Iterable[Shard]) -> dict[TableId, Reshaping]:
    """Return the columns that shard names fill or change, per shard; shards without such columns are left out."""
    routing = work.task.instance(source).routing
    found = {shard.table: routing.reshaping(name_upstream(shard.table)) for shard in shards}
    return {table: reshaping for table, reshaping in found.items() if reshaping}


def by_filled_keys(
    targets: Mapping[TableId, TableSchema],
    shards: Iterable[ShardState],
    schemas: Mapping[str, TableSchema],
    behind: Behind,
    reshapings: Mapping[TableId, Reshaping],
    joined: Mapping[TableId, JoinedRows] = NOT_JOINED,
) -> dict[TableId, TableSchema]:
    """Return the target structures; in them only keys count whose columns the shards of the source fill."""
    filled: dict[TableId, set[str]] = {}
    for state in shards:
        names = filled.setdefault(state.target, set())
        names |= {each.column.lower() for each in reshapings.get(state.shard.table, AS_IT_IS).extracted}
        if state.target in joined:
            names |= joined[state.target].filled
        else:
            names |= filled_names(schemas[state.structure].names, behind.get((state.shard, None), ()))
    return {t: as_filled(schema, filled[t]) if t in filled else schema for t, schema in targets.items()}


def make_target(
    connection: Connection,
    routing: Routing,
    shard: Shard,
    target: TableId,
    like: TableSchema,
    keys: Sequence[ForeignKey] = (),
) -> None:
    """Create the target table of a shard unless it exists; a table with extracted columns must exist."""
    extracted = routing.reshaping(shard.table).extracted
    if extracted and not structures.read_schemas(connection, [target]):
        raise ExtractionNeedsTable(str(target), str(shard), ", ".join(each.column for each in extracted))
    create_target(connection, target, like, [key for key in keys if key.child == target])


def refuse_alike_names(connection: Connection, targets: Iterable[TableId]) -> None:
    """Raise if the target ignores the case of names, and two target tables would be one there."""
    errors = alike_names(targets)
    if errors and structures.ignores_case(connection):
        raise errors[0]


def _named_like(target: TableId, targets: Iterable[TableId]) -> list[TableId]:
    return [each for each in targets if str(each).lower() == str(target).lower()]


def may_lack_columns(task: Task) -> contextlib.suppress:
    """Accept a target that lacks columns of a shard, if it gets them when the shard joins."""
    return contextlib.suppress(*([TargetLacksColumns] if task.shard_mode is ShardMode.OPTIMISTIC else []))


def refuse_engines(schemas: Mapping[TableId, TableSchema]) -> None:
    """Raise for a target without transactions: after a crash of the load its rows would be written twice."""
    for target, schema in schemas.items():
        if schema.lacks_transactions:
            raise EngineNotTransactional(str(target), schema.lacks_transactions)


def follow_schemas(work: Work, plan: Plan) -> None:
    """Create, change and drop schemas of the target as one-to-one sources do; the same after each attempt.

    A schema that still has tables is dropped by the lock of the last of them (units.ddl.execute). A default that the
    target does not know is left out: it matters only to tables that others create there.
    """
    if not plan.schemas:
        return
    with work.target_connection() as connection:
        for each in plan.schemas:
            if each.kind is DdlKind.DROP_DATABASE:
                drop_empty_schema(connection, work.meta.schema, work.task.name, each.schema)
                continue
            create_schema(connection, each.schema, if_not_exists=True)
            if each.default is not None:
                try:
                    set_default(connection, each.schema, each.default)
                except StatementRefused as error:
                    log.warning("default of schema %s is not followed: %s", each.schema, error.server_message)


def copy_schemas(work: Work, instance: Instance, defaults: Mapping[str, SchemaDefault]) -> None:
    """Create the missing schemas of the target that are copies of whole schemas, also of empty ones.

    A default that the target does not know is left out. A schema that the account must not create is left out too: a
    table in it would be an error.
    """
    feeds, routing = work.task.feeds, instance.routing
    copied = {target: each for name, each in defaults.items() if (target := feeds.copied_schema(routing, name))}
    if not copied:
        return
    with work.target_connection() as connection:
        for target in sorted(copied.keys() - structures.read_defaults(connection).keys()):
            try:
                create_schema(connection, target, if_not_exists=True, default=copied[target])
            except MissingPrivilege as error:
                log.warning("schema %s is not created: %s", target, error.server_message)
            except StatementRefused as error:
                log.warning("default of schema %s is not followed: %s", target, error.server_message)
                create_schema(connection, target, if_not_exists=True)


def refuse_types(
    shard: Shard,
    schema: TableSchema,
    into: tuple[TableId, TableSchema],
    reshaping: Reshaping,
    behind: Sequence[ExecutedDdl] = (),
) -> None:
    """Raise if a column of the target cannot take the values of the shard; `behind` is DDL that only the target has."""
    target, present = into
    filled = {*filled_names(schema.names, behind), *(each.column.lower() for each in reshaping.extracted)}
    conversion(shard, schema, target, as_filled(present, filled), behind, reshaping)


def create_joined(
    work: Work, plan: Plan, stopped: Collection[TableId], again: Collection[TableId] = ()
) -> tuple[TargetRefused, ...]:
    """Create the target tables of shards that are the first of their group; return those that cannot be created.

    `again` are targets that were refused for their names and are tried again. A shard that joins others has their
    structure before or after a pending DDL; planning guarantees this.
    """
    joined = [change for change in plan.first_of_group if change.target not in stopped]
    if not joined and not again:
        return ()
    refused = list[TargetRefused]()
    routing = work.task.instance(plan.source).routing
    schemas = work.structures({change.structure for change in joined if change.structure})
    keys = keys_of_shards(work, plan.source, [change.shard.table for change in joined])
    known = {state.target for state in work.meta.structures.shards()}
    with work.target_connection() as connection:
        for target in again:
            try:
                refuse_alike_names(connection, _named_like(target, known))
            except TargetNamesAlike as error:
                refused.append(TargetRefused(target, error))
        for change in joined:
            if change.structure:
                try:
                    refuse_alike_names(connection, [change.target, *_named_like(change.target, known)])
                    known.add(change.target)
                    with may_lack_columns(work.task):
                        make_target(connection, routing, change.shard, change.target, schemas[change.structure], keys)
                except (ExtractionNeedsTable, TargetLacksColumns, TargetNamesAlike) as error:
                    refused.append(TargetRefused(change.target, error))
    return tuple(refused)


# --- structures of shards without the indexes that the target refuses (`unsupported-indexes: leave-out`)


def without_refused_indexes(work: Work, schemas: Mapping[TableId, TableSchema]) -> dict[TableId, TableSchema]:
    """Return the structures without the non-unique indexes that the target refuses, if the task file requests this."""
    if work.task.options.unsupported_indexes is not UnsupportedIndexes.LEAVE_OUT or not schemas:
        return dict(schemas)
    supported: dict[str, tuple[TableSchema, tuple[RefusedPart, ...]]] = {}
    with work.target_connection() as connection:
        trials = TrialTables(connection, work.task.meta_schema)
        for table, schema in schemas.items():
            if schema.digest not in supported:
                supported[schema.digest] = trials.supported(schema)
                for each in supported[schema.digest][1]:
                    log.warning("index left out table=%s index=%s: %s", table, each.part, each.message)
    return {table: supported[schema.digest][0] for table, schema in schemas.items()}


# --- targets of `shard-mode: optimistic` before rows are written


def join_targets(work: Work) -> bool:
    """Make each target the join of the shards that are known, as the coordinator does; return whether that changed any.

    Columns that must be read again wait for the coordinator.
    """
    return joining.follow_each_target(work.meta, *_parts(work)).raised()


def join_before_rows(work: Work, targets: Collection[TableId], *, releases: bool) -> None:
    """Join targets that have not joined yet, end changes whose process has died, and make the first change of a target.

    After a target has joined, it may not hold the rows of its shards yet. An error of its first change is the
    coordinator's; the rows of the shards that fit the target are written.
    `releases`: rows are released, maybe by a command whose DDL the shards have not followed yet.
    """
    if work.task.shard_mode is not ShardMode.OPTIMISTIC:
        return
    if not {*targets} <= work.meta.joins.resting().keys():
        with contextlib.suppress(ShardModeWaits, ColumnTypesDiffer):  # until then rows go by names and by the locks
            join_targets(work)
    elif not work.meta.joins.begun().isdisjoint(targets):
        joining.follow_each_target(work.meta, *_parts(work))
    if releases:
        joining.follow_decisions(work.meta, *_parts(work), targets)


def _parts(work: Work) -> tuple[OnTarget, JoinRules]:
    return on_target(work.task, work.target), join_rules(work.task)


def on_target(task: Task, target: Server) -> OnTarget:
    """Return what executes statements on the targets of a task."""
    return OnTarget(target, task.meta_schema, task.timezone, task.name)


def join_rules(task: Task, reload: Callable[[Shard, Sequence[str]], ReloadOutcome] = no_reload) -> JoinRules:
    """Return the parts of a task that decide about its joined targets."""
    delay = task.options.contract_delay.total_seconds()
    return JoinRules(partial(mapped_columns, task), delay, task.options.is_strict, reload, task.timezone)


def follow_mode(work: Work, has_joined: bool) -> None:
    """End the joins of a task that has left optimistic mode; raises ShardModeWaits while its shards differ."""
    if has_joined and work.task.shard_mode is not ShardMode.OPTIMISTIC:
        joining.leave(work.meta)


def mapped_columns(task: Task, shards: Iterable[ShardState]) -> frozenset[str]:
    """Return the columns of column mappings of shards, in lower case."""
    found = set[str]()
    for state in shards:
        reshaping = task.instance(state.shard.source).routing.reshaping(name_upstream(state.shard.table))
        found |= {name.lower() for each in reshaping.mapped for name in (each.source, each.column)}
    return frozenset(found)
