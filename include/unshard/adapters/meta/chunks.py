"""The chunks of the full load: what is dumped to which file, what of it is loaded, and how long that took."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Connection, and_, case, delete, func, insert, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.rows import AnyRow, matches, shard_columns, shard_of, target_columns, target_of
from unshard.adapters.meta.sources import lock_source
from unshard.core.fullload import RECENT, Finished, Part, Progress, Tally, progress_of
from unshard.core.model import Shard, TableId
from unshard.core.progress import Chunk, ChunkState
from unshard.errors.target import ChunkGone

L, P = tables.load_chunk, tables.chunk_pace
WEIGHT = func.coalesce(func.nullif(P.c.weight, 0), 1)
DUMP = L.c.state != ChunkState.PLANNED.value, L.c.row_count, P.c.dumped_at, P.c.dump_millis
LOAD = L.c.state == ChunkState.LOADED.value, L.c.loaded_rows, P.c.loaded_at, P.c.load_millis


class Chunks:
    """Rows of `load_chunk`; their state only moves forward."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database

    def plan(self, source: str, chunks: Iterable[Chunk]) -> tuple[Chunk, ...]:
        """Store chunks and return all of the source; shards that have chunks already keep those."""
        with self._database.transaction() as connection:
            lock_source(connection, self._database.task, source)
            have = {shard_of(row) for row in connection.execute(self._of(source))}
            now = connection.scalar(select(func.utc_timestamp(6, type_=tables.Moment())))
            new = {(chunk.shard, chunk.number): chunk for chunk in chunks if chunk.shard not in have}
            if new:
                connection.execute(insert(L), [self._row(chunk, now) for chunk in new.values()])
            stored = tuple(map(_chunk, connection.execute(self._of(source))))
            self._weigh(connection, [(each.id, new[each.shard, each.number].weight) for each in stored
                                     if (each.shard, each.number) in new])  # fmt: skip
            return tuple(map(_chunk, connection.execute(self._of(source)))) if new else stored

    def dumped(self, chunk_id: int, path: str, rows: int, bytes: int, millis: int = 0) -> bool:
        """Record the file of a chunk; False when the chunk was not waiting for one any more."""
        values = {"state": ChunkState.DUMPED.value, "path": path, "row_count": rows, "bytes": bytes,
                  "updated_at": tables.NOW}  # fmt: skip
        where = L.c.task == self._database.task, L.c.id == chunk_id, L.c.state == ChunkState.PLANNED.value
        timing = {"dumped_at": tables.NOW, "dump_millis": millis}
        with self._database.transaction() as connection:
            if connection.execute(update(L).where(*where).values(values)).rowcount != 1:
                return False
            mine = P.c.task == self._database.task, P.c.id == chunk_id
            connection.execute(update(P).where(*mine).values(timing))
            return True

    def of(self, source: str) -> tuple[Chunk, ...]:
        """Return the chunks of a source in the order of shards and numbers."""
        with self._database.reading() as connection:
            return tuple(map(_chunk, connection.execute(self._of(source))))

    def progress(self, source: str) -> tuple[Progress, Progress]:
        """Return how far dump and load of a source are; the server adds up, whatever number of chunks there is."""
        mine = and_(L.c.task == self._database.task, L.c.source == source)
        with self._database.snapshot() as connection:
            return _progress(connection, mine, *DUMP), _progress(connection, mine, *LOAD)

    def totals(self) -> dict[TableId, tuple[int, int]]:
        """Return per target of the task how many rows are dumped, and how many chunks are not loaded."""
        waiting = func.sum(case((L.c.state == ChunkState.LOADED.value, 0), else_=1))
        query = select(L.c.target_schema, L.c.target_table, func.sum(L.c.row_count).label("rows_"),
                       waiting.label("waiting")).where(L.c.task == self._database.task)  # fmt: skip
        with self._database.reading() as connection:
            found = connection.execute(query.group_by(L.c.target_schema, L.c.target_table))
            return {target_of(cast(AnyRow, row)): (int(row.rows_), int(row.waiting)) for row in found}

    def begin_anew(self, shard: Shard, target: TableId) -> tuple[Chunk, ...]:
        """Let one chunk that is to be read take the place of all chunks of a shard; return those, none is loaded.

        What was left to the binlog of rows of the old ones is forgotten: the new one has all rows of one moment.
        """
        with self._database.transaction() as connection:
            lock_source(connection, self._database.task, shard.source)
            mine = L.c.task == self._database.task, matches(L, shard_columns(shard))
            old = tuple(map(_chunk, connection.execute(_joined(L, P.c.weight).where(*mine).with_for_update())))
            if any(chunk.state is ChunkState.LOADED for chunk in old):
                raise ChunkGone(str(shard), old[0].number)
            connection.execute(self._paces_of(*mine))
            connection.execute(delete(L).where(*mine))
            ours = {"task": self._database.task, **shard_columns(shard)}
            connection.execute(delete(tables.awaited_row).where(matches(tables.awaited_row, ours)))
            now = connection.scalar(select(func.utc_timestamp(6, type_=tables.Moment())))
            done = connection.execute(insert(L).values(self._row(Chunk(0, shard, target, 1, None, None), now)))
            self._weigh(connection, [(int(done.lastrowid), sum(chunk.weight for chunk in old))])
            return old

    def clear(self, source: str) -> None:
        """Forget the chunks of a source, to dump it anew."""
        mine = L.c.task == self._database.task, L.c.source == source
        with self._database.transaction() as connection:
            connection.execute(self._paces_of(*mine))
            connection.execute(delete(L).where(*mine))

    def _of(self, source: str) -> Any:
        where = L.c.task == self._database.task, L.c.source == source
        return _joined(L, P.c.weight).where(*where).order_by(L.c.shard_schema, L.c.shard_table, L.c.number)

    def _weigh(self, connection: Connection, weights: Sequence[tuple[int, int]]) -> None:
        if weights:
            rows = [{"task": self._database.task, "id": number, "weight": weight} for number, weight in weights]
            connection.execute(insert(P), rows)

    def _paces_of(self, *where: Any) -> Any:
        return delete(P).where(P.c.task == self._database.task, P.c.id.in_(select(L.c.id).where(*where)))

    def _row(self, chunk: Chunk, now: datetime | None) -> dict[str, Any]:
        return {
            "task": self._database.task, **shard_columns(chunk.shard), **target_columns(chunk.target),
            "number": chunk.number, "lower_bound": _bound(chunk.lower), "upper_bound": _bound(chunk.upper),
            "state": chunk.state.value, "path": chunk.path, "row_count": chunk.rows, "bytes": chunk.bytes,
            "loaded_rows": chunk.loaded_rows, "updated_at": now,
        }  # fmt: skip


