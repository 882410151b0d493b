"""Structures by digest, their history per shard, and the shards with what waits of them."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.nearby import WAITS, read_dropped, read_nearby, read_totals, read_waiting
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
from unshard.adapters.meta.unknowns import read_unsettled, write_findings
from unshard.core.beside import EVERYTHING, Beside
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard.core.progress import HeldTotals
from unshard.core.settling import Finding, Unsettled
from unshard.core.window import EntryState, HeldFile, QueueEntry, ShardState, StructureChange
from unshard.errors.meta import StructureMissing

S, H, Q, F, D = tables.shard, tables.table_schema, tables.shard_ddl, tables.held_rows, tables.structure


class Structures:
    """Rows of `structure`, `table_schema` and `shard`."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._known: dict[str, TableSchema] = {}
        """Structures that were read; the digest says what a structure is, so they never change."""

    def put(self, schema: TableSchema) -> str:
        """Store a structure under its digest and return that; one that is there stays."""
        values = {"task": self._database.task, "digest": schema.digest, "body": json.dumps(schema.to_json()),
                  "added_at": tables.NOW}  # fmt: skip
        with self._database.single() as connection:
            connection.execute(insert(D).prefix_with("IGNORE").values(values))
        return schema.digest

    def get(self, digests: Iterable[str]) -> dict[str, TableSchema]:
        """Return the structures of those digests; StructureMissing names one that is not there."""
        wanted = set(digests)
        if missing := wanted - self._known.keys():
            query = select(D.c.digest, D.c.body).where(D.c.task == self._database.task, D.c.digest.in_(missing))
            with self._database.reading() as connection:
                rows = connection.execute(query).all()
            self._known |= {row.digest: TableSchema.from_json(json.loads(row.body)) for row in rows}
        for digest in sorted(wanted - self._known.keys()):
            raise StructureMissing(digest)
        return {digest: self._known[digest] for digest in wanted}

    def record(self, shard: Shard, target: TableId, location: Location, digest: str | None) -> None:
        """Let a shard have this structure from `location` on, outside a window (snapshot); idempotent."""
        self.record_all([StructureChange(shard, target, location, digest)])

    def record_all(self, changes: Iterable[StructureChange]) -> None:
        """Let shards have these structures, in one transaction: there may be thousands; idempotent."""
        with self._database.transaction() as connection:
            for change in changes:
                record_change(connection, self._database.task, change, window=0)

    def set_start(self, shard: Shard, start: Location) -> None:
        """Say that the dump holds all rows of the shard up to `start`: windows pass over those."""
        where = S.c.task == self._database.task, matches(S, shard_columns(shard))
        with self._database.transaction() as connection:
            connection.execute(update(S).where(*where).values(location_columns(start, "start_")))

    def shards(self, source: str | None = None) -> tuple[ShardState, ...]:
        """Return the shards of a source or of all, with queue and held files; gone ones that still wait too."""
        with self._database.snapshot() as connection:
            return read_shards(connection, self._database.task, source)

    def nearby(self, source: str, named: Collection[TableId] | None,
               beside: Beside = EVERYTHING) -> tuple[ShardState, ...]:  # fmt: skip
        """Return the shards that a window is planned from: named ones and those that can go on; None: all.

        `beside` is what there is beside the source: its own windows alone add to that, but not to other sources.
        """
        beside = EVERYTHING if named is None else beside & WAITS
        with self._database.snapshot() if beside else self._database.reading() as connection:
            return read_nearby(connection, self._database.task, source, named, beside)

    def waiting(self, source: str) -> frozenset[Shard]:
        """Return the shards of a source that have something to be released or dropped."""
        with self._database.reading() as connection:
            return read_waiting(connection, self._database.task, source)

    def totals(self, source: str) -> HeldTotals:
        """Return how many shards a source has and what waits of them."""
        with self._database.reading() as connection:
            return read_totals(connection, self._database.task, source)

    def is_pending(self) -> bool:
        """Whether any shard has a DDL that is not resolved."""
        where = Q.c.task == self._database.task, Q.c.state == EntryState.PENDING.value
        with self._database.reading() as connection:
            return connection.execute(select(Q.c.seq).where(*where).limit(1)).first() is not None

    def holds(self, source: str, before: int) -> bool:
        """Whether any rows of a source are held since before a window."""
        where = F.c.task == self._database.task, F.c.source == source, F.c.window < before
        query = select(F.c.seq).where(*where).limit(1)
        with self._database.reading() as connection:
            return connection.execute(query).first() is not None

    def dropped(self, shards: Collection[Shard]) -> frozenset[Shard]:
        """Return those of the shards that an operator has dropped."""
        with self._database.reading() as connection:
            return read_dropped(connection, self._database.task, shards)

    def unsettled(self, source: str) -> tuple[Unsettled, ...]:
        """Return the shards of a source of which something is unknown."""
        with self._database.reading() as connection:
            return read_unsettled(connection, self._database.task, source)

    def settle(self, shard: Unsettled, findings: Sequence[Finding]) -> None:
        """Write what has become known of a shard; what is known already stays."""
        with self._database.transaction() as connection:
            write_findings(connection, self._database.task, shard, findings)

    def history(self, shard: Shard) -> tuple[StructureChange, ...]:
        """Return every structure that a shard has had, oldest first."""
        query = select(H).where(H.c.task == self._database.task, matches(H, shard_columns(shard))).order_by(H.c.number)
        with self._database.reading() as connection:
            return tuple(
                StructureChange(shard, target_of(row), Location(row.file, row.position), row.digest)
                for row in connection.execute(query)
            )


