"""Rows of random tables, intact and mangled, checked against an encoder that shares no code with the decoder.

These events have no checksums, so a mangled byte may be another valid value. Therefore every returned row must encode
back to exactly the same bytes, and everything else must be a coded error. A mangled TABLE_MAP has no effect or is an
error.
"""

import re
import struct
import tracemalloc
import zlib
from collections.abc import Sequence
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import TableMapEvent, WriteRowsEvent

from tests.binlogfiles import Memory, changes, cut, event, events_of, head_of, read, structure, with_events
from tests.suite.portions import portion
from unshard.binlog.cutter import RunCutter
from unshard.binlog.decoder import RangeOrigin, decode_range
from unshard.binlog.events import CHECKSUM, HEADER, ROWS, EventType, inflate
from unshard.binlog.payload import payload_events
from unshard.binlog.rawrows import extract
from unshard.binlog.runs import Run
from unshard.binlog.transactions import GTIDS
from unshard.binlog.values import inflated, number_text
from unshard.core.model import Location, TableId
from unshard.errors import UnshardError
from unshard.errors.relay import DamagedEvent

E = EventType
ORACLE_EVENTS = frozenset((TableMapEvent, WriteRowsEvent))
TABLE = TableId("d", "t")
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
LABELS = ("a", "b", "ü", "x y")


def integer(size, signed):
    low, high = (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) if signed else (0, (1 << 8 * size) - 1)
    return (
        lambda r: b"%d" % r.choice((low, high, 0, r.randint(low, high))),
        lambda text: int(text).to_bytes(size, "little", signed=signed),
    )


def text(limit, prefix):
    return (
        lambda r: r.randbytes(r.choice((0, 1, r.randrange(min(limit, 300))))),
        lambda value: len(value).to_bytes(prefix, "little") + value,
    )


def decimal(precision, scale):
    def draw(r):
        number = r.choice((0, 1, 10**precision - 1, r.randrange(10**precision)))
        sign = "-" if number and r.random() < 0.5 else ""
        return f"{sign}{_point(number, scale)}".encode()

    def encode(value):
        digits = value.decode().lstrip("-").replace(".", "").rjust(precision + 1, "0")[-precision:]
        whole, fraction = digits[: precision - scale], digits[precision - scale :]
        first = len(whole) % 9
        groups = [whole[:first], *(whole[k : k + 9] for k in range(first, len(whole), 9))]
        groups += [fraction[k : k + 9] for k in range(0, len(fraction), 9)]
        data = bytearray(b"".join(int(g or 0).to_bytes(DIGIT_BYTES[len(g)], "big") for g in groups))
        data[0] ^= 0x80
        return bytes(byte ^ 0xFF for byte in data) if value[:1] == b"-" else bytes(data)

    return draw, encode


def _point(number, scale):
    digits = str(number).rjust(scale + 1, "0")
    return f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits


def fraction(value, digits):
    """Split off the fraction of a second; return the rest, and the stored bytes as a number with their count."""
    rest, _, part = value.decode().partition(".")
    width = (digits + 1) // 2
    return rest, int((part or "0").ljust(2 * width, "0") or 0), width


def clock(r, digits, hours=24):
    tail = "." + "".join(r.choice("0123456789") for _ in range(digits)) if digits else ""
    return f"{r.randrange(hours):02}:{r.randrange(60):02}:{r.randrange(60):02}{tail}"


def day(r):
    return f"{r.choice((0, 1, 1970, 9999)):04}-{r.randrange(13):02}-{r.randrange(32):02}"


def date():
    def encode(value):
        year, month, mday = map(int, value.split(b"-"))
        return (year << 9 | month << 5 | mday).to_bytes(3, "little")

    return lambda r: day(r).encode(), encode


