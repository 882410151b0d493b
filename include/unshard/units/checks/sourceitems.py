"""Checks of a source before a task begins: its settings, the account's privileges, its shards. Runs in the driver."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from pymysql.connections import Connection

from unshard.adapters import mysql, serverstate, structures, tablerows, upstream
from unshard.adapters.serverstate import account
from unshard.adapters.structures import read_foreign_keys
from unshard.adapters.tablerows import try_select, value_range
from unshard.config import Connections, Consistency, Instance, Task, TaskMode, resolve
from unshard.core.checks.items import (
    Grant,
    Item,
    Severity,
    engine_problems,
    image_problems,
    kept_for,
    missing_privileges,
    parse_grants,
    problem,
    retention_problems,
    shortened,
    under_way,
    verdict,
    version_problems,
)
from unshard.core.model import TRANSACTIONAL, Server, Shard, TableId, TableSchema
from unshard.core.rules.columnmapping import Mapped, PartitionId, overlaps
from unshard.core.sql.literals import INTEGERS, is_known
from unshard.core.sql.quoting import identifier
from unshard.core.structures.foreignkeys import ForeignKey, routed, without_like
from unshard.core.task.state import Phase
from unshard.errors import UnshardError, checks
from unshard.errors.config import StartUnset
from unshard.errors.full import ConditionRefused, TransactionsPrepared
from unshard.errors.relay import GtidNotFound
from unshard.errors.rows import (
    ForeignKeyLacking,
    ForeignKeyNotOfShards,
    ForeignKeysCascade,
    MappedIdsTooLarge,
    MappingOverlap,
)
from unshard.errors.source import UnknownColumnType
from unshard.units.full.discover import FoundShards, find_shards
from unshard.units.relay.pull import locate

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
        yield checks.KeylessUnderCondition(shortened(keyless), where)
    if image.upper() in LACKING:
        yield checks.ImageUnderCondition(source, image, where)


# --- column mappings


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


# --- foreign keys


ITEM = "table_schema"


def problems_of_source(
    source: str, keys: Sequence[ForeignKey], *, are_checked: bool, are_logged: bool
) -> list[UnshardError]:
    """Return the warnings about the foreign keys of a source's shards; `are_logged`: the binlog has their changes."""
    found: list[UnshardError] = []
    if keys and not are_checked:
        tables = sorted({key.child for key in keys})
        found.append(checks.ForeignKeysLeft(source, shortened([str(table) for table in tables])))
    if not are_logged and (cascades := [str(key) for key in keys if key.cascades]):
        found.append(ForeignKeysCascade(source, shortened(cascades)))
    return found


def foreign_key_items(
    task: Task,
    connections: Connections,
    groups: Mapping[TableId, Collection[Shard]],
    keys: Mapping[str, Sequence[ForeignKey]],
) -> list[Item]:
    """Compare the foreign keys of the target with those of the shards; `keys` has the latter for each source."""
    if not task.checks_foreign_keys or not groups:
        return []
    with closing(mysql.connect(resolve(task.target, connections), "target")) as connection:
        present = structures.read_foreign_keys(connection, groups)
        existing = structures.read_schemas(connection, sorted(groups)).keys()
    items: list[Item] = []
    for source, found in keys.items():
        made, left = routed(found, task.instance(source).routing.target_of)
        lacking = [*left, *without_like([key for key in made if key.child in existing], present)]
        if lacking:
            error = ForeignKeyLacking(source, shortened([str(key) for key in lacking]))
            items.append(problem(ITEM, f"source {source}", error))
    return [*items, *_not_of_shards(task, groups, keys, present)]


def _not_of_shards(
    task: Task,
    groups: Mapping[TableId, Collection[Shard]],
    keys: Mapping[str, Sequence[ForeignKey]],
    present: Sequence[ForeignKey],
) -> Iterator[Item]:
    """Yield the foreign keys between targets that a shard does not have: the order of its rows may violate them."""
    for key in present:
        for shard in groups.get(key.child, ()) if key.parent in groups else ():
            own = [each for each in keys.get(shard.source, ()) if each.child == shard.table]
            if without_like([key], routed(own, task.instance(shard.source).routing.target_of)[0]):
                error = ForeignKeyNotOfShards(str(key.child), str(key), str(shard))
                yield problem("target_tables", f"target {key.child}", error)
                break


