"""Checks of the target before a task begins: settings, privileges, existing tables, collations. Runs in the driver."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing

from pymysql.connections import Connection

from unshard.adapters import mysql, serverstate, structures
from unshard.adapters.serverstate import account
from unshard.adapters.target import tried_writing
from unshard.adapters.target.session import LISTED_WARNINGS
from unshard.adapters.trialtables import trial_table
from unshard.config import Connections, OnDuplicate, PrimaryKey, ShardMode, Task, resolve
from unshard.config.model import CLUSTERED_INDEX
from unshard.core.checks.items import (
    Item,
    Severity,
    collation_problems,
    problem,
    target_problems,
    verdict,
    version_problems,
)
from unshard.core.checks.targetsettings import RULES, wrong_settings
from unshard.core.model import Server, Shard, TableId, TableSchema
from unshard.core.structures.narrower import narrower
from unshard.errors import UnshardError
from unshard.errors.checks import (
    CheckFailed,
    CheckWarned,
    CollationUnknown,
    LocalInfileOff,
    PrimaryKeyChoiceUnknown,
    PrivilegesMissing,
    TargetNarrower,
    TargetReadOnly,
)
from unshard.errors.full import TargetNotEmpty
from unshard.errors.rows import EngineNotTransactional
from unshard.errors.source import MissingPrivilege, ServerReadOnly, SessionVariableRefused
from unshard.units.checks.filters import row_filters
from unshard.units.checks.fit import unfit
from unshard.units.checks.source import Checked, granted, lacking, scarce, variables
from unshard.units.checks.structures import structure_items
from unshard.units.checks.targetkeys import repeating
from unshard.units.ddl.createtrial import trial_schema

PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "INDEX")
TEMPORARY = ("CREATE TEMPORARY TABLES",)
"""For the rows on which expression filters are evaluated."""
EXTRA_CONNECTIONS = 3
"""Meta store, DDL and trial tables, in addition to those that load."""
PLACE = "target"

Shards = Mapping[TableId, Mapping[Shard, TableSchema]]


def check_target(task: Task, connections: Connections) -> Checked:
    """Check the properties of the target that do not depend on the sources."""
    try:
        with closing(mysql.connect(resolve(task.target, connections), PLACE)) as connection:
            values, known = variables(connection), granted(connection)
            infile = [LocalInfileOff(account(connection))] if values.get("local_infile") == "OFF" else []
            needed = sum(instance.load.threads for instance in task.instances) + EXTRA_CONNECTIONS
            version = values["version"]
            meta = lacking(connection, PLACE, PRIVILEGES, known, task.meta_schema)
            session = serverstate.session_variables(connection, list(RULES))
            return Checked(
                (
                    Item("reachable", Severity.OK, PLACE, f"answers, version {version}"),
                    *(
                        []
                        if "tidb" in version.lower()
                        else verdict("version", PLACE, version_problems(PLACE, version), version, Severity.WARNING)
                    ),
                    *(problem("version", PLACE, error) for error in target_problems(version)),
                    *verdict("local_infile", PLACE, infile, values.get("local_infile", ""), Severity.WARNING),
                    *verdict(
                        "conn_number",
                        PLACE,
                        scarce(connection, PLACE, values, needed),
                        f"room for {needed}",
                        Severity.WARNING,
                    ),
                    *verdict("target_settings", PLACE, wrong_settings(session), "fit" if session else ""),
                    *verdict("meta_schema", PLACE, meta, f"privileges on {task.meta_schema}"),
                    *(problem("target_privilege", PLACE, error) for error in _session_refused(connection)),
                ),
                values=values,
            )
    except SessionVariableRefused as error:
        chosen = error.variable == CLUSTERED_INDEX and task.options.primary_key is not PrimaryKey.DEFAULT
        return Checked(
            (problem("reachable", PLACE, PrimaryKeyChoiceUnknown(error.server_message) if chosen else error),)
        )
    except UnshardError as error:
        return Checked((problem("reachable", PLACE, error),))


def _session_refused(connection: Connection) -> list[UnshardError]:
    """Set the writers' session variables, which MySQL 8 restricts: every warning about a row must be listed."""
    try:
        serverstate.list_warnings(connection, LISTED_WARNINGS)
    except MissingPrivilege:
        return [PrivilegesMissing(PLACE, account(connection), "SESSION_VARIABLES_ADMIN", "*.*")]
    return []


def present_tables(task: Task, connections: Connections, targets: Collection[TableId]) -> dict[TableId, TableSchema]:
    """Read the structures of those target tables that exist."""
    with closing(mysql.connect(resolve(task.target, connections), PLACE)) as connection:
        return structures.read_schemas(connection, sorted(targets))