def datetime(digits):
    def encode(value):
        rest, part, width = fraction(value, digits)
        year, month, mday, hour, minute, second = map(int, re.split("[- :]", rest))
        packed = ((year * 13 + month) << 5 | mday) << 17 | hour << 12 | minute << 6 | second
        return (packed + 0x8000000000).to_bytes(5, "big") + part.to_bytes(width, "big")

    return lambda r: f"{day(r)} {clock(r, digits)}".encode(), encode


def time(digits):
    def encode(value):
        negative, value = value[:1] == b"-", value.lstrip(b"-")
        rest, part, width = fraction(value, digits)
        hour, minute, second = map(int, rest.split(":"))
        number = (hour << 12 | minute << 6 | second) << 8 * width | part
        return ((0x800000 << 8 * width) + (-number if negative else number)).to_bytes(3 + width, "big")

    def draw(r):
        found = clock(r, digits, 839)
        return ("-" if r.random() < 0.5 and found.strip("0:.") else "").encode() + found.encode()

    return draw, encode


def number(code):
    """Return a generator of numbers; other tests compare printed numbers with servers."""

    def draw(r):
        while True:
            (value,) = struct.unpack(code, r.randbytes(struct.calcsize(code)))
            if value - value == 0:
                return number_text(value)

    return draw, lambda text: struct.pack(code, float(text))


def enum():
    return lambda r: r.choice(("", *LABELS)).encode(), lambda value: bytes((["", *LABELS].index(value.decode()),))


def set_():
    def encode(value):
        return bytes((sum(1 << LABELS.index(label) for label in value.decode().split(",") if label),))

    return lambda r: ",".join(label for label in LABELS if r.random() < 0.5).encode(), encode


def bit(bits):
    width = (bits + 7) // 8
    return lambda r: r.getrandbits(bits).to_bytes(width, "big"), lambda value: value


def year():
    return (
        lambda r: b"%04d" % r.choice((0, 1901, 2155)),
        lambda value: bytes((int(value) - 1900 if int(value) else 0,)),
    )


LIST = ",".join(f"'{label}'" for label in LABELS)
TYPES = {
    "tinyint": (1, b"", integer(1, True)),
    "smallint unsigned": (2, b"", integer(2, False)),
    "mediumint": (9, b"", integer(3, True)),
    "mediumint unsigned": (9, b"", integer(3, False)),
    "int": (3, b"", integer(4, True)),
    "bigint unsigned": (8, b"", integer(8, False)),
    "varchar(20); latin1": (15, b"\x14\0", text(20, 1)),
    "varchar(200); utf8mb4": (15, b"\x20\3", text(800, 2)),
    "varbinary(255)": (15, b"\xff\0", text(255, 1)),
    "tinyblob": (252, b"\1", text(255, 1)),
    "longtext; utf8mb4": (252, b"\4", text(300, 4)),
    "decimal(10,3)": (246, b"\x0a\3", decimal(10, 3)),
    "decimal(65,30)": (246, b"\x41\x1e", decimal(65, 30)),
    "decimal(5,5)": (246, b"\5\5", decimal(5, 5)),
    "decimal(18,0)": (246, b"\x12\0", decimal(18, 0)),
    "date": (10, b"", date()),
    "datetime": (18, b"\0", datetime(0)),
    "datetime(3)": (18, b"\3", datetime(3)),
    "datetime(6)": (18, b"\6", datetime(6)),
    "time": (19, b"\0", time(0)),
    "time(1)": (19, b"\1", time(1)),
    "time(4)": (19, b"\4", time(4)),
    "time(5)": (19, b"\5", time(5)),
    "float": (4, b"\4", number("<f")),
    "double": (5, b"\x08", number("<d")),
    f"enum({LIST}); utf8mb4": (254, b"\xf7\1", enum()),
    f"set({LIST}); utf8mb4": (254, b"\xf8\1", set_()),
    "bit(11)": (16, b"\3\1", bit(11)),
    "bit(64)": (16, b"\0\x08", bit(64)),
    "year": (13, b"", year()),
}