# --- the source


REPLICATION = ("REPLICATION SLAVE", "REPLICATION CLIENT")
EXTRA_CONNECTIONS = 3
"""Relay, snapshot and status, in addition to the threads of the dump."""
VARIABLES = (
    "version",
    "server_id",
    "log_bin",
    "binlog_format",
    "binlog_storage_engine",
    "binlog_row_image",
    "binlog_row_metadata",
    "local_infile",
    "max_connections",
    "lower_case_table_names",
    "expire_logs_days",
    "binlog_expire_logs_seconds",
    "sql_mode",
    "collation_server",
    "max_allowed_packet",
    "innodb_native_foreign_keys",
)


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of one source: its items, shards and their structures."""

    items: tuple[Item, ...]
    found: FoundShards | None = None
    schemas: Mapping[TableId, TableSchema] | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0
    """Size of the shards' rows, as the server estimates it."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The collations that the schemas of its shards give to their tables."""
    offsets: Mapping[datetime, timedelta] = field(default_factory=dict)
    """The UTC offset of its time zone at some moments."""
    foreign_keys: tuple[ForeignKey, ...] = ()


def check_source(
    instance: Instance, mode: TaskMode, connections: Connections, phase: Phase, checks_foreign_keys: bool = False
) -> Checked:
    """Run all checks of one source; a source that does not answer is reported as an item."""
    place = f"source {instance.source.id}"
    is_loaded, is_new = phase.order >= Phase.LOADED.order, mode.begins and phase is Phase.NEW
    try:
        server = resolve(instance.source.endpoint, connections)
        with closing(mysql.connect(server, place)) as connection:
            before = upstream.prepared(connection) if is_new else None
            checked = _ask(instance, server, connection, is_loaded, checks_foreign_keys)
            if before is not None:
                # A transaction that is about to be committed is gone by now.
                stayed = before & (upstream.prepared(connection) or before)
                errors = [TransactionsPrepared(instance.source.id, len(stayed))] if stayed else []
                prepared = verdict("prepared_transactions", place, errors, "none stays prepared")
                checked = replace(checked, items=(*checked.items, *prepared))
            if is_loaded or checked.schemas is None:
                return checked
            image = checked.values.get("binlog_row_image", "FULL")
            items = dump_condition(instance, mode, connection, checked.schemas, image)
            return replace(checked, items=(*checked.items, *items))
    except UnshardError as error:
        return Checked((problem("reachable", place, error),))


