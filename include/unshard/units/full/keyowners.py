"""Find the other shard that has the key of a collision: ask the shards, and record the answer. Runs in the driver."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pymysql.connections import Connection

from unshard.adapters import mysql, tablerows
from unshard.core.ddl.queue import ShardState
from unshard.core.model import Shard
from unshard.core.rows.rowerrors import NAMED_AT_ONCE, Clash, Found
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
    clash = Clash(arriving.target, error.key, error.condition, arriving.shard, owner.shard if owner else None)
    unowned = error.owner
    if clash.owner is None:
        (clash,), all_asked = _with_owners(work, [clash], states.values())
        unowned = NO_OWNER if all_asked and clash.condition else unowned
    work.meta.collisions.stop_at(clash, found, window)
    return replace(error, owner=f"shard {clash.owner}" if clash.owner else unowned)


def name_owners(work: Work, source: str) -> None:
    """Find and record the owners of the keys in the newest collisions of a source."""
    clashes = [each.clash for each in work.meta.collisions.unnamed(source, NAMED_AT_ONCE)]
    if clashes:
        found, _ = _with_owners(work, clashes, work.meta.structures.shards())
        work.meta.collisions.name_owners(clash for clash in found if clash.owner)


def _with_owners(work: Work, clashes: Sequence[Clash], states: Iterable[ShardState]) -> tuple[list[Clash], bool]:
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
                for clash in clashes:
                    if clash.digest not in owners and _may_own(state, clash) and _has(work, connection, state, clash):
                        owners[clash.digest] = state.shard
            answered.add(source)
    return [replace(clash, owner=owners.get(clash.digest)) for clash in clashes], answered == asked.keys()


def shard_has_key(work: Work, state: ShardState, clash: Clash) -> bool:
    """Return whether a shard has a row with that key now."""
    with contextlib.closing(_connect(work, state.shard.source)) as connection:
        return _has(work, connection, state, clash)


def _may_own(state: ShardState, clash: Clash) -> bool:
    return bool(clash.condition) and state.target == clash.target and state.shard != clash.shard


def _connect(work: Work, source: str) -> Connection:
    return mysql.connect(work.sources[source], f"source {source}")


def _has(work: Work, connection: Connection, state: ShardState, clash: Clash) -> bool:
    return tablerows.has_row(connection, _rows(work, state), clash.condition)


def _rows(work: Work, state: ShardState) -> str:
    """Return the shard's rows with the columns that its names fill or change: the key may contain such a column."""
    reshaping = work.task.instance(state.shard.source).routing.reshaping(state.shard.table)
    if not reshaping:
        return mysql.table_name(state.shard.table)
    structure, schema = work.structures({state.structure})[state.structure], work.target_schema(state.target)
    return seen(str(state.shard), state.shard.table, structure, state.target, schema, reshaping).rows
