"""Precheck: everything that would stop a task later, found before the first row moves.

All problems are reported, not only the first; each is an item with severity, place, message and
remedy. The servers are asked side by side. Nothing is changed anywhere. The command `check`, the start
of `run` and the first task of the full DAG are this one function.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum

from pymysql.connections import Connection

from unshard.adapters import mysql, structures
from unshard.config import Connections, Instance, Task, environment_connections, resolve
from unshard.core import grants
from unshard.core.alike import structure_differences, unfit_reasons
from unshard.core.constants import constants_of
from unshard.core.literals import INTEGERS
from unshard.core.mapping import Mapped, PartitionId, fitted, overlaps
from unshard.core.model import Shard, TableId, TableSchema
from unshard.errors import UnshardError
from unshard.errors.source import (
    BinlogDisabled,
    BinlogHidesSchemas,
    BinlogSettingWrong,
    FlavorWrong,
    KeylessTable,
    NoShards,
    NotTransactional,
    PrecheckFailed,
    PrivilegesMissing,
    RuleIdle,
    SequenceLeftOut,
    ServerIdZero,
    ShardsDiffer,
    StatementRefused,
)
from unshard.errors.target import (
    ExtractedColumnMissing,
    ExtractedColumnTaken,
    ExtractedValueUnfit,
    ExtractionNeedsTable,
    LocalInfileOff,
    MappedColumnMissing,
    MappedColumnUnfit,
    MappedIdsTooLarge,
    MappedNotKey,
    MappingOverlap,
    TargetTableUnfit,
)
from unshard.units.discover import Found, find_shards

SOURCE_PRIVILEGES = ("REPLICATION SLAVE", "REPLICATION CLIENT")
TARGET_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "INDEX")
TRANSACTIONAL = frozenset({"innodb", "rocksdb", "tokudb"})
NAMES_UNFIT = (
    ExtractionNeedsTable, ExtractedColumnMissing, ExtractedColumnTaken, ExtractedValueUnfit,
    MappedColumnMissing, MappedColumnUnfit, MappedNotKey,
)  # fmt: skip
"""What a shard's names do to its rows, and structures that do not take it."""


class Severity(StrEnum):
    """What an item means for the task."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was checked in one place."""

    name: str
    severity: Severity
    place: str
    message: str
    code: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class _Checked:
    """What one source told: its items, shards and their structures."""

    items: tuple[Item, ...]
    found: Found | None = None
    schemas: Mapping[TableId, TableSchema] | None = None


def precheck(
    task: Task, connections: Connections = environment_connections, loaded: Container[str] = ()
) -> tuple[Item, ...]:
    """Check sources, target and what they have in common; `loaded` are sources whose load is over.

    Structures of those may differ, because a DDL may be on its way through their shards.
    """
    with ThreadPoolExecutor(max_workers=len(task.instances) + 1, thread_name_prefix="precheck") as pool:
        sources = {i.source.id: pool.submit(_check_source, i, connections) for i in task.instances}
        target = pool.submit(_check_target, task, connections)
        checked = {source: each.result() for source, each in sources.items()}
        items = [item for each in checked.values() for item in each.items]
        shards = _shards({source: each for source, each in checked.items() if source not in loaded})
        items += _structures_alike(shards)
        items += _mapped_apart(task, shards)
        items += _rules_idle(checked)
        items += target.result()
    if not any(item.name == "reachable" and item.place == "target" and item.code for item in items):
        items += _target_tables(task, connections, shards)
    return tuple(items)


def raise_if_failed(items: Sequence[Item]) -> None:
    """Raise the coded error that a failed precheck ends a task with."""
    errors = [item for item in items if item.severity is Severity.ERROR]
    if errors:
        raise PrecheckFailed(len(errors), f"[{errors[0].code}] {errors[0].message}")


def _problem(name: str, place: str, error: UnshardError, severity: Severity = Severity.ERROR) -> Item:
    return Item(name, severity, place, error.message, error.code, error.hint.format_map(vars(error)))


