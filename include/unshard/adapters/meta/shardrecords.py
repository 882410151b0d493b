"""Shards: their structures by digest with the history, their queues and held files, and renames.

A window is planned from few shards. A task may have thousands, and while a lock waits each of them may have a queue and
held files. A window reads only the shards whose rows it has, those with held rows that can be released, and those that
an operator has dropped while their queue or held files wait. It never reads held files that cannot be released: their
shard has a pending DDL, which holds its rows.

A rename moves all rows about a shard to its new name, in the transaction that commits the window. All renames of a
statement happen at once. A swap needs a name in between: the empty schema name, which no server has.

Some structures are completed later. A structure after an undecided DDL is unknown: an empty digest in four tables.
Every change is conditional on the empty digest that it replaces, so it can be repeated and can run pending a window. If
that window commits an unknown structure, the next run finds it.

A column may have another name in the target (core.ddl.columnnames). Its structures are named in one transaction for
each shard, while no window of the source is open; repeating it changes nothing.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import and_, func, select, union

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase, Records
from unshard.adapters.meta.gateway import AT_ONCE, AnyRow, TaskReader, TaskWriter
from unshard.adapters.meta.rowvalues import (
    HELD_FILE,
    SHARD_STATE,
    Persisted,
    are_same,
    earliest,
    entry_of,
    is_one_of,
    location_columns,
    read_stored,
    replacement_of,
    shard_name,
    shard_of,
    target_name,
    target_of,
    verdict_columns,
)
from unshard.adapters.meta.sourcerecords import lock_source
from unshard.core import codec
from unshard.core.ddl.lock import LockState
from unshard.core.ddl.queue import EntryState, HeldFile, OperatorDecision, QueueEntry, ShardState, UnnamedShard
from unshard.core.ddl.reconcile import Finding, Record, ShardWithUnknowns, structures_of
from unshard.core.ddl.renaming import name_upstream
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard.core.task.state import EVERYTHING, HeldTotals, PendingWork
from unshard.core.window.plan import Rename, StructureChange
from unshard.errors.meta import StructureMissing

SHARD, TABLE_SCHEMA, SHARD_DDL, HELD_ROWS, STRUCTURE = (
    tables.shard,
    tables.table_schema,
    tables.shard_ddl,
    tables.held_rows,
    tables.structure,
)
DDL_LOCK, DDL_LOCK_MEMBER, JOIN_TARGET = tables.ddl_lock, tables.ddl_lock_member, tables.join_target
HELD_ORDER = HELD_ROWS.c.seq, HELD_ROWS.c.window, HELD_ROWS.c.part
WAITS = PendingWork.QUEUES | PendingWork.HELD | PendingWork.DROPPED
"""Without any of these flags, no shard of the task has a queue or held rows that matter to the source."""
MOVED = (
    tables.shard,
    tables.shard_ddl,
    tables.held_rows,
    tables.ddl_lock_member,
    tables.column_reload,
    tables.join_member,
)
"""An earlier shard of the new name has neither queue nor held rows, so its rows in these tables are deleted."""


@dataclass(frozen=True, slots=True)
class ListedShard:
    """A shard in a list, with what waits in it."""

    shard: Shard
    target: TableId
    structure: str
    """Digest of the structure of the next row; empty: unknown."""
    is_dropped: bool
    queued: int = 0
    """DDL that it has reached and its group has not resolved."""
    position: Location | None = None
    """Where its rows begin to wait: the end of the first queued DDL; None: they do not wait for a DDL."""
    held_rows: int = 0
    held_bytes: int = 0
    held_since: datetime | None = None
    """When the oldest held rows were stored."""


WAITING = "queued position held_rows held_bytes held_since"
LISTED = Persisted(ListedShard, WAITING, structure="digest", is_dropped="dropped")


class Structures(Records):
    """Rows of `structure`, `table_schema` and `shard`."""

    def __init__(self, database: MetaDatabase) -> None:
        super().__init__(database)
        self._known: dict[str, TableSchema] = {}
        """Structures that were read; a digest always means the same structure."""

    def get(self, digests: Iterable[str]) -> dict[str, TableSchema]:
        """Return structures by digest; raises StructureMissing."""
        wanted = set(digests)
        if missing := wanted - self._known.keys():
            rows = self._db.select(STRUCTURE, STRUCTURE.c.digest.in_(missing))
            self._known |= {row.digest: TableSchema.from_json(json.loads(row.body)) for row in rows}
        for digest in sorted(wanted - self._known.keys()):
            raise StructureMissing(digest)
        return {digest: self._known[digest] for digest in wanted}

    def shards(self, source: str | None = None) -> tuple[ShardState, ...]:
        """Return the shards of a source or of all, with queue and held files; one that has left only if it has any."""
        with self._db.snapshot() as db:
            return read_shards(db, source)

    def planned_shards(
        self, source: str, named: Collection[TableId] | None, pending: PendingWork = EVERYTHING
    ) -> tuple[ShardState, ...]:
        """Return the shards that a window is planned from; if `named` is None, all shards.

        `pending` are the kinds of pending work of the source, which only its own windows add.
        """
        pending = EVERYTHING if named is None else pending & WAITS
        if not pending:
            return _read_planned_shards(self._db, source, named, pending)
        with self._db.snapshot() as db:
            return _read_planned_shards(db, source, named, pending)

    def listed(self, search: str, first: int, most: int) -> tuple[int, tuple[ListedShard, ...]]:
        """Return how many shards a search finds, and `most` of them from number `first` on.

        The search text is a part of the source, of the shard's name or of its target's name.
        """
        names = (*shard_name(SHARD), *target_name(SHARD))
        text = func.lower(func.concat_ws(".", *names))
        found = SHARD.c.has_left == 0, text.contains(search.strip().lower().replace(" ", "."), autoescape=True)
        count = self._db.count(SHARD, *found)
        query = select(SHARD).where(self._db.mine(SHARD, *found)).order_by(*shard_name(SHARD))
        rows = {shard_of(row): row for row in self._db.fetch(query.limit(most).offset(first))}
        queued, held = self._queued(rows), self._held(rows)
        return count, tuple(LISTED.of(row, **queued[shard], **held[shard]) for shard, row in rows.items())

    def _queued(self, shards: Collection[Shard]) -> Mapping[Shard, Mapping[str, Any]]:
        only = (*shard_name(SHARD_DDL), SHARD_DDL.c.file, SHARD_DDL.c.position)
        mine, order = is_one_of(SHARD_DDL, shards), SHARD_DDL.c.seq
        found: dict[Shard, dict[str, Any]] = defaultdict(dict)
        for row in self._db.select(SHARD_DDL, mine, only=only, order=order, state=EntryState.PENDING):
            known = found[shard_of(row)]
            known["queued"] = known.get("queued", 0) + 1
            known.setdefault("position", Location(row.file, row.position))
        return found

    def _held(self, shards: Collection[Shard]) -> Mapping[Shard, Mapping[str, Any]]:
        h, name = HELD_ROWS.c, shard_name(HELD_ROWS)
        sums = func.sum(h.row_count).label("held"), func.sum(h.bytes).label("size"), func.min(h.held_at).label("since")
        query = select(*name, *sums).where(self._db.mine(HELD_ROWS, is_one_of(HELD_ROWS, shards))).group_by(*name)
        found: dict[Shard, dict[str, Any]] = defaultdict(dict)
        for row in self._db.fetch(query):
            found[shard_of(row)] = {"held_rows": int(row.held), "held_bytes": int(row.size), "held_since": row.since}
        return found

    def waiting(self, source: str) -> frozenset[Shard]:
        """Return the shards of a source with held rows to release, or a queue or held rows to drop."""
        return _waiting(self._db, source)

    def totals(self, source: str) -> HeldTotals:
        """Return the number of shards of a source and the totals of their queues and held rows."""
        db, held = self._db, HELD_ROWS.c
        times = func.min(func.nullif(held.first_time, 0)), func.min(held.held_at)
        sums = func.sum(held.row_count), func.sum(held.bytes), *times
        rows, size, first, since = db.one(HELD_ROWS, only=sums, source=source)
        oldest = earliest(first, since)
        pending = select(*shard_name(SHARD_DDL)).where(db.mine(SHARD_DDL, source=source, state=EntryState.PENDING))
        waits = union(pending, select(*shard_name(HELD_ROWS)).where(db.mine(HELD_ROWS, source=source))).subquery()
        ((waiting,),) = db.fetch(select(func.count()).select_from(waits))
        shards = db.count(SHARD, source=source, has_left=0)
        return HeldTotals(shards, waiting, int(rows or 0), int(size or 0), since, oldest)

    def is_pending(self) -> bool:
        return self._db.has(SHARD_DDL, state=EntryState.PENDING)

    def holds(self, source: str, before: int) -> bool:
        return self._db.has(HELD_ROWS, HELD_ROWS.c.window < before, source=source)

    def held_paths(self, source: str) -> frozenset[str]:
        return frozenset(path for (path,) in self._db.select(HELD_ROWS, only=(HELD_ROWS.c.path,), source=source))

    def dropped(self, shards: Collection[Shard]) -> frozenset[Shard]:
        return frozenset(map(shard_of, self._db.select(SHARD, SHARD.c.dropped != 0, is_one_of(SHARD, shards))))

    def targets(self) -> frozenset[TableId]:
        """Return the targets that have shards."""
        has = select(*target_name(SHARD)).where(self._db.mine(SHARD, has_left=0)).distinct()
        return frozenset(map(target_of, self._db.fetch(has)))

    def unfed_targets(self) -> frozenset[TableId]:
        """Return the targets that had shards and have none now."""
        had = select(*target_name(TABLE_SCHEMA)).where(self._db.mine(TABLE_SCHEMA)).distinct()
        return frozenset(map(target_of, self._db.fetch(had))) - self.targets()

    def fed(self, target: TableId) -> frozenset[Shard]:
        """Return all shards that a target has ever had, by their last names."""
        mine = self._db.mine(TABLE_SCHEMA, target=target)
        rows = self._db.fetch(select(*shard_name(TABLE_SCHEMA)).where(mine).distinct())
        return frozenset(Shard(source, name_upstream(TableId(*table))) for source, *table in rows)

    def unknown_shards(self, source: str) -> tuple[ShardWithUnknowns, ...]:
        """Return the shards of a source that have an unknown structure."""
        db = self._db
        rows = (
            *db.select(SHARD, source=source, digest=""),
            *db.select(SHARD_DDL, source=source, after_digest=""),
            *db.select(HELD_ROWS, source=source, structure=""),
        )
        found = (_with_unknowns(db, shard) for shard in sorted(set(map(shard_of, rows))))
        return tuple(shard for shard in found if shard is not None)

    def unnamed_shards(self, source: str) -> tuple[UnnamedShard, ...]:
        """Return the shards of a source whose structures lack the target's names of columns."""
        with self._db.snapshot() as db:
            found = []
            for shard in sorted(set(map(shard_of, db.select(SHARD_DDL, SHARD_DDL.c.unnamed != 0, source=source)))):
                state = db.one(SHARD, shard=shard)
                entries = tuple(map(entry_of, db.select(SHARD_DDL, shard=shard, order=SHARD_DDL.c.seq)))
                first = next(number for number, entry in enumerate(entries) if entry.is_unnamed)
                held = tuple(map(HELD_FILE.of, db.select(HELD_ROWS, shard=shard)))
                found.append(UnnamedShard(shard, entries[first:], held, state.digest, state.shard_uid))
            return tuple(found)

    def history(self, shard: Shard) -> tuple[StructureChange, ...]:
        return tuple(
            StructureChange(shard, target_of(row), Location(row.file, row.position), row.digest)
            for row in self._db.select(TABLE_SCHEMA, shard=shard, order=TABLE_SCHEMA.c.number)
        )

    def put(self, schema: TableSchema) -> str:
        """Store a structure unless it exists; return its digest."""
        row = {"digest": schema.digest, "body": json.dumps(schema.to_json()), "added_at": tables.NOW}
        with self._db.single() as db:
            db.add(STRUCTURE, row)
        return schema.digest

    def record(self, shard: Shard, target: TableId, location: Location, digest: str | None) -> None:
        """Record the structure of a shard from `location` on, outside a window (snapshot); idempotent."""
        self.record_all([StructureChange(shard, target, location, digest)])

    def record_all(self, changes: Iterable[StructureChange]) -> None:
        with self._db.transaction() as db:
            for change in changes:
                record_change(db, change, window=0)

    def uid_of(self, change: StructureChange) -> str:
        return _uid(change)

    def set_start(self, shard: Shard, start: Location) -> None:
        """Record that the dump has all rows of the shard up to `start`; windows skip them."""
        with self._db.transaction() as db:
            db.update(SHARD, location_columns(start, "start_"), shard=shard)

    def settle(self, shard: ShardWithUnknowns, findings: Sequence[Finding]) -> None:
        """Store findings and the structures that follow from them."""
        with self._db.transaction() as db:
            lock_source(db, shard.shard.source)
            if not db.has(SHARD, shard=shard.shard, shard_uid=shard.shard_uid):
                return  # the shard was renamed, and another one may have its name
            for finding in findings:
                key = {"shard": shard.shard, "seq": finding.seq, "after_digest": ""}
                if finding.reason:
                    # A lock that is still open evaluates the shard again.
                    lock = select(SHARD_DDL.c.lock_id).where(db.mine(SHARD_DDL, **key)).scalar_subquery()
                    db.delete(DDL_LOCK_MEMBER, DDL_LOCK_MEMBER.c.lock_id == lock, shard=shard.shard)
                db.update(SHARD_DDL, _found(finding), **key)
            known = structures_of(findings, shard.records)
            for seq in {file.seq for file in shard.held} & known.keys():
                db.update(HELD_ROWS, {"structure": known[seq]}, shard=shard.shard, seq=seq, structure="")
            _complete_history(
                db, shard.shard, {record.entry.location: known.get(record.entry.seq, "") for record in shard.records}
            )
            last = max(record.entry.seq for record in shard.records)
            if digest := known.get(last):
                db.update(SHARD, {"digest": digest}, shard=shard.shard, last_seq=last, digest="")

    def name_columns(self, before: UnnamedShard, after: UnnamedShard) -> None:
        """Store the named structures of a shard, unless another shard has its name by now."""
        with self._db.transaction() as db:
            lock_source(db, before.shard.source)
            if not db.has(SHARD, shard=before.shard, shard_uid=before.shard_uid):
                return
            for old, new in zip(before.entries, after.entries, strict=True):
                if old != new:
                    same = {"seq": old.seq, "fingerprint": old.fingerprint, "state": old.state}
                    db.update(SHARD_DDL, _named(old, new), shard=before.shard, **same)
            for held, named in zip(before.held, after.held, strict=True):
                file = {"seq": held.seq, "window": held.window, "part": held.part}
                db.update(HELD_ROWS, {"structure": named.structure}, shard=before.shard, **file)
            db.update(
                SHARD,
                {"digest": after.structure},
                shard=before.shard,
                shard_uid=before.shard_uid,
                digest=before.structure,
            )


