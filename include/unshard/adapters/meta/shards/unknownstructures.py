"""Unknown structures of shards after an undecided DDL: empty digests in four tables.

Every change is conditional on the empty digest that it replaces, so it can be repeated and can run beside a window. If
that window commits an unknown structure, the next run finds it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.rows import (
    AnyRow,
    entry_of,
    held_of,
    matches,
    replacement_of,
    shard_columns,
    shard_of,
    target_of,
    verdict_columns,
)
from unshard.adapters.meta.tasks.sources import lock_source
from unshard.core.ddl.queue import EntryState, OperatorDecision
from unshard.core.ddl.reconcile import Finding, Record, ShardWithUnknowns, structures_of
from unshard.core.model import Location, Shard

S, H, Q, F, K, M = (
    tables.shard,
    tables.table_schema,
    tables.shard_ddl,
    tables.held_rows,
    tables.ddl_lock,
    tables.ddl_lock_member,
)


def read_unknown_shards(connection: Connection, task: str, source: str) -> tuple[ShardWithUnknowns, ...]:
    """Return the shards of a source that have an unknown structure."""
    of_source = {"task": task, "source": source}
    places = ((S, S.c.digest), (Q, Q.c.after_digest), (F, F.c.structure))
    found: set[Shard] = set()
    for table, digest in places:
        query = select(table).where(matches(table, of_source), digest == "")
        found |= set(map(shard_of, connection.execute(query)))
    return tuple(
        unknown_shards for shard in sorted(found) for unknown_shards in _with_unknowns(connection, task, shard)
    )


def write_findings(connection: Connection, task: str, shard: ShardWithUnknowns, findings: Sequence[Finding]) -> None:
    """Store findings and the structures that follow from them."""
    lock_source(connection, task, shard.shard.source)
    mine = {"task": task, **shard_columns(shard.shard)}
    if (
        connection.execute(select(S.c.shard_uid).where(matches(S, {**mine, "shard_uid": shard.shard_uid}))).first()
        is None
    ):
        return  # the shard was renamed, and another one may have its name
    for finding in findings:
        key = {**mine, "seq": finding.seq, "after_digest": ""}
        if finding.reason:
            # A lock that is still open evaluates the shard again.
            lock = select(Q.c.lock_id).where(matches(Q, key)).scalar_subquery()
            connection.execute(delete(M).where(matches(M, mine), M.c.lock_id == lock))
        connection.execute(update(Q).where(matches(Q, key)).values(_found(finding)))
    known = structures_of(findings, shard.records)
    for seq in {file.seq for file in shard.held} & known.keys():
        unknown = matches(F, {**mine, "seq": seq, "structure": ""})
        connection.execute(update(F).where(unknown).values(structure=known[seq]))
    _complete_history(
        connection, mine, {record.entry.location: known.get(record.entry.seq, "") for record in shard.records}
    )
    last = max(record.entry.seq for record in shard.records)
    if digest := known.get(last):
        unknown = matches(S, {**mine, "last_seq": last, "digest": ""})
        connection.execute(update(S).where(unknown).values(digest=digest))


def _complete_history(connection: Connection, mine: dict[str, Any], known: Mapping[Location, str]) -> None:
    """Complete the shard's history: a change of unknown structure gets that of the last DDL up to its location."""
    for row in connection.execute(select(H).where(matches(H, {**mine, "digest": ""}))).all():
        last = max(
            (at for at in known if at <= Location(row.file, row.position)), key=lambda at: at.order, default=None
        )
        if last and (digest := known[last]):
            connection.execute(update(H).where(matches(H, {**mine, "number": row.number})).values(digest=digest))


def _with_unknowns(connection: Connection, task: str, shard: Shard) -> Iterator[ShardWithUnknowns]:
    mine = {"task": task, **shard_columns(shard)}
    state = connection.execute(select(S).where(matches(S, mine))).one_or_none()
    records = _records(connection, mine)
    if state is not None and not state.dropped and records:
        held = connection.execute(select(F).where(matches(F, {**mine, "structure": ""})))
        yield ShardWithUnknowns(shard, target_of(state), records, tuple(map(held_of, held)), state.shard_uid)


def _records(connection: Connection, mine: dict[str, Any]) -> tuple[Record, ...]:
    lock = (K.c.task == Q.c.task) & (K.c.lock_id == Q.c.lock_id)
    said = K.c.decision.label("lock_decision"), K.c.replacement.label("lock_replacement")
    query = select(Q, *said).outerjoin(K, lock).where(matches(Q, mine)).order_by(Q.c.seq)
    return tuple(map(_record, connection.execute(query)))


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
            "state": EntryState.PENDING.value,
            "lock_id": None,
            "outcome": None,
            "resolved_at": None,
            **verdict_columns(OperatorDecision.NONE),
        }
    return values
