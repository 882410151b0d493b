"""The full load: its chunks with their files, state and time, the conditions, the rate limit, and late indexes."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import and_, case, func, insert, select
from sqlalchemy.dialects.mysql import DOUBLE

from unshard.adapters.meta import tables
from unshard.adapters.meta.columns import Moment
from unshard.adapters.meta.database import Records
from unshard.adapters.meta.gateway import AnyRow, TaskReader, columns_of
from unshard.adapters.meta.rowvalues import Persisted, target_name, target_of
from unshard.adapters.meta.rowvalues import read_stored as read_value
from unshard.adapters.meta.sourcerecords import lock_source
from unshard.core import codec
from unshard.core.full.fullprogress import RECENT, Finished, FinishedChunk, Progress, Tally, UnderWay, progress_of, take
from unshard.core.full.lateindexes import LateIndex
from unshard.core.model import Shard, TableId
from unshard.core.task.state import Chunk, ChunkState, DumpedFile
from unshard.errors.full import ChunkGone

LOAD_CHUNK, LOAD_PROGRESS, DUMP_CONDITION, DUMP_RATE, LATE_INDEX = (
    tables.load_chunk,
    tables.load_progress,
    tables.dump_condition,
    tables.dump_rate,
    tables.late_index,
)
IN_ORDER = LOAD_CHUNK.c.shard_schema, LOAD_CHUNK.c.shard_table, LOAD_CHUNK.c.number
CLOCK = select(func.utc_timestamp(6, type_=Moment()))
WEIGHT = func.coalesce(func.nullif(LOAD_CHUNK.c.weight, 0), 1)
DUMPED, LOADED = LOAD_CHUNK.c.state != ChunkState.PLANNED, LOAD_CHUNK.c.state == ChunkState.LOADED

CHUNK = Persisted(Chunk, "lower upper weight", rows="row_count")


class Chunks(Records):
    """Rows of `load_chunk`; their state only moves forward."""

    def of(self, source: str) -> tuple[Chunk, ...]:
        return _chunks(self._db, source)

    def progress(self, source: str) -> tuple[Progress, Progress]:
        """Return the progress of dump and load of a source; the server computes the sums."""
        c = LOAD_CHUNK.c
        with self._db.snapshot() as db:
            dump, load = _tallies(db, source)
            under_way = _under_way(db, source) if load.done < load.chunks else []
            return (
                progress_of(dump, _recent(db, source, DUMPED, c.row_count, c.dumped_at, c.dump_millis)),
                progress_of(load, _recent(db, source, LOADED, c.loaded_rows, c.loaded_at, c.load_millis), under_way),
            )

    def totals(self) -> dict[TableId, tuple[int, int]]:
        """Return for each target of the task the number of dumped rows and of chunks that are not loaded."""
        waiting = func.sum(case((LOAD_CHUNK.c.state == ChunkState.LOADED, 0), else_=1)).label("waiting")
        sums = func.sum(LOAD_CHUNK.c.row_count).label("rows_"), waiting
        target = target_name(LOAD_CHUNK)
        rows = self._db.fetch(select(*target, *sums).where(self._db.mine(LOAD_CHUNK)).group_by(*target))
        return {target_of(row): (int(row.rows_), int(row.waiting)) for row in rows}

    def plan(self, source: str, chunks: Iterable[Chunk]) -> tuple[Chunk, ...]:
        """Store chunks and return all chunks of the source; shards that already have chunks keep them."""
        with self._db.transaction() as db:
            lock_source(db, source)
            have = {chunk.shard for chunk in _chunks(db, source)}
            ((now,),) = db.fetch(CLOCK)
            new = {(chunk.shard, chunk.number): chunk for chunk in chunks if chunk.shard not in have}
            if new:
                # The driver makes one INSERT of many rows, because all values are parameters.
                rows = [columns_of({"task": db.task, **_row(chunk, now)}) for chunk in new.values()]
                db.execute(insert(LOAD_CHUNK), rows)
            return _chunks(db, source)

    def dumped(self, chunk_id: int, files: Sequence[DumpedFile], millis: int = 0) -> bool:
        """Record the files of a chunk; False if the chunk does not wait for them any more.

        Each file after the first becomes a chunk of its own, numbered after all others of the shard. The chunks share
        the weight and the time.
        """
        with self._db.transaction() as db:
            lock_source(db, db.value(LOAD_CHUNK, LOAD_CHUNK.c.source, id=chunk_id) or "")
            found = db.row(LOAD_CHUNK, id=chunk_id)
            if found is None or found.state != ChunkState.PLANNED:
                return False
            planned, first, *others = _chunk(found), *_parts(_chunk(found), files)
            took = {"dumped_at": tables.NOW, "dump_millis": millis // len(files)}
            db.update(LOAD_CHUNK, {**_row(first, tables.NOW), **took}, id=chunk_id)
            newest = func.max(LOAD_CHUNK.c.number)
            last = int(db.value(LOAD_CHUNK, newest, shard=planned.shard) or 0) if others else 0
            for number, part in enumerate(others, last + 1):
                db.insert(LOAD_CHUNK, {**_row(replace(part, number=number), tables.NOW), **took})
            return True

    def begin_anew(self, shard: Shard, target: TableId) -> tuple[Chunk, ...]:
        """Replace all chunks of a shard by one planned chunk and return the old ones; ChunkGone if one is loaded.

        The deferred rows of the shard are deleted: the new chunk has all rows of one snapshot.
        """
        with self._db.transaction() as db:
            lock_source(db, shard.source)
            old = tuple(map(_chunk, db.select(LOAD_CHUNK, shard=shard, lock=True)))
            if any(chunk.state is ChunkState.LOADED for chunk in old):
                raise ChunkGone(str(shard), old[0].number)
            for table in (LOAD_CHUNK, tables.deferred_row):
                db.delete(table, shard=shard)
            chunk = Chunk(0, shard, target, 1, None, None, weight=sum(chunk.weight for chunk in old))
            db.insert(LOAD_CHUNK, _row(chunk, tables.NOW))
            return old

    def advance(self, chunk: int, rows: int) -> None:
        """Record how many rows of a chunk its transaction has written; the number never decreases."""
        most = {"rows_written": func.greatest(LOAD_PROGRESS.c.rows_written, rows)}
        with self._db.single() as db:
            db.put(LOAD_PROGRESS, {"chunk": chunk}, {"rows_written": rows}, again=most)

    def clear(self, source: str) -> None:
        with self._db.transaction() as db:
            db.delete(LOAD_CHUNK, source=source)


class Conditions(Records):
    """Rows of `dump_condition`: all rows of a source in the target were read with the same condition (`where`)."""

    def get(self, source: str) -> str:
        """Return the condition of a source; empty means all rows."""
        return str(self._db.value(DUMP_CONDITION, DUMP_CONDITION.c.body, source=source) or "")

    def put(self, source: str, condition: str) -> None:
        with self._db.transaction() as db:
            db.put(DUMP_CONDITION, {"source": source}, {"body": condition})


class Rates(Records):
    """Rows of `dump_rate`, with the clock of the target; readers in several processes and machines share a limit."""

    def begin(self, source: str) -> None:
        """Create the row of the source unless it exists; readers lock it."""
        with self._db.transaction() as db:
            db.add(DUMP_RATE, {"source": source, "paid": 0, "bytes": 0, "waited": 0})

    def take(self, source: str, size: int, rate: int) -> float:
        """Record that `size` bytes were read; return how many seconds the reader must wait."""
        clock = func.unix_timestamp(func.now(6), type_=DOUBLE()).label("now")
        with self._db.transaction() as db:
            row = db.one(DUMP_RATE, source=source, only=(DUMP_RATE.c.paid, clock), lock=True)
            paid, wait = take(row.paid, float(row.now), size, rate)
            taken = {"paid": paid, "bytes": DUMP_RATE.c.bytes + size, "waited": DUMP_RATE.c.waited + wait}
            db.update(DUMP_RATE, taken, source=source)
            return wait


class LateIndexes(Records):
    """Rows of `late_index`: indexes that are created after the load; they are recorded before they are dropped."""

    def all(self) -> dict[TableId, tuple[LateIndex, ...]]:
        rows = self._db.select(LATE_INDEX)
        return {target_of(row): read_value(tuple[LateIndex, ...], row.indexes, "late_index") for row in rows}

    def note(self, target: TableId, indexes: tuple[LateIndex, ...]) -> None:
        """Record indexes before they are dropped; an existing record stays unchanged."""
        row = {"target": target, "indexes": codec.dumps(indexes), "noted_at": tables.NOW}
        with self._db.transaction() as db:
            db.add(LATE_INDEX, row)

    def forget(self, target: TableId) -> None:
        with self._db.transaction() as db:
            db.delete(LATE_INDEX, target=target)


def _chunks(db: TaskReader, source: str) -> tuple[Chunk, ...]:
    return tuple(map(_chunk, db.select(LOAD_CHUNK, source=source, order=IN_ORDER)))


def _row(chunk: Chunk, now: Any) -> dict[str, Any]:
    bounds = {"lower_bound": _bound(chunk.lower), "upper_bound": _bound(chunk.upper)}
    columns = {**CHUNK.columns(chunk), **bounds, "weight": chunk.weight, "updated_at": now}
    return {name: value for name, value in columns.items() if name != "id"}


def _tallies(db: TaskReader, source: str) -> tuple[Tally, Tally]:

    def of(done: Any, rows: Any) -> Iterator[Any]:
        for value in (1, WEIGHT, rows, LOAD_CHUNK.c.bytes):
            yield func.coalesce(func.sum(case((done, value), else_=0)), 0)

    sums = *of(DUMPED, LOAD_CHUNK.c.row_count), *of(LOADED, LOAD_CHUNK.c.loaded_rows)
    all_chunks = func.count(), func.coalesce(func.sum(WEIGHT), 0)
    chunks, weight, *found = map(int, db.one(LOAD_CHUNK, only=(*all_chunks, *sums), source=source))
    return Tally(chunks, weight, *found[:4]), Tally(chunks, weight, *found[4:])


def _recent(db: TaskReader, source: str, done: Any, rows: Any, ended: Any, millis: Any) -> list[FinishedChunk]:
    columns = WEIGHT, rows, LOAD_CHUNK.c.bytes, ended, millis
    newest = db.select(LOAD_CHUNK, done, only=columns, source=source, order=ended.desc(), limit=RECENT)
    return [
        FinishedChunk(int(weight), Finished(number, size, at.timestamp() if at else 0, (took or 0) / 1000))
        for weight, number, size, at, took in newest
    ]


def _under_way(db: TaskReader, source: str) -> list[UnderWay]:
    same = and_(LOAD_PROGRESS.c.task == LOAD_CHUNK.c.task, LOAD_PROGRESS.c.chunk == LOAD_CHUNK.c.id)
    query = select(WEIGHT, LOAD_CHUNK.c.row_count, LOAD_PROGRESS.c.rows_written).join(LOAD_PROGRESS, same)
    found = db.fetch(query.where(db.mine(LOAD_CHUNK, source=source, state=ChunkState.DUMPED)))
    return [UnderWay(int(weight), rows, written) for weight, rows, written in found]


def _parts(chunk: Chunk, files: Sequence[DumpedFile]) -> list[Chunk]:
    weight = max(1, chunk.weight // len(files))
    return [
        replace(chunk, state=ChunkState.DUMPED, path=file.path, rows=file.rows, bytes=file.bytes, weight=weight)
        for file in files
    ]


def _bound(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _chunk(row: AnyRow) -> Chunk:
    lower, upper = (None if text is None else json.loads(text) for text in (row.lower_bound, row.upper_bound))
    return CHUNK.of(row, lower=lower, upper=upper, weight=row.weight or 1)