def read_shards(db: TaskReader, source: str | None = None, target: TableId | None = None) -> tuple[ShardState, ...]:
    """Read shards in the caller's transaction."""
    of_source: dict[str, Any] = {"source": source} if source else {}
    of_target: dict[str, Any] = {"target": target} if target else {}
    queue = db.select(SHARD_DDL, **of_source, state=EntryState.PENDING, order=SHARD_DDL.c.seq)
    held = db.select(HELD_ROWS, **of_source, order=HELD_ORDER)
    return _states(db.select(SHARD, **of_source, **of_target, order=shard_name(SHARD)), queue, held)


def record_change(db: TaskWriter, change: StructureChange, window: int) -> None:
    """Append to a shard's history and set its present structure; idempotent."""
    shard, target, location = change.shard, change.target, change.location
    last = db.row(TABLE_SCHEMA, shard=shard, order=TABLE_SCHEMA.c.number.desc(), limit=1)
    if last and (last.file, last.position, last.digest) == (location.file, location.position, change.structure):
        return
    row = {
        "shard": shard,
        "number": last.number + 1 if last else 1,
        "target": target,
        **location_columns(location),
        "window": window,
        "digest": change.structure,
        "recorded_at": tables.NOW,
    }
    db.insert(TABLE_SCHEMA, row)
    if change.structure is None:
        db.update(SHARD, {"has_left": True}, shard=shard)
        return
    present = {"target": target, "digest": change.structure, "has_left": False}
    fresh = {"last_seq": 0, "shard_uid": _uid(change), "dropped": False}
    if change.joins:
        # An earlier table of that name has no pending DDL, so its numbers can be used again.
        db.delete(SHARD_DDL, shard=shard)
        present |= {**fresh, **location_columns(None, "start_")}
    if change.forgets_start:
        present |= location_columns(None, "start_")
    if not db.update(SHARD, present, shard=shard):
        db.insert(SHARD, {**fresh, "shard": shard, **present})


