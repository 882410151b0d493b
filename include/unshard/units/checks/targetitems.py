"""Checks of the target before a task begins: settings, privileges, existing tables, collations. Runs in the driver.

The keys of the targets are checked, too: whether two shards have the same one, and whether it finds the rows of the
shards. Sampled keys are looked up in other shards. A sample that finds nothing proves nothing; a found key is certain.
The load finds all (design section 5). If the task syncs, rows that the dump excludes (`where`) are looked up too: the
binlog brings them with their next change, and nothing checks them then.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection

from unshard.adapters import mysql, serverstate, structures, tablerows
from unshard.adapters.serverstate import account
from unshard.adapters.structures import shown_create
from unshard.adapters.tablerows import existing_keys, keys_at_both_ends
from unshard.adapters.target import tried_writing
from unshard.adapters.target.evaluator import check_expression
from unshard.adapters.target.session import LISTED_WARNINGS
from unshard.adapters.targetddl import trial_table
from unshard.config import Connections, Instance, OnDuplicate, PrimaryKey, ShardMode, Task, UnsupportedIndexes, resolve
from unshard.config.taskkeys import CLUSTERED_INDEX
from unshard.core.checks.items import (
    RULES,
    UNFIT,
    Item,
    Severity,
    collation_problems,
    counting_up,
    problem,
    shortened,
    target_problems,
    verdict,
    version_problems,
    wrong_settings,
)
from unshard.core.join.decision import conflicts_of, foreign_columns, undumped_columns, unjoined_columns
from unshard.core.join.group import begin_group
from unshard.core.model import Index, Server, Shard, TableId, TableSchema
from unshard.core.rules.columnmapping import fitted
from unshard.core.rules.reshaping import Reshaping, constants_of
from unshard.core.structures.comparison import narrower, structure_differences, unfit_reasons
from unshard.core.structures.parsedtable import Part, PartKind
from unshard.core.structures.tablekeys import SharedKey, as_filled, leading_index, may_share_key, shared_keys
from unshard.errors import UnshardError, checks
from unshard.errors.full import TargetNotEmpty
from unshard.errors.rows import EngineNotTransactional, ExtractionNeedsTable, RowFilterFailed, RowFilterIdle
from unshard.errors.source import MissingPrivilege, ServerReadOnly, SessionVariableRefused
from unshard.units.checks.sourceitems import Checked, granted, lacking, scarce, server_settings
from unshard.units.ddl.createtrial import CLUSTERED, RefusedPart, Trial, TrialTables, is_optional, trial_schema
from unshard.units.full.targets import refuse_types

Group = Mapping[Shard, TableSchema]
Shards = Mapping[TableId, Group]
SHARDS, KEYS = 32, 16
"""Number of sampled shards of a target, and of sampled keys of a shard."""

Key = tuple[Any, ...]


def key_overlaps(
    task: Task, connections: Connections, target: TableId, shards: Group, keys: Sequence[SharedKey]
) -> list[UnshardError]:
    """Return values of the target's keys that two shards have, one example for each pair."""
    found: dict[tuple[Shard, Shard], str] = {}
    for key in keys:
        for pair, values in _shared(task, connections, shards, key).items():
            shown = ", ".join(f"{name} = {value}" for name, value in zip(key.columns, values, strict=True))
            found.setdefault(pair, shown)
    return [
        checks.KeysOverlap(str(target), key, str(first), str(other)) for (first, other), key in sorted(found.items())
    ]


def _shared(task: Task, connections: Connections, shards: Group, key: SharedKey) -> dict[tuple[Shard, Shard], Key]:
    chosen = sorted(key.shards)[:SHARDS]
    samples: dict[Shard, tuple[Key, ...]] = {}
    found: dict[tuple[Shard, Shard], Key] = {}
    by_source = {name: [shard for shard in chosen if shard.source == name] for name in task.sources}
    with ThreadPoolExecutor(max_workers=max(1, len(by_source))) as pool:

        def ask_all(ask: Any) -> None:
            list(pool.map(lambda name: _with_source(task, connections, name, by_source[name], ask), by_source))

        def asked(shard: Shard) -> _AskedKeys:
            index = leading_index(shards[shard], key.columns)
            assert index is not None
            is_all = task.task_mode.syncs  # the binlog brings the rows that the dump excludes, too
            dumped = "TRUE" if is_all else task.instance(shard.source).dump.where or "TRUE"
            return _AskedKeys(shard, key.columns, index, dumped)

        ask_all(lambda connection, shard: samples.update({shard: _sample(connection, asked(shard))}))
        ask_all(lambda connection, shard: found.update(_found(connection, asked(shard), samples)))
    return found


