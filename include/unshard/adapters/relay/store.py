"""The relay's files: one place per source, with a segment file and an index file for each segment.

| process dies                      | remaining                       | result                               |
|-----------------------------------|---------------------------------|--------------------------------------|
| while writing a segment           | `.tmp-…` in a folder            | deleted by the next pull             |
|                                   | parts of an upload in a bucket  | no object; a rule of the bucket      |
| after publishing the segment      | a segment without index         | does not count, is written again     |
| while writing the index           | the same, and as in the first   | as above                             |
| after publishing the index        | both                            | the segment exists                   |

All names follow from the content, so two pulls of one source write the same bytes under the same names.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from unshard.adapters.relay.bucket import BucketPlace
from unshard.adapters.relay.draft import Draft
from unshard.adapters.relay.folder import FolderPlace
from unshard.adapters.relay.index import SEGMENT, ReadAhead, index_of, link_of, read_index, to_json
from unshard.adapters.relay.places import RelayPlace, Stored
from unshard.binlog.decoder import Origin
from unshard.binlog.events import HEADER, MAGIC, Format, read_format, read_frame
from unshard.core.model import Location
from unshard.core.relay.chain import Link, Links
from unshard.core.relay.segment import Segment
from unshard.errors.relay import RelayUnwritable, SegmentDamaged

DESCRIPTION_BYTES = 4096
"""Larger than any FORMAT_DESCRIPTION event."""


@dataclass(frozen=True, slots=True)
class RangeBytes:
    """A byte range of a segment in memory, with the other arguments of `decode_range`."""

    data: memoryview
    checksum: bool
    origin: Origin


@dataclass(frozen=True, slots=True)
class RelayStore:
    """The segments of a task under one folder or prefix; has no open handles, so it can be sent to executors."""

    folder: Path | BucketPlace

    def segments(self, source: str) -> tuple[Segment, ...]:
        """Return the stored segments of a source in order of their location."""
        links, read = self._indexes(source)
        return tuple(sorted(map(read, links), key=lambda segment: (segment.begins.order, segment.ends.order)))

    def links(self, source: str) -> Links:
        """Return the stored segments of a source by name; their indexes are read on demand."""
        return Links(*self._indexes(source))

    def read(self, source: str, name: str, start: int, end: int) -> RangeBytes:
        """Return a byte range of a segment; SegmentDamaged if the file contradicts its index."""
        place = self._of(source)
        location = place.location_of(name)
        link = link_of(name, location)
        with place.opened(name) as file:
            described, prefix = _description(file, link, location)
            if not prefix <= start <= end <= file.size:
                raise SegmentDamaged(location, f"bytes {start} to {end} are requested, the file has {file.size}")
            data = file.read(start, end)
        position = link.begins.position + start - prefix
        return RangeBytes(data, described.checksum, Origin(source, link.begins.file, position))

    def whole(self, segment: Segment) -> RangeBytes:
        """Return all events of a segment."""
        place = self._of(segment.source)
        location = place.location_of(segment.name)
        with place.opened(segment.name) as file:
            described, prefix = _description(file, link_of(segment.name, location), location)
            data = file.read(prefix, file.size)
        return RangeBytes(data, described.checksum, Origin(segment.source, segment.file, segment.start))

    def described(self, segment: Segment) -> Format:
        """Return the content of the segment's FORMAT_DESCRIPTION event."""
        place = self._of(segment.source)
        location = place.location_of(segment.name)
        with place.opened(segment.name) as file:
            return _description(file, link_of(segment.name, location), location)[0]

    def writer(self, source: str) -> "SegmentWriter":
        """Return a writer for new segments of a source."""
        writer = SegmentWriter(self._of(source))
        writer.prepare()
        return writer

    def clean(self, source: str) -> None:
        """Delete unfinished files of dead pulls; files that are being written stay."""
        self._of(source).clean()

    def purge(self, source: str, before: Location) -> int:
        """Delete the segments that are not needed from a location on; return how many."""
        return self._remove(source, self.links(source).unneeded(before))

    def forget(self, source: str) -> int:
        """Delete all segments of a source, before the source starts again; return how many."""
        return self._remove(source, self.links(source).all)

    def _remove(self, source: str, links: Iterable[Link]) -> int:
        names = [(index_of(link.name), link.name) for link in links]
        self._of(source).remove(names)
        return len(names)

    def _of(self, source: str) -> RelayPlace:
        name = quote(source, safe="")
        if isinstance(self.folder, BucketPlace):
            return self.folder.below(name)
        return FolderPlace(self.folder / name)

    def _indexes(self, source: str) -> tuple[list[Link], Callable[[Link], Segment]]:
        """Return the segments in order, and a function that reads their indexes."""
        place = self._of(source)
        names = place.names()
        found = [
            link_of(name, place.location_of(name))
            for name in names
            if name.endswith(SEGMENT) and index_of(name) in names
        ]

        def read(link: Link) -> Segment:
            return read_index(place, link.name, names[index_of(link.name)])

        if place.parallel_reads == 1:
            return found, read
        found.sort(key=lambda link: (link.begins.order, link.ends.order))
        return found, ReadAhead(found, place.parallel_reads, read)


class SegmentWriter:
    """Writes segments one after the other; each appears only when it is complete."""

    def __init__(self, place: RelayPlace) -> None:
        self.stored: list[Segment] = []
        self._place = place
        self._draft: Draft | None = None

    def prepare(self) -> None:
        """Prepare the place."""
        with self._writable():
            self._place.prepare()

    def begin(self, prefix: bytes) -> None:
        """Start a draft."""
        with self._writable():
            self._draft = self._place.draft()
            self._draft.write(prefix)

    def write(self, events: bytes | memoryview) -> None:
        """Append to the draft."""
        with self._writable():
            self._begun.write(events)

    def finish(self, segment: Segment, length: int) -> None:
        """Publish the segment under its name, then its index."""
        with self._writable():
            self._begun.publish(segment.name, length)
            self._draft = self._place.draft()
            self._draft.write(to_json(segment))
            self._draft.publish(index_of(segment.name))
        self._draft = None
        self.stored.append(segment)

    def abandon(self) -> None:
        """Discard the draft, if there is one."""
        if self._draft is not None:
            self._draft.discard()
            self._draft = None

    @property
    def _begun(self) -> Draft:
        if self._draft is None:
            raise RuntimeError("no segment was begun")
        return self._draft

    @contextlib.contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RelayUnwritable(self._place.location_of(""), str(error)) from error


def _description(file: Stored, link: Link, location: str) -> tuple[Format, int]:
    """Return the format and the number of bytes before the segment's own events."""
    head = bytes(file.read(0, DESCRIPTION_BYTES))
    start = len(MAGIC)
    if head[:start] != MAGIC or len(head) < start + HEADER:
        raise SegmentDamaged(location, "it does not begin like a binlog file")
    frame = read_frame(head, start)
    described = read_format(head[start : start + frame.size], location)
    return described, start if link.begins.position == start else start + frame.size
