"""Look for rows of two shards with one key, before the load finds them: sampled keys of each are asked of the others.

A sample proves nothing when it finds none; what it finds is certain. The load finds all (design section 5). Rows that
the dump leaves out (`where`) count where the task syncs: their next change brings them, and nothing finds it then.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from unshard.adapters import condition as conditions
from unshard.adapters import mysql
from unshard.config import Connections, Task, resolve
from unshard.core.model import Shard, TableId, TableSchema
from unshard.errors import UnshardError
from unshard.errors.prechecks import KeysOverlap

SHARDS, KEYS = 32, 16
"""Shards of a target, and keys of a shard, that are looked at."""

Key = tuple[Any, ...]
Group = Mapping[Shard, TableSchema]


def overlaps(task: Task, connections: Connections, target: TableId, shards: Group) -> list[UnshardError]:
    """Return what two shards of one target both have, one example for each pair; shards without a key are left out."""
    chosen = {shard: schema for shard, schema in sorted(shards.items())[:SHARDS] if schema.key}
    samples: dict[Shard, tuple[Key, ...]] = {}
    found: dict[tuple[Shard, Shard], Key] = {}
    by_source = {name: [shard for shard in chosen if shard.source == name] for name in task.sources}
    with ThreadPoolExecutor(max_workers=max(1, len(by_source))) as pool:

        def ask_all(ask: Any) -> None:
            list(pool.map(lambda name: _with_source(task, connections, name, by_source[name], ask), by_source))

        dumped = {name: _dumped(task, name) for name in by_source}
        ask_all(lambda connection, shard: samples.update(
            {shard: _sample(connection, shard, chosen[shard], dumped[shard.source])}
        ))  # fmt: skip
        ask_all(lambda connection, shard: found.update(
            _found(connection, shard, chosen[shard], dumped[shard.source], samples)
        ))  # fmt: skip
    pairs = {frozenset(pair): (pair, key) for pair, key in sorted(found.items(), key=lambda item: item[0])}
    return [
        KeysOverlap(str(target), ", ".join(map(str, key)), str(first), str(other))
        for (first, other), key in pairs.values()
    ]


def _dumped(task: Task, source: str) -> str:
    """Return the condition on rows that come into the target."""
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
    """Return the keys at both ends of the table: where shards that count from 1 meet, and where they go on.

    Those that are not dumped are left out afterwards: nothing is searched for.
    """
    key = ", ".join(map(mysql.identifier, schema.key))
    table = mysql.table_name(shard.table)
    keys: list[Key] = []
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{mysql.identifier(name)} {direction}" for name in schema.key)
        sql = f"SELECT ({dumped}) IS TRUE, {key} FROM {table} ORDER BY {order} LIMIT {KEYS // 2}"  # noqa: S608
        keys += [row[1:] for row in mysql.query(connection, sql) if row[0]]
    return tuple(dict.fromkeys(map(tuple, keys)))


def _found(
    connection: Any, shard: Shard, schema: TableSchema, dumped: str, samples: Mapping[Shard, tuple[Key, ...]]
) -> Iterator[tuple[tuple[Shard, Shard], Key]]:
    """Yield a key that this shard has, too, for each shard of which one was sampled."""
    asked = {key: other for other, keys in samples.items() if other != shard for key in keys}
    if not asked:
        return
    key = ", ".join(map(mysql.identifier, schema.key))
    marks = ", ".join([f"({', '.join(['%s'] * len(schema.key))})"] * len(asked))
    # The driver puts the values in by `%`, which names and the condition may hold, too.
    where = f"({dumped}) AND ({key}) IN"
    asking = f"SELECT {key} FROM {mysql.table_name(shard.table)} WHERE {where}".replace("%", "%%")  # noqa: S608
    sql = mysql.Spelled(f"{asking} ({marks})")
    present = mysql.query(connection, sql, [value for each in asked for value in each])
    for row in present:
        if (other := asked.get(tuple(row))) is not None:
            yield (min(shard, other), max(shard, other)), tuple(row)
