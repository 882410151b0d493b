"""What the relay knows of a stored piece of binlog: the index that planning reads instead of events.

A segment holds either rows or exactly one statement (a DDL, or anything else that is not a row and
not transaction control). So inside a segment every table has one structure.
"""

from dataclasses import dataclass

from unshard.core.model import Location, TableId


@dataclass(frozen=True, slots=True)
class SchemaDefault:
    """Character set and collation that a schema gives to its tables."""

    charset: str
    collation: str = ""
    """Empty: the character set's own."""

    @property
    def options(self) -> str:
        """The options of CREATE TABLE that name it."""
        return f"DEFAULT CHARACTER SET {self.charset}" + (f" COLLATE {self.collation}" if self.collation else "")


@dataclass(frozen=True, slots=True)
class Statement:
    """A QUERY event that is no transaction control, with what its meaning depends on."""

    text: str
    schema: str
    """Default schema of the session that ran it; may be empty."""
    sql_mode: int
    """Bits of MariaDB; those of MySQL are translated (core.sqlmode)."""
    charset: str
    """character_set_client of the session; `text` is already decoded with it."""
    timestamp: int
    """Seconds since the epoch, UTC."""
    time_zone: str
    """Session time zone, `SYSTEM` when the event names none."""
    microseconds: int = 0
    """Of the time stamp, when the statement asked for them."""
    session: tuple[tuple[str, int], ...] = ()
    """Other variables of the session, by the names that SET takes."""
    default: SchemaDefault | None = None
    """Of the schema of the table that is created or altered, if the statement relies on it."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A run of whole transactions inside a segment file: byte offsets in that file, end excluded."""

    start: int
    end: int
    tables: tuple[tuple[TableId, int], ...]
    """Row events per table."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """An XA transaction that was prepared: its rows count only if and when it is committed."""

    xid: str
    segment: str
    """File name of the segment that holds it."""
    file: str
    start: int
    end: int
    """Byte offsets in that segment file, as those of a range."""
    tables: tuple[tuple[TableId, int], ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of an XA transaction whose rows stand in an earlier range or segment."""

    prepared: Prepared
    end: int
    """Position in the binlog file behind its COMMIT."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One immutable relay file: binlog bytes [start, end) of `file`, whole transactions only."""

    source: str
    file: str
    start: int
    end: int
    name: str
    """File name below the source's relay folder."""
    gtid: str
    """The history up to its end (core.gtidset), empty when unknown."""
    first_time: int
    last_time: int
    """Time stamps of the first and last event, seconds since the epoch; 0 when it has none."""
    ranges: tuple[ByteRange, ...]
    statement: Statement | None = None
    next_file: str = ""
    """Set when a ROTATE event ends this segment: reading goes on at `next_file`:4."""
    commits: tuple[Commit, ...] = ()
    """In the order of their COMMITs; those whose rows are in one range with theirs are not among them."""
    open: tuple[Prepared, ...] = ()
    """XA transactions that are prepared and neither committed nor rolled back at the segment's end."""
    next_position: int = 4
    """Where reading goes on there; another one only in a file of another server."""
    finished: tuple[str, ...] = ()
    """The last XA transactions that were committed or rolled back, so that a repeated one is known."""

    @property
    def begins(self) -> Location:
        return Location(self.file, self.start)

    @property
    def ends(self) -> Location:
        """Where the next segment begins."""
        return Location(self.next_file, self.next_position) if self.next_file else Location(self.file, self.end)

    @property
    def pieces(self) -> "tuple[ByteRange | Prepared, ...]":
        """All that is read when the segment is passed, also of earlier ones."""
        return (*(commit.prepared for commit in self.commits), *self.ranges)

    @property
    def needs(self) -> frozenset[str]:
        """Names of the segments that rows are read from when this one is passed, or a later one may be."""
        return frozenset(one.segment for one in (*self.open, *(commit.prepared for commit in self.commits)))

    @property
    def tables(self) -> frozenset[TableId]:
        """The tables whose rows are read when the segment is passed."""
        return frozenset(table for piece in self.pieces for table, _ in piece.tables)

    @property
    def size(self) -> int:
        """Bytes of binlog."""
        return self.end - self.start
