"""Precheck: find everything that would stop a task later, before the first row is copied. Runs in the driver.

All problems are reported, not only the first; each is an item with severity, place, message and remedy. The servers are
checked in parallel. Nothing is changed on them. The start of `run`, the first task of the full DAG and the command
`check` share one function. Its result is stored in the meta tables, if they exist, and shown on the task's page.
"""

import contextlib
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from unshard.adapters import mysql, structures
from unshard.adapters.meta import Meta, MetaReader
from unshard.adapters.objectstore import is_object_store
from unshard.adapters.parquet import Storage
from unshard.config import Connections, ShardMode, Task, environment_connections, resolve, storage_access
from unshard.config.reading import zone_of
from unshard.core.checks.items import (
    CERTAIN,
    LIKELY,
    Item,
    Severity,
    alike_names,
    as_seen,
    case_rules,
    codes,
    collation_problems,
    ignoring,
    mode_problems,
    naming_unseen,
    problem,
    same_server_ids,
    verdict,
    zone_problems,
)
from unshard.core.join.decision import conflicts_of
from unshard.core.join.group import begin_group
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.rules.shardrows import DropShardRows, rows_of, why_unknown_in
from unshard.core.structures.comparison import structure_differences
from unshard.core.task.state import Chunk, ChunkState, Phase
from unshard.core.validate.checksum import MINIMAL_PACKET
from unshard.errors import UnshardError
from unshard.errors.base import ServerError
from unshard.errors.checks import PrecheckFailed, RuleIdle, ShardRowsAlike, ShardsDiffer, StorageShort
from unshard.errors.full import ConditionChanged, DumpLeft, NotDumped
from unshard.errors.locks import ShardsWithoutJoin
from unshard.errors.meta import StoredFileMissing
from unshard.errors.rows import EngineNotTransactional, NoTargetTable, PacketTooSmall
from unshard.units.begun import NOT_KNOWN, Begun, begun_in, existing_meta
from unshard.units.checks.backups import backup_items
from unshard.units.checks.sourceitems import Checked, check_source, foreign_key_items, mapped_apart
from unshard.units.checks.targetitems import check_tables, check_target, key_items, present_tables, unfindable
from unshard.units.window.adoptedrules import rules_refusal


def rest_of_load(task: Task, meta: MetaReader | None, begun: Begun) -> list[Item]:
    """Check for each source that is not loaded whether it can continue with the task-mode and `where` of the file."""
    items: list[Item] = []
    for source in task.sources:
        if source not in begun.loaded:
            phase = begun.phase(source)
            errors = list(_refused(task, source, phase, meta))
            passes = "the full load can begin" if phase is Phase.NEW else f"the full load can go on after phase {phase}"
            items += verdict("full_load", f"source {source}", errors, passes)
    return items


def _refused(task: Task, source: str, phase: Phase, meta: MetaReader | None) -> Iterator[UnshardError]:
    mode = task.task_mode
    chunks: tuple[Chunk, ...] = meta.chunks.of(source) if meta else ()
    if not mode.begins and phase.order < Phase.DUMPED.order:
        yield NotDumped(source)
    if mode.begins and not mode.dumps and any(chunk.state is not ChunkState.LOADED for chunk in chunks):
        yield DumpLeft(source)
    is_read = any(chunk.state is not ChunkState.PLANNED for chunk in chunks)
    if meta and mode.dumps and phase is Phase.SNAPSHOT and is_read:
        known, present = meta.conditions.get(source), task.instance(source).dump.where
        if known != present:
            yield ConditionChanged(source, known or "TRUE", present or "TRUE")


