"""Structures by digest, their history per shard, and the shards with queues and held files."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import ReadDatabase
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import (
    AnyRow,
    entry_of,
    held_of,
    location_columns,
    matches,
    shard_columns,
    shard_of,
    state_of,
    target_columns,
    target_of,
)
from unshard.adapters.meta.shards.columnnames import read_unnamed_shards, write_names
from unshard.adapters.meta.shards.plannedshards import (
    WAITS,
    read_dropped,
    read_planned_shards,
    read_totals,
    read_waiting,
)
from unshard.adapters.meta.shards.unknownstructures import read_unknown_shards, write_findings
from unshard.core.ddl.queue import EntryState, HeldFile, QueueEntry, ShardState, UnnamedShard
from unshard.core.ddl.reconcile import Finding, ShardWithUnknowns
from unshard.core.ddl.renaming import name_upstream
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard.core.task.state import EVERYTHING, HeldTotals, PendingWork
from unshard.core.window.plan import StructureChange
from unshard.errors.meta import StructureMissing

SHARD, TABLE_SCHEMA, SHARD_DDL, HELD_ROWS, STRUCTURE = (
    tables.shard,
    tables.table_schema,
    tables.shard_ddl,
    tables.held_rows,
    tables.structure,
)


class StructureReader(ReadingPart):
    """Rows of `structure`, `table_schema` and `shard`."""

    def __init__(self, database: ReadDatabase) -> None:
        super().__init__(database)
        self._known: dict[str, TableSchema] = {}
        """Structures that were read; a digest always means the same structure."""

    def get(self, digests: Iterable[str]) -> dict[str, TableSchema]:
        """Return structures by digest; raises StructureMissing."""
        wanted = set(digests)
        if missing := wanted - self._known.keys():
            query = select(STRUCTURE.c.digest, STRUCTURE.c.body).where(
                STRUCTURE.c.task == self._database.task, STRUCTURE.c.digest.in_(missing)
            )
            with self._database.reading() as connection:
                rows = connection.execute(query).all()
            self._known |= {row.digest: TableSchema.from_json(json.loads(row.body)) for row in rows}
        for digest in sorted(wanted - self._known.keys()):
            raise StructureMissing(digest)
        return {digest: self._known[digest] for digest in wanted}

    def shards(self, source: str | None = None) -> tuple[ShardState, ...]:
        """Return the shards of a source or of all, with queue and held files; one that has left only if it has any."""
        with self._database.snapshot() as connection:
            return read_shards(connection, self._database.task, source)

    def planned_shards(
        self, source: str, named: Collection[TableId] | None, beside: PendingWork = EVERYTHING
    ) -> tuple[ShardState, ...]:
        """Return the shards that a window is planned from; if `named` is None, all shards.

        `beside` are the pending-work flags of the source, which only its own windows add.
        """
        beside = EVERYTHING if named is None else beside & WAITS
        with self._database.snapshot() if beside else self._database.reading() as connection:
            return read_planned_shards(connection, self._database.task, source, named, beside)

    def waiting(self, source: str) -> frozenset[Shard]:
        """Return the shards of a source with held rows to release, or a queue or held rows to drop."""
        with self._database.reading() as connection:
            return read_waiting(connection, self._database.task, source)

    def totals(self, source: str) -> HeldTotals:
        """Return the number of shards of a source and the totals of their queues and held rows."""
        with self._database.reading() as connection:
            return read_totals(connection, self._database.task, source)

    def is_pending(self) -> bool:
        """Whether any shard has a DDL that is not resolved."""
        where = SHARD_DDL.c.task == self._database.task, SHARD_DDL.c.state == EntryState.PENDING.value
        with self._database.reading() as connection:
            return connection.execute(select(SHARD_DDL.c.seq).where(*where).limit(1)).first() is not None

    def holds(self, source: str, before: int) -> bool:
        """Whether a source has rows that were held before a window."""
        where = HELD_ROWS.c.task == self._database.task, HELD_ROWS.c.source == source, HELD_ROWS.c.window < before
        query = select(HELD_ROWS.c.seq).where(*where).limit(1)
        with self._database.reading() as connection:
            return connection.execute(query).first() is not None

    def held_paths(self, source: str) -> frozenset[str]:
        """Return the paths of all held files of a source."""
        query = select(HELD_ROWS.c.path).where(HELD_ROWS.c.task == self._database.task, HELD_ROWS.c.source == source)
        with self._database.reading() as connection:
            return frozenset(connection.scalars(query))

    def dropped(self, shards: Collection[Shard]) -> frozenset[Shard]:
        """Return those of the shards that an operator has dropped."""
        with self._database.reading() as connection:
            return read_dropped(connection, self._database.task, shards)

    def unfed_targets(self) -> frozenset[TableId]:
        """Return the targets that had shards and have none now."""
        with self._database.reading() as connection:
            had = connection.execute(_targets(TABLE_SCHEMA, self._database.task))
            has = connection.execute(_targets(SHARD, self._database.task).where(SHARD.c.has_left == 0))
            return frozenset(map(target_of, had)) - frozenset(map(target_of, has))

    def fed(self, target: TableId) -> frozenset[Shard]:
        """Return all shards that a target has ever had, by their last names."""
        mine = matches(TABLE_SCHEMA, {"task": self._database.task, **target_columns(target)})
        name = TABLE_SCHEMA.c.source, TABLE_SCHEMA.c.shard_schema, TABLE_SCHEMA.c.shard_table
        with self._database.reading() as connection:
            rows = connection.execute(select(*name).where(mine).distinct())
            return frozenset(Shard(source, name_upstream(TableId(*table))) for source, *table in rows)

    def unknown_shards(self, source: str) -> tuple[ShardWithUnknowns, ...]:
        """Return the shards of a source that have an unknown structure."""
        with self._database.reading() as connection:
            return read_unknown_shards(connection, self._database.task, source)

    def unnamed_shards(self, source: str) -> tuple[UnnamedShard, ...]:
        """Return the shards of a source whose structures lack the target's names of columns."""
        with self._database.snapshot() as connection:
            return read_unnamed_shards(connection, self._database.task, source)

    def history(self, shard: Shard) -> tuple[StructureChange, ...]:
        """Return all structures that a shard has had, oldest first."""
        query = (
            select(TABLE_SCHEMA)
            .where(TABLE_SCHEMA.c.task == self._database.task, matches(TABLE_SCHEMA, shard_columns(shard)))
            .order_by(TABLE_SCHEMA.c.number)
        )
        with self._database.reading() as connection:
            return tuple(
                StructureChange(shard, target_of(row), Location(row.file, row.position), row.digest)
                for row in connection.execute(query)
            )


