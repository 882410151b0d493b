"""Segments: the stored parts of a binlog, described by an index that planning reads instead of the events.

A segment contains either rows or exactly one statement (a DDL, or any other event that is neither a change of rows nor
transaction control). So every table has one structure within a segment. A change of rows that was logged as a statement
stays among the rows of its transaction, because the transaction may be rolled back.

`TransactionContent` has the content of one transaction in a form that two servers of one history share. A replica logs
the rows that it applies itself, so table ids, positions, the division of rows into events, compression, comments and
the order of different tables may differ. If the images of a table have other columns (`binlog_row_image`), only their
operations can be compared.

`Links` finds the stored segments that follow each other from a location on. Two pulls of one source may have stored
overlapping segments with different borders (after a kill or a retry, or at the same time). All contain the same bytes,
so any contiguous run is correct; the longest one is used.

The name of a segment has nearly all information, so a backlog is searched without reading its indexes. Only the
location after the last segment of a binlog file must be read from the index of that segment.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from unshard.core.model import Location, TableId
from unshard.errors.locks import SegmentGap
from unshard.errors.relay import RelayGap


@dataclass(frozen=True, slots=True)
class SchemaDefault:
    """The default character set and collation of the tables of a schema."""

    charset: str
    collation: str = ""
    """Empty: the default of the character set."""

    @property
    def options(self) -> str:
        """The options of CREATE TABLE that name it."""
        return f"DEFAULT CHARACTER SET {self.charset}" + (f" COLLATE {self.collation}" if self.collation else "")


@dataclass(frozen=True, slots=True)
class Statement:
    """A QUERY event other than transaction control, with the session variables that its meaning depends on."""

    text: str
    schema: str
    """Default schema of the session that ran it; may be empty."""
    sql_mode: int
    """MariaDB's bits; those of MySQL are converted (core.sql.mode)."""
    charset: str
    """character_set_client of the session; `text` is already decoded with it."""
    timestamp: int
    """Seconds since the epoch, UTC."""
    time_zone: str
    """Session time zone; empty if the event names none, because the statement has not used it."""
    microseconds: int = 0
    """Microseconds of the time stamp, if the statement used them."""
    session: tuple[tuple[str, int], ...] = ()
    """Other variables of the session, by the names that SET takes."""
    default: SchemaDefault | None = None
    """The default of the table's schema, if the statement depends on it."""
    collations: tuple[int, ...] = ()
    """Numbers of the collations that the session used for character sets without one."""
    uses: tuple[str, ...] = ()
    """The schemas of all tables that a change of rows uses, also by triggers; empty: the event does not tell."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A run of whole transactions inside a segment file: byte offsets in that file, end excluded."""

    start: int
    end: int
    tables: tuple[tuple[TableId, int], ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared XA transaction: its rows are applied only when it is committed."""

    xid: str
    segment: str
    """File name of the segment that contains it."""
    file: str
    start: int
    end: int
    """Byte offsets in that segment file, end excluded."""
    tables: tuple[tuple[TableId, int], ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of an XA transaction whose rows are in an earlier range or segment."""

    prepared: Prepared
    end: int
    """Position in the binlog file after its COMMIT."""


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
    """The history up to its end (core.relay.gtidset); empty if unknown."""
    first_time: int
    last_time: int
    """Time stamps of the first and last event, seconds since the epoch; 0 without events."""
    ranges: tuple[ByteRange, ...]
    statement: Statement | None = None
    next_file: str = ""
    """Set if a ROTATE event ends this segment: the next segment begins at `next_file`:4."""
    commits: tuple[Commit, ...] = ()
    """In the order of their COMMITs; without the commits whose rows are in the same range."""
    open: tuple[Prepared, ...] = ()
    """XA transactions that are prepared and neither committed nor rolled back at the segment's end."""
    next_position: int = 4
    """The position in `next_file` at which the next segment begins; it is not 4 only in a file of another server."""
    finished: tuple[str, ...] = ()
    """The last XA transactions that were committed or rolled back, to detect a repeated one."""
    changes: tuple[Statement, ...] = ()
    """Changes of rows that were logged as statements, without their values; each different one once."""

    @property
    def begins(self) -> Location:
        return Location(self.file, self.start)

    @property
    def ends(self) -> Location:
        """Where the next segment begins."""
        return Location(self.next_file, self.next_position) if self.next_file else Location(self.file, self.end)

    @property
    def pieces(self) -> "tuple[ByteRange | Prepared, ...]":
        """All parts to read when the segment is applied, including those in earlier segments."""
        return (*(commit.prepared for commit in self.commits), *self.ranges)

    @property
    def needs(self) -> frozenset[str]:
        """Names of the earlier segments whose rows are needed to apply this segment or a later one."""
        return frozenset(one.segment for one in (*self.open, *(commit.prepared for commit in self.commits)))

    @property
    def tables(self) -> frozenset[TableId]:
        return frozenset(table for piece in self.pieces for table, _ in piece.tables)

    @property
    def size(self) -> int:
        return self.end - self.start


# --- the content of one transaction, to compare it on two servers


SHOWN, BEFORE_DIFFERENCE = 60, 12
SHOWN_STATEMENT = 200
GENERATED = "/* generated by server */"


@dataclass(frozen=True, slots=True)
class RowImages:
    """The images of successive rows of a table, of one operation and with the same columns."""

    operation: str
    columns: tuple[int, ...]
    """The bitmaps of the columns that the images have; empty: all."""
    size: int
    digest: str
    head: bytes


@dataclass(frozen=True, slots=True)
class TransactionContent:
    """The rows of a transaction by table, and its statements."""

    rows: Mapping[TableId, Sequence[RowImages]] = field(default_factory=dict)
    statements: Sequence[str] = ()


def difference(ours: TransactionContent, theirs: TransactionContent) -> tuple[str, str] | None:
    """Return the first difference as both sides show it; None if the contents are the same."""
    for table in sorted({*ours.rows, *theirs.rows}, key=str):
        one, other = ours.rows.get(table, ()), theirs.rows.get(table, ())
        if _differ(one, other):
            return _both(table, one, other)
    if _plain(ours.statements) != _plain(theirs.statements):
        return _shown_statements(ours.statements), _shown_statements(theirs.statements)
    return None


def _differ(one: Sequence[RowImages], other: Sequence[RowImages]) -> bool:
    if {images.columns for images in one} != {images.columns for images in other}:
        return _operations(one) != _operations(other)
    return [_key(images) for images in one] != [_key(images) for images in other]


def _key(images: RowImages) -> tuple[object, ...]:
    return images.operation, images.columns, images.size, images.digest


def _operations(images: Iterable[RowImages]) -> list[str]:
    return [operation for operation, _ in groupby(images, key=lambda one: one.operation)]


def _both(table: TableId, one: Sequence[RowImages], other: Sequence[RowImages]) -> tuple[str, str]:
    number = 0
    while number < min(len(one), len(other)) and _key(one[number]) == _key(other[number]):
        number += 1
    mine = one[number] if number < len(one) else None
    their = other[number] if number < len(other) else None
    return _shown(table, mine, their), _shown(table, their, mine)


def _shown(table: TableId, images: RowImages | None, other: RowImages | None) -> str:
    if images is None:
        return f"no such change of {table}"
    start = f"{images.operation} {table} ({images.size} bytes of rows)"
    if other is None or images.operation != other.operation:
        return start
    pairs = zip(images.head, other.head, strict=False)
    at = next((place for place, (mine, theirs) in enumerate(pairs) if mine != theirs), None)
    if at is None:
        return f"{start}, SHA-256 {images.digest[:12]}"
    begin = max(at - BEFORE_DIFFERENCE, 0)
    return f"{start}, from byte {begin} on {images.head[begin : begin + SHOWN]!r}"


def _plain(statements: Sequence[str]) -> list[str]:
    return [" ".join(text.replace(GENERATED, "").split()) for text in statements]


def _shown_statements(statements: Sequence[str]) -> str:
    return "; ".join(text[:SHOWN_STATEMENT] for text in _plain(statements)) or "no statement"


# --- the stored segments that follow each other from a location on


POSITIONS = 1 << 32
FIRST_POSITION = 4


@dataclass(frozen=True, slots=True)
class Link:
    """A stored segment as its name describes it; the last one of a binlog file may really end in another file."""

    name: str
    begins: Location
    ends: Location

    @property
    def is_empty(self) -> bool:
        """Whether it contains only the location of the next segment."""
        return self.begins == self.ends


S = TypeVar("S", Link, Segment)


class Links:
    """All stored segments of a source, described by their names; `read` reads the index of a segment."""

    def __init__(self, links: Iterable[Link], read: Callable[[Link], Segment]) -> None:
        self.all = tuple(sorted(links, key=lambda link: (link.begins.order, link.ends.order)))
        self._read = read
        self._files: dict[str, list[Link]] = {}
        for link in self.all:
            self._files.setdefault(link.begins.file, []).append(link)

    def run(self, start: Location) -> Iterator[Segment]:
        """Yield the longest contiguous run from a location on; each index is read when the iterator reaches it."""
        for run in self._runs(start):
            yield from map(self._read, run)

    def following(self, start: Location) -> Iterator[Segment]:
        """Yield the run from a location on; raises RelayGap at its end if more segments are stored after a gap."""
        end = start
        for segment in self.run(start):
            yield segment
            end = segment.ends
        beyond = next((link for link in self.all if link.begins > end), None)
        if beyond:
            raise RelayGap(self._read(beyond).source, str(end), str(beyond.begins))

    def end(self, start: Location) -> Location:
        end = start
        for run in self._runs(start):
            end = self._read(run[-1]).ends
        return end

    def has_more(self, start: Location) -> bool:
        """Whether a segment begins there; raises RelayGap if not and more segments are stored after a gap."""
        begins = (link.begins for link in self._files.get(start.file, ()))
        return start in begins or next(self.following(start), None) is not None

    def ending_at(self, end: Location) -> Segment | None:
        """Return a segment that ends there; all such segments list the same open XA transactions."""
        there = [link for link in self._files.get(end.file, ()) if link.ends == end]
        before = [link for file in reversed(self._files) for link in self._last_of(file) if link.begins < end]
        return next((segment for segment in map(self._read, (*there, *before)) if segment.ends == end), None)

    def unneeded(self, before: Location) -> tuple[Link, ...]:
        """Return the segments that end at or before a location and to which no later segment refers.

        The segments that end at the location or after it name the segments that contain unfinished XA transactions;
        only these can be finished later. If no segment ends at the location, all stored segments are read.
        """
        older = [link for link in self.all if link.ends <= before]
        if not older:
            return ()
        lasts = {link for file in self._files for link in self._last_of(file)}
        around = [link for link in self.all if link.begins <= before <= link.ends]
        asked = [self._read(link) for link in {*around, *lasts.intersection(older)}]
        if not any(segment.ends == before for segment in asked):
            asked = [self._read(link) for link in self.all]
        kept = [one for one in asked if one.ends > before or (one.ends == before and (one.open or one.finished))]
        named = {segment.name for segment in kept}.union(*(segment.needs for segment in kept))
        return tuple(link for link in older if link.name not in named)

    def _runs(self, start: Location) -> Iterator[tuple[Link, ...]]:
        """Yield the run from a location on, separately for each binlog file."""
        at = start
        while run := longest_run(self._certain(at.file), at):
            yield run
            at = self._read(run[-1]).ends

    def _certain(self, file: str) -> list[Link]:
        """Return the links of a file; if several may be the last one, reads their indexes to find their real ends."""
        links, lasts = self._files.get(file, []), self._last_of(file)
        if len(lasts) > 1 or any(link.is_empty for link in lasts):
            links = [Link(link.name, link.begins, self._read(link).ends) if link in lasts else link for link in links]
        return [link for link in links if not link.is_empty]

    def _last_of(self, file: str) -> list[Link]:
        """Return the links whose real end may be in another file: those with the greatest end, and empty ones."""
        links = self._files.get(file, [])
        end = max((link.ends for link in links), default=None)
        return [link for link in links if link.ends == end or link.is_empty]


def chain(segments: Iterable[Segment], start: Location) -> tuple[Segment, ...]:
    """Return the longest contiguous run from `start`; raises RelayGap if more segments are stored after a gap."""
    stored = tuple(segments)
    run = longest_run(stored, start)
    end = run[-1].ends if run else start
    beyond = [segment for segment in stored if segment.begins > end]
    if beyond:
        first = min(beyond, key=lambda segment: segment.begins.order)
        raise RelayGap(first.source, str(end), str(first.begins))
    return run


def longest_run(segments: Iterable[S], start: Location) -> tuple[S, ...]:
    """Return the contiguous run from `start` that has the greatest end; empty if no segment begins there."""
    best: dict[tuple[int, int, int], tuple[Location, S]] = {}
    for segment in sorted(segments, key=lambda s: (s.begins.order, s.ends.order), reverse=True):
        reached = best[segment.ends.order][0] if segment.ends.order in best else segment.ends
        known = best.get(segment.begins.order)
        if known is None or known[0] < reached:
            best[segment.begins.order] = (reached, segment)
    run = []
    at = start
    while at.order in best:
        run.append(best[at.order][1])
        at = run[-1].ends
    return tuple(run)


def dump_start(spans: Iterable[Link | Segment], location: Location) -> Location:
    """Return the location from which to request a binlog dump that must reach `location`.

    The request has only four bytes for the position. A file is longer than 4 GiB only because of one large
    transaction, so little more than that transaction is read again.
    """
    if location.position < POSITIONS:
        return location
    ends = (at for span in spans for at in (span.begins, span.ends) if at.file == location.file)
    return Location(location.file, max((at.position for at in ends if at.position < POSITIONS), default=FIRST_POSITION))


def require_chain(source: str, checkpoint: Location, segments: Iterable[Segment]) -> None:
    """Raise SegmentGap unless the segments begin at the checkpoint and follow each other without a gap."""
    expected = checkpoint
    for segment in segments:
        if segment.begins != expected:
            raise SegmentGap(source, str(expected), str(segment.begins))
        expected = segment.ends
