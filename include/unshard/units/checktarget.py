"""What the target is asked before a task begins: settings, privileges, tables that exist already, collations."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from pymysql.connections import Connection

from unshard.adapters import mysql, structures
from unshard.adapters.target.session import LISTED_WARNINGS
from unshard.config import Connections, OnDuplicate, PrimaryKey, Task, resolve
from unshard.config.model import CLUSTERED_INDEX
from unshard.core.alike import unfit_reasons
from unshard.core.constants import constants_of
from unshard.core.mapping import fitted
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.narrower import narrower
from unshard.core.prechecks import (
    Item,
    Severity,
    collation_problems,
    problem,
    target_problems,
    verdict,
    version_problems,
)
from unshard.core.targetsettings import RULES, wrong_settings
from unshard.errors import UnshardError
from unshard.errors.prechecks import CollationUnknown, PrimaryKeyChoiceUnknown, TargetNarrower, TargetReadOnly
from unshard.errors.source import MissingPrivilege, PrivilegesMissing, SessionVariableRefused, StatementRefused
from unshard.errors.target import (
    EngineNotTransactional,
    ExtractedColumnMissing,
    ExtractedColumnTaken,
    ExtractedValueUnfit,
    ExtractionNeedsTable,
    LocalInfileOff,
    MappedColumnMissing,
    MappedColumnUnfit,
    MappedNotKey,
    TargetNotEmpty,
    TargetTableUnfit,
)
from unshard.units.checkfilters import row_filters
from unshard.units.checksource import Checked, account, granted, lacking, scarce, variables
from unshard.units.checkstructures import structure_items

PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "INDEX")
TEMPORARY = ("CREATE TEMPORARY TABLES",)
"""For the rows that expression filters are evaluated over."""
NAMES_UNFIT = (
    ExtractionNeedsTable, ExtractedColumnMissing, ExtractedColumnTaken, ExtractedValueUnfit,
    MappedColumnMissing, MappedColumnUnfit, MappedNotKey,
)  # fmt: skip
"""What a shard's names do to its rows, and structures that do not take it."""
EXTRA_CONNECTIONS = 3
"""Meta store, DDL and shadow tables, beside those that load."""
READ_ONLY = (1290, 1836)
PLACE = "target"

Shards = Mapping[TableId, Mapping[Shard, TableSchema]]


def check_target(task: Task, connections: Connections) -> Checked:
    """Ask the target what does not depend on the sources."""
    try:
        with closing(mysql.connect(resolve(task.target, connections), PLACE)) as connection:
            values, known = variables(connection), granted(connection)
            infile = [LocalInfileOff(account(connection))] if values.get("local_infile") == "OFF" else []
            needed = sum(instance.load.threads for instance in task.instances) + EXTRA_CONNECTIONS
            version = values["version"]
            meta = lacking(connection, PLACE, PRIVILEGES, known, task.meta_schema)
            return Checked((
                Item("reachable", Severity.OK, PLACE, f"answers, version {version}"),
                *([] if "tidb" in version.lower() else verdict(
                    "version", PLACE, version_problems(PLACE, version), version, Severity.WARNING)),
                *(problem("version", PLACE, error) for error in target_problems(version)),
                *verdict("local_infile", PLACE, infile, "ON", Severity.WARNING),
                *verdict("conn_number", PLACE, scarce(connection, PLACE, values, needed), f"room for {needed}",
                         Severity.WARNING),
                *verdict("target_settings", PLACE, wrong_settings(_session(connection)), "fit"),
                *verdict("meta_schema", PLACE, meta, f"privileges on {task.meta_schema}"),
                *(problem("target_privilege", PLACE, error) for error in _session_refused(connection)),
            ), values=values)  # fmt: skip
    except SessionVariableRefused as error:
        chosen = error.variable == CLUSTERED_INDEX and task.options.primary_key is not PrimaryKey.DEFAULT
        return Checked((problem("reachable", PLACE, PrimaryKeyChoiceUnknown(error.words) if chosen else error),))
    except UnshardError as error:
        return Checked((problem("reachable", PLACE, error),))


def _session(connection: Connection) -> dict[str, str]:
    """Return the settings of the session as it works: those of the server and of the task's `session` block."""
    marks = ", ".join(["%s"] * len(RULES))
    rows = mysql.query(connection, f"SHOW SESSION VARIABLES WHERE Variable_name IN ({marks})", list(RULES))
    return {name: str(value) for name, value in rows}


def _session_refused(connection: Connection) -> list[UnshardError]:
    """Try what a writing session sets and MySQL 8 lets few accounts set: every warning about a row must be listed."""
    try:
        mysql.query(connection, f"SET SESSION max_error_count = {LISTED_WARNINGS}")
    except MissingPrivilege:
        return [PrivilegesMissing(PLACE, account(connection), "SESSION_VARIABLES_ADMIN", "*.*")]
    return []