class Structures(WritingPart, StructureReader):
    """Changes rows of `structure`, `table_schema` and `shard`."""

    def put(self, schema: TableSchema) -> str:
        """Store a structure unless it exists; return its digest."""
        values = {
            "task": self._database.task,
            "digest": schema.digest,
            "body": json.dumps(schema.to_json()),
            "added_at": tables.NOW,
        }
        with self._database.single() as connection:
            connection.execute(insert(STRUCTURE).prefix_with("IGNORE").values(values))
        return schema.digest

    def record(self, shard: Shard, target: TableId, location: Location, digest: str | None) -> None:
        """Record the structure of a shard from `location` on, outside a window (snapshot); idempotent."""
        self.record_all([StructureChange(shard, target, location, digest)])

    def record_all(self, changes: Iterable[StructureChange]) -> None:
        """Record the structures of many shards in one transaction; idempotent."""
        with self._database.transaction() as connection:
            for change in changes:
                record_change(connection, self._database.task, change, window=0)

    def uid_of(self, change: StructureChange) -> str:
        """Return the permanent id of a shard that a window creates."""
        return _uid(change)

    def set_start(self, shard: Shard, start: Location) -> None:
        """Record that the dump has all rows of the shard up to `start`; windows skip them."""
        where = SHARD.c.task == self._database.task, matches(SHARD, shard_columns(shard))
        with self._database.transaction() as connection:
            connection.execute(update(SHARD).where(*where).values(location_columns(start, "start_")))

    def settle(self, shard: ShardWithUnknowns, findings: Sequence[Finding]) -> None:
        """Store findings about a shard; known structures stay."""
        with self._database.transaction() as connection:
            write_findings(connection, self._database.task, shard, findings)

    def name_columns(self, before: UnnamedShard, after: UnnamedShard) -> None:
        """Store the structures of a shard with the target's names of columns."""
        with self._database.transaction() as connection:
            write_names(connection, self._database.task, before, after)


