"""GTID histories: their text forms, additions, and the events that contain them."""

import itertools
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.adapters.binlogstream import encoded_set
from unshard.binlog.events import EventType, Frame
from unshard.binlog.transactions import read_gtid, read_history
from unshard.core.ddl.renaming import name_of_dropped
from unshard.core.model import Location, TableId
from unshard.core.relay.gtidset import History, contains, has_gtid, read_set, same, write_set
from unshard.errors.relay import DamagedEvent

E = EventType
SERVER = "730f9beb-e4c3-11f1-9325-02fc00ff0001"
OTHER = "00000000-0000-0000-0000-000000000001"


def frame(kind: EventType) -> Frame:
    return Frame(1, kind, 7, 100, 200, 0)


def history_of(*gtids: str, text: str = "") -> str:
    found = History(text)
    found.reset(read_set(text) if ":" in text else filter(None, text.split(",")))
    for gtid in gtids:
        found.add(gtid)
    return found.text


def test_mariadb_has_the_last_one_of_each_domain() -> None:
    assert history_of("0-1-5", "12-1-7", "3-1-1", "0-2-6", text="0-1-4") == "0-2-6,3-1-1,12-1-7"
    assert same("3-1-1,0-2-6", "0-2-6, 3-1-1") and not same("0-2-6", "0-1-6") and not same("0-2-6", "")


@given(st.permutations(range(1, 30)), st.integers(0, 30))
def test_mysql_has_all_of_them(numbers: list[int], count: int) -> None:
    gtids = [f"{SERVER}:{number}" for number in numbers[:count]]
    text = history_of(*gtids, f"{OTHER}:tag:1")
    intervals = read_set(text).get(SERVER, [])
    whole = {number for first, last in intervals for number in range(first, last + 1)}
    assert whole == set(numbers[:count])
    assert all(later[0] > earlier[1] + 1 for earlier, later in itertools.pairwise(intervals))
    for gtid in gtids[:2]:
        with pytest.raises(ValueError, match="repeated"):
            history_of(gtid, text=text)


def test_texts_of_sets() -> None:
    text = f"{SERVER.upper()}:1-5:6:9:blue:1-2:7,\n{OTHER}:3"
    assert write_set(read_set(text)) == f"{OTHER}:3,{SERVER}:1-6:9,{SERVER}:blue:1-2:7"
    assert contains(text, f"{SERVER}:2-6,{SERVER}:blue:7") and contains(text, "")
    assert not contains(text, f"{SERVER}:5-9") and not contains(text, f"{SERVER}:red:1")


def test_a_history_has_the_last_gtid_of_each_interval_and_domain() -> None:
    ours = read_set(f"{SERVER}:1-5:9")
    assert [number for number in range(1, 11) if has_gtid(ours, f"{SERVER}:{number}")] == [1, 2, 3, 4, 5, 9]
    assert not has_gtid(ours, f"{OTHER}:1")
    assert [last for last in range(1, 5) if has_gtid(["7-1-9", "0-1-3"], f"0-1-{last}")] == [1, 2, 3]
    assert not has_gtid(["0-1-3"], "0-2-1") and not has_gtid(["0-1-3"], "7-1-1")


def test_a_history_with_a_hole_is_unknown_until_a_file_tells_it() -> None:
    found = History()
    found.add("0-1-1")
    assert not found.text
    found.reset(["0-2-3", "0-1-9", "1-1-1"])
    assert found.text == "0-1-9,1-1-1", "the last one that is named counts"
    found.add("")
    assert not found.text


def varied(number: int) -> bytes:
    """Return a number as MySQL serializes it: the low end has one 1 bit for each byte after the first."""
    size = next(size for size in range(1, 10) if number < 1 << (7 * size) or size == 9)
    if size == 9:
        return b"\xff" + number.to_bytes(8, "little")
    return (number << size | (1 << (size - 1)) - 1).to_bytes(size, "little")


def tagged(number: int, tag: str, server: str = SERVER) -> bytes:
    fields = [varied(0), varied(1), varied(1)]
    fields += [varied(byte) for byte in uuid.UUID(server).bytes]
    fields += [varied(2), varied(number << 1), varied(3), varied(len(tag)), tag.encode(), varied(4), varied(77)]
    return b"".join([varied(1), varied(90), varied(3), *fields])


@pytest.mark.parametrize("number", [1, 63, 64, 127, 128, 8191, 8192, 1 << 20, (1 << 55) + 1, (1 << 62) + 5])
@pytest.mark.parametrize("tag", ["", "blue", "a" * 32])
def test_tagged_gtids(number: int, tag: str) -> None:
    found = read_gtid(tagged(number, tag), frame(E.GTID_TAGGED_MYSQL), "p")
    assert found.text == f"{SERVER}:{tag}{':' * bool(tag)}{number}" and not found.prepares


@pytest.mark.parametrize(
    "body", [tagged(5, "blue")[:20], tagged(5, "blue")[:26], tagged(0, "x"), b"", b"\xff" * 5, tagged(5, "blue")[1:]]
)
def test_damaged_tagged_gtids(body: bytes) -> None:
    with pytest.raises(DamagedEvent, match="GTID"):
        read_gtid(body, frame(E.GTID_TAGGED_MYSQL), "p")


@pytest.mark.parametrize("text", ["", f"{SERVER}:1-5:9", f"{OTHER}:3,{SERVER}:1-6:9,{SERVER}:blue:1-2:7"])
def test_what_is_asked_for_is_what_the_head_of_a_file_says(text: str) -> None:
    """COM_BINLOG_DUMP_GTID and PREVIOUS_GTIDS have one form."""
    found = read_history(encoded_set(text), frame(E.PREVIOUS_GTIDS_MYSQL), "p")
    assert isinstance(found, dict) and write_set(found) == text


def test_the_list_of_mariadb() -> None:
    body = struct.pack("<I", 2 | 0x30000000) + struct.pack("<IIQ", 0, 7, 55) + struct.pack("<IIQ", 9, 8, 1 << 40)
    assert read_history(body, frame(E.GTID_LIST), "p") == ["0-7-55", f"9-8-{1 << 40}"]
    with pytest.raises(DamagedEvent, match="GTID_LIST"):
        read_history(body[:30], frame(E.GTID_LIST), "p")


def test_files_of_the_next_server_come_after_all_of_the_last_one() -> None:
    old, new = Location("mysql-bin.000999", 800), Location("other-bin.000003", 4).in_generation(1)
    assert new.file == "other-bin@1.000003" and new.server_file == "other-bin.000003" and new.generation == 1
    assert old < new < Location("x.000001", 4).in_generation(2) and new.in_generation(0).generation == 0
    assert name_of_dropped(TableId("a", "b"), old) != name_of_dropped(
        TableId("a", "b"), Location("m.000999", 800).in_generation(1)
    )