def _ask(
    instance: Instance, server: Server, connection: Connection, is_loaded: bool, checks_foreign_keys: bool
) -> Checked:
    source, place = instance.source.id, f"source {instance.source.id}"
    values = server_settings(connection)
    known = granted(connection)
    found = find_shards(connection, instance)
    readable, refused = _readable(connection, found.targets, known)
    schemas, unsupported = structures.read_each(connection, sorted(readable))
    zero = [checks.ServerIdZero(source)] if values["server_id"] == "0" else []
    no_shards = [] if found.targets or found.problems else [checks.NoTablesYet(source, account(connection), found.seen)]
    locks = instance.dump.consistency is Consistency.LOCK
    for schema in sorted({table.schema for table in found.targets}) if locks else ():
        refused += lacking(connection, place, ("LOCK TABLES",), known, schema)
    refused += [] if "mariadb" in values["version"].lower() else lacking(connection, place, ("RELOAD",), known)
    keys = tuple(key for key in read_foreign_keys(connection, found.targets) if key.child in found.targets)
    logs_cascades = values.get("innodb_native_foreign_keys") == "OFF"  # MySQL from 9.6 on
    about_keys = problems_of_source(source, keys, are_checked=checks_foreign_keys, are_logged=logs_cascades)
    needed = instance.dump.threads + EXTRA_CONNECTIONS
    items = [
        Item("reachable", Severity.OK, place, "answers"),
        *_version_items(instance, place, values["version"]),
        *verdict("server_id", place, zero, values["server_id"]),
        *_binlog_items(source, place, values),
        *verdict("replication_privilege", place, lacking(connection, place, REPLICATION, known), "granted"),
        *verdict("dump_privilege", place, refused, f"SELECT on {len(readable)} shards" if readable else ""),
        *verdict("conn_number", place, scarce(connection, place, values, needed), f"room for {needed}"),
        *verdict("shards", place, no_shards, f"{len(found.targets)} of {found.seen} tables are shards"),
        *verdict(
            "routes", place, found.problems, f"{len(set(found.targets.values()))} targets" if found.targets else ""
        ),
        *_hidden(connection, source, found.targets),
        *verdict(
            "online_ddl",
            place,
            under_way(source, found.online_tables, found.doubtful),
            "no tool changes a shard" if found.targets else "",
        ),
        *(problem("table_schema", place, error) for error in (*unsupported.values(), *_unknown_types(schemas))),
        *_table_items(place, schemas, {} if locks else found.engines, about_keys),
        *(problem("sequence", place, checks.SequenceLeftOut(str(table))) for table in found.sequences),
        *mapped_ids(instance, connection, schemas),
    ]
    if (instance.start or instance.start_gtid) and not instance.start_time:
        items += _start_items(instance, server, connection, place, is_loaded)
    if instance.start_unset and not instance.start_time and not is_loaded:
        unset = StartUnset(instance.start_unset, source)
        items.append(problem("meta_position", place, unset, Severity.WARNING))
    size = sum(structures.table_sizes(connection, found.targets).values())
    within = {table.schema for table in found.targets}
    all_defaults = structures.read_defaults(connection).items()
    defaults = {schema: default.collation for schema, default in all_defaults if schema in within}
    return Checked(tuple(items), found, schemas, values, size, defaults, serverstate.zone_offsets(connection), keys)


def server_settings(connection: Connection) -> dict[str, str]:
    """Return the server's settings that the checks use."""
    return serverstate.global_variables(connection, VARIABLES)


def granted(connection: Connection) -> tuple[Grant, ...]:
    """Return the privileges of the account."""
    return parse_grants(serverstate.shown_grants(connection))


def lacking(
    connection: Connection, where: str, privileges: Sequence[str], known: Sequence[Grant], schema: str = "*"
) -> list[UnshardError]:
    """Return the error that names the privileges that the account lacks on that scope."""
    missing = missing_privileges(known, privileges, schema)
    scope = "*.*" if schema == "*" else f"{identifier(schema)}.*"
    return [checks.PrivilegesMissing(where, account(connection), ", ".join(missing), scope)] if missing else []


def scarce(connection: Connection, place: str, values: Mapping[str, str], needed: int) -> list[UnshardError]:
    """Return a warning if the server currently has too few free connections."""
    limit = int(values["max_connections"])
    if not limit:  # TiDB: no limit
        return []
    free = limit - serverstate.open_connections(connection)
    return [checks.ConnectionsScarce(place, needed, free)] if free < needed else []


def _version_items(instance: Instance, place: str, version: str) -> list[Item]:
    declared = str(instance.source.flavor)
    actual = "mariadb" if "mariadb" in version.lower() else "mysql"
    if declared not in ("", actual):
        return [problem("version", place, checks.FlavorWrong(instance.source.id, declared, version))]
    return verdict("version", place, version_problems(place, version), version)


def _binlog_items(source: str, place: str, values: Mapping[str, str]) -> list[Item]:
    if values["log_bin"] != "ON":
        return [problem("binlog_enable", place, checks.BinlogDisabled(source))]
    items = [Item("binlog_enable", Severity.OK, place, "ON")]
    form, image = values.get("binlog_format", ""), values.get("binlog_row_image", "")
    wrong = [checks.BinlogSettingWrong(source, "binlog_format", form, "ROW")] if form.upper() not in ("ROW", "") else []
    items += verdict("binlog_format", place, wrong, form)
    if "binlog_storage_engine" in values:
        engine = engine_problems(source, values["binlog_storage_engine"])
        items += verdict("binlog_storage_engine", place, engine, "not set: the binlog is in files")
    sparse = image_problems(source, image) if image else []
    items += verdict("binlog_row_image", place, sparse, image)
    metadata, retention = values.get("binlog_row_metadata", "not set"), kept_for(values)
    description = f"{metadata}: rows have column names" if metadata == "FULL" else f"{metadata}: columns are tracked"
    shown = "forever" if retention is None else f"for {retention}"
    return [
        *items,
        Item("binlog_row_metadata", Severity.OK, place, description),
        *verdict("binlog_retention", place, retention_problems(source, retention), shown),
    ]