def move_shards(db: TaskWriter, renames: Sequence[Rename], window: int) -> None:
    """Rename shards, all at once."""
    if not renames:
        return
    # Locks first: resolving a lock also locks the row of the lock before those of the shards.
    _rename_in_locks(db, {rename.shard: Shard(rename.shard.source, rename.to) for rename in renames})
    between = [Shard(rename.shard.source, TableId("", str(number))) for number, rename in enumerate(renames)]
    for rename, place in zip(renames, between, strict=True):
        for table in (*MOVED, TABLE_SCHEMA):
            db.update(table, {"shard": place}, shard=rename.shard)
    for rename, place in zip(renames, between, strict=True):
        shard = Shard(place.source, rename.to)
        for table in MOVED:
            db.delete(table, shard=shard)
            db.update(table, {"shard": shard}, shard=place)
        _append_history(db, place, rename, window)


def note_renames(db: TaskWriter, renames: Sequence[Rename]) -> None:
    """Change the versions of joined targets: a process that has read the old names accepts no DDL with them.

    This comes first in the transaction: a process that accepts DDL locks the target before its shards, too.
    """
    rows = [db.row(SHARD, shard=rename.shard) for rename in renames]
    for target in sorted({target_of(row) for row in rows if row is not None}):
        db.update(JOIN_TARGET, {"version": JOIN_TARGET.c.version + 1}, target=target)


