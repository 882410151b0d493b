"""XA transactions as MySQL writes them: the counted rows do not depend on where the stream is cut."""

import itertools
import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.binlogfiles import Memory, events_of, head_of, links_of, with_events
from tests.unit.binlog.test_mysql_events import TABLE, VC, XID, payload, query, rows
from tests.unit.binlog.test_mysql_events import gtid as gtid_of
from unshard.binlog.cutter import Cutter
from unshard.binlog.decoder import RangeOrigin, decode_range
from unshard.binlog.events import MAGIC, EventType
from unshard.binlog.rawrows import decode_extract, extract
from unshard.core.model import Location, TableId
from unshard.core.relay.segment import Segment
from unshard.errors.relay import PreparedUnseen, UnsupportedEvent

E = EventType
HEAD = head_of("types_my97_FULL.binlog")
VC_ID = TableId("ty", "vc")
FILE = "binlog.000001"
NUMBERS = itertools.count(1)


def gtid() -> tuple[EventType, bytes]:
    return gtid_of(next(NUMBERS))


def xid(name: int) -> bytes:
    return b"X'%02x',X'',1" % name


def prepare(name: int, one_phase: bool = False) -> tuple[EventType, bytes]:
    return E.XA_PREPARE, struct.pack("<?iII", one_phase, 1, 1, 0) + bytes((name,))


def first_part(name: int, *values: int, one_phase: bool = False) -> list[tuple[EventType, bytes]]:
    return [
        query(b"XA START " + xid(name)),
        TABLE,
        rows(*((value, name) for value in values)),
        query(b"XA END " + xid(name)),
        prepare(name, one_phase),
    ]


def second_part(word: bytes, name: int) -> list[tuple[EventType, bytes]]:
    return [gtid(), query(b"XA " + word + b" " + xid(name))]


@dataclass
class History:
    """Events, and the rows that count, in order of their commit."""

    events: list[tuple[EventType, bytes]] = field(default_factory=list)
    expected: list[bytes] = field(default_factory=list)
    prepared: dict[int, list[int]] = field(default_factory=dict)
    value: int = 0

    def values(self, count: int) -> list[int]:
        self.value += count
        return list(range(self.value - count, self.value))

    def step(self, kind: str, name: int, count: int) -> None:
        match kind:
            case "plain":
                values = self.values(count)
                self.events += [gtid(), query(b"BEGIN"), TABLE, rows(*((v, 0) for v in values)), XID]
                self.expected += [b"%d" % value for value in values]
            case "one phase":
                values = self.values(count)
                self.events += [gtid(), *first_part(name, *values, one_phase=True)]
                self.expected += [b"%d" % value for value in values]
            case "prepare" | "compressed" if name not in self.prepared:
                self.prepared[name] = self.values(count)
                part = first_part(name, *self.prepared[name])
                self.events += [gtid(), *([payload(*part)] if kind == "compressed" else part)]
            case "commit" if name in self.prepared:
                self.expected += [b"%d" % value for value in self.prepared.pop(name)]
                self.events += second_part(b"COMMIT", name)
            case "rollback":
                self.prepared.pop(name, None)
                self.events += second_part(b"ROLLBACK", name)
            case "statement":
                self.events += [gtid(), query(b"CREATE TABLE x (a int)")]
            case "undone" if name not in self.prepared:
                self.prepared[name], (gone,) = self.values(count), self.values(1)
                inner = first_part(name, *self.prepared[name])
                back = [query(b"SAVEPOINT `s`"), TABLE, rows((gone, 0)), query(b"ROLLBACK TO `s`")]
                self.events += [gtid(), *inner[:3], *back, *inner[3:]]


def unneeded(segments: list[Segment], before: Location) -> list[Segment]:
    """Return the segments that no checkpoint or open transaction needs."""
    kept = [s for s in segments if s.ends > before or (s.ends == before and (s.open or s.finished))]
    named = frozenset[str]().union(*(segment.needs for segment in kept))
    return [segment for segment in segments if segment not in kept and segment.name not in named]


KINDS = ("plain", "one phase", "prepare", "compressed", "commit", "rollback", "statement", "undone")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 3), st.integers(1, 2)), max_size=25)


def relayed(data: bytes, segment_bytes: int, stops: list[int]) -> tuple[dict[str, bytes], list[Segment]]:
    """Feed a file to one cutter after the other; each continues after the last stored border."""
    events = events_of(data)
    sink, stored = Memory(), []
    location = Location(FILE, len(MAGIC))
    for stop in [*stops, len(events)]:
        cutter = Cutter(
            "s1", location, sink, segment_bytes, links_of([s for s, _ in sink.segments]).ending_at(location)
        )
        position = len(MAGIC)
        cutter._describe(events[0], "")
        for event in events[:stop]:
            if position >= location.position:
                cutter.feed(event)
            position += len(event)
        cutter.end()
        location = cutter.location
    stored = [segment for segment, _ in sink.segments]
    return {segment.name: held for segment, held in sink.segments}, stored


def counted(files: dict[str, bytes], segments: list[Segment]) -> list[bytes]:
    """Return the first column of all rows that count, as windows read them."""
    found = []
    for segment in segments:
        pieces = [(one.segment, one.start, one.end, True) for one in (c.prepared for c in segment.commits)]
        pieces += [(segment.name, one.start, one.end, False) for one in segment.ranges]
        for name, start, end, committed in pieces:
            data, origin = memoryview(files[name])[start:end], RangeOrigin("s1", FILE, 0, committed)
            batches = [batch for _, batch in decode_range(data, True, {VC_ID: VC}, origin=origin)]
            values = [value for batch in batches for value in batch["id"].to_pylist()]
            raw = decode_extract(extract(data, True, VC_ID, origin=origin), VC, "s1")
            assert [value for batch in raw for value in batch["id"].to_pylist()] == values
            found += values
    return found


@given(STEPS, st.sampled_from((1, 300, 900, 1 << 20)), st.lists(st.integers(1, 60), max_size=3))
def test_rows_count_once_where_they_are_committed(steps, segment_bytes, stops):
    history = History()
    for kind, name, count in steps:
        history.step(kind, name, count)
    data = with_events(HEAD, *history.events)
    files, segments = relayed(data, segment_bytes, sorted(stops))
    assert sorted(counted(files, segments)) == sorted(history.expected)
    if segments:
        assert {one.xid for one in segments[-1].open} == {xid(name).decode() for name in history.prepared}
        for at in segments:
            gone = {link.name for link in links_of(segments).unneeded(at.begins)}
            assert gone == {one.name for one in unneeded(segments, at.begins)}


def test_a_transaction_that_is_committed_twice_by_a_crashed_server():
    history = History()
    for kind in ("prepare", "commit"):
        history.step(kind, 1, 1)
    data = with_events(HEAD, *history.events, *second_part(b"COMMIT", 1))
    assert counted(*relayed(data, 1, [])) == [b"0"]


def test_rows_that_nobody_has_seen():
    with pytest.raises(PreparedUnseen, match="X'07',X'',1"):
        relayed(with_events(HEAD, *second_part(b"COMMIT", 7)), 1, [])


@pytest.mark.parametrize("text", [b"XA RECOVER", b"XA COMMIT 'a'"])
def test_statements_about_xa_of_another_form(text):
    with pytest.raises(UnsupportedEvent, match="unknown form"):
        relayed(with_events(HEAD, gtid(), query(text)), 1, [])


def test_a_statement_inside():
    with pytest.raises(UnsupportedEvent, match="inside an XA"):
        relayed(with_events(HEAD, gtid(), *first_part(1, 1)[:3], query(b"DROP TABLE x")), 1, [])
