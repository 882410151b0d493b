"""Rows of `collision`: what two shards have both, of which target, and what became of it.

With the policies `replace` and `ignore` the writer of the rows records them in the transaction of the rows
(adapters.target.collisions); with `error` there is no such transaction, and they are recorded here.
"""

from collections.abc import Iterable

from sqlalchemy import Connection, exists, func, or_, select, update
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.rows import AnyRow, matches, shard_columns, shard_of, target_columns, target_of
from unshard.core.collision import Clash, CollisionState, Found, RecordedCollision
from unshard.core.model import Shard, TableId

C, S = tables.collision, tables.stopped_target
OPEN, MENDED = CollisionState.OPEN.value, CollisionState.MENDED.value


class Collisions:
    """Rows of `collision` of one task."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database

    def stop_at(self, clash: Clash, found: Found, window: int = 0) -> None:
        """Record what a load or a window cannot get past."""
        again = {"state": OPEN, "found": found.value, "window": window, "times": C.c.times + 1, "last_at": tables.NOW,
                 **_owner_columns(clash.owner)}  # fmt: skip
        row = {
            "task": self._database.task, "digest": clash.digest, **target_columns(clash.target),
            "key_shown": clash.key, "key_condition": clash.condition, **shard_columns(clash.shard), "others": 0,
            "first_at": tables.NOW, **again, "times": 1,
        }  # fmt: skip
        with self._database.transaction() as connection:
            connection.execute(insert(C).values(row).on_duplicate_key_update(again))

    def all(self, limit: int = 100, *, only_open: bool = False) -> tuple[RecordedCollision, ...]:
        """Return the newest ones, those that something waits for before all others."""
        query = select(C).where(C.c.task == self._database.task)
        query = query.where(C.c.state == OPEN) if only_open else query
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(C.c.state != OPEN, C.c.last_at.desc(), C.c.digest).limit(limit))
            return tuple(map(_collision, rows))

    def counts(self, source: str) -> dict[CollisionState, int]:
        """Return how often the shards of a source met others, by what became of it; open ones are keys."""
        times = func.sum(func.if_(C.c.state == OPEN, 1, C.c.times + C.c.others))
        where = C.c.task == self._database.task, C.c.source == source
        with self._database.reading() as connection:
            found = connection.execute(select(C.c.state, times).where(*where).group_by(C.c.state))
            return {CollisionState(state): int(number) for state, number in found}

    def of_load(self, source: str) -> tuple[RecordedCollision, ...]:
        """Return the open collisions of the load in which shards of a source are involved."""
        where = C.c.task == self._database.task, C.c.state == OPEN, C.c.found == Found.LOAD.value
        mine = or_(C.c.source == source, C.c.owner_source == source)
        with self._database.reading() as connection:
            return tuple(map(_collision, connection.execute(select(C).where(*where, mine).order_by(C.c.digest))))

    def unnamed(self, source: str, limit: int) -> tuple[RecordedCollision, ...]:
        """Return those of a source's shards whose owner is not known, the newest first."""
        where = C.c.task == self._database.task, C.c.source == source, C.c.owner_source.is_(None), C.c.state != MENDED
        with self._database.reading() as connection:
            query = select(C).where(*where, C.c.key_condition != "").order_by(C.c.last_at.desc()).limit(limit)
            return tuple(map(_collision, connection.execute(query)))

    def name_owners(self, clashes: Iterable[Clash]) -> None:
        """Record who owns the keys, where that has been found out."""
        with self._database.transaction() as connection:
            for clash in clashes:
                mine = matches(C, {"task": self._database.task, "digest": clash.digest})
                connection.execute(update(C).where(mine).values(_owner_columns(clash.owner)))

    def mend(self, source: str) -> None:
        """Close what the load of a source has got past."""
        with self._database.transaction() as connection:
            mend(connection, self._database.task, source)

    def close(self, clashes: Iterable[Clash]) -> None:
        """Close collisions of the load whose shards have been read anew."""
        with self._database.transaction() as connection:
            for clash in clashes:
                mine = matches(C, {"task": self._database.task, "digest": clash.digest, "state": OPEN})
                connection.execute(update(C).where(mine).values(state=MENDED, last_at=tables.NOW))


def mend(connection: Connection, task: str, source: str) -> None:
    """Close the open collisions of a source, whose load or window has gone on, but for targets that are stopped."""
    mine = matches(C, {"task": task, "source": source, "state": OPEN})
    stopped = select(S.c.window).where(S.c.task == C.c.task, S.c.source == C.c.source,
                                       S.c.target_schema == C.c.target_schema,
                                       S.c.target_table == C.c.target_table)  # fmt: skip
    connection.execute(update(C).where(mine, ~exists(stopped)).values(state=MENDED, last_at=tables.NOW))


def _owner_columns(owner: Shard | None) -> dict[str, str | None]:
    if owner is None:
        return {"owner_source": None, "owner_schema": None, "owner_table": None}
    return {"owner_source": owner.source, "owner_schema": owner.table.schema, "owner_table": owner.table.name}


def _collision(row: AnyRow) -> RecordedCollision:
    is_named = row.owner_source is not None
    owner = Shard(row.owner_source, TableId(row.owner_schema, row.owner_table)) if is_named else None
    clash = Clash(target_of(row), row.key_shown, row.key_condition, shard_of(row), owner, row.others)
    return RecordedCollision(clash, Found(row.found), row.window, CollisionState(row.state), row.times, row.first_at,
                             row.last_at)  # fmt: skip
