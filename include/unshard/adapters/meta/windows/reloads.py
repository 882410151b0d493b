"""Rows of `column_reload`: columns of shards that are read again, and how far they are.

A chunk changes its row in the transaction of its rows (adapters/target/chunk/reload.py). Here reloads begin and are
shown.
"""

import json
from collections.abc import Collection
from datetime import datetime

from sqlalchemy import exists, select
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import AnyRow, matches, shard_columns, shard_of, target_columns, target_of
from unshard.adapters.meta.tasks.actions import record
from unshard.core.ddl.lockcommands import IssuedCommand
from unshard.core.full.chunks import unpack_key
from unshard.core.model import Shard, TableId
from unshard.core.rows.columnreload import Reload, ReloadState, continues, names_digest

RELOAD, SHARD, TABLE_SCHEMA = tables.column_reload, tables.shard, tables.table_schema
NO_LOCK = ""
SHOWN = 20


class ReloadReader(ReadingPart):
    """Reads the reloads of one task."""

    def get(self, shard: Shard, columns: Collection[str]) -> Reload | None:
        """Return the reload of these columns of a shard."""
        mine = {"task": self._task, **shard_columns(shard), "digest": names_digest(columns)}
        with self._database.reading() as connection:
            row = connection.execute(select(RELOAD).where(matches(RELOAD, mine))).one_or_none()
        return _reload(row) if row else None

    def newest(self, number: int = SHOWN) -> tuple[Reload, ...]:
        """Return the reloads that are not done and the newest others, newest first."""
        order = (RELOAD.c.state == ReloadState.DONE.value, RELOAD.c.changed_at.desc(), *RELOAD.primary_key.columns)
        query = select(RELOAD).where(RELOAD.c.task == self._task).order_by(*order).limit(number)
        with self._database.reading() as connection:
            return tuple(map(_reload, connection.execute(query)))

    def due(self, target: TableId, columns: Collection[str], since: datetime) -> tuple[Shard, ...]:
        """Return the shards of a target whose columns were not reloaded after a time; only those that existed then."""
        mine = matches(SHARD, {"task": self._task, **target_columns(target), "has_left": 0, "dropped": 0})
        same = (TABLE_SCHEMA.c[name] == SHARD.c[name] for name in ("task", "source", "shard_schema", "shard_table"))
        was_there = exists().where(*same, TABLE_SCHEMA.c.recorded_at <= since)
        done = matches(RELOAD, {"task": self._task, **target_columns(target), "state": ReloadState.DONE.value})
        with self._database.reading() as connection:
            shards = {shard_of(row) for row in connection.execute(select(SHARD).where(mine, was_there))}
            reloads = (
                [*map(_reload, connection.execute(select(RELOAD).where(done, RELOAD.c.began_at >= since)))]
                if shards
                else []
            )
        wanted = {name.lower() for name in columns}
        names: dict[Shard, set[str]] = {}
        for each in reloads:
            names.setdefault(each.shard, set()).update(name.lower() for name in each.columns)
        return tuple(sorted(shard for shard in shards if not wanted <= names.get(shard, set())))


class Reloads(WritingPart, ReloadReader):
    """Begins reloads."""

    def begin(
        self, shard: Shard, target: TableId, columns: Collection[str], basis: str, order: IssuedCommand | None
    ) -> bool:
        """Record a reload; return whether it continues an earlier one. `order` is the command of a person."""
        mine = {"task": self._task, **shard_columns(shard), "digest": names_digest(columns)}
        fresh = {
            **target_columns(target),
            "names": json.dumps([*columns], ensure_ascii=False),
            "state": ReloadState.READING.value,
            "basis": basis,
            "reached_key": None,
            "chunks": 0,
            "rows_read": 0,
            "rows_changed": 0,
            "began_at": tables.NOW,
            "changed_at": tables.NOW,
        }
        with self._database.transaction() as connection:
            row = connection.execute(select(RELOAD).where(matches(RELOAD, mine)).with_for_update()).one_or_none()
            goes_on = continues(_reload(row) if row else None, basis)
            if not goes_on:
                connection.execute(insert(RELOAD).values({**mine, **fresh}).on_duplicate_key_update(fresh))
            if order is not None:
                record(connection, self._task, NO_LOCK, order)
        return goes_on


def _reload(row: AnyRow) -> Reload:
    return Reload(
        shard_of(row),
        target_of(row),
        tuple(json.loads(row.names)),
        ReloadState(row.state),
        row.basis,
        unpack_key(json.loads(row.reached_key)) if row.reached_key else None,
        row.chunks,
        row.rows_read,
        row.rows_changed,
        row.began_at,
        row.changed_at,
    )
