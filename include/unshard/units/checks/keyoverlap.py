"""Find rows of two shards with one key of the target before the load does: sampled keys are looked up in other shards.

A sample that finds nothing proves nothing; a found key is certain. The load finds all (design section 5).
If the task syncs, rows that the dump excludes (`where`) are looked up too: the binlog brings them with their next
change, and nothing checks them then.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from unshard.adapters import mysql, tablerows
from unshard.adapters.tablerows import existing_keys, keys_at_both_ends
from unshard.config import Connections, Task, resolve
from unshard.core.model import Index, Shard, TableId, TableSchema
from unshard.core.structures.tablekeys import SharedKey, leading_index
from unshard.errors import UnshardError
from unshard.errors.checks import KeysOverlap

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

        def asked(shard: Shard) -> _Asked:
            index = leading_index(shards[shard], key.columns)
            assert index is not None
            return _Asked(shard, key.columns, index, _dumped(task, shard.source))

        ask_all(lambda connection, shard: samples.update({shard: _sample(connection, asked(shard))}))
        ask_all(lambda connection, shard: found.update(_found(connection, asked(shard), samples)))
    return found


@dataclass(frozen=True, slots=True)
class _Asked:
    """A shard, the columns of the target's key, and the shard's index that finds their values."""

    shard: Shard
    columns: tuple[str, ...]
    index: Index
    dumped: str


def _dumped(task: Task, source: str) -> str:
    """Return the condition on rows that are migrated."""
    return "TRUE" if task.task_mode.syncs else task.instance(source).dump.where or "TRUE"


def _with_source(task: Task, connections: Connections, source: str, shards: Sequence[Shard], ask: Any) -> None:
    if not shards:
        return
    server = resolve(task.instance(source).source.endpoint, connections)
    with closing(mysql.connect(server, f"source {source}")) as connection:
        tablerows.prepare_condition(connection)
        for shard in shards:
            ask(connection, shard)


def _sample(connection: Any, asked: _Asked) -> tuple[Key, ...]:
    """Return the keys at both ends of the table: where shards that count from 1 overlap, and where they continue.

    Excluded rows are filtered afterwards, so the condition causes no search. NULL is equal to nothing.
    """
    table = asked.shard.table
    keys = keys_at_both_ends(connection, table, asked.columns, asked.index, asked.dumped, KEYS // 2)
    return tuple(key for key in dict.fromkeys(keys) if None not in key)


def _found(
    connection: Any, asked: _Asked, samples: Mapping[Shard, tuple[Key, ...]]
) -> Iterator[tuple[tuple[Shard, Shard], Key]]:
    """Yield a key that this shard has, too, for each shard with sampled keys."""
    shard, first = asked.shard, asked.index.columns[0]
    wanted = {key: other for other, keys in samples.items() if other != shard for key in keys}
    if not wanted:
        return
    for row in existing_keys(connection, shard.table, asked.columns, first, asked.dumped, wanted.keys()):
        if (other := wanted.get(tuple(row))) is not None:
            yield (min(shard, other), max(shard, other)), tuple(row)