def _verdict(
    name: str, place: str, errors: Sequence[UnshardError], fine: str, severity: Severity = Severity.ERROR
) -> list[Item]:
    return [_problem(name, place, error, severity) for error in errors] or [Item(name, Severity.OK, place, fine)]


def _check_source(instance: Instance, connections: Connections) -> _Checked:
    source = instance.source.id
    place = f"source {source}"
    try:
        server = resolve(instance.source.endpoint, connections)
        with closing(mysql.connect(server, place)) as connection:
            return _ask_source(instance, connection)
    except UnshardError as error:
        return _Checked((_problem("reachable", place, error),))


def _ask_source(instance: Instance, connection: Connection) -> _Checked:
    source = instance.source.id
    place = f"source {source}"
    values = _variables(connection)
    found = find_shards(connection, instance)
    readable, refused = _readable(connection, found.targets)
    schemas = structures.read_schemas(connection, readable)
    zero = [ServerIdZero(source)] if values["server_id"] == "0" else []
    no_shards = [] if found.targets or found.problems else [NoShards(source, _account(connection), found.seen)]
    items = [
        Item("reachable", Severity.OK, place, "answers"),
        *_verdict("version", place, _flavor(instance, values["version"]), values["version"]),
        *_verdict("server_id", place, zero, values["server_id"]),
        *_binlog_items(source, place, values),
        *_verdict("replication_privilege", place, _lacking(connection, place, SOURCE_PRIVILEGES), "granted"),
        *_verdict("dump_privilege", place, refused, f"SELECT on {len(readable)} shards"),
        *_verdict("shards", place, no_shards, f"{len(found.targets)} of {found.seen} tables are shards"),
        *_verdict("routes", place, found.problems, f"{len(set(found.targets.values()))} targets"),
        *_verdict("binlog_db", place, _hidden(connection, source, found.targets), "no schema is hidden"),
        *_table_items(place, schemas, found.engines),
        *(_problem("sequence", place, SequenceLeftOut(str(table)), Severity.WARNING) for table in found.sequences),
        *_mapping_items(instance, connection, schemas),
    ]
    return _Checked(tuple(items), found, schemas)


def _variables(connection: Connection) -> dict[str, str]:
    rows = mysql.query(connection, (
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'server_id', 'log_bin', 'binlog_format',"
        " 'binlog_row_image', 'local_infile')"
    ))  # fmt: skip
    return {name: str(value) for name, value in rows}


def _binlog_items(source: str, place: str, values: Mapping[str, str]) -> list[Item]:
    if values["log_bin"] != "ON":
        return [_problem("binlog_enable", place, BinlogDisabled(source))]
    items = [Item("binlog_enable", Severity.OK, place, "ON")]
    for variable, wanted in (("binlog_format", "ROW"), ("binlog_row_image", "FULL")):
        value = values.get(variable, wanted)
        wrong = [BinlogSettingWrong(source, variable, value, wanted)] if value.upper() != wanted else []
        items += _verdict(variable, place, wrong, value)
    return items


def _flavor(instance: Instance, version: str) -> list[UnshardError]:
    declared = str(instance.source.flavor)
    actual = "mariadb" if "mariadb" in version.lower() else "mysql"
    return [FlavorWrong(instance.source.id, declared, version)] if declared not in ("", actual) else []


def _lacking(connection: Connection, where: str, privileges: Sequence[str], schema: str = "*") -> list[UnshardError]:
    """Return the error that names the privileges which the account lacks on that scope."""
    known = grants.parse(line for (line,) in mysql.query(connection, "SHOW GRANTS"))
    lacking = grants.missing(known, privileges, schema)
    scope = "*.*" if schema == "*" else f"{mysql.identifier(schema)}.*"
    return [PrivilegesMissing(where, _account(connection), ", ".join(lacking), scope)] if lacking else []


def _account(connection: Connection) -> str:
    ((account,),) = mysql.query(connection, "SELECT CURRENT_USER()")
    return str(account)


