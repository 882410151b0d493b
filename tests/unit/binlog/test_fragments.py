"""Rows events in fragments (MariaDB 12.3): a real binlog reads the same whether its rows events are split or not.

No MariaDB 12.3 was available. So these tests split the rows events of files of MariaDB 10.11 as MariaDB documents it.
"""

import struct
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.binlogfiles import Memory, changes, cut, event, events_of, read, structure
from unshard.binlog.cutter import Cutter, RunCutter
from unshard.binlog.decoder import RangeOrigin, opened_events
from unshard.binlog.events import CHECKSUM, HEADER, MAGIC, ROWS, EventType, read_frame, walk
from unshard.binlog.payload import SIZED
from unshard.binlog.runs import Run
from unshard.core.model import Location
from unshard.errors import UnshardError
from unshard.errors.relay import DamagedEvent, FragmentsBroken, UnsupportedEvent

E = EventType
PLAIN, COMPRESSED = read("types_maria_full.binlog"), read("compressed.binlog")
START, FAR = Location("binlog.000001", len(MAGIC)), Location("binlog.000009", 4)
INTEGERS = structure(
    "id! int",
    "ut tinyint unsigned",
    "us smallint unsigned",
    "um mediumint unsigned",
    "ui int unsigned",
    "ub bigint unsigned",
)


@dataclass(frozen=True)
class Form:
    """A form of the fragments that a server might write."""

    chunk: int = 20
    is_sized: bool = True
    """The first fragment contains the size of the whole event."""
    is_each_sized: bool = False
    has_checksum: bool = True
    """The whole event ends with a checksum of its own."""
    is_size_of_checked: bool = True
    """The sizes include the checksum, whether it is there or not."""
    is_number_first: bool = False


FORMS = [
    Form(),
    Form(chunk=1),
    Form(chunk=1 << 20),
    Form(is_sized=False),
    Form(is_each_sized=True),
    Form(has_checksum=False),
    Form(has_checksum=False, is_size_of_checked=False),
    Form(is_number_first=True),
    Form(has_checksum=False, is_sized=False, chunk=7),
]


def bodies_of(whole: bytes, form: Form) -> list[bytes]:
    """Return the bodies of the fragments of a rows event, which has a checksum."""
    content = whole if form.has_checksum else whole[:-CHECKSUM]
    size = len(whole) if form.has_checksum or form.is_size_of_checked else len(content)
    content = content[:9] + struct.pack("<I", size) + content[13:] if not form.has_checksum else content
    chunks = [content[at : at + form.chunk] for at in range(0, len(content), form.chunk)]
    found = []
    for number, chunk in enumerate(chunks, 1):
        sized = (form.is_sized and number == 1) or form.is_each_sized
        pair = (number, len(chunks)) if form.is_number_first else (len(chunks), number)
        found.append(struct.pack("<IIB", *pair, sized * SIZED) + (struct.pack("<Q", size) if sized else b"") + chunk)
    return found


def rebuilt(events: list[tuple[EventType, bytes]], description: bytes) -> bytes:
    """Return a file with these events at their new positions."""
    data = MAGIC + description
    for kind, body in events:
        data += event(kind, body, len(data))
    return data


def split(data: bytes, form: Form) -> bytes:
    """Return the file with every rows event in fragments."""
    first, *rest = events_of(data)
    found: list[tuple[EventType, bytes]] = []
    for one in rest:
        kind = EventType(read_frame(one).type)
        if kind in ROWS:
            found += [(E.PARTIAL_ROW_DATA, body) for body in bodies_of(one, form)]
        else:
            found.append((kind, one[HEADER:-CHECKSUM]))
    return rebuilt(found, first)


def fragmented(*changed: tuple[int, bytes | None], form: Form = Form()) -> bytes:
    """Return a file with one transaction of MariaDB whose rows event has fragments.

    `changed` replaces the bodies of fragments by their numbers; None leaves one out.
    """
    first, *rest = events_of(PLAIN)
    kinds = [read_frame(one).type for one in rest]
    rows = next(number for number, kind in enumerate(kinds) if kind in ROWS)
    begin = max(number for number in range(rows) if kinds[number] == E.GTID)
    end = next(number for number in range(rows, len(kinds)) if kinds[number] in (E.XID, E.QUERY))
    before, after = rest[begin:rows], rest[rows + 1 : end + 1]
    parts = dict(enumerate(bodies_of(rest[rows], form), 1)) | dict(changed)
    return rebuilt(
        [
            *((EventType(read_frame(one).type), one[HEADER:-CHECKSUM]) for one in before),
            *((E.PARTIAL_ROW_DATA, body) for body in parts.values() if body is not None),
            *((EventType(read_frame(one).type), one[HEADER:-CHECKSUM]) for one in after),
        ],
        first,
    )


def part(number: int, form: Form = Form()) -> bytes:
    """Return the body of a fragment of that transaction."""
    rows = next(one for one in events_of(PLAIN) if read_frame(one).type in ROWS)
    return bodies_of(rows, form)[number - 1]


def count_of(form: Form = Form()) -> int:
    rows = next(one for one in events_of(PLAIN) if read_frame(one).type in ROWS)
    return len(bodies_of(rows, form))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("data", [PLAIN, COMPRESSED], ids=["plain", "compressed"])
def test_index_counts_the_same_rows_events(data: bytes, form: Form) -> None:
    def counts(file: bytes) -> list[list[object]]:
        return [[part.tables for part in segment.ranges] for segment, _ in cut(file)]

    assert counts(split(data, form)) == counts(data)


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_the_same(form: Form) -> None:
    expected = changes(PLAIN, "ty.t1", INTEGERS)
    assert expected
    assert changes(split(PLAIN, form), "ty.t1", INTEGERS) == expected


