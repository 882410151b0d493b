"""Which stored segments follow each other from a location on.

Two pulls of one source may have stored overlapping segments (killed, retried, at the same time), cut at
different borders. All hold the same bytes, so any contiguous run is right; the longest one is taken.

The name of a segment tells nearly all of it, so a backlog is passed without reading its indexes: only where reading
goes on behind the last segment of a binlog file stands in nothing but its index.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from unshard.core.model import Location
from unshard.core.segment import Segment
from unshard.errors.relay import RelayGap
from unshard.errors.shardddl import SegmentGap

POSITIONS = 1 << 32
FIRST_POSITION = 4


class Span(Protocol):
    """A piece of a binlog."""

    @property
    def begins(self) -> Location:
        """Where it begins."""

    @property
    def ends(self) -> Location:
        """Where the next one begins."""


S = TypeVar("S", bound=Span)


@dataclass(frozen=True, slots=True)
class Link:
    """A stored segment as its name tells it; the last one of a binlog file may end in another file in truth."""

    name: str
    begins: Location
    ends: Location

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing but where reading goes on."""
        return self.begins == self.ends


class Links:
    """All stored segments of a source by their names; `read` reads the index of one."""

    def __init__(self, links: Iterable[Link], read: Callable[[Link], Segment]) -> None:
        self.all = tuple(sorted(links, key=lambda link: (link.begins.order, link.ends.order)))
        self._read = read
        self._files: dict[str, list[Link]] = {}
        for link in self.all:
            self._files.setdefault(link.begins.file, []).append(link)

    def run(self, start: Location) -> Iterator[Segment]:
        """Yield the longest contiguous run from a location on; each index is read when it is asked for."""
        for run in self._runs(start):
            yield from map(self._read, run)

    def following(self, start: Location) -> Iterator[Segment]:
        """Yield the run from a location on; RelayGap where it ends and more is stored behind a hole."""
        end = start
        for segment in self.run(start):
            yield segment
            end = segment.ends
        beyond = next((link for link in self.all if link.begins > end), None)
        if beyond:
            raise RelayGap(self._read(beyond).source, str(end), str(beyond.begins))

    def end(self, start: Location) -> Location:
        """Return how far the run from a location reaches."""
        end = start
        for run in self._runs(start):
            end = self._read(run[-1]).ends
        return end

    def has_more(self, start: Location) -> bool:
        """Whether a segment begins there; RelayGap if none does and more is stored behind a hole."""
        begins = (link.begins for link in self._files.get(start.file, ()))
        return start in begins or next(self.following(start), None) is not None

    def ending_at(self, end: Location) -> Segment | None:
        """Return a segment that ends there: what it says about XA transactions holds for all that do."""
        there = [link for link in self._files.get(end.file, ()) if link.ends == end]
        before = [link for file in reversed(self._files) for link in self._last_of(file) if link.begins < end]
        return next((segment for segment in map(self._read, (*there, *before)) if segment.ends == end), None)

    def unneeded(self, before: Location) -> tuple[Link, ...]:
        """Return the segments that end at or before a location and that nothing behind it refers to.

        Those that end there or go beyond name what holds XA transactions which are not finished there: behind it no
        other one can be finished. Where none ends there, all that is stored is asked.
        """
        passed = [link for link in self.all if link.ends <= before]
        if not passed:
            return ()
        lasts = {link for file in self._files for link in self._last_of(file)}
        around = [link for link in self.all if link.begins <= before <= link.ends]
        asked = [self._read(link) for link in {*around, *lasts.intersection(passed)}]
        if not any(segment.ends == before for segment in asked):
            asked = [self._read(link) for link in self.all]
        kept = [one for one in asked if one.ends > before or (one.ends == before and (one.open or one.finished))]
        named = {segment.name for segment in kept}.union(*(segment.needs for segment in kept))
        return tuple(link for link in passed if link.name not in named)

    def _runs(self, start: Location) -> Iterator[tuple[Link, ...]]:
        """Yield the run from a location on, that of each binlog file by itself."""
        at = start
        while run := longest_run(self._certain(at.file), at):
            yield run
            at = self._read(run[-1]).ends

    def _certain(self, file: str) -> list[Link]:
        """Return the links of a file; where several are its last one, their indexes tell which of them lead on."""
        links, lasts = self._files.get(file, []), self._last_of(file)
        if len(lasts) > 1 or any(link.is_empty for link in lasts):
            links = [Link(link.name, link.begins, self._read(link).ends) if link in lasts else link for link in links]
        return [link for link in links if not link.is_empty]

    def _last_of(self, file: str) -> list[Link]:
        """Return the links whose end may be in another file: those that reach as far as any, and empty ones."""
        links = self._files.get(file, [])
        end = max((link.ends for link in links), default=None)
        return [link for link in links if link.ends == end or link.is_empty]


def chain(segments: Iterable[Segment], start: Location) -> tuple[Segment, ...]:
    """Return the longest contiguous run from `start`; RelayGap if more is stored behind a hole."""
    stored = tuple(segments)
    run = longest_run(stored, start)
    end = run[-1].ends if run else start
    beyond = [segment for segment in stored if segment.begins > end]
    if beyond:
        first = min(beyond, key=lambda segment: segment.begins.order)
        raise RelayGap(first.source, str(end), str(first.begins))
    return run


def longest_run(segments: Iterable[S], start: Location) -> tuple[S, ...]:
    """Return the contiguous run from `start` that reaches furthest, empty if nothing begins there."""
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


def dump_start(spans: Iterable[Span], location: Location) -> Location:
    """Return where a dump that shall come to a location must begin: its request has four bytes for the position.

    A file is so long only because of a transaction that is, so little or nothing but that one is read again.
    """
    if location.position < POSITIONS:
        return location
    ends = (at for span in spans for at in (span.begins, span.ends) if at.file == location.file)
    return Location(location.file, max((at.position for at in ends if at.position < POSITIONS), default=FIRST_POSITION))


def require_chain(source: str, checkpoint: Location, segments: Iterable[Segment]) -> None:
    """Raise SegmentGap unless the segments follow on the checkpoint and on each other."""
    expected = checkpoint
    for segment in segments:
        if segment.begins != expected:
            raise SegmentGap(source, str(expected), str(segment.begins))
        expected = segment.ends
