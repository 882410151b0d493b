"""Finds the stored segments that follow each other from a location on.

Two pulls of one source may have stored overlapping segments with different borders (after a kill or a retry, or at the
same time). All contain the same bytes, so any contiguous run is correct; the longest one is used.

The name of a segment has nearly all information, so a backlog is searched without reading its indexes. Only the
location after the last segment of a binlog file must be read from the index of that segment.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from unshard.core.model import Location
from unshard.core.relay.segment import Segment
from unshard.errors.locks import SegmentGap
from unshard.errors.relay import RelayGap

POSITIONS = 1 << 32
FIRST_POSITION = 4


class BinlogSpan(Protocol):
    """A part of a binlog."""

    @property
    def begins(self) -> Location:
        """Where it begins."""

    @property
    def ends(self) -> Location:
        """Where the next one begins."""


S = TypeVar("S", bound=BinlogSpan)


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


def dump_start(spans: Iterable[BinlogSpan], location: Location) -> Location:
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
