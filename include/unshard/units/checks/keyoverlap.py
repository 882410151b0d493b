"""Find rows of two shards with one key before the load does: sampled keys of each shard are looked up in the others.

A sample that finds nothing proves nothing; a found key is certain. The load finds all (design section 5). Rows that the
dump excludes (`where`) count if the task syncs: their next change adds them, and no check finds it then.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from unshard.adapters import condition as conditions
from unshard.adapters import mysql
from unshard.adapters.tablerows import existing_keys, keys_at_both_ends
from unshard.config import Connections, Task, resolve
from unshard.core.model import Shard, TableId, TableSchema
from unshard.errors import UnshardError
from unshard.errors.checks import KeysOverlap

SHARDS, KEYS = 32, 16
"""Number of sampled shards of a target, and of sampled keys of a shard."""

Key = tuple[Any, ...]
Group = Mapping[Shard, TableSchema]


def overlaps(task: Task, connections: Connections, target: TableId, shards: Group) -> list[UnshardError]:
    """Return keys that two shards of one target have, one example for each pair; ignores shards without a key."""
    chosen = {shard: schema for shard, schema in sorted(shards.items())[:SHARDS] if schema.key}
    samples: dict[Shard, tuple[Key, ...]] = {}
    found: dict[tuple[Shard, Shard], Key] = {}
    by_source = {name: [shard for shard in chosen if shard.source == name] for name in task.sources}
    with ThreadPoolExecutor(max_workers=max(1, len(by_source))) as pool:

        def ask_all(ask: Any) -> None:
            list(pool.map(lambda name: _with_source(task, connections, name, by_source[name], ask), by_source))

        dumped = {name: _dumped(task, name) for name in by_source}
        ask_all(
            lambda connection, shard: samples.update(
                {shard: _sample(connection, shard, chosen[shard], dumped[shard.source])}
            )
        )
        ask_all(
            lambda connection, shard: found.update(
                _found(connection, shard, chosen[shard], dumped[shard.source], samples)
            )
        )
    pairs = {frozenset(pair): (pair, key) for pair, key in sorted(found.items(), key=lambda item: item[0])}
    return [
        KeysOverlap(str(target), ", ".join(map(str, key)), str(first), str(other))
        for (first, other), key in pairs.values()
    ]


def _dumped(task: Task, source: str) -> str:
    """Return the condition on rows that are migrated."""
    return "TRUE" if task.task_mode.syncs else task.instance(source).dump.where or "TRUE"


def _with_source(task: Task, connections: Connections, source: str, shards: Sequence[Shard], ask: Any) -> None:
    if not shards:
        return
    server = resolve(task.instance(source).source.endpoint, connections)
    with closing(mysql.connect(server, f"source {source}")) as connection:
        conditions.prepare(connection)
        for shard in shards:
            ask(connection, shard)


def _sample(connection: Any, shard: Shard, schema: TableSchema, dumped: str) -> tuple[Key, ...]:
    """Return the keys at both ends of the table: where shards that count from 1 overlap, and where they continue.

    Excluded rows are filtered afterwards, so the condition causes no search.
    """
    return tuple(dict.fromkeys(keys_at_both_ends(connection, shard.table, schema.key, dumped, KEYS // 2)))


def _found(
    connection: Any, shard: Shard, schema: TableSchema, dumped: str, samples: Mapping[Shard, tuple[Key, ...]]
) -> Iterator[tuple[tuple[Shard, Shard], Key]]:
    """Yield a key that this shard has, too, for each shard with sampled keys."""
    asked = {key: other for other, keys in samples.items() if other != shard for key in keys}
    if not asked:
        return
    for row in existing_keys(connection, shard.table, schema.key, dumped, asked.keys()):
        if (other := asked.get(tuple(row))) is not None:
            yield (min(shard, other), max(shard, other)), tuple(row)
