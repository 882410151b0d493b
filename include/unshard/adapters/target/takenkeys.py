"""Find rows whose key is taken, apply the task's policy, and record the collisions in the meta tables.

New rows are written without REPLACE, so that the server counts rows whose key is taken. If there are any, the writes
are rolled back to a savepoint, and the rows are found by key. Then the policy applies: `error` raises, `ignore` writes
as before, `replace` writes with REPLACE. Each collision is recorded in the same transaction, with its key only.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.deletes import any_of
from unshard.adapters.target.sending import load_rendered
from unshard.adapters.target.targetrows import Destination, Lines, Loaded, Mode, Writes, key_of
from unshard.core.model import Column, Shard
from unshard.core.rows.compaction import CollisionPolicy
from unshard.core.rows.rowerrors import NAMED_AT_ONCE, CollisionState, Found, KeyCollision
from unshard.core.sql.quoting import identifier
from unshard.core.structures.tablekeys import UniqueKey, alike, array_of, conditions
from unshard.errors.rows import Collision

KEYS_PER_QUERY = 500
SAVEPOINT = "before_writes"
ATTEMPTS = 3
"""Writes whose taken keys cannot be found are tried this often."""
Values = tuple[bytes | None, ...]
Keyed = Sequence[tuple[int, Values]]


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where collisions are recorded."""

    meta_schema: str
    task: str
    found: Found
    window: int = 0


@dataclass(frozen=True, slots=True)
class TakenRow:
    """A row whose key is taken."""

    row: int
    columns: tuple[str, ...]
    condition: str