def _append_history(db: TaskWriter, place: Shard, rename: Rename, window: int) -> None:
    """Append the shard's history to that of the new name, then the rename."""
    shard = Shard(place.source, rename.to)
    newest = func.coalesce(func.max(TABLE_SCHEMA.c.number), 0)
    known = db.value(TABLE_SCHEMA, newest, shard=shard)
    db.update(TABLE_SCHEMA, {"shard": shard, "number": TABLE_SCHEMA.c.number + known}, shard=place)
    now = db.one(SHARD, shard=shard)
    row = {
        "shard": shard,
        "number": db.value(TABLE_SCHEMA, newest, shard=shard) + 1,
        "target": target_of(now),
        **location_columns(rename.location),
        "window": window,
        "digest": None if now.has_left else now.digest,
        "recorded_at": tables.NOW,
    }
    db.insert(TABLE_SCHEMA, row)


def _rename_in_locks(db: TaskWriter, names: dict[Shard, Shard]) -> None:
    """Change the name of the shard that opened a lock in the open locks."""
    columns = DDL_LOCK.c.lock_id, DDL_LOCK.c.entry
    for row in db.select(DDL_LOCK, DDL_LOCK.c.state != LockState.RESOLVED, only=columns, lock=True):
        entry = read_stored(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}")
        if entry.shard in names:
            renamed = codec.dumps(replace(entry, shard=names[entry.shard]))
            db.update(DDL_LOCK, {"entry": renamed}, lock_id=row.lock_id)