def read_shards(connection: Connection, task: str, source: str | None = None,
                target: TableId | None = None) -> tuple[ShardState, ...]:  # fmt: skip
    """Read shards inside a transaction of the caller."""
    queues, held = _queues(connection, task, source), _held(connection, task, source)
    query = select(S).where(S.c.task == task).order_by(S.c.source, S.c.shard_schema, S.c.shard_table)
    query = query.where(S.c.source == source) if source else query
    query = query.where(matches(S, target_columns(target))) if target else query
    states = [state_of(row, queues[shard_of(row)], held[shard_of(row)]) for row in connection.execute(query)]
    return tuple(state for state in states if not state.has_left or state.queue or state.held)


def record_change(connection: Connection, task: str, change: StructureChange, window: int) -> None:
    """Append to a shard's history and set what it is now; the same change again does nothing."""
    last = _last_change(connection, task, change.shard)
    if last and (last.file, last.position, last.digest) == (change.location.file, change.location.position,
                                                            change.structure):  # fmt: skip
        return
    key = {"task": task, **shard_columns(change.shard)}
    target = target_columns(change.target)
    connection.execute(insert(H).values(
        **key, number=last.number + 1 if last else 1, **target, **location_columns(change.location), window=window,
        digest=change.structure, recorded_at=tables.NOW,
    ))  # fmt: skip
    if change.structure is None:
        connection.execute(update(S).where(matches(S, key)).values(has_left=True))
        return
    present = {**target, "digest": change.structure, "has_left": False}
    fresh = {"last_seq": 0, "born": _birth(change), "dropped": False}
    if change.joins:
        # Nothing of an earlier table of that name waits any more: its numbers may be used again.
        connection.execute(delete(Q).where(matches(Q, key)))
        present |= {**fresh, **location_columns(None, "start_")}
    if not connection.execute(update(S).where(matches(S, key)).values(present)).rowcount:
        connection.execute(insert(S).values({**fresh, **key, **present}))


def _birth(change: StructureChange) -> str:
    return hashlib.sha256(f"{change.shard.table} {change.location}".encode()).hexdigest()[:16]


def _last_change(connection: Connection, task: str, shard: Shard) -> AnyRow | None:
    mine = H.c.task == task, matches(H, shard_columns(shard))
    newest = select(func.max(H.c.number)).where(*mine).scalar_subquery()
    return connection.execute(select(H).where(*mine, H.c.number == newest)).one_or_none()


def _queues(connection: Connection, task: str, source: str | None) -> dict[Shard, list[QueueEntry]]:
    query = select(Q).where(Q.c.task == task, Q.c.state == EntryState.PENDING.value).order_by(Q.c.seq)
    queues: dict[Shard, list[QueueEntry]] = defaultdict(list)
    for row in connection.execute(_of(query, Q, source)):
        queues[shard_of(row)].append(entry_of(row))
    return queues


def _held(connection: Connection, task: str, source: str | None) -> dict[Shard, list[HeldFile]]:
    query = select(F).where(F.c.task == task).order_by(F.c.seq, F.c.window, F.c.part)
    held: dict[Shard, list[HeldFile]] = defaultdict(list)
    for row in connection.execute(_of(query, F, source)):
        held[shard_of(row)].append(held_of(row))
    return held


def _of(query: Any, table: Any, source: str | None) -> Any:
    return query.where(table.c.source == source) if source else query
