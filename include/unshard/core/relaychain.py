"""Which stored segments follow each other from a location on.

Two pulls of one source may have stored overlapping segments (killed, retried, at the same time), cut at
different borders. All hold the same bytes, so any contiguous run is right; the longest one is taken.
"""

from collections.abc import Iterable

from unshard.core.model import Location
from unshard.core.segment import Segment
from unshard.errors.relay import RelayGap
from unshard.errors.shardddl import SegmentGap

POSITIONS = 1 << 32
FIRST_POSITION = 4


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


def longest_run(segments: Iterable[Segment], start: Location) -> tuple[Segment, ...]:
    """Return the contiguous run from `start` that reaches furthest, empty if nothing begins there."""
    best: dict[tuple[int, int, int], tuple[Location, Segment]] = {}
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


def dump_start(segments: Iterable[Segment], location: Location) -> Location:
    """Return where a dump that shall come to a location must begin: its request has four bytes for the position.

    A file is so long only because of a transaction that is, so little or nothing but that one is read again.
    """
    if location.position < POSITIONS:
        return location
    borders = (at for s in segments if s.file == location.file for at in (s.start, s.end) if at < POSITIONS)
    return Location(location.file, max(borders, default=FIRST_POSITION))


def ending_at(segments: Iterable[Segment], end: Location) -> Segment | None:
    """Return a segment that ends there: what it says about XA transactions holds for all that do."""
    return next((segment for segment in segments if segment.ends == end), None)


def unneeded(segments: Iterable[Segment], before: Location) -> tuple[Segment, ...]:
    """Return the segments that end at or before a location and that nothing behind it refers to.

    The last one stays while it knows of prepared XA transactions, whose segments it names.
    """
    stored = tuple(segments)
    kept = [s for s in stored if s.ends > before or (s.ends == before and (s.open or s.finished))]
    named = frozenset[str]().union(*(segment.needs for segment in kept))
    gone = (segment for segment in stored if segment not in kept)
    return tuple(segment for segment in gone if segment.name not in named)


def require_chain(source: str, checkpoint: Location, segments: Iterable[Segment]) -> None:
    """Raise SegmentGap unless the segments follow on the checkpoint and on each other."""
    expected = checkpoint
    for segment in segments:
        if segment.begins != expected:
            raise SegmentGap(source, str(expected), str(segment.begins))
        expected = segment.ends
