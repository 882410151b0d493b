"""The plan of one window: what is read, held, released and queued, decided before anything is done.

A window takes one source from its checkpoint to a later transaction border. Its plan is an immutable
value, persisted before anything else happens; a retry finds and runs the same plan.
"""

from dataclasses import dataclass
from enum import StrEnum

from unshard.core.model import Location, Shard, TableId
from unshard.core.online import Ghosts
from unshard.core.segment import Statement


class EntryState(StrEnum):
    """Where a queued DDL of one shard stands."""

    PENDING = "pending"
    RESOLVED = "resolved"
    """Executed on the target by a lock, or skipped: the rows behind it may go on."""


class Verdict(StrEnum):
    """What an operator has said about a DDL that unshard cannot decide by itself, or should not."""

    NONE = ""
    SKIP = "skip"
    """Nothing is executed on the target for it."""
    REPLACE = "replace"
    """Other statements take its place."""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A DDL that a shard has reached and that its group has not resolved."""

    shard: Shard
    target: TableId
    seq: int
    """Position in this shard's queue: 1, 2, 3, … for ever."""
    location: Location
    """End of the DDL event; rows behind it have the structure `after`."""
    statement: Statement
    routed: str
    """The statement with the target's name in place of the shard's; executed on the target."""
    agreement: str
    """The routed statement as tokens joined by one blank: equal for DDLs that agree."""
    before: str
    after: str
    """Digests of the shard's structure on both sides of the DDL; empty while it is not known."""
    state: EntryState = EntryState.PENDING
    reason: str = ""
    """Why unshard cannot tell what it means for the group: never executed or resolved but by an operator's order."""
    is_alone: bool = False
    """It concerns this shard only (one that was created unlike its group): no other shard will bring it."""
    verdict: Verdict = Verdict.NONE
    """What an operator has said about this shard's entry; what was said about all is with the lock."""
    replacement: tuple[str, ...] = ()
    """The statements that count in its place."""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A Parquet file of rows that wait behind a DDL; exists only once a window has committed it."""

    shard: Shard
    seq: int
    """The rows stand behind DDL number `seq` of the shard's queue and before number `seq`+1."""
    window: int
    part: int
    """Order of the files of one window."""
    path: str
    """Relative to the storage path."""
    rows: int
    """Of a raw file, its row events: how many rows each has cannot be told."""
    bytes: int
    structure: str
    """Digest of the structure that the rows have; empty while it is not known."""
    safe: bool = False
    """Held by a window in safe mode: the dump may have seen these rows, so their release is safe too."""
    is_raw: bool = False
    """It holds events of the binlog instead of rows, because the structure was not known when it was written."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """All that planning needs to know of one shard at the checkpoint."""

    shard: Shard
    target: TableId
    structure: str
    """Digest of the structure of the next row in the binlog."""
    start: Location | None
    """Rows that end at or before it are in the dump already (tables read in one snapshot)."""
    queue: tuple[QueueEntry, ...]
    """Pending entries only, oldest first."""
    last_seq: int
    """The highest number ever queued, 0 when there was none."""
    held: tuple[HeldFile, ...]
    """Committed and not yet applied, in order of (seq, window, part)."""
    has_left: bool = False
    """Dropped upstream, but DDL or held rows of it still wait."""
    born: str = ""
    """What names the shard for ever, in its source: it stays when the table is renamed."""
    is_dropped: bool = False
    """An operator has dropped it from its group: its rows and DDL are passed over while the table exists upstream."""


@dataclass(frozen=True, slots=True)
class Release:
    """Held rows of one shard that are applied before anything else of the window."""

    shard: Shard
    files: tuple[HeldFile, ...]
    target: TableId


@dataclass(frozen=True, slots=True)
class Drop:
    """What waited of a shard that an operator has dropped: it is dropped too."""

    shard: Shard
    files: tuple[HeldFile, ...]


@dataclass(frozen=True, slots=True)
class Disposition:
    """What happens in one segment to the rows of one shard."""

    shard: Shard
    target: TableId
    structure: str
    """Digest of the structure that the rows have; empty: it is not known, so they are held raw."""
    hold: int | None
    """Number of the queued DDL that the rows wait behind; None: apply them."""
    start: Location | None
    """As in ShardState: rows of transactions that end at or before it are passed over."""
    until: Location | None = None
    """Rows of transactions that end after it are left to another disposition of the same table."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Rows of a shard that do not have the structure that is tracked for it: a DDL is missing in the binlog."""

    shard: Shard
    segment: str
    """File name of the segment that has the rows."""
    start: int
    """Where the byte range begins in that file."""
    location: Location
    """Rows of transactions that end up to it have the tracked structure."""
    columns: str
    """The columns of the first rows that contradict, as far as the binlog tells."""
    words: str
    """What differs."""
    part: int
    """Its place in the order of all that the window reads."""
    committed: bool = False
    """As in Read."""