@dataclass(frozen=True, slots=True)
class _AskedKeys:
    """A shard, the columns of the target's key, and the shard's index that finds their values."""

    shard: Shard
    columns: tuple[str, ...]
    index: Index
    dumped: str


def _with_source(task: Task, connections: Connections, source: str, shards: Sequence[Shard], ask: Any) -> None:
    if not shards:
        return
    server = resolve(task.instance(source).source.endpoint, connections)
    with closing(mysql.connect(server, f"source {source}")) as connection:
        tablerows.prepare_condition(connection)
        for shard in shards:
            ask(connection, shard)


def _sample(connection: Any, asked: _AskedKeys) -> tuple[Key, ...]:
    """Return the keys at both ends of the table: where shards that count from 1 overlap, and where they continue.

    Excluded rows are filtered afterwards, so the condition causes no search. NULL is equal to nothing.
    """
    table = asked.shard.table
    keys = keys_at_both_ends(connection, table, asked.columns, asked.index, asked.dumped, KEYS // 2)
    return tuple(key for key in dict.fromkeys(keys) if None not in key)


def _found(
    connection: Any, asked: _AskedKeys, samples: Mapping[Shard, tuple[Key, ...]]
) -> Iterator[tuple[tuple[Shard, Shard], Key]]:
    shard, first = asked.shard, asked.index.columns[0]
    wanted = {key: other for other, keys in samples.items() if other != shard for key in keys}
    if not wanted:
        return
    for row in existing_keys(connection, shard.table, asked.columns, first, asked.dumped, wanted.keys()):
        if (other := wanted.get(tuple(row))) is not None:
            yield (min(shard, other), max(shard, other)), tuple(row)


# --- the keys of the targets


WHOLE_IMAGES = frozenset({"FULL", "FULL_NODUP"})
LONG = ("blob", "text", "json", "geometry", "vector")


def key_items(
    task: Task, connections: Connections, groups: Shards, existing: Mapping[TableId, TableSchema]
) -> list[Item]:
    """Check whether shards have the same keys; asks all shards, even if only some have the error policy."""
    items: list[Item] = []
    is_error = any(instance.load.on_duplicate is OnDuplicate.ERROR for instance in task.instances)
    severity = Severity.ERROR if is_error and task.task_mode.loads else Severity.WARNING
    for target, shards in sorted(groups.items()):
        place, present = f"target {target}", existing.get(target)
        counting = [] if _are_apart(task, shards, present) else counting_up(target, shards)
        fine = "the shards do not number their keys separately"
        items += verdict("auto_increment_ID", place, counting, fine)
        constants = _constants(task, shards)
        # A table with extracted columns is never created like its shards; it has an item of its own.
        model = present or next((shards[shard] for shard in shards if not any(constants.values())), None)
        if len(shards) < 2 or model is None:
            continue
        try:
            keys = shared_keys(model, shards, constants, _mapped(task, shards))
            both = key_overlaps(task, connections, target, shards, keys)
        except UnshardError as error:
            items.append(problem("key_overlap", place, error, Severity.WARNING))
            continue
        items += verdict("key_overlap", place, both, "no sampled key is in two shards" if keys else "", severity)
    return items


def repeating(
    task: Task, groups: Shards, existing: Mapping[TableId, TableSchema], has_rows: Callable[[TableId], bool]
) -> dict[TableId, list[UnshardError]]:
    """Return the targets with rows in which a repeated change would not be found, with an error for each source.

    Such a target must have exactly the changes before the position at which a source begins.
    """
    found: dict[TableId, list[UnshardError]] = {}
    for target, shards in groups.items():
        present, constants = existing.get(target), _constants(task, shards)
        if present is None or not task.task_mode.syncs or task.task_mode.loads:
            continue
        searched = {s.source for s, each in shards.items() if not as_filled(present, _filled(each, constants[s])).key}
        if searched and has_rows(target):
            found[target] = [_repeats(task.instance(source), target) for source in sorted(searched)]
    return found


def _repeats(instance: Instance, target: TableId) -> UnshardError:
    source = instance.source.id
    if instance.start_time or instance.start_unset:
        return checks.StartTimeNeedsKey(str(target), source)
    return checks.PositionMustBeExact(str(target), source, str(instance.start or instance.start_gtid))


def unfindable(
    task: Task, groups: Shards, existing: Mapping[TableId, TableSchema], images: Mapping[str, str]
) -> list[Item]:
    """Check that sources log whole rows if rows of a target can only be found by all their values."""
    items: list[Item] = []
    constants = {shard: values for shards in groups.values() for shard, values in _constants(task, shards).items()}
    for target, shards in sorted(groups.items()) if task.task_mode.syncs else ():
        present = existing.get(target)
        searched = {
            shard: schema
            for shard, schema in shards.items()
            if present is not None and schema.key and not as_filled(present, _filled(schema, constants[shard])).key
        }
        errors: dict[str, UnshardError] = {}
        for shard, schema in searched.items():
            source, image = shard.source, images.get(shard.source, "FULL").upper()
            if not _logs_whole(image, schema):
                errors.setdefault(f"image {source}", checks.ImageFindsNoRow(str(target), source, image))
            if task.instance(source).dump.where:
                errors.setdefault(f"where {source}", checks.ConditionFindsNoRow(str(target), source))
        items += [problem("target_tables", f"target {target}", error) for error in errors.values()]
    return items


def _filled(schema: TableSchema, constants: Mapping[str, str]) -> set[str]:
    return {*(name.lower() for name in schema.names), *constants}


def _logs_whole(image: str, schema: TableSchema) -> bool:
    if image == "NOBLOB":
        return not any(column.data_type.endswith(LONG) for column in schema.columns)
    return image in WHOLE_IMAGES


def _are_apart(task: Task, shards: Group, present: TableSchema | None) -> bool:
    """Whether a column of the key, or the key of the target, separates shards that number their rows."""
    if any(_constants(task, shards).values()) or _mapped(task, shards):
        return True
    return present is not None and not any(may_share_key(present, schema.key) for schema in shards.values())


def _constants(task: Task, shards: Group) -> dict[Shard, dict[str, str]]:
    found = {shard: task.instance(shard.source).routing.reshaping(shard.table).extracted for shard in shards}
    return {shard: {each.column.lower(): each.value for each in extracted} for shard, extracted in found.items()}


def _mapped(task: Task, shards: Group) -> set[str]:
    return {m.column.lower() for s in shards for m in task.instance(s.source).routing.reshaping(s.table).mapped}


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


# --- target tables that exist


def unfit(
    task: Task,
    target: TableId,
    present: TableSchema | None,
    shards: Mapping[Shard, TableSchema],
    *,
    is_ahead: bool = False,
) -> Iterator[UnshardError]:
    """Yield why the target table, or its absence, prevents writing rows; of equal errors, only the first.

    If the target `is_ahead`, it may have DDL that these shards have not run yet, which explains other types and keys.
    """
    # A target that follows the join of its shards gets what it lacks.
    joins = task.shard_mode is ShardMode.OPTIMISTIC
    reasons: set[str] = set()
    found: dict[str, UnshardError] = {}
    seen: set[tuple[str, object]] = set()
    for shard, structure in shards.items():
        reshaping = task.instance(shard.source).routing.reshaping(shard.table)
        if (structure.shape, reshaping) in seen:
            continue
        seen.add((structure.shape, reshaping))
        columns = [each.column for each in reshaping.extracted]
        try:
            if present is None:
                _refuse_missing(target, shard, structure, reshaping)
            elif not joins and (here := unfit_reasons(present, structure, {column.lower() for column in columns})):
                reasons.update(here)
            else:
                constants_of(str(shard), structure, target, present, reshaping.extracted)
                _refuse_mapped(target, shard, structure, present, reshaping)
                if not (is_ahead or joins):
                    refuse_types(shard, structure, (target, present), reshaping)
        except UNFIT as error:
            found.setdefault(f"{error.code} {columns}", error)
    if joins and not is_ahead:
        reasons.update(_foreign(task, present, shards))
        yield from _unjoined(target, present, shards)
    if reasons:
        yield checks.TargetTableUnfit(str(target), "; ".join(sorted(reasons)))
    yield from found.values()


def _foreign(task: Task, present: TableSchema | None, shards: Mapping[Shard, TableSchema]) -> tuple[str, ...]:
    """Return why rows of no shard can be written to a target that follows the join of its shards."""
    if present is None:
        return ()
    reshapings = (task.instance(shard.source).routing.reshaping(shard.table) for shard in shards)
    extracted = {each.column.lower() for reshaping in reshapings for each in reshaping.extracted}
    return foreign_columns(present, shards.values(), extracted)


def _unjoined(
    target: TableId, present: TableSchema | None, shards: Mapping[Shard, TableSchema]
) -> Iterator[UnshardError]:
    """Yield the columns with which a target cannot begin to follow the join of its shards, if these have one."""
    group = begin_group(shards)
    if conflicts_of(group):
        return
    yield from unjoined_columns(target, group, present) if present is not None else ()
    yield from undumped_columns(target, group)


def _refuse_missing(target: TableId, shard: Shard, structure: TableSchema, reshaping: Reshaping) -> None:
    """Raise if the target cannot be created for the shard, or would not hold its mapped values."""
    if reshaping.extracted:
        columns = ", ".join(each.column for each in reshaping.extracted)
        raise ExtractionNeedsTable(str(target), str(shard), columns)
    _refuse_mapped(target, shard, structure, structure, reshaping)


def _refuse_mapped(
    target: TableId, shard: Shard, structure: TableSchema, present: TableSchema, reshaping: Reshaping
) -> None:
    fitted(str(shard), structure, target, {column.name.lower(): column for column in present.columns}, reshaping.mapped)


# --- target tables that unshard creates


CHECK = "target_structure"
SHOWN = 150
REMEDIES = {
    PartKind.COLUMN: "create {table} on the target before the start with another type or default for this column that"
    " holds all its values, or alter the column on the shards",
    PartKind.INDEX: "drop the index on the shards, or create {table} on the target before the start without it",
    PartKind.CHECK: "drop the constraint on the shards, or create {table} on the target before the start without it",
    PartKind.OPTION: "create {table} on the target before the start without this option, or change it on the shards",
    PartKind.PARTITION: "create {table} on the target before the start with partitions that it accepts, or without any",
}
WHOLE = "create {table} on the target before the start as far as it accepts the structure"
LEAVE_OUT = "; or set `unsupported-indexes: leave-out` in the block `unshard`"

Groups = Mapping[TableId, Group]


def structure_items(
    task: Task, connection: Connection, groups: Groups, existing: Mapping[TableId, TableSchema]
) -> list[Item]:
    """Create trial tables for all shards whose table, or trial tables of DDL, the target would have to create.

    The meta schema must exist.
    """
    items: list[Item] = []
    clustered: list[TableId] = []
    trials = TrialTables(connection, task.meta_schema)
    trials.probe()
    for target, shards in sorted(groups.items()):
        present = existing.get(target)
        if present is not None and not task.task_mode.syncs:
            continue
        tried = _tried(trials, target, shards, present is not None)
        found = [item for each in tried for item in _items(task, each)]
        if present is None:
            found += _unfit_as_created(task, target, tried[0].trial.made, shards)
        items += found or verdict(CHECK, f"target {target}", (), "can be created like its shards")
        if _is_clustered(connection, target, present, [each.trial for each in tried]):
            clustered.append(target)
    return items + _clustered_items(task, clustered)


def _unfit_as_created(task: Task, target: TableId, made: TableSchema | None, shards: Group) -> Iterator[Item]:
    """Yield why the table that the target would create cannot take all rows.

    Groups that differ, and tables that cannot be created, have their own items.
    """
    first, *_ = shards.values()
    alike = {shard: schema for shard, schema in shards.items() if not structure_differences(first, schema)}
    if made is not None and not any(unfit(task, target, None, shards)):
        for error in unfit(task, target, made, alike):
            yield problem(CHECK, f"target {target}", error)


@dataclass(frozen=True, slots=True)
class TriedStructure:
    """The trial of a structure, with the first shard of a target that has it."""

    target: TableId
    shard: Shard
    schema: TableSchema
    trial: Trial
    exists: bool
    """Whether the target table exists, so that only trial tables of DDL are created like the shard."""
    is_first: bool
    """Whether the run may create the target table like this shard, the first of its source."""

    def problem(self, kind: type[UnshardError], *arguments: str) -> Item:
        return problem(CHECK, f"target {self.target}", kind(str(self.target), str(self.shard), *arguments))


def _tried(
    trials: TrialTables, target: TableId, shards: Mapping[Shard, TableSchema], exists: bool
) -> list[TriedStructure]:
    tried: dict[str, TriedStructure] = {}
    sources: set[str] = set()
    for shard, schema in shards.items():
        is_first, key = shard.source not in sources, trials.key(schema)
        sources.add(shard.source)
        if key not in tried or is_first:
            tried[key] = TriedStructure(target, shard, schema, trials.tried(schema), exists, is_first)
    return list(tried.values())


def _items(task: Task, each: TriedStructure) -> Iterator[Item]:
    leaves_out = task.options.unsupported_indexes is UnsupportedIndexes.LEAVE_OUT
    out = [refused for refused in each.trial.refused if leaves_out and is_optional(refused.part)]
    if out and not each.exists:
        yield each.problem(checks.IndexesLeftOut, refused_indexes(out))
    for refused in each.trial.refused:
        part = _described(refused.part)
        if refused in out:
            continue
        if each.exists or not each.is_first:
            if not task.task_mode.syncs:
                continue
            yield each.problem(checks.TrialTableRefused, part, refused.message)
        else:
            remedy = _remedy(refused).format(table=each.target)
            yield each.problem(checks.StructureRefused, part, refused.message, remedy)
    if each.schema.lacks_transactions and each.is_first:
        yield each.problem(checks.EngineKept if each.exists else checks.EngineReplaced, each.schema.lacks_transactions)
    if each.schema.left_out and each.is_first and not each.exists:
        yield each.problem(checks.StorageLeftOut, ", ".join(each.schema.left_out))
    if each.trial.made is not None and not each.exists:
        yield from _differences(each, each.trial.made)


def refused_indexes(refused: Iterable[RefusedPart]) -> str:
    """Return the names of refused indexes, each with the target's message."""
    return "; ".join(f"{each.part.name if each.part else ''} ({each.message})" for each in refused)


def _described(part: Part | None) -> str:
    if part is None:
        return "the structure as a whole"
    text = part.text if len(part.text) <= SHOWN else f"{part.text[:SHOWN]}…"
    return f"the {part.kind}, {text}" if part.name in ("", part.text) else f"the {part.kind} {part.name}, {text}"


def _remedy(refused: RefusedPart) -> str:
    if refused.part is None:
        return WHOLE
    return REMEDIES[refused.part.kind] + (LEAVE_OUT if is_optional(refused.part) else "")


def _differences(each: TriedStructure, made: TableSchema) -> Iterator[Item]:
    """Yield the differences between the created table and the request, including the target's warnings."""
    if each.is_first and made.lacks_transactions:
        error = EngineNotTransactional(str(each.target), made.lacks_transactions)
        yield problem(CHECK, f"target {each.target}", error)
    created = {index.name.lower(): index for index in made.indexes}
    lost = []
    for index in each.schema.indexes:
        found = created.get(index.name.lower())
        if found is None:
            lost.append(f"index {index.name} is missing")
        elif index.unique and found.prefixed and not index.prefixed:
            columns = ", ".join(index.columns)
            made_of = f"the key {index.name} on the first characters of ({columns})"
            yield each.problem(checks.KeyShortened, f"all of ({columns})", made_of)
    changes = [*lost, *narrower(made, each.schema), *(f"it warns: {warning}" for warning in each.trial.warnings)]
    if changes:
        yield each.problem(checks.StructureAltered, "; ".join(changes))


def _is_clustered(connection: Connection, target: TableId, present: TableSchema | None, trials: list[Trial]) -> bool:
    if present is not None:
        return CLUSTERED in shown_create(connection, target)
    return any(trial.is_clustered for trial in trials)


def _clustered_items(task: Task, clustered: list[TableId]) -> list[Item]:
    """Name the tables with a clustered key, unless the task does not follow DDL or the task file chooses such keys."""
    if not clustered or not task.task_mode.syncs or task.options.primary_key is PrimaryKey.CLUSTERED:
        return []
    errors: list[UnshardError] = [checks.PrimaryKeyClustered(shortened([str(target) for target in clustered]))]
    return verdict("clustered_key", "target", errors, "")


# --- the target


PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "INDEX")
TEMPORARY = ("CREATE TEMPORARY TABLES",)
"""For the rows on which expression filters are evaluated."""
EXTRA_CONNECTIONS = 3
"""Meta store, DDL and trial tables, in addition to those that load."""
PLACE = "target"


