"""Reading all events at once gives the same result as one after the other, or leaves the range to that reader."""

import zlib
from random import Random

import numpy as np
import pytest

from tests.binlogfiles import event
from tests.unit.binlog.test_fuzz import TABLE, Rows, mangled
from unshard.binlog import rowcode, values
from unshard.binlog.decoder import RangeOrigin, _Decoder, decode_range
from unshard.binlog.events import EventType, are_whole
from unshard.binlog.lockstep import pieces, skim
from unshard.errors import UnshardError

E = EventType
KINDS = (E.WRITE_ROWS_V1, E.UPDATE_ROWS_V1, E.DELETE_ROWS_V1, E.WRITE_ROWS_V2, E.UPDATE_ROWS_V2)
COLUMNS = {
    "date": (rowcode.date_column, values.date_text, 3),
    "datetime": (rowcode.datetime_column(0), values.datetime_text(0), 5),
    "datetime(3)": (rowcode.datetime_column(3), values.datetime_text(3), 7),
    "timestamp": (rowcode.timestamp_column(0), values.timestamp_text(0), 4),
    "timestamp(6)": (rowcode.timestamp_column(6), values.timestamp_text(6), 7),
    "year": (rowcode.year_column, values.year_text, 1),
    "enum": (rowcode.enum_column((b"a", b"b"), 1), values.enum_text((b"a", b"b"), 1), 1),
    "double": (rowcode.double_column, values.float_text("<d", None), 8),
    "decimal(12,2)": (rowcode.decimal_column(12, 2), values.decimal_text(12, 2), values.decimal_bytes(12, 2)),
    "decimal(18,0)": (rowcode.decimal_column(18, 0), values.decimal_text(18, 0), values.decimal_bytes(18, 0)),
    "decimal(9,6)": (rowcode.decimal_column(9, 6), values.decimal_text(9, 6), values.decimal_bytes(9, 6)),
}


def drawn(random: Random, name: str, width: int) -> bytes:
    """Return random bytes that are often a value of the type."""
    if name == "double":
        return np.array([random.choice((0.0, random.uniform(-1e6, 1e6), random.randint(-9, 9), 0.1))], "<f8").tobytes()
    if name.startswith("decimal"):
        body = bytearray(random.choice((0, 0, random.randrange(8))) for _ in range(width))
        body[0] ^= 0x80
        return bytes(body) if random.random() < 0.5 else bytes(byte ^ 0xFF for byte in body)
    if name.startswith("datetime"):
        packed = (random.randrange(9999 * 13) << 5 | random.randrange(32)) << 17 | random.randrange(24) << 12
        packed |= random.randrange(60) << 6 | random.randrange(60)
        fraction = 10 * random.randrange(1000) if width > 5 else 0
        return (packed + 0x8000000000).to_bytes(5, "big") + fraction.to_bytes(width - 5, "big")
    if name == "enum":
        return bytes([random.randrange(4)])
    whole = random.randbytes(min(width, 4))
    return whole + random.randrange(1_000_000).to_bytes(width - len(whole), "big") if width > 4 else whole


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("seed", range(5))
def test_columns_are_printed_as_values_are(name, seed):
    show, read, width = COLUMNS[name]
    random, compared = Random(seed), 0
    for rows in [1] * 300 + [40]:
        data = b"".join(drawn(random, name, width) for _ in range(rows))
        starts = np.arange(0, len(data), width)
        try:
            found = show(np.frombuffer(data, np.uint8), starts).to_pylist()
        except (ValueError, IndexError):
            continue
        assert found == [read(data, int(start)) for start in starts]
        compared += 1
    assert compared > 20


@pytest.mark.parametrize("seed", range(20))
def test_checksums_of_a_range(seed):
    random, parts = Random(seed), []
    for _ in range(random.choice((1, 2, 30, 700))):
        body = random.randbytes(random.choice((0, 15, 200, 9000)))
        parts.append(body + zlib.crc32(body).to_bytes(4, "little"))
    data, ends = b"".join(parts), np.cumsum([len(part) for part in parts])
    assert are_whole(data, ends)
    damaged = bytearray(data)
    damaged[random.randrange(len(data))] ^= 1 << random.randrange(8)
    assert not are_whole(bytes(damaged), ends)
    assert len(parts) == 1 or not are_whole(data, np.append(ends[:-1] + 1, ends[-1]))


