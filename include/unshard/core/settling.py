"""Structures behind a DDL that nobody could decide: what is known of a shard, and what follows once it was decided.

While the structure behind a queued DDL is unknown, so is everything after it: later DDL, held rows, the shard itself.
`settle` walks a shard's queue from its first unknown place and fills in what can be filled in now.

| the DDL, its structure before being known    | the structure behind it                                     |
|----------------------------------------------|-------------------------------------------------------------|
| an operator skips it                         | is that of before                                           |
| an operator replaces it                      | is what the statements make of that of before               |
| has a reason and no verdict                  | stays unknown, and all that follows                         |
| has no reason (it stood behind such a one,   | is asked of the target, even if it was skipped meanwhile; a |
| or an operator has ordered a retry)          | refusal becomes its reason                                  |
| is the first of a shard without a structure  | as above, on the structure that its group has               |

What does not come out (a replacement that does not fit, held rows that contradict the structure) puts the DDL
before the operator again, with the reason. Nothing is remembered: the same question gives the same answer, and one
that a window in flight has asked anew by committing old unknowns is answered anew.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from unshard.core.model import Shard, TableId
from unshard.core.shardgroup import chain
from unshard.core.window import EntryState, HeldFile, QueueEntry, ShardState, Verdict
from unshard.errors.ddl import EffectRefused, StructureUnknown
from unshard.errors.source import TableUnsupported


@dataclass(frozen=True, slots=True)
class Record:
    """A DDL of a shard, resolved or not, with what holds of it."""

    entry: QueueEntry
    verdict: Verdict
    """Of an order about this shard's DDL or, if there is none, about the lock that resolved it."""
    replacement: tuple[str, ...] = ()

    @property
    def is_answer(self) -> bool:
        """Whether the verdict says what the shard's DDL was; else only what the target is to execute."""
        return bool(self.entry.reason) or self.entry.verdict is Verdict.REPLACE


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A shard of which something is unknown."""

    shard: Shard
    target: TableId
    records: tuple[Record, ...]
    """All its DDL by number."""
    held: tuple[HeldFile, ...]
    """Its held files of unknown structure."""
    born: str = ""
    """Tells it from another shard that has got its name since."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What has become known of one DDL; an empty digest is still unknown."""

    seq: int
    before: str
    after: str
    reason: str = ""
    """A new reason why the operator is asked (again)."""


UNKNOWABLE = (EffectRefused, StructureUnknown, TableUnsupported)
"""What the target says when it cannot tell what a statement does; all else is trouble with the target itself."""
_REFUSALS = tuple(f"[{error.code}]" for error in UNKNOWABLE)


def is_refusal(reason: str) -> bool:
    """Whether the reason of a DDL is an answer of the target, which may be another one later."""
    return reason.startswith(_REFUSALS)


def is_refused(entry: QueueEntry) -> bool:
    """Whether a DDL waits because the target has refused it when it was asked what the DDL does."""
    return not entry.after and entry.verdict is Verdict.NONE and is_refusal(entry.reason)


Behind = Callable[[Record, str], tuple[str, str]]
"""The structure behind a DDL given that before it (empty: none), or the reason why there is none."""


def settled(shard: Unsettled, adopted: str, behind: Behind) -> Iterator[Finding]:
    """Yield what can be known now, in order; `adopted` is the structure of a shard that began without one."""
    known = ""
    for record in shard.records:
        entry = record.entry
        begins = entry.is_alone and (record.verdict is not Verdict.NONE or not entry.reason)
        before = entry.before or known or (adopted if begins else "")
        after, reason = entry.after, ""
        if not after and (before or begins) and _is_asked(record):
            after, reason = behind(record, before)
        if (before, after) != (entry.before, entry.after) or reason:
            yield Finding(entry.seq, before, after, reason)
        if not after:
            return
        known = after


def _is_asked(record: Record) -> bool:
    is_due = record.verdict is not Verdict.NONE or record.entry.state is EntryState.RESOLVED
    return is_due or not record.entry.reason


def adopted(group: Iterable[ShardState], shard: Shard) -> str:
    """Return the structure that a shard has if an operator says that it is like the others; empty if there are none."""
    others = (state for state in group if state.shard != shard and not state.has_left)
    ordered = sorted(others, key=lambda state: (state.shard.source != shard.source, state.shard))
    return next((chain(state)[0] for state in ordered if chain(state)[0]), "")


def structures_of(findings: Sequence[Finding], records: Sequence[Record]) -> dict[int, str]:
    """Return the known structure behind each DDL by its number."""
    known = {record.entry.seq: record.entry.after for record in records}
    known |= {finding.seq: finding.after for finding in findings}
    return {seq: digest for seq, digest in known.items() if digest}
