"""What a source is asked before a task begins: its settings, the account's privileges, its shards."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from pymysql.connections import Connection

from unshard.adapters import mysql, structures, upstream
from unshard.config import Connections, Consistency, Instance, TaskMode, resolve
from unshard.core import grants
from unshard.core.model import TRANSACTIONAL, Server, TableId, TableSchema
from unshard.core.prechecks import (
    Item,
    Severity,
    image_problems,
    kept_for,
    problem,
    retention_problems,
    shortened,
    under_way,
    verdict,
    version_problems,
)
from unshard.errors import UnshardError
from unshard.errors.prechecks import ConnectionsScarce, ForeignKeysLeft, StartBeyond, StartGone, StartWithin
from unshard.errors.relay import GtidNotFound
from unshard.errors.source import (
    BinlogDisabled,
    BinlogHidesSchemas,
    BinlogSettingWrong,
    FlavorWrong,
    KeylessTable,
    NoShards,
    NotTransactional,
    PrivilegesMissing,
    SequenceLeftOut,
    ServerIdZero,
)
from unshard.units.checkcondition import dump_condition
from unshard.units.checkmapping import mapped_ids
from unshard.units.discover import Found, find_shards
from unshard.units.failover import locate

REPLICATION = ("REPLICATION SLAVE", "REPLICATION CLIENT")
EXTRA_CONNECTIONS = 3
"""Relay, snapshot and status, beside the threads of the dump."""
VARIABLES = ("version", "server_id", "log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata",
             "local_infile", "max_connections", "lower_case_table_names", "expire_logs_days",
             "binlog_expire_logs_seconds", "sql_mode", "collation_server")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Checked:
    """What one source told: its items, shards and their structures."""

    items: tuple[Item, ...]
    found: Found | None = None
    schemas: Mapping[TableId, TableSchema] | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0
    """What the rows of its shards take there, as the server estimates it."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The collations that the schemas of its shards give to their tables."""
    offsets: Mapping[datetime, timedelta] = field(default_factory=dict)
    """What its clock is ahead of UTC at some moments, if its sessions are in its SYSTEM time zone."""


def check_source(instance: Instance, mode: TaskMode, connections: Connections, is_loaded: bool) -> Checked:
    """Ask one source everything; one that does not answer is an item like the others."""
    place = f"source {instance.source.id}"
    try:
        server = resolve(instance.source.endpoint, connections)
        with closing(mysql.connect(server, place)) as connection:
            checked = _ask(instance, server, connection, is_loaded)
            if is_loaded or checked.schemas is None:
                return checked
            image = checked.values.get("binlog_row_image", "FULL")
            items = dump_condition(instance, mode, connection, checked.schemas, image)
            return replace(checked, items=(*checked.items, *items))
    except UnshardError as error:
        return Checked((problem("reachable", place, error),))


def _ask(instance: Instance, server: Server, connection: Connection, is_loaded: bool) -> Checked:
    source, place = instance.source.id, f"source {instance.source.id}"
    values = variables(connection)
    known = granted(connection)
    found = find_shards(connection, instance)
    readable, refused = _readable(connection, found.targets, known)
    schemas = structures.read_schemas(connection, readable)
    zero = [ServerIdZero(source)] if values["server_id"] == "0" else []
    no_shards = [] if found.targets or found.problems else [NoShards(source, account(connection), found.seen)]
    locks = instance.dump.consistency is Consistency.LOCK
    for schema in sorted({table.schema for table in found.targets}) if locks else ():
        refused += lacking(connection, place, ("LOCK TABLES",), known, schema)
    refused += [] if "mariadb" in values["version"].lower() else lacking(connection, place, ("RELOAD",), known)
    needed = instance.dump.threads + EXTRA_CONNECTIONS
    items = [
        Item("reachable", Severity.OK, place, "answers"),
        *_version_items(instance, place, values["version"]),
        *verdict("server_id", place, zero, values["server_id"]),
        *_binlog_items(source, place, values),
        *verdict("replication_privilege", place, lacking(connection, place, REPLICATION, known), "granted"),
        *verdict("dump_privilege", place, refused, f"SELECT on {len(readable)} shards"),
        *verdict("conn_number", place, scarce(connection, place, values, needed), f"room for {needed}",
                 Severity.WARNING),
        *verdict("shards", place, no_shards, f"{len(found.targets)} of {found.seen} tables are shards"),
        *verdict("routes", place, found.problems, f"{len(set(found.targets.values()))} targets"),
        *verdict("binlog_db", place, _hidden(connection, source, found.targets), "no schema is hidden"),
        *verdict("online_ddl", place, under_way(source, found.ghosts, found.doubtful), "no tool changes a shard",
                 Severity.WARNING),
        *_table_items(source, place, schemas, {} if locks else found.engines, _referring(connection, found.targets)),
        *(problem("sequence", place, SequenceLeftOut(str(table)), Severity.WARNING) for table in found.sequences),
        *mapped_ids(instance, connection, schemas),
    ]  # fmt: skip
    if (instance.start or instance.start_gtid) and not instance.start_time:
        items += _start_items(instance, server, connection, place, is_loaded)
    size = sum(structures.table_sizes(connection, found.targets).values())
    within = {table.schema for table in found.targets}
    given = structures.read_defaults(connection).items()
    defaults = {schema: default.collation for schema, default in given if schema in within}
    return Checked(tuple(items), found, schemas, values, size, defaults, _offsets(connection))