def read_shards(
    connection: Connection, task: str, source: str | None = None, target: TableId | None = None
) -> tuple[ShardState, ...]:
    """Read shards in the caller's transaction."""
    queues, held = _queues(connection, task, source), _held(connection, task, source)
    query = (
        select(SHARD).where(SHARD.c.task == task).order_by(SHARD.c.source, SHARD.c.shard_schema, SHARD.c.shard_table)
    )
    query = query.where(SHARD.c.source == source) if source else query
    query = query.where(matches(SHARD, target_columns(target))) if target else query
    states = [state_of(row, queues[shard_of(row)], held[shard_of(row)]) for row in connection.execute(query)]
    return tuple(state for state in states if not state.has_left or state.queue or state.held)


def record_change(connection: Connection, task: str, change: StructureChange, window: int) -> None:
    """Append to a shard's history and set its present structure; idempotent."""
    last = _last_change(connection, task, change.shard)
    if last and (last.file, last.position, last.digest) == (
        change.location.file,
        change.location.position,
        change.structure,
    ):
        return
    key = {"task": task, **shard_columns(change.shard)}
    target = target_columns(change.target)
    connection.execute(
        insert(TABLE_SCHEMA).values(
            **key,
            number=last.number + 1 if last else 1,
            **target,
            **location_columns(change.location),
            window=window,
            digest=change.structure,
            recorded_at=tables.NOW,
        )
    )
    if change.structure is None:
        connection.execute(update(SHARD).where(matches(SHARD, key)).values(has_left=True))
        return
    present = {**target, "digest": change.structure, "has_left": False}
    fresh = {"last_seq": 0, "shard_uid": _uid(change), "dropped": False}
    if change.joins:
        # An earlier table of that name has no pending DDL, so its numbers can be used again.
        connection.execute(delete(SHARD_DDL).where(matches(SHARD_DDL, key)))
        present |= {**fresh, **location_columns(None, "start_")}
    if change.forgets_start:
        present |= location_columns(None, "start_")
    if not connection.execute(update(SHARD).where(matches(SHARD, key)).values(present)).rowcount:
        connection.execute(insert(SHARD).values({**fresh, **key, **present}))


def _uid(change: StructureChange) -> str:
    return hashlib.sha256(f"{change.shard.table} {change.location}".encode()).hexdigest()[:16]


def _last_change(connection: Connection, task: str, shard: Shard) -> AnyRow | None:
    mine = TABLE_SCHEMA.c.task == task, matches(TABLE_SCHEMA, shard_columns(shard))
    newest = select(func.max(TABLE_SCHEMA.c.number)).where(*mine).scalar_subquery()
    return connection.execute(select(TABLE_SCHEMA).where(*mine, TABLE_SCHEMA.c.number == newest)).one_or_none()


def _queues(connection: Connection, task: str, source: str | None) -> dict[Shard, list[QueueEntry]]:
    query = (
        select(SHARD_DDL)
        .where(SHARD_DDL.c.task == task, SHARD_DDL.c.state == EntryState.PENDING.value)
        .order_by(SHARD_DDL.c.seq)
    )
    queues: dict[Shard, list[QueueEntry]] = defaultdict(list)
    for row in connection.execute(_of(query, SHARD_DDL, source)):
        queues[shard_of(row)].append(entry_of(row))
    return queues


def _held(connection: Connection, task: str, source: str | None) -> dict[Shard, list[HeldFile]]:
    query = (
        select(HELD_ROWS)
        .where(HELD_ROWS.c.task == task)
        .order_by(HELD_ROWS.c.seq, HELD_ROWS.c.window, HELD_ROWS.c.part)
    )
    held: dict[Shard, list[HeldFile]] = defaultdict(list)
    for row in connection.execute(_of(query, HELD_ROWS, source)):
        held[shard_of(row)].append(held_of(row))
    return held


def _targets(table: Any, task: str) -> Any:
    return select(table.c.target_schema, table.c.target_table).where(table.c.task == task).distinct()


def _of(query: Any, table: Any, source: str | None) -> Any:
    return query.where(table.c.source == source) if source else query