class Rows:
    """A random table of eight columns, and its events."""

    def __init__(self, random: Random, types: Sequence[str] = tuple(TYPES)) -> None:
        self.random = random
        self.kinds = [random.choice(types) for _ in range(8)]
        self.nullable = [random.random() < 0.5 for _ in self.kinds]
        marked = enumerate(zip(self.kinds, self.nullable, strict=True))
        self.schema = structure(*(f"c{n}{'' if null else '!'} {kind}" for n, (kind, null) in marked))

    def row(self):
        return tuple(
            None if null and self.random.random() < 0.3 else TYPES[kind][2][0](self.random)
            for kind, null in zip(self.kinds, self.nullable, strict=True)
        )

    def image(self, row):
        nulls = sum(1 << n for n, value in enumerate(row) if value is None)
        values = (TYPES[kind][2][1](value) for kind, value in zip(self.kinds, row, strict=True) if value is not None)
        return bytes((nulls,)) + b"".join(values)

    def table_map(self):
        types = bytes(TYPES[kind][0] for kind in self.kinds)
        sizes = b"".join(TYPES[kind][1] for kind in self.kinds)
        return b"\7\0\0\0\0\0\1\0\1d\0\1t\0\x08" + types + bytes((len(sizes),)) + sizes + b"\xff"

    def rows_event(self, kind, images):
        return b"\7\0\0\0\0\0\1\0\2\0\x08\xff" + b"\xff" * (kind == E.UPDATE_ROWS_V2) + images

    def decode(self, table_map, kind, body):
        data = event(E.TABLE_MAP, table_map) + event(kind, body) + event(E.XID, bytes(8))
        found = []
        for _, batch in decode_range(data, False, {TABLE: self.schema}, {}, RangeOrigin("s1", "f", 4)):
            _, _, *columns = (column.to_pylist() for column in batch.columns)
            found += zip(*columns, strict=True)
        return found