def targets_in_sync(task: Task, meta: MetaReader, connections: Connections, begun: Begun) -> list[Item]:
    """Check that windows find the target tables of the loaded sources, and that these have transactions."""
    states = [state for source in sorted(begun.loaded) for state in meta.structures.shards(source)]
    targets = sorted({state.target for state in states if not (state.is_dropped or state.has_left)})
    with closing(mysql.connect(resolve(task.target, connections), "target")) as connection:
        present = structures.read_schemas(connection, targets)
    engines = {target: schema.lacks_transactions for target, schema in present.items() if schema.lacks_transactions}
    errors: dict[str, UnshardError] = {
        str(target): NoTargetTable(str(target)) for target in targets if target not in present
    }
    errors |= {str(target): EngineNotTransactional(str(target), engine) for target, engine in engines.items()}
    return [problem("target_tables", f"target {target}", error) for target, error in errors.items()]


# --- the rows of a dropped shard (`drop-shard-rows: delete`)


def shard_rows(task: Task, groups: Mapping[TableId, Mapping[Shard, TableSchema]]) -> list[Item]:
    """Check each merged target; a one-to-one target is truncated or dropped as a whole."""
    if task.options.drop_shard_rows is DropShardRows.KEEP or not task.task_mode.syncs:
        return []
    items: list[Item] = []
    for target, shards in sorted(groups.items()):
        if len(shards) > 1 or not task.feeds.is_single(target):
            found = {s: rows_of(task.instance(s.source).routing.reshaping(s.table), shards[s]) for s in shards}
            why = why_unknown_in(found)
            errors = [ShardRowsAlike(str(target), why)] if why else []
            told = f"the rows of {len(shards)} shards can be told apart"
            items += verdict("drop_shard_rows", f"target {target}", errors, told)
    return items


# --- all prechecks


KEPT_BY = ("reachable", "meta_schema")
"""Checks of the target without which the result cannot be stored."""
Shards = Mapping[TableId, Mapping[Shard, TableSchema]]


def precheck(
    task: Task, connections: Connections = environment_connections, begun: Begun = NOT_KNOWN
) -> tuple[Item, ...]:
    """Check sources, target and their common settings.

    Structures of loaded sources may differ, because a DDL may be in progress on their shards.
    """
    with ThreadPoolExecutor(max_workers=len(task.instances) + 1, thread_name_prefix="precheck") as pool:
        sources = {
            i.source.id: pool.submit(
                check_source, i, task.task_mode, connections, begun.phase(i.source.id), task.checks_foreign_keys
            )
            for i in task.instances
        }
        target = pool.submit(check_target, task, connections)
        checked = {source: each.result() for source, each in sources.items()}
    fresh = {source: each for source, each in checked.items() if source not in begun.loaded}
    shards = _shards(fresh)
    unseen = [source for source, each in checked.items() if each.found is None]
    items = [item for each in checked.values() for item in each.items]
    answers = not any(item.name == "reachable" and item.code for item in target.result().items)
    existing = present_tables(task, connections, shards) if answers else {}
    of_shards = _structures_alike(task, shards)
    of_shards += key_items(task, connections, shards, existing)
    of_shards += mapped_apart(task, shards)
    of_shards += shard_rows(task, _shards(checked))
    items += naming_unseen(of_shards, unseen)
    items += _rules_idle(checked)
    items += target.result().items
    items += _settings(checked, target.result(), shards)
    items += _defaults(checked)
    items += _clocks(task, checked) if task.task_mode.syncs else []
    items += backup_items(task, connections) if answers else []
    items += _object_store(task, connections) if is_object_store(task.storage) else _space(task, fresh)
    if answers:
        images = {source: each.values.get("binlog_row_image", "FULL") for source, each in checked.items()}
        items += unfindable(task, shards, existing, images)
        tables = check_tables(task, connections, shards, existing, _shards(checked), begun.is_new)
        items += naming_unseen(tables, unseen)
        keys = {source: each.foreign_keys for source, each in checked.items()}
        items += foreign_key_items(task, connections, _shards(checked), keys)
    return _judged(task, items)