def _readable(connection: Connection, tables: Mapping[TableId, TableId]) -> tuple[list[TableId], list[UnshardError]]:
    """Try a SELECT on every shard: exact whatever the account's grants and roles are."""
    readable: list[TableId] = []
    refused: list[UnshardError] = []
    for table in tables:
        try:
            mysql.query(connection, f"SELECT * FROM {mysql.table_name(table)} LIMIT 0")  # noqa: S608
        except UnshardError as error:
            refused.append(error)
            continue
        readable.append(table)
    return readable, refused


def _hidden(connection: Connection, source: str, tables: Mapping[TableId, TableId]) -> list[UnshardError]:
    """Compare the server's own binlog filters with the schemas of the shards."""
    try:
        rows = mysql.query(connection, "SHOW MASTER STATUS")
    except StatementRefused:
        rows = mysql.query(connection, "SHOW BINARY LOG STATUS")  # MySQL 8.4 dropped the old words
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


def _table_items(place: str, schemas: Mapping[TableId, TableSchema], engines: Mapping[TableId, str]) -> list[Item]:
    keyless = [table for table, schema in schemas.items() if not schema.key]
    plain = [table for table in keyless if engines[table].lower() not in TRANSACTIONAL]
    return [
        *_verdict("table_key", place, [KeylessTable(str(table)) for table in keyless], "every shard has a key",
                  Severity.WARNING),
        *(_problem("table_engine", place, NotTransactional(str(table), engines[table]), Severity.WARNING)
          for table in plain),
    ]  # fmt: skip


Shards = Mapping[TableId, Mapping[Shard, TableSchema]]


def _shards(checked: Mapping[str, _Checked]) -> Shards:
    """Group the structures of all sources by target."""
    groups: dict[TableId, dict[Shard, TableSchema]] = {}
    for source, each in checked.items():
        for table, schema in (each.schemas or {}).items():
            if each.found is not None:
                groups.setdefault(each.found.targets[table], {})[Shard(source, table)] = schema
    return groups


def _structures_alike(groups: Shards) -> list[Item]:
    items: list[Item] = []
    for target, shards in sorted(groups.items()):
        first, *others = shards
        errors = [
            ShardsDiffer(str(target), str(first), str(other), "; ".join(differences))
            for other in others
            if shards[other].shape != shards[first].shape
            and (differences := structure_differences(shards[first], shards[other]))
        ]
        items += _verdict("schema_of_shard_tables", f"target {target}", errors, f"{len(shards)} shards are alike")
    return items


def _mapping_items(instance: Instance, connection: Connection, schemas: Mapping[TableId, TableSchema]) -> list[Item]:
    if not instance.routing.mappings:
        return []
    errors = list(_ids_too_large(connection, instance, schemas))
    return _verdict("column_mapping", f"source {instance.source.id}", errors, "all ids fit into their bits")


def _mapped_apart(task: Task, groups: Shards) -> list[Item]:
    """See that column mappings keep the ids of all shards of a target apart."""
    items: list[Item] = []
    for target, shards in sorted(groups.items()):
        mapped = {shard: task.instance(shard.source).routing.reshaping(shard.table).mapped for shard in shards}
        if any(mapped.values()):
            found = overlaps({str(shard): (schema, mapped[shard]) for shard, schema in shards.items()})
            errors = [MappingOverlap(str(target), name, o.first, o.second, o.start) for name, o in found.items()]
            items += _verdict("column_mapping", f"target {target}", errors, f"{len(shards)} shards are kept apart")
    return items


def _ids_too_large(
    connection: Connection, instance: Instance, schemas: Mapping[TableId, TableSchema]
) -> Iterator[UnshardError]:
    """Ask the shards whose mapped column an index begins with for their ids: others would be read in full."""
    for table, schema in schemas.items():
        for each in instance.routing.reshaping(table).mapped:
            if not isinstance(each.change, PartitionId) or not _is_asked(schema, each):
                continue
            name = mysql.identifier(each.source)
            sql = f"SELECT MIN({name}) + 0, MAX({name}) + 0 FROM {mysql.table_name(table)}"  # noqa: S608
            ((low, high),) = mysql.query(connection, sql)
            if low is not None and (int(low) < 0 or int(high) >> each.change.free):
                shard = str(Shard(instance.source.id, table))
                yield MappedIdsTooLarge(shard, each.source, int(low), int(high), each.change.free, each.rule)