def _joined(*columns: Any) -> Any:
    """Return the query for chunks; those that an older version planned have no pace."""
    return select(*columns).select_from(L).outerjoin(P, (P.c.task == L.c.task) & (P.c.id == L.c.id))


def _progress(connection: Connection, mine: Any, done: Any, rows: Any, ended: Any, millis: Any) -> Progress:
    def added(value: Any) -> Any:
        return func.coalesce(func.sum(case((done, value), else_=0)), 0)

    sums = func.count(), func.coalesce(func.sum(WEIGHT), 0), added(1), added(WEIGHT), added(rows), added(L.c.bytes)
    tally = Tally(*map(int, connection.execute(_joined(*sums).where(mine)).one()))
    newest = _joined(WEIGHT, rows, L.c.bytes, ended, millis).where(mine, done).order_by(ended.desc()).limit(RECENT)
    recent = [Part(int(weight), Finished(number, size, at.timestamp() if at else 0, (took or 0) / 1000))
              for weight, number, size, at, took in connection.execute(newest)]  # fmt: skip
    return progress_of(tally, recent)


def _bound(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _chunk(row: AnyRow) -> Chunk:
    lower, upper = (None if text is None else json.loads(text) for text in (row.lower_bound, row.upper_bound))
    return Chunk(
        id=row.id,
        shard=shard_of(row),
        target=target_of(row),
        number=row.number,
        lower=lower,
        upper=upper,
        state=ChunkState(row.state),
        path=row.path,
        rows=row.row_count,
        bytes=row.bytes,
        loaded_rows=row.loaded_rows,
        weight=row.weight or 1,
    )