def check(task: Task, connections: Connections = environment_connections) -> tuple[Item, ...]:
    """Check a task that may already be in sync: also whether its windows would accept the rules of its file."""
    with contextlib.ExitStack() as stack:
        try:
            meta = stack.enter_context(existing_meta(task, connections))
            known = begun_in(meta)
        except ServerError:
            return precheck(task, connections, NOT_KNOWN)  # it reports the target
        items = rest_of_load(task, meta, known)
        if meta and known.loaded:
            items += [*changed_rules(meta, task), *targets_in_sync(task, meta, connections, known)]
    return (*precheck(task, connections, known), *_judged(task, items))


def _judged(task: Task, items: Iterable[Item]) -> tuple[Item, ...]:
    return ignoring(items, task.ignored_checks, codes(CERTAIN), codes(LIKELY))


def changed_rules(meta: MetaReader, task: Task) -> tuple[Item, ...]:
    """Check whether the windows of a task that is in sync would accept the current rules of its file."""
    refused = [rules_refusal(meta, instance) for instance in task.instances]
    errors = [error for error in refused if error is not None]
    return tuple(verdict("changed_rules", "task", errors, "windows accept the rules of the file"))


def store_items(task: Task, connections: Connections, items: tuple[Item, ...], *, make_meta: bool = False) -> bool:
    """Store the result in the meta tables; return whether they exist. `make_meta` creates them if nothing forbids it.

    A target that does not answer, or refuses them, already has an item for this; nothing is stored then.
    """
    if any(item.place == "target" and item.severity is Severity.ERROR and item.name in KEPT_BY for item in items):
        return False
    with contextlib.closing(Meta(resolve(task.target, connections), task.meta_schema, task.name)) as meta:
        if make_meta:
            meta.create_tables()
        with existing_meta(task, connections) as found:
            if found is not None:
                meta.prechecks.store(items)
            return found is not None


def raise_if_failed(items: Sequence[Item]) -> None:
    """Raise the coded error that a failed precheck ends a task with."""
    errors = [item for item in items if item.severity is Severity.ERROR]
    if errors:
        raise PrecheckFailed(len(errors), f"[{errors[0].code}] {errors[0].message}")


def _shards(checked: Mapping[str, Checked]) -> Shards:
    groups: dict[TableId, dict[Shard, TableSchema]] = {}
    for source, each in checked.items():
        for table, schema in (each.schemas or {}).items():
            if each.found is not None:
                groups.setdefault(each.found.targets[table], {})[Shard(source, table)] = schema
    return groups


def _structures_alike(task: Task, groups: Shards) -> list[Item]:
    if task.shard_mode is ShardMode.OPTIMISTIC:
        return [item for target, shards in sorted(groups.items()) for item in _joined(target, shards)]
    items: list[Item] = []
    for target, shards in sorted(groups.items()):
        first, *others = shards
        errors = [
            ShardsDiffer(str(target), str(first), str(other), "; ".join(differences))
            for other in others
            if shards[other].shape != shards[first].shape
            and (differences := structure_differences(shards[first], shards[other]))
        ]
        items += verdict("schema_of_shard_tables", f"target {target}", errors, f"{len(shards)} shards are alike")
    return items


def _joined(target: TableId, shards: Mapping[Shard, TableSchema]) -> tuple[Item, ...]:
    conflicts = conflicts_of(begin_group(shards))
    errors: list[UnshardError] = []
    if conflicts:
        errors.append(ShardsWithoutJoin(str(target), "; ".join(map(str, conflicts))))
    return (*verdict("schema_of_shard_tables", f"target {target}", errors, f"{len(shards)} shards have a join"),)