def check_target(task: Task, connections: Connections) -> Checked:
    """Check the properties of the target that do not depend on the sources."""
    try:
        with closing(mysql.connect(resolve(task.target, connections), PLACE)) as connection:
            values, known = server_settings(connection), granted(connection)
            infile = [checks.LocalInfileOff(account(connection))] if values.get("local_infile") == "OFF" else []
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
                        else verdict("version", PLACE, version_problems(PLACE, version), version)
                    ),
                    *(problem("version", PLACE, error) for error in target_problems(version)),
                    *verdict("local_infile", PLACE, infile, values.get("local_infile", ""), Severity.WARNING),
                    *verdict(
                        "conn_number",
                        PLACE,
                        scarce(connection, PLACE, values, needed),
                        f"room for {needed}",
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
            (problem("reachable", PLACE, checks.PrimaryKeyChoiceUnknown(error.server_message) if chosen else error),)
        )
    except UnshardError as error:
        return Checked((problem("reachable", PLACE, error),))


def _session_refused(connection: Connection) -> list[UnshardError]:
    """Set the writers' session variables, which MySQL 8 restricts: every warning about a row must be listed."""
    try:
        serverstate.list_warnings(connection, LISTED_WARNINGS)
    except MissingPrivilege:
        return [checks.PrivilegesMissing(PLACE, account(connection), "SESSION_VARIABLES_ADMIN", "*.*")]
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
        repeated = repeats.get(target, [])
        wrong += [error for error in repeated if isinstance(error, checks.CheckFailed)]
        collations = {str(shard): structure.collation for shard, structure in shards.items()}
        collations |= {PLACE: existing[target].collation} if target in existing else {}
        differing, place = collation_problems("the default collation of tables", collations), f"target {target}"
        items += verdict("collation", place, differing, "")
        narrow = [] if wrong or target not in existing else _narrower(task, target, existing[target], shards)
        narrow += [error for error in repeated if isinstance(error, checks.CheckWarned)]
        items += verdict(
            "target_tables", place, wrong + narrow, "exists and fits" if target in existing else "will be created"
        )
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
            error = checks.TargetReadOnly(error.server_message)
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
    return [checks.TargetNarrower(str(target), "; ".join(sorted(reasons)))] if reasons else []


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
        checks.CollationUnknown(str(target), collation, purpose)
        for (charset, collation), (target, purpose) in wanted.items()
        if not serverstate.has_collation(connection, charset, collation)
    ]
