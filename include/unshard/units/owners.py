"""Who owns the key that a new row collided with: the shards themselves are asked."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from unshard.adapters import mysql
from unshard.core.reshape import seen
from unshard.core.window import ShardState
from unshard.errors import UnshardError
from unshard.errors.target import Collision
from unshard.units.work import Work


def name_owner(work: Work, error: Collision) -> Collision:
    """Return the error with the shard that has the key now, if one of them says that it has it."""
    if not error.condition:
        return error
    for state in _others(work, error):
        # A source that cannot be asked must not hide the collision that we know of.
        with contextlib.suppress(UnshardError):
            if _has(work, state, error.condition):
                return replace(error, owner=f"shard {state.shard}")
    return error


def _others(work: Work, error: Collision) -> Iterator[ShardState]:
    for state in work.meta.structures.shards():
        if str(state.target) == error.target and str(state.shard) != error.shard and not state.has_left:
            yield state


def _has(work: Work, state: ShardState, condition: str) -> bool:
    shard = state.shard
    with contextlib.closing(mysql.connect(work.sources[shard.source], f"source {shard.source}")) as connection:
        sql = f"SELECT 1 FROM {_rows(work, state)} WHERE {condition} LIMIT 1"  # noqa: S608
        return bool(mysql.query(connection, sql))


def _rows(work: Work, state: ShardState) -> str:
    """Return the shard's rows as its names make them: the key may have a column that they fill or change."""
    reshaping = work.task.instance(state.shard.source).routing.reshaping(state.shard.table)
    if not reshaping:
        return mysql.table_name(state.shard.table)
    structure, schema = work.structures({state.structure})[state.structure], work.target_schema(state.target)
    return seen(str(state.shard), state.shard.table, structure, state.target, schema, reshaping).rows
