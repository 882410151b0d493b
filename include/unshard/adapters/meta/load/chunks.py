"""The chunks of the full load: their files, their state, and the time of dump and load."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from sqlalchemy import Connection, and_, case, delete, func, insert, select, update
from sqlalchemy.dialects import mysql

from unshard.adapters.meta import tables
from unshard.adapters.meta.columns import Moment
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import AnyRow, matches, shard_columns, shard_of, target_columns, target_of
from unshard.adapters.meta.tasks.sources import lock_source
from unshard.core.full.progress import RECENT, Finished, Part, Progress, Tally, UnderWay, progress_of
from unshard.core.model import Shard, TableId
from unshard.core.task.state import Chunk, ChunkState, DumpedFile
from unshard.errors.full import ChunkGone

LOAD_CHUNK, LOAD_PROGRESS = tables.load_chunk, tables.load_progress
WEIGHT = func.coalesce(func.nullif(LOAD_CHUNK.c.weight, 0), 1)
DUMP = (
    LOAD_CHUNK.c.state != ChunkState.PLANNED.value,
    LOAD_CHUNK.c.row_count,
    LOAD_CHUNK.c.dumped_at,
    LOAD_CHUNK.c.dump_millis,
)
LOAD = (
    LOAD_CHUNK.c.state == ChunkState.LOADED.value,
    LOAD_CHUNK.c.loaded_rows,
    LOAD_CHUNK.c.loaded_at,
    LOAD_CHUNK.c.load_millis,
)


class ChunkReader(ReadingPart):
    """Rows of `load_chunk`; their state only moves forward."""

    def of(self, source: str) -> tuple[Chunk, ...]:
        """Return the chunks of a source in the order of shards and numbers."""
        with self._database.reading() as connection:
            return tuple(map(_chunk, connection.execute(self._of(source))))

    def progress(self, source: str) -> tuple[Progress, Progress]:
        """Return the progress of dump and load of a source; the server computes the sums."""
        mine = and_(LOAD_CHUNK.c.task == self._database.task, LOAD_CHUNK.c.source == source)
        with self._database.snapshot() as connection:
            load = progress_of(*_sums(connection, mine, *LOAD), _under_way(connection, mine))
            return progress_of(*_sums(connection, mine, *DUMP)), load

    def totals(self) -> dict[TableId, tuple[int, int]]:
        """Return for each target of the task the number of dumped rows and of chunks that are not loaded."""
        waiting = func.sum(case((LOAD_CHUNK.c.state == ChunkState.LOADED.value, 0), else_=1))
        query = select(
            LOAD_CHUNK.c.target_schema,
            LOAD_CHUNK.c.target_table,
            func.sum(LOAD_CHUNK.c.row_count).label("rows_"),
            waiting.label("waiting"),
        ).where(LOAD_CHUNK.c.task == self._database.task)
        with self._database.reading() as connection:
            found = connection.execute(query.group_by(LOAD_CHUNK.c.target_schema, LOAD_CHUNK.c.target_table))
            return {target_of(cast(AnyRow, row)): (int(row.rows_), int(row.waiting)) for row in found}

    def _of(self, source: str) -> Any:
        where = LOAD_CHUNK.c.task == self._database.task, LOAD_CHUNK.c.source == source
        return (
            select(LOAD_CHUNK)
            .where(*where)
            .order_by(LOAD_CHUNK.c.shard_schema, LOAD_CHUNK.c.shard_table, LOAD_CHUNK.c.number)
        )


class Chunks(WritingPart, ChunkReader):
    """Changes rows of `load_chunk`; their state only moves forward."""

    def plan(self, source: str, chunks: Iterable[Chunk]) -> tuple[Chunk, ...]:
        """Store chunks and return all chunks of the source; shards that already have chunks keep them."""
        with self._database.transaction() as connection:
            lock_source(connection, self._database.task, source)
            have = {shard_of(row) for row in connection.execute(self._of(source))}
            now = connection.scalar(select(func.utc_timestamp(6, type_=Moment())))
            new = {(chunk.shard, chunk.number): chunk for chunk in chunks if chunk.shard not in have}
            if new:
                connection.execute(insert(LOAD_CHUNK), [self._row(chunk, now) for chunk in new.values()])
            return tuple(map(_chunk, connection.execute(self._of(source))))

    def dumped(self, chunk_id: int, files: Sequence[DumpedFile], millis: int = 0) -> bool:
        """Record the files of a chunk; False if the chunk does not wait for them any more.

        Each file after the first becomes a chunk of its own, numbered after all others of the shard. The chunks share
        the weight and the time.
        """
        mine = LOAD_CHUNK.c.task == self._database.task, LOAD_CHUNK.c.id == chunk_id
        with self._database.transaction() as connection:
            lock_source(
                connection, self._database.task, connection.scalar(select(LOAD_CHUNK.c.source).where(*mine)) or ""
            )
            found = connection.execute(select(LOAD_CHUNK).where(*mine)).one_or_none()
            if found is None or found.state != ChunkState.PLANNED.value:
                return False
            planned, first, *others = _chunk(found), *_parts(_chunk(found), files)
            took = {"dumped_at": tables.NOW, "dump_millis": millis // len(files)}
            connection.execute(update(LOAD_CHUNK).where(*mine).values({**self._row(first, tables.NOW), **took}))
            same = LOAD_CHUNK.c.task == self._database.task, matches(LOAD_CHUNK, shard_columns(planned.shard))
            last = int(connection.scalar(select(func.max(LOAD_CHUNK.c.number)).where(*same)) or 0) if others else 0
            for number, part in enumerate(others, last + 1):
                row = self._row(replace(part, number=number), tables.NOW)
                connection.execute(insert(LOAD_CHUNK).values({**row, **took}))
            return True

    def begin_anew(self, shard: Shard, target: TableId) -> tuple[Chunk, ...]:
        """Replace all chunks of a shard by one planned chunk and return the old ones; ChunkGone if one is loaded.

        The deferred rows of the shard are deleted: the new chunk has all rows of one snapshot.
        """
        with self._database.transaction() as connection:
            lock_source(connection, self._database.task, shard.source)
            mine = LOAD_CHUNK.c.task == self._database.task, matches(LOAD_CHUNK, shard_columns(shard))
            old = tuple(map(_chunk, connection.execute(select(LOAD_CHUNK).where(*mine).with_for_update())))
            if any(chunk.state is ChunkState.LOADED for chunk in old):
                raise ChunkGone(str(shard), old[0].number)
            connection.execute(delete(LOAD_CHUNK).where(*mine))
            ours = {"task": self._database.task, **shard_columns(shard)}
            connection.execute(delete(tables.deferred_row).where(matches(tables.deferred_row, ours)))
            now = connection.scalar(select(func.utc_timestamp(6, type_=Moment())))
            weight = sum(chunk.weight for chunk in old)
            chunk = Chunk(0, shard, target, 1, None, None, weight=weight)
            connection.execute(insert(LOAD_CHUNK).values(self._row(chunk, now)))
            return old

    def advance(self, chunk: int, rows: int) -> None:
        """Record how many rows of a chunk its transaction has written; the number never decreases."""
        values = {"task": self._database.task, "chunk": chunk, "rows_written": rows}
        most = func.greatest(LOAD_PROGRESS.c.rows_written, rows)
        with self._database.single() as connection:
            connection.execute(mysql.insert(LOAD_PROGRESS).values(values).on_duplicate_key_update(rows_written=most))

    def clear(self, source: str) -> None:
        """Delete the chunks of a source, which is dumped again."""
        mine = LOAD_CHUNK.c.task == self._database.task, LOAD_CHUNK.c.source == source
        with self._database.transaction() as connection:
            connection.execute(delete(LOAD_CHUNK).where(*mine))

    def _row(self, chunk: Chunk, now: Any) -> dict[str, Any]:
        return {
            "task": self._database.task,
            **shard_columns(chunk.shard),
            **target_columns(chunk.target),
            "number": chunk.number,
            "lower_bound": _bound(chunk.lower),
            "upper_bound": _bound(chunk.upper),
            "state": chunk.state.value,
            "path": chunk.path,
            "row_count": chunk.rows,
            "bytes": chunk.bytes,
            "loaded_rows": chunk.loaded_rows,
            "weight": chunk.weight,
            "updated_at": now,
        }


def _sums(connection: Connection, mine: Any, done: Any, rows: Any, ended: Any, millis: Any) -> tuple[Tally, list[Part]]:
    def added(value: Any) -> Any:
        return func.coalesce(func.sum(case((done, value), else_=0)), 0)

    sums = (
        func.count(),
        func.coalesce(func.sum(WEIGHT), 0),
        added(1),
        added(WEIGHT),
        added(rows),
        added(LOAD_CHUNK.c.bytes),
    )
    tally = Tally(*map(int, connection.execute(select(*sums).where(mine)).one()))
    newest = (
        select(WEIGHT, rows, LOAD_CHUNK.c.bytes, ended, millis).where(mine, done).order_by(ended.desc()).limit(RECENT)
    )
    recent = [
        Part(int(weight), Finished(number, size, at.timestamp() if at else 0, (took or 0) / 1000))
        for weight, number, size, at, took in connection.execute(newest)
    ]
    return tally, recent


def _under_way(connection: Connection, mine: Any) -> list[UnderWay]:
    """Return the chunks that are dumped and partly written into the target."""
    same = and_(LOAD_PROGRESS.c.task == LOAD_CHUNK.c.task, LOAD_PROGRESS.c.chunk == LOAD_CHUNK.c.id)
    query = select(WEIGHT, LOAD_CHUNK.c.row_count, LOAD_PROGRESS.c.rows_written).join(LOAD_PROGRESS, same)
    found = connection.execute(query.where(mine, LOAD_CHUNK.c.state == ChunkState.DUMPED.value))
    return [UnderWay(int(weight), rows, written) for weight, rows, written in found]


def _parts(chunk: Chunk, files: Sequence[DumpedFile]) -> list[Chunk]:
    """Return the chunk as one dumped chunk for each of its files."""
    weight = max(1, chunk.weight // len(files))
    return [
        replace(chunk, state=ChunkState.DUMPED, path=file.path, rows=file.rows, bytes=file.bytes, weight=weight)
        for file in files
    ]


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
