"""The structures after DDLs of unknown effect: what becomes known of a shard once an operator has decided.

While the structure after a queued DDL is unknown, everything after it is unknown, too: later DDL, held rows, the shard
itself. `settled` goes through a shard's queue from the first unknown structure and determines what it can now.

| the DDL; the structure before it is known       | the structure after it                                   |
|-------------------------------------------------|----------------------------------------------------------|
| an operator skips it                            | is that of the source if the target has it, for instance |
|                                                 | by hand; else it equals the structure before it, and if  |
|                                                 | the source shows other columns, or a later statement may |
|                                                 | hide them (core.ddl.hiddenstructure), the operator is    |
|                                                 | asked again                                              |
| an operator replaces it                         | is the result of the statements on the structure before; |
|                                                 | if the source shows other columns, the operator is asked |
|                                                 | again; CREATE TABLE states it                            |
| it has a reason and no decision                 | stays unknown, and everything after it                   |
| it has no reason (it follows an undecided DDL,  | is asked of the target, even if the DDL was skipped in   |
| or an operator has issued Retry)                | the meantime; a refusal becomes its reason               |
| the target refuses it or its replacement, and   | is that of the source                                    |
| has by hand the structure that the source shows |                                                          |
| it is the first of a shard without a structure  | as above, with the structure of its group before it; if  |
|                                                 | the group has no other shard, an operator skips it and   |
|                                                 | no later statement concerns the shard: the structure     |
|                                                 | that the source shows                                    |

If the result is impossible (a replacement that fails, held rows that contradict the structure), the operator must
decide the DDL again and gets the reason. No state is kept: equal input gives equal results. If a running window commits
unknown structures again, they are determined again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from unshard.core.ddl.queue import EntryState, HeldFile, OperatorDecision, QueueEntry, ShardState, structure_chain
from unshard.core.model import Shard, TableId
from unshard.errors.ddl import EffectRefused, StructureNotShown, StructureUnknown
from unshard.errors.locks import DecisionMisfits
from unshard.errors.rows import RowsContradict
from unshard.errors.source import TableUnsupported


@dataclass(frozen=True, slots=True)
class Record:
    """A DDL of a shard, resolved or not, with the decision that applies to it."""

    entry: QueueEntry
    verdict: OperatorDecision
    """The decision about this shard's DDL or else about the lock that resolved it."""
    replacement: tuple[str, ...] = ()

    @property
    def is_answer(self) -> bool:
        """Whether the decision describes the effect of the shard's DDL, and not only what the target executes."""
        return bool(self.entry.reason) or self.entry.verdict is OperatorDecision.REPLACE


@dataclass(frozen=True, slots=True)
class ShardWithUnknowns:
    """A shard with unknown structures."""

    shard: Shard
    target: TableId
    records: tuple[Record, ...]
    """All its DDLs, by number."""
    held: tuple[HeldFile, ...]
    """Its held files of unknown structure."""
    shard_uid: str = ""
    """Identifies the shard if another shard has its name by now."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The structures before and after one DDL as far as they are known now; an empty digest is still unknown."""

    seq: int
    before: str
    after: str
    reason: str = ""
    """A new reason for which the operator must decide (again)."""


UNKNOWABLE = (EffectRefused, StructureUnknown, TableUnsupported)
"""The errors that mean that the target cannot tell the effect of a statement; others are failures of the target."""
_REFUSALS = tuple(f"[{error.code}]" for error in (EffectRefused, TableUnsupported))

_CONTRADICTIONS = tuple(f"[{error.code}]" for error in (RowsContradict, DecisionMisfits))


def is_refusal(reason: str) -> bool:
    """Whether the reason of a DDL is a refusal by the target, which may accept the DDL later."""
    return reason.startswith(_REFUSALS)


def is_contradicted(reason: str) -> bool:
    """Whether the reason of a DDL is that rows have another structure than the DDL, so that skipping it is no help."""
    return reason.startswith(_CONTRADICTIONS)


def is_undescribed(reason: str) -> bool:
    """Whether the reason of a DDL is that the source does not show the structure after it."""
    return reason.startswith(f"[{StructureNotShown.code}]")


def is_refused(entry: QueueEntry) -> bool:
    """Whether a DDL waits because the target refused it when unshard asked for its effect."""
    return not entry.after and entry.verdict is OperatorDecision.NONE and is_refusal(entry.reason)


StructureAfter = Callable[[Record, str], tuple[str, str]]
"""Takes a DDL and the structure before it (empty: none); returns the structure after it, or "" and the reason."""


def settled(shard: ShardWithUnknowns, adopted: str, structure_after: StructureAfter) -> Iterator[Finding]:
    """Yield what is known now, in order; `adopted` is the structure before the first DDL if the shard had none."""
    known = ""
    for record in shard.records:
        entry = record.entry
        begins = entry.is_alone and (record.verdict is not OperatorDecision.NONE or not entry.reason)
        before = entry.before or known or (adopted if begins else "")
        after, reason = entry.after, ""
        is_decided = record.verdict is not OperatorDecision.NONE or entry.state is EntryState.RESOLVED
        if not after and (before or begins) and (is_decided or not entry.reason):
            after, reason = structure_after(record, before)
        if (before, after) != (entry.before, entry.after) or reason:
            yield Finding(entry.seq, before, after, reason)
        if not after:
            return
        known = after


def adopted(group: Iterable[ShardState], shard: Shard) -> str:
    """Return the structure of a shard that an operator declares equal to its group; empty if there are no others."""
    others = (state for state in group if state.shard != shard and not state.has_left)
    ordered = sorted(others, key=lambda state: (state.shard.source != shard.source, state.shard))
    return next((structure_chain(state)[0] for state in ordered if structure_chain(state)[0]), "")


def structures_of(findings: Sequence[Finding], records: Sequence[Record]) -> dict[int, str]:
    """Return the known structure after each DDL, by the number of the DDL."""
    known = {record.entry.seq: record.entry.after for record in records}
    known |= {finding.seq: finding.after for finding in findings}
    return {seq: digest for seq, digest in known.items() if digest}


def with_findings(state: ShardState, unknown: ShardWithUnknowns, findings: Sequence[Finding]) -> ShardState:
    """Return a shard as it is once the findings are written to the meta tables."""
    if state.shard_uid != unknown.shard_uid:
        return state  # another table has got the shard's name
    known, found = structures_of(findings, unknown.records), {finding.seq: finding for finding in findings}
    queue = {entry.seq: _with_finding(entry, found.get(entry.seq)) for entry in state.queue}
    asked_again = (record.entry for record in unknown.records if record.entry.seq in found)
    for entry in asked_again:
        if entry.seq not in queue and found[entry.seq].reason:
            pending = replace(entry, state=EntryState.PENDING, verdict=OperatorDecision.NONE, replacement=())
            queue[entry.seq] = _with_finding(pending, found[entry.seq])
    held = (replace(file, structure=file.structure or known.get(file.seq, "")) for file in state.held)
    structure = state.structure or known.get(state.last_seq, "")
    return replace(state, structure=structure, queue=tuple(queue[seq] for seq in sorted(queue)), held=tuple(held))


def _with_finding(entry: QueueEntry, finding: Finding | None) -> QueueEntry:
    if finding is None:
        return entry
    if not finding.reason:
        return replace(entry, before=finding.before or finding.after, after=finding.after)
    asked = replace(entry, reason=finding.reason, verdict=OperatorDecision.NONE, replacement=())
    return replace(asked, before=finding.before or finding.after, after=finding.after)