def _uid(change: StructureChange) -> str:
    return hashlib.sha256(f"{change.shard.table} {change.location}".encode()).hexdigest()[:16]


def _read_planned_shards(
    db: TaskReader, source: str, named: Collection[TableId] | None, pending: PendingWork
) -> tuple[ShardState, ...]:
    """Return the shards for planning; if `named` is None all of the task, because a DDL may concern any of them."""
    waiting = _waiting(db, source) if pending else frozenset()
    shards = None if named is None else waiting | {Shard(source, table) for table in named}
    queue, held = list[AnyRow](), list[AnyRow]()
    if PendingWork.QUEUES in pending:
        near = _is_near(SHARD_DDL, source, shards)
        queue += db.select(SHARD_DDL, near, state=EntryState.PENDING, order=SHARD_DDL.c.seq)
    if waiting:
        rows = db.select(HELD_ROWS, _is_near(HELD_ROWS, source, waiting), order=HELD_ORDER)
        held += (row for row in rows if shard_of(row) in waiting)
    rows = db.fetch(_rows_of_shards(db.task, source, shards))
    left = frozenset(map(shard_of, db.select(SHARD, SHARD.c.has_left != 0))) if named is None else frozenset()
    if left:  # a new shard may have one as its peer that was dropped upstream and still has held rows
        holding = select(*shard_name(HELD_ROWS)).where(db.mine(HELD_ROWS, is_one_of(HELD_ROWS, left))).distinct()
        left = frozenset(map(shard_of, db.fetch(holding)))
    return _states(rows, queue, held, left)