def transactions(random: Random, rows: Rows) -> bytes:
    """Return small transactions as OLTP writes them, with several table ids and unwanted tables."""
    body = rows.table_map()
    ids = [number.to_bytes(6, "little") for number in (3, 7, 900)]
    other = body[6:8] + body[8:].replace(b"\1t\0", b"\1u\0", 1)
    found = []
    for _ in range(random.choice((5, 60))):
        found.append(event(E.GTID, bytes(19)))
        for number in random.sample(ids, 2):
            found.append(event(E.TABLE_MAP, number + (other if number == ids[0] else body[6:])))
            kind = random.choice(KINDS)
            count = 2 if kind in (E.UPDATE_ROWS_V1, E.UPDATE_ROWS_V2) else 1
            images = b"".join(rows.image(rows.row()) for _ in range(count * random.choice((1, 1, 1, 3))))
            found.append(event(kind, number + _rows_body(rows, kind, images)[6:]))
        found.append(event(E.XID, bytes(8)))
    return b"".join(found)


def _rows_body(rows: Rows, kind: EventType, images: bytes) -> bytes:
    """Return the body of a version 1 event; `rows_event` writes version 2, whose post header has two more bytes."""
    version_1 = {
        E.WRITE_ROWS_V1: E.WRITE_ROWS_V2,
        E.UPDATE_ROWS_V1: E.UPDATE_ROWS_V2,
        E.DELETE_ROWS_V1: E.DELETE_ROWS_V2,
    }
    body = rows.rows_event(version_1.get(kind, kind), images)
    return body[:8] + body[10:] if kind in version_1 else body


def in_order(data: bytes, rows: Rows):
    return list(_Decoder(data, False, {TABLE: rows.schema}, RangeOrigin("s1", "f", 4)).in_order({}))


@pytest.mark.parametrize("seed", range(30))
def test_transactions_are_read_alike(seed):
    random = Random(seed)
    rows = Rows(random)
    data = transactions(random, rows)
    assert skim(data, False, "f", 4) is not None
    found = list(decode_range(data, False, {TABLE: rows.schema}, {}, RangeOrigin("s1", "f", 4)))
    assert [(table, batch.to_pydict()) for table, batch in found] == [
        (table, batch.to_pydict()) for table, batch in in_order(data, rows)
    ]


@pytest.mark.parametrize("seed", range(15))
def test_mangled_transactions_are_read_alike_or_refused(seed):
    random, refused = Random(seed), 0
    rows = Rows(random)
    data = transactions(random, rows)
    for _ in range(20):
        changed = mangled(random, data)
        try:
            found = list(decode_range(changed, False, {TABLE: rows.schema}, {}, RangeOrigin("s1", "f", 4)))
        except UnshardError:
            refused += 1
            continue
        assert [(t, b.to_pydict()) for t, b in found] == [(t, b.to_pydict()) for t, b in in_order(changed, rows)]
    assert refused > 0


def test_what_is_rare_is_left_to_the_other_reader():
    rows = Rows(Random(1), ("int",))
    data = transactions(Random(1), rows)
    assert skim(data + event(E.QUERY, b"\0" * 13 + b"\0SAVEPOINT a"), False, "f", 4) is None
    assert skim(data + event(E.TRANSACTION_PAYLOAD, b"\0"), False, "f", 4) is None
    assert skim(b"", False, "f", 4) is None


def test_rows_that_the_dump_has_seen_are_passed_over():
    rows = Rows(Random(2), ("int",))
    data = transactions(Random(2), rows)
    middle = len(data) // 2
    read = [
        decode_range(data, False, {TABLE: rows.schema}, {TABLE: start}, RangeOrigin("s1", "f", 4))
        for start in (0, middle, len(data) + 4)
    ]
    none, some, whole = [sum(batch.num_rows for _, batch in found) for found in reversed(read)]
    assert none == 0 < some < whole


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ([], []),
        ([10] * 10, [(0, 4), (4, 7), (7, 10)]),
        ([10] * 4, [(0, 4)]),
        ([1, 1, 100, 1, 1], [(0, 3), (3, 5)]),
        ([100], [(0, 1)]),
        ([40, 0], [(0, 2)]),
    ],
)
def test_pieces_are_of_almost_equal_size(sizes, found):
    assert [(piece.start, piece.stop) for piece in pieces(np.array(sizes, np.int64), 30)] == found
