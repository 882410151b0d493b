"""The queue of a shard: the DDLs that it has reached and that its group has not resolved, and the held rows."""

from dataclasses import dataclass, replace
from enum import StrEnum

from unshard.core.model import Location, Shard, TableId
from unshard.core.relay.segment import Statement


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
    """The statements that replace it."""
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