def _states(
    rows: Iterable[AnyRow], queue: Iterable[AnyRow], held: Iterable[AnyRow], left: Collection[Shard] = ()
) -> tuple[ShardState, ...]:
    queues: dict[Shard, list[QueueEntry]] = defaultdict(list)
    for row in queue:
        queues[shard_of(row)].append(entry_of(row))
    files: dict[Shard, list[HeldFile]] = defaultdict(list)
    for row in held:
        files[shard_of(row)].append(HELD_FILE.of(row))
    states = (SHARD_STATE.of(row, queue=tuple(queues[shard_of(row)]), held=tuple(files[shard_of(row)])) for row in rows)
    return tuple(s for s in states if not s.has_left or s.queue or s.held or s.shard in left)


@lru_cache(maxsize=64)
def _rows_of_shards(task: str, source: str, shards: frozenset[Shard] | None) -> Any:
    """Return the statement; it is kept, because the windows of a source have the same shards again and again."""
    return select(SHARD).where(SHARD.c.task == task, _is_near(SHARD, source, shards)).order_by(*shard_name(SHARD))


def _waiting(db: TaskReader, source: str) -> frozenset[Shard]:
    found = {Shard(source, TableId(row.shard_schema, row.shard_table)) for row in db.fetch(_releasable(db, source))}
    dropped = frozenset(map(shard_of, db.select(SHARD, SHARD.c.dropped != 0, source=source)))
    if dropped:
        rows = db.mine(HELD_ROWS, is_one_of(HELD_ROWS, dropped))
        queue = db.mine(SHARD_DDL, is_one_of(SHARD_DDL, dropped), state=EntryState.PENDING)
        for table, where in ((HELD_ROWS, rows), (SHARD_DDL, queue)):
            found |= set(map(shard_of, db.fetch(select(*shard_name(table)).where(where).distinct())))
    return frozenset(found)