def variables(connection: Connection) -> dict[str, str]:
    """Return the server's settings that anything here depends on."""
    marks = ", ".join(["%s"] * len(VARIABLES))
    rows = mysql.query(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", VARIABLES)
    return {name: str(value) for name, value in rows}


def granted(connection: Connection) -> tuple[grants.Grant, ...]:
    """Return what the account may do."""
    return grants.parse(line for (line,) in mysql.query(connection, "SHOW GRANTS"))


def lacking(
    connection: Connection, where: str, privileges: Sequence[str], known: Sequence[grants.Grant], schema: str = "*"
) -> list[UnshardError]:
    """Return the error that names the privileges which the account lacks on that scope."""
    missing = grants.missing(known, privileges, schema)
    scope = "*.*" if schema == "*" else f"{mysql.identifier(schema)}.*"
    return [PrivilegesMissing(where, account(connection), ", ".join(missing), scope)] if missing else []


def account(connection: Connection) -> str:
    """Return the account that the connection has, as it is named in GRANT."""
    ((name,),) = mysql.query(connection, "SELECT CURRENT_USER()")
    return str(name)


def scarce(connection: Connection, place: str, values: Mapping[str, str], needed: int) -> list[UnshardError]:
    """Return the warning that the server has not room for so many connections now."""
    limit = int(values["max_connections"])
    if not limit:  # TiDB: no limit
        return []
    found = mysql.query(connection, "SHOW GLOBAL STATUS LIKE 'Threads_connected'")
    connected = found[0][1] if found else len(mysql.query(connection, "SHOW PROCESSLIST"))  # TiDB has no such status
    free = limit - int(connected)
    return [ConnectionsScarce(place, needed, free)] if free < needed else []


def _version_items(instance: Instance, place: str, version: str) -> list[Item]:
    declared = str(instance.source.flavor)
    actual = "mariadb" if "mariadb" in version.lower() else "mysql"
    if declared not in ("", actual):
        return [problem("version", place, FlavorWrong(instance.source.id, declared, version))]
    return verdict("version", place, version_problems(place, version), version, Severity.WARNING)


def _binlog_items(source: str, place: str, values: Mapping[str, str]) -> list[Item]:
    if values["log_bin"] != "ON":
        return [problem("binlog_enable", place, BinlogDisabled(source))]
    items = [Item("binlog_enable", Severity.OK, place, "ON")]
    form, image = values.get("binlog_format", "ROW"), values.get("binlog_row_image", "FULL")
    wrong = [BinlogSettingWrong(source, "binlog_format", form, "ROW")] if form.upper() != "ROW" else []
    items += verdict("binlog_format", place, wrong, form)
    items += verdict("binlog_row_image", place, image_problems(source, image), image, Severity.WARNING)
    metadata, kept = values.get("binlog_row_metadata", "not there"), kept_for(values)
    told = f"{metadata}: rows tell their own columns" if metadata == "FULL" else f"{metadata}: columns are tracked"
    shown = "for ever" if kept is None else f"for {kept}"
    return [*items, Item("binlog_row_metadata", Severity.OK, place, told),
            *verdict("binlog_retention", place, retention_problems(source, kept), shown, Severity.WARNING)]  # fmt: skip


def _readable(
    connection: Connection, tables: Mapping[TableId, TableId], known: Sequence[grants.Grant]
) -> tuple[list[TableId], list[UnshardError]]:
    """Try a SELECT on every shard that no grant is known to open: exact whatever the account's roles are."""
    open_schemas = {table.schema: not grants.missing(known, ("SELECT",), table.schema) for table in tables}
    readable: list[TableId] = []
    refused: list[UnshardError] = []
    for table in tables:
        try:
            if not open_schemas[table.schema]:
                mysql.query(connection, f"SELECT * FROM {mysql.table_name(table)} LIMIT 0")  # noqa: S608
        except UnshardError as error:
            refused.append(error)
            continue
        readable.append(table)
    return readable, refused


def _hidden(connection: Connection, source: str, tables: Mapping[TableId, TableId]) -> list[UnshardError]:
    """Compare the server's own binlog filters with the schemas of the shards."""
    try:
        rows = upstream.show_status(connection)
    except UnshardError:
        return []  # lacks the privilege, which is an item of its own
    schemas = {table.schema for table in tables}
    errors: list[UnshardError] = []
    for row in rows:
        only, ignored = (set(filter(None, str(value or "").split(","))) for value in row[2:4])
        for option, value, lost in (("binlog-do-db", only, schemas - only if only else set()),
                                    ("binlog-ignore-db", ignored, schemas & ignored)):  # fmt: skip
            if lost:
                errors.append(BinlogHidesSchemas(source, option, ",".join(sorted(value)), ", ".join(sorted(lost))))
    return errors


def _offsets(connection: Connection) -> dict[datetime, timedelta]:
    """Ask for today's and that of half a year later, because the law changes clocks twice a year."""
    ((zone, now, later, *minutes),) = mysql.query(connection, (
        "SELECT @@GLOBAL.time_zone, t, u, TIMESTAMPDIFF(MINUTE, t, CONVERT_TZ(t, '+00:00', 'SYSTEM')),"
        " TIMESTAMPDIFF(MINUTE, u, CONVERT_TZ(u, '+00:00', 'SYSTEM'))"
        " FROM (SELECT UTC_TIMESTAMP() t, UTC_TIMESTAMP() + INTERVAL 6 MONTH u) moments"
    ))  # fmt: skip
    pairs = zip((now, later), minutes, strict=True)
    return {moment: timedelta(minutes=ahead) for moment, ahead in pairs} if zone == "SYSTEM" else {}


def _start_items(instance: Instance, server: Server, connection: Connection, place: str, is_loaded: bool) -> list[Item]:
    if is_loaded:
        return [Item("meta_position", Severity.OK, place, "without effect: the task goes on from its checkpoint")]
    gone = _start_gone(connection, instance) if instance.start else _gtid_gone(server, instance)
    return verdict("meta_position", place, gone, str(instance.start or instance.start_gtid))


def _start_gone(connection: Connection, instance: Instance) -> list[UnshardError]:
    start, source = instance.start, instance.source.id
    assert start is not None
    try:
        files = upstream.binlog_files(connection)
        if files and start.file not in files:
            return [StartGone(source, start.file, next(iter(files)))]
        size = files.get(start.file, start.position)
        if start.position > size:
            return [StartBeyond(source, str(start), size)]
        return [] if upstream.is_border(connection, start) else [StartWithin(source, str(start))]
    except UnshardError:
        return []  # lacks the privileges, or the binlog is off: items of their own


def _gtid_gone(server: Server, instance: Instance) -> list[UnshardError]:
    try:
        locate(server, instance.source.id, instance.start_gtid, instance.source.server_id)
    except GtidNotFound as error:
        return [error]
    except UnshardError:
        return []  # as above
    return []


def _referring(connection: Connection, tables: Mapping[TableId, TableId]) -> list[TableId]:
    """Return the shards that have foreign keys."""
    rows = mysql.query(connection, (
        "SELECT DISTINCT CONSTRAINT_SCHEMA, TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS ORDER BY 1, 2"
    ))  # fmt: skip
    return [table for schema, name in rows if (table := TableId(schema, name)) in tables]


def _table_items(
    source: str, place: str, schemas: Mapping[TableId, TableSchema], engines: Mapping[TableId, str],
    referring: Sequence[TableId],
) -> list[Item]:  # fmt: skip
    keyless = [table for table, schema in schemas.items() if not schema.key]
    problems: list[UnshardError] = [KeylessTable(str(table)) for table in keyless]
    problems += [NotTransactional(str(table), engines[table]) for table in keyless
                 if engines and engines[table].lower() not in TRANSACTIONAL]  # fmt: skip
    if referring:
        problems.append(ForeignKeysLeft(source, shortened([str(table) for table in referring])))
    return verdict("table_schema", place, problems, "every shard has a key, none a foreign key", Severity.WARNING)
