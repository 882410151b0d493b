"""Rows of `collision`: keys that two shards of a target both have.

With the policies `replace` and `ignore` the writer of the rows records collisions in the transaction of the rows
(adapters.target.collisions). With `error` that transaction is rolled back, and this module records them.
"""

from collections.abc import Iterable

from sqlalchemy import Connection, exists, func, or_, select, update
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import AnyRow, matches, shard_columns, shard_of, target_columns, target_of
from unshard.core.model import Shard, TableId
from unshard.core.rows.rowerrors import Clash, CollisionState, Found, RecordedCollision

COLLISION, SUSPENDED_TARGET = tables.collision, tables.suspended_target
OPEN, MENDED = CollisionState.OPEN.value, CollisionState.MENDED.value


class CollisionReader(ReadingPart):
    """Rows of `collision` of one task."""

    def all(self, limit: int = 100, *, only_open: bool = False) -> tuple[RecordedCollision, ...]:
        """Return the newest collisions, open ones first."""
        query = select(COLLISION).where(COLLISION.c.task == self._database.task)
        query = query.where(COLLISION.c.state == OPEN) if only_open else query
        with self._database.reading() as connection:
            rows = connection.execute(
                query.order_by(COLLISION.c.state != OPEN, COLLISION.c.last_at.desc(), COLLISION.c.digest).limit(limit)
            )
            return tuple(map(_collision, rows))

    def counts(self, source: str) -> dict[CollisionState, int]:
        """Return the number of collisions of a source by state; open collisions count once per key."""
        times = func.sum(func.if_(COLLISION.c.state == OPEN, 1, COLLISION.c.times + COLLISION.c.others))
        where = COLLISION.c.task == self._database.task, COLLISION.c.source == source
        with self._database.reading() as connection:
            found = connection.execute(select(COLLISION.c.state, times).where(*where).group_by(COLLISION.c.state))
            return {CollisionState(state): int(number) for state, number in found}

    def of_load(self, source: str) -> tuple[RecordedCollision, ...]:
        """Return the open collisions of the load that involve a shard of the source."""
        where = (
            COLLISION.c.task == self._database.task,
            COLLISION.c.state == OPEN,
            COLLISION.c.found == Found.LOAD.value,
        )
        mine = or_(COLLISION.c.source == source, COLLISION.c.owner_source == source)
        with self._database.reading() as connection:
            return tuple(
                map(_collision, connection.execute(select(COLLISION).where(*where, mine).order_by(COLLISION.c.digest)))
            )

    def unnamed(self, source: str, limit: int) -> tuple[RecordedCollision, ...]:
        """Return the collisions of a source's shards whose owner is unknown, newest first."""
        where = (
            COLLISION.c.task == self._database.task,
            COLLISION.c.source == source,
            COLLISION.c.owner_source.is_(None),
            COLLISION.c.state != MENDED,
        )
        with self._database.reading() as connection:
            query = (
                select(COLLISION)
                .where(*where, COLLISION.c.key_condition != "")
                .order_by(COLLISION.c.last_at.desc())
                .limit(limit)
            )
            return tuple(map(_collision, connection.execute(query)))


class Collisions(WritingPart, CollisionReader):
    """Changes rows of `collision` of one task."""

    def stop_at(self, clash: Clash, found: Found, window: int = 0) -> None:
        """Record a collision that stops a load or a window."""
        again = {
            "state": OPEN,
            "found": found.value,
            "window": window,
            "times": COLLISION.c.times + 1,
            "last_at": tables.NOW,
            **_owner_columns(clash.owner),
        }
        row = {
            "task": self._database.task,
            "digest": clash.digest,
            **target_columns(clash.target),
            "key_shown": clash.key,
            "key_condition": clash.condition,
            **shard_columns(clash.shard),
            "others": 0,
            "first_at": tables.NOW,
            **again,
            "times": 1,
        }
        with self._database.transaction() as connection:
            connection.execute(insert(COLLISION).values(row).on_duplicate_key_update(again))

    def name_owners(self, clashes: Iterable[Clash]) -> None:
        """Record the owners of keys."""
        with self._database.transaction() as connection:
            for clash in clashes:
                mine = matches(COLLISION, {"task": self._database.task, "digest": clash.digest})
                connection.execute(update(COLLISION).where(mine).values(_owner_columns(clash.owner)))

    def mend(self, source: str) -> None:
        """Close the open collisions of a source after its load has succeeded."""
        with self._database.transaction() as connection:
            mend(connection, self._database.task, source)

    def close(self, clashes: Iterable[Clash]) -> None:
        """Close collisions of the load after their shards were dumped again."""
        with self._database.transaction() as connection:
            for clash in clashes:
                mine = matches(COLLISION, {"task": self._database.task, "digest": clash.digest, "state": OPEN})
                connection.execute(update(COLLISION).where(mine).values(state=MENDED, last_at=tables.NOW))


def mend(connection: Connection, task: str, source: str) -> None:
    """Close the open collisions of a source after its load or window, except those of suspended targets."""
    mine = matches(COLLISION, {"task": task, "source": source, "state": OPEN})
    stopped = select(SUSPENDED_TARGET.c.window).where(
        SUSPENDED_TARGET.c.task == COLLISION.c.task,
        SUSPENDED_TARGET.c.source == COLLISION.c.source,
        SUSPENDED_TARGET.c.target_schema == COLLISION.c.target_schema,
        SUSPENDED_TARGET.c.target_table == COLLISION.c.target_table,
    )
    connection.execute(update(COLLISION).where(mine, ~exists(stopped)).values(state=MENDED, last_at=tables.NOW))


def _owner_columns(owner: Shard | None) -> dict[str, str | None]:
    if owner is None:
        return {"owner_source": None, "owner_schema": None, "owner_table": None}
    return {"owner_source": owner.source, "owner_schema": owner.table.schema, "owner_table": owner.table.name}


def _collision(row: AnyRow) -> RecordedCollision:
    is_named = row.owner_source is not None
    owner = Shard(row.owner_source, TableId(row.owner_schema, row.owner_table)) if is_named else None
    clash = Clash(target_of(row), row.key_shown, row.key_condition, shard_of(row), owner, row.others)
    return RecordedCollision(
        clash, Found(row.found), row.window, CollisionState(row.state), row.times, row.first_at, row.last_at
    )
