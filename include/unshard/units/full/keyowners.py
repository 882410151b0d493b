"""Find the other shard that has the key of a collision: ask the shards, and record the answer. Runs in the driver."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pymysql.connections import Connection

from unshard.adapters import mysql, tablerows
from unshard.core.ddl.queue import ShardState
from unshard.core.model import Shard
from unshard.core.rows.rowerrors import NAMED_AT_ONCE, Found, KeyCollision
from unshard.core.rules.reshaping import seen
from unshard.errors import UnshardError
from unshard.errors.rows import Collision
from unshard.units.work import Work

NO_OWNER = "a shard that does not have it any more"
"""The owner if no asked shard has the key: the row was truncated or dropped, or its DELETE is still pending."""


def stopped_by(work: Work, error: Collision, found: Found, window: int = 0) -> Collision:
    """Record a collision that stops a window or load; return it with the shard that has the key now, if found."""
    states = {str(state.shard): state for state in work.meta.structures.shards()}
    arriving = states.get(error.shard.partition(" or ")[0])
    if arriving is None:
        return error
    owner = states.get(error.owner.removeprefix("shard "))
    collision = KeyCollision(
        arriving.target, error.key, error.condition, arriving.shard, owner.shard if owner else None
    )
    unowned = error.owner
    if collision.owner is None:
        (collision,), all_asked = _with_owners(work, [collision], states.values())
        unowned = NO_OWNER if all_asked and collision.condition else unowned
    work.meta.collisions.stop_at(collision, found, window)
    return replace(error, owner=f"shard {collision.owner}" if collision.owner else unowned)


def name_owners(work: Work, source: str) -> None:
    """Find and record the owners of the keys in the newest collisions of a source."""
    collisions = [each.collision for each in work.meta.collisions.unnamed(source, NAMED_AT_ONCE)]
    if collisions:
        found, _ = _with_owners(work, collisions, work.meta.structures.shards())
        work.meta.collisions.name_owners(collision for collision in found if collision.owner)


def _with_owners(
    work: Work, collisions: Sequence[KeyCollision], states: Iterable[ShardState]
) -> tuple[list[KeyCollision], bool]:
    """Return the collisions with the first other shard that has the key, and whether all shards were asked."""
    asked: Mapping[str, list[ShardState]] = defaultdict(list)
    for state in states:
        if not state.has_left:
            asked[state.shard.source].append(state)
    owners: dict[str, Shard] = {}
    answered = set()
    for source, some in asked.items():
        # An unavailable source must not hide the known collisions.
        with contextlib.suppress(UnshardError), contextlib.closing(_connect(work, source)) as connection:
            for state in some:
                for collision in collisions:
                    if (
                        collision.digest not in owners
                        and _may_own(state, collision)
                        and _has(work, connection, state, collision)
                    ):
                        owners[collision.digest] = state.shard
            answered.add(source)
    return [
        replace(collision, owner=owners.get(collision.digest)) for collision in collisions
    ], answered == asked.keys()


def shard_has_key(work: Work, state: ShardState, collision: KeyCollision) -> bool:
    """Return whether a shard has a row with that key now."""
    with contextlib.closing(_connect(work, state.shard.source)) as connection:
        return _has(work, connection, state, collision)


def _may_own(state: ShardState, collision: KeyCollision) -> bool:
    return bool(collision.condition) and state.target == collision.target and state.shard != collision.shard


def _connect(work: Work, source: str) -> Connection:
    return mysql.connect(work.sources[source], f"source {source}")


def _has(work: Work, connection: Connection, state: ShardState, collision: KeyCollision) -> bool:
    return tablerows.has_row(connection, _rows(work, state), collision.condition)


def _rows(work: Work, state: ShardState) -> str:
    """Return the shard's rows with the columns that its names fill or change: the key may contain such a column."""
    reshaping = work.task.instance(state.shard.source).routing.reshaping(state.shard.table)
    if not reshaping:
        return mysql.table_name(state.shard.table)
    structure, schema = work.structures({state.structure})[state.structure], work.target_schema(state.target)
    return seen(str(state.shard), state.shard.table, structure, state.target, schema, reshaping).rows