def _settings(checked: Mapping[str, Checked], target: Checked, targets: Collection[TableId]) -> list[Item]:
    servers = {source: each.values for source, each in checked.items() if each.values}
    named = {"target": target.values, **servers} if target.values else servers

    def told(fine: str) -> str:
        return as_seen(fine, [*named], len(checked) + 1, least=2)

    cases = {place: values.get("lower_case_table_names", "") for place, values in named.items()}
    modes = {place: values["sql_mode"] for place, values in named.items()}
    collations = {place: values["collation_server"] for place, values in named.items()}
    cased = case_rules(cases)
    alike = alike_names(targets) if cases.get("target", "") not in ("", "0") else []
    ids = {source: values["server_id"] for source, values in servers.items()}
    packets = {place: int(values["max_allowed_packet"]) for place, values in named.items()}
    small = [PacketTooSmall(place, size, MINIMAL_PACKET) for place, size in packets.items() if size < MINIMAL_PACKET]
    return [
        *verdict("server_settings", "task", cased, told("table names are compared alike")),
        *[problem("server_settings", "target", error) for error in alike],
        *verdict("server_settings", "task", mode_problems(modes), told("sql_mode is the same")),
        *verdict(
            "server_settings",
            "task",
            collation_problems("collation_server", collations),
            told("collation_server is the same"),
        ),
        *[problem("server_settings", "task", error, Severity.WARNING) for error in small],
        *[problem("server_id", "task", error) for error in same_server_ids(ids)],
    ]


def _defaults(checked: Mapping[str, Checked]) -> list[Item]:
    """Compare the character sets that merged schemas give to tables whose DDL names none."""
    merged: dict[str, dict[str, str]] = {}
    for source, each in checked.items():
        for table, target in (each.found.targets if each.found else {}).items():
            if table.schema in each.defaults:
                merged.setdefault(target.schema, {})[f"{source} {table.schema}"] = each.defaults[table.schema]
    what = "the default collation of schemas"
    return [
        problem("collation", f"target {schema}", error)
        for schema, collations in sorted(merged.items())
        for error in collation_problems(what, collations)
    ]


def _clocks(task: Task, checked: Mapping[str, Checked]) -> list[Item]:
    """Compare the time zones of the sources' DDLs with the one that the task assumes."""
    name, zone = task.timezone, zone_of(task.timezone)
    wrong = [error for source, each in checked.items() for error in zone_problems(source, each.offsets, name, zone)]
    seen = [source for source, each in checked.items() if each.offsets]
    fine = as_seen(f"time zones of the sources are {name}", seen, len(checked))
    return verdict("server_settings", "task", wrong, fine)


def _space(task: Task, checked: Mapping[str, Checked]) -> list[Item]:
    """Compare the free space under a local storage path with the size of the rows to dump."""
    path = Path(task.options.storage_path)
    if not task.task_mode.dumps:
        return []
    existing = next(each for each in (path, *path.parents) if each.exists())
    free, needed = shutil.disk_usage(existing).free, sum(each.bytes for each in checked.values())
    short: list[UnshardError] = [StorageShort(str(path), free, needed)] if free < needed else []
    seen = [source for source, each in checked.items() if each.found is not None]
    fine = as_seen(f"{free:,} bytes free, {needed:,} bytes to dump", seen, len(checked), least=min(1, len(checked)))
    return verdict("free_space", "task", short, fine)


def _object_store(task: Task, connections: Connections) -> list[Item]:
    """Write, list, read and remove an object below the storage path; the free space of a store is unknown."""
    folder = f"check-{uuid.uuid4().hex}"
    name = f"{folder}/object"
    failed: list[UnshardError] = []
    try:
        storage = Storage(task.storage, storage_access(task.options, connections))
        storage.write_batches(name, pa.schema([]), iter(()))
        if name not in storage.list(folder):
            raise StoredFileMissing(f"{task.storage}/{name}")
        storage.schema(name)
        storage.delete_folder(folder)
    except UnshardError as error:
        failed.append(error)
    return verdict("object_store", "task", failed, f"{task.storage} can be written, listed and read")


def _rules_idle(checked: Mapping[str, Checked]) -> list[Item]:
    """Return rules that match no table of any source that has them; unknown if such a source does not answer."""
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
    fine = f"{len(judged)} routes and entries of lists match something" if judged else ""
    return verdict("rules", "task", errors, fine)
