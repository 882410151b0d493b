"""Cutting many events at a time gives the same segments as cutting one by one, for any chunks and any errors."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.binlogfiles import Memory, event, events_of, head_of, read, with_events
from tests.unit.binlog.test_mysql_events import TABLE, XID, gtid, query, rows
from tests.unit.binlog.test_xa import STEPS, History
from unshard.binlog import cutter as one_by_one
from unshard.binlog.cutter import Cutter, RunCutter
from unshard.binlog.events import CHECKSUM, HEADER, MAGIC, EventType, read_frame
from unshard.binlog.runs import FULL_PACKET, Packets, Run
from unshard.core.model import Location
from unshard.core.relay.segment import Segment
from unshard.errors import UnshardError

E = EventType
FILE = "binlog.000001"
START = Location(FILE, len(MAGIC))
FAR = Location("binlog.000009", 4)
MARIADB = head_of("types_maria_full.binlog")
MYSQL = head_of("types_my97_FULL.binlog")
EOF = b"\xfe\0\0\2\0"
RECORDED = ("types_maria_full.binlog", "compressed.binlog", "types_my97_FULL.binlog")


def packet(payload: bytes, number: int = 0) -> bytes:
    whole = b""
    while True:
        part, payload = payload[:FULL_PACKET], payload[FULL_PACKET:]
        whole += struct.pack("<I", len(part) | (number & 255) << 24) + part
        if len(part) < FULL_PACKET:
            return whole


def stream_of(events: list[bytes], end: bytes = EOF) -> bytes:
    return b"".join(packet(b"\0" + one, number) for number, one in enumerate(events)) + packet(end)


@dataclass
class Wire:
    """Returns bytes in chunks; `more` contains the chunks after which the next read does not wait."""

    data: bytes
    chunks: list[tuple[int, bool]]
    at: int = 0
    more: bool = False
    given: list[int] = field(default_factory=list)

    def receive(self, buffer: memoryview) -> int:
        size, self.more = self.chunks[len(self.given) % len(self.chunks)]
        part = self.data[self.at : self.at + min(size, len(buffer))]
        buffer[: len(part)] = part
        self.at += len(part)
        self.given.append(len(part))
        return len(part)

    def packets(self, buffer_bytes: int = 1 << 12) -> Packets:
        return Packets(self.receive, lambda: self.more, buffer_bytes)


CHUNKS = st.lists(st.tuples(st.integers(1, 3000), st.booleans()), min_size=1, max_size=20)


@given(CHUNKS)
@pytest.mark.parametrize("name", RECORDED)
def test_events_come_whole_in_any_chunks(name: str, chunks: list[tuple[int, bool]]) -> None:
    events = events_of(read(name))
    packets = Wire(stream_of(events), chunks).packets()
    assert [one for run in packets.runs() for one in run.events()] == events
    assert packets.last == EOF


@pytest.mark.slow
@pytest.mark.parametrize("size", [FULL_PACKET - 2, FULL_PACKET - 1, FULL_PACKET, 2 * FULL_PACKET - 1, 2 * FULL_PACKET])
def test_an_event_that_takes_several_packets(size: int) -> None:
    events = [b"first", bytes(range(256)) * (size // 256) + b"x" * (size % 256), b"last"]
    for chunks in ([(5 << 20, False), (1 << 20, True), (77, False)], [(64 << 20, True)]):
        packets = Wire(stream_of(events), chunks).packets(1 << 20)
        assert [one for run in packets.runs() for one in run.events()] == events
        assert len(packets._buffer) == 1 << 20 and packets.last == EOF


@pytest.mark.parametrize("end", [b"\xff\xd4\x04#HY000words", b"\xfe" + bytes(20), b"\7"])
@pytest.mark.parametrize("behind", [b"", packet(b"\0three"), bytes(4)], ids=["nothing", "an event", "an empty packet"])
def test_what_came_before_the_end_of_a_dump_is_handed_on(end: bytes, behind: bytes) -> None:
    packets = Wire(stream_of([b"one", b"two"], end) + behind, [(1000, True)]).packets()
    assert [one for run in packets.runs() for one in run.events()] == [b"one", b"two"]
    assert packets.last == end


@pytest.mark.parametrize("broken", [b"", b"\5\0\0\0\0ab", b"\5\0", b"\0\0\0\0" + packet(b"\0three"), b"\0\0\0\0"])
def test_what_came_before_the_connection_broke_is_handed_on(broken: bytes) -> None:
    data = stream_of([b"one", b"two"])[: -len(packet(EOF))] + broken
    found: list[bytes] = []
    with pytest.raises(EOFError):
        for run in Wire(data, [(1000, True)]).packets().runs():
            found += run.events()
    assert found == [b"one", b"two"]


def test_nothing_waits_for_a_buffer_to_fill() -> None:
    """Complete packets are passed on before a read that would wait."""
    events = events_of(read(RECORDED[0]))
    wire = Wire(stream_of(events), [(len(packet(b"\0" + one, 0)), False) for one in events] + [(100, False)])
    for number, run in enumerate(wire.packets().runs(), 1):
        assert len(run) == 1 and len(wire.given) == number


@dataclass(frozen=True)
class Cut:
    """The result of cutting a stream."""

    segments: list[tuple[Segment, bytes]]
    location: Location
    error: str


def cut_alone(events: list[bytes], segment_bytes: int, stop: Location) -> Cut:
    sink = Memory()
    cutter = Cutter("s1", START, sink, segment_bytes)
    cutter.history.is_known = True
    error = ""
    try:
        for one in events:
            if cutter.location >= stop:
                break
            cutter.feed(one)
    except UnshardError as found:
        error = str(found)
    cutter.end()
    return Cut(sink.segments, cutter.location, error)


def cut_in_runs(runs: Iterator[Run], segment_bytes: int, stop: Location) -> Cut:
    sink = Memory()
    cutter = RunCutter("s1", START, sink, segment_bytes)
    cutter.history.is_known = True
    error = ""
    try:
        for run in runs:
            for _ in cutter.read(run, stop):
                pass
    except UnshardError as found:
        error = str(found)
    cutter.end()
    return Cut(sink.segments, cutter.location, error)


def run_of(events: list[bytes]) -> Run:
    return Run(memoryview(b"".join(events)), np.cumsum([0, *map(len, events)]))


def in_runs(events: list[bytes], borders: list[int]) -> Iterator[Run]:
    places = sorted({0, len(events), *(border % (len(events) + 1) for border in borders)})
    return (run_of(events[begin:end]) for begin, end in pairwise(places))


def maria_gtid(sequence: int, domain: int, flags: int = 0) -> tuple[EventType, bytes]:
    return E.GTID, struct.pack("<QIB", sequence, domain, flags) + bytes(8 if flags & 2 else 6)


def table(number: int, name: bytes) -> tuple[EventType, bytes]:
    return E.TABLE_MAP, number.to_bytes(6, "little") + b"\1\0\2ty\0" + bytes((len(name),)) + name + b"\0\2\3\3\0\2"


def rows_of(number: int, count: int) -> tuple[EventType, bytes]:
    kind, body = rows(*((value, 1) for value in range(count)))
    return kind, number.to_bytes(6, "little") + body[6:]


NAMES = {1: b"a", 2: b"bb", 3: b"c"}
NOTE = (E.ANNOTATE_ROWS, b"UPDATE x")
ENDS = ("xid",) * 9 + ("COMMIT", "ROLLBACK", "savepoint", "statement")
WRONG = ("gtid inside", "rows without map", "unknown id", "late map", "new name", "torn map", "short gtid", "unknown")


def transaction(
    number: int, domain: int, flags: int, statements: list[tuple[int, int, int]], end: str
) -> list[tuple[EventType, bytes]]:
    found = [maria_gtid(number, domain, flags)]
    if end == "statement":
        return [maria_gtid(number, domain, 1), query(b"ALTER TABLE a ADD b int")]
    for identifier, count, extra in statements:
        found += [NOTE] * (extra == 1) + [table(identifier, NAMES[identifier])]
        found += [rows_of(identifier, count)] * (1 + extra // 2)
        if end == "savepoint":
            found += [query(b"SAVEPOINT `s`")]
    return [*found, query(end.encode()) if end.isupper() else XID]


def transactions(random: Random) -> list[tuple[EventType, bytes]]:
    """Return forty transactions of MariaDB, most of them with rows of a few tables only."""
    found, most = list[tuple[EventType, bytes]](), random.choice((3, 3, 30))
    for number in range(40):
        statements = [
            (random.choice((1, 1, 1, 2, 3)), random.randint(1, 4), random.choice((0, 0, 1, 2)))
            for _ in range(random.randint(1, most))
        ]
        found += transaction(number, random.randint(0, 2), random.choice((0, 2)), statements, random.choice(ENDS))
    return found


def spoilt(events: list[tuple[EventType, bytes]], wrong: str, random: Random) -> list[tuple[EventType, bytes]]:
    """Insert an error of this kind into the events; only a new name for an id is valid, if rare."""
    extra = {
        "gtid inside": [maria_gtid(99, 0)],
        "rows without map": [maria_gtid(99, 0), rows_of(1, 1), XID],
        "unknown id": [rows_of(77, 1)],
        "late map": [rows_of(77, 1), table(77, b"late")],
        "new name": [table(1, b"other"), rows_of(1, 2)],
        "torn map": [(E.TABLE_MAP, bytes(9))],
        "short gtid": [(E.GTID, b"\1\2")],
        "unknown": [(E.INCIDENT, b"\1\0\0")],
    }[wrong]
    before = E.GTID if wrong in ("rows without map", "short gtid") else E.TABLE_MAP
    at = random.choice([at for at, (kind, _) in enumerate(events) if kind == before])
    return [*events[:at], *extra, *events[at:]]


def dated(one: bytes, random: Random) -> bytes:
    """Set another time stamp of an event, or none."""
    plain = random.choice((0, 1700000000, 1700000000 + random.randint(0, 999))).to_bytes(4, "little") + one[4:-CHECKSUM]
    return plain + zlib.crc32(plain).to_bytes(4, "little")


def damaged(events: list[bytes], random: Random) -> list[bytes]:
    number = random.randrange(1, len(events))
    one = bytearray(events[number])
    one[random.randrange(len(one))] ^= 1 << random.randrange(8)
    return [*events[:number], bytes(one), *events[number + 1 :]]


@given(st.integers(0, 1 << 32), st.sampled_from(("", "", "flip", *WRONG)), st.booleans())
def test_whatever_comes_is_cut_the_same(seed, wrong, stops):
    """MariaDB's transactions with one error of every possible kind."""
    random = Random(seed)
    bodies = transactions(random)
    if wrong in WRONG:
        bodies = spoilt(bodies, wrong, random)
    data = with_events(MARIADB, *bodies)
    until = Location(FILE, random.randint(len(MARIADB), len(data))) if stops else FAR
    events = [dated(one, random) for one in events_of(data)]
    events = damaged(events, random) if wrong == "flip" else events
    borders = random.sample(range(len(events)), random.choice((0, 0, 1, 3, 20)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_by_one, "RANGE_BYTES", 900)
        size = random.choice((1, 500, 3000, 1 << 20))
        alone = cut_alone(events, size, until)
        assert cut_in_runs(in_runs(events, borders), size, until) == alone
    assert bool(alone.error) == (bool(wrong) and wrong != "new name") or stops


@given(STEPS, st.sampled_from((1, 300, 900, 1 << 20)), st.lists(st.integers(0, 999), max_size=4))
def test_xa_transactions_and_statements_of_mysql_are_cut_the_same(steps, segment_bytes, borders):
    history = History()
    for kind, name, count in [*steps, *[("plain", 1, 1)] * 4]:
        history.step(kind, name, count)
    events = events_of(with_events(MYSQL, *history.events))
    assert cut_in_runs(in_runs(events, borders), segment_bytes, FAR) == cut_alone(events, segment_bytes, FAR)


@pytest.mark.parametrize("numbers", [(1, 2, 3, 4), (4, 2, 3, 1), (1, 2, 2, 3)], ids=["in order", "mixed", "twice"])
def test_gtids_of_mysql_are_remembered_the_same(numbers):
    bodies = [body for n in numbers for body in (gtid(n), query(b"BEGIN"), TABLE, rows((n, 1)), rows((n, 2)), XID)]
    events = events_of(with_events(MYSQL, *bodies))
    alone = cut_alone(events, 1, FAR)
    assert cut_in_runs(in_runs(events, []), 1, FAR) == alone
    assert ("is repeated" in alone.error) == (numbers[1] == numbers[2])


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("segment_bytes", [1, 2000, 1 << 20])
def test_recorded_files_are_cut_the_same(name, segment_bytes):
    events = events_of(read(name))
    alone = cut_alone(events, segment_bytes, FAR)
    for size in (0, 10, 50):
        borders = list(range(0, len(events), size)) if size else []
        assert cut_in_runs(in_runs(events, borders), segment_bytes, FAR) == alone
    assert alone.segments and not alone.error


def without_checksums(data: bytes) -> list[bytes]:
    description, *rest = events_of(data)
    events, position = [description[: -CHECKSUM - 1] + b"\0" + bytes(CHECKSUM)], len(MAGIC) + len(description)
    for one in rest:
        body, kind = one[HEADER:-CHECKSUM], EventType(read_frame(one).type)
        plain = bytearray(event(kind, body))
        position += len(plain)
        plain[HEADER - 6 : HEADER - 2] = position.to_bytes(4, "little")
        events.append(bytes(plain))
    return events


def test_without_checksums_and_with_a_file_behind_another():
    bodies = [body for n in range(1, 9) for body in transaction(n, 0, 0, [(1, 2, 1), (2, 1, 2)], "xid")]
    following = (struct.pack("<Q", 4) + b"binlog.000002", struct.pack("<Q", 4) + b"binlog.000003")
    first = without_checksums(with_events(MARIADB, *bodies, (E.ROTATE, following[0])))
    second = events_of(with_events(MARIADB, *bodies[:30]))
    events = [*first, *second, event(E.HEARTBEAT, b"x", 0), event(E.ROTATE, following[1], 0)]
    alone = cut_alone(events, 700, FAR)
    assert not alone.error and alone.location == Location("binlog.000003", 4)
    assert sum(count for s, _ in alone.segments for part in s.ranges for _, count in part.tables) > 30
    for borders in ([], [5], list(range(0, len(events), 12))):
        assert cut_in_runs(in_runs(events, borders), 700, FAR) == alone


def unplaced(events: list[bytes]) -> list[bytes]:
    """Remove the positions of events inside transactions, as MariaDB does since 11.7."""
    placed = {E.FORMAT_DESCRIPTION, E.GTID, E.GTID_LIST, E.BINLOG_CHECKPOINT, E.XID}
    return [one if read_frame(one).type in placed else _without_end(one) for one in events]


def _without_end(one: bytes) -> bytes:
    plain = one[: HEADER - 6] + bytes(4) + one[HEADER - 2 : -CHECKSUM]
    return plain + zlib.crc32(plain).to_bytes(4, "little")


@pytest.mark.parametrize("segment_bytes", [1, 3000, 1 << 20])
def test_events_inside_transactions_need_no_positions(segment_bytes):
    bodies = [body for n in range(1, 40) for body in transaction(n, 0, 0, [(1, 2, 1), (2, 1, 2)], "xid")]
    events = events_of(with_events(MARIADB, *bodies))
    alone = cut_alone(unplaced(events), segment_bytes, FAR)
    assert cut_in_runs(in_runs(unplaced(events), []), segment_bytes, FAR) == alone
    assert [segment for segment, _ in alone.segments] == [
        segment for segment, _ in cut_alone(events, segment_bytes, FAR).segments
    ]
    assert alone.location.position == len(with_events(MARIADB, *bodies)) and not alone.error


@pytest.mark.parametrize("lost", [E.TABLE_MAP, E.WRITE_ROWS_V2, E.ANNOTATE_ROWS])
def test_an_event_without_a_position_that_is_lost_is_missed_at_the_end_of_its_transaction(lost):
    bodies = [body for n in range(1, 40) for body in transaction(n, 0, 0, [(1, 2, 1), (1, 1, 2)], "xid")]
    events = unplaced(events_of(with_events(MARIADB, *bodies)))
    numbers = [number for number, one in enumerate(events) if read_frame(one).type == lost]
    number = numbers[len(numbers) // 2]
    torn = events[:number] + events[number + 1 :]
    alone = cut_alone(torn, 1 << 20, FAR)
    assert "US-3009" in alone.error
    assert cut_in_runs(in_runs(torn, []), 1 << 20, FAR) == alone


@pytest.mark.parametrize("has_positions", [True, False])
def test_most_events_are_taken_at_once(monkeypatch, has_positions):
    """A large binlog of small transactions must not be processed one event at a time."""
    bodies = [body for n in range(1, 500) for body in transaction(n, 0, 2, [(1, 2, 1), (2, 1, 2)], "xid")]
    events = events_of(with_events(MARIADB, *bodies))
    events = events if has_positions else unplaced(events)
    fed, feed = list[bytes](), Cutter.feed

    def noted(self: Cutter, one: bytes) -> None:
        fed.append(one)
        feed(self, one)

    monkeypatch.setattr(Cutter, "feed", noted)
    cut_in_runs(in_runs(events, list(range(0, len(events), 100))), 1 << 20, FAR)
    assert len(fed) < len(events) // 5
