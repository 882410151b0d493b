"""The plan of one window: the rows and DDL that are read, held, released and queued, decided before anything is done.

A window takes one source from its checkpoint to a later transaction border. Its plan is an immutable
value that is persisted before anything else happens; a retry finds and runs the same plan.

**Size**: a window should take about the wanted time, so that a failure costs little, other sources get their turn, and
written rows are visible soon. It must not bring more rows than memory holds, however well its binlog is compressed.

| known about the last windows                   | limit of the next window                                    |
|------------------------------------------------|-------------------------------------------------------------|
| nothing                                        | a quarter of the allowed bytes                              |
| their speed                                    | the bytes that fit into the wanted time at that speed       |
| they were small and fast                       | four times the largest of them                              |
| they were slow though small (costly start)     | still a sixteenth of the allowed bytes                      |
| how many rows a byte brings                    | the bytes of the allowed number of rows; this limit wins    |

A window of one target may have several sections of that size, as many as fit into the wanted time. It commits each of
them before the next, so only one is in memory.

Windows that are too small to measure a speed are not remembered, so a quiet night does not change the estimate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unshard.core.ddl.effects import SchemaStatement
from unshard.core.ddl.online import OnlineTables
from unshard.core.ddl.queue import HeldFile, QueueEntry
from unshard.core.model import Location, Shard, TableId
from unshard.core.rules.shardrows import ShardRows

REMEMBERED = 5
FIRST, LEAST, GROWTH = 4, 16, 4
SECTIONS = 8
"""The largest number of sections. The pause between two windows costs less for each section if there are more."""
TELLING = 64
"""A window is large enough to measure a speed if it has at least 1/64 of the allowed bytes or rows."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The size and the duration of one window."""

    bytes: int
    """Of binlog and of released files."""
    rows: int
    millis: int


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """The limits that the task file sets for windows."""

    bytes: int
    rows: int
    millis: int
    """The wanted time."""


