"""What is unknown of shards behind an undecided DDL: empty digests in four tables.

Every change says what it replaces (an empty digest), so it may be made again, and beside a window in flight: what
such a window commits as unknown is found unknown again.
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
from unshard.adapters.meta.sources import lock_source
from unshard.core.model import Location, Shard
from unshard.core.settling import Finding, Record, Unsettled, structures_of
from unshard.core.window import EntryState, Verdict

S, H, Q, F, K, M = (tables.shard, tables.table_schema, tables.shard_ddl, tables.held_rows, tables.ddl_lock,
                    tables.ddl_lock_member)  # fmt: skip


def read_unsettled(connection: Connection, task: str, source: str) -> tuple[Unsettled, ...]:
    """Return the shards of a source of which something is unknown."""
    of_source = {"task": task, "source": source}
    places = ((S, S.c.digest), (Q, Q.c.after_digest), (F, F.c.structure))
    found: set[Shard] = set()
    for table, digest in places:
        query = select(table).where(matches(table, of_source), digest == "")
        found |= set(map(shard_of, connection.execute(query)))
    return tuple(unsettled for shard in sorted(found) for unsettled in _unsettled(connection, task, shard))


def write_findings(connection: Connection, task: str, shard: Unsettled, findings: Sequence[Finding]) -> None:
    """Fill in what was found out, and what follows from all that is known."""
    lock_source(connection, task, shard.shard.source)
    mine = {"task": task, **shard_columns(shard.shard)}
    if connection.execute(select(S.c.born).where(matches(S, {**mine, "born": shard.born}))).first() is None:
        return  # the shard was renamed meanwhile, and another may have its name
    for finding in findings:
        key = {**mine, "seq": finding.seq, "after_digest": ""}
        if finding.reason:
            # A lock that is still open looks at the shard again.
            lock = select(Q.c.lock_id).where(matches(Q, key)).scalar_subquery()
            connection.execute(delete(M).where(matches(M, mine), M.c.lock_id == lock))
        connection.execute(update(Q).where(matches(Q, key)).values(_found(finding)))
    known = structures_of(findings, shard.records)
    for seq in {file.seq for file in shard.held} & known.keys():
        unknown = matches(F, {**mine, "seq": seq, "structure": ""})
        connection.execute(update(F).where(unknown).values(structure=known[seq]))
    _tell_history(
        connection, mine, {record.entry.location: known.get(record.entry.seq, "") for record in shard.records}
    )
    last = max(record.entry.seq for record in shard.records)
    if digest := known.get(last):
        unknown = matches(S, {**mine, "last_seq": last, "digest": ""})
        connection.execute(update(S).where(unknown).values(digest=digest))


def _tell_history(connection: Connection, mine: dict[str, Any], known: Mapping[Location, str]) -> None:
    """Fill in the shard's history: a change of unknown structure has that of the last DDL up to its location."""
    for row in connection.execute(select(H).where(matches(H, {**mine, "digest": ""}))).all():
        last = max(
            (at for at in known if at <= Location(row.file, row.position)), key=lambda at: at.order, default=None
        )
        if last and (digest := known[last]):
            connection.execute(update(H).where(matches(H, {**mine, "number": row.number})).values(digest=digest))


def _unsettled(connection: Connection, task: str, shard: Shard) -> Iterator[Unsettled]:
    mine = {"task": task, **shard_columns(shard)}
    state = connection.execute(select(S).where(matches(S, mine))).one_or_none()
    records = _records(connection, mine)
    if state is not None and not state.dropped and records:
        held = connection.execute(select(F).where(matches(F, {**mine, "structure": ""})))
        yield Unsettled(shard, target_of(state), records, tuple(map(held_of, held)), state.born)


def _records(connection: Connection, mine: dict[str, Any]) -> tuple[Record, ...]:
    lock = (K.c.task == Q.c.task) & (K.c.lock_id == Q.c.lock_id)
    said = K.c.decision.label("lock_decision"), K.c.replacement.label("lock_replacement")
    query = select(Q, *said).outerjoin(K, lock).where(matches(Q, mine)).order_by(Q.c.seq)
    return tuple(map(_record, connection.execute(query)))


def _record(row: AnyRow) -> Record:
    entry = entry_of(row)
    if entry.verdict is not Verdict.NONE or not row.lock_decision:
        return Record(entry, entry.verdict, entry.replacement)
    return Record(entry, Verdict(row.lock_decision), replacement_of(row, f"lock {row.lock_id}", "lock_replacement"))


def _found(finding: Finding) -> dict[str, Any]:
    values: dict[str, Any] = {"before_digest": finding.before or finding.after, "after_digest": finding.after}
    if finding.reason:
        # The operator is asked, or asked again.
        values |= {"reason": finding.reason, "state": EntryState.PENDING.value, "lock_id": None, "outcome": None,
                   "resolved_at": None, **verdict_columns(Verdict.NONE)}  # fmt: skip
    return values