def test_segments_contain_the_bytes_of_the_binlog() -> None:
    data = split(PLAIN, Form())
    assert MAGIC + b"".join(held[len(held) - segment.size :] for segment, held in cut(data)) == data


@given(st.integers(1, 200), st.integers(1, 4000))
def test_many_events_at_a_time_give_the_same_segments(chunk: int, segment_bytes: int) -> None:
    data = split(PLAIN, Form(chunk=chunk))
    assert in_runs(data, segment_bytes) == cut(data, segment_bytes=segment_bytes)


def in_runs(data: bytes, segment_bytes: int = 1 << 20) -> list[tuple[object, bytes]]:
    """Cut a file many events at a time."""
    events = events_of(data)
    offsets = [0]
    for one in events:
        offsets.append(offsets[-1] + len(one))
    sink = Memory()
    cutter = RunCutter("s1", START, sink, segment_bytes)
    for _ in cutter.read(Run(memoryview(b"".join(events)), np.array(offsets, np.int64)), FAR):
        pass
    cutter.end()
    return list(sink.segments)


LAST = count_of()
OTHER_TOTAL = struct.pack("<II", LAST + 1, 2) + part(2)[8:]
NO_SIZE = part(1)[:8] + b"\0" + part(1)[17:]
DAMAGES = {
    "missing in between": ([(2, None)], "fragment 2 is expected, this is number 3"),
    "missing at the end": ([(LAST, None)], f"fragment {LAST} of {LAST} is missing"),
    "missing at the beginning": ([(1, None)], "fragment 1 is expected"),
    "number twice": ([(3, part(2))], "fragment 3 is expected, this is number 2"),
    "number 0": ([(1, struct.pack("<II", LAST, 0) + part(1)[8:])], "fragment 1 is expected, this is number 0"),
    "number beyond the total": ([(2, struct.pack("<II", 1, 2) + part(2)[8:])], "fragment 2 is one of 1"),
    "another total": ([(2, OTHER_TOTAL)], f"fragment 2 is one of {LAST + 1}, the ones before it of {LAST}"),
    "a smaller size": ([(1, part(1)[:9] + struct.pack("<Q", 30) + part(1)[17:])], "their event has 30"),
    "a larger size": ([(1, part(1)[:9] + struct.pack("<Q", 1 << 40) + part(1)[17:])], f"has {1 << 40}"),
    "another size later": ([(2, part(2)[:8] + b"\1" + struct.pack("<Q", 7) + part(2)[9:])], "and 7 in another"),
    "a chunk that lacks a byte": ([(2, part(2)[:-1])], "bytes together"),
    "the same without a size": ([(1, NO_SIZE), (2, part(2)[:-1])], "bytes together"),
    "cut off": ([(2, b"\2\0\0")], "cut off"),
    "size cut off": ([(1, part(1)[:12])], "cut off"),
    "no rows event": ([(1, part(1)[:17] + bytes(4) + b"\2" + part(1)[22:])], "type 2, which has no rows"),
    "too short": ([(1, struct.pack("<IIB", 1, 1, 0) + b"abc"), *((n, None) for n in range(2, LAST + 1))], "too few"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_fragments_are_an_error_that_names_the_fault(name: str) -> None:
    changed, words = DAMAGES[name]
    with pytest.raises(FragmentsBroken, match=words):
        cut(fragmented(*changed))
    with pytest.raises(FragmentsBroken, match=words):
        in_runs(fragmented(*changed))


def test_unknown_flags_are_refused() -> None:
    with pytest.raises(UnsupportedEvent, match="with flags 3"):
        cut(fragmented((1, part(1)[:8] + b"\3" + part(1)[9:])))


def test_damage_in_a_stored_segment_is_found_when_it_is_decoded() -> None:
    ((segment, held),) = [one for one in cut(fragmented()) if one[0].ranges]
    assert segment.ranges
    number = struct.pack("<II", LAST, 2)
    assert held.count(number) == 1
    damaged = held.replace(number, struct.pack("<II", LAST, 3))[segment.ranges[0].start :]
    with pytest.raises(DamagedEvent, match="checksum"):
        list(walk(damaged, True, "s1"))
    frames = walk(damaged, False, "s1")
    with pytest.raises(FragmentsBroken):
        list(opened_events(damaged, frames, CHECKSUM, RangeOrigin("s1", "binlog.000001")))


@given(st.lists(st.tuples(st.integers(1, LAST), st.integers(0, 8), st.integers(0, 255)), max_size=4))
def test_any_damage_of_numbers_is_a_coded_error_or_no_change(damages: list[tuple[int, int, int]]) -> None:
    changed: dict[int, bytes | None] = {}
    for number, at, value in damages:
        body = bytearray(changed.get(number) or part(number))
        body[at] = value
        changed[number] = bytes(body)
    try:
        found = changes(fragmented(*changed.items()), "ty.t1", INTEGERS)
    except UnshardError:
        return
    assert found == changes(fragmented(), "ty.t1", INTEGERS)


def test_a_crash_within_fragments_rolls_the_transaction_back() -> None:
    data = fragmented((LAST, None))
    sink = Memory()
    cutter = Cutter("s1", START, sink, 1 << 20)
    events = [one for one in events_of(data) if read_frame(one).type not in (E.XID, E.QUERY)]
    for one in events:
        cutter.feed(one)
    rotate = struct.pack("<Q", 4) + b"binlog.000002"
    cutter.feed(struct.pack("<IBIIIH", 0, E.ROTATE, 1, HEADER + len(rotate), 0, 0x20) + rotate)
    assert [(segment.next_file, segment.ranges) for segment, _ in sink.segments] == [("binlog.000002", ())]