def next_bytes(last: Sequence[Pace], limits: WindowLimits) -> int:
    """Return the maximum bytes of the next window; a single larger transaction may exceed it."""
    size, rows, millis = sum(p.bytes for p in last), sum(p.rows for p in last), sum(p.millis for p in last)
    if not size:
        return max(1, limits.bytes // FIRST)
    by_time = size * limits.millis // max(millis, 1)
    grown = GROWTH * max(pace.bytes for pace in last)
    by_rows = size * limits.rows // max(rows, 1)
    return max(1, min(by_rows, limits.bytes, max(limits.bytes // LEAST, min(by_time, grown))))


def next_sections(last: Sequence[Pace], limits: WindowLimits) -> int:
    """Return how many sections of `next_bytes` the next window may have."""
    size, millis = sum(p.bytes for p in last), sum(p.millis for p in last)
    if not size:
        return 1
    wanted = min(size * limits.millis // max(millis, 1), GROWTH * max(pace.bytes for pace in last))
    return max(1, min(SECTIONS, wanted // next_bytes(last, limits)))


def remembered(last: Sequence[Pace], new: Pace, limits: WindowLimits) -> tuple[Pace, ...]:
    """Return the remembered windows after another one, the oldest first."""
    if new.bytes * TELLING < limits.bytes and new.rows * TELLING < limits.rows:
        return tuple(last)
    return (*last, new)[-REMEMBERED:]


# --- the plan of a window


@dataclass(frozen=True, slots=True)
class Release:
    """Held rows of one shard that are applied before anything else of the window."""

    shard: Shard
    files: tuple[HeldFile, ...]
    target: TableId


@dataclass(frozen=True, slots=True)
class Drop:
    """Held rows of a shard that an operator has dropped: they are dropped too."""

    shard: Shard
    files: tuple[HeldFile, ...]


@dataclass(frozen=True, slots=True)
class Disposition:
    """How the rows of one shard in one segment are treated."""

    shard: Shard
    target: TableId
    structure: str
    """Digest of the structure of the rows; empty if it is unknown, so that they are held raw."""
    hold: int | None
    """Number of the queued DDL after which the rows wait; None: apply them."""
    start: Location | None
    """As in ShardState: rows of transactions that end at or before it are skipped."""
    until: Location | None = None
    """Rows of transactions that end after it belong to another disposition of the same table."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Rows of a shard that do not have the structure that is tracked for it: a DDL is missing in the binlog."""

    shard: Shard
    segment: str
    """File name of the segment that has the rows."""
    start: int
    """Start of the byte range in that file."""
    location: Location
    """Rows of transactions that end at or before it have the tracked structure."""
    columns: str
    """The columns of the first contradicting rows, as far as the binlog has them."""
    words: str
    """The difference, for messages."""
    part: int
    """Its number in the order in which the window reads."""
    committed: bool = False
    """As in Read."""


@dataclass(frozen=True, slots=True)
class Read:
    """One segment that is read; tables without a disposition are skipped."""

    segment: str
    """File name of the segment."""
    file: str
    """Binlog file of the segment, for messages and positions."""
    ranges: tuple[tuple[int, int], ...]
    """Byte ranges in the segment file; each is decoded by itself, on any executor."""
    dispositions: tuple[Disposition, ...]
    committed: bool = False
    """The range is an XA transaction that was prepared there; its COMMIT is in this window."""
    first_time: int = 0
    """Time stamp of the first event of the segment, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Border:
    """The end of a section that is not the last one: the rows before it are committed, and the window may end here."""

    reads: int
    """Number of the plan's reads before it."""
    ends: Location
    gtid: str
    """As in Plan."""
    last_time: int
    """As in Plan."""


@dataclass(frozen=True, slots=True)
class StructureChange:
    """From `location` on the shard has this structure; None: it has left its group; empty: the structure is unknown."""

    shard: Shard
    target: TableId
    location: Location
    structure: str | None
    joins: bool = False
    peer: Shard | None = None
    """The shard of the group whose structures the new shard was compared with."""
    peer_uid: str = ""
    """Identifies the peer if it is renamed before this window is committed."""
    expects: tuple[int, ...] = ()
    """The peer's queue entries that the new shard has too or will have. If a lock resolves one of them before this
    window is committed, the new shard gets a pending skip for that lock, and copies of the peer's pending skips."""
    is_mismatched: bool = False
    """It matches no shard of the group: an operator decides about the shard and about its target table."""
    forgets_start: bool = False
    """The target has nothing of the shard's dump any more: all rows after `location` come from the binlog."""
    makes_target: bool = True
    """The first shard of a group creates the target table, unless a filter ignores its CREATE TABLE."""


@dataclass(frozen=True, slots=True)
class Rename:
    """A shard and its stored state get another name; the last effect of a window."""

    shard: Shard
    to: TableId
    location: Location


@dataclass(frozen=True, slots=True)
class Deletion:
    """A shard was dropped or truncated, and a merged target loses its rows; the held ones are dropped."""

    shard: Shard
    target: TableId
    location: Location
    """End of the statement; the window has no row of the shard from after it."""
    text: str
    """The statement, without its strings."""
    rows: ShardRows


@dataclass(frozen=True, slots=True)
class UnreadStatement:
    """A statement that could not be read and concerns no shard: it is skipped, and recorded for the operator."""

    location: Location
    text: str


@dataclass(frozen=True, slots=True)
class AppliedCommand:
    """An operator's command about a statement of the window (core.ddl.statementcommands)."""

    number: int
    location: Location
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
    """The GTIDs up to `ends`; empty if unknown."""
    last_time: int
    """Time stamp of the last event before `ends`; the lag is measured from it."""
    ignored: int = 0
    """Number of statements of shards that are ignored on purpose, such as TRUNCATE."""
    renames: tuple[Rename, ...] = ()
    """Done at the same time, as a swap of names needs; the window ends with the statement that renames."""
    drops: tuple[Drop, ...] = ()
    passed: int = 0
    """Number of row events of dropped shards and of sequences; they are skipped."""
    unread: tuple[UnreadStatement, ...] = ()
    sequences: tuple[TableId, ...] | None = None
    """All sequences of the source after the window; None: unchanged."""
    applied_commands: tuple[AppliedCommand, ...] = ()
    orders: tuple[int, ...] = ()
    """Numbers of all commands that were waiting when the window was planned."""
    online_tables: OnlineTables | None = None
    """All tables of online DDL tools after the window; None: unchanged."""
    schemas: tuple[SchemaStatement, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    """Found by an earlier plan of this window. That plan was replaced before a target got any of its rows."""
    deletions: tuple[Deletion, ...] = ()
    """Done after the rows of the window; no row from after the first of them is in this window."""
    borders: tuple[Border, ...] = ()
    """The borders of the sections. Only a large window that applies rows to one target and does nothing else has more
    than one section. Each section is one transaction or more, and has its own number for the fence."""

    @property
    def last_number(self) -> int:
        """The number of the last section: the next window follows it."""
        return self.number + len(self.borders)

    def reaches_multiple(self, every: int) -> bool:
        """Whether one of its sections has a number that is a multiple of `every`."""
        return self.last_number // every > (self.number - 1) // every

    def until(self, sections: int) -> "Plan":
        last = self.borders[sections - 1]
        reads, borders = self.reads[: last.reads], self.borders[: sections - 1]
        return replace(self, ends=last.ends, gtid=last.gtid, last_time=last.last_time, reads=reads, borders=borders)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do: no segment to read, and nothing to release or drop."""
        return self.begins == self.ends and not self.releases and not self.drops

    @property
    def bytes(self) -> int:
        """Bytes that are read: of the binlog and of held files."""
        ranges = (end - start for read in self.reads for start, end in read.ranges)
        return sum(ranges) + sum(file.bytes for release in self.releases for file in release.files)

    @property
    def targets(self) -> frozenset[TableId]:
        applied = (d.target for read in self.reads for d in read.dispositions if d.hold is None)
        return frozenset(applied) | frozenset(release.target for release in self.releases)

    @property
    def fenced(self) -> frozenset[TableId]:
        """The target tables that need a fence: those that the window may write or delete from."""
        return self.targets | {each.target for each in self.deletions}

    @property
    def first_of_group(self) -> tuple[StructureChange, ...]:
        """The new shards that are the first of their group and bring the target table with them."""
        first = (change for change in self.structures if change.joins and change.structure and change.peer is None)
        return tuple(change for change in first if change.makes_target and not change.is_mismatched)

    @property
    def moves_rows(self) -> bool:
        return bool(self.releases) or any(read.dispositions for read in self.reads)
