"""A binlog file larger than 4 GiB: events store their position in four bytes, so positions must be counted."""

import pytest

from tests.binlogfiles import Memory, event, events_of, head_of
from tests.unit.binlog.test_mysql_events import TABLE, VC, XID, gtid, query, rows
from unshard.binlog.cutter import Cutter
from unshard.binlog.decoder import RangeOrigin, decode_range
from unshard.binlog.events import HEADER, MAGIC
from unshard.core.model import Location, TableId
from unshard.core.relay.segment import Segment, chain, dump_start
from unshard.errors.relay import PositionGap

FILE = "binlog.000001"
END = 1 << 32
BEGIN = END - 700
VC_ID = TableId("ty", "vc")


def description() -> bytes:
    """Return the event as a server sends it before the first requested position: it is not in the file."""
    data = bytearray(events_of(head_of("types_my97_FULL.binlog"))[0])
    data[HEADER - 6 : HEADER - 2] = bytes(4)
    return bytes(data)


def stream(transactions: int) -> list[tuple[int, bytes]]:
    """Return events with the position after each."""
    found, position = [], BEGIN
    for number in range(transactions):
        for kind, body in (gtid(number + 1), query(b"BEGIN"), TABLE, rows((number, 1)), XID):
            found.append((position, event(kind, body, position)))
            position += len(found[-1][1])
    return [(position + len(data), data) for position, data in found]


def feed(events: list[tuple[int, bytes]], location: Location, start: int, sink: Memory) -> Location:
    cutter = Cutter("s1", location, sink, 1)
    cutter.read_again_from(start)
    cutter.feed(description())
    for position, data in events:
        if position > start:
            cutter.feed(data)
    cutter.end()
    return cutter.location


@pytest.mark.parametrize("stop", range(1, 45))
def test_a_file_that_grows_over_the_border(stop: int) -> None:
    events, sink = stream(9), Memory()
    assert events[10][0] < END < events[-10][0]
    reached = feed(events[:stop], Location(FILE, BEGIN), BEGIN, sink)
    start = dump_start([segment for segment, _ in sink.segments], reached)
    assert start.position < END and start.position in (reached.position, *(s.end for s, _ in sink.segments))
    end = feed(events, reached, start.position, sink)
    run = chain([segment for segment, _ in sink.segments], Location(FILE, BEGIN))
    assert end.position == run[-1].end == events[-1][0] > END
    assert [read(segment, data) for segment, data in sink.segments] == [[b"%d" % number] for number in range(9)]
    assert run[-1].begins > run[0].begins


def read(segment: Segment, stored: bytes) -> list[bytes]:
    prefix = len(stored) - segment.size
    (part,) = segment.ranges
    origin = RangeOrigin("s1", FILE, segment.start + part.start - prefix)
    bytes_ = memoryview(stored)[part.start : part.end]
    batches = decode_range(bytes_, True, {VC_ID: VC}, {VC_ID: segment.end - 1}, origin)
    return [value for _, batch in batches for value in batch["id"].to_pylist()]


def test_where_nothing_is_stored_of_the_file_it_is_read_from_its_head() -> None:
    assert dump_start([], Location(FILE, END + 5)) == Location(FILE, len(MAGIC))
    assert dump_start([], Location(FILE, END - 5)) == Location(FILE, END - 5)


def test_a_gap_behind_the_border() -> None:
    events = stream(9)
    with pytest.raises(PositionGap):
        feed(events[:35] + events[36:], Location(FILE, BEGIN), BEGIN, Memory())
