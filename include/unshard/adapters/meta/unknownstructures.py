"""Structures of shards that are completed later: unknown ones, and those without the target's names of columns.

A structure after an undecided DDL is unknown: an empty digest in four tables. Every change is conditional on the empty
digest that it replaces, so it can be repeated and can run beside a window. If that window commits an unknown structure,
the next run finds it.

A column may have another name in the target (core.ddl.columnnames). Its structures are named in one transaction for
each shard, while no window of the source is open; repeating it changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from unshard.adapters.meta import tables
from unshard.adapters.meta.gateway import AnyRow, TaskReader, TaskWriter
from unshard.adapters.meta.rows import (
    are_same,
    entry_of,
    held_of,
    replacement_of,
    shard_columns,
    shard_of,
    target_of,
    verdict_columns,
)
from unshard.adapters.meta.sourcerecords import lock_source
from unshard.core.ddl.queue import EntryState, OperatorDecision, QueueEntry, UnnamedShard
from unshard.core.ddl.reconcile import Finding, Record, ShardWithUnknowns, structures_of
from unshard.core.model import Location, Shard

SHARD, TABLE_SCHEMA, SHARD_DDL, HELD_ROWS = tables.shard, tables.table_schema, tables.shard_ddl, tables.held_rows
DDL_LOCK, DDL_LOCK_MEMBER = tables.ddl_lock, tables.ddl_lock_member


def read_unknown_shards(db: TaskReader, source: str) -> tuple[ShardWithUnknowns, ...]:
    """Return the shards of a source that have an unknown structure."""
    rows = (
        *db.select(SHARD, source=source, digest=""),
        *db.select(SHARD_DDL, source=source, after_digest=""),
        *db.select(HELD_ROWS, source=source, structure=""),
    )
    found = (_with_unknowns(db, shard) for shard in sorted(set(map(shard_of, rows))))
    return tuple(shard for shard in found if shard is not None)


def write_findings(db: TaskWriter, shard: ShardWithUnknowns, findings: Sequence[Finding]) -> None:
    """Store findings and the structures that follow from them."""
    lock_source(db, shard.shard.source)
    mine = shard_columns(shard.shard)
    if not db.has(SHARD, **mine, shard_uid=shard.shard_uid):
        return  # the shard was renamed, and another one may have its name
    for finding in findings:
        key = {**mine, "seq": finding.seq, "after_digest": ""}
        if finding.reason:
            # A lock that is still open evaluates the shard again.
            lock = select(SHARD_DDL.c.lock_id).where(db.mine(SHARD_DDL, **key)).scalar_subquery()
            db.delete(DDL_LOCK_MEMBER, DDL_LOCK_MEMBER.c.lock_id == lock, **mine)
        db.update(SHARD_DDL, _found(finding), **key)
    known = structures_of(findings, shard.records)
    for seq in {file.seq for file in shard.held} & known.keys():
        db.update(HELD_ROWS, {"structure": known[seq]}, **mine, seq=seq, structure="")
    _complete_history(db, mine, {record.entry.location: known.get(record.entry.seq, "") for record in shard.records})
    last = max(record.entry.seq for record in shard.records)
    if digest := known.get(last):
        db.update(SHARD, {"digest": digest}, **mine, last_seq=last, digest="")


def _complete_history(db: TaskWriter, mine: dict[str, Any], known: Mapping[Location, str]) -> None:
    """Complete the shard's history: a change of unknown structure gets that of the last DDL up to its location."""
    for row in db.select(TABLE_SCHEMA, **mine, digest=""):
        before = [at for at in known if at <= Location(row.file, row.position)]
        last = max(before, key=lambda at: at.order, default=None)
        if last and (digest := known[last]):
            db.update(TABLE_SCHEMA, {"digest": digest}, **mine, number=row.number)


def _with_unknowns(db: TaskReader, shard: Shard) -> ShardWithUnknowns | None:
    mine = shard_columns(shard)
    state, records = db.row(SHARD, **mine), _records(db, mine)
    if state is None or state.dropped or not records:
        return None
    held = tuple(map(held_of, db.select(HELD_ROWS, **mine, structure="")))
    return ShardWithUnknowns(shard, target_of(state), records, held, state.shard_uid)


def _records(db: TaskReader, mine: dict[str, Any]) -> tuple[Record, ...]:
    said = DDL_LOCK.c.decision.label("lock_decision"), DDL_LOCK.c.replacement.label("lock_replacement")
    query = select(SHARD_DDL, *said).outerjoin(DDL_LOCK, are_same(DDL_LOCK, SHARD_DDL, "lock_id"))
    return tuple(map(_record, db.fetch(query.where(db.mine(SHARD_DDL, **mine)).order_by(SHARD_DDL.c.seq))))


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


def read_unnamed_shards(db: TaskReader, source: str) -> tuple[UnnamedShard, ...]:
    """Return the shards of a source whose structures lack the target's names of columns."""
    found = []
    for shard in sorted(set(map(shard_of, db.select(SHARD_DDL, SHARD_DDL.c.unnamed != 0, source=source)))):
        mine = shard_columns(shard)
        state = db.one(SHARD, **mine)
        entries = tuple(map(entry_of, db.select(SHARD_DDL, **mine, order=SHARD_DDL.c.seq)))
        first = next(number for number, entry in enumerate(entries) if entry.is_unnamed)
        held = tuple(map(held_of, db.select(HELD_ROWS, **mine)))
        found.append(UnnamedShard(shard, entries[first:], held, state.digest, state.shard_uid))
    return tuple(found)


def write_names(db: TaskWriter, before: UnnamedShard, after: UnnamedShard) -> None:
    """Store the named structures of a shard, unless another shard has its name by now."""
    lock_source(db, before.shard.source)
    mine = shard_columns(before.shard)
    if not db.has(SHARD, **mine, shard_uid=before.shard_uid):
        return
    for old, new in zip(before.entries, after.entries, strict=True):
        if old != new:
            same = {"seq": old.seq, "fingerprint": old.fingerprint, "state": old.state}
            db.update(SHARD_DDL, _named(old, new), **mine, **same)
    for held, named in zip(before.held, after.held, strict=True):
        file = {"seq": held.seq, "window": held.window, "part": held.part}
        db.update(HELD_ROWS, {"structure": named.structure}, **mine, **file)
    db.update(SHARD, {"digest": after.structure}, **mine, shard_uid=before.shard_uid, digest=before.structure)


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
