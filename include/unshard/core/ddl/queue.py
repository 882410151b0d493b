"""The shards of one target: the queue of each, which DDL each has reached, and which source is ready.

The queue of a shard has the DDLs that it has reached and that its group has not resolved, with the held rows. A group
consists of all shards of one target, in any source. The group is not stored: it is derived from the states of the
shards, so it never contradicts them. A shard that was dropped upstream leaves its group. While DDL or rows of it wait,
it is still considered, but no lock waits for it. A shard that an operator has dropped is in no group: the next window
of its source drops its waiting DDL and rows.

A source is *ready* when each of its shards has the same DDL at the head of its queue and no held rows
that could be applied before it. The cases of one shard:

| queue        | held files before the head | the shard                                      |
|--------------|----------------------------|------------------------------------------------|
| empty        | none                       | has not reached the DDL: the lock waits for it |
| empty        | some                       | its rows after a resolved DDL are released now |
| head agrees  | none                       | ready                                          |
| head agrees  | some                       | draining: older rows must be applied first     |
| head differs | any                        | in conflict                                    |

A new shard is admitted if another shard has, had or will have its structure. If none matches, the new shard waits for
an operator, or until its group has reached its structure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from unshard.core.model import Location, Shard, TableId, shape_of
from unshard.core.relay.segment import Statement
from unshard.errors.locks import ShardDdlRefused


class EntryState(StrEnum):
    """The state of a queued DDL of one shard."""

    PENDING = "pending"
    RESOLVED = "resolved"
    """Executed on the target by a lock, or skipped: the rows after it may be released."""


class OperatorDecision(StrEnum):
    """An operator's decision about a DDL."""

    NONE = ""
    SKIP = "skip"
    """Nothing is executed on the target for it."""
    REPLACE = "replace"
    """Other statements are executed instead."""


