"""The index of a segment: the content of its file name and of its .json file."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from unshard.adapters.relay.places import RelayPlace
from unshard.core import codec
from unshard.core.model import Location, TableId
from unshard.core.relay.chain import Link
from unshard.core.relay.segment import ByteRange, Commit, Prepared, Segment, Statement
from unshard.errors.relay import SegmentDamaged

SEGMENT, INDEX = ".seg", ".json"


def index_of(name: str) -> str:
    """Return the name of a segment's index."""
    return name.removesuffix(SEGMENT) + INDEX


def link_of(name: str, location: str) -> Link:
    """Return the locations that the name of a segment contains."""
    file, _, positions = name.removesuffix(SEGMENT).rpartition(".")
    start, _, end = positions.partition("-")
    if not (start.isdecimal() and end.isdecimal()):
        raise SegmentDamaged(location, "its name is not that of a segment")
    return Link(name, Location(file, int(start)), Location(file, int(end)))


def to_json(segment: Segment) -> bytes:
    """Return the JSON text of a segment's index."""
    body = asdict(segment)
    body["ranges"] = [[r.start, r.end, [[t.schema, t.name, n] for t, n in r.tables]] for r in segment.ranges]
    return json.dumps(body, ensure_ascii=False).encode()


@lru_cache(1 << 14)
def read_index(place: RelayPlace, name: str, number: int) -> Segment:
    """Read the index of a segment; `number` distinguishes a new index under an old name, so the cache stays valid."""
    name = index_of(name)
    try:
        with place.opened(name) as file:
            return _from_json(json.loads(bytes(file.read(0, file.size))))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SegmentDamaged(place.location_of(name), f"its index is unreadable: {error}") from error


class ReadAhead:
    """Reads indexes one by one or ahead, where each read is a round trip.

    Sequential calls read more and more indexes in parallel; other calls read a single one.
    """

    def __init__(self, links: Sequence[Link], most: int, read: Callable[[Link], Segment]) -> None:
        self._links, self._most, self._read = links, most, read
        self._numbers: Mapping[str, int] = {link.name: number for number, link in enumerate(links)}
        self._found: dict[str, Future[Segment]] = {}
        """Results that were read ahead; the error of one is raised only when its index is requested."""
        self._next, self._width = 0, 1

    def __call__(self, link: Link) -> Segment:
        """Return the index of a segment."""
        if link.name not in self._found:
            number = self._numbers[link.name]
            self._width = min(2 * self._width, self._most) if number == self._next else 1
            self._next = number + self._width
            with ThreadPoolExecutor(self._width, thread_name_prefix="index") as pool:
                for each in self._links[number : self._next]:
                    self._found[each.name] = pool.submit(self._read, each)
        return self._found[link.name].result()


def _from_json(body: dict[str, Any]) -> Segment:
    ranges = tuple(
        ByteRange(start, end, tuple((TableId(schema, name), count) for schema, name, count in tables))
        for start, end, tables in body.pop("ranges")
    )
    statement = body.pop("statement")
    commits = codec.from_plain(tuple[Commit, ...], body.pop("commits", []))
    changes = codec.from_plain(tuple[Statement, ...], body.pop("changes", []))
    prepared = codec.from_plain(tuple[Prepared, ...], body.pop("open", []))
    finished = tuple(body.pop("finished", ()))
    return Segment(
        **body,
        ranges=ranges,
        statement=codec.from_plain(Statement, statement) if statement else None,
        commits=commits,
        open=prepared,
        finished=finished,
        changes=changes,
    )