def _is_asked(schema: TableSchema, mapped: Mapped) -> bool:
    column = next((c for c in schema.columns if c.name.lower() == mapped.source.lower()), None)
    firsts = {index.columns[0].lower() for index in schema.indexes}
    return column is not None and column.data_type in INTEGERS and mapped.source.lower() in firsts


def _rules_idle(checked: Mapping[str, _Checked]) -> list[Item]:
    """Name rules that match no table of any source that has them; a source that is silent leaves it open."""
    found = {source: each.found for source, each in checked.items() if each.found is not None}
    if len(found) < len(checked):
        return []
    judged: dict[str, list[tuple[str, bool]]] = {}
    for source, each in found.items():
        for rule, idle in each.idle.items():
            judged.setdefault(rule, []).append((source, idle))
    errors = [
        RuleIdle(rule, ", ".join(source for source, _ in verdicts))
        for rule, verdicts in judged.items()
        if all(idle for _, idle in verdicts)
    ]
    return _verdict("rules", "task", errors, f"{len(judged)} routes and entries of lists match something",
                    Severity.WARNING)  # fmt: skip


def _check_target(task: Task, connections: Connections) -> list[Item]:
    try:
        with closing(mysql.connect(resolve(task.target, connections), "target")) as connection:
            values = _variables(connection)
            infile = [LocalInfileOff(_account(connection))] if values.get("local_infile") == "OFF" else []
            return [
                Item("reachable", Severity.OK, "target", f"answers, version {values['version']}"),
                *_verdict("local_infile", "target", infile, "ON", Severity.WARNING),
                *_verdict("meta_schema", "target", _lacking(connection, "target", TARGET_PRIVILEGES, task.meta_schema),
                          f"privileges on {task.meta_schema}"),
            ]  # fmt: skip
    except UnshardError as error:
        return [_problem("reachable", "target", error)]


def _target_tables(task: Task, connections: Connections, groups: Shards) -> list[Item]:
    """Check privileges on the target schemas, and target tables that exist already."""
    items: list[Item] = []
    with closing(mysql.connect(resolve(task.target, connections), "target")) as connection:
        for schema in sorted({target.schema for target in groups}):
            lacking = _lacking(connection, "target", TARGET_PRIVILEGES, schema)
            items += _verdict("target_privilege", "target", lacking, f"privileges on {schema}")
        existing = structures.read_schemas(connection, sorted(groups))
    for target, shards in sorted(groups.items()):
        unfit = list(_unfit(task, target, existing.get(target), shards))
        fine = "exists and fits" if target in existing else "will be created"
        items += _verdict("target_tables", f"target {target}", unfit, fine)
    return items


def _unfit(
    task: Task, target: TableId, present: TableSchema | None, shards: Mapping[Shard, TableSchema]
) -> Iterator[UnshardError]:
    """Say why the target table cannot take the rows; of shards that lack a place for the same reason, the first."""
    reasons: set[str] = set()
    refused: dict[str, UnshardError] = {}
    for shard, structure in shards.items():
        reshaping = task.instance(shard.source).routing.reshaping(shard.table)
        extracted = reshaping.extracted
        columns = [each.column for each in extracted]
        try:
            if present is not None:
                reasons.update(unfit_reasons(present, structure, {column.lower() for column in columns}))
                constants_of(str(shard), structure, target, present, extracted)
            elif columns:
                raise ExtractionNeedsTable(str(target), str(shard), ", ".join(columns))
            there = {column.name.lower(): column for column in (present or structure).columns}
            fitted(str(shard), structure, target, there, reshaping.mapped)
        except NAMES_UNFIT as error:
            refused.setdefault(f"{error.code} {columns}", error)
    if reasons:
        yield TargetTableUnfit(str(target), "; ".join(sorted(reasons)))
    yield from refused.values()