def mangled(random: Random, data: bytes, start: int = 0) -> bytes:
    """Change, insert or remove a few bytes."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        place = random.randrange(start, len(found))
        match random.randrange(6):
            case 0:
                del found[place]
            case 1:
                found.insert(place, random.randrange(256))
            case 2:
                found[place] ^= 1 << random.randrange(8)
            case _:
                found[place] = random.randrange(256)
        if len(found) <= start:
            break
    return bytes(found)


@pytest.mark.parametrize("seed", range(60))
def test_rows_of_random_tables(seed):
    rows = Rows(Random(seed))
    wanted = [rows.row() for _ in range(20)]
    for kind in (E.WRITE_ROWS_V2, E.UPDATE_ROWS_V2):
        body = rows.rows_event(kind, b"".join(map(rows.image, wanted)))
        assert rows.decode(rows.table_map(), kind, body) == wanted


@pytest.mark.parametrize("seed", range(60))
def test_mangled_rows_are_read_to_the_last_bit_or_not_at_all(seed):
    random = Random(seed)
    rows = Rows(random)
    images = b"".join(rows.image(rows.row()) for _ in range(2))
    head = rows.rows_event(E.WRITE_ROWS_V2, b"")
    for _ in range(60):
        body = mangled(random, head + images, 8)
        try:
            found = rows.decode(rows.table_map(), E.WRITE_ROWS_V2, body)
        except UnshardError as error:
            assert str(error).startswith("[US-3")
        else:
            assert head + b"".join(map(rows.image, found)) == body


@pytest.mark.parametrize("seed", range(40))
def test_a_mangled_table_map_changes_nothing_or_is_an_error(seed):
    random = Random(seed)
    rows = Rows(random)
    wanted = [rows.row() for _ in range(3)]
    body = rows.rows_event(E.WRITE_ROWS_V2, b"".join(map(rows.image, wanted)))
    for _ in range(40):
        try:
            found = rows.decode(mangled(random, rows.table_map(), 14), E.WRITE_ROWS_V2, body)
        except UnshardError as error:
            assert str(error).startswith("[US-3")
        else:
            assert found == wanted


@pytest.mark.parametrize("name", ["types_my97_FULL.binlog", "types_maria_full.binlog", "compressed.binlog"])
def test_mangled_files_are_cut_or_end_in_a_coded_error(name):
    """The checksums match the mangled bytes, so that the decoder reads them."""
    random, events, refused = Random(9), events_of(read(name)), 0
    for _ in range(150):
        place = random.randrange(1, len(events))
        body = mangled(random, events[place][HEADER:-CHECKSUM])
        changed = [
            (EventType(found[4]), body if found is events[place] else found[HEADER:-CHECKSUM])
            for found in events[max(1, place - 4) : place + 1]
        ]
        try:
            cut(with_events(head_of(name), *changed))
        except UnshardError as error:
            assert str(error).startswith("[US-3")
            refused += 1
    assert refused > 10


def test_mangled_payloads():
    events = events_of(read("types_my97_FULL.binlog"))
    body, random, refused = events[-1][HEADER:-CHECKSUM], Random(10), 0
    head, whole = [(E.GTID_MYSQL, events[-2][HEADER:-CHECKSUM])], structure("id! int", "a int")
    for _ in range(400):
        data = with_events(head_of("types_my97_FULL.binlog"), *head, (E.TRANSACTION_PAYLOAD, mangled(random, body)))
        try:
            rows = changes(data, "ty.vc", whole)
        except UnshardError:
            refused += 1
        else:
            assert len(rows) in (0, 2)
    assert refused > 200


FILES = ("types_my97_FULL.binlog", "types_maria_full.binlog", "compressed.binlog")
FIRST = Location("binlog.000001", 4)
FAR = Location("binlog.999999", 4)


def read_everything(data: bytes) -> int:
    """Cut a file in both ways and read its ranges in both ways; return the number of row events of the index."""
    events, found = events_of(data), []
    run = Run(memoryview(data)[4:], np.cumsum([0, *map(len, events)]))
    for is_run in (False, True):
        sink = Memory()
        cutter = RunCutter("s1", FIRST, sink, 1 << 20)
        for _ in cutter.read(run, FAR) if is_run else map(cutter.feed, events):
            pass
        cutter.end()
        found.append(sink.segments)
    assert found[0] == found[1]
    checksum = events[0][-CHECKSUM - 1] == 1
    for segment, stored in found[0]:
        for part in segment.ranges:
            ranged, origin = memoryview(stored)[part.start : part.end], RangeOrigin("s1", segment.file, 4)
            assert not list(decode_range(ranged, checksum, {}, {}, origin))
            list(extract(ranged, checksum, TABLE, origin=origin))
    return sum(count for segment, _ in found[0] for part in segment.ranges for _, count in part.tables)


def group_of(events: list[bytes], place: int) -> range:
    """Return the events of the transaction around an event."""
    starts = [at for at, one in enumerate(events) if one[4] in GTIDS]
    begin = max(at for at in starts if at <= place)
    return range(begin, min((at for at in starts if at > place), default=len(events)))


def bodies_of(events: list[bytes], group: range) -> list[tuple[EventType, bytes]]:
    return [(EventType(events[at][4]), events[at][HEADER:-CHECKSUM]) for at in group]


@pytest.mark.parametrize("name", FILES[1:])
def test_rows_under_another_type_are_never_dropped(name):
    """The checksum is that of the changed event, as a faulty proxy, disk or attacker makes it."""
    events, tried = events_of(read(name)), 0
    places = [at for at, one in enumerate(events) if one[4] in ROWS]
    for place in places[:: max(1, len(places) // portion(3, 8, 100))]:
        group = group_of(events, place)
        for kind in set(EventType) - ROWS:
            bodies = bodies_of(events, group)
            bodies[place - group.start] = kind, bodies[place - group.start][1]
            with pytest.raises(UnshardError) as caught:
                read_everything(with_events(head_of(name), *bodies, (E.GTID, bytes(19))))
            assert caught.value.code.startswith("US-3"), kind.name
            tried += 1
    assert tried > 80


def test_stored_rows_under_another_type_are_never_dropped():
    """The two readers of a range, without the cutter before them."""
    rows = Rows(Random(4), ("int",))
    head = event(E.GTID, bytes(19)) + event(E.TABLE_MAP, rows.table_map())
    body = rows.rows_event(E.WRITE_ROWS_V2, rows.image(rows.row()))
    for kind in set(EventType) - ROWS:
        data = head + event(kind, body) + event(E.XID, bytes(8))
        for reader in (decode_range, lambda *of: extract(of[0], of[1], TABLE, origin=of[4])):
            with pytest.raises(UnshardError) as caught:
                list(reader(data, False, {TABLE: rows.schema}, {}, RangeOrigin("s1", "f", 4)))
            assert caught.value.code.startswith("US-3"), kind.name


def test_rows_in_a_payload_under_another_type_are_never_dropped():
    rows = Rows(Random(4), ("int",))
    body = rows.rows_event(E.WRITE_ROWS_V2, rows.image(rows.row()))
    gtid = (E.ANONYMOUS_GTID_MYSQL, bytes(25))
    for kind in sorted({*EventType, *range(256)} - ROWS):
        inner = event(E.TABLE_MAP, rows.table_map()) + event(kind, body) + event(E.XID, bytes(8))
        size = b"\xfe" + len(inner).to_bytes(8, "little")
        held = b"\2\3\xfc\xff\0" + b"\3\x09" + size + b"\1\x09" + size + b"\0" + inner
        with pytest.raises(UnshardError) as caught:
            cut(with_events(head_of(FILES[0]), gtid, (E.TRANSACTION_PAYLOAD, held)))
        assert caught.value.code.startswith("US-3"), kind
        with pytest.raises(UnshardError):
            list(decode_range(event(E.TRANSACTION_PAYLOAD, held), False, {TABLE: rows.schema}))


@pytest.mark.parametrize(
    "name",
    [b"binlog", b"", b"binlog.", b"binlog.x", b"bin\xfflog.000002", b"../b.000002", b"a/b.1", b"b.1\0", b"b.-1"],
)
def test_a_rotation_names_a_file(name):
    with pytest.raises(DamagedEvent, match="ROTATE"):
        cut(with_events(head_of(FILES[0]), (E.ROTATE, bytes(8) + name)))


@pytest.mark.parametrize(
    "variables", [b"\x0c\1db", b"\x0c\2db\0", b"\x0b\5a", b"\x83\xff", b"\5\x09UTC", b"\x05\1\xff"]
)
def test_status_variables_that_are_cut_off(variables):
    body = struct.pack("<IIBHH", 1, 0, 1, 0, len(variables)) + variables + b"d\0CREATE TABLE x (a int)"
    with pytest.raises(DamagedEvent, match="QUERY"):
        cut(with_events(head_of(FILES[0]), (E.ANONYMOUS_GTID_MYSQL, bytes(25)), (E.QUERY, body)))


@pytest.mark.parametrize("seed", range(portion(2, 6, 60)))
@pytest.mark.parametrize("name", FILES)
def test_whatever_a_source_sends_ends_in_coded_errors(name, seed):
    """One event of a transaction is changed, its frame included; checksums, sizes and positions fit."""
    random, events = Random(seed), events_of(read(name))
    starts = [at for at, one in enumerate(events) if one[4] in GTIDS]
    for _ in range(60):
        group = group_of(events, random.choice(starts))
        bodies, place = bodies_of(events, group), random.randrange(len(group))
        kind, body = bodies[place]
        kind = random.choice([*EventType]) if random.random() < 0.2 else kind
        bodies[place] = kind, mangled(random, body) if len(body) > 1 else body
        try:
            read_everything(with_events(head_of(name), *bodies, (E.GTID, bytes(19))))
        except UnshardError as error:
            assert error.code.startswith("US-3")


SIZES = (0, 1, 1 << 20, (1 << 32) - 1)


@pytest.mark.parametrize("size", SIZES)
def test_what_is_decompressed_ends_at_its_size(size):
    """A megabyte of zeros is a kilobyte; the sizes say something else, and only so much is ever in memory."""
    plain = bytes(1 << 22)
    zipped = zlib.compress(plain)
    tracemalloc.start()
    with pytest.raises((DamagedEvent, ValueError), match=r"length|bytes"):
        inflate(b"\x84" + size.to_bytes(4, "big") + zipped, "f:4")
    with pytest.raises(ValueError, match="length"):
        inflated(b"\x84" + min(size, 1 << 20).to_bytes(4, "big") + zipped)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 << 20


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_a_payload_is_decompressed_only_up_to_its_size(size):
    whole = event(E.QUERY, bytes(size))
    data = pa.compress(whole + bytes(1 << 24), "zstd", asbytes=True)
    told = b"\xfe" + len(whole).to_bytes(8, "little"), b"\xfe" + len(data).to_bytes(8, "little")
    body = b"\2\1\0" + b"\3\x09" + told[0] + b"\1\x09" + told[1] + b"\0" + data
    with pytest.raises(DamagedEvent, match="longer"):
        list(payload_events(body, "f:4"))


class Oracle:
    """The object that mysql-replication uses instead of a server."""

    charset = "utf8mb4"

    def _get_dbms(self):
        return "mysql"


class Packet:
    """One event, as mysql-replication reads it from a connection."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = b"\0" + data, 0

    def read(self, size):
        self._position += size
        return self._data[self._position - size : self._position]

    def advance(self, size):
        self._position += size

    def read_all(self):
        return self.read(len(self._data) - self._position)