def _releasable(db: TaskReader, source: str) -> Any:
    """Select the shards whose first held rows come before every pending DDL.

    The primary key gives the first number of each shard without reading its other rows; `by_state` gives pending DDL.
    """
    name = HELD_ROWS.c.shard_schema, HELD_ROWS.c.shard_table
    lowest = select(*name, func.min(HELD_ROWS.c.seq).label("seq")).where(db.mine(HELD_ROWS, source=source))
    first = lowest.group_by(*name).subquery()
    same = and_(
        db.mine(SHARD_DDL, source=source, state=EntryState.PENDING),
        SHARD_DDL.c.shard_schema == first.c.shard_schema,
        SHARD_DDL.c.shard_table == first.c.shard_table,
        SHARD_DDL.c.seq <= first.c.seq,
    )
    columns = first.c.shard_schema, first.c.shard_table
    return select(*columns).outerjoin(SHARD_DDL, same).where(SHARD_DDL.c.task.is_(None))


def _is_near(table: Any, source: str, shards: Collection[Shard] | None) -> Any:
    if shards is None:
        return table.c.source.is_not(None)
    return is_one_of(table, shards) if len(shards) <= AT_ONCE else table.c.source == source


def _complete_history(db: TaskWriter, shard: Shard, known: Mapping[Location, str]) -> None:
    """Complete the shard's history: a change of unknown structure gets that of the last DDL up to its location."""
    for row in db.select(TABLE_SCHEMA, shard=shard, digest=""):
        before = [at for at in known if at <= Location(row.file, row.position)]
        last = max(before, key=lambda at: at.order, default=None)
        if last and (digest := known[last]):
            db.update(TABLE_SCHEMA, {"digest": digest}, shard=shard, number=row.number)


def _with_unknowns(db: TaskReader, shard: Shard) -> ShardWithUnknowns | None:
    state, records = db.row(SHARD, shard=shard), _records(db, shard)
    if state is None or state.dropped or not records:
        return None
    held = tuple(map(HELD_FILE.of, db.select(HELD_ROWS, shard=shard, structure="")))
    return ShardWithUnknowns(shard, target_of(state), records, held, state.shard_uid)


def _records(db: TaskReader, shard: Shard) -> tuple[Record, ...]:
    said = DDL_LOCK.c.decision.label("lock_decision"), DDL_LOCK.c.replacement.label("lock_replacement")
    query = select(SHARD_DDL, *said).outerjoin(DDL_LOCK, are_same(DDL_LOCK, SHARD_DDL, "lock_id"))
    return tuple(map(_record, db.fetch(query.where(db.mine(SHARD_DDL, shard=shard)).order_by(SHARD_DDL.c.seq))))


def _record(row: AnyRow) -> Record:
    entry = entry_of(row)
    if entry.verdict is not OperatorDecision.NONE or not row.lock_decision:
        return Record(entry, entry.verdict, entry.replacement)
    return Record(
        entry, OperatorDecision(row.lock_decision), replacement_of(row, f"lock {row.lock_id}", "lock_replacement")
    )


def _found(finding: Finding) -> dict[str, Any]:
    values: dict[str, Any] = {"before_digest": finding.before or finding.after, "after_digest": finding.after}
    if finding.reason:
        # An operator has to decide, or to decide again.
        values |= {
            "reason": finding.reason,
            "state": EntryState.PENDING,
            "lock_id": None,
            "outcome": None,
            "resolved_at": None,
            **verdict_columns(OperatorDecision.NONE),
        }
    return values


def _named(old: QueueEntry, new: QueueEntry) -> dict[str, Any]:
    values: dict[str, Any] = {
        "before_digest": new.before,
        "after_digest": new.after,
        "routed": new.routed,
        "fingerprint": new.fingerprint,
        "reason": new.reason,
        "unnamed": False,
    }
    if new.state is not old.state:
        values |= {"state": EntryState.RESOLVED, "outcome": "skipped", "resolved_at": tables.NOW}
    return values
