"""Check that the target can create tables like the shards: create an empty table of each distinct structure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters.structures import shown_create
from unshard.config import PrimaryKey, Task, UnsupportedIndexes
from unshard.core.checks.items import Item, Severity, problem, shortened, verdict
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.structures.alike import structure_differences
from unshard.core.structures.createparts import Part, PartKind
from unshard.core.structures.narrower import narrower
from unshard.errors import UnshardError
from unshard.errors.checks import (
    EngineKept,
    EngineReplaced,
    IndexesLeftOut,
    KeyShortened,
    PrimaryKeyClustered,
    StorageLeftOut,
    StructureAltered,
    StructureRefused,
    TrialTableRefused,
)
from unshard.errors.rows import EngineNotTransactional
from unshard.units.checks.fit import unfit
from unshard.units.ddl.createtrial import CLUSTERED, Refused, Trial, TrialTables, is_optional

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

Group = Mapping[Shard, TableSchema]
Shards = Mapping[TableId, Group]


def structure_items(
    task: Task, connection: Connection, groups: Shards, existing: Mapping[TableId, TableSchema]
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

    Shards that differ, and tables that cannot be created, have their own items.
    """
    first, *_ = shards.values()
    alike = {shard: schema for shard, schema in shards.items() if not structure_differences(first, schema)}
    if made is not None and not any(unfit(task, target, None, shards)):
        for error in unfit(task, target, made, alike):
            yield problem(CHECK, f"target {target}", error)


@dataclass(frozen=True, slots=True)
class Tried:
    """The trial of a structure, with the first shard of a target that has it."""

    target: TableId
    shard: Shard
    schema: TableSchema
    trial: Trial
    exists: bool
    """Whether the target table exists, so that only trial tables of DDL are created like the shard."""
    is_first: bool
    """Whether the run may create the target table like this shard, the first of its source."""

    def problem(self, kind: type[UnshardError], *arguments: str, severity: Severity = Severity.WARNING) -> Item:
        """Return the item of an error that begins with table and shard."""
        return problem(CHECK, f"target {self.target}", kind(str(self.target), str(self.shard), *arguments), severity)


def _tried(trials: TrialTables, target: TableId, shards: Mapping[Shard, TableSchema], exists: bool) -> list[Tried]:
    tried: dict[str, Tried] = {}
    sources: set[str] = set()
    for shard, schema in shards.items():
        is_first, key = shard.source not in sources, trials.key(schema)
        sources.add(shard.source)
        if key not in tried or is_first:
            tried[key] = Tried(target, shard, schema, trials.tried(schema), exists, is_first)
    return list(tried.values())


def _items(task: Task, each: Tried) -> Iterator[Item]:
    leaves_out = task.options.unsupported_indexes is UnsupportedIndexes.LEAVE_OUT
    out = [refused for refused in each.trial.refused if leaves_out and is_optional(refused.part)]
    if out and not each.exists:
        yield each.problem(IndexesLeftOut, left_out(out))
    for refused in each.trial.refused:
        part = _described(refused.part)
        if refused in out:
            continue
        if each.exists or not each.is_first:
            if not task.task_mode.syncs:
                continue
            yield each.problem(TrialTableRefused, part, refused.message)
        else:
            remedy = _remedy(refused).format(table=each.target)
            yield each.problem(StructureRefused, part, refused.message, remedy, severity=Severity.ERROR)
    if each.schema.lacks_transactions and each.is_first:
        yield each.problem(EngineKept if each.exists else EngineReplaced, each.schema.lacks_transactions)
    if each.schema.left_out and each.is_first and not each.exists:
        yield each.problem(StorageLeftOut, ", ".join(each.schema.left_out))
    if each.trial.made is not None and not each.exists:
        yield from _differences(each, each.trial.made)


def left_out(refused: Iterable[Refused]) -> str:
    """Return the names of refused indexes, each with the target's message."""
    return "; ".join(f"{each.part.name if each.part else ''} ({each.message})" for each in refused)


def _described(part: Part | None) -> str:
    if part is None:
        return "the structure as a whole"
    text = part.text if len(part.text) <= SHOWN else f"{part.text[:SHOWN]}…"
    return f"the {part.kind}, {text}" if part.name in ("", part.text) else f"the {part.kind} {part.name}, {text}"


def _remedy(refused: Refused) -> str:
    if refused.part is None:
        return WHOLE
    return REMEDIES[refused.part.kind] + (LEAVE_OUT if is_optional(refused.part) else "")


def _differences(each: Tried, made: TableSchema) -> Iterator[Item]:
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
            yield each.problem(KeyShortened, f"all of ({columns})", made_of, severity=Severity.ERROR)
    changes = [*lost, *narrower(made, each.schema), *(f"it warns: {warning}" for warning in each.trial.warnings)]
    if changes:
        yield each.problem(StructureAltered, "; ".join(changes))


def _is_clustered(connection: Connection, target: TableId, present: TableSchema | None, trials: list[Trial]) -> bool:
    if present is not None:
        return CLUSTERED in shown_create(connection, target)
    return any(trial.is_clustered for trial in trials)


def _clustered_items(task: Task, clustered: list[TableId]) -> list[Item]:
    """Name the tables with a clustered key, unless the task does not follow DDL or the task file chooses such keys."""
    if not clustered or not task.task_mode.syncs or task.options.primary_key is PrimaryKey.CLUSTERED:
        return []
    errors: list[UnshardError] = [PrimaryKeyClustered(shortened([str(target) for target in clustered]))]
    return verdict("clustered_key", "target", errors, "", Severity.WARNING)