def check_tables(
    task: Task,
    connections: Connections,
    groups: Shards,
    existing: Mapping[TableId, TableSchema],
    filtered: Shards,
    is_new: bool,
) -> list[Item]:
    """Check privileges on the target schemas, existing target tables, and collations of the missing ones.

    `groups` are the shards that are still to load, `filtered` all shards: expression filters apply to all of them. If
    the task `is_new`, all rows of an existing table are foreign.
    """
    items: list[Item] = []
    with closing(mysql.connect(resolve(task.target, connections), PLACE)) as connection:
        known = granted(connection)
        for schema in sorted({target.schema for target in groups}):
            privileges = (*PRIVILEGES, "REFERENCES") if task.checks_foreign_keys else PRIVILEGES
            refused = lacking(connection, PLACE, privileges, known, schema)
            items += verdict("target_privilege", PLACE, refused, f"privileges on {schema}")
        temporary = lacking(connection, PLACE, TEMPORARY, known, task.meta_schema)
        items += row_filters(task, connection, temporary, filtered)
        # A DDL is tried on a table that is created like the shard, so a task that syncs creates tables in any case.
        made = {target: groups[target] for target in groups if task.task_mode.syncs or target not in existing}
        meta = lacking(connection, PLACE, PRIVILEGES, known, task.meta_schema)
        fine = "all collations of the shards are known" if made else ""
        items += verdict("collation", PLACE, _unknown_collations(connection, made), fine)
        mixed = [target for target in existing if is_new and _refuses_rows(task, groups[target])]
        filled = {target for target in mixed if structures.has_rows(connection, target)}
        repeats = repeating(task, groups, existing, lambda t: structures.has_rows(connection, t)) if is_new else {}
    items += [] if meta else _structures(task, connections, groups, existing)
    for target, shards in sorted(groups.items()):
        present = existing.get(target)
        is_ahead = len(filtered.get(target, ())) > len(shards)  # other sources are in sync
        wrong = list(unfit(task, target, present, shards, is_ahead=is_ahead))
        if present is not None and present.lacks_transactions:
            wrong.append(EngineNotTransactional(str(target), present.lacks_transactions))
        wrong += [TargetNotEmpty(str(target))] if target in filled else []
        wrong += [error for error in repeats.get(target, ()) if isinstance(error, CheckFailed)]
        collations = {str(shard): structure.collation for shard, structure in shards.items()}
        collations |= {PLACE: existing[target].collation} if target in existing else {}
        items += [
            problem("collation", f"target {target}", error, Severity.WARNING)
            for error in collation_problems("the default collation of tables", collations)
        ]
        narrow = [] if wrong or target not in existing else _narrower(task, target, existing[target], shards)
        narrow += [error for error in repeats.get(target, ()) if isinstance(error, CheckWarned)]
        fine = "exists and fits" if target in existing else "will be created"
        place = f"target {target}"
        found = [problem("target_tables", place, error) for error in wrong]
        found += [problem("target_tables", place, error, Severity.WARNING) for error in narrow]
        items += found or verdict("target_tables", place, (), fine)
    return items


def _structures(
    task: Task, connections: Connections, groups: Shards, existing: Mapping[TableId, TableSchema]
) -> list[Item]:
    """Test how rows are written, and whether the target can create tables like the shards.

    Uses its own connection, because its sql_mode changes.
    """
    server = resolve(task.target, connections)
    try:
        with closing(mysql.connect(server, PLACE)) as connection:
            with trial_schema(connection, task.meta_schema):
                return [*_write_path(server, task), *structure_items(task, connection, groups, existing)]
    except UnshardError as error:
        if isinstance(error, ServerReadOnly):
            error = TargetReadOnly(error.server_message)
        return [problem("target_structure", PLACE, error)]


def _write_path(server: Server, task: Task) -> list[Item]:
    """Report how rows will be written; a privilege that the session lacks has its own item."""
    try:
        return verdict("write_path", PLACE, (), tried_writing(server, trial_table(task.meta_schema)).told)
    except MissingPrivilege:
        return []


def _refuses_rows(task: Task, shards: Iterable[Shard]) -> bool:
    """Whether a load refuses to write into a table with foreign rows."""
    policies = {task.instance(shard.source).load.on_duplicate for shard in shards}
    return task.task_mode.loads and OnDuplicate.ERROR in policies


def _narrower(
    task: Task, target: TableId, present: TableSchema, shards: Mapping[Shard, TableSchema]
) -> list[UnshardError]:
    """Return the columns that do not hold all values; the mapping checks the columns that it changes.

    A target that follows the join of its shards gets wider columns.
    """
    if task.shard_mode is ShardMode.OPTIMISTIC:
        return []
    alike: dict[tuple[str, frozenset[str]], TableSchema] = {}  # equal shapes: already compared
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
        CollationUnknown(str(target), collation, purpose)
        for (charset, collation), (target, purpose) in wanted.items()
        if not serverstate.has_collation(connection, charset, collation)
    ]