def check_tables(task: Task, connections: Connections, groups: Shards, filtered: Shards, is_new: bool) -> list[Item]:
    """Check privileges on the target schemas, target tables that exist already, collations of those that do not.

    `groups` are the shards that are still to be loaded, `filtered` all: expression filters hold for all of them. Rows
    of a table are those of others if the task `is_new`.
    """
    items: list[Item] = []
    with closing(mysql.connect(resolve(task.target, connections), PLACE)) as connection:
        known = granted(connection)
        for schema in sorted({target.schema for target in groups}):
            refused = lacking(connection, PLACE, PRIVILEGES, known, schema)
            items += verdict("target_privilege", PLACE, refused, f"privileges on {schema}")
        existing = structures.read_schemas(connection, sorted(groups))
        temporary = lacking(connection, PLACE, TEMPORARY, known, task.meta_schema)
        items += row_filters(task, connection, temporary, filtered)
        # A DDL is tried out on a table that is made like the shard, so a task that syncs makes tables in any case.
        made = {target: groups[target] for target in groups if task.task_mode.syncs or target not in existing}
        meta = lacking(connection, PLACE, PRIVILEGES, known, task.meta_schema)
        items += verdict("collation", PLACE, _unknown_collations(connection, made), "all of the shards are known")
        mixed = [target for target in existing if is_new and _refuses_rows(task, groups[target])]
        filled = {target for target in mixed if structures.has_rows(connection, target)}
    items += [] if meta else _structures(task, connections, groups, existing)
    for target, shards in sorted(groups.items()):
        unfit = list(_unfit(task, target, existing.get(target), shards))
        unfit += [TargetNotEmpty(str(target))] if target in filled else []
        collations = {str(shard): structure.collation for shard, structure in shards.items()}
        collations |= {PLACE: existing[target].collation} if target in existing else {}
        items += [
            problem("collation", f"target {target}", error, Severity.WARNING)
            for error in collation_problems("the default collation of tables", collations)
        ]
        narrow = [] if unfit or target not in existing else _narrower(task, target, existing[target], shards)
        fine = "exists and fits" if target in existing else "will be created"
        items += verdict("target_tables", f"target {target}", unfit or narrow, fine,
                         Severity.ERROR if unfit else Severity.WARNING)  # fmt: skip
    return items


def _structures(
    task: Task, connections: Connections, groups: Shards, existing: Mapping[TableId, TableSchema]
) -> list[Item]:
    """Try whether the target can create tables like the shards, on a connection whose sql_mode may be changed."""
    try:
        with closing(mysql.connect(resolve(task.target, connections), PLACE)) as connection:
            return structure_items(task, connection, groups, existing)
    except UnshardError as error:
        if isinstance(error, StatementRefused) and error.errno in READ_ONLY:
            error = TargetReadOnly(error.words)
        return [problem("target_structure", PLACE, error)]


def _refuses_rows(task: Task, shards: Iterable[Shard]) -> bool:
    """Whether a load does not write between the rows of others."""
    policies = {task.instance(shard.source).load.on_duplicate for shard in shards}
    return task.task_mode.loads and OnDuplicate.ERROR in policies


def _narrower(
    task: Task, target: TableId, present: TableSchema, shards: Mapping[Shard, TableSchema]
) -> list[UnshardError]:
    """Return the columns that do not hold all values; those that a mapping changes are looked at by the mapping."""
    alike: dict[tuple[str, frozenset[str]], TableSchema] = {}  # their shapes are known: they were compared
    for shard, structure in shards.items():
        mapped = task.instance(shard.source).routing.reshaping(shard.table).mapped
        alike[structure.shape, frozenset(each.column.lower() for each in mapped)] = structure
    reasons = {reason for (_, but), structure in alike.items() for reason in narrower(present, structure, but)}
    return [TargetNarrower(str(target), "; ".join(sorted(reasons)))] if reasons else []


def _unknown_collations(connection: Connection, groups: Shards) -> list[UnshardError]:
    wanted: dict[tuple[str, str], tuple[TableId, str]] = {}
    for target, shards in sorted(groups.items()):
        for schema in shards.values():
            for column in schema.columns:
                if column.charset and column.collation:
                    wanted.setdefault((column.charset, column.collation), (target, f"column {column.name}"))
            if schema.collation:
                default = schema.collation.partition("_")[0], schema.collation
                wanted.setdefault(default, (target, "its own default"))
    return [
        CollationUnknown(str(target), collation, what)
        for (charset, collation), (target, what) in wanted.items()
        if not _knows(connection, charset, collation)
    ]


def _knows(connection: Connection, charset: str, collation: str) -> bool:
    """Let the server use it: lists of collations differ between makes and versions."""
    if not (charset + collation).replace("_", "").isalnum():
        return False
    try:
        mysql.query(connection, f"SELECT CONVERT('' USING {charset}) COLLATE {collation}")
    except StatementRefused:
        return False
    return True


def _unfit(
    task: Task, target: TableId, present: TableSchema | None, shards: Mapping[Shard, TableSchema]
) -> Iterator[UnshardError]:
    """Say why the target table cannot take the rows; of shards that lack a place for the same reason, the first."""
    if present is not None and present.lacks_transactions:
        yield EngineNotTransactional(str(target), present.lacks_transactions)
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