class WholeChange(StrEnum):
    """The effect of a statement on a one-to-one target as a whole (core.ddl.onetoone)."""

    NONE = ""
    """Nothing: it changes the structure."""
    TRUNCATE = "truncate"
    DROP = "drop"
    RENAME = "rename"
    CREATE = "create"
    """It creates the table again after a DROP, or follows a table that a RENAME has moved to its name."""

    @property
    def removes(self) -> bool:
        """Whether the target table does not exist after it."""
        return self in (WholeChange.DROP, WholeChange.RENAME)


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A DDL that a shard has reached and that its group has not resolved."""

    shard: Shard
    target: TableId
    seq: int
    """Number in this shard's queue: 1, 2, 3, …; a number is never used again."""
    location: Location
    """End of the DDL event; rows after it have the structure `after`."""
    statement: Statement
    routed: str
    """The statement with the target's name in place of the shard's; executed on the target."""
    fingerprint: str
    """The normalized tokens of the routed statement, joined by one blank: equal for DDLs that agree."""
    before: str
    after: str
    """Digests of the shard's structure before and after the DDL; empty while it is unknown."""
    state: EntryState = EntryState.PENDING
    reason: str = ""
    """Why its effect on the group is unknown; if set, the DDL is executed or resolved only by an operator's command."""
    is_alone: bool = False
    """It concerns only this shard, whose first structure does not match its group: no other shard will run it."""
    verdict: OperatorDecision = OperatorDecision.NONE
    """An operator's decision about this shard's entry; a decision for all shards is stored in the lock."""
    replacement: tuple[str, ...] = ()
    whole: WholeChange = WholeChange.NONE
    is_unnamed: bool = False
    """The structures after it lack the target's names of columns, which follow from `replacement`
    (core.ddl.columnnames); the next window of its source adds them."""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A Parquet file of rows that wait for a DDL to be resolved; it is valid only after a window has committed it."""

    shard: Shard
    seq: int
    """The rows were written after DDL number `seq` of the shard's queue and before number `seq`+1."""
    window: int
    part: int
    """Order of the files of one window."""
    path: str
    """Relative to the storage path."""
    rows: int
    """Number of rows; of row events in a raw file, because the number of rows in an event is unknown."""
    bytes: int
    structure: str
    """Digest of the structure of the rows; empty while it is unknown."""
    safe: bool = False
    """Held by a window in safe mode: the dump may contain these rows, so their release uses safe mode, too."""
    is_raw: bool = False
    """It contains binlog events instead of rows, because the structure was unknown when it was written."""
    first_time: int = 0
    """Time stamp before which none of its rows was changed, in seconds since 1970; 0: unknown."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """The state of one shard at the checkpoint, as planning needs it."""

    shard: Shard
    target: TableId
    structure: str
    """Digest of the structure of the next row in the binlog."""
    start: Location | None
    """Row events that end at or before it are in the dump already (for tables that were read in one snapshot)."""
    queue: tuple[QueueEntry, ...]
    """Pending entries only, oldest first."""
    last_seq: int
    """The highest number ever used in the queue; 0 if there was none."""
    held: tuple[HeldFile, ...]
    """Committed files that are not yet applied, in order of (seq, window, part)."""
    has_left: bool = False
    """It was dropped upstream, and DDL or held rows of it are still waiting."""
    shard_uid: str = ""
    """Permanent id of the shard, unique in its source: it does not change when the table is renamed."""
    is_dropped: bool = False
    """An operator has dropped it from its group: its rows and DDL are ignored while the table exists upstream."""


@dataclass(frozen=True, slots=True)
class UnnamedShard:
    """A shard one of whose DDLs counts as another one, while its structures have its own names of columns only.

    core.ddl.columnnames adds the names that the target has.
    """

    shard: Shard
    entries: tuple[QueueEntry, ...]
    """That DDL and all later ones of the shard, resolved or not."""
    held: tuple[HeldFile, ...]
    structure: str
    """Digest of the structure of the next row."""
    shard_uid: str = ""
    """Identifies the shard if another shard has its name by now."""

    @property
    def digests(self) -> set[str]:
        """The structures that `named` needs."""
        found = {digest for entry in self.entries for digest in (entry.before, entry.after)}
        return (found | {file.structure for file in self.held} | {self.structure}) - {""}

    def of(self, state: ShardState) -> ShardState:
        entries = {entry.seq: entry for entry in self.entries}
        queue = (entries.get(entry.seq, entry) for entry in state.queue)
        pending = tuple(entry for entry in queue if entry.state is EntryState.PENDING)
        return replace(state, queue=pending, held=self.held, structure=self.structure)


# --- the shards of one target, and which DDL each has reached


def groups(shards: Iterable[ShardState]) -> Mapping[TableId, tuple[ShardState, ...]]:
    """Group shards by target, each group sorted by the names of its shards."""
    found: dict[TableId, list[ShardState]] = defaultdict(list)
    for state in sorted(shards, key=lambda state: state.shard):
        if not state.is_dropped:
            found[state.target].append(state)
    return {target: tuple(states) for target, states in sorted(found.items())}


def head(state: ShardState) -> QueueEntry | None:
    """Return the oldest DDL of the shard that is not resolved."""
    return state.queue[0] if state.queue else None


def releasable(state: ShardState) -> tuple[HeldFile, ...]:
    """Return the held files that precede the head of the queue, oldest first."""
    first = head(state)
    held = () if state.is_dropped else state.held
    ready = (file for file in held if first is None or file.seq < first.seq)
    return tuple(sorted(ready, key=lambda file: (file.seq, file.window, file.part)))


def is_alone(state: ShardState) -> bool:
    """Whether the DDL at the head of the queue concerns only this shard, so that it is not a normal member yet."""
    first = head(state)
    return first is not None and first.is_alone


def agrees(state: ShardState, fingerprint: str) -> bool:
    """Whether the shard has a DDL with this fingerprint at the head of its queue."""
    first = head(state)
    return first is not None and first.fingerprint == fingerprint


def complete_sources(members: Iterable[ShardState], ready: Collection[Shard]) -> tuple[str, ...]:
    """Return the sources all of whose existing shards are in `ready`, by name."""
    incomplete: dict[str, bool] = {}
    for state in members:
        if not state.has_left:
            incomplete[state.shard.source] = incomplete.get(state.shard.source, False) or state.shard not in ready
    return tuple(sorted(source for source, is_incomplete in incomplete.items() if not is_incomplete))


def chain(state: ShardState) -> tuple[str, ...]:
    """Return the structures from before the oldest pending DDL to after the newest."""
    if not state.queue:
        return (state.structure,)
    return (state.queue[0].before, *(entry.after for entry in state.queue))


def last_index(structures: Sequence[str], wanted: str) -> int | None:
    """Return the last index of this structure, else of one that differs only in text (comments, CHECKs), else None."""
    exact = [index for index, found in enumerate(structures) if found == wanted]
    alike = [index for index, found in enumerate(structures) if shape_of(found) == shape_of(wanted)]
    found = exact or alike
    return found[-1] if found else None


# --- admission of a new shard to its group


REFUSED = f"[{ShardDdlRefused.code}]"
"""Begins the reason why a table that got the name of a shard waits: an equal structure does not make it that shard."""


def matching_shard(group: Sequence[ShardState], structure: str, source: str) -> tuple[ShardState | None, int]:
    """Find a shard of the group that has, had or will have that structure, and after how many of its pending DDLs.

    Shards of the same source are preferred, then the shards with the most pending DDLs. A dropped shard with pending
    DDLs is used only if no other shard matches. A shard can match at several points, because a DDL may leave the
    structure unchanged. Then the newest point is used: an operator who rolls out a DDL to the existing tables does not
    run it on a table that was created in the meantime.
    """
    fit = (state for state in group if not any(entry.is_alone for entry in state.queue))
    ranked = sorted(fit, key=lambda s: (s.has_left, s.shard.source != source, -len(s.queue), s.shard))
    for state in ranked:
        if (position := last_index(chain(state), structure)) is not None:
            return state, position
    return None, 0


@dataclass(frozen=True, slots=True)
class Admission:
    """A mismatched new shard whose group has reached its structure: it becomes a normal member."""

    shard: Shard
    seq: int
    peer: Shard
    """A member of the group with the same structure."""
    shard_uid: str = ""
    peer_uid: str = ""
    """Identify shard and peer if other shards have their names by now."""


def admissions(members: Sequence[ShardState]) -> tuple[Admission, ...]:
    """Return the shards whose group has reached the structure that they were created with."""
    found = []
    for state in members:
        if _is_undecided_alone(state):
            peers = [p for p in _peers(members, state) if last_index(chain(p), state.queue[0].after) == 0]
            found += [
                Admission(state.shard, state.queue[0].seq, peer.shard, state.shard_uid, peer.shard_uid)
                for peer in peers[:1]
            ]
    return tuple(found)


def is_expected(members: Sequence[ShardState], state: ShardState) -> bool:
    """Whether another shard will have the structure that this one was created with, once its DDLs are resolved."""
    return _is_undecided_alone(state) and any(
        last_index(chain(peer), state.queue[0].after) for peer in _peers(members, state)
    )


def _is_undecided_alone(state: ShardState) -> bool:
    if not is_alone(state) or state.queue[0].whole is not WholeChange.NONE:
        return False
    first = state.queue[0]
    is_refused = first.reason.startswith(REFUSED)
    return bool(first.after) and first.verdict is OperatorDecision.NONE and not is_refused


def _peers(members: Sequence[ShardState], state: ShardState) -> list[ShardState]:
    """Return the shards to compare a new shard with: those of its source first, dropped ones last."""
    others = (p for p in members if not p.is_dropped and not any(entry.is_alone for entry in p.queue))
    return sorted(others, key=lambda p: (p.has_left, p.shard.source != state.shard.source, p.shard))