ALIKE = (
    "tinyint",
    "smallint unsigned",
    "mediumint",
    "mediumint unsigned",
    "int",
    "bigint unsigned",
    "varbinary(255)",
    "varchar(200); utf8mb4",
    "tinyblob",
    "decimal(10,3)",
    "decimal(65,30)",
    "decimal(5,5)",
    "decimal(18,0)",
    "double",
    "bit(11)",
    "bit(64)",
)
"""Types that mysql-replication decodes correctly: no negative fractions of TIME, zero dates or labels."""


def by_the_oracle(rows: Rows, body: bytes) -> list[tuple]:
    """Decode with mysql-replication, which needs signs and character sets as arguments."""
    tables: dict[int, object] = {}
    for kind, data in ((E.TABLE_MAP, rows.table_map()), (E.WRITE_ROWS_V2, body)):
        wrapper = BinLogPacketWrapper(
            Packet(event(kind, data)),
            tables,
            Oracle(),
            (8, 0, 36),
            False,
            ORACLE_EVENTS,
            None,
            None,
            None,
            None,
            False,
            False,
            False,
            False,
            False,
            False,
            None,
        )
        if kind == E.TABLE_MAP:
            table = wrapper.event.get_table()
            for column, name in zip(table.columns, rows.kinds, strict=True):
                column.unsigned, column.character_set_name = "unsigned" in name, "binary"
            tables[wrapper.event.table_id] = table
    return [tuple(row["values"].values()) for row in wrapper.event.rows]


def as_text(kind: str, value: object) -> bytes | None:
    match value:
        case float():
            return number_text(value)
        case str() if kind.startswith("bit"):
            return int(value, 2).to_bytes((len(value) + 7) // 8, "big")
        case "":
            return b""
        case Decimal():
            return f"{value:f}".encode()
        case int():
            return b"%d" % value
        case _:
            return value


@pytest.mark.parametrize("seed", range(20))
def test_mysql_replication_reads_the_same(seed):
    rows = Rows(Random(seed), ALIKE)
    body = rows.rows_event(E.WRITE_ROWS_V2, b"".join(rows.image(rows.row()) for _ in range(30)))
    theirs = [tuple(map(as_text, rows.kinds, row)) for row in by_the_oracle(rows, body)]
    assert theirs == rows.decode(rows.table_map(), E.WRITE_ROWS_V2, body)
