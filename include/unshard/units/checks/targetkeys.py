"""Check the keys of the targets: whether two shards have the same one, and whether it finds the rows of the shards.

Find rows of two shards with one key of the target before the load does: sampled keys are looked up in other shards.

A sample that finds nothing proves nothing; a found key is certain. The load finds all (design section 5).
If the task syncs, rows that the dump excludes (`where`) are looked up too: the binlog brings them with their next
change, and nothing checks them then.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from unshard.adapters import mysql, tablerows
from unshard.adapters.tablerows import existing_keys, keys_at_both_ends
from unshard.config import Connections, Instance, OnDuplicate, Task, resolve
from unshard.core.checks.items import Item, Severity, counting_up, problem, verdict
from unshard.core.model import Index, Shard, TableId, TableSchema
from unshard.core.structures.tablekeys import SharedKey, as_filled, leading_index, may_share_key, shared_keys
from unshard.errors import UnshardError
from unshard.errors.checks import (
    ConditionFindsNoRow,
    ImageFindsNoRow,
    KeysOverlap,
    PositionMustBeExact,
    StartTimeNeedsKey,
)

SHARDS, KEYS = 32, 16
"""Number of sampled shards of a target, and of sampled keys of a shard."""

Key = tuple[Any, ...]
Group = Mapping[Shard, TableSchema]


def overlaps(
    task: Task, connections: Connections, target: TableId, shards: Group, keys: Sequence[SharedKey]
) -> list[UnshardError]:
    """Return values of the target's keys that two shards have, one example for each pair."""
    found: dict[tuple[Shard, Shard], str] = {}
    for key in keys:
        for pair, values in _shared(task, connections, shards, key).items():
            shown = ", ".join(f"{name} = {value}" for name, value in zip(key.columns, values, strict=True))
            found.setdefault(pair, shown)
    return [KeysOverlap(str(target), key, str(first), str(other)) for (first, other), key in sorted(found.items())]


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
            return _AskedKeys(shard, key.columns, index, _dumped(task, shard.source))

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


def _dumped(task: Task, source: str) -> str:
    return "TRUE" if task.task_mode.syncs else task.instance(source).dump.where or "TRUE"


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
    """Yield a key that this shard has, too, for each shard with sampled keys."""
    shard, first = asked.shard, asked.index.columns[0]
    wanted = {key: other for other, keys in samples.items() if other != shard for key in keys}
    if not wanted:
        return
    for row in existing_keys(connection, shard.table, asked.columns, first, asked.dumped, wanted.keys()):
        if (other := wanted.get(tuple(row))) is not None:
            yield (min(shard, other), max(shard, other)), tuple(row)


# --- the keys of the targets


WHOLE = frozenset({"FULL", "FULL_NODUP"})
LONG = ("blob", "text", "json", "geometry", "vector")

Shards = Mapping[TableId, Mapping[Shard, TableSchema]]


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
        items += verdict("auto_increment_ID", place, counting, fine, Severity.WARNING)
        constants = _constants(task, shards)
        # A table with extracted columns is never created like its shards; it has an item of its own.
        model = present or next((shards[shard] for shard in shards if not any(constants.values())), None)
        if len(shards) < 2 or model is None:
            continue
        try:
            keys = shared_keys(model, shards, constants, _mapped(task, shards))
            both = overlaps(task, connections, target, shards, keys)
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
        return StartTimeNeedsKey(str(target), source)
    return PositionMustBeExact(str(target), source, str(instance.start or instance.start_gtid))


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
                errors.setdefault(f"image {source}", ImageFindsNoRow(str(target), source, image))
            if task.instance(source).dump.where:
                errors.setdefault(f"where {source}", ConditionFindsNoRow(str(target), source))
        items += [problem("target_tables", f"target {target}", error) for error in errors.values()]
    return items


def _filled(schema: TableSchema, constants: Mapping[str, str]) -> set[str]:
    return {*(name.lower() for name in schema.names), *constants}


def _logs_whole(image: str, schema: TableSchema) -> bool:
    if image == "NOBLOB":
        return not any(column.data_type.endswith(LONG) for column in schema.columns)
    return image in WHOLE


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