def _readable(
    connection: Connection, tables: Mapping[TableId, TableId], known: Sequence[Grant]
) -> tuple[list[TableId], list[UnshardError]]:
    """Run a SELECT on every shard that no grant is known to permit: exact for any roles of the account."""
    open_schemas = {table.schema: not missing_privileges(known, ("SELECT",), table.schema) for table in tables}
    readable: list[TableId] = []
    refused: list[UnshardError] = []
    for table in tables:
        try:
            if not open_schemas[table.schema]:
                try_select(connection, table)
        except UnshardError as error:
            refused.append(error)
            continue
        readable.append(table)
    return readable, refused


def _hidden(connection: Connection, source: str, tables: Mapping[TableId, TableId]) -> list[Item]:
    """Compare the server's own binlog filters with the schemas of the shards."""
    try:
        rows = upstream.show_status(connection)
    except UnshardError:
        rows = []  # the privilege is missing, which has its own item
    schemas = {table.schema for table in tables}
    errors: list[UnshardError] = []
    for row in rows:
        only, ignored = (set(filter(None, str(value or "").split(","))) for value in row[2:4])
        for option, value, lost in (
            ("binlog-do-db", only, schemas - only if only else set()),
            ("binlog-ignore-db", ignored, schemas & ignored),
        ):
            if lost:
                errors.append(
                    checks.BinlogHidesSchemas(source, option, ",".join(sorted(value)), ", ".join(sorted(lost)))
                )
    return verdict("binlog_db", f"source {source}", errors, "no schema is hidden" if rows and schemas else "")


def _start_items(instance: Instance, server: Server, connection: Connection, place: str, is_loaded: bool) -> list[Item]:
    if is_loaded:
        return [Item("meta_position", Severity.OK, place, "without effect: the task continues from its checkpoint")]
    try:
        gone = _start_gone(connection, instance) if instance.start else _gtid_gone(server, instance)
    except UnshardError:
        return []  # privileges are missing, or the binlog is off: both have their own items
    return verdict("meta_position", place, gone, str(instance.start or instance.start_gtid))


def _start_gone(connection: Connection, instance: Instance) -> list[UnshardError]:
    start, source = instance.start, instance.source.id
    assert start is not None
    files = upstream.binlog_files(connection)
    if files and start.file not in files:
        return [checks.StartGone(source, start.file, next(iter(files)))]
    size = files.get(start.file, start.position)
    if start.position > size:
        return [checks.StartBeyond(source, str(start), size)]
    return [] if upstream.is_border(connection, start) else [checks.StartWithin(source, str(start))]


def _gtid_gone(server: Server, instance: Instance) -> list[UnshardError]:
    try:
        locate(server, instance.source.id, instance.start_gtid, instance.source.server_id)
    except GtidNotFound as error:
        return [error]
    return []


def _unknown_types(schemas: Mapping[TableId, TableSchema]) -> Iterator[UnshardError]:
    """Yield the columns whose type unshard does not know; of equal structures, those of the first table."""
    tables = {schema.shape: (table, schema) for table, schema in reversed([*schemas.items()])}
    for table, schema in tables.values():
        for column in schema.columns:
            if not is_known(column):
                yield UnknownColumnType(f"{table}.{column.name}", column.column_type)


def _table_items(
    place: str,
    schemas: Mapping[TableId, TableSchema],
    engines: Mapping[TableId, str],
    about_keys: Sequence[UnshardError],
) -> list[Item]:
    keyless = [table for table, schema in schemas.items() if not schema.key]
    problems: list[UnshardError] = [checks.KeylessTable(str(table)) for table in keyless]
    problems += [
        checks.NotTransactional(str(table), engines[table])
        for table in keyless
        if engines and engines[table].lower() not in TRANSACTIONAL
    ]
    problems += about_keys
    fine = "every shard has a key, none a foreign key" if schemas else ""
    return verdict("table_schema", place, problems, fine)