@dataclass(frozen=True, slots=True)
class Read:
    """One segment to be read; tables without a disposition are passed over."""

    segment: str
    """File name of the segment."""
    file: str
    """Binlog file of the segment, for messages and positions."""
    ranges: tuple[tuple[int, int], ...]
    """Byte ranges in the segment file; each is decoded alone, anywhere."""
    dispositions: tuple[Disposition, ...]
    committed: bool = False
    """The range is an XA transaction that was prepared there; its COMMIT is in this window."""


@dataclass(frozen=True, slots=True)
class StructureChange:
    """From `location` on the shard has this structure; None: it has left its group; empty: nobody knows yet."""

    shard: Shard
    target: TableId
    location: Location
    structure: str | None
    joins: bool = False
    """The shard enters its group here."""
    peer: Shard | None = None
    """The shard of the group by whose structures the new one was let in."""
    peer_born: str = ""
    """Finds the peer if it is renamed before this window is committed."""
    expects: tuple[int, ...] = ()
    """The peer's queue entries that the new shard has too or will have. If a lock resolves one before
    this window is committed, the new shard owes that lock a skip, like what the peer owes already."""
    is_strange: bool = False
    """It fits no shard of the group: an operator says how it goes on, also with the target table."""
    makes_target: bool = True
    """As the first of its group it brings the target table with it, unless a filter ignores its CREATE."""


@dataclass(frozen=True, slots=True)
class Rename:
    """A shard gets another name, and all that is kept of it; the last thing that a window does."""

    shard: Shard
    to: TableId
    location: Location


@dataclass(frozen=True, slots=True)
class Passed:
    """A statement that could not be read and concerns no shard: it is passed over, and kept to be looked at."""

    location: Location
    """End of its event."""
    text: str
    """Without its strings."""


@dataclass(frozen=True, slots=True)
class Obeyed:
    """An operator's order about a statement (core.ddlorders) that the window meets."""

    number: int
    location: Location
    """Where the statement begins."""
    text: str
    """The statement, without its strings."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one window of one source will do, in order: release, read, commit, rename."""

    source: str
    number: int
    begins: Location
    ends: Location
    safe: bool
    """Safe mode: the rows may be in the target already, so every write must be repeatable."""
    releases: tuple[Release, ...]
    reads: tuple[Read, ...]
    queued: tuple[QueueEntry, ...]
    structures: tuple[StructureChange, ...]
    gtid: str
    """The history up to `ends`; empty if it is not known."""
    last_time: int
    """Time stamp of the last event before `ends`; what lag is measured from."""
    ignored: int = 0
    """Statements of shards that are passed over on purpose, like TRUNCATE."""
    renames: tuple[Rename, ...] = ()
    """All at once, as a swap needs it; nothing of the binlog behind the statement is in this window."""
    drops: tuple[Drop, ...] = ()
    passed: int = 0
    """Row events of dropped shards and of sequences that are passed over."""
    unread: tuple[Passed, ...] = ()
    sequences: tuple[TableId, ...] | None = None
    """All sequences of the source behind the window; None: the same as before."""
    obeyed: tuple[Obeyed, ...] = ()
    """Orders about statements of the window."""
    orders: tuple[int, ...] = ()
    """All orders that waited when it was planned."""
    ghosts: Ghosts | None = None
    """All tables of tools that change shards online, behind the window; None: the same as before."""
    contradictions: tuple[Contradiction, ...] = ()
    """What an earlier plan of this window has met. That plan was replaced before a target got any of its rows."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do at all: no segment to pass and nothing to release or drop."""
        return self.begins == self.ends and not self.releases and not self.drops

    @property
    def bytes(self) -> int:
        """How much is read: binlog, and files by their size."""
        ranges = (end - start for read in self.reads for start, end in read.ranges)
        return sum(ranges) + sum(file.bytes for release in self.releases for file in release.files)

    @property
    def targets(self) -> frozenset[TableId]:
        """The target tables that the window may write."""
        applied = (d.target for read in self.reads for d in read.dispositions if d.hold is None)
        return frozenset(applied) | frozenset(release.target for release in self.releases)

    @property
    def moves_rows(self) -> bool:
        """Whether a Spark job is needed at all."""
        return bool(self.releases) or any(read.dispositions for read in self.reads)
