"""The relay's files: one place for each source, a segment file and its index beside it.

| died …                            | what remains                    | what happens                         |
|-----------------------------------|---------------------------------|--------------------------------------|
| while writing a segment           | `.tmp-…` in a folder            | removed by the next pull             |
|                                   | parts of an upload in a bucket  | no object; a rule of the bucket      |
| after publishing the segment      | a segment without index         | does not exist, is written again     |
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
from unshard.adapters.relay.index import SEGMENT, Ahead, index_of, link_of, read_index, to_json
from unshard.adapters.relay.places import Place, Stored
from unshard.binlog.decoder import Origin
from unshard.binlog.events import HEADER, MAGIC, Format, read_format, read_frame
from unshard.core.model import Location
from unshard.core.relaychain import Link, Links
from unshard.core.segment import Segment
from unshard.errors.relay import RelayUnwritable, SegmentDamaged

DESCRIPTION_BYTES = 4096
"""More than any FORMAT_DESCRIPTION event has."""


@dataclass(frozen=True, slots=True)
class RangeBytes:
    """A byte range of a segment in memory, with what `decode_range` needs besides."""

    data: memoryview
    checksum: bool
    origin: Origin


@dataclass(frozen=True, slots=True)
class RelayStore:
    """The segments of a task under one folder or prefix; a value, so it travels to executors."""

    folder: Path | BucketPlace

    def segments(self, source: str) -> tuple[Segment, ...]:
        """Return the stored segments of a source in order of their location."""
        links, read = self._indexes(source)
        return tuple(sorted(map(read, links), key=lambda segment: (segment.begins.order, segment.ends.order)))

    def links(self, source: str) -> Links:
        """Return the stored segments of a source by their names, whose indexes are read when they are needed."""
        return Links(*self._indexes(source))

    def read(self, source: str, name: str, start: int, end: int) -> RangeBytes:
        """Return a byte range of a segment; SegmentDamaged if the file is not what its index says."""
        place = self._of(source)
        location = place.location_of(name)
        link = link_of(name, location)
        with place.opened(name) as file:
            described, prefix = _description(file, link, location)
            if not prefix <= start <= end <= file.size:
                raise SegmentDamaged(location, f"bytes {start} to {end} are wanted, it has {file.size}")
            data = file.read(start, end)
        position = link.begins.position + start - prefix
        return RangeBytes(data, described.checksum, Origin(source, link.begins.file, position))

    def described(self, segment: Segment) -> Format:
        """Return what the segment's FORMAT_DESCRIPTION event says about its binlog file."""
        place = self._of(segment.source)
        location = place.location_of(segment.name)
        with place.opened(segment.name) as file:
            return _description(file, link_of(segment.name, location), location)[0]

    def writer(self, source: str) -> "SegmentWriter":
        """Return what stores new segments of a source."""
        writer = SegmentWriter(self._of(source))
        writer.prepare()
        return writer

    def clean(self, source: str) -> None:
        """Remove what pulls that died have left; files that are being written stay."""
        self._of(source).clean()

    def purge(self, source: str, before: Location) -> int:
        """Remove the segments that nothing from a location on needs; return how many."""
        return self._remove(source, self.links(source).unneeded(before))

    def forget(self, source: str) -> int:
        """Remove all segments of a source, before it is begun anew; return how many."""
        return self._remove(source, self.links(source).all)

    def _remove(self, source: str, links: Iterable[Link]) -> int:
        gone = [(index_of(link.name), link.name) for link in links]
        self._of(source).remove(gone)
        return len(gone)

    def _of(self, source: str) -> Place:
        name = quote(source, safe="")
        if isinstance(self.folder, BucketPlace):
            return self.folder.below(name)
        return FolderPlace(self.folder / name)

    def _indexes(self, source: str) -> tuple[list[Link], Callable[[Link], Segment]]:
        """Return the names of segments in order, and what reads their indexes."""
        place = self._of(source)
        names = place.names()
        found = [link_of(name, place.location_of(name)) for name in names
                 if name.endswith(SEGMENT) and index_of(name) in names]  # fmt: skip

        def read(link: Link) -> Segment:
            return read_index(place, link.name, names[index_of(link.name)])

        if place.together == 1:
            return found, read
        found.sort(key=lambda link: (link.begins.order, link.ends.order))
        return found, Ahead(found, place.together, read)


class SegmentWriter:
    """Writes one segment after the other; each exists as a whole or not at all."""

    def __init__(self, place: Place) -> None:
        self.stored: list[Segment] = []
        self._place = place
        self._draft: Draft | None = None

    def prepare(self) -> None:
        """Make the place ready."""
        with self._writable():
            self._place.prepare()

    def begin(self, prefix: bytes) -> None:
        """Start a draft."""
        with self._writable():
            self._draft = self._place.draft()
            self._draft.write(prefix)

    def write(self, events: bytes | memoryview) -> None:
        """Append to it."""
        with self._writable():
            self._begun.write(events)

    def finish(self, segment: Segment, length: int) -> None:
        """Make it durable under its own name, then its index."""
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
    """Return the format and the length of what stands before the segment's own bytes."""
    head = bytes(file.read(0, DESCRIPTION_BYTES))
    start = len(MAGIC)
    if head[:start] != MAGIC or len(head) < start + HEADER:
        raise SegmentDamaged(location, "it does not begin like a binlog file")
    frame = read_frame(head, start)
    described = read_format(head[start : start + frame.size], location)
    return described, start if link.begins.position == start else start + frame.size