def write_rows(connection: Connection, writes: Writes, ledger: Ledger) -> tuple[Loaded, bool]:
    """Write rows by the policy; also return whether keys were taken. Raises Collision under `error`."""
    if not writes.lines:
        _record(connection, ledger, writes.known_collisions, writes.collisions)
        return Loaded(), bool(writes.known_collisions)
    mysql.query(connection, f"SAVEPOINT {SAVEPOINT}")
    collisions = writes.known_collisions
    for attempt in range(1, ATTEMPTS + 1):
        loaded = _load(connection, writes.lines)
        if not loaded.skipped:
            break
        mysql.query(connection, f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
        found = _collisions(connection, writes, loaded)
        if found or attempt == ATTEMPTS:
            # Of a collision that is not found only the server's message is known.
            message = loaded.duplicates[0] if loaded.duplicates else "a row with this key"
            others = max(0, loaded.skipped - 1)
            collisions += found or (KeyCollision(writes.table, message, "", writes.lines[0].shards[0], others=others),)
            loaded = _load_again(connection, writes, collisions)
            break
    _record(connection, ledger, collisions, writes.collisions)
    return loaded, bool(collisions)


def _load(connection: Connection, lines: Sequence[Lines]) -> Loaded:
    total = Loaded()
    for each in lines:
        total += load_rendered(connection, each.destination, each.lines, each.blank, each.mode)
    return total


def _load_again(connection: Connection, writes: Writes, collisions: tuple[KeyCollision, ...]) -> Loaded:
    match writes.collisions:
        case CollisionPolicy.ERROR:
            raise _error(writes, collisions[-1])
        case CollisionPolicy.REPLACE:
            return _load(connection, [replace(each, mode=Mode.REPLACE) for each in writes.lines])
        case CollisionPolicy.IGNORE:
            return _load(connection, writes.lines)


def _error(writes: Writes, collision: KeyCollision) -> Collision:
    if collision.condition:
        owner = f"shard {collision.owner}" if collision.owner else Collision.unnamed
        return Collision(str(collision.target), collision.key, str(collision.shard), owner, collision.condition)
    shards = " or ".join(sorted({str(shard) for each in writes.lines for shard in each.shards}))
    return Collision(str(collision.target), collision.key, shards, "another shard of this window")


def _collisions(connection: Connection, writes: Writes, loaded: Loaded) -> tuple[KeyCollision, ...]:
    """Return the rows whose key is taken: by a row of the table, or by another row of these writes.

    The result is empty if the keys have become free since: a row moves to another source, and the window with its
    DELETE commits between the two statements.
    """
    found = [*_taken(connection, writes)]
    if len(found) < min(loaded.skipped, NAMED_AT_ONCE):
        found = [*found, *_shared_keys(connection, writes)][:NAMED_AT_ONCE]
    if not found:
        return ()
    return (*found[:-1], replace(found[-1], others=max(0, loaded.skipped - len(found))))


def _taken(connection: Connection, writes: Writes) -> Iterator[KeyCollision]:
    left = NAMED_AT_ONCE if writes.collisions is not CollisionPolicy.ERROR else 1
    for each in writes.lines:
        if each.mode is not Mode.PLAIN:
            continue
        for taken in taken_rows(connection, each.destination, writes.unique, each.lines, left):
            left -= 1
            key = _shown(each.destination, taken.columns, each.lines[taken.row].as_py())
            yield KeyCollision(writes.table, key, taken.condition, each.shards[taken.row])


def taken_rows(
    connection: Connection, destination: Destination, unique: Sequence[UniqueKey], lines: pa.Array, limit: int
) -> Iterator[TakenRow]:
    """Yield up to `limit` rows whose value of a unique key exists in the table."""
    seen = set[int]()
    for key in unique:
        if not set(key.needed) <= {column.name for column in destination.columns}:
            continue
        for start in range(0, len(lines), KEYS_PER_QUERY):
            keyed = [(row, values) for row, values in keyed_rows(destination, key, lines, start) if row not in seen]
            for row, values in _search(connection, destination, key, keyed, limit - len(seen)):
                seen.add(row)
                yield TakenRow(row, key.needed, taken_key_condition(destination, key, [values]))


def keyed_rows(destination: Destination, key: UniqueKey, lines: pa.Array, start: int) -> Iterator[tuple[int, Values]]:
    """Yield index and key of each row of one batch from `start`; rows with NULL in a column of it cannot collide."""
    names = [column.name for column in destination.columns]
    indexes = [names.index(name) for name in key.needed]
    for offset, line in enumerate(lines.slice(start, KEYS_PER_QUERY).to_pylist()):
        values = destination.values(line)
        chosen = tuple(values[index] for index in indexes)
        if None not in chosen[: len(key.columns)]:
            yield start + offset, chosen


def _search(connection: Connection, destination: Destination, key: UniqueKey, keyed: Keyed, limit: int) -> Keyed:
    """Return the rows whose key exists in the table, by binary search over batches of keys."""
    if limit <= 0 or not keyed or not _any_exists(connection, destination, key, keyed):
        return ()
    if len(keyed) == 1:
        return keyed
    half = len(keyed) // 2
    first = _search(connection, destination, key, keyed[:half], limit)
    return (*first, *_search(connection, destination, key, keyed[half:], limit - len(first)))


def _any_exists(connection: Connection, destination: Destination, key: UniqueKey, keyed: Keyed) -> bool:
    condition = taken_key_condition(destination, key, [values for _, values in keyed])
    table = mysql.table_name(destination.table)
    return bool(mysql.query(connection, f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1"))  # noqa: S608


def taken_key_condition(destination: Destination, key: UniqueKey, keys: Sequence[Values]) -> str:
    """Return the SQL condition that a row has one of these values of a unique key."""
    by_name = {column.name: column for column in destination.columns}
    columns = [by_name[name] for name in key.needed]
    if not any(key.lengths) and not key.computed:
        return any_of(columns, keys)
    return " OR ".join(f"({' AND '.join(conditions(key, columns, values))})" for values in keys)


def _shared_keys(connection: Connection, writes: Writes) -> Iterator[KeyCollision]:
    """Yield rows whose key another shard's row in these writes has: in a second unique key, or equal by collation."""
    for key in writes.unique:
        owners: dict[tuple[str | bytes, ...], Shard] = {}
        for each in writes.lines:
            by_name = {column.name: column for column in each.destination.columns}
            if not set(key.needed) <= by_name.keys():
                continue
            columns = [by_name[name] for name in key.needed]
            for start in range(0, len(each.lines), KEYS_PER_QUERY):
                keyed = [*keyed_rows(each.destination, key, each.lines, start)]
                for (row, values), computed in zip(keyed, _computed(connection, key, columns, keyed), strict=True):
                    parts = zip(columns, values, key.lengths, strict=False)
                    plain = [alike(column, value or b"", length) for column, value, length in parts]
                    named = [owners.setdefault((*plain, *some), each.shards[row]) for some in computed]
                    if owner := next((shard for shard in named if shard != each.shards[row]), None):
                        shown = _shown(each.destination, key.needed, each.lines[row].as_py())
                        condition = taken_key_condition(each.destination, key, [values])
                        yield KeyCollision(writes.table, shown, condition, each.shards[row], owner)


def _computed(
    connection: Connection, key: UniqueKey, columns: Sequence[Column], keyed: Keyed
) -> Sequence[Sequence[tuple[str, ...]]]:
    """Return the parts of each row's key that only the server can compute: equal if they are equal but for their case.

    A row has none if a part is NULL, and one for each element of an array.
    """
    if not key.computed or not keyed:
        return [[()]] * len(keyed)
    folds = ["LOWER" if is_folded else "" for _, _, is_folded in key.computed]
    rows = (zip(folds, key.values(columns, values), strict=True) for _, values in keyed)
    shown = (", ".join(f"{fold}(CAST({array_of(value) or value} AS CHAR))" for fold, (_, value) in row) for row in rows)
    selects = " UNION ALL ".join(f"SELECT {number}, {row}" for number, row in enumerate(shown))
    found = sorted(mysql.query(connection, selects), key=lambda row: int(row[0]))
    are_arrays = [bool(array_of(text)) for text, _, _ in key.computed]
    return [[*product(*map(_elements, row[1:], are_arrays))] for row in found]


def _elements(value: str | None, is_array: bool) -> list[str]:
    if value is None or not is_array:
        return [] if value is None else [value]
    found = json.loads(value)
    return [*map(str, found if isinstance(found, list) else [found])]


def _shown(destination: Destination, columns: tuple[str, ...], line: bytes) -> str:
    return key_of(replace(destination, key=columns), line)


def _record(
    connection: Connection, ledger: Ledger, collisions: Sequence[KeyCollision], policy: CollisionPolicy
) -> None:
    state = CollisionState.IGNORED if policy is CollisionPolicy.IGNORE else CollisionState.REPLACED
    sql = (
        f"INSERT INTO {identifier(ledger.meta_schema)}.collision (task, digest, target_schema,"  # noqa: S608
        " target_table, key_shown, key_condition, source, shard_schema, shard_table, owner_source, owner_schema,"
        " owner_table, found, `window`, state, times, others, first_at, last_at) VALUES"
        f" ({', '.join(['%s'] * 15)}, 1, %s, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE"
        " found = VALUES(found), `window` = VALUES(`window`), state = VALUES(state), times = times + 1,"
        " others = others + VALUES(others), last_at = VALUES(last_at)"
    )
    for collision in collisions:
        owner = (
            (collision.owner.source, collision.owner.table.schema, collision.owner.table.name)
            if collision.owner
            else (None,) * 3
        )
        shard, target = collision.shard, collision.target
        mysql.query(
            connection,
            sql,
            (
                ledger.task,
                collision.digest,
                target.schema,
                target.name,
                collision.key,
                collision.condition,
                shard.source,
                shard.table.schema,
                shard.table.name,
                *owner,
                ledger.found.value,
                ledger.window,
                state.value,
                collision.others,
            ),
        )
